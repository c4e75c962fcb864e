"""Emulated float formats: conversions over all values and midpoints, arithmetic rounded after each operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_elementwise import RENDERERS, apply, apply_all, storage, values_of

from tiny_codegen.decompose import table_for
from tiny_codegen.render import CRenderer
from tiny_uop import AddrSpace, DType, Ops, UOp, dtypes, exec_alu, graph_rewrite
from tiny_uop.truncate import from_bits, to_bits

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
NARROW = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s)
every = pytest.mark.parametrize("dtype", NARROW, ids=str)
every_renderer = pytest.mark.parametrize("renderer", RENDERERS)


def patterns(dtype: DType) -> Array:
  return np.arange(1 << dtype.bits).astype(f"uint{dtype.bits}")


def same(a: Array, b: Array) -> Any:
  return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every
@every_renderer
@pytest.mark.parametrize("target", [dtypes.float32, dtypes.float64], ids=str)
def test_widening_is_exact(dtype: DType, target: DType, renderer: str) -> None:
  bits = patterns(dtype)
  got = apply(RENDERERS[renderer](), lambda x: x.cast(target), [(dtype, bits.view(storage(dtype)))], target, 8)
  assert same(got, values_of(dtype, bits)).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=str)
def test_narrowing_rounds_to_nearest_even(dtype: DType, source: DType) -> None:
  """Values, midpoints between them, and the neighbours of both."""
  kind = storage(source)
  values = np.unique(values_of(dtype, patterns(dtype)))
  values = values[np.isfinite(values)]
  largest = values[-1]
  step = largest - values[-2]
  points = np.concatenate(
    [values, (values[1:] + values[:-1]) / 2, [largest + step / 2, largest + step, -largest - step]]
  )
  x = points.astype(kind)
  random = np.random.default_rng(0).integers(0, 1 << source.bits, 4096, dtype=np.uint64).astype(f"uint{source.bits}")
  special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, np.finfo(kind).max, np.finfo(kind).smallest_subnormal], kind)
  x = np.concatenate(
    [x, np.nextafter(x, kind.type(np.inf)), np.nextafter(x, kind.type(-np.inf)), random.view(kind), special]
  )
  x = np.resize(x, (len(x) + 7) // 8 * 8)
  wanted = np.array([from_bits(dtype, to_bits(dtype, float(v))) for v in x])
  for name, renderer in RENDERERS.items():
    got = values_of(dtype, apply(renderer(), lambda v: v.cast(dtype), [(source, x)], dtype, 8))
    wrong = ~same(got, wanted)
    assert not wrong.any(), (name, x[wrong][:5], got[wrong][:5], wanted[wrong][:5])


@every
@every_renderer
@pytest.mark.parametrize("source", [dtypes.bool, *dtypes.ints], ids=str)
def test_integers_are_rounded_once(dtype: DType, source: DType, renderer: str) -> None:
  kind = storage(source)
  if source is dtypes.bool:
    x = np.array([True, False] * 4)
  else:
    low, high = int(dtypes.min(source)), int(dtypes.max(source))
    x = np.random.default_rng(1).integers(low, high, 500, dtype=kind, endpoint=True)
    x = np.concatenate([*(x >> k for k in range(0, source.bits, 3)), np.array([0, 1, low, high], kind)])
    # next to midpoints of bfloat16: converting by way of float32 or float64 would round these twice
    near = [(odd << k) + e for odd in (0x101, 0x103) for k in range(1, source.bits - 9) for e in (-1, 0, 1)]
    x = np.concatenate([x, np.array([v for v in near if v <= high], kind)])
  got = values_of(dtype, apply(RENDERERS[renderer](), lambda v: v.cast(dtype), [(source, x)], dtype))
  wanted = np.array([from_bits(dtype, to_bits(dtype, int(v))) for v in x])
  wrong = ~same(got, wanted)
  assert not wrong.any(), (x[wrong][:5], got[wrong][:5], wanted[wrong][:5])


@every
@every_renderer
def test_arithmetic_rounds_after_each_operation(dtype: DType, renderer: str) -> None:
  random = np.random.default_rng(2)
  a, b = (patterns(dtype)[random.integers(0, 1 << dtype.bits, 4096)] for _ in range(2))
  inputs = [(dtype, a.view(storage(dtype))), (dtype, b.view(storage(dtype)))]
  x, y = values_of(dtype, a), values_of(dtype, b)
  ops = (Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX)
  made = apply_all(RENDERERS[renderer](), [(lambda v, w, op=op: v.alu(op, w), dtype) for op in ops], inputs, 8)
  for op, result in zip(ops, made, strict=True):
    got = values_of(dtype, result)
    wanted = np.array([exec_alu(op, dtype, (float(v), float(w))) for v, w in zip(x, y, strict=True)])
    wrong = ~((got == wanted) | (np.isnan(got) & np.isnan(wanted)))
    assert not wrong.any(), (op, x[wrong][:3], y[wrong][:3], got[wrong][:3], wanted[wrong][:3])
  # two operations round twice: a sum that is kept in float32 would not lose the small addend
  one = np.ones(8)
  tiny = np.full(8, 2.0**-11 if dtype is dtypes.float16 else 2.0**-8 if dtype is dtypes.bfloat16 else 2.0**-4)
  encoded = [
    (dtype, np.array([to_bits(dtype, v) for v in c], f"uint{dtype.bits}").view(storage(dtype))) for c in (one, tiny)
  ]
  got = values_of(dtype, apply(RENDERERS[renderer](), lambda v, w: v + w + w, encoded, dtype))
  assert (got == 1.0).all()


@every
def test_nothing_emulated_is_left(dtype: DType) -> None:
  """Registers, gates, vectors and constants of an emulated type: everything becomes integers and float32."""
  target = CRenderer().target
  i = UOp.range(4, 0, dtype=dtypes.int32)
  register = UOp.alloc(0, dtype.vec(2).ptr(1, AddrSpace.REG))
  start = register.after(i).index(0).store(UOp.const(dtype.vec(2), (1.0, 2.0)))
  value = UOp.param(1, dtype.ptr(8)).index(i * 2, i < 3).load(UOp.const(dtype.vec(2), 3), dtype=dtype.vec(2))
  total = register.after(start).index(0).load() + (value < 1.0).where(value, value.extract(1).broadcast(2))
  root = UOp.sink(UOp.param(0, dtype.ptr(8)).index(i * 2).store(total.exp2()).end(i))
  lowered = graph_rewrite(root, table_for(target))
  left = [
    u for u in lowered.toposort if u.dtype.kind == "float" and getattr(u.dtype, "base", u.dtype).scalar() is dtype
  ]
  # of pointers, what they point to
  assert not left, left
