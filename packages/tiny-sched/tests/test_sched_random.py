"""Random programs: schedules executed by the interpreter give what NumPy gives, bit for bit (integers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_sched import schedule
from tiny_sched.normalise import is_temporary
from tiny_sched.passes import PASSES
from tiny_uop import GroupOp, Ops, UOp, dtypes
from tiny_uop.context import Context
from tiny_uop.passes import run_passes

Memory = dict[UOp, np.ndarray[Any, np.dtype[Any]]]
SIZES = st.sampled_from([0, 1, 1, 2, 3, 4, 6])
ROOM = 400  # elements that a value may have


def total(shape: tuple[int, ...]) -> int:
  return int(np.prod(shape, dtype=np.int64))


def sizes(u: UOp) -> tuple[int, ...]:
  return tuple(int(s) for s in u.shape)


def new(shape: tuple[int, ...]) -> UOp:
  return UOp.new_buffer("CPU", total(shape), dtypes.int32).reshape(shape)


@st.composite
def movements(draw: st.DrawFn, x: UOp) -> UOp:
  shape = sizes(x)
  kind = draw(st.sampled_from(["reshape", "permute", "expand", "pad", "shrink", "flip", "split"]))
  if kind == "permute":
    return x.permute(draw(st.permutations(list(range(len(shape))))))
  if kind == "flip" and shape:
    return x.flip(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
  if kind == "pad":
    padding = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape]
    return x.pad(padding) if total(tuple(s + sum(p) for s, p in zip(shape, padding, strict=True))) <= ROOM else x
  if kind == "shrink":
    bounds = [tuple(sorted((draw(st.integers(0, s)), draw(st.integers(0, s))))) for s in shape]
    return x.shrink([(a, b) for a, b in bounds])
  if kind == "expand":
    wide = tuple(draw(SIZES) if s == 1 else s for s in shape)
    return x.expand(wide) if total(wide) <= ROOM else x
  if kind == "split" and total(shape):
    n = total(shape)
    divisor = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
    return x.reshape((divisor, n // divisor))
  return x.reshape((*shape, 1)) if draw(st.booleans()) else x.reshape((total(shape),))


@st.composite
def programs(draw: st.DrawFn) -> tuple[UOp, ...]:
  pool = [new(tuple(draw(st.lists(SIZES, max_size=3)))) for _ in range(draw(st.integers(1, 3)))]
  for _ in range(draw(st.integers(1, 14))):
    x = draw(st.sampled_from(pool))
    kind = draw(
      st.sampled_from(
        ["move", "move", "move", "binary", "binary", "reduce", "reduce", "const", "compare", "contiguous"]
      )
    )
    if kind == "move":
      pool.append(draw(movements(x)))
    elif kind == "reduce" and x.shape:
      axes = draw(st.sets(st.integers(0, len(x.shape) - 1), min_size=1))
      pool.append(x.reduce_axes(draw(st.sampled_from([Ops.ADD, Ops.MAX, Ops.MUL])), tuple(axes)))
    elif kind == "const":
      pool.append(
        x + x.const_like(draw(st.integers(-3, 3))) if draw(st.booleans()) else x.const_like(draw(st.integers(-3, 3)))
      )
    elif kind == "contiguous":
      pool.append(x.contiguous())
    else:
      fitting = [y for y in pool if sizes(y) == sizes(x)]
      y = draw(st.sampled_from(fitting))
      if kind == "compare":
        pool.append((x < y).where(draw(st.sampled_from(fitting)), x.const_like(7)))
      else:
        pool.append(x.alu(draw(st.sampled_from([Ops.ADD, Ops.MUL, Ops.MAX, Ops.FLOORDIV, Ops.FLOORMOD])), y))
  return tuple(draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3)))


def stored(x: UOp) -> UOp:
  return new(sizes(x)).assign(x)


def compare(
  roots: list[UOp],
  execute: Callable[[UOp, Memory], None],
  evaluate: Callable[[UOp, Memory], np.ndarray[Any, np.dtype[Any]]],
  seed: int = 0,
) -> None:
  sink = UOp.sink(*roots)
  memory: Memory = {}
  random = np.random.default_rng(seed)
  for u in sink.toposort:
    if u.op is Ops.BUFFER:
      memory[u] = random.integers(-5, 6, u.arg[1]).astype(np.int32)
  with np.errstate(all="ignore"):
    wanted = [evaluate(root, memory) for root in roots]
    with Context(SPEC=2):
      execute(schedule(sink), memory)
  for root, want in zip(roots, wanted, strict=True):
    base = root
    while base.op in GroupOp.Movement or base.op is Ops.AFTER:
      base = base.src[0]
    np.testing.assert_array_equal(memory[base], want.reshape(-1))


@settings(
  max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(values=programs())
def test_random_program(values: tuple[UOp, ...], execute: Any, evaluate: Any) -> None:
  compare([stored(x) for x in values], execute, evaluate)


@st.composite
def updates(draw: st.DrawFn) -> list[UOp]:
  """Chains of assignments to slices of few buffers, from values that read any version of them."""
  shape = (4, 3)
  versions = [[new(shape)] for _ in range(draw(st.integers(1, 2)))]
  for _ in range(draw(st.integers(1, 4))):
    reads = [draw(st.sampled_from(draw(st.sampled_from(versions)))) for _ in range(2)]
    first = (
      reads[0].permute((1, 0)).reshape(shape)
      if draw(st.booleans())
      else reads[0].flip((0,))
      if draw(st.booleans())
      else reads[0]
    )
    value = first * reads[1] + 1
    chain = draw(st.sampled_from(versions))
    start, stop = sorted((draw(st.integers(0, 4)), draw(st.integers(0, 4))))
    bounds = ((start, stop), (0, 3))
    store = chain[-1].shrink(bounds).store(value.shrink(bounds))
    chain.append(chain[-1].after(store))
  return [chain[-1] for chain in versions if len(chain) > 1]


@settings(
  max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(roots=updates())
def test_random_updates(roots: list[UOp], execute: Any, evaluate: Any) -> None:
  compare(roots, execute, evaluate)


@st.composite
def expansions(draw: st.DrawFn) -> tuple[UOp, ...]:
  """Reductions that are expanded, moved, compared and used by several others, long enough to get memory."""
  shape = draw(st.sampled_from([(24, 48), (4, 6, 48)]))
  full = [new(shape), new(shape)]  # values of all elements
  wide: list[UOp] = []  # and those that are expanded
  for _ in range(draw(st.integers(5, 12))):
    kind = draw(st.sampled_from(["reduce", "expand", "where", "combine", "dear", "move", "use"])) if wide else "reduce"
    x = draw(st.sampled_from(wide or full))
    if kind in ("reduce", "expand"):
      source = draw(st.sampled_from(full if kind == "reduce" else wide))
      axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=2))
      wide.append((source * source).reduce_axes(draw(st.sampled_from([Ops.ADD, Ops.MAX])), tuple(axes)).expand(shape))
    elif kind == "where":
      wide.append((x < draw(st.integers(-3, 3))).where(draw(st.sampled_from(wide)), x.const_like(7)))
    elif kind == "combine":
      wide.append(x * draw(st.sampled_from(wide)) + 1)
    elif kind == "dear":
      for _ in range(20):
        x = x * x + 1
      wide.append(x)
    elif kind == "move":
      axis = draw(st.integers(0, len(shape) - 1))
      before, after = [(0, 1) if a == axis else (0, 0) for a in range(len(shape))], sizes(x)
      part = x.pad(before).shrink([(1, s + 1) if a == axis else (0, s) for a, s in enumerate(after)])
      turned = (
        x.flip((axis,)).permute(tuple(range(len(shape)))[::-1]).contiguous().permute(tuple(range(len(shape)))[::-1])
      )
      wide.append(draw(st.sampled_from([part, turned, x.reshape((1, *shape)).reshape(shape)])))
    else:
      y = draw(st.sampled_from(full))
      full.append(draw(st.sampled_from([x + y, (y < x).where(x, y), (y < 2).where(x, y.const_like(1))])))
  results = draw(st.lists(st.sampled_from(full[2:] + wide), min_size=2, max_size=4))
  return tuple([x.reduce_axes(Ops.ADD, (0,)) if draw(st.booleans()) else x for x in results])


def repeated(linear: UOp) -> list[str]:
  """The kernels that fill a temporary in a loop of which what they store there does not depend."""
  found = []
  for call in linear.src:
    for store in call.src[0].toposort:
      if store.op is Ops.STORE and is_temporary(call.src[1 + store.src[0].src[0].arg]):
        value, place = store.src[1], store.src[0].src[1]
        found += [] if set(place.ranges) <= set(value.ranges) else [call.src[0].arg.name]
  return found


@settings(
  max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(values=expansions())
def test_no_temporary_is_larger_than_what_is_expanded(values: tuple[UOp, ...], execute: Any, evaluate: Any) -> None:
  roots = [stored(x) for x in values]
  assert not repeated(run_passes(UOp.sink(*roots), PASSES, skip=("memory",)))
  compare(roots, execute, evaluate)
