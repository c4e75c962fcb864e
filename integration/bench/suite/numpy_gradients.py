"""Reverse-mode gradients over NumPy, of the functions that the training workloads use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from suite.library import Array, Program
from suite.numpy_library import Numpy, sigmoid, window_places


@dataclass(eq=False)
class Node:
  """A value, its gradient as far as it is known, and what adds to the gradients of what it was made of."""

  value: Array
  backward: Callable[[Array], None] = lambda gradient: None
  gradient: Array = field(default=0)

  @property
  def shape(self) -> tuple[int, ...]:
    shape: tuple[int, ...] = self.value.shape
    return shape

  def reshape(self, *shape: int) -> Node:
    return record(self.value.reshape(*shape), lambda g: self.add(g.reshape(self.value.shape)))

  def add(self, gradient: Array) -> None:
    self.gradient = self.gradient + gradient

  def __add__(self, other: Node) -> Node:
    def backward(g: Array) -> None:
      self.add(g)
      other.add(g.reshape(-1, *other.value.shape).sum(axis=0))

    return record(self.value + other.value, backward)

  def __mul__(self, other: Node) -> Node:
    def backward(g: Array) -> None:
      self.add(g * other.value)
      other.add((g * self.value).reshape(-1, *other.value.shape).sum(axis=0))

    return record(self.value * other.value, backward)

  def __getitem__(self, rows: Node | int) -> Node:
    ids = rows.value if isinstance(rows, Node) else rows

    def backward(g: Array) -> None:
      whole = np.zeros_like(self.value)
      np.add.at(whole, ids, g)
      self.add(whole)

    return record(self.value[ids], backward)

  def __matmul__(self, other: Node) -> Node:
    def backward(g: Array) -> None:
      self.add(g @ other.value.T)
      other.add(self.value.reshape(-1, self.shape[-1]).T @ g.reshape(-1, g.shape[-1]))

    return record(self.value @ other.value, backward)


_tape: list[Node] = []


def record(value: Array, backward: Callable[[Array], None]) -> Node:
  """A new node on the tape."""
  _tape.append(Node(value, backward))
  return _tape[-1]


class NumpyGradients(Numpy):
  """The functions of `Numpy` on nodes."""

  def differentiate(
    self, loss: Program, weights: Mapping[str, Array], data: tuple[Array, ...]
  ) -> tuple[Array, dict[str, Array]]:
    """(loss, gradients of the weights)."""
    _tape.clear()
    leaves = {name: Node(w) for name, w in weights.items()}
    images, *rest = data
    value = loss(self, leaves, Node(images), *rest)
    value.gradient = np.ones_like(value.value)
    for node in reversed(_tape):
      node.backward(node.gradient)
    _tape.clear()
    return value.value, {name: leaf.gradient for name, leaf in leaves.items()}

  def relu(self, x: Node) -> Node:
    return record(np.maximum(x.value, 0), lambda g: x.add(g * (x.value > 0)))

  def swapped(self, x: Node, a: int, b: int) -> Node:
    return record(x.value.swapaxes(a, b), lambda g: x.add(g.swapaxes(a, b)))

  def gelu(self, x: Node) -> Node:
    a = x.value
    scale = a.dtype.type((2 / np.pi) ** 0.5)
    t = np.tanh(scale * (a + a.dtype.type(0.044715) * a * a * a))
    slope = 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * scale * (1 + a.dtype.type(3 * 0.044715) * a * a)
    return record(0.5 * a * (1 + t), lambda g: x.add(g * slope))

  def layer_norm(self, x: Node) -> Node:
    value = x.value
    inverse = 1 / np.sqrt(value.var(axis=-1, keepdims=True) + value.dtype.type(1e-5))
    unit = (value - value.mean(axis=-1, keepdims=True)) * inverse

    def backward(g: Array) -> None:
      along = (g * unit).mean(axis=-1, keepdims=True)
      x.add(inverse * (g - g.mean(axis=-1, keepdims=True) - unit * along))

    return record(unit, backward)

  def attention(self, q: Node, k: Node, v: Node, causal: bool = True) -> Node:
    scale, length = q.value.dtype.type(q.shape[-1] ** -0.5), q.shape[-2]
    scores = q.value @ k.value.swapaxes(-1, -2) * scale
    if causal:
      scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    shares = self.softmax(scores)

    def backward(g: Array) -> None:
      h = g @ v.value.swapaxes(-1, -2)
      h = shares * (h - (h * shares).sum(axis=-1, keepdims=True)) * scale
      q.add(h @ k.value)
      k.add(h.swapaxes(-1, -2) @ q.value)
      v.add(shares.swapaxes(-1, -2) @ g)

    return record(shares @ v.value, backward)

  def conv2d(self, x: Node, w: Node, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1) -> Node:
    window, inside = w.value, slice(padding, -padding or None)
    image = np.pad(x.value, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    assert (dilation, groups) == (1, 1), "only gradients of plain convolutions are written here"

    def backward(g: Array) -> None:
      to_image, to_window = np.zeros_like(image), np.zeros_like(window)
      flat = g.reshape(len(image), len(window), -1)
      for p in window_places(image.shape, window.shape, stride):
        part = image[:, :, p.rows, p.columns]
        to_window[:, :, p.i, p.j] = np.tensordot(g, part, axes=((0, 2, 3), (0, 2, 3)))
        to_image[:, :, p.rows, p.columns] += (window[:, :, p.i, p.j].T @ flat).reshape(part.shape)
      x.add(to_image[:, :, inside, inside])
      w.add(to_window)

    return record(super().conv2d(image, window, stride), backward)

  def batch_norm(self, x: Node, weight: Node, bias: Node, mean: Array = None, var: Array = None) -> Node:
    assert mean is None, "training uses the statistics of the batch"
    axes = (0, 2, 3)
    value = x.value
    inverse = 1 / np.sqrt(value.var(axis=axes, keepdims=True) + value.dtype.type(1e-5))
    unit = (value - value.mean(axis=axes, keepdims=True)) * inverse
    scale = weight.value[:, None, None]

    def backward(g: Array) -> None:
      weight.add((g * unit).sum(axis=axes))
      bias.add(g.sum(axis=axes))
      h = g * scale
      along = (h * unit).mean(axis=axes, keepdims=True)
      x.add(inverse * (h - h.mean(axis=axes, keepdims=True) - unit * along))

    return record(unit * scale + bias.value[:, None, None], backward)

  def recurrent(self, kind: str, x: Node, weights: tuple[Node, ...]) -> Node:
    assert kind == "lstm", "only gradients of an LSTM are written here"
    into, across, into_bias, across_bias = (w.value for w in weights)
    given = x.value @ into.T + into_bias + across_bias
    h = c = np.zeros((x.shape[1], across.shape[1]), x.value.dtype)
    steps, seen = [], []
    for step in given:
      i, f, g, o = np.split(step + h @ across.T, 4, axis=-1)
      i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
      before, c = (h, c), f * c + i * g
      steps.append((*before, i, f, g, o, t := np.tanh(c)))
      h = o * t
      seen.append(h)

    def backward(gradient: Array) -> None:
      to_h = to_c = np.zeros_like(h)
      for n, (h_before, c_before, i, f, g, o, t) in reversed(list(enumerate(steps))):
        to_h = to_h + gradient[n]
        to_c = to_c + to_h * o * (1 - t * t)
        to_i, to_f, to_g = to_c * g * i * (1 - i), to_c * c_before * f * (1 - f), to_c * i * (1 - g * g)
        to_gates = np.concatenate((to_i, to_f, to_g, to_h * t * o * (1 - o)), axis=-1)
        for w, part in zip(weights, (to_gates.T @ x.value[n], to_gates.T @ h_before, *[to_gates.sum(axis=0)] * 2)):
          w.add(part)
        to_h, to_c = to_gates @ across, to_c * f

    return record(np.stack(seen), backward)

  def max_pool(self, x: Node, size: int, stride: int, padding: int = 0) -> Node:
    value = super().max_pool(x.value, size, stride, padding)
    assert padding == 0 and size == stride, "windows must not overlap"

    def backward(g: Array) -> None:
      out = np.zeros_like(x.value)
      taken = np.zeros(value.shape, bool)
      for p in window_places(x.value.shape, (1, 1, size, size), stride):
        here = (x.value[:, :, p.rows, p.columns] == value) & ~taken  # the first of equal ones
        out[:, :, p.rows, p.columns] = g * here
        taken |= here
      x.add(out)

    return record(value, backward)

  def mean_of_image(self, x: Node) -> Node:
    size = x.value.shape[2] * x.value.shape[3]
    return record(super().mean_of_image(x.value), lambda g: x.add(np.broadcast_to(g[:, :, None, None] / size, x.shape)))

  def cross_entropy(self, logits: Node, labels: Array) -> Node:
    chosen = (np.arange(len(labels)), labels)
    shares = self.softmax(logits.value)

    def backward(g: Array) -> None:
      out = shares.copy()
      out[chosen] -= 1
      logits.add(g * out / len(labels))

    return record(-np.log(shares[chosen]).mean(), backward)
