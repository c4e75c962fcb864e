"""Operations against NumPy, forward, on the reference device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor, dtypes

Array = Any


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def data(shape: tuple[int, ...], dtype: str = "float32") -> Array:
  rng = np.random.default_rng(len(shape) + sum(shape))
  return rng.integers(-5, 6, shape).astype(dtype) if dtype != "float32" else rng.standard_normal(shape).astype(dtype)


SHAPES = [(), (1,), (3, 4), (0, 3), (2, 1, 3)]
SAME = (
  "abs exp exp2 sin cos tan tanh sinh cosh floor ceil trunc sign square isnan isinf isfinite logical_not round".split()
)
RENAMED: dict[str, Any] = {"atan": np.arctan, "asinh": np.arcsinh, "neg": np.negative, "bool": lambda a: a != 0}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*SAME, *RENAMED])
def test_unary(name: str, shape: tuple[int, ...]) -> None:
  a = data(shape)
  expected = (RENAMED[name] if name in RENAMED else getattr(np, name))(a)
  got = getattr(Tensor(a), name)()
  assert got.shape == shape
  np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
  "+": lambda a, b: a + b,
  "-": lambda a, b: a - b,
  "*": lambda a, b: a * b,
  "/": lambda a, b: a / b,
  "<": lambda a, b: a < b,
  "<=": lambda a, b: a <= b,
  ">": lambda a, b: a > b,
  ">=": lambda a, b: a >= b,
  "==": lambda a, b: a == b,
  "!=": lambda a, b: a != b,
}


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1), (3,)), ((), (2,)), ((0, 3), (1, 3))])
@pytest.mark.parametrize("op", BINARY)
def test_binary(op: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
  a, b = (data(s) for s in shapes)
  np.testing.assert_allclose(BINARY[op](Tensor(a), Tensor(b)).numpy(), BINARY[op](a, b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_integer_division_is_numpys(dtype: str) -> None:
  a, b = np.meshgrid(np.array([0, 1, 7, 100, 120]), np.array([1, 3, 7, 0]))
  if dtype.startswith("i"):
    a, b = np.concatenate([a, -a]), np.concatenate([b, -b])
  a, b = a.astype(dtype), b.astype(dtype)
  with np.errstate(all="ignore"):
    np.testing.assert_array_equal((Tensor(a) // Tensor(b)).numpy(), a // b)
    np.testing.assert_array_equal((Tensor(a) % Tensor(b)).numpy(), a % b)


REDUCTIONS: dict[str, Callable[[Array, Any], Array]] = {
  "sum": lambda a, axis: a.sum(axis),
  "prod": lambda a, axis: a.prod(axis),
  "mean": lambda a, axis: a.mean(axis),
  "max": lambda a, axis: a.max(axis),
  "min": lambda a, axis: a.min(axis),
  "var": lambda a, axis: a.var(axis, ddof=1),
  "std": lambda a, axis: a.std(axis, ddof=1),
  "any": lambda a, axis: a.any(axis),
  "all": lambda a, axis: a.all(axis),
  "argmax": lambda a, axis: a.argmax(axis),
  "argmin": lambda a, axis: a.argmin(axis),
}


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, axis: int | None) -> None:
  for shape in ((3, 4), (2, 3, 4)):
    a = data(shape)
    np.testing.assert_allclose(getattr(Tensor(a), name)(axis).numpy(), REDUCTIONS[name](a, axis), rtol=1e-5, atol=1e-6)


def test_reductions_over_nothing() -> None:
  empty = Tensor.zeros(0, 3)
  assert empty.sum(0).tolist() == [0, 0, 0] and empty.prod(0).tolist() == [1, 1, 1]
  assert empty.any(0).tolist() == [False] * 3 and empty.all(0).tolist() == [True] * 3
  assert np.isnan(empty.mean(0).numpy()).all() and empty.sum(1).shape == (0,) and empty.max(1).tolist() == []


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_nan_wins(name: str) -> None:
  a = np.array([[1.0, np.nan, 3.0, np.nan], [2.0, 5.0, 5.0, 2.0]], dtype=np.float32)
  np.testing.assert_array_equal(getattr(Tensor(a), name)(1).numpy(), getattr(np, name)(a, 1))


def test_sums_of_small_types_do_not_wrap() -> None:
  assert Tensor([100, 100, 100], dtype="int8").sum().item() == 300
  assert Tensor([True] * 300).sum().item() == 300
  assert Tensor([200] * 3, dtype="uint8").sum().dtype is dtypes.uint32
  # 2049 ones cannot be counted in float16 itself
  assert (
    Tensor.ones(3000, dtype="float16").sum().item() == 3000 and Tensor.ones(2, dtype="half").sum().dtype is dtypes.half
  )


@pytest.mark.parametrize("length", [1, 5, 600])
def test_scans(length: int) -> None:
  a = data((2, length))
  np.testing.assert_allclose(Tensor(a).cumsum(1).numpy(), a.cumsum(1), rtol=1e-4, atol=1e-4)
  np.testing.assert_array_equal(Tensor(a).cummax(1)[0].numpy(), np.maximum.accumulate(a, 1))
  np.testing.assert_allclose(Tensor(a[:, :9]).cumprod(1).numpy(), a[:, :9].cumprod(1), rtol=1e-5)


KEYS: dict[str, Any] = {
  "int": 1,
  "negative": (-1, -2),
  "slice": slice(1, 3),
  "backwards": (slice(None, None, -1), slice(None, None, -2)),
  "step": (slice(None, None, 2), slice(1, None, 3)),
  "step back": (slice(3, 0, -2), slice(4, None, -3)),
  "out of range slice": slice(-10, 10),
  "nothing": slice(3, 1),
  "none": (None, 1, None),
  "dots": (..., 2),
  "list": [2, 0, -1],
  "list 2d": (slice(None), [[0, 3], [1, 1]]),
  "two lists": ([0, 2], [1, 3]),
  "broadcast": ([[0], [2]], [1, 3]),
}


@pytest.mark.parametrize("name", KEYS)
def test_getitem_and_setitem(name: str) -> None:
  key = KEYS[name]
  a = data((4, 5))
  np.testing.assert_array_equal(Tensor(a)[key].numpy(), a[key])
  t, expected = Tensor(a), a.copy()
  t[key] = 7.0
  expected[key] = 7.0
  np.testing.assert_array_equal(t.numpy(), expected)
  values = data(a[key].shape)
  t[key], expected[key] = Tensor(values), values
  np.testing.assert_array_equal(t.numpy(), expected)


def test_masks() -> None:
  a = data((3, 4))
  np.testing.assert_array_equal(Tensor(a)[Tensor(a) > 0].numpy(), a[a > 0])
  np.testing.assert_array_equal(Tensor(a)[Tensor([True, False, True])].numpy(), a[[0, 2]])
  np.testing.assert_array_equal((Tensor(a) > 0).nonzero().numpy(), np.argwhere(a > 0))
  t, expected = Tensor(a), a.copy()
  t[t > 0] = 0
  expected[expected > 0] = 0
  np.testing.assert_array_equal(t.numpy(), expected)


def test_the_last_write_counts() -> None:
  t = Tensor.zeros(4)
  t[Tensor([1, 1, 3])] = Tensor([5.0, 6.0, 7.0])
  assert t.tolist() == [0, 6, 0, 7]


@given(st.lists(st.text("aabc.", max_size=6).map(lambda t: t.replace(".", "...")), min_size=1, max_size=2), st.data())
def test_every_formula_of_einsum_is_one_or_a_value_error(inputs: list[str], data: st.DataObject) -> None:
  out = data.draw(st.sampled_from(["", "->", "->a", "->ab", "->...", "->...a", "->a...b", "->......", "->aa", "->d"]))
  axes = [len(side.replace("...", "")) + ("..." in side) for side in inputs]
  formula = ",".join(inputs) + out
  arrays = [np.arange(2.0**n, dtype=np.float32).reshape((2,) * n) for n in axes]
  try:
    expected = np.einsum(formula, *arrays)
  except ValueError:
    expected = None
  try:
    found = Tensor.einsum(formula, *map(Tensor, arrays))
  except ValueError as error:
    assert repr(formula) in str(error)
    assert expected is None, error
  else:
    if expected is None:  # PyTorch sums the axes of an ellipsis that the output does not have, NumPy refuses
      assert "..." in formula and "->" in out and "..." not in out
      return
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_an_operand_has_one_ellipsis() -> None:
  with pytest.raises(ValueError, match="more than one"):
    Tensor.einsum("...a...->a", Tensor.ones(2, 3))
  with pytest.raises(ValueError, match="more than one"):
    Tensor.einsum("...a->...a...", Tensor.ones(2, 3))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(mode: str) -> None:
  a = data((3, 4))
  ours = {"edge": "replicate", "wrap": "circular"}.get(mode, mode)
  expected = np.pad(a, ((1, 2), (0, 3)), mode)  # type: ignore[call-overload]
  np.testing.assert_array_equal(Tensor(a).pad(((1, 2), (0, 3)), mode=ours).numpy(), expected)


def test_joining_and_moving() -> None:
  a, b = data((2, 3)), data((2, 4))
  np.testing.assert_array_equal(Tensor(a).cat(Tensor(b), dim=1).numpy(), np.concatenate([a, b], 1))
  np.testing.assert_array_equal(Tensor.stack(Tensor(a), Tensor(a), dim=1).numpy(), np.stack([a, a], 1))
  np.testing.assert_array_equal(Tensor(a).repeat(2, 3).numpy(), np.tile(a, (2, 3)))
  np.testing.assert_array_equal(Tensor(a).roll(2, 1).numpy(), np.roll(a, 2, 1))
  np.testing.assert_array_equal(Tensor(a).diagonal(1).numpy(), a.diagonal(1))
  np.testing.assert_array_equal(Tensor(a[0]).diag().numpy(), np.diag(a[0]))
  np.testing.assert_array_equal(Tensor(a).rearrange("a (b c) -> (c a) b", c=1).numpy(), a)
  np.testing.assert_array_equal(Tensor(a).triu(1).numpy(), np.triu(a, 1))
  np.testing.assert_array_equal(Tensor(a).tril(-1).numpy(), np.tril(a, -1))
  assert [t.shape for t in Tensor(b).split([1, 3], 1)] == [(2, 1), (2, 3)]
  assert [t.shape for t in Tensor(b).chunk(3, 1)] == [(2, 2), (2, 2)]


@pytest.mark.parametrize("shape", [(5,), (3, 2), (0, 2)])
def test_stacks_of_many_along_a_last_axis(shape: tuple[int, ...]) -> None:
  """Each gives one element in turn: they are joined along the first axis, and transposed."""
  a = data((17, *shape))
  tensors = [Tensor(x, requires_grad=True) for x in a]
  out = Tensor.stack(*tensors, dim=-1)
  np.testing.assert_array_equal(out.numpy(), np.stack(list(a), -1))
  weights = data((*shape, 17))
  (out * Tensor(weights)).sum().backward()
  for n, t in enumerate(tensors):
    assert t.grad is not None
    np.testing.assert_array_equal(t.grad.numpy(), weights[..., n])
  mixed = Tensor.cat(
    *[Tensor(x[..., None]).cast(dtypes.int32 if n else dtypes.float32) for n, x in enumerate(a)], dim=-1
  )
  assert mixed.dtype is dtypes.float32
  np.testing.assert_array_equal(mixed.numpy(), np.stack([np.trunc(x) if n else x for n, x in enumerate(a)], -1))


def test_products() -> None:
  for left, right in (((3, 4), (4, 5)), ((4,), (4,)), ((2, 3, 4), (4, 2)), ((2, 1, 2, 3), (4, 3, 2)), ((0, 3), (3, 2))):
    a, b = data(left), data(right)
    np.testing.assert_allclose((Tensor(a) @ Tensor(b)).numpy(), a @ b, rtol=1e-5, atol=1e-5)
  a, b = data((2, 3, 4)), data((4, 3))
  for formula in ("bij,jk->bik", "bij,jk->", "bij,jk->kb"):
    np.testing.assert_allclose(
      Tensor.einsum(formula, Tensor(a), Tensor(b)).numpy(), np.einsum(formula, a, b), rtol=1e-4
    )


def test_decompositions() -> None:
  for shape in ((4, 3), (3, 4), (3, 3)):
    a = data(shape)
    u, s, vt = Tensor(a).svd(full_matrices=False)
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(a, compute_uv=False), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose((u * s.unsqueeze(-2) @ vt).numpy(), a, rtol=1e-4, atol=1e-5)
    q, r = Tensor(a).qr()
    np.testing.assert_allclose((q @ r).numpy(), a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose((q.T @ q).numpy(), np.eye(shape[0]), rtol=1e-4, atol=1e-5)


def test_creation() -> None:
  assert Tensor.arange(5).tolist() == [0, 1, 2, 3, 4] and Tensor.arange(5, 1, -2).tolist() == [5, 3]
  assert Tensor.arange(0).tolist() == [] and Tensor.arange(0.5, 2).tolist() == [0.5, 1.5]
  np.testing.assert_allclose(Tensor.linspace(-1, 1, 7).numpy(), np.linspace(-1, 1, 7), rtol=1e-6)
  assert Tensor.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
  assert Tensor.full((2,), 3).dtype is dtypes.int32 and Tensor.zeros(2, 3).shape == (2, 3)
  assert Tensor.ones(2, dtype="int8").ones_like().dtype is dtypes.int8
  assert Tensor([1, 0, 2]).one_hot(3).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_rearrange() -> None:
  a = data((2, 6, 3))
  cases = {
    "a (b c) d -> c (a d) b": a.reshape(2, 2, 3, 3).transpose(2, 0, 3, 1).reshape(3, 6, 2),
    "a ... -> ... a": a.transpose(1, 2, 0),
    "a ... -> a (...)": a.reshape(2, 18),
    "... d -> d 1 ...": a.transpose(2, 0, 1)[:, None],
  }
  for formula, expected in cases.items():
    np.testing.assert_array_equal(
      Tensor(a).rearrange(formula, **({"b": 2} if "b" in formula else {})).numpy(), expected
    )
  for wrong in ("a b c", "a b -> b a", "a b c -> a b", "a (b -> a", "(a ...) b -> a"):
    with pytest.raises(ValueError, match="rearrange"):
      Tensor(a).rearrange(wrong)
