"""Instructions of AMD's GPUs by which the lanes of a wave read each other's words, as LLVM IR for this machine.

After the ISA manuals of RDNA 3 and CDNA 3: data-parallel processing, DS_SWIZZLE_B32, DS_BPERMUTE_B32, V_PERMLANEX16_B32
and V_MBCNT. All lanes take part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpu_model.toolchain import Refused

NAMES = r"update\.dpp\.i32|ds\.swizzle|permlanex16|mbcnt\.\w\w|ds\.bpermute"
CALL = re.compile(rf"  (%\w+) = call i32 @llvm\.amdgcn\.({NAMES})\((.*)\)$")
# quad permutations, rotations of a row to the right, exclusive or in a row
QUAD, ROTATED, FLIPPED = range(0x100), range(0x121, 0x130), range(0x160, 0x170)
Lines = Iterator[str]


def exchange(number: int, line: str) -> Lines | None:
  """What stands for a line, which is number `number` of the kernel; None if it is something else. Raises Refused for an
  instruction with operands that the model does not know."""
  found = CALL.match(line)
  if found is None:
    return None
  operands = [text.split()[-1] for text in found[3].split(", ")]
  return _MODELS[found[2].split(".i32")[0]](f"%x{number}", found[1], operands, number)


def _take(name: str, result: str, word: str, lane: str, line: int) -> Lines:
  yield f"  {result} = call i32 @machine_take(i32 {line}, i32 {word}, i32 {lane})"


def _dpp(name: str, result: str, operands: list[str], line: int) -> Lines:
  _, word, control, *rest = operands
  how = int(control)
  if rest != ["15", "15", "true"]:
    raise Refused(f"the model knows no DPP with {', '.join(operands)}")
  yield f"  {name}.lane = call i32 @machine_lane()"
  if how in FLIPPED:
    yield f"  {name}.at = xor i32 {name}.lane, {how - FLIPPED.start}"
  elif how in ROTATED:
    yield from _within(name, 15, f"sub i32 {name}.lane, {how - ROTATED.start + 1}")
  elif how in QUAD:
    yield f"  {name}.place = and i32 {name}.lane, 3"
    yield f"  {name}.twice = shl i32 {name}.place, 1"
    yield from _within(name, 3, f"lshr i32 {how}, {name}.twice")
  else:
    raise Refused(f"the model knows no DPP control {how:#x}")
  yield from _take(name, result, word, f"{name}.at", line)


def _within(name: str, low: int, place: str) -> Lines:
  """The lane whose low bits are `place` and whose others are this one's."""
  yield f"  {name}.moved = {place}"
  yield f"  {name}.in = and i32 {name}.moved, {low}"
  yield f"  {name}.group = and i32 {name}.lane, {~low}"
  yield f"  {name}.at = or i32 {name}.group, {name}.in"


def _swizzle(name: str, result: str, operands: list[str], line: int) -> Lines:
  word, control = operands[0], int(operands[1])
  if control >> 15 or control & 0x3FF != 0x1F:
    raise Refused(f"the model knows no swizzle {control:#x}")
  yield f"  {name}.lane = call i32 @machine_lane()"
  yield f"  {name}.at = xor i32 {name}.lane, {control >> 10}"
  yield from _take(name, result, word, f"{name}.at", line)


def _other_row(name: str, result: str, operands: list[str], line: int) -> Lines:
  if [int(n) % (1 << 32) for n in operands[2:4]] != [0x76543210, 0xFEDCBA98]:
    raise Refused(f"the model knows no permutation of rows by {', '.join(operands[2:4])}")
  yield f"  {name}.lane = call i32 @machine_lane()"
  yield f"  {name}.at = xor i32 {name}.lane, 16"
  yield from _take(name, result, operands[1], f"{name}.at", line)


def _lanes_before(high: bool) -> Callable[[str, str, list[str], int], Lines]:
  def lines(name: str, result: str, operands: list[str], line: int) -> Lines:
    if operands[0] != "-1":
      raise Refused(f"the model counts all lanes, not those of {operands[0]}")
    yield f"  {name}.lane = call i32 @machine_lane()"
    yield f"  {name}.more = icmp sgt i32 {name}.lane, 32"
    if high:
      yield f"  {name}.above = sub i32 {name}.lane, 32"
      yield f"  {name}.count = select i1 {name}.more, i32 {name}.above, i32 0"
    else:
      yield f"  {name}.count = select i1 {name}.more, i32 32, i32 {name}.lane"
    yield f"  {result} = add i32 {name}.count, {operands[1]}"

  return lines


def _permute(name: str, result: str, operands: list[str], line: int) -> Lines:
  yield f"  {name}.word = lshr i32 {operands[0]}, 2"
  yield f"  {name}.at = and i32 {name}.word, 63"
  yield from _take(name, result, operands[1], f"{name}.at", line)


_MODELS: dict[str, Callable[[str, str, list[str], int], Lines]] = {
  "update.dpp": _dpp,
  "ds.swizzle": _swizzle,
  "permlanex16": _other_row,
  "mbcnt.lo": _lanes_before(False),
  "mbcnt.hi": _lanes_before(True),
  "ds.bpermute": _permute,
}
