"""Attention, transformer layers and recurrent layers against PyTorch's with the same weights."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, nn

torch: Any = pytest.importorskip("torch")  # only in the environment `oracle`


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
  with Context(DEVICE="CPU"):
    Tensor.manual_seed(1)
    yield


def data(*shape: int) -> Any:
  return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def with_our_weights(ours: Any, theirs: Any) -> Any:
  """Theirs, strictly: every weight has the same name and shape."""
  theirs.load_state_dict({k: torch.from_numpy(t.numpy().copy()) for k, t in nn.state.get_state_dict(ours).items()})
  return theirs.eval()


def check(ours: list[Tensor | None], theirs: list[Any], inputs: list[tuple[Tensor, Any]]) -> None:
  """Results, and the gradients of the first in the inputs."""
  for got, expected in zip(ours, theirs, strict=True):
    assert got is not None and got.shape == tuple(expected.shape)
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
  assert ours[0] is not None
  ours[0].square().sum().backward()
  theirs[0].square().sum().backward()
  for x, y in inputs:
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-3, atol=1e-4)


def both(*shape: int) -> tuple[Tensor, Any]:
  raw = data(*shape)
  return Tensor(raw, requires_grad=True), torch.tensor(raw, requires_grad=True)


RECURRENT: list[tuple[str, dict[str, Any]]] = [
  ("RNN", {}),
  ("GRU", {"batch_first": True, "bias": False}),
  ("LSTM", {"bidirectional": True}),
]


@pytest.mark.parametrize(("name", "options"), RECURRENT, ids=[r[0] for r in RECURRENT])
def test_recurrent(name: str, options: dict[str, Any]) -> None:
  ours = getattr(nn, name)(3, 4, **options)
  theirs = with_our_weights(ours, getattr(torch.nn, name)(3, 4, **options))
  x, y = both(2, 2, 3)
  start = [data(2 if options.get("bidirectional") else 1, 2, 4) for _ in range(2)]
  if name == "LSTM":
    out, (h, c) = ours(x, tuple(Tensor(s) for s in start))
    expected, (eh, ec) = theirs(y, tuple(torch.tensor(s) for s in start))
    check([out, h, c], [expected, eh, ec], [(x, y)])
  else:
    check(list(ours(x, Tensor(start[0]))), list(theirs(y, torch.tensor(start[0]))), [(x, y)])


@pytest.mark.parametrize("batch_first", [False, True])
def test_attention(batch_first: bool) -> None:
  ours = nn.MultiheadAttention(8, 2, batch_first=batch_first)
  theirs = with_our_weights(ours, torch.nn.MultiheadAttention(8, 2, batch_first=batch_first))
  (q, tq), (k, tk) = (both(2, 3, 8), both(2, 5, 8)) if batch_first else (both(3, 2, 8), both(5, 2, 8))
  hidden = np.array([[False, True, False, False, False], [False, False, False, True, True]])
  near = np.triu(np.ones((3, 5), bool), 2)
  got = ours(q, k, k, Tensor(hidden), attn_mask=Tensor(near))
  expected = theirs(tq, tk, tk, torch.tensor(hidden), attn_mask=torch.tensor(near))
  check(list(got), list(expected), [(q, tq), (k, tk)])


LAYERS: list[tuple[str, Callable[[Any], Any]]] = [
  ("post", lambda n: n.TransformerEncoderLayer(8, 2, 16)),
  ("pre", lambda n: n.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, norm_first=True)),
]


@pytest.mark.parametrize(("name", "make"), LAYERS, ids=[x[0] for x in LAYERS])
def test_encoder_layer(name: str, make: Callable[[Any], Any]) -> None:
  ours = make(nn)
  theirs = with_our_weights(ours, make(torch.nn))
  x, y = both(4, 4, 8)
  mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
  check([ours(x, is_causal=True)], [theirs(y, mask)], [(x, y)])


def test_decoder_layer() -> None:
  ours = nn.TransformerDecoderLayer(8, 2, 16)
  theirs = with_our_weights(ours, torch.nn.TransformerDecoderLayer(8, 2, 16))
  (x, y), (memory, other) = both(3, 2, 8), both(5, 2, 8)
  mask = np.triu(np.full((3, 3), -np.inf, np.float32), 1)
  check([ours(x, memory, Tensor(mask))], [theirs(y, other, torch.tensor(mask))], [(x, y), (memory, other)])


def test_encoder_and_decoder() -> None:
  encoder, other_encoder = (
    n.TransformerEncoder(n.TransformerEncoderLayer(8, 2, 16), 2, n.LayerNorm(8)) for n in (nn, torch.nn)
  )
  decoder, other_decoder = (n.TransformerDecoder(n.TransformerDecoderLayer(8, 2, 16), 2) for n in (nn, torch.nn))
  with_our_weights(encoder, other_encoder)
  with_our_weights(decoder, other_decoder)
  (x, y), (target, other) = both(4, 2, 8), both(3, 2, 8)
  mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
  ours = decoder(target, encoder(x, Tensor(mask)), tgt_is_causal=True)
  causal = torch.nn.Transformer.generate_square_subsequent_mask(3)
  theirs = other_decoder(other, other_encoder(y, torch.tensor(mask)), causal)
  check([ours], [theirs], [(x, y), (target, other)])
