"""Methods in place, `add_` and so on: values, views, types and errors against PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor
from tiny_tensor.methods.assign import AssignMixin

torch: Any = pytest.importorskip("torch")  # only in the environment `oracle`


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


F = np.array([[0.25, 0.5, 0.75], [0.125, 0.625, 0.875]], np.float32)
G = np.array([[0.5, 0.25, 2.0], [1.5, 0.75, 0.375]], np.float32)
SQUARE = np.arange(9, dtype=np.float32).reshape(3, 3) / 8
INTS, MORE = np.array([[12, 18, 7], [3, 0, 5]], np.int32), np.array([[8, 27, 14], [2, 6, 1]], np.int32)
MASK = F > 0.5
WHERE = np.array([[0, 1, 0], [1, 0, 1]])  # rows
VECTOR, COLUMNS = np.array([1.0, 2.0, 3.0], np.float32), np.array([2, 0])

FLOATS = "add atan2 copysign div eq fmod ge gt heaviside hypot igamma igammac le lt mul ne nextafter pow sub xlogy"
INTEGERS = "bitwise_and bitwise_or bitwise_xor gcd lcm logical_and logical_or logical_xor"

# method → (the tensor, its arguments); others are called on F, without arguments
GIVEN: dict[str, tuple[Any, tuple[Any, ...]]] = {
  **dict.fromkeys(FLOATS.split(), (F, (G,))),
  **dict.fromkeys(INTEGERS.split(), (INTS, (MORE,))),
  "float_power": (F.astype(np.float64), (G,)), "acosh": (G + 1, ()), "bitwise_not": (INTS, ()),
  "logical_not": (INTS, ()),
  "addbmm": (SQUARE[:2], (F[None, :, :2], G[None, :2])), "baddbmm": (F[None], (SQUARE[None, :2], SQUARE[None])),
  "addmm": (F, (SQUARE[:2], SQUARE)), "addmv": (VECTOR, (SQUARE, VECTOR)), "addr": (SQUARE, (VECTOR, VECTOR)),
  "addcdiv": (F, (G, G + 1)), "addcmul": (F, (G, G)), "clamp": (F, (0.3, 0.7)), "clip": (F, (0.3, 0.7)),
  "clamp_max": (F, (0.5,)), "clamp_min": (F, (0.5,)), "cumsum": (F, (1,)), "cumprod": (F, (0,)), "fill": (F, (3,)),
  "ldexp": (F, (MORE,)), "lerp": (F, (G, 0.25)), "logit": (F, ()), "mvlgamma": (F + 2, (2,)), "polygamma": (F, (1,)),
  "index_add": (F, (1, COLUMNS, G[:, :2])), "index_copy": (F, (1, COLUMNS, G[:, :2])),
  "index_fill": (F, (1, COLUMNS, 5.0)), "index_put": (F, ((WHERE[0], WHERE[1]), VECTOR)),
  "index_reduce": (F, (1, COLUMNS, G[:, :2], "prod")), "masked_fill": (F, (MASK, 7.0)),
  "masked_scatter": (F, (MASK, G)), "put": (F, (COLUMNS, VECTOR[:2])), "renorm": (F, (2, 0, 0.5)),
  "scatter": (F, (0, WHERE, G)), "scatter_add": (F, (0, WHERE, G)), "scatter_reduce": (F, (0, WHERE, G, "amax")),
}  # fmt: skip

NAMES = sorted(name[:-1] for name in vars(AssignMixin) if name.endswith("_") and not name.startswith("_"))
RANDOM = {"uniform", "normal", "bernoulli"}
EXTRA: dict[str, tuple[Any, tuple[Any, ...]]] = {"copy": (F, (VECTOR,)), "zero": (F, ())}


def case(name: str) -> tuple[np.ndarray[Any, Any], tuple[Any, ...]]:
  array, args = {**GIVEN, **EXTRA}.get(name, (F, ()))
  return np.array(array), args


def as_torch(value: Any) -> Any:
  if isinstance(value, tuple):
    return tuple(as_torch(v) for v in value)
  return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def as_tensor(value: Any) -> Any:
  if isinstance(value, tuple):
    return tuple(as_tensor(v) for v in value)
  return Tensor(value) if isinstance(value, np.ndarray) else value


def some(names: list[str]) -> list[Any]:
  """A few of them, and the others at night."""
  return [n if i % 7 == 0 else pytest.param(n, marks=pytest.mark.nightly) for i, n in enumerate(names)]


@pytest.mark.parametrize("name", some([n for n in NAMES if n not in RANDOM]))
def test_same_as_pytorch(name: str) -> None:
  array, args = case(name)
  theirs, ours = torch.from_numpy(array.copy()), Tensor(array).realize()
  if not hasattr(theirs, f"{name}_"):
    pytest.fail(f"PyTorch has no {name}_")
  rows, theirs_rows = ours.reshape(ours.shape)[:1], theirs[:1]
  getattr(theirs, f"{name}_")(*as_torch(args))
  assert getattr(ours, f"{name}_")(*as_tensor(args)) is ours
  assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch.")
  np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=1e-6)
  np.testing.assert_allclose(rows.numpy(), theirs_rows.numpy(), rtol=2e-5, atol=1e-6, err_msg="a view of it")


@pytest.mark.parametrize("name", some(NAMES))
def test_leaves_that_require_a_gradient(name: str) -> None:
  array, args = case(name)
  if array.dtype != np.float32:
    return
  leaf, own = torch.from_numpy(array.copy()).requires_grad_(), Tensor(array, requires_grad=True)
  for theirs, ours in ((leaf, own), (leaf[:1], own[:1])):
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
      getattr(theirs, f"{name}_")(*as_torch(args))
    with pytest.raises(RuntimeError, match="leaf that requires a gradient"):
      getattr(ours, f"{name}_")(*as_tensor(args))
  np.testing.assert_array_equal(own.numpy(), array)


TYPES = ["bool", "uint8", "int32", "float16", "float32"]


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("of", TYPES)
def test_which_types_can_be_written(to: str, of: str) -> None:
  for name in ("mul", "copy", "eq", "div"):
    theirs, ours = torch.ones(2, dtype=getattr(torch, to)), Tensor.ones(2, dtype=to).contiguous().realize()
    other, another = torch.full((2,), 3).to(getattr(torch, of)), Tensor.full((2,), 3, dtype=of)
    try:
      getattr(theirs, f"{name}_")(other)
    except RuntimeError:
      with pytest.raises(TypeError, match="cannot hold"):
        getattr(ours, f"{name}_")(another)
    else:
      getattr(ours, f"{name}_")(another)
      assert str(ours.dtype) == to
    assert ours.tolist() == theirs.tolist(), name


def test_gradients_through_results() -> None:
  w, v = torch.tensor([1.0, 2.0], requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
  y, z = w * 2, v * 2
  for t in (y, z):
    t.mul_(3)
    t.add_(1)
    t.sum().backward()
  assert v.grad is not None
  np.testing.assert_allclose(v.grad.numpy(), w.grad.numpy())
  x, u = torch.tensor([3.0, 4.0]), Tensor([3.0, 4.0]).realize()
  x.add_(w.square())
  u.add_(v.square())
  assert u.requires_grad and x.requires_grad
  v.grad, w.grad = None, None
  x.sum().backward()
  u.sum().backward()
  assert v.grad is not None
  np.testing.assert_allclose(v.grad.numpy(), w.grad.numpy())


def test_detached_leaves_are_the_same_memory() -> None:
  w, v = torch.tensor([1.0, 2.0], requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
  for t in (w, v):
    t.detach()[1:].mul_(10)
    (t * t).sum().backward()
  assert v.tolist() == w.tolist() and v.grad is not None and v.grad.tolist() == w.grad.tolist()


def test_other_shapes_are_refused() -> None:
  for x in (torch.zeros(2), Tensor.zeros(2)):
    with pytest.raises((RuntimeError, ValueError), match=r"shape"):
      x.add_(type(x)([[1.0, 2.0], [3.0, 4.0]]))
  with pytest.raises(RuntimeError, match="single memory location"):
    torch.zeros(2).expand(2, 2).add_(1)
  with pytest.raises(RuntimeError, match="the same place in memory"):
    Tensor([1.0, 2.0]).realize().expand(2, 2).add_(1)


@pytest.mark.parametrize(("name", "args"), [("uniform", (2, 3)), ("normal", (5, 0.1)), ("bernoulli", (0.25,))])
def test_random_values(name: str, args: tuple[float, ...]) -> None:
  Tensor.manual_seed(0)
  torch.manual_seed(0)
  theirs, ours = torch.empty(4000), Tensor.empty(4000)
  getattr(theirs, f"{name}_")(*args)
  assert getattr(ours, f"{name}_")(*args) is ours
  np.testing.assert_allclose(ours.mean().item(), theirs.mean().item(), atol=0.03)
  np.testing.assert_allclose(ours.std().item(), theirs.std().item(), atol=0.03)
