"""Reverse-mode gradients over NumPy, of the functions that the training workloads use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from suite.library import Array, Program
from suite.numpy_library import Numpy, window_places


@dataclass(eq=False)
class Node:
  """A value, its gradient as far as it is known, and what adds to the gradients of what it was made of."""

  value: Array
  backward: Callable[[Array], None] = lambda gradient: None
  gradient: Array = field(default=0)

  def reshape(self, *shape: int) -> Node:
    return record(self.value.reshape(*shape), lambda g: self.add(g.reshape(self.value.shape)))

  def add(self, gradient: Array) -> None:
    self.gradient = self.gradient + gradient

  def __add__(self, other: Node) -> Node:
    def backward(g: Array) -> None:
      self.add(g)
      other.add(g.reshape(-1, *other.value.shape).sum(axis=0))

    return record(self.value + other.value, backward)

  def __matmul__(self, other: Node) -> Node:
    def backward(g: Array) -> None:
      self.add(g @ other.value.T)
      other.add(self.value.T @ g)

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

  def conv2d(self, x: Node, w: Node, stride: int = 1, padding: int = 0) -> Node:
    image, window = x.value, w.value
    assert padding == 0, "gradients of padded convolutions are not written here"

    def backward(g: Array) -> None:
      to_image, to_window = np.zeros_like(image), np.zeros_like(window)
      flat = g.reshape(len(image), len(window), -1)
      for p in window_places(image.shape, window.shape, stride):
        part = image[:, :, p.rows, p.columns]
        to_window[:, :, p.i, p.j] = np.tensordot(g, part, axes=((0, 2, 3), (0, 2, 3)))
        to_image[:, :, p.rows, p.columns] += (window[:, :, p.i, p.j].T @ flat).reshape(part.shape)
      x.add(to_image)
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

  def cross_entropy(self, logits: Node, labels: Array) -> Node:
    chosen = (np.arange(len(labels)), labels)
    shares = self.softmax(logits.value)

    def backward(g: Array) -> None:
      out = shares.copy()
      out[chosen] -= 1
      logits.add(g * out / len(labels))

    return record(-np.log(shares[chosen]).mean(), backward)
