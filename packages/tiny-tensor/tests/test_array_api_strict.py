"""Every function of `tiny_tensor.array_api` against array-api-strict, NumPy behind the letter of the standard: names,
signatures, values, shapes and dtypes."""

from __future__ import annotations

import inspect
import operator
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from array_api_cases import CASES, FLOATS, INTS, draw

from tiny_tensor import Context, Tensor, dtypes
from tiny_tensor import array_api as xp

strict: Any = pytest.importorskip("array_api_strict")

# complex numbers and what needs them, and names of the package that are not the standard's
WITHOUT = {"complex64", "complex128", "fft", "eig", "eigvals"}
FLAGS = {n for n in dir(strict) if "flags" in n.lower()} | {"Device", "ModuleType"}
# ours are 32 bits wide: positions, counts, sums of small integers, what is created without a dtype
NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
DTYPES = {"bool", "int8", "uint8", *NARROW, *NARROW.values()}
DEFAULTS = set(
  "argmax argmin argsort count_nonzero nonzero searchsorted unique_all unique_counts unique_inverse sum prod "
  "cumulative_sum cumulative_prod asarray arange zeros ones full eye linspace linalg.trace linalg.matrix_rank".split()
)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def names_of(module: Any) -> set[str]:
  """Public names of a namespace."""
  return {n for n in getattr(module, "__all__", dir(module)) if n == "__array_namespace_info__" or n[0] != "_"}


def function(namespace: Any, name: str) -> Any:
  """A function of a namespace or its extension."""
  extension, _, last = name.rpartition(".")
  return getattr(getattr(namespace, extension) if extension else namespace, last)


def given(namespace: Any, value: Any) -> Any:
  """An argument with arrays and dtypes of a namespace."""
  if isinstance(value, np.ndarray):
    return namespace.asarray(value)
  if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
    return type(value)(given(namespace, v) for v in value)
  return (
    getattr(namespace, value)
    if value in ("int8", "int32", "int64", "uint8", "bool", *NARROW, *NARROW.values())
    else value
  )


def check(name: str, got: Any, expected: Any, known: set[str]) -> None:
  """Values, shape and dtype of one result or several. A dtype that is not `known` from the arguments is a default."""
  if isinstance(expected, (tuple, list)):
    assert len(got) == len(expected) and getattr(got, "_fields", ()) == getattr(expected, "_fields", ())
    for g, e in zip(got, expected, strict=True):
      check(name, g, e, known)
    return
  assert isinstance(got, Tensor)
  want = np.asarray(expected._array)
  wanted = want.dtype.name
  wanted = NARROW.get(wanted, wanted) if name in DEFAULTS and wanted not in known else wanted
  assert got.shape == want.shape and got.dtype.name == wanted, f"{got!r} instead of {expected!r}"
  loose = {"linalg": 100, "": 1}[name.rpartition(".")[0]]
  rtol = loose * (1e-6 if got.dtype is dtypes.float32 else 1e-14)
  np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=rtol)
  if want.dtype.kind == "f" and name in ("copysign", "negative", "abs"):
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got.numpy()[number]), np.signbit(want[number]))


def test_names() -> None:
  wanted = names_of(strict) - FLAGS - WITHOUT
  assert not wanted - set(xp.__all__), "names that the standard has"
  assert set(xp.__all__) - names_of(strict) <= {"__array_api_version__", "bfloat16", "float16", "linalg"}
  assert names_of(strict.linalg) - WITHOUT == names_of(xp.linalg)
  assert all(hasattr(xp, name) for name in xp.__all__)


def functions() -> list[str]:
  """All functions that there are, those of the extension among them."""
  own = [n for n in xp.__all__ if inspect.isfunction(getattr(xp, n))]
  return own + [f"linalg.{n}" for n in sorted(names_of(xp.linalg))]


def test_every_function_has_cases() -> None:
  special = {"finfo", "iinfo", "isdtype", "can_cast", "result_type", "broadcast_shapes"}  # in test_array_api.py
  assert set(functions()) - special == set(CASES)


@pytest.mark.parametrize("name", functions())
def test_signature(name: str) -> None:
  ours, theirs = (inspect.signature(function(n, name)).parameters.values() for n in (xp, strict))
  assert [(p.name, p.kind) for p in ours] == [(p.name, p.kind) for p in theirs]
  for p, q in zip(ours, theirs, strict=True):
    undefined = type(q.default).__name__ == "Undef"
    assert (None if undefined else q.default) == p.default or (name, p.name) == ("expand_dims", "axis")


