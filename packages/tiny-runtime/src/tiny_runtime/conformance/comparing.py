"""Results against those of the reference, and what their differences look like."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiny_runtime.conformance.failure import Misbehaved
from tiny_runtime.conformance.target import Offsets, Target
from tiny_runtime.conformance.values import Difference, differences, small, unpack
from tiny_runtime.ref.compiler import parameters
from tiny_uop import DType, Ops, PtrDType, UOp, dtypes
from tiny_uop.graph import memory_of
from tiny_uop.truncate import FORMATS, Number, from_bits

SHOWN = 8
"""Differences that a message lists."""
UNWRITTEN = "nothing in this kernel writes this buffer: addresses and the order of buffers"
LONGEST_SHIFTED = 1024
"""Elements of a buffer of which it is asked whether all of them are in other places."""


def compare(
  target: Target, oracle: Target, kernel: UOp, contents: Sequence[bytes] | None = None,
  values: Mapping[str, int] | None = None, *, tolerance: float = 0, offset: Offsets = 0, look_at: str = "",
) -> list[bytes]:  # fmt: skip
  """Run a kernel on both sides, over buffers with `contents` or, where none are given, `usual_contents`. Raises
  Misbehaved for buffers that differ; returns what they hold."""
  contents = usual_contents(kernel) if contents is None else contents
  got = target.run(kernel, contents, values, offset)
  want = oracle.run(kernel, contents, values)
  pointers = {int(u.arg): u.dtype for u in kernel.toposort if u.op is Ops.PARAM}
  written = {_slot(u) for u in kernel.toposort if u.op is Ops.STORE}
  for slot, pointer in sorted(pointers.items()):
    assert isinstance(pointer, PtrDType)
    case = Case(target, kernel, contents, slot, pointer.base, offset, values)
    likely = look_at if slot in written else UNWRITTEN
    check(case, unpack(pointer.base, got[slot]), unpack(pointer.base, want[slot]), tolerance, look_at=likely)
  return got


def usual_contents(kernel: UOp) -> list[bytes]:
  """Zeros where a kernel only writes; small integers, others in each buffer, where it reads."""
  seeds = itertools.count()
  return [
    small(p.dtype, p.size, next(seeds)) if p.read else bytes(p.size * p.dtype.itemsize) for p in parameters(kernel)
  ]


def _slot(access: UOp) -> int:
  """Slot of the buffer that a LOAD or STORE goes to; -1 for local memory."""
  pointer = memory_of(access.src[0])
  return int(pointer.arg) if pointer.op is Ops.PARAM else -1


@dataclass(frozen=True)
class Case:
  """One buffer of one run, for messages."""

  target: Target
  kernel: UOp
  contents: Sequence[bytes]
  slot: int
  dtype: DType
  offset: Offsets = 0
  values: Mapping[str, int] | None = None
  operands: Sequence[Sequence[Number]] = ()
  """What each element was computed from, where kernels are elementwise."""


def check(
  case: Case, got: Sequence[Number], want: Sequence[Number], tolerance: float = 0, signed_zeros: bool = False,
  look_at: str = "",
) -> None:  # fmt: skip
  """Raise Misbehaved where the elements of a buffer are not those of the reference."""
  found = differences(case.dtype, got, want, tolerance, signed_zeros)
  if not found:
    return
  details = [_line(case, difference) for difference in found[:SHOWN]]
  if len(found) > SHOWN:
    details.append(f"… and {len(found) - SHOWN} more")
  if not case.operands:
    details += _inputs(case)
  if case.values:
    details.append(f"variables: {dict(case.values)}")
  if case.offset:
    details.append(f"byte offsets of the buffers: {case.offset}")
  before = unpack(case.dtype, case.contents[case.slot])
  allowed = f", by more than {tolerance} ulp," if tolerance else ""
  raise Misbehaved(
    f"{len(found)} of {len(want)} elements of PARAM {case.slot} ({case.dtype}) differ{allowed} from the reference's",
    details=details,
    look_at="; ".join(part for part in (pattern(case.dtype, found, got, before, want), look_at) if part),
    kernel=case.kernel,
    source=case.target.compile(case.kernel).source,
  )


def _inputs(case: Case) -> list[str]:
  """The first elements of every buffer that the kernel reads."""
  read = {_slot(u): u.src[0].dtype for u in case.kernel.toposort if u.op is Ops.LOAD}
  lines = []
  for slot, pointer in sorted((slot, pointer) for slot, pointer in read.items() if slot >= 0):
    assert isinstance(pointer, PtrDType)
    numbers = unpack(pointer.base, case.contents[slot][: SHOWN * pointer.base.itemsize])
    more = ", …" if pointer.size > len(numbers) else ""
    lines.append(f"input:    PARAM {slot} ({pointer.base}): {', '.join(map(repr, numbers))}{more}")
  return lines


def _line(case: Case, difference: Difference) -> str:
  if not case.operands:
    return str(difference)
  return f"{difference}, for {', '.join(repr(column[difference.place]) for column in case.operands)}"


def pattern(
  dtype: DType, found: Sequence[Difference], got: Sequence[Number], before: Sequence[Number], want: Sequence[Number]
) -> str:
  """What the differences have in common, and so a likely cause; empty if nothing."""
  places = [difference.place for difference in found]
  if len(got) > 1 and list(got) == list(before) and len(found) > len(got) // 2:
    return "nothing was written at all: did the launch happen, and does read wait for it?"
  if len(found) < len(got) and places == list(range(len(got) - len(places), len(got))):
    return f"only the last {len(places)} differ: bounds, and the rest that is left where vectors or workgroups end"
  if shift := _shift(got, want):
    return f"the results are right, but {abs(shift)} elements too {'late' if shift > 0 else 'early'}: byte offsets"
  return _float_pattern(dtype, found) if dtype.kind == "float" else ""


def _shift(got: Sequence[Number], want: Sequence[Number]) -> int:
  """By how many elements the results are too late (below 0: too early), if that is all; else 0."""
  if len(want) > LONGEST_SHIFTED:
    return 0
  for shift in range(1, len(want) // 2 + 1):
    late, early = (want[:-shift], got[shift:]), (want[shift:], got[:-shift])
    for sign, (a, b) in ((1, late), (-1, early)):
      if len(set(a)) > 1 and list(a) == list(b):
        return sign * shift
  return 0


def _float_pattern(dtype: DType, found: Sequence[Difference]) -> str:
  if all(d.got != d.got or d.want != d.want for d in found):
    return "they differ in NaN only"
  if all(d.got == 0 == d.want for d in found):
    return "they differ in the sign of zero only"
  smallest = from_bits(dtype, 1 << FORMATS[dtype.name].mantissa) if dtype is not dtypes.bool else 0
  if all(d.got == 0 and abs(d.want) < smallest for d in found):
    return "subnormal results are flushed to zero"
  if all(d.distance <= 1 for d in found):
    return "they are one unit in the last place off: rounding is to nearest, ties to even (no fast-math, no estimates)"
  return ""
