"""Derivatives at the special points of functions, first and second ones, against PyTorch: zeros of both signs, ones,
integers, halves, equal operands, infinities and NaN.

The functions are PyTorch's elementwise operators (OpInfo) as far as `opinfo_table` covers them, and the rows of
`test_ops_torch`, which get numbers with many ties: one that comes to a table is tested without more ado. Where ours is
something else than PyTorch's, `DIFFERENT` says in which points and why.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which PyTorch's test data import

import opinfo_report as report  # noqa: E402
import opinfo_table as table  # noqa: E402
import test_ops_torch as rows  # noqa: E402
from opinfo_compare import compute, flat  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo  # noqa: E402
from torch_rows import Row  # noqa: E402

from tiny_tensor import Context, Tensor  # noqa: E402

Array = Any
COVERED = frozenset(report.covered()) - table.SHAPES_ONLY.keys()
# their samples bring arguments that have no name here
LEFT = ("nn.functional.prelu", *[f"polygamma|polygamma_n_{n}" for n in (1, 2, 3, 4)])
OPS = {
  name: op
  for op in op_db
  if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo))
  and (name := table.full_name(op)) in COVERED
  and name not in LEFT
  and op.supports_autograd
  and torch.float64 in op.supported_dtypes("cpu")
}
POINTS = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, 3.0, -3.0, 0.3, -0.7, np.inf, -np.inf, np.nan)
PAIRED = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.5, 3.0, np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class Different:
  """At some of the points x, y where `where` holds, but not at all of the others, ours is something else; and why.
  That is so for derivatives of `order`, and for higher ones.
  """

  where: str
  why: str
  order: int = 1


_OUTSIDE = "where a function is NaN, its derivatives are"
_OF_NAN = "PyTorch has a number there, which a condition chooses that is not true of NaN"
_LIMIT = "ours is the limit; PyTorch has infinity times 0, or over infinity"
_POLE = "PyTorch rounds π, so that it is next to the pole; second derivatives have both signs at one"
_LEFT = "the second derivative on the left, which in PyTorch is 0"
_DIGAMMA = (Different("(x <= 0) & (x == floor(x))", _POLE), Different("isinf(x)", _LIMIT, 2))
_GAMMA = (Different("(x <= 0) & (2 * x == floor(2 * x))", _POLE, 2),)
_CLAMP = (Different("isnan(x) | isnan(y)", "PyTorch has 0, since NaN is in no interval; ours is that of NaN itself"),)
_ELU = (Different("x == 0", _LEFT, 2), Different("isnan(x)", _OF_NAN))
_POWER = (
  Different("x == 0", _LIMIT, 2),
  Different("(y == 0) & ((x < 0) | isinf(x))", "the logarithm of x, which is no number, times the derivative of 1", 2),
)
DIFFERENT: dict[str, tuple[Different, ...]] = {
  "pow": _POWER,
  "float_power": _POWER,
  "__rpow__": (Different("y == 0", _LIMIT, 2), Different("(x == 0) & ((y < 0) | isinf(y))", _POWER[1].why, 2)),
  "acosh": (Different("x < 1", _OUTSIDE),),
  "logit": (Different("(x < 0) | (x > 1)", _OUTSIDE, 2), Different("(x == 0) | (x == 1)", _LIMIT, 2)),
  "clamp_max": _CLAMP,
  "clamp_min": _CLAMP,
  "copysign": (Different("(x == 0) | isinf(x) | isnan(x)", "a sign; in PyTorch the result divided by x"),),
  "digamma": _DIGAMMA,
  "polygamma|polygamma_n_0": _DIGAMMA,
  "special.polygamma|special_polygamma_n_0": _DIGAMMA,
  "lgamma": _GAMMA,
  "mvlgamma|mvlgamma_p_1": (Different(_GAMMA[0].where, _POLE),),
  "mvlgamma|mvlgamma_p_3": _GAMMA,
  "mvlgamma|mvlgamma_p_5": _GAMMA,
  "i0": (Different("isinf(x)", _LIMIT), Different("isnan(x)", _OF_NAN, 2)),
  "special.i1": (Different("isnan(x)", _OF_NAN),),
  "special.i1e": (Different("isnan(x)", _OF_NAN),),
  "logaddexp": (Different("isinf(x) | isinf(y)", _LIMIT),),
  "sinc": (Different("x == 0", _LIMIT, 2),),
  "xlogy": (Different("(x == 0) & (y == 0)", _LIMIT, 2),),
  "special.xlog1py": (Different("(x == 0) & (y == -1)", _LIMIT, 2),),
  "nn.functional.elu": _ELU,
  "nn.functional.celu": _ELU,
  "nn.functional.selu": _ELU,
  "nn.functional.hardsigmoid": (Different("isnan(x)", _OF_NAN),),
  "nn.functional.softshrink": (Different("isnan(x)", _OF_NAN),),
}

# with a Python number for y
_ROOT = "(abs(y) == 0.5) & ((x == 0) | isinf(x))"
DIFFERENT_FOR_NUMBERS = {
  "pow": (Different(_ROOT, "roots, which are -0.0 at -0.0, and NaN at -inf"),),
  "float_power": (Different(_ROOT, "roots, which are -0.0 at -0.0, and NaN at -inf"),),
  "xlogy": (Different("isnan(y)", "PyTorch has 0 at 0, but NaN if y is a tensor"),),
  "special.xlog1py": (Different("isnan(y)", "PyTorch has 0 at 0, but NaN if y is a tensor"),),
}

# (0,) is the derivative in the first input, (0, 1) that of it in the second one; ours, and PyTorch's
Derivative = tuple[tuple[int, ...], Array, Array]


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  with Context(DEVICE=os.environ.get("DEVICE") or "REF", CACHELEVEL=1), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


def total(results: Sequence[Any]) -> Any:
  """The sum of all that has a gradient."""
  parts = [r.sum() for r in results]
  return sum(parts[1:], start=parts[0])


def derivatives(ours: Any, theirs: Any, arrays: list[Array], second: bool) -> Iterator[Derivative]:
  """Each derivative that PyTorch knows. Where it has none, ours has none."""
  mine, other = [Tensor(a, requires_grad=True) for a in arrays], [torch.tensor(a, requires_grad=True) for a in arrays]
  pairs = [(a, b) for a, b in zip(flat(ours(*mine)), flat(theirs(*other)), strict=True)]
  pairs = [(a, b) for a, b in pairs if isinstance(b, torch.Tensor) and b.requires_grad]
  if not pairs:
    return
  results = total([a for a, _ in pairs])
  expected = torch.autograd.grad(total([b for _, b in pairs]), other, allow_unused=True, create_graph=second)
  found: list[tuple[tuple[int, ...], Tensor, Any]] = []
  for i, e in enumerate(expected):
    if e is None:
      with pytest.raises(RuntimeError, match="does not depend"):
        results.gradient(mine[i])
    else:
      found.append(((i,), results.gradient(mine[i])[0], e))
  for (i,), g, e in list(found) if second else []:
    # a derivative that is constant is not known to depend on anything
    gs = g.sum().gradient(*mine, materialize_grads=True)
    es = (
      torch.autograd.grad(e.sum(), other, allow_unused=True, retain_graph=True)
      if e.requires_grad
      else [None] * len(other)
    )
    found += [((i, j), a, torch.zeros_like(other[j]) if b is None else b) for j, (a, b) in enumerate(zip(gs, es))]
  compute([g for _, g, _ in found])
  yield from ((which, g.numpy(), e.detach().numpy(force=True)) for which, g, e in found)


def differences(
  name: str, arrays: list[Array], second: bool, found: Sequence[Derivative], more: tuple[Different, ...] = ()
) -> list[str]:
  """What is not as it should be."""
  listed = dict.fromkeys(DIFFERENT.get(name, ()) + more, 0)
  names = {**{n: getattr(np, n) for n in ("isnan", "isinf", "floor")}, **dict(zip("xy", arrays, strict=False))}
  wrong: list[str] = []
  for which, got, expected in found:
    differs = ~np.isclose(got, expected, rtol=1e-5, atol=1e-7, equal_nan=True)
    agreed = np.zeros_like(differs)
    for d in listed:
      if d.order <= len(which):
        agreed |= eval(d.where, names)
        listed[d] += int((eval(d.where, names) & differs).sum())
    for place in list(zip(*np.nonzero(differs & ~agreed), strict=True))[:6]:
      at = ", ".join(str(a[place]) for a in arrays)
      wrong.append(f"derivative {which} of {name} at {at} is {expected[place]}, got {got[place]}")
  if second:
    wrong += [f"{name} does not differ where {d.where}: take it off the list" for d, n in listed.items() if not n]
  return wrong


def check(name: str, second: bool) -> None:
  op, ours = OPS[name], table.resolve(name)
  assert ours is not None
  one = isinstance(op, UnaryUfuncInfo)
  arrays = [np.array(POINTS)] if one else [a.copy() for a in np.meshgrid(np.array(PAIRED), np.array(PAIRED))]
  kwargs = op.sample_kwargs("cpu", torch.float64, torch.from_numpy(arrays[0]))[0] if one else {}
  second = second and op.supports_gradgrad
  try:
    found = list(derivatives(lambda *a: ours(*a, **kwargs), lambda *a: op.op(*a, **kwargs), arrays, second))
  except (NotImplementedError, RuntimeError) as error:
    if "is not implemented" not in str(error):  # by PyTorch
      raise
    pytest.skip(f"PyTorch: {error}")
  wrong = differences(name, arrays, second, found)
  assert not wrong, "\n".join(wrong)


UNARY = sorted(name for name, op in OPS.items() if isinstance(op, UnaryUfuncInfo))
BINARY = sorted(OPS.keys() - set(UNARY))


@pytest.mark.parametrize("name", UNARY)
def test_of_one_number(name: str) -> None:
  check(name, True)


@pytest.mark.parametrize("name", BINARY)
def test_of_two_numbers(name: str) -> None:
  check(name, False)


@pytest.mark.parametrize("name", BINARY)
def test_of_a_number_and_a_python_number(name: str) -> None:
  """Which has ways of its own in some functions."""
  op, ours, x = OPS[name], table.resolve(name), np.array(POINTS)
  assert ours is not None
  wrong: list[str] = []
  for y in (*PAIRED, 0.3, 2.5, -1.5, 0, 1, 2, 3, 5, -1, -2, -3):
    try:
      found = list(derivatives(lambda x, y=y: ours(x, y), lambda x, y=y: op.op(x, y), [x], op.supports_gradgrad))
    except (TypeError, RuntimeError) as error:
      if not re.search("must be Tensor|invalid combination|is not implemented", str(error)):  # in PyTorch
        raise
      pytest.skip(f"PyTorch: {error}")
    wrong += differences(name, [x, np.full_like(x, y)], False, found, DIFFERENT_FOR_NUMBERS.get(name, ()))
  assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
@pytest.mark.parametrize("name", BINARY)
def test_second_derivatives_of_two_numbers(name: str) -> None:
  check(name, True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_compiled(name: str) -> None:
  """Where products and sums may be fused: a bound that one rounding reaches, another may pass."""
  with Context(DEVICE="CPU"):
    check(name, name in UNARY)


def test_what_differs_is_covered() -> None:
  assert not DIFFERENT.keys() - OPS.keys()


TIES = np.array([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, 1.5], np.float32)
# their results are matrices and windows of sums, without special points
SMOOTH = ("matmul", "linear", "einsum", "attention", "conv", "sum_long", "sort_long")


def with_ties(row: Row) -> list[Array]:
  rng = np.random.default_rng(7)
  return [rng.choice(TIES, s).astype(np.float32) for s in row.shapes]


_SHARED = "equal elements share the gradient of the largest one; in PyTorch the first one has it"
_EITHER = "which of equal elements is taken is not said"
ROWS_DIFFERENT = {
  "acosh": _OUTSIDE,
  "topk": _EITHER,
  "max_pool": _SHARED,
  "max_pool3": _SHARED,
  "max_pool_dilated": _SHARED,
  "max_pool_ceil": _SHARED,
  "unpool": _SHARED,
  "scatter_amax_False": "PyTorch shares the gradient with an element that is not included",
}


def size(row: Row) -> int:
  return sum(math.prod(s) for s in row.shapes)


ROWS: dict[str, Row] = {}  # of each name the one with most elements
for row in rows.ROWS:
  name = row.name.partition("-(")[0]
  if not name.startswith(SMOOTH) and (name not in ROWS or size(row) > size(ROWS[name])):
    ROWS[name] = row


def check_row(row: Row) -> None:
  try:
    found = list(derivatives(row.ours, row.theirs, with_ties(row), False))
  except RuntimeError as error:
    if "is not implemented" not in str(error):  # by PyTorch
      raise
    pytest.skip(f"PyTorch: {error}")
  tolerance = 5 * row.tolerance
  for which, got, expected in found:
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=f"{which} of {row.name}")


@pytest.mark.parametrize("name", [name for name in ROWS if name not in ROWS_DIFFERENT])
def test_rows_with_ties(name: str) -> None:
  check_row(ROWS[name])


@pytest.mark.parametrize("name", ROWS_DIFFERENT)
def test_rows_that_differ(name: str) -> None:
  with pytest.raises(AssertionError, match="Not equal"):
    check_row(ROWS[name])
