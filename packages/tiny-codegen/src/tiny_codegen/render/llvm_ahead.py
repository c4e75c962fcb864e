"""Panels that are on their way before they are packed: while one is multiplied, the memory of the next is fetched.

Packing reads pieces that are far apart, each as short as a panel is wide, which no processor fetches by itself in time;
and then multiplies for a long time, in which memory has nothing to do. So each step of the sum asks for a line or two
of what will be packed next, into the second cache level, which has room for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tiny_codegen.loops import stride
from tiny_codegen.render.base import CacheSizes
from tiny_codegen.render.llvm_function import Function
from tiny_codegen.render.llvm_prefetch import prefetch
from tiny_codegen.render.llvm_streaming import LINE
from tiny_codegen.render.llvm_text import value_type
from tiny_uop import AddrSpace, AxisType, Ops, ProgramInfo, PtrDType, UOp

LEAST_STEPS = 32
"""Iterations of a sum that are worth the few instructions which find out what to ask for."""
ROOM = 7 / 8
"""Of the second level, what there has to be room in for the panel, its source, the next one, and what else is read."""
MOST_LINES = 2
"""That a step asks for: more would be in the way of what it reads itself."""


@dataclass(frozen=True)
class Piece:
  """A column of lines of what the next panel reads: the element at `start`, an expression over the loops around that of
  the sum, and others each `step` elements after the one before, one in `every` (a power of two) iterations."""

  pointer: UOp
  start: UOp
  step: int
  every: int


@dataclass(frozen=True)
class _Filling:
  """A loop nest that packs a panel: near memory, what it reads, the loops around it, and its own."""

  memory: UOp
  load: UOp
  around: tuple[UOp, ...]
  own: tuple[UOp, ...]

  @property
  def nbytes(self) -> int:
    """Of near memory."""
    assert isinstance(self.memory.dtype, PtrDType)
    return self.memory.dtype.size * self.memory.dtype.base.itemsize


def panels_ahead(
  linear: Sequence[UOp], info: ProgramInfo, caches: CacheSizes
) -> dict[UOp, tuple[UOp, tuple[Piece, ...]]]:
  """By the loop of a sum: near memory that it reads, and what its iterations are to ask for."""
  sizes = {p.slot: p.size * p.dtype.itemsize for p in info.params}
  large = {p.slot for p in info.params if not p.written and sizes[p.slot] > caches.second}
  others = sum(sizes[p.slot] for p in info.params if not p.written and p.slot not in large)
  fillings = {f.memory: f for f in _fillings(linear, large) if others + 3 * f.nbytes <= caches.second * ROOM}
  found = {}
  for loop, around, memories in _sums(linear):
    for memory in memories:
      filling = fillings.get(memory)
      if filling is not None and around[: len(filling.around)] == filling.around:
        pieces = _pieces(filling, around[len(filling.around) :], loop)
        if pieces:
          found[loop] = memory, pieces
  return found


def ask(body: Function, piece: Piece, first: str, counter: UOp, near: str) -> None:
  """Ask for a line: in an iteration of the loop with this counter, of a column that begins at an address. Where it is
  not the time, for near memory, which is there and costs nothing."""
  kind, number = value_type(counter.dtype), body.operand(counter)
  row = number if piece.every == 1 else body.let(f"lshr {kind} {number}, {piece.every.bit_length() - 1}")
  wide = row if kind == "i64" else body.let(f"zext {kind} {row} to i64")
  assert isinstance(piece.pointer.dtype, PtrDType)
  step = body.let(f"mul i64 {wide}, {piece.step * piece.pointer.dtype.base.itemsize}")
  address = body.let(f"getelementptr i8, ptr {first}, i64 {step}")
  if piece.every > 1:
    part = body.let(f"and {kind} {number}, {piece.every - 1}")
    address = body.let(f"select i1 {body.let(f'icmp eq {kind} {part}, 0')}, ptr {address}, ptr {near}")
  prefetch(body, address, write=False, level=2)


def _fillings(linear: Sequence[UOp], large: set[int]) -> Iterator[_Filling]:
  """Of operands that are read as they are, a vector at a time."""
  loops: list[UOp] = []
  for u in linear:
    if u.op is Ops.RANGE:
      loops.append(u)
    elif u.op is Ops.END:
      del loops[len(loops) - len(u.src) + 1 :]
    elif u.op is Ops.STORE and (memory := _near(u.src[0])) is not None and u.src[1].op is Ops.LOAD:
      index = u.src[1].src[0]
      if index.src[0].op is Ops.PARAM and index.src[0].arg in large and len(index.src) == 2:
        written = u.src[0].src[1].toposort
        own = tuple([r for r in loops if r in written])
        around = tuple(loops[: len(loops) - len(own)])
        if around and around[-1].arg[1] is AxisType.LOOP and own and tuple(loops[len(around) :]) == own:
          yield _Filling(memory, u.src[1], around, own)


def _sums(linear: Sequence[UOp]) -> Iterator[tuple[UOp, tuple[UOp, ...], list[UOp]]]:
  """Innermost loops of sums, the loops around each, and the near memories that it reads."""
  loops: list[UOp] = []
  read: list[UOp] = []
  for u in linear:
    if u.op is Ops.RANGE:
      loops.append(u)
      read = []
    elif u.op is Ops.LOAD and (memory := _near(u.src[0])) is not None:
      read.append(memory)
    elif u.op is Ops.END:
      if loops and loops[-1].arg[1] is AxisType.REDUCE and len(u.src) == 2 and read:
        yield loops[-1], tuple(loops[:-1]), list(dict.fromkeys(read))
      del loops[len(loops) - len(u.src) + 1 :]
      read = []


def _near(index: UOp) -> UOp | None:
  """The near memory that is addressed."""
  pointer = index.src[0]
  while pointer.op is Ops.AFTER:
    pointer = pointer.src[0]
  dtype = pointer.dtype
  return pointer if pointer.op is Ops.ALLOC and isinstance(dtype, PtrDType) and dtype.space is AddrSpace.LOCAL else None


def _extent(loop: UOp) -> int:
  return int(loop.src[0].arg) if loop.src[0].op is Ops.CONST else 0


def _pieces(filling: _Filling, tiles: tuple[UOp, ...], loop: UOp) -> tuple[Piece, ...]:
  """What the steps of the sum ask for: another column of lines of the next panel in each tile; or a part of one, where
  there are more tiles than columns. None if the steps are too few."""
  steps, counts = _extent(loop), [_extent(r) for r in tiles]
  along = next((r for r in filling.own if _extent(r) == steps), None)
  if along is None or steps < LEAST_STEPS or not all(counts):
    return ()
  offset, dtype = filling.load.src[0].src[1], filling.load.dtype
  lines, others = -(-dtype.itemsize // LINE), [r for r in filling.own if r is not along]
  if not all(_extent(r) for r in others):
    return ()
  columns, many = lines * math.prod(_extent(r) for r in others), math.prod(counts)
  each = -(-columns // many)
  if each > MOST_LINES:
    return ()
  tile, step = _counted(tiles, loop), stride(offset, along)
  if step is None:
    return ()
  parts = 1 << max(many // columns, 1).bit_length() - 1
  while steps % parts:
    parts //= 2
  following = filling.around[-1]
  row = _times(_rest(tile, parts), steps // parts)
  found = []
  for number in range(each):
    column = _plus(_times(_whole(tile, parts), each), loop.const_like(number))
    place, rest = {along: row, following: _plus(following, following.const_like(1))}, _whole(column, lines)
    for r in reversed(others):
      place[r] = _rest(rest, _extent(r))
      rest = _whole(rest, _extent(r))
    start = _plus(offset.substitute(place), _times(_rest(column, lines), LINE // dtype.scalar().itemsize))
    found.append(Piece(filling.load.src[0].src[0], start, step, parts))
  return tuple(found)


def _counted(tiles: tuple[UOp, ...], loop: UOp) -> UOp:
  """The number of a tile."""
  number = loop.const_like(0)
  for r in tiles:
    number = _plus(_times(number, _extent(r)), r)
  return number


def _plus(a: UOp, b: UOp) -> UOp:
  return b if a.op is Ops.CONST and a.arg == 0 else a if b.op is Ops.CONST and b.arg == 0 else a + b


def _times(a: UOp, factor: int) -> UOp:
  return a if factor == 1 or (a.op is Ops.CONST and a.arg == 0) else a * factor


def _whole(a: UOp, by: int) -> UOp:
  return a if by == 1 else a.alu(Ops.TRUNCDIV, a.const_like(by))


def _rest(a: UOp, by: int) -> UOp:
  return a.const_like(0) if by == 1 else a.alu(Ops.TRUNCMOD, a.const_like(by))
