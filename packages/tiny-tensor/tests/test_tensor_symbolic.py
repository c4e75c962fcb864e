"""Tensors whose sizes depend on variables: the same values as with numbers, stored, lazy and captured."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tiny_tensor import Context, JitError, Tensor, TinyJit, Variable, dtypes
from tiny_tensor.shapes import value_of
from tiny_uop import UOp

LARGEST = 4


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def counted(*shape: int) -> Tensor:
  """1, 2, 3, … in memory."""
  size = 1
  for s in shape:
    size *= s
  return Tensor([float(i + 1) for i in range(size)]).reshape(shape).realize()


def bound(value: int, name: str = "n", low: int = 1, high: int = LARGEST) -> UOp:
  return Variable(name, low, high).bind(value)


Use = Callable[[Any], Tensor]


def padded_convolution(stride: int, padding: int) -> Use:
  return lambda n: counted(1, 2, 7, 5)[:, :, : n + 3].conv2d(counted(3, 2, 3, 3), stride=stride, padding=padding)


USES: dict[str, Use] = {
  "first axis": lambda n: counted(4, 3)[:n] + 1,
  "last axis": lambda n: counted(3, 4)[:, :n] * 2,
  "middle axis": lambda n: counted(1, 4, 2, 4)[:, :n] * 1.5,
  "both axes": lambda n: counted(4, 4)[:n, :n] - 1,
  "product": lambda n: counted(4, 3)[:n] @ counted(3, 2),
  "sum of products": lambda n: counted(3, 4)[:, :n] @ counted(4, 2)[:n],
  "reshaped": lambda n: counted(4, 3)[:n].reshape(3, n).permute(1, 0) + 0,
  "flattened": lambda n: counted(4, 3)[:n].flatten() * 2,
  "repeated": lambda n: counted(4, 3)[:n].repeat(2, n),
  "padded": lambda n: counted(4, 3)[:n].pad(((1, n), (0, 2)), value=3.0),
  "joined": lambda n: counted(4, 3)[:n].cat(counted(5, 3)[: n + 1], dim=0),
  "joined rows": lambda n: counted(3, 4)[:, :n].cat(counted(3, 5)[:, : n + 1], dim=1),
  "stacked": lambda n: counted(4, 3)[:n].stack(counted(4, 3)[:n] * 2, dim=1),
  "expanded": lambda n: counted(3).expand(n, 3) * 1,
  "flipped": lambda n: counted(4, 3)[:n].flip(0) + 0,
  "rolled": lambda n: counted(4, 3)[:n].roll(1, 0),
  "every second": lambda n: counted(4, 3)[:n][::2] + 0,
  "every second from the end": lambda n: counted(4, 3)[:n][::-2] + 0,
  "from the end": lambda n: counted(4, 3)[:n][-1] + 0,
  "the last two": lambda n: counted(4, 3)[:n][-2:] + 0,
  "at most two": lambda n: counted(4, 3)[:n][:2] + 0,
  "behind the second": lambda n: counted(4, 3)[:n][2:] + 0,
  "between": lambda n: counted(4, 3)[:n][1:-1] + 0,
  "gathered": lambda n: counted(4, 3)[:n][Tensor([0, -1])],
  "counting": lambda n: counted(4, 3)[:n][Tensor.arange(n).flip(0)],
  "cumulative sum": lambda n: counted(3, 4)[:, :n].cumsum(1),
  "cumulative maximum": lambda n: (counted(3, 4)[:, :n] * -1).cummax(1)[0],
  "sorted": lambda n: (counted(3, 4)[:, :n] * -1).sort(1)[0],
  "positions in order": lambda n: counted(4, 3)[:n].argsort(0, descending=True).float(),
  "position of the maximum": lambda n: counted(3, 4)[:, :n].argmax(1).float(),
  "softmax": lambda n: counted(3, 4)[:, :n].softmax(1),
  "variance": lambda n: counted(3, 5)[:, : n + 1].var(1),
  "triangle": lambda n: counted(4, 4)[:n, :n].tril(),
  "logcumsumexp": lambda n: counted(3, 4)[:, :n].logcumsumexp(1),
  "convolution": lambda n: counted(1, 2, 7)[:, :, : n + 3].conv2d(counted(3, 2, 3)),
  "strided convolution": lambda n: counted(1, 2, 7)[:, :, : n + 3].conv2d(counted(3, 2, 3), stride=2),
  "dilated convolution": lambda n: counted(1, 1, 9)[:, :, : n + 5].conv2d(counted(1, 1, 3), dilation=2, padding=1),
  **{
    f"padded convolution, stride {stride}, padding {padding}": padded_convolution(stride, padding)
    for stride in (1, 2)
    for padding in (1, 2)
  },
  "convolution of a batch": lambda n: counted(4, 1, 5)[:n].conv2d(counted(1, 1, 3), stride=2),
  "convolution over two axes": lambda n: counted(1, 1, 7, 6)[:, :, : n + 3].conv2d(counted(2, 1, 3, 2), stride=(2, 3)),
  "transposed convolution": lambda n: counted(1, 1, 4)[:, :, :n].conv_transpose2d(counted(1, 2, 3), stride=2),
  "maxima of windows": lambda n: counted(1, 1, 7)[:, :, : n + 3].max_pool2d((3,), stride=2),
  "padded maxima": lambda n: counted(1, 1, 7)[:, :, : n + 3].max_pool2d((3,), stride=2, padding=1),
  "means of windows": lambda n: counted(1, 1, 7)[:, :, : n + 3].avg_pool2d((2,), stride=3),
  "means without padding": lambda n: counted(1, 1, 7)[:, :, : n + 3].avg_pool2d((3,), 2, 1, 1, False, False),
  "arange": lambda n: Tensor.arange(n).float(),
  "arange from": lambda n: Tensor.arange(n, 9).float(),
  "arange in steps": lambda n: Tensor.arange(1, n * 3, 2).float(),
  "arange backwards": lambda n: Tensor.arange(n, -2, -2).float(),
  "arange of no elements": lambda n: Tensor.arange(3, n + 2).float(),
  "float arange": lambda n: Tensor.arange(n, dtype=dtypes.float32) / 2,
  "full": lambda n: Tensor.full((n, 3), 2.0),
  "full of a variable": lambda n: Tensor.full((2, 3), n).float(),
  "ones": lambda n: Tensor.ones(2, n, 3) * 2,
  "zeros": lambda n: Tensor.zeros(n) + 1,
  "eye": lambda n: Tensor.eye(n) + Tensor.eye(n, n),
  "mean": lambda n: counted(4, 3)[:n].mean(),
  "one hot": lambda n: Tensor.arange(n).one_hot(5).float(),
}


@pytest.mark.parametrize("name", USES)
def test_values_are_those_with_numbers(name: str) -> None:
  """Lazy, stored, read in part after being stored, and captured."""
  use = USES[name]
  captured = TinyJit(lambda n: use(n).realize())
  for value in (3, 1, LARGEST, 2):
    expected = use(value).tolist()
    assert use(bound(value)).tolist() == expected
    kept = use(bound(value)).contiguous().realize()
    assert tuple(map(value_of, kept.shape)) == use(value).shape
    assert kept.tolist() == expected
    if kept.ndim > 1 and kept.shape[0] != 0:
      assert (kept.flip(0) + 1).tolist() == (use(value).flip(0) + 1).tolist()
    del kept  # TinyJit takes what is equal to what it computes for that
    assert captured(bound(value)).tolist() == expected


def weighed(t: Tensor) -> Tensor:
  """A sum in which each place counts differently."""
  places = t.flatten()
  return (places * places * Tensor.arange(places.shape[0])).sum()


@pytest.mark.parametrize("captured", [False, True])
def test_gradients_are_those_with_numbers(captured: bool) -> None:
  weight, x = counted(3, 2), counted(4, 3)

  def gradient(x: Tensor, weight: Tensor, n: Any) -> tuple[Tensor, ...]:
    y = (x[:n] @ weight).relu().cumsum(0)
    dx, dw = weighed(y.cat(y.flip(0), dim=1)).gradient(x, weight)
    dx.realize(dw)
    return dx, dw

  f: Callable[..., tuple[Tensor, ...]] = TinyJit(gradient) if captured else gradient
  for value in (3, 1, LARGEST, 2):
    expected = [g.tolist() for g in gradient(x, weight, value)]
    assert [g.tolist() for g in f(x, weight, bound(value))] == expected


def test_a_tensor_of_symbolic_size_has_a_gradient() -> None:
  x = (counted(4, 3)[: bound(2)] * 1).contiguous().realize().requires_grad_(True)
  (x * x).sum().backward()
  assert x.grad is not None and x.grad.tolist() == [[2, 4, 6], [8, 10, 12]]


def test_two_variables() -> None:
  a, b = counted(4, 3), counted(4, 3) * 10
  for name, other in (("i", "j"), ("j", "i")):
    i, j = bound(2, name), bound(3, other, 0, 4)
    assert a[:i].cat(b[:j], dim=0).realize().tolist() == a[:2].cat(b[:3], dim=0).tolist()
    both = a.T[:, :i].cat(b.T[:, :j], dim=1).realize()
    assert both.tolist() == a.T[:, :2].cat(b.T[:, :3], dim=1).tolist()
    assert (a[:i].unsqueeze(1) * b[:j]).sum(2).realize().tolist() == (a[:2].unsqueeze(1) * b[:3]).sum(2).tolist()


def plus_one(t: Tensor) -> Tensor:
  return (t + 1).realize()


def doubled(t: Tensor) -> Tensor:
  return (t * 2).realize()


def test_views_of_symbolic_size_are_inputs_of_a_captured_function() -> None:
  x, f, g = counted(4, 3), TinyJit(plus_one), TinyJit(doubled)
  for value in (2, 3, 1, LARGEST):
    assert f(x[: bound(value)]).tolist() == (x[:value] + 1).tolist()
  for value in (2, 3, 1, LARGEST):
    assert g(x.T[:, : bound(value)].contiguous()).tolist() == (x.T[:, :value] * 2).tolist()


def test_writing_to_slices() -> None:
  def cached(n: Any) -> Tensor:
    cache = Tensor.zeros(5, 3).contiguous().realize()
    cache[:n] = counted(4, 3)[:n]
    cache[n : n + 1] = 7
    cache[:, :2][n:] = counted(5, 2)[n:]
    return cache.realize()

  for value in (3, 1, LARGEST):
    assert cached(bound(value)).tolist() == cached(value).tolist()
  with pytest.raises(IndexError, match="symbolic size"):
    Tensor.zeros(5).contiguous().realize()[: bound(3)][::2] = 1


@pytest.mark.parametrize("value", [1, 2])
def test_at_most_one_element_may_be_none(value: int) -> None:
  """A loop that has one iteration at most is not one that has one."""
  few, x = bound(value, "few", 1, 2) - 1, counted(3)
  written, filled = (Tensor.zeros(2).contiguous().realize() for _ in range(2))
  written[:few] = x[:few]
  filled[:few] = 7
  expected = [[], [1]][value - 1]
  assert x[:few].flip(0).contiguous().tolist() == expected and x[:few].sum().item() == sum(expected)
  assert written.tolist() == [*expected, 0, 0][:2] and filled.tolist() == [*(7 for _ in expected), 0, 0][:2]
  assert (x[few + 2 :] + 1).tolist() == [4][: 2 - value]


def test_a_variable_of_one_value_is_a_number() -> None:
  x = counted(4, 3)[: bound(2, "one", 2, 2)] + 1
  assert x.shape == (2, 3) and (x + counted(2, 3)).tolist() == (counted(4, 3)[:2] + 1 + counted(2, 3)).tolist()


def test_equal_sizes_are_equal_however_they_are_written() -> None:
  n, m = bound(2), bound(3, "m")
  x, y = counted(9, 2)[: n + m], counted(9, 2)[: m + n + 0]
  assert (x + y).tolist() == (x * 2).tolist() and x.stack(y).shape[0] == 2


@pytest.mark.parametrize(
  "index",
  [lambda x, n: x[:n][:4], lambda x, n: x[:n][:, :5], lambda x, n: x[:n][7:], lambda x, n: x[:n][-9:]],
)
def test_numbers_are_cut_off_at_the_ends_of_a_symbolic_axis(index: Callable[[Tensor, Any], Tensor]) -> None:
  """As in Python; nothing behind the end is looked at."""
  x = counted(4, 3)
  for value in (1, 3):
    assert (index(x, bound(value)) + 1).tolist() == (index(x, value) + 1).tolist()


@pytest.mark.parametrize(
  "index",
  [
    lambda x, n, m: x[:n][:m],
    lambda x, n, m: x[:n][m:],
    lambda x, n, m: x[:n][1],
    lambda x, n, m: x[:n][-2],
    lambda x, n, m: x[:n][n],
    lambda x, n, m: x[:n][: n + 1],
  ],
)
def test_expressions_have_to_be_in_range_of_a_symbolic_axis(index: Callable[..., Tensor]) -> None:
  with pytest.raises(IndexError, match=r"can reach from .* out of range for axis 0 of size n: give the variables"):
    index(counted(4, 3), bound(3), bound(2, "m"))


def test_windows_have_to_fit_for_all_values() -> None:
  with pytest.raises(ValueError, match="do not fit"):
    counted(1, 1, 4)[:, :, : bound(3)].max_pool2d((2,))


@pytest.mark.parametrize(
  "use",
  [
    lambda x, n: x[: int(n)].sum(),
    lambda x, n: x[:n].split(1)[0],
    lambda x, n: sum(row for row in x[:n]),
    lambda x, n: x * len(x[:n]),
    lambda x, n: x * range(9)[n],
    lambda x, n: x[:n].randint(n, high=5),
  ],
)
def test_numbers_taken_of_variables_are_refused_in_a_capture(use: Callable[..., Any]) -> None:
  """They would be the same in every replay: silently wrong where the first two calls have the same value."""
  x = counted(4, 3)
  f = TinyJit(lambda n: use(x, n).contiguous().realize())
  f(bound(2))
  with pytest.raises(JitError, match=r"the variable 'n' is bound to|symbolic size"):
    f(bound(2))


def test_errors_name_bound_variables_and_their_values() -> None:
  x = Tensor.zeros(10, 3)[: Variable("n", 1, 10).bind(4)]
  with pytest.raises(ValueError, match=re.escape("shapes (n=4, 3), (7, 3) do not broadcast: sizes (n=4, 7) differ")):
    x + Tensor.zeros(7, 3)
  with pytest.raises(ValueError, match=re.escape("cannot reshape (n=4, 3) to (5, 5): n*3=12 and 25 elements")):
    x.reshape(5, 5)
