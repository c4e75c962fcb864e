"""Arguments by name: every spelling gives what the same arguments give by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, TinyJit, Variable, dtypes, getenv, nn
from tiny_tensor.base import to_dtype


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def numbers(*shape: int) -> Tensor:
  return Tensor(np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape))


X = np.arange(6, dtype=np.float32).reshape(2, 3)

# a method's name, the name of its argument, the argument, what comes out
SPELLED: list[tuple[str, str, Any, Any]] = [
  ("reshape", "shape", (3, 2), X.reshape(3, 2)),
  ("reshape", "shape", -1, X.reshape(-1)),
  ("view", "shape", (3, 2), X.reshape(3, 2)),
  ("view", "size", (3, 2), X.reshape(3, 2)),
  ("expand", "shape", (2, 2, 3), np.broadcast_to(X, (2, 2, 3))),
  ("expand", "size", (2, 2, 3), np.broadcast_to(X, (2, 2, 3))),
  ("permute", "order", (1, 0), X.T),
  ("permute", "dims", (1, 0), X.T),
  ("flip", "axis", 1, X[:, ::-1]),
  ("flip", "axis", (0, 1), X[::-1, ::-1]),
  ("flip", "dims", (0, 1), X[::-1, ::-1]),
  ("repeat", "repeats", (2, 1), np.tile(X, (2, 1))),
  ("shrink_to", "shape", (1, None), X[:1]),
  ("pad_to", "shape", (None, 5), np.pad(X, ((0, 0), (0, 2)))),
  ("sequential", "ll", [Tensor.neg, Tensor.relu], np.zeros_like(X)),
]


@pytest.mark.parametrize(("method", "name", "value", "expected"), SPELLED)
def test_spelled_out(method: str, name: str, value: Any, expected: Any) -> None:
  call = getattr(numbers(2, 3), method)
  np.testing.assert_array_equal(call(**{name: value}).numpy(), expected)
  np.testing.assert_array_equal(call(value).numpy(), expected)
  if isinstance(value, tuple):
    np.testing.assert_array_equal(call(*value).numpy(), expected)
  with pytest.raises(TypeError):
    call(value, **{name: value})


def test_no_axes() -> None:
  one = Tensor(3.0)
  for made in (one.reshape(), one.reshape(()), one.view(), one.expand(), one.permute(), one.flip(), one.repeat()):
    assert made.shape == () and made.item() == 3.0


def test_other_arguments() -> None:
  x = numbers(2, 3)
  assert x.pad_to(2, 4, value=7).tolist() == [[0, 1, 2, 7], [3, 4, 5, 7]]
  assert x.clone(device="REF:1").device == "REF:1" and x.clone(device="REF:1").tolist() == x.tolist()
  assert x.const_like(b=2).tolist() == [[2, 2, 2]] * 2
  assert x.full_like(3, dtypes.int32).dtype is dtypes.int32 and x.full_like(3, device="REF:1").device == "REF:1"
  assert x.empty_like(dtypes.int8).dtype is dtypes.int8 and x.randn_like(dtypes.float16).dtype is dtypes.float16
  assert sorted(Tensor.randperm(3, "REF:1").tolist()) == [0, 1, 2] and Tensor.randperm(3, "REF:1").device == "REF:1"
  assert Variable("i", min_val=1, max_val=4).bind(2) is Variable("i", 1, 4).bind(2)
  other: Any = {"y": x.to("REF:1")}
  assert x.shard_like(**other).device == "REF:1"
  sizes: list[Any] = [{"sz": 3}, {"num_features": 3}]
  assert [nn.BatchNorm(**size).num_features for size in sizes] == [3, 3]
  assert getenv("NO_SUCH_SETTING") == 0 and getenv(key="NO_SUCH_SETTING", default="a") == "a"


def test_gelu() -> None:
  x = Tensor([-3.0, -0.5, 0.0, 1.0])
  np.testing.assert_allclose(x.gelu("none").numpy(), [-0.00404951, -0.15426877, 0, 0.84134475], rtol=1e-4)
  np.testing.assert_allclose(x.gelu(approximate="tanh").numpy(), x.gelu().numpy())
  assert abs(x.gelu().tolist()[0] - x.gelu("none").tolist()[0]) > 1e-4
  with pytest.raises(ValueError, match="'none' or 'tanh', got 'erf'"):
    x.gelu("erf")


def test_types_by_names_in_capitals() -> None:
  for name, dtype in dtypes.fields().items():
    if dtype in dtypes.all:
      assert to_dtype(name) is to_dtype(name.upper()) is to_dtype(name.title()) is dtype
  assert Tensor([1], dtype="HALF").dtype is dtypes.float16 and Tensor([1]).cast("FLOAT32").dtype is dtypes.float32
  with pytest.raises(ValueError, match="FLOAT31"):
    Tensor([1], dtype="FLOAT31")


# *** as many as there shall be ***


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(4,), (2, 3), ()])
def test_nonzero_of_a_size(shape: tuple[int, ...], size: int) -> None:
  array = np.array(np.arange(np.prod(shape, dtype=int)) % 2 == 0).reshape(shape)
  found = np.argwhere(array)[:size]
  expected = np.concatenate([found, np.full((size - len(found), len(shape)), -7)]) if len(shape) else found
  made = Tensor(array).nonzero(size, -7)
  assert made.shape == (size, len(shape)) and made.dtype is dtypes.int32
  if shape:
    np.testing.assert_array_equal(made.numpy(), expected)


def test_nonzero_of_a_size_needs_no_values() -> None:
  @TinyJit
  def found(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x > 0).nonzero(size=3, fill_value=-1).realize(), x.masked_select(x > 0, size=3, fill_value=-9).realize()

  rows = [[1.0, -1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 5.0], [1.0, 2.0, 3.0, 4.0], [-1.0, -1.0, 0.0, -2.0]]
  expected = [([0, 2, -1], [1, 2, -9]), ([3, -1, -1], [5, -9, -9]), ([0, 1, 2], [1, 2, 3]), ([-1] * 3, [-9] * 3)]
  for row, (places, values) in zip(rows, expected, strict=True):
    at, picked = found(Tensor(row).realize())
    assert (at.flatten().tolist(), picked.tolist()) == (places, values)


def test_of_a_size_in_nothing() -> None:
  empty = Tensor.zeros(0)
  assert empty.nonzero(2, 3).tolist() == [[3], [3]] and empty.masked_select(empty > 0, 2, 3).tolist() == [3, 3]
  with pytest.raises(ValueError, match="size must not be negative, got -1"):
    Tensor([1]).nonzero(-1)
  assert [t.tolist() for t in Tensor([[0, 1], [1, 0]]).nonzero(as_tuple=True)] == [[0, 1], [1, 0]]
  assert [t.tolist() for t in Tensor([[0, 1], [1, 0]]).nonzero(1, as_tuple=True)] == [[0], [1]]


# *** optimisers ***

OPTIMISERS: list[Callable[..., Any]] = [
  nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW, nn.optim.LARS, nn.optim.LAMB, nn.optim.Muon,
]  # fmt: skip


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_fused_and_device_of_optimisers(kind: Callable[..., Any]) -> None:
  def trained(**options: Any) -> Any:
    w = Tensor([[1.0, 2.0], [3.0, -4.0]], requires_grad=True)
    opt = kind([w], lr=0.1, **options)
    with Tensor.train():
      for _ in range(2):
        opt.zero_grad()
        (w * w).sum().backward()
        opt.step()
    return w.numpy(), opt

  expected, plain = trained()
  assert not plain.fused and plain.lr.device == "REF"
  found, _ = trained(fused=True)
  np.testing.assert_array_equal(found, expected)
  found, other = trained(device="REF:1")
  np.testing.assert_array_equal(found, expected)
  assert other.device == "REF:1" and other.lr.device == "REF:1"


def test_newton_schulz_of_optimisers() -> None:
  w = [Tensor([[1.0, 2.0], [3.0, -4.0]], requires_grad=True)]
  for name in ("ns_coefficients", "ns_params"):
    options: Any = {name: (2, -1.5, 0.5)}
    assert nn.optim.Muon(w, **options).ns_coefficients == (2, -1.5, 0.5)
  nn.optim.LARS(w, ns_steps=0, ns_coefficients=None)
  with pytest.raises(ValueError, match="use Muon"):
    nn.optim.LARS(w, ns_steps=5)
