"""Whether two graphs have the same value: by proof where there are only integers, else by trying values.

Bits are compared, so -0.0 and 0.0 differ; all NaNs are alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tiny_uop.dtype import DType, PtrDType, dtypes
from tiny_uop.evaluate import lanes_of
from tiny_uop.node import Node
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.proof.z3_terms import BitVectors, Integers, Terms, leaf_name
from tiny_uop.shape import same_shape
from tiny_uop.testing.draws import LIMIT, Draws
from tiny_uop.testing.scalars import Scalars, Unspecified
from tiny_uop.testing.tensors import Tensors
from tiny_uop.text.print import print_uop
from tiny_uop.truncate import FORMATS, to_bits
from tiny_uop.uop import UOp

EXHAUSTIVE = 1 << 17  # as many combinations are tried one by one where z3 gives up
_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD})
_TENSOR = GroupOp.Movement | GroupOp.Identity | {Ops.BUFFER, Ops.DEVICE, Ops.COPY}


def check_same_value(before: UOp, after: UOp, changes: str = "", samples: int = 0) -> None:
  """Raises AssertionError, with a counter-example, where the graphs differ in dtype, shape or value.

  Graphs without floats are proved equal for all values of their leaves; where z3 gives up all values are tried, and
  where there are too many it is an error. Floats are sampled, special values included; with `changes`, results of
  ordinary floats may differ by the rounding of a few operations. Tensor-level graphs are compared on seeded data.
  `samples` replaces proof and exhaustion: so many values of integers are tried, special ones included.
  """
  if before.dtype is not after.dtype:
    raise AssertionError(f"dtype {before.dtype} became {after.dtype}:{both(before, after)}")
  if _is_tensor(before) or _is_tensor(after):
    return _check_tensors(before, after, bool(changes))
  if samples:
    return _check_samples(before, after, bool(changes), samples)
  nodes = (*before.walk(), *after.walk())
  floats = any(_floating(u.dtype) for u in nodes)
  hard = any(_hard_for_bits(u) for u in nodes)
  theories: tuple[type[Integers], ...] = (BitVectors,) if floats else (Integers, BitVectors)
  for theory in theories if hard else theories[::-1]:
    if not changes and _proved(before, after, theory()):
      return None
  return _check_samples(before, after, bool(changes)) if floats else _check_all(before, after)


def _hard_for_bits(u: UOp) -> bool:
  """Division, and conversion from and to integers without bounds: at what else there is bit vectors are quick."""
  if u.op is Ops.CAST:
    return dtypes.index in (u.dtype, u.src[0].dtype)
  return u.op in _DIVISIONS and _wide(u.dtype)


def show(u: UOp) -> str:
  """A graph for messages: a formula where it is a scalar, text otherwise."""
  if u.dtype.kind == "void" or isinstance(u.dtype, PtrDType) or _is_tensor(u):
    return "\n" + print_uop(u)
  names = {x: UOp.variable(leaf_name(x), 0, 0, x.dtype) for x in u.walk() if x.op is Ops.LOAD and len(x.src) == 1}
  return u.substitute(names).render()


def both(before: UOp, after: UOp) -> str:
  """Two graphs for a message."""
  return f"\n  before: {show(before)}\n  after:  {show(after)}"


def _is_tensor(u: UOp) -> bool:
  return any(x.op in _TENSOR or (x.op is Ops.REDUCE and x.arg[1]) for x in u.walk())


# *** proofs ***


def _proved(before: UOp, after: UOp, arithmetic: Integers) -> bool:
  """False where z3 does not know. A counter-example is an error; one with floats in it is left to sampling, as unknown
  functions stand for their operations."""
  terms = Terms(arithmetic)
  old = terms.of(before)
  assumed = terms.z3.And(*terms.specified) if terms.specified else terms.z3.BoolVal(True)
  new = terms.of(after)
  equal = terms.z3.And(*[a == b for a, b in zip(lanes_of(old, 1), lanes_of(new, 1), strict=True)])
  answer = terms.prove(terms.z3.Implies(assumed, equal), show=(before, after))
  floats = any(u.dtype.kind == "float" for u in answer.counterexample)
  if answer.counterexample and answer.certain and not floats:
    was, is_now = answer.values
    raise AssertionError(f"where {answer} the value {was} became {is_now}:{both(before, after)}")
  return answer.proved


# *** trying values ***


def _trials(before: UOp, after: UOp, draws: Draws) -> Iterator[tuple[dict[UOp, Any], Any]]:
  """For each choice of values what is known of the nodes of `before`, and the value of `after`."""
  machine = Scalars(draws)
  for _ in draws.trials():
    try:
      known = machine.values(before)
    except Unspecified:
      continue
    try:
      yield known, machine.value(after)
    except Unspecified as lost:
      raise AssertionError(f"the value {known[before]} is no longer specified ({lost}):{both(before, after)}") from None


def _check_all(before: UOp, after: UOp) -> None:
  draws = Draws(EXHAUSTIVE, exhaustive=True)
  tried = _compare(before, after, draws, 0.0)
  if not draws.complete or not tried:
    raise AssertionError(
      "z3 could not decide whether the value is the same, and there are too many values to try them all: give an "
      f"example with narrower leaves (int8, or variables with small bounds):{both(before, after)}"
    )


def _check_samples(before: UOp, after: UOp, changes: bool, samples: int = LIMIT) -> None:
  if not _compare(before, after, Draws(samples, ordinary=changes), _tolerance(before) if changes else 0.0):
    raise AssertionError(f"the value is not specified for any of the values tried:{both(before, after)}")


def _compare(before: UOp, after: UOp, draws: Draws, tolerance: float) -> int:
  tried = 0
  for known, found in _trials(before, after, draws):
    tried += 1
    expected = known[before]
    scale = _largest(known) * tolerance if tolerance else 0.0
    if not _same(expected, found, before.dtype, scale):
      where = ", ".join(f"{_cell_name(leaf)} = {value}" for leaf, value in draws.chosen.items()) or "nothing varies"
      raise AssertionError(f"where {where} the value {expected} became {found}:{both(before, after)}")
  return tried


def _cell_name(leaf: Any) -> str:
  if isinstance(leaf, Node):
    return leaf_name(leaf)  # type: ignore[arg-type]  # every Node is a UOp
  pointer, offset = leaf
  return f"{pointer.op.name.lower()}{pointer.arg}[{offset}]"


def _largest(known: dict[UOp, Any]) -> float:
  """The magnitude of the largest value on the way, of which rounding errors are a fraction."""
  floats = (u for u in known if u.op is not Ops.LOAD and _floating(u.dtype))
  values = (abs(lane) for u in floats for lane in lanes_of(known[u], 1))
  return max((v for v in values if math.isfinite(v)), default=1.0)


def _tolerance(u: UOp) -> float:
  narrowest = min((FORMATS[x.dtype.scalar().name].mantissa for x in u.walk() if _floating(x.dtype)), default=23)
  return 2.0 ** -max(narrowest - 4, 1)


def _wide(dtype: DType) -> bool:
  return dtype.kind == "index" or dtype.bits > 8


def _floating(dtype: DType) -> bool:
  return dtype.kind == "float" and not isinstance(dtype, PtrDType)


def _same(expected: Any, found: Any, dtype: DType, scale: float) -> bool:
  if isinstance(expected, dict):  # the writes of an effect
    return expected.keys() == found.keys() and all(_same_number(v, found[k], None, scale) for k, v in expected.items())
  if isinstance(dtype, PtrDType):
    return bool(expected == found)
  lanes = zip(lanes_of(expected, dtype.count), lanes_of(found, dtype.count), strict=True)
  return all(_same_number(a, b, dtype.scalar(), scale) for a, b in lanes)


def _same_number(a: Any, b: Any, dtype: DType | None, scale: float) -> bool:
  if not isinstance(a, float) or not isinstance(b, float):
    return bool(a == b)
  if dtype is not None and dtype.kind == "float" and to_bits(dtype, a) == to_bits(dtype, b):
    return True
  if math.isnan(a) or math.isnan(b):
    return math.isnan(a) and math.isnan(b)
  if a == b:
    return math.copysign(1.0, a) == math.copysign(1.0, b) or scale > 0
  return bool(abs(a - b) <= scale)


# *** tensors ***


def _check_tensors(before: UOp, after: UOp, changes: bool) -> None:
  if before._shape is not None and not same_shape(before.shape, after.shape):
    raise AssertionError(f"shape {before.shape} became {after.shape}:{both(before, after)}")
  machine = Tensors(ordinary=changes)
  expected, found = machine.value(before), machine.value(after)
  if not isinstance(expected, dict):
    expected, found = dict(enumerate(expected)), dict(enumerate(found))
  if expected.keys() != found.keys():
    raise AssertionError(f"it writes to other places:{both(before, after)}")
  largest = max((abs(v) for values in machine.buffers.values() for v in values if math.isfinite(v)), default=1.0)
  # a reduction of n ordinary floats is off by at most n roundings
  terms = max((len(v) for v in machine.buffers.values()), default=1)
  scale = _tolerance(before) * max(float(largest), 1.0) * terms if changes else 0.0
  for place, was in expected.items():
    if not _same_number(was, found[place], None, scale):
      raise AssertionError(f"element {place}: {was} became {found[place]}:{both(before, after)}")
