"""NumPy: what one writes with it, in the type of the inputs. In float64 it is what all results are checked with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from suite.library import TOP, Array, Library, Tensor, put_together


class Numpy(Library):
  """Variants: "exact" computes in float64."""

  def tensor(self, array: Array) -> Tensor:
    return array.astype(np.float64) if self.variant == "exact" and array.dtype != np.int32 else array

  def array(self, tensor: Tensor) -> Array:
    return np.asarray(tensor)

  def to_bfloat16(self, x: Tensor) -> Tensor:
    """The value rounded to bfloat16 (to nearest even), in the type that it came in: NumPy has no bfloat16."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).astype(x.dtype)

  def product_int8(self, a: Tensor, b: Tensor) -> Tensor:
    return a.astype(np.int32) @ b.astype(np.int32) if a.dtype == np.int8 else a @ b

  def swapped(self, x: Tensor, a: int, b: int) -> Tensor:
    return x.swapaxes(a, b)

  def matrix_function(self, name: str, *x: Tensor) -> Tensor:
    a = x[0]
    if name in ("qr", "eigh", "svd"):
      factors = np.linalg.svd(a, full_matrices=False) if name == "svd" else getattr(np.linalg, name)(a)
      return put_together(name, *factors)
    if name == "cdist":
      squares = np.square(a).sum(1)[:, None] + np.square(x[1]).sum(1) - 2 * a @ x[1].T
      return np.sqrt(np.maximum(squares, 0))
    if name == "topk":
      return np.sort(np.partition(a, a.shape[-1] - TOP, axis=-1)[..., -TOP:], axis=-1)[..., ::-1]
    if name == "median":  # the lesser of two in the middle
      return np.partition(a, (a.shape[-1] - 1) // 2, axis=-1)[..., (a.shape[-1] - 1) // 2]
    if name == "cummax":
      return np.maximum.accumulate(a, axis=-1)
    if name in ("sort", "cumsum"):
      return np.sort(a, axis=-1) if name == "sort" else np.cumsum(a, axis=-1)
    return np.linalg.cholesky(a) if name == "cholesky" else np.linalg.solve(a, x[1])

  def relu(self, x: Tensor) -> Tensor:
    return np.maximum(x, 0)

  def gelu(self, x: Tensor) -> Tensor:
    return x * 0.5 * (1 + np.tanh(x.dtype.type((2 / np.pi) ** 0.5) * (x + x.dtype.type(0.044715) * x * x * x)))

  def softmax(self, x: Tensor) -> Tensor:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    return e

  def layer_norm(self, x: Tensor) -> Tensor:
    centred = x - x.mean(axis=-1, keepdims=True)
    centred /= np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-5)
    return centred

  def attention(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    length = q.shape[-2]
    scores = q @ k.swapaxes(-1, -2) / q.dtype.type(np.sqrt(q.shape[-1]))
    if causal:
      scores = scores + np.where(np.tri(length, dtype=bool), 0, -np.inf).astype(q.dtype)
    return self.softmax(scores) @ v

  def conv2d(
    self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
  ) -> Tensor:
    """A matrix product for each position in the window, and each group."""
    batch, channels = x.shape[:2]
    padded = self.pad(x, padding) if padding else x
    grouped = w.reshape(groups, -1, *w.shape[1:])
    out: Array = 0
    for place in window_places(padded.shape, w.shape, stride, dilation):
      part = padded[:, :, place.rows, place.columns]
      height, width = part.shape[2:]
      part = part.reshape(batch, groups, channels // groups, height * width)
      out = out + grouped[..., place.i, place.j] @ part
    return out.reshape(batch, len(w), height, width)

  def conv1d(self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    return self.conv2d(padded[:, :, None], w[:, :, None], stride)[:, :, 0]

  def conv_transpose2d(self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    (batch, channels), out = x.shape[:2], w.shape[1]
    height, width = ((size - 1) * stride + window for size, window in zip(x.shape[2:], w.shape[2:]))
    whole = np.zeros((batch, out, height, width), x.dtype)
    for p in window_places(whole.shape, w.shape, stride):
      part = w[:, :, p.i, p.j].T @ x.reshape(batch, channels, -1)
      whole[:, :, p.rows, p.columns] += part.reshape(batch, out, *x.shape[2:])
    return whole[:, :, padding : height - padding, padding : width - padding]

  def batch_norm(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor = None, var: Tensor = None) -> Tensor:
    if mean is None:
      mean, var = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    scale = weight / np.sqrt(var + x.dtype.type(1e-5))
    return x * scale[:, None, None] + (bias - mean * scale)[:, None, None]

  def max_pool(self, x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
    edge = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(x, edge, constant_values=-np.inf)
    parts = (padded[:, :, p.rows, p.columns] for p in window_places(padded.shape, (1, 1, size, size), stride))
    return np.maximum.reduce(list(parts))

  def pad(self, x: Tensor, by: int) -> Tensor:
    return np.pad(x, ((0, 0), (0, 0), (by, by), (by, by)))

  def cat(self, x: Tensor, y: Tensor, axis: int) -> Tensor:
    return np.concatenate((x, y), axis=axis)

  def stack(self, tensors: tuple[Tensor, ...], axis: int) -> Tensor:
    return np.stack(tensors, axis)

  def recurrent(self, kind: str, x: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    into, across, into_bias, across_bias = weights
    given = x @ into.T + into_bias
    h = np.zeros((x.shape[1], across.shape[1]), x.dtype)
    c, seen = h, []
    for step in given:
      handed = h @ across.T + across_bias
      if kind == "gru":
        (rx, zx, nx), (rh, zh, nh) = np.split(step, 3, axis=-1), np.split(handed, 3, axis=-1)
        new, update = np.tanh(nx + sigmoid(rx + rh) * nh), sigmoid(zx + zh)
        h = new + update * (h - new)
      else:
        i, f, g, o = np.split(step + handed, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
      seen.append(h)
    return np.stack(seen)

  def embedding_bag(self, table: Tensor, ids: Tensor) -> Tensor:
    return table[ids].sum(axis=1)

  def mean_of_image(self, x: Tensor) -> Tensor:
    return x.mean(axis=(2, 3))

  def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
    return -np.log(self.softmax(logits)[np.arange(len(labels)), labels]).mean()

  def training_step(
    self, loss: Callable[..., Tensor], weights: Mapping[str, Array], data: tuple[Tensor, ...], rate: float
  ) -> Callable[[], Tensor]:
    from suite.numpy_gradients import NumpyGradients

    tape = NumpyGradients()
    trained = {name: self.tensor(array).copy() for name, array in weights.items()}
    adam = Adam(list(trained.values()), rate)

    def step() -> Tensor:
      value, gradients = tape.differentiate(loss, trained, data)
      adam.step([gradients[name] for name in trained])
      return value

    return step

  def adam(
    self, weights: Mapping[str, Array], gradients: tuple[Tensor, ...], rate: float
  ) -> Callable[[], list[Tensor]]:
    adam = Adam([self.tensor(array).copy() for array in weights.values()], rate)
    return lambda: adam.step(gradients)


class Adam:
  """The optimiser of `Library.training_step`."""

  def __init__(self, weights: list[Array], rate: float) -> None:
    self.weights, self.rate, self.steps = weights, rate, 0
    self.first, self.second = ([np.zeros_like(w) for w in weights] for _ in range(2))

  def step(self, gradients: Sequence[Array]) -> list[Array]:
    """Changes the weights, and gives them."""
    self.steps += 1
    for w, m, v, g in zip(self.weights, self.first, self.second, gradients, strict=True):
      m += 0.1 * (g - m)
      v += 0.001 * (g * g - v)
      root = np.sqrt(v / (1 - 0.999**self.steps)) + 1e-8
      w -= self.rate / (1 - 0.9**self.steps) * m / root
    return self.weights


def sigmoid(x: Array) -> Array:
  """The logistic function, in the type of x."""
  return 1 / (1 + np.exp(-x))


class Place:
  """A position (i, j) in a window, and the rows and columns of the image that are there as the window moves."""

  def __init__(self, i: int, j: int, height: int, width: int, stride: int, dilation: int) -> None:
    self.i, self.j = i, j
    top, left = i * dilation, j * dilation
    self.rows = slice(top, top + (height - 1) * stride + 1, stride)
    self.columns = slice(left, left + (width - 1) * stride + 1, stride)


def window_places(image: tuple[int, ...], window: tuple[int, ...], stride: int, dilation: int = 1) -> list[Place]:
  """All positions of a window; both shapes end in height and width, the image's includes padding."""
  height, width = ((image[axis] - (window[axis] - 1) * dilation - 1) // stride + 1 for axis in (2, 3))
  return [Place(i, j, height, width, stride, dilation) for i in range(window[2]) for j in range(window[3])]
