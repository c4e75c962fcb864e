"""Methods that write their result to the tensor itself. Their values are compared with PyTorch's in `integration`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tiny_tensor import Context, Tensor, TinyJit, dtypes
from tiny_tensor.methods.assign import AssignMixin
from tiny_tensor.realize import is_realized


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def test_every_name_is_that_of_a_method() -> None:
  names = [name for name in vars(AssignMixin) if name.endswith("_") and not name.startswith("_")]
  assert len(names) > 100
  given = {"copy_", "zero_", "uniform_", "normal_", "bernoulli_"}  # the others are made of the table
  assert [n for n in names if n not in given and not callable(getattr(Tensor, n[:-1], None))] == []
  assert all(getattr(Tensor, n).__name__ == n for n in names)


def test_memory_stays_and_views_see_it() -> None:
  x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
  buffer, row, turned = x.uop.base, x[0], x.T
  old = x + 0
  assert x.add_(1).mul_(2).clamp_(5, 9).realize() is x and x.uop.base is buffer
  assert x.tolist() == [[5, 6], [8, 9]] and row.tolist() == [5, 6] and turned.tolist() == [[5, 8], [6, 9]]
  assert old.tolist() == [[1, 2], [3, 4]]
  row.neg_()
  x[:, 1].fill_(7)
  assert x.tolist() == [[-5, 7], [8, 7]]


def test_lazy_tensors() -> None:
  x = Tensor.zeros(3)
  x.add_(1).sub_(Tensor([0.0, 1.0, 2.0])).relu_()
  assert not is_realized(x.uop) and x.tolist() == [1, 0, 0] and Tensor.zeros(3).tolist() == [0, 0, 0]


def test_copies() -> None:
  x = Tensor.zeros(2, 2, dtype=dtypes.int32).contiguous().realize()
  x.copy_(Tensor([1.7, -2.7]))
  assert x.tolist() == [[1, -2], [1, -2]] and x.dtype is dtypes.int32
  x.copy_(Tensor([[5], [6]]).to("REF:1"))
  assert x.tolist() == [[5, 5], [6, 6]] and x.device == "REF"
  assert x.copy_([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]] and x.zero_().tolist() == [[0, 0], [0, 0]]
  s = Tensor([[1.0, 2.0], [3.0, 4.0]]).shard(("REF", "REF:1"), axis=0).realize()
  s.add_(1).copy_(s * 2)
  assert s.tolist() == [[4, 6], [8, 10]] and s.device == ("REF", "REF:1")


def test_what_cannot_be_written() -> None:
  numbers = Tensor([1, 2]).realize()
  with pytest.raises(TypeError, match="add_ gives float32, which this tensor, of int32, cannot hold"):
    numbers.add_(0.5)
  with pytest.raises(TypeError, match="div_ gives float32"):
    numbers.div_(2)
  with pytest.raises(
    ValueError, match=r"add_ gives shape \(2, 2\), which does not fit in this tensor, of shape \(2,\)"
  ):
    numbers.add_(Tensor([[1, 2], [3, 4]]))
  with pytest.raises(RuntimeError, match="fill_: several elements.*the same place in memory"):
    numbers.expand(2, 2).fill_(1)
  assert numbers.tolist() == [1, 2] and numbers.eq_(1).tolist() == [1, 0]


def test_leaves_that_require_a_gradient() -> None:
  w = Tensor([1.0, 2.0], requires_grad=True)
  for part in (w, w[:1], w.reshape(2, 1)):
    with pytest.raises(RuntimeError, match="add_ would change a .*leaf that requires a gradient"):
      part.add_(1)
  for name in ("zero_", "copy_", "uniform_", "normal_", "bernoulli_"):
    with pytest.raises(RuntimeError, match="leaf that requires a gradient"):
      getattr(w, name)(*([w] if name == "copy_" else []))
  w.detach().add_(1)
  assert w.tolist() == [2, 3] and w.requires_grad
  w.detach()[1:].zero_()
  (w * w).sum().backward()
  assert w.grad is not None and w.grad.tolist() == [4, 0]
  w.grad.zero_()  # what programs for PyTorch do between steps
  assert w.grad.tolist() == [0, 0]


def test_gradients_flow_through() -> None:
  w = Tensor([1.0, 2.0], requires_grad=True)
  y = w * 2
  y.mul_(3).add_(1)
  x = Tensor([1.0, 1.0]).realize()
  x.add_(y)
  assert x.requires_grad and y.requires_grad
  x.sum().backward()
  assert w.grad is not None and w.grad.tolist() == [6, 6]


def test_captured() -> None:
  total = Tensor.zeros(2).contiguous().realize()

  @TinyJit
  def step(x: Tensor) -> Tensor:
    return total.mul_(0.5).add_(x).realize()

  expected = [0.0, 0.0]
  for n in range(5):
    expected = [e * 0.5 + n for e in expected]
    assert step(Tensor([float(n), float(n)]).realize()).tolist() == expected
  assert total.tolist() == expected
