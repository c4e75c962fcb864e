"""Transcendental functions against references of higher precision, in units in the last place."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from codegen_elementwise import RENDERERS, apply, apply_all, storage, values_of

from tiny_codegen.decompose import transcendentals
from tiny_codegen.decompose.transcendentals import LARGEST_ERROR
from tiny_uop import DType, GroupOp, Ops, UOp, dtypes, evaluate, truncate

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
LONG = np.longdouble
# NumPy's long double is what float64 results are compared with; some platforms have none wider than float64
HAS_LONG = np.finfo(LONG).nmant > 60
REFERENCE: dict[Ops, Callable[[Any], Any]] = {
  Ops.EXP2: np.exp2, Ops.EXP: np.exp, Ops.LOG2: np.log2, Ops.LOG: np.log, Ops.SIN: np.sin, Ops.COS: np.cos,
}  # fmt: skip
SIZE = 1 << 16
INTERVALS: dict[Ops, tuple[tuple[float, float], ...]] = {
  Ops.EXP2: ((-160, 130), (-1, 1), (-150, -120)),
  Ops.EXP: ((-110, 90), (-1, 1), (-104, -80)),
  Ops.LOG2: ((0.5, 2), (0.99, 1.01), (0, 1e-38)),
  Ops.LOG: ((0.5, 2), (0.99, 1.01), (0, 1e-38)),
  **dict.fromkeys((Ops.SIN, Ops.COS), ((-7, 7), (-400, 400), (-4000, 4000), (-1e5, 1e5), (-0.01, 0.01))),
}
DOUBLE_INTERVALS = {
  **INTERVALS,
  Ops.EXP2: ((-1080, 1030), (-1, 1), (-1075, -1020)),
  Ops.EXP: ((-750, 720), (-1, 1), (-745, -700)),
  Ops.LOG2: ((0.5, 2), (0.99, 1.01), (0, 1e-307)),
  Ops.LOG: ((0.5, 2), (0.99, 1.01), (0, 1e-307)),
  **dict.fromkeys((Ops.SIN, Ops.COS), ((-7, 7), (-1e6, 1e6), (-0.01, 0.01))),
}


def bound(renderer: str) -> float:
  """What the rules say for the functions of a target."""
  return LARGEST_ERROR[RENDERERS[renderer]().target.has_fma]


def check_ulps(x: Array, got: Array, wanted: Any, bound: float) -> None:
  """Finite results within `bound` units in the last place of `wanted` (which is more precise), the others the same."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    rounded = np.asarray(wanted).astype(got.dtype)
    finite = np.isfinite(rounded) & np.isfinite(got)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    # a result next to overflow may round either way
    wrong = ~finite & ~same
    error = np.where(finite, np.abs(got.astype(np.asarray(wanted).dtype) - wanted) / np.spacing(np.abs(rounded)), 0)
  assert not wrong.any(), (x[wrong][:5], got[wrong][:5], rounded[wrong][:5])
  worst = int(error.argmax())
  assert error[worst] <= bound, f"{float(error[worst]):.3f} ulp at {x[worst]!r}: {got[worst]!r} for {wanted[worst]!r}"


