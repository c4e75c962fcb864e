"""Pass: loops ask for cache lines that they, or the instructions behind them, will use some iterations later.

A processor fetches by itself what is read in order. Four kinds of lines it does not:

- **Panels.** A sum reads one panel of an operand while the next one lies beyond the second cache level, in pieces that
  are far apart. Each step of the sum asks for a line or two of the next panel, into the second level.
- **Results.** A register tile writes dozens of lines at once, after a long sum in which memory had nothing to do. Each
  step of the sum asks for the line of another row; where steps are too few, the lines are asked for before.
- **Gaps.** A loop packs every second row of an image, or a few elements of each row of a matrix. Each iteration asks
  for what the iteration `AHEAD` later reads.
- **Tiles.** A register tile of a convolution reads rows of many channels where they are. Each step of its sum asks for
  what the same sum reads in the next tile.
- **Looked up.** A loop adds up rows of a table whose numbers are in memory (embedding bags). Each iteration asks for
  the row whose number is `ROWS_AHEAD` further on, or half of that, which it reads for that.

    for k:                                     for k:
      a = LOAD x[k * 4096 + tile * 16]    →      PREFETCH x[k * 4096 + (tile + 1) * 16] ("read", 2)
                                                 a = LOAD x[k * 4096 + tile * 16]

A PREFETCH may ask for an address outside of its buffer. Its arithmetic stands in front of the loops inside of
those that it depends on.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from tiny_codegen.cost_model import CACHE_LINE, LEAST_STEPS, ROOM
from tiny_codegen.kernel.expressions import split_constant, stride, terms
from tiny_codegen.kernel.loops import extent, kind, size_of
from tiny_codegen.kernel.memory import element_of, in_register, nbytes_of, space_of
from tiny_codegen.lower.tile_order import adds_to_register, steps_of_sum
from tiny_codegen.target import CacheSizes, Target
from tiny_uop import STREAMING, AddrSpace, AxisType, DType, GroupOp, Ops, PtrDType, UOp, simplify
from tiny_uop.graph import memory_of
from tiny_uop.records import dataclass

GAP = CACHE_LINE // 2
"""Bytes between two pieces of memory that are asked for as one."""
LEAST_RESULT_STEPS = 16
"""Steps of the sums in which a line of a result can arrive, and that are worth asking for it."""
MOST_BLOCKS = 16
"""Iterations of a loop that stores a tile in blocks."""
AHEAD = 16
"""Iterations after which a loop that packs reads what it asks for: some hundred cycles."""
ROWS_AHEAD = 16
"""Rows of a table after which a loop reads the one that it asks for; of rows of more than FEW_ROW_LINES half as many,
so that what is asked for stays in the first cache level until then."""
FEW_ROW_LINES = 10
MOST_ROW_LINES = 36
"""Lines of a row that is asked for: of longer ones a processor finds most by itself."""
LEAST_PACKED = 64
"""Iterations of a loop that packs: those at its end ask for what may not be read."""
MOST_PACKED_LINES = 12
"""Lines that an iteration of a loop that packs asks for."""
SELDOM = 16
"""Steps of a sum for a line: where there are more, packing takes hardly any time, and asking some of every step."""
MOST_ROWS = 8
"""Iterations of the loop that packs which one step of a sum takes: steps that are written out."""
MOST_PANEL_LINES = 2
"""Lines that a step of a sum asks for: more would be in the way of what it reads itself."""

LEAST_TILE_STEP = 3 * CACHE_LINE // 4
"""Bytes by which the next tile is further on, at least, for it to be asked for."""
MOST_SCALAR_LINES = 4
"""Lines of scalars that a step of a sum asks for."""
MOST_TILE_LINES = 12
"""Lines of vectors that a step of a sum asks for, for the next tile of a window: steps are few, and long."""
MOST_SPANS = 512
"""Vectors that a tile of a window reads, at most, for what it reads to be looked at."""

_CONTROL = frozenset({Ops.RANGE, Ops.END, Ops.SPECIAL, Ops.IF, Ops.ENDIF, Ops.BARRIER})
_MOVABLE = GroupOp.Elementwise | {Ops.CONST, Ops.VARIABLE, Ops.PARAM, Ops.INDEX, Ops.PREFETCH}


def prefetch(linear: UOp, target: Target) -> UOp:
  """The LINEAR with PREFETCHes, where the target has them."""
  if not target.has_prefetch:
    return linear
  program = Program(linear.src, target.caches)
  panels = _panels(program)
  before, results = _results(program)
  packing, found = gaps(program, [memory for memory, _ in panels.values()]), _looked_up(program)
  tiles = _next_tiles(program)
  asked: dict[UOp, list[UOp]] = {}
  for loop in program.loops:
    r = loop.counter
    lines = [*panels.get(r, (None, ()))[1], *results.get(r, ()), *packing.get(r, ()), *found.get(r, ())]
    lines += tiles.get(r, ())
    if lines:
      asked.setdefault(_place(linear.src, loop, target), []).extend(lines)
  for r, lines in before.items():
    asked.setdefault(r, []).extend(lines)
  numbers = {u for lines in found.values() for line in lines for u in line.toposort if u.op is Ops.LOAD}
  return linear.replace(src=tuple(_inserted(linear.src, asked, numbers)))


def _inserted(linear: Sequence[UOp], asked: Mapping[UOp, Sequence[UOp]], numbers: Collection[UOp]) -> Iterator[UOp]:
  """The instructions with each PREFETCH before the instruction it is asked for at. What its address is computed from,
  `numbers` in memory among it, comes in front of the loops inside of those that it depends on, and is not computed
  again later."""
  parts: list[list[UOp]] = [[]]
  front: dict[UOp, list[UOp]] = {}  # of each open loop
  known: set[UOp] = set()
  for u in linear:
    for line in asked.get(u, ()):
      new = [n for n in line.toposort if n not in known]
      if all(n.op in _MOVABLE or n in numbers for n in new):
        for n in new:
          (parts[-1] if n is line else _outside(n, front, parts[-1])).append(n)
        known.update(new)
    if u.op is Ops.RANGE:
      front[u] = parts[-1]
      parts.append([])
    elif u.op is Ops.END:
      for r in u.src[1:]:
        front.pop(r, None)
    if u not in known:
      parts[-1].append(u)
      known.add(u)
  return itertools.chain.from_iterable(parts)


def _outside(u: UOp, front: dict[UOp, list[UOp]], found: list[UOp]) -> list[UOp]:
  """The instructions in front of the outermost of the open loops that are inside of all that a value depends on;
  `found` where there is no such loop."""
  for loop in reversed(front):
    if loop in u.ranges:
      break
    found = front[loop]
  return found


def _place(linear: Sequence[UOp], loop: _Loop, target: Target) -> UOp:
  """The instruction of a loop that its PREFETCHes come before: the first one, so that memory has all of the iteration.

  But LLVM moves no load over a PREFETCH: behind it, the loads of all steps of a sum that are written out come in any
  order, those of the second step before the first. Where registers do not suffice for the accumulators, the vectors of
  two steps and a scalar that is spread, accumulators would be on the stack for it, which costs some percent of the
  time. There it is the first vector that the second step reads.
  """
  body = list(itertools.takewhile(lambda u: u.op not in (Ops.RANGE, Ops.END), linear[loop.begin : loop.end]))
  added = next((n for n, u in enumerate(body) if adds_to_register(u)), len(body))
  second = next((n for n, u in enumerate(body) if n > added and _is_vector(u) and not in_register(u)), None)
  if second is not None:
    vectors = [u for u in body[:second] if _is_vector(u)]
    needed = [-(-u.dtype.count // target.lanes(u.dtype)) * (1 if in_register(u) else 2) for u in vectors]
    if sum(needed) + 1 > target.vector_registers:
      return body[second]
  return linear[loop.begin]


def _is_vector(u: UOp) -> bool:
  return u.op is Ops.LOAD and u.dtype.count > 1


# *** the loops of a program ***


@dataclass(frozen=True)
class _Loop:
  """A loop: its RANGE, those around it, outermost first, and where its instructions begin and end."""

  counter: UOp
  around: tuple[UOp, ...]
  begin: int
  end: int
  innermost: bool


class Program:
  """The instructions of a LINEAR, its loops as they end, and how large its memory is, in bytes."""

  def __init__(self, linear: Sequence[UOp], caches: CacheSizes) -> None:
    self.linear, self.caches = linear, caches
    self.loops: list[_Loop] = []
    self.around: list[tuple[UOp, ...]] = []
    """The open loops at each instruction."""
    loops: tuple[UOp, ...] = ()
    begins: list[int] = []
    last = -1  # the last END
    for place, u in enumerate(linear):
      if u.op is Ops.END:
        begin = begins.pop()
        self.loops.append(_Loop(loops[-1], loops[:-1], begin, place, last < begin))
        loops, last = loops[:-1], place
      self.around.append(loops)
      if u.op is Ops.RANGE:
        loops = (*loops, u)
        begins.append(place + 1)
    sizes = {u: nbytes_of(u) for u in linear if isinstance(u.dtype, PtrDType)}
    stored = {memory_of(u.src[0]) for u in linear if u.op is Ops.STORE}
    self.packed = {u: size for u, size in sizes.items() if u.op is Ops.ALLOC and space_of(u) is AddrSpace.LOCAL}
    self.written = {u: size for u, size in sizes.items() if u.op is Ops.PARAM and u in stored}
    self.read = {u: size for u, size in sizes.items() if u.op is Ops.PARAM and u not in stored}


def packed_buffer(index: UOp) -> UOp | None:
  """The packed buffer that is addressed."""
  memory = memory_of(index)
  return memory if memory.op is Ops.ALLOC and space_of(memory) is AddrSpace.LOCAL else None


def _is_sum(loop: UOp) -> bool:
  return kind(loop) is AxisType.REDUCE


def _size(loop: UOp) -> int:
  """Iterations of a loop; 0 where they are not known."""
  return extent(loop) or 0


def _sizes(loops: Iterable[UOp]) -> int:
  return math.prod(map(_size, loops))


def _most(loops: Iterable[UOp]) -> int:
  """Iterations of a loop nest, at most: a window that leaves out padding has fewer."""
  return math.prod(size_of(r) for r in loops)


# *** pieces of memory ***


def _spans(accesses: Iterable[tuple[UOp, DType]]) -> dict[tuple[UOp, UOp | None], list[tuple[int, int]]]:
  """By buffer and what varies of an offset: the first byte, and the one behind, of each access. Given are INDEXes, and
  the types that are read or written there."""
  found: dict[tuple[UOp, UOp | None], list[tuple[int, int]]] = {}
  for index, dtype in accesses:
    offset, constant = split_constant(index.src[1])
    size = dtype.scalar().itemsize
    found.setdefault((index.src[0], offset), []).append((constant * size, (constant + dtype.count) * size))
  return found


def joined(spans: Iterable[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
  """Spans of bytes as pieces: those with no more than `gap` bytes between them are one."""
  pieces: list[tuple[int, int]] = []
  for first, behind in sorted(spans):
    if pieces and first <= pieces[-1][1] + gap:
      first, behind = pieces[-1][0], max(pieces.pop()[1], behind)
    pieces.append((first, behind))
  return pieces


def _lines(first: int, behind: int) -> tuple[int, ...]:
  """A byte in each cache line of a piece, wherever in a line it begins."""
  return (*range(first, behind - 1, CACHE_LINE), behind - 1)


def _element(pointer: UOp, offset: UOp, byte: int) -> UOp:
  """The INDEX of the element that has a byte, so far behind the element at an offset."""
  return pointer.index(_plus(offset, offset.const_like(byte // element_of(pointer).itemsize)))


# *** results ***


def _results(program: Program) -> tuple[dict[UOp, list[UOp]], dict[UOp, list[UOp]]]:
  """By loop: PREFETCHes that come before it, and those of each iteration, of lines that the stores behind the loop
  write. A processor waits for a few dozen lines at a time, so that each iteration asks for those of another row."""
  large = {p for p, size in program.written.items() if size > program.caches.second}
  before: dict[UOp, list[UOp]] = {}
  inside: dict[UOp, list[UOp]] = {}
  for loop in program.loops if large else ():
    body = program.linear[loop.begin : loop.end]
    stores = [s for s in _stores_behind(program.linear, loop.end) if s.src[0].src[0] in large]
    # an address can be computed before a loop from counters outside it alone
    inner = {u for u in (loop.counter, *body) if u.op is Ops.RANGE}
    stores = [s for s in stores if not any(u.op is Ops.LOAD or u in inner for u in s.src[0].src[1].toposort)]
    written = max([len(steps_of_sum(u)) for u in body if u.op is Ops.STORE and in_register(u)], default=1)
    steps = _most(u for u in (loop.counter, *body) if u.op is Ops.RANGE) * max(written, 1)
    if stores and steps >= LEAST_RESULT_STEPS and not any(map(_writes_result, body)):
      rows, r = list(_rows(stores)), loop.counter
      spread = all(count * 2 <= _size(r) for *_, count in rows)
      for pointer, offset, byte, step, count in rows:
        first = r.const_like(0) if offset is None else offset
        if not spread or count == 1:
          lines = [_element(pointer, first, byte + n * step) for n in range(count)]
          before.setdefault(r, []).extend(line.prefetch("write") for line in lines)
        else:
          row = r.alu(Ops.CMPLT, r.const_like(count - 1)).where(r, r.const_like(count - 1))
          elements = step // element_of(pointer).itemsize
          place = _element(pointer, first, byte).src[1] + row.cast(first.dtype) * elements
          inside.setdefault(r, []).append(pointer.index(place).prefetch("write"))
  return before, inside


def _stores_behind(linear: Sequence[UOp], end: int) -> Iterator[UOp]:
  """The ungated stores of adjacent elements to buffers between an END and what begins or ends next; where that is a
  loop that does nothing else, as of `store_tiles`, those of its iterations."""
  behind = _straight(linear, end + 1)
  yield from filter(_is_plain_store, behind)
  begin = end + 1 + len(behind)
  loop = linear[begin] if begin < len(linear) else None
  if loop is None or loop.op is not Ops.RANGE or not 0 < _size(loop) <= MOST_BLOCKS:
    return
  inside = _straight(linear, begin + 1)
  if loop not in linear[begin + 1 + len(inside)].src[1:]:
    return
  firsts: dict[UOp, UOp] = {}
  for store in filter(_is_plain_store, inside):
    index = store.src[0]
    offset, constant = split_constant(index.src[1])
    if offset is not None and (step := stride(offset, loop)):
      if offset not in firsts:
        firsts[offset] = simplify(offset.substitute({loop: loop.const_like(0)}))
      for n in range(_size(loop)):
        place = _plus(firsts[offset], offset.const_like(constant + n * step))
        yield store.replace(src=(index.replace(src=(index.src[0], place)), *store.src[1:]))


def _straight(linear: Sequence[UOp], begin: int) -> list[UOp]:
  """The instructions from one on up to where a loop or a branch begins or ends."""
  return list(itertools.takewhile(lambda u: u.op not in _CONTROL, itertools.islice(linear, begin, None)))


def _is_plain_store(u: UOp) -> bool:
  """Of adjacent elements, without a gate, to a line that has to be in a cache for it: what streams needs none."""
  return u.arg != STREAMING and _writes_result(u) and len(u.src[0].src) == 2 and u.src[0].src[1].dtype.count == 1


def _writes_result(u: UOp) -> bool:
  return u.op is Ops.STORE and u.src[0].src[0].op is Ops.PARAM


def _rows(stores: Sequence[UOp]) -> Iterator[tuple[UOp, UOp | None, int, int, int]]:
  """The lines of pieces of memory that are written: (buffer, offset, byte behind that of the first line, bytes between
  rows, rows); of pieces that are as long and evenly far apart together, of others one by one."""
  for (pointer, offset), spans in _spans((s.src[0], s.src[1].dtype) for s in stores).items():
    pieces = joined(spans, 0)
    steps = {b[0] - a[0] for a, b in itertools.pairwise(pieces)}
    even = len(steps) <= 1 and len({behind - first for first, behind in pieces}) == 1
    for first, behind in pieces[:1] if even else pieces:
      # of a short piece that lies on two lines the last one: no tile before this one has fetched that
      lines = _lines(first, behind)[-1 if behind - first < CACHE_LINE else 0 :]
      for byte in lines:
        yield (pointer, offset, byte, sum(steps), len(pieces)) if even else (pointer, offset, byte, 0, 1)


# *** gaps ***


def gaps(program: Program, panels: Collection[UOp]) -> dict[UOp, list[UOp]]:
  """By loop that packs: the PREFETCHes of each iteration, of lines with gaps between them. Loops that fill `panels`,
  which sums ask for, are left out. Sums that pack on their way are not: nobody else asks for the first of several
  panels, and the others are nearer."""
  large = {p for p, size in program.read.items() if size > program.caches.second}
  found = {}
  for loop in program.loops if large else ():
    body = program.linear[loop.begin : loop.end]
    filled = [packed_buffer(u.src[0]) for u in body if u.op is Ops.STORE and not in_register(u)]
    left_out = () if _is_sum(loop.counter) else panels
    if loop.innermost and _size(loop.counter) >= LEAST_PACKED and filled and not {*filled} & {None, *left_out}:
      reads = [u for u in body if u.op is Ops.LOAD and u.src[0].src[0] in large and u.src[0].src[1].dtype.count == 1]
      lines = list(_lines_with_gaps(loop.counter, reads))
      if 0 < len(lines) <= MOST_PACKED_LINES:
        found[loop.counter] = lines
  return found


def _lines_with_gaps(loop: UOp, reads: Sequence[UOp]) -> Iterator[UOp]:
  for (pointer, offset), spans in _spans((u.src[0], u.dtype) for u in reads).items():
    step = stride(offset, loop) if offset is not None else None
    if offset is None or step is None:
      continue
    pieces, step = joined(spans, GAP), step * element_of(pointer).itemsize
    if abs(step) >= CACHE_LINE and abs(step) > pieces[-1][1] - pieces[0][0]:
      for byte in itertools.chain(*[_lines(first, behind) for first, behind in pieces]):
        yield _element(pointer, offset, AHEAD * step + byte).prefetch()


# *** rows that are looked up ***


def _looked_up(program: Program) -> dict[UOp, list[UOp]]:
  """By loop of a sum: the PREFETCHes of each iteration, of vectors whose places depend on a number that it loads."""
  found: dict[UOp, list[UOp]] = {}
  large = {p for p, size in program.read.items() if size > program.caches.second}
  for loop, reads in _innermost_sums(program) if large else ():
    numbers = {
      u: _further_on(u, loop.counter, program, 0) for u in reads if u.dtype.count == 1 and u.dtype.kind != "float"
    }
    known = {u for u, later in numbers.items() if later is not None}
    rows = [u for u in reads if u.src[0].src[0] in large and u.dtype.count > 1 and u.src[0].src[1].dtype.count == 1]
    lines: list[tuple[UOp, UOp, int]] = []
    pieces = 1
    for (pointer, offset), spans in _spans((_without_gate(u.src[0]), u.dtype) for u in rows).items():
      if offset is not None and not known.isdisjoint(offset.toposort):
        bytes_of_lines = itertools.chain(*[_lines(first, behind) for first, behind in joined(spans, GAP)])
        lines += [(pointer, offset, byte) for byte in bytes_of_lines]
        # loops that take a row piece by piece
        pieces = max(pieces, _sizes(offset.ranges.difference(*[u.ranges for u in known])))
    if 0 < len(lines) * pieces <= MOST_ROW_LINES:
      rows_ahead = ROWS_AHEAD if len(lines) * pieces <= FEW_ROW_LINES else ROWS_AHEAD // 2
      found_on = {u: _further_on(u, loop.counter, program, rows_ahead) for u in known}
      later = {u: on for u, on in found_on.items() if on is not None}
      found[loop.counter] = [
        _element(pointer, offset.substitute(later), byte).prefetch() for pointer, offset, byte in lines
      ]
  return found


def _without_gate(index: UOp) -> UOp:
  """The INDEX of the place that is read where a gate holds, which may be chosen there, and element 0 elsewhere."""
  offset, constant = split_constant(index.src[1])
  if offset is not None and offset.op is Ops.WHERE:
    return index.replace(src=(index.src[0], _plus(offset.src[1], offset.const_like(constant))))
  return index.replace(src=index.src[:2])


def _further_on(load: UOp, loop: UOp, program: Program, rows: int) -> UOp | None:
  """The LOAD of the number `rows` further on, at most the last one of its buffer, which outlives the loop: the next
  sum goes on there. None for what may be written, or is gated, or not read in order."""
  index = load.src[0]
  if index.src[0] not in program.read or len(index.src) > 2 or stride(index.src[1], loop) != 1:
    return None
  place, last = (
    index.src[1] + rows,
    index.src[1].const_like(program.read[index.src[0]] // load.dtype.itemsize - 1),
  )
  return load.replace(src=(index.replace(src=(index.src[0], (place < last).where(place, last))), *load.src[1:]))


# *** tiles ***


def _next_tiles(program: Program) -> dict[UOp, list[UOp]]:
  """By innermost loop of a sum: the PREFETCHes of each iteration, of what the same sum reads in the next tile of the
  innermost loop around the sums that moves it."""
  large = {p for p, size in program.read.items() if size > program.caches.second}
  found: dict[UOp, list[UOp]] = {}
  asked: dict[tuple[UOp, frozenset[UOp]], set[int]] = {}
  for loop, reads in _innermost_sums(program) if large else ():
    own = _sums_at_the_end((*loop.around, loop.counter))
    outside = loop.around[: len(loop.around) + 1 - len(own)]
    groups: dict[tuple[UOp, frozenset[UOp], bool], list[_Read]] = {}
    for u in reads:
      if u.src[0].src[0] in large and u.src[0].src[1].dtype.count == 1 and (read := _Read.of(u, own)) is not None:
        groups.setdefault((u.src[0].src[0], read.rest, u.dtype.count == 1), []).append(read)
    for (pointer, rest, scalars), group in groups.items():
      tile = next((r for r in reversed(outside) if any(r in term.ranges for term in rest)), None)
      step = None if tile is None else stride(group[0].index.src[1], tile)
      itemsize = element_of(pointer).itemsize
      # a tile a part of a line further on reads mostly the lines that this one does
      if (
        step is None
        or step * itemsize < LEAST_TILE_STEP
        or len({u.dtype for u in (*own, *rest, group[0].index.src[1])}) != 1
      ):
        continue
      if scalars:
        places = _same_step(group, loop.counter, step, itemsize)
      else:
        places = _spread(group, own, step, itemsize, asked.setdefault((pointer, rest), set()))
      base = reduce(_plus, sorted(rest, key=lambda term: term.render()), loop.counter.const_like(0))
      found.setdefault(loop.counter, []).extend(pointer.index(_plus(base, place)).prefetch() for place in places)
  return found


def _same_step(group: Sequence[_Read], loop: UOp, step: int, itemsize: int) -> Iterator[UOp]:
  """Scalars of a tile's rows: each step of the sum asks for its own lines of the next tile, as they are far from those
  of other steps."""
  if abs(group[0].steps[loop]) * itemsize < CACHE_LINE:
    return
  spans = [(read.constant * itemsize, (read.constant + read.count) * itemsize) for read in group]
  lines = [byte for first, behind in joined(spans, GAP) for byte in _lines(first, behind)]
  moved = [_times(r, by) for r, by in group[0].steps.items() if by]
  if len(lines) <= MOST_SCALAR_LINES:
    for byte in lines:
      yield reduce(_plus, moved, loop.const_like(step + byte // itemsize))


def _spread(group: Sequence[_Read], own: tuple[UOp, ...], step: int, itemsize: int, asked: set[int]) -> Iterator[UOp]:
  """Vectors of a tile, which steps of the sum share: what all of them read in the next tile, and not in this one, a few
  lines in each step."""
  steps = _sizes(own)
  if not 0 < steps * len(group) <= MOST_SPANS:
    return
  spans = list(itertools.chain(*[read.spans(None, itemsize) for read in group]))
  pieces = joined(spans, 2 * CACHE_LINE)
  if sum(behind - first for first, behind in spans) < 2 * sum(behind - first for first, behind in joined(spans, 0)):
    return  # no window: what is read in order a processor fetches by itself
  end, step = pieces[-1][1], step * itemsize
  later = [(first + step, behind + step) for first, behind in pieces]
  later = [(max(later[0][0], end), later[0][1])] if len(later) == 1 else [piece for piece in later if piece[0] >= end]
  lines = [byte for first, behind in later for byte in range(first, behind + CACHE_LINE - 1, CACHE_LINE)]
  lines = [byte for byte in lines if byte // CACHE_LINE not in asked]
  each = -(-len(lines) // steps)
  columns = [_plus(_times(_counted(own, own[-1]), each), own[-1].const_like(n)) for n in range(each)]
  places = [_line(lines, column, itemsize) for column in columns] if 0 < each <= MOST_TILE_LINES else []
  if None not in places:
    asked.update(byte // CACHE_LINE for byte in lines)
    yield from (place for place in places if place is not None)


# *** panels ***


@dataclass(frozen=True)
class _Read:
  """What a loop nest that packs reads at a time: `count` elements at `constant`, the sum of `rest` and what the loops
  of the nest add, each by its `steps`."""

  index: UOp
  rest: frozenset[UOp]
  constant: int
  steps: dict[UOp, int]
  count: int

  @staticmethod
  def of(load: UOp, own: tuple[UOp, ...]) -> _Read | None:
    """None where a loop of the nest moves it by no known step."""
    offset, rest, constant = load.src[0].src[1], set[UOp](), 0
    for term in terms(offset):
      if term.op is Ops.CONST:
        constant += int(term.arg)
      elif term.ranges.isdisjoint(own):
        rest.add(term)
    steps = {r: step for r in own if (step := stride(offset, r)) is not None}
    known = len(steps) == len(own)
    return _Read(load.src[0], frozenset(rest), constant, steps, load.dtype.count) if known else None

  def spans(self, along: UOp | None, itemsize: int) -> Iterator[tuple[int, int]]:
    """(first byte, the one behind) of what one iteration of a loop reads, from where the sum of `rest` is; without a
    loop, of what all iterations read."""
    inside = [
      range(0, step * _size(r), step) if step else (0,) * _size(r) for r, step in self.steps.items() if r is not along
    ]
    for places in itertools.product(*inside):
      first = self.constant + sum(places)
      yield first * itemsize, (first + self.count) * itemsize


@dataclass(frozen=True)
class _Packing:
  """A loop nest that packs an operand as it is: the packed buffer, the loops around, those of the nest, and what it
  reads. Or one that reads an operand where it is, which then is the `memory`."""

  memory: UOp
  around: tuple[UOp, ...]
  own: tuple[UOp, ...]
  reads: tuple[_Read, ...]

  @property
  def pointer(self) -> UOp:
    """The buffer that is read."""
    return self.reads[0].index.src[0]

  @property
  def nbytes(self) -> int:
    """Bytes that are read."""
    return sum(read.count for read in self.reads) * element_of(self.pointer).itemsize * _sizes(self.own)

  def pieces(self, along: UOp) -> list[tuple[int, int]]:
    """The first byte, and the one behind, of each piece of memory that one iteration of a loop of the nest reads."""
    return joined(itertools.chain(*[read.spans(along, element_of(self.pointer).itemsize) for read in self.reads]), GAP)


def _panels(program: Program) -> dict[UOp, tuple[UOp, list[UOp]]]:
  """By the loop of a sum: a panel that it reads, and the PREFETCHes of each iteration, of the next panel."""
  packed, second = sum(program.packed.values()), program.caches.second
  large = {p for p, size in program.read.items() if size > second - packed}
  if not large:
    return {}
  found: dict[UOp, tuple[UOp, list[UOp]]] = {}
  packings = _packings(program, large)
  loads = [u for u, loops in zip(program.linear, program.around) if u.op is Ops.LOAD and loops and _is_sum(loops[-1])]
  direct = sum(program.read[p] for p in {u.src[0].src[0] for u in loads} & (program.read.keys() - large))
  for loop, reads in _innermost_sums(program):
    loops = (*loop.around, loop.counter)
    buffers = Counter([buffer for u in reads if (buffer := packed_buffer(u.src[0])) is not None])
    known = [(packings[b], program.packed[b], n) for b, n in buffers.items() if b in packings]
    known = [k for k in known if loop.counter not in k[0].own]
    for packing, nbytes, count in (*known, *((p, p.nbytes, 1) for p in _read_as_it_is(reads, loops, large))):
      # what a sum has packed on its way is not needed any longer when the next is asked for: see `staging/pack.py`
      copies = 1 if packing.memory in program.packed and any(map(_is_sum, packing.own)) else 2
      room = packed + copies * nbytes + direct <= second * ROOM
      if room and loop.around[: len(packing.around)] == packing.around:
        at, lines = _next_panel(packing, loops[len(packing.around) :], count)
        if lines and at not in found:
          found[at] = packing.memory, lines
  return found


def _packings(program: Program, large: Collection[UOp]) -> dict[UOp, _Packing]:
  """Loop nests that pack what they read as it is, by packed buffer."""
  found: dict[UOp, _Packing] = {}
  for u, loops in zip(program.linear, program.around):
    if u.op is not Ops.STORE or (memory := packed_buffer(u.src[0])) is None:
      continue
    own = tuple([r for r in loops if r in u.src[0].src[1].toposort])
    around = tuple(loops[: len(loops) - len(own)])
    if (*around, *own) != loops or not around or kind(around[-1]) is not AxisType.LOOP:
      continue
    for load in _moved(u.src[1]):
      read = _Read.of(load, own) if load.src[0].src[0] in large and load.src[0].src[1].dtype.count == 1 else None
      if read is None:
        continue
      first = found.get(memory)
      if first is None and own and _sizes(own):
        found[memory] = _Packing(memory, around, own, (read,))
      elif first is not None and own[:1] == first.own[:1] and read.rest == first.reads[0].rest:
        found[memory] = replace(first, reads=(*first.reads, read))
  return found


def _moved(value: UOp) -> list[UOp]:
  """The LOADs that a value consists of, in any order; none if it is computed from them."""
  if value.op is Ops.LOAD:
    return [value]
  if value.op not in (Ops.VECTORIZE, Ops.EXTRACT):
    return []
  return list(dict.fromkeys(itertools.chain(*[_moved(s) for s in value.src])))


def _innermost_sums(program: Program) -> Iterator[tuple[_Loop, list[UOp]]]:
  """Innermost loops of sums, and what each loads."""
  for loop in program.loops:
    reads = [u for u in program.linear[loop.begin : loop.end] if u.op is Ops.LOAD]
    if loop.innermost and _is_sum(loop.counter) and reads:
      yield loop, reads


def _read_as_it_is(loads: Sequence[UOp], loops: tuple[UOp, ...], large: Collection[UOp]) -> Iterator[_Packing]:
  """What vectors in the innermost of these loops, which are around a sum, read again in each tile of a loop outside of
  the sum."""
  own = _sums_at_the_end(loops)
  outside = loops[: len(loops) - len(own)]
  found: dict[tuple[UOp, frozenset[UOp]], list[_Read]] = {}
  for u in loads:
    index = u.src[0]
    if index.src[0] in large and len(index.src) == 2 and u.dtype.count > 1 and index.src[1].dtype.count == 1:
      if (read := _Read.of(u, own)) is not None:
        found.setdefault((index.src[0], read.rest), []).append(read)
  for (pointer, rest), reads in found.items():
    moved = [n for n, r in enumerate(outside) if any(r in term.ranges for term in rest)]
    if moved and moved[-1] < len(outside) - 1 and _sizes(own):
      yield _Packing(pointer, outside[: moved[-1] + 1], own, tuple(reads))


def _sums_at_the_end(loops: tuple[UOp, ...]) -> tuple[UOp, ...]:
  return tuple(itertools.takewhile(_is_sum, reversed(loops)))[::-1]


def _next_panel(packing: _Packing, inside: tuple[UOp, ...], count: int) -> tuple[UOp, list[UOp]]:
  """A loop of a sum, and the PREFETCHes of its iterations: in each tile for another column of lines of the next panel;
  or for a part of one, where there are more tiles than columns. Nothing if the steps are too few. `inside`: the loops
  from the packing to the sum; `count`: reads of the packed buffer in an iteration of the innermost."""
  sums = _sums_at_the_end(inside)
  tiles, walk = inside[: len(inside) - len(sums)], _walk(packing, sums, count)
  same_integers = (
    len({u.dtype for u in (*inside, *packing.around, *packing.reads[0].rest, packing.reads[0].index.src[1])}) == 1
  )
  if walk is None or not _sizes(tiles) or not same_integers:
    return sums[-1], []
  along, depth, rows = walk
  if rows * len(packing.pieces(along)) * _most(sums) < LEAST_STEPS:
    return sums[-1], []
  loop, step, itemsize = sums[depth], rows * packing.reads[0].steps[along], element_of(packing.pointer).itemsize
  lines, many = _panel_lines(packing, along, rows), _sizes(tiles)
  each = -(-len(lines) // many)
  if not lines or each > MOST_PANEL_LINES * rows * _most(sums[depth + 1 :]) or many > SELDOM * len(lines):
    return loop, []
  parts = 1 << max(many // len(lines), 1).bit_length() - 1
  while _size(loop) % parts:
    parts //= 2
  tile, rest = _counted(tiles, loop), sorted(packing.reads[0].rest, key=lambda term: term.render())
  base = reduce(_plus, rest, loop.const_like(0)).substitute(_following(packing.around))
  row = _plus(_times(_counted(sums[:depth], loop), _size(loop)), _times(_rest(tile, parts), _size(loop) // parts))
  base = _plus(base, _times(row, step))
  found = []
  for number in range(each):
    column = _plus(_times(_whole(tile, parts), each), loop.const_like(number))
    place = _line(lines, column, itemsize)
    if place is None:
      return loop, []
    found.append(_in_parts(packing, _plus(base, place), loop, step, parts))
  return loop, found


def _in_parts(packing: _Packing, start: UOp, loop: UOp, step: int, parts: int) -> UOp:
  """The PREFETCH of the line that a column has in an iteration: it begins at `start`, and has a line each `step`
  elements. Only one of `parts` iterations has one, the others ask for the first of all again, which costs nothing. (If
  they asked for a line of the packed buffer, LLVM would keep accumulators in memory.)"""
  if parts == 1:
    return packing.pointer.index(start + loop * step).prefetch("read", 2)
  row = loop.alu(Ops.SHR, loop.const_like(parts.bit_length() - 1))
  its_turn = loop.alu(Ops.AND, loop.const_like(parts - 1)).alu(Ops.CMPEQ, loop.const_like(0))
  return packing.pointer.index(start + row * step, its_turn).prefetch("read", 2, packing.pointer.index(start))


def _walk(packing: _Packing, sums: Sequence[UOp], count: int) -> tuple[UOp, int, int] | None:
  """How the loops of a sum walk along one that packs: that loop, how many sums are around the one whose iterations take
  some of its iterations each, and how many. None where no loop that packs is as long as the sum, or as some of its
  loops; `count` reads of the packed buffer are in one iteration of the innermost."""
  for along in packing.own:
    for depth in range(len(sums)):
      steps = _sizes(sums[: depth + 1])
      if not steps:
        break
      rows, rest = divmod(_size(along), steps)
      if not rest and 1 <= rows <= MOST_ROWS and count % rows == 0:
        return along, depth, rows
  return None


def _following(around: tuple[UOp, ...]) -> dict[UOp, UOp]:
  """The counters of the loops around a packing when it is done next."""
  last = around[-1]
  after = last + last.const_like(1)
  # iterations that threads share are taken in turns: the next one is another thread's
  if len(around) < 2 or kind(around[-2]) is not AxisType.LOOP or not _size(last):
    return {last: after}
  return {last: _rest(after, _size(last)), around[-2]: _plus(around[-2], _whole(after, _size(last)))}


def _panel_lines(packing: _Packing, along: UOp, rows: int) -> list[int]:
  """A byte of each cache line that one iteration of the sum walks over, from where the packing begins."""
  itemsize, pieces, read = element_of(packing.pointer).itemsize, packing.pieces(along), packing.reads[0]
  # a piece that may begin anywhere in a line can end in one more: by how much do the loops move it?
  moves = [read.steps[along], *[stride(term, r) or 1 for term in read.rest for r in term.ranges or (term,)]]
  whole = all(byte % CACHE_LINE == 0 for byte in (*[first for first, _ in pieces], *[itemsize * n for n in moves]))
  more = 0 if whole else CACHE_LINE - 1
  # lines are named by their last element: if buffers do not begin with a line, the first one was the last one before
  last = CACHE_LINE - itemsize if whole else 0
  lines = [byte + last for first, behind in pieces for byte in range(first, behind + more, CACHE_LINE)]
  row = itemsize * read.steps[along]
  return [line + row * n for n in range(rows if row >= CACHE_LINE else 1) for line in lines]


def _line(lines: list[int], column: UOp, itemsize: int) -> UOp | None:
  """The element in a line, by its number: an expression for lines that are evenly far apart, in groups that are, too.
  None for others."""
  steps = [b - a for a, b in itertools.pairwise(lines)]
  group = next((n + 1 for n, step in enumerate(steps) if step != steps[0]), len(lines))
  far = lines[group] - lines[0] if group < len(lines) else 0
  near = steps[0] if group > 1 else 0
  if any(line != lines[0] + n // group * far + n % group * near for n, line in enumerate(lines)):
    return None
  if any(m % itemsize for m in (lines[0], far, near)):
    return None
  inside = _times(_rest(column, group), near // itemsize) if near else column.const_like(0)
  outside = _times(_whole(column, group), far // itemsize) if far else column.const_like(0)
  return _plus(_plus(column.const_like(lines[0] // itemsize), outside), inside)


def _counted(loops: Iterable[UOp], like: UOp) -> UOp:
  """The number of an iteration of a loop nest."""
  number = like.const_like(0)
  for r in loops:
    number = _plus(_times(number, _size(r)), r)
  return number


# *** arithmetic without needless instructions: algebra has been done ***


def _plus(a: UOp, b: UOp) -> UOp:
  return b if a.op is Ops.CONST and a.arg == 0 else a if b.op is Ops.CONST and b.arg == 0 else a + b


def _times(a: UOp, factor: int) -> UOp:
  return a if factor == 1 or (a.op is Ops.CONST and a.arg == 0) else a * factor


def _whole(a: UOp, by: int) -> UOp:
  return a if by == 1 else a.alu(Ops.TRUNCDIV, a.const_like(by))


def _rest(a: UOp, by: int) -> UOp:
  return a.const_like(0) if by == 1 else a.alu(Ops.TRUNCMOD, a.const_like(by))