@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
  for args, kwargs in CASES[name]:
    with np.errstate(all="ignore"):
      theirs = {key: given(strict, value) for key, value in kwargs.items()}
      expected = function(strict, name)(*[given(strict, a) for a in args], **theirs)
    ours = {key: given(xp, value) for key, value in kwargs.items()}
    known = {a.dtype.name for a in args if isinstance(a, np.ndarray)} | {kwargs.get("dtype", "")}
    check(name, function(xp, name)(*[given(xp, a) for a in args], **ours), expected, known)


OPERATORS: dict[str, tuple[str, ...]] = {
  **dict.fromkeys(("add", "sub", "mul", "lt", "le", "gt", "ge"), (*FLOATS, *INTS)),
  **dict.fromkeys(("eq", "ne"), (*FLOATS, *INTS, "bool")),
  **dict.fromkeys(("and_", "or_", "xor"), (*INTS, "bool")),
  **dict.fromkeys(("truediv",), FLOATS),
  **dict.fromkeys(("floordiv", "mod", "pow", "lshift", "rshift"), INTS),
}
IN_PLACE = [f"i{name}" for name in "add sub mul and or xor floordiv mod pow lshift rshift truediv".split()]


@pytest.mark.parametrize("name", [*OPERATORS, *IN_PLACE])
def test_operator(name: str) -> None:
  op = getattr(operator, name)
  base = name.removeprefix("i") if name in IN_PLACE else name
  for dtype in OPERATORS.get(base, OPERATORS.get(f"{base}_", ())):
    a, b = draw(3, 4, dtype=dtype), draw(4, dtype=dtype, seed=1)
    b = np.abs(b) + np.array(1, dtype) if base in ("floordiv", "mod", "pow", "lshift", "rshift", "truediv") else b
    number = True if dtype == "bool" else 2.0 if dtype in FLOATS else 2
    pairs = [(a, b), (a, number)] + ([] if name in IN_PLACE else [(number, b)])
    for x, y in pairs:
      expected = op(*[given(strict, v.copy() if isinstance(v, np.ndarray) else v) for v in (x, y)])
      check(name, op(given(xp, x), given(xp, y)), expected, set())


def test_unary_operators() -> None:
  for name, dtypes_ in (("neg", (*FLOATS, "int8")), ("pos", FLOATS), ("abs", FLOATS), ("invert", (*INTS, "bool"))):
    for dtype in dtypes_:
      a = draw(3, 4, dtype=dtype)
      check(name, getattr(operator, name)(xp.asarray(a)), getattr(operator, name)(strict.asarray(a)), set())
  a, b = draw(2, 3), draw(3, 2)
  check("matmul", xp.asarray(a) @ xp.asarray(b), strict.asarray(a) @ strict.asarray(b), set())


def random_key(choose: random.Random, shape: tuple[int, ...]) -> Any:
  """Something that the standard lets stand between brackets."""
  if choose.random() < 0.15:
    return draw(*shape, dtype="bool", seed=choose.randrange(9))
  key: list[Any] = []
  for size in shape:
    kind = choose.randrange(4)
    low, high = sorted(choose.choices(range(size + 1), k=2))
    if kind == 0:
      key.append(choose.randrange(-size, size))
    elif kind == 1:
      key.append(slice(low, high, choose.choice([None, 1, 2])))
    else:
      key.append(slice(high - 1, None if low == 0 else low - 1, -1) if kind == 2 and high > low else slice(None))
  if choose.random() < 0.3:
    return (*key[: choose.randrange(len(key))], Ellipsis)
  if choose.random() < 0.3:
    key.insert(choose.randrange(len(key)), None)
  return tuple(key)


def test_indexing() -> None:
  choose = random.Random(3)
  a = draw(3, 4, 5, dtype="int32")
  for _ in range(30):
    key = random_key(choose, a.shape)
    check("", xp.asarray(a)[given(xp, key)], strict.asarray(a)[given(strict, key)], set())
    if isinstance(key, tuple) and None in key:
      continue
    ours, theirs = xp.asarray(a, copy=True), strict.asarray(a, copy=True)
    ours[given(xp, key)], theirs[given(strict, key)] = 7, 7
    check("", ours, theirs, set())