def samples(op: Ops, intervals: dict[Ops, tuple[tuple[float, float], ...]], kind: Any) -> Array:
  """Edges, random patterns of bits, and numbers from each interval: one array, for which a program is compiled once."""
  random = np.random.default_rng(7)
  patterns = random.integers(0, 1 << (8 * np.dtype(kind).itemsize), SIZE, dtype=np.uint64)
  special = [0.0, -0.0, 1, -1, 2, 0.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 128, 127, -126, -149, -150, -151]
  edges = np.array([*special, np.finfo(kind).tiny, np.finfo(kind).smallest_subnormal, np.finfo(kind).max], kind)
  return np.concatenate(
    [
      np.resize(edges, 32),
      patterns.astype(f"uint{8 * np.dtype(kind).itemsize}").view(kind),
      *(random.uniform(low, high, SIZE).astype(kind) for low, high in intervals[op]),
    ]
  )


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("op", REFERENCE, ids=lambda op: op.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float32(op: Ops, renderer: str) -> None:
  x = samples(op, INTERVALS, np.float32)
  got = apply(RENDERERS[renderer](), lambda v: v.alu(op), [(dtypes.float32, x)], dtypes.float32, 8)
  check_ulps(x, got, REFERENCE[op](x.astype(np.float64)), bound(renderer))


@pytest.mark.skipif(not HAS_LONG, reason="long double is no wider than float64 here: nothing to compare with")
@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("op", REFERENCE, ids=lambda op: op.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float64(op: Ops, renderer: str) -> None:
  x = samples(op, DOUBLE_INTERVALS, np.float64)
  if op in (Ops.SIN, Ops.COS):  # the x87 instruction behind long double is exact only for small arguments
    x = x[~(np.abs(x) > 1e6) | np.isinf(x)]
    x = np.resize(x, len(x) // 4 * 4)
  got = apply(RENDERERS[renderer](), lambda v: v.alu(op), [(dtypes.float64, x)], dtypes.float64, 4)
  check_ulps(x, got, REFERENCE[op](x.astype(LONG)), bound(renderer))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, *dtypes.fp8s], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_narrow_float(dtype: DType) -> None:
  """All values; rounding the float32 result may be off by one in the rare case where that lies next to a midpoint."""
  bits = np.arange(1 << dtype.bits).astype(f"uint{dtype.bits}")
  values = values_of(dtype, bits)
  wanted = {op: np.array([truncate(dtype, float(w)) for w in function(values)]) for op, function in REFERENCE.items()}
  functions = [(lambda v, op=op: v.alu(op), dtype) for op in REFERENCE]
  for name, renderer in RENDERERS.items():
    results = apply_all(renderer(), functions, [(dtype, bits.view(storage(dtype)))], 8)
    for (op, want), result in zip(wanted.items(), results, strict=True):
      made = values_of(dtype, result)
      differ = ~((made == want) | (np.isnan(made) & np.isnan(want)))
      assert differ.sum() <= len(bits) // 10000, (name, op, values[differ][:5], made[differ][:5], want[differ][:5])


def exact_sine(x: float) -> float:
  """sin(x) for any double, by integers: the remainder by 2 pi to 1300 bits, then the Taylor series."""
  bits = 1300
  pi = _pi(bits)
  top, bottom = abs(x).as_integer_ratio()
  angle = (top << bits) // bottom % (2 * pi)
  total, term, k = 0, angle, 1
  while term:
    total += term
    term = -(((term * angle) >> bits) * angle >> bits) // ((k + 1) * (k + 2))
    k += 2
    if abs(term) <= 1:
      break
  # an int division rounds to nearest
  return (total if x > 0 else -total) / (1 << bits)


def _pi(bits: int) -> int:
  """pi * 2**bits, by Machin's formula 16 atan(1/5) - 4 atan(1/239)."""

  def arctangent(inverse: int) -> int:
    one = 1 << (bits + 32)
    power, total, k = one // inverse, 0, 1
    while power:
      total += (power // k) * (1 if k % 4 == 1 else -1)
      power //= inverse * inverse
      k += 2
    return total

  return (16 * arctangent(5) - 4 * arctangent(239)) >> 32


@pytest.mark.parametrize("renderer", RENDERERS)
def test_sine_of_large_arguments(renderer: str) -> None:
  random = np.random.default_rng(3)
  exponents = random.uniform(15, 1023, 400)
  x = np.array([*(2.0**exponents * random.choice([-1, 1], 400)), *random.uniform(1.4e6, 1e9, 200), 1.5e6, 1e22, -1e300])
  # the double that comes nearest to a multiple of pi/2 (Muller, "Elementary Functions", ch. 11)
  x = np.append(x, 6381956970095103 * 2.0**797)
  wanted = np.array([exact_sine(float(v)) for v in x])
  got = apply(RENDERERS[renderer](), lambda v: v.sin(), [(dtypes.float64, x)], dtypes.float64)
  # the reference is rounded itself
  check_ulps(x, got, wanted, bound(renderer) + 0.5)
  single = x[np.abs(x) < 1e38].astype(np.float32)
  got = apply(RENDERERS[renderer](), lambda v: v.sin(), [(dtypes.float32, single)], dtypes.float32)
  check_ulps(single, got, np.array([exact_sine(float(v)) for v in single]), bound(renderer))


@pytest.mark.parametrize("power", [transcendentals.exp, transcendentals.exp2], ids=["exp", "exp2"])
@pytest.mark.parametrize("x", [-math.inf, -1e30, -200.0])
def test_no_subnormal_number_on_the_way_to_zero(power: Callable[[UOp], UOp], x: float) -> None:
  """As of masked scores: rounding one takes a processor a hundred cycles."""
  value = UOp.param(0, dtypes.float32.ptr(1)).index(UOp.const(dtypes.index, 0)).load()
  result = power(value)
  assert evaluate(result, {value: x}) == 0.0
  for u in result.toposort:
    if u.dtype is dtypes.float32 and u.op in GroupOp.Elementwise:
      computed = evaluate(u, {value: x})
      assert isinstance(computed, float) and (computed == 0.0 or abs(computed) >= 2.0**-126), u
