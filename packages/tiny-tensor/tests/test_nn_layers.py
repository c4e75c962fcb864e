"""Layers against NumPy, on the reference device."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, Variable, dtypes, nn

Array = Any


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    Tensor.manual_seed(7)
    yield


def data(*shape: int) -> Array:
  return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def close(ours: Tensor, expected: Array, tolerance: float = 1e-5) -> None:
  got = ours.numpy()
  assert got.shape == np.shape(expected)
  np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def normalised(x: Array, axes: tuple[int, ...], eps: float) -> Array:
  return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def naive_conv(x: Array, w: Array, bias: Array | None, stride: int, padding: int, dilation: int, groups: int) -> Array:
  """A 2-D convolution straight from its definition."""
  x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
  out_channels, in_group, kh, kw = w.shape
  height = (x.shape[2] - dilation * (kh - 1) - 1) // stride + 1
  width = (x.shape[3] - dilation * (kw - 1) - 1) // stride + 1
  out = np.zeros((x.shape[0], out_channels, height, width))
  for o in range(out_channels):
    first = o // (out_channels // groups) * in_group
    for i in range(height):
      for j in range(width):
        rows = slice(i * stride, i * stride + dilation * (kh - 1) + 1, dilation)
        columns = slice(j * stride, j * stride + dilation * (kw - 1) + 1, dilation)
        out[:, o, i, j] = (x[:, first : first + in_group, rows, columns] * w[o]).sum((1, 2, 3))
  return out if bias is None else out + bias[:, None, None]


def naive_conv_transpose(
  x: Array, w: Array, bias: Array | None, stride: int, padding: int, output_padding: int
) -> Array:
  """Each input element adds its multiple of the kernel to the output."""
  _, _, kh, kw = w.shape
  n, _, h, width = x.shape
  out = np.zeros((n, w.shape[1], (h - 1) * stride + kh + output_padding, (width - 1) * stride + kw + output_padding))
  for i in range(h):
    for j in range(width):
      patch = np.einsum("nc,cokl->nokl", x[:, :, i, j], w)
      out[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw] += patch
  out = out[:, :, padding : out.shape[2] - padding, padding : out.shape[3] - padding]
  return out if bias is None else out + bias[:, None, None]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3), (0,)])
def test_linear(batch: tuple[int, ...], bias: bool) -> None:
  layer, x = nn.Linear(5, 4, bias=bias), data(*batch, 5)
  expected = x @ layer.weight.numpy().T
  close(layer(Tensor(x)), expected if layer.bias is None else expected + layer.bias.numpy())


def test_linear_starts_within_its_bound() -> None:
  weight = nn.Linear(64, 32).weight.numpy()
  bound = 1 / math.sqrt(64)
  assert abs(weight).max() <= bound
  assert abs(weight).max() > 0.9 * bound
  assert abs(weight.mean()) < 0.1 * bound


CONVOLUTIONS = [
  {"kernel_size": 3},
  {"kernel_size": 3, "padding": 1},
  {"kernel_size": 1},
  {"kernel_size": 2, "stride": 2, "bias": False},
  {"kernel_size": 3, "dilation": 2, "padding": 2},
  {"kernel_size": 3, "groups": 2},
  {"kernel_size": 3, "groups": 4, "padding": 1, "stride": 2},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_conv2d(options: dict[str, Any]) -> None:
  layer, x = nn.Conv2d(4, 8, **options), data(2, 4, 7, 6)
  bias = None if layer.bias is None else layer.bias.numpy()
  o = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1} | options
  expected = naive_conv(x, layer.weight.numpy(), bias, o["stride"], o["padding"], o["dilation"], o["groups"])
  close(layer(Tensor(x)), expected)


def test_conv1d_and_same_padding() -> None:
  layer, x = nn.Conv1d(3, 4, 3, padding="same"), data(2, 3, 7)
  assert layer.bias is not None
  padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
  w = layer.weight.numpy()
  slow = np.stack([np.einsum("nck,ock->no", padded[:, :, i : i + 3], w) for i in range(7)], axis=-1)
  close(layer(Tensor(x)), slow + layer.bias.numpy()[:, None])


def test_conv3d_of_a_flat_volume_is_conv2d() -> None:
  layer, x = nn.Conv3d(2, 3, (1, 3, 3)), data(2, 2, 1, 5, 5)
  assert layer.bias is not None
  expected = naive_conv(x[:, :, 0], layer.weight.numpy()[:, :, 0], layer.bias.numpy(), 1, 0, 1, 1)
  close(layer(Tensor(x)), expected[:, :, None])


@pytest.mark.parametrize(
  ("stride", "padding", "output_padding"), [(1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 1, 1), (3, 1, 1), (1, 1, 0), (5, 0, 0)]
)
def test_conv_transpose2d(stride: int, padding: int, output_padding: int) -> None:
  layer = nn.ConvTranspose2d(3, 2, 3, stride=stride, padding=padding, output_padding=output_padding)
  x = data(2, 3, 4, 5)
  assert layer.bias is not None
  expected = naive_conv_transpose(x, layer.weight.numpy(), layer.bias.numpy(), stride, padding, output_padding)
  close(layer(Tensor(x)), expected)


@pytest.mark.parametrize(("size", "kernel", "stride"), [(8, 3, 2), (8, 5, 4), (9, 3, 2)])
def test_phases_of_a_gradient_in_an_input_are_one_kernel(size: int, kernel: int, stride: int) -> None:
  """And another one cuts images where phases have different sizes, with what comes after."""
  with Context(DEVICE="REF"):
    x, w = Tensor.empty(2, 4, size, 8), Tensor.empty(6, 4, kernel, kernel)
    out = x.relu().conv2d(w, stride=stride, padding=1)
    (gradient,) = (out * Tensor.empty(*out.shape)).sum().gradient(x)
    schedule = Tensor.schedule(gradient)
    assert len([item for item in schedule if "reduce" in str(item)]) == 1
    assert len(schedule) == 2


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (2, 3, 4, 5), (1, 3, 2, 2)])
def test_batchnorm_trains_and_then_remembers(shape: tuple[int, ...]) -> None:
  layer, x = nn.BatchNorm(3), data(*shape)
  axes = tuple(a for a in range(x.ndim) if a != 1)
  with Tensor.train():
    close(layer(Tensor(x)), normalised(x, axes, 1e-5), 1e-4)
  count = x.size // 3
  close(layer.running_mean, 0.1 * x.mean(axes))
  close(layer.running_var, 0.9 + 0.1 * x.var(axes) * count / (count - 1))
  assert layer.num_batches_tracked.tolist() == [1]
  per_channel = [1, 3] + [1] * (x.ndim - 2)
  mean, var = layer.running_mean.numpy().reshape(per_channel), layer.running_var.numpy().reshape(per_channel)
  close(layer(Tensor(x)), (x - mean) / np.sqrt(var + 1e-5), 1e-4)
  assert layer.num_batches_tracked.tolist() == [1], "only training moves the statistics"


@pytest.mark.parametrize(
  ("layer", "shape", "axes", "eps"),
  [
    (lambda: nn.LayerNorm(6), (2, 3, 6), (2,), 1e-5),
    (lambda: nn.LayerNorm((3, 6)), (2, 3, 6), (1, 2), 1e-5),
    (lambda: nn.LayerNorm(6, elementwise_affine=False), (6,), (0,), 1e-5),
    (lambda: nn.LayerNorm2d(3), (2, 3, 4, 5), (1,), 1e-5),
    (lambda: nn.InstanceNorm(3), (2, 3, 4, 5), (2, 3), 1e-5),
  ],
)
def test_normalisation(layer: Callable[[], Any], shape: tuple[int, ...], axes: tuple[int, ...], eps: float) -> None:
  x = data(*shape)
  close(layer()(Tensor(x)), normalised(x, axes, eps), 1e-4)


def test_groupnorm() -> None:
  layer, x = nn.GroupNorm(2, 4), data(3, 4, 5)
  assert layer.weight is not None and layer.bias is not None
  layer.weight.assign(Tensor([1.0, 2.0, 3.0, 4.0]))
  layer.bias.assign(Tensor([0.5, 0.0, 0.0, -0.5]))
  plain = normalised(x.reshape(3, 2, 10), (2,), 1e-5).reshape(3, 4, 5)
  expected = plain * np.array([[1], [2], [3], [4]]) + np.array([[0.5], [0], [0], [-0.5]])
  close(layer(Tensor(x)), expected, 1e-4)


def test_groups_of_any_number_of_channels() -> None:
  layer, x = nn.GroupNorm(3, 4, affine=False), data(2, 6, 5)
  close(layer(Tensor(x)), normalised(x.reshape(2, 3, 10), (2,), 1e-5).reshape(2, 6, 5), 1e-4)
  assert nn.InstanceNorm(4).num_features == 4 and nn.GroupNorm(2, 4)(Tensor.ones(0, 4, 3)).shape == (0, 4, 3)


@pytest.mark.parametrize("axis", [0, 2])
def test_groups_along_a_symbolic_axis(axis: int) -> None:
  x = data(3, 4, 3)
  expected = normalised(x[:2].reshape(2, 2, 6), (2,), 1e-5).reshape(2, 4, 3)
  if axis == 2:
    expected = normalised(x[:, :, :2].reshape(3, 2, 4), (2,), 1e-5).reshape(3, 4, 2)
  size = Variable("size", 1, 3).bind(2)
  part = Tensor(x)[:size] if axis == 0 else Tensor(x)[:, :, :size]
  out = nn.GroupNorm(2, 4)(part)
  close(out[:2] if axis == 0 else out[:, :, :2], expected, 1e-4)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16])
def test_rmsnorm_does_not_overflow_a_half(dtype: Any) -> None:
  x = (data(2, 8) + 1) * 300
  out = nn.RMSNorm(8)(Tensor(x).cast(dtype))
  expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)
  close(out, expected, 1e-2 if dtype is dtypes.float16 else 1e-4)


@pytest.mark.parametrize("index", [[0, 2, 6], [[1, 1], [5, 0]], 3, []])
def test_embedding(index: Any) -> None:
  layer = nn.Embedding(7, 4)
  where = np.array(index, dtype=np.int32)
  close(layer(Tensor(where)), layer.weight.numpy()[where])


def test_embedding_longer_than_its_index_type_counts() -> None:
  layer = nn.Embedding(300, 2)
  close(layer(Tensor([5, 120], dtype=dtypes.int8)), layer.weight.numpy()[[5, 120]])


def test_lstm_cell() -> None:
  cell, x, h, c = nn.LSTMCell(3, 2), data(4, 3), data(4, 2), data(4, 2) + 1
  gates = x @ cell.weight_ih.numpy().T + h @ cell.weight_hh.numpy().T
  i, f, g, o = np.split(gates, 4, axis=1)

  def sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))

  new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
  ours_h, ours_c = cell(Tensor(x), (Tensor(h), Tensor(c)))
  close(ours_c, new_c)
  close(ours_h, sigmoid(o) * np.tanh(new_c))
  first_h, _ = cell(Tensor(x))
  assert first_h.shape == (4, 2)


def test_sequential_and_dropout() -> None:
  net = nn.Sequential(nn.Linear(4, 8), Tensor.relu, nn.Dropout(0.5))
  x = Tensor(data(3, 4))
  dense = net(x).numpy()
  with Tensor.train():
    dropped = net(x).numpy()
  kept = dropped != 0
  np.testing.assert_allclose(dropped[kept], 2 * dense[kept], rtol=1e-5)
  assert (dropped == 0).sum() > (dense == 0).sum()


def test_layers_without_weights() -> None:
  net = nn.Sequential(nn.Linear(3, 2), nn.LeakyReLU(0.2), nn.Flatten(), nn.Softmax(dim=1))
  assert list(nn.state.get_state_dict({"net": net})) == ["net.0.weight", "net.0.bias"], "as PyTorch names them"
  assert len(net) == 4 and repr(net[1]) == "LeakyReLU(0.2)" and repr(net[3]) == "Softmax(dim=1)"
  x, target = Tensor(data(2, 3)), Tensor([1, 0])
  out = net[0](x).numpy()
  powers = np.exp(np.where(out > 0, out, 0.2 * out))
  np.testing.assert_allclose(net(x).numpy(), powers / powers.sum(1, keepdims=True), rtol=1e-5)
  loss = nn.CrossEntropyLoss(reduction="sum")(x, target).item()
  assert loss == pytest.approx(x.cross_entropy(target, reduction="sum").item())
  for wrong in (lambda: nn.ReLU(slope=2), lambda: nn.MaxPool2d(), lambda: nn.MSELoss(size=1), lambda: nn.Tanh()(x, x)):
    with pytest.raises(TypeError, match="ReLU: .*slope|MaxPool2d: .*kernel_size|MSELoss: .*size|Tanh takes 1 Tensors"):
      wrong()


WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
  (lambda: nn.Linear(3, 2)(Tensor.ones(4, 5)), ValueError, r"3 features.*\(4, 5\)"),
  (lambda: nn.Conv2d(3, 4, 3)(Tensor.ones(1, 2, 8, 8)), ValueError, r"3.*\(1, 2, 8, 8\)"),
  (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "groups=2"),
  (lambda: nn.Conv2d(3, 4, (3, 3, 3)), ValueError, "kernel_size"),
  (lambda: nn.Conv2d(3, 4, 3, padding="half"), ValueError, "'half'"),
  (lambda: nn.Conv2d(3, 4, 3, padding="same", stride=2), ValueError, "stride"),
  (lambda: nn.BatchNorm(3)(Tensor.ones(2, 4)), ValueError, r"3 channels.*\(2, 4\)"),
  (lambda: nn.GroupNorm(3, 4), ValueError, "num_groups=3"),
  (lambda: nn.GroupNorm(2, 4)(Tensor.ones(1, 6, 2)), ValueError, "expects 4 channels"),
  (lambda: nn.GroupNorm(4, 4, affine=False)(Tensor.ones(1, 6, 2)), ValueError, "makes 4 groups of the channels"),
  (lambda: nn.LayerNorm(5)(Tensor.ones(2, 4)), ValueError, r"5.*\(2, 4\)"),
  (lambda: nn.RMSNorm(5)(Tensor.ones(2, 4)), ValueError, r"5.*\(2, 4\)"),
  (lambda: nn.Embedding(5, 2)(Tensor([1.5])), TypeError, "float32"),
  (lambda: nn.Dropout(1.5), ValueError, "1.5"),
]


@pytest.mark.parametrize(("act", "kind", "message"), WRONG)
def test_wrong_input(act: Callable[[], object], kind: type[Exception], message: str) -> None:
  with pytest.raises(kind, match=message):
    act()


def test_second_derivatives_of_normalisation_are_those_of_its_formula() -> None:
  def formula(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

  seen, weights = [], Tensor(data(3, 6) ** 2)
  for normalise in (formula, lambda x: x.layernorm()):
    x = Tensor(data(3, 6) * 2 + 1)
    (first,) = (normalise(x) * weights).sum().gradient(x)
    (second,) = (first * weights.flip(1)).sum().gradient(x)
    seen.append((first.numpy(), second.numpy()))
  for wanted, got in zip(*seen):
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)


def test_a_batch_norm_is_three_kernels_forward_and_two_more_back() -> None:
  with Context(DEVICE="REF"), Tensor.train():
    norm = nn.BatchNorm(40)
    given = {"running_mean", "running_var", "weight", "bias"}
    for name in given:
      setattr(norm, name, Tensor.empty(40))
    x, above = Tensor.empty(8, 40, 12, 12), Tensor.empty(8, 40, 12, 12)
    out = norm(x).relu()
    assert norm.weight is not None and norm.bias is not None
    gradients = (out * above).sum().gradient(x, norm.weight, norm.bias)
    assert len(Tensor.schedule(out, norm.running_mean, norm.running_var, *gradients)) <= 5
