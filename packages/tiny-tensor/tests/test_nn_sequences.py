"""Recurrent layers and attention against their formulas in NumPy, on the reference device."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, nn

Array = Any


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    Tensor.manual_seed(3)
    yield


def data(*shape: int) -> Array:
  return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def weights(layer: Any) -> dict[str, Array]:
  return {k: t.numpy() for k, t in nn.state.get_state_dict(layer).items()}


def sigmoid(x: Array) -> Array:
  return 1 / (1 + np.exp(-x))


def test_rnn_there_and_back() -> None:
  layer, x = nn.RNN(2, 3, bidirectional=True), data(3, 1, 2)
  w = weights(layer)
  seen, last = layer(Tensor(x))
  for side, suffix, order in ((slice(0, 3), "_l0", [0, 1, 2]), (slice(3, 6), "_l0_reverse", [2, 1, 0])):
    h = np.zeros((1, 3))
    for t in order:
      gates = x[t] @ w["weight_ih" + suffix].T + w["bias_ih" + suffix] + w["bias_hh" + suffix]
      h = np.tanh(gates + h @ w["weight_hh" + suffix].T)
      np.testing.assert_allclose(seen.numpy()[t, :, side], h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last.numpy()[0 if order[0] == 0 else 1], h, rtol=1e-5, atol=1e-6)


def test_gru_of_two_layers() -> None:
  layer, x, start = nn.GRU(2, 2, num_layers=2, bias=False, batch_first=True), data(2, 2, 2), data(2, 2, 2)
  w = weights(layer)
  assert set(w) == {"weight_ih_l0", "weight_hh_l0", "weight_ih_l1", "weight_hh_l1"}
  seen, last = layer(Tensor(x), Tensor(start))
  h = [start[0], start[1]]
  for t in range(2):
    given = x[:, t]
    for k in range(2):
      into, across = given @ w[f"weight_ih_l{k}"].T, h[k] @ w[f"weight_hh_l{k}"].T
      reset, update = sigmoid(into[:, :2] + across[:, :2]), sigmoid(into[:, 2:4] + across[:, 2:4])
      h[k] = given = update * h[k] + (1 - update) * np.tanh(into[:, 4:] + reset * across[:, 4:])
    np.testing.assert_allclose(seen.numpy()[:, t], given, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(last.numpy(), np.stack(h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("steps", "hidden"), [(3, 2), (8, 8)])  # of many steps the weight is laid out in panels
def test_lstm_is_its_cell_over_time(steps: int, hidden: int) -> None:
  layer, cell, x = nn.LSTM(3, hidden), nn.LSTMCell(3, hidden), data(steps, 2, 3)
  for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
    setattr(cell, name, getattr(layer, name + "_l0"))
  seen, (h, c) = layer(Tensor(x))
  states = [cell(Tensor(x[0]))]
  for t in range(1, steps):
    states.append(cell(Tensor(x[t]), states[-1]))
  np.testing.assert_allclose(seen.numpy(), Tensor.stack(*[s[0] for s in states]).numpy(), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(h[0].numpy(), states[-1][0].numpy(), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(c[0].numpy(), states[-1][1].numpy(), rtol=1e-5, atol=1e-6)


def test_attention_of_two_heads() -> None:
  layer, x = nn.MultiheadAttention(4, 2, bias=False, batch_first=True), data(1, 3, 4)
  w = weights(layer)
  out, mean = layer(Tensor(x), Tensor(x), Tensor(x), is_causal=True)
  q, k, v = np.split(x[0] @ w["in_proj_weight"].T, 3, -1)
  heads, shares = [], []
  for part in (slice(0, 2), slice(2, 4)):
    scores = np.where(np.tri(3) > 0, q[:, part] @ k[:, part].T / np.sqrt(2), -np.inf)
    share = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    shares.append(share)
    heads.append(share @ v[:, part])
  assert mean is not None
  np.testing.assert_allclose(mean.numpy()[0], np.mean(shares, 0), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(out.numpy()[0], np.concatenate(heads, -1) @ w["out_proj.weight"].T, rtol=1e-5, atol=1e-6)
  assert layer(Tensor(x), Tensor(x), Tensor(x), need_weights=False)[1] is None


def test_transformer_layers_keep_shapes_and_drop_only_in_training() -> None:
  encoder, decoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5), nn.TransformerDecoderLayer(4, 2, 8)
  x, memory = Tensor(data(3, 2, 4)), Tensor(data(5, 2, 4))
  once = encoder(x)
  assert once.shape == decoder(x, memory).shape == (3, 2, 4)
  np.testing.assert_allclose(encoder(x).numpy(), once.numpy(), rtol=1e-5, atol=1e-6)
  with Tensor.train():
    assert np.abs(encoder(x).numpy() - once.numpy()).max() > 1e-3


WRONG: list[tuple[Callable[[], Any], str]] = [
  (lambda: nn.MultiheadAttention(5, 2), "num_heads=2 must divide embed_dim=5"),
  (lambda: nn.MultiheadAttention(4, 2)(Tensor.ones(3, 4), Tensor.ones(3, 4), Tensor.ones(3, 4)), r"got shape \(3, 4\)"),
  (lambda: nn.TransformerEncoderLayer(4, 2, activation="step"), "'step'"),
  (lambda: nn.GRU(2, 3)(Tensor.ones(4, 1, 5)), "GRU expects .* 2 features"),
  (lambda: nn.RNN(2, 3)(Tensor.ones(4, 1, 2), Tensor.ones(1, 2, 3)), r"shape \(1, 1, 3\), got \(1, 2, 3\)"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_errors(call: Callable[[], Any], message: str) -> None:
  with pytest.raises(ValueError, match=message):
    call()
