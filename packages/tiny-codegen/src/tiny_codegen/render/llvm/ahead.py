"""Panels that are on their way before they are needed: while one is multiplied, the memory of the next is fetched.

Packing reads pieces that are far apart, each as short as a panel is wide, which no processor fetches by itself in time;
and then multiplies for a long time, in which memory has nothing to do. So each step of the sum asks for a line or two
of what will be packed next, into the second cache level, which has room for it. A panel that is not packed, but read
where it is by one tile after the other, comes the same way.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tiny_codegen.cost_model import LEAST_STEPS, ROOM
from tiny_codegen.kernel.loops import memory_of, stride, terms
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.prefetch import GAP, joined, prefetch
from tiny_codegen.render.llvm.streaming import LINE
from tiny_codegen.render.llvm.text import value_type
from tiny_codegen.target import CacheSizes
from tiny_uop import AddrSpace, AxisType, DType, Ops, ProgramInfo, PtrDType, UOp
from tiny_uop.records import dataclass

SELDOM = 16
"""Steps for a line: where there are more, packing takes hardly any time, and asking would take some of every step."""
MOST_ROWS = 8
"""Iterations of the loop that packs which one of a sum takes: steps that are written out."""
MOST_LINES = 2
"""That a step of a sum asks for: more would be in the way of what it reads itself."""


@dataclass(frozen=True)
class Piece:
  """A column of lines of what is packed next: the element at `start`, an expression over the loops around that of the
  sum, and others each `step` elements after the one before, one in `every` (a power of two) iterations."""

  pointer: UOp
  start: UOp
  step: int
  every: int


@dataclass(frozen=True)
class _Load:
  """What a loop nest that packs reads at a time: elements at what its own loops add to the sum of `rest`."""

  index: UOp
  rest: frozenset[UOp]
  constant: int
  steps: tuple[tuple[UOp, int], ...]
  count: int

  @staticmethod
  def of(load: UOp, own: tuple[UOp, ...]) -> _Load | None:
    """None where an own loop moves it by no known step."""
    index, rest, constant = load.src[0], set[UOp](), 0
    for term in terms(index.src[1]):
      if term.op is Ops.CONST:
        constant += int(term.arg)
      elif term.ranges.isdisjoint(own):
        rest.add(term)
    steps = [(r, stride(index.src[1], r)) for r in own]
    known = tuple([(r, step) for r, step in steps if step is not None])
    return _Load(index, frozenset(rest), constant, known, load.dtype.count) if len(known) == len(own) else None

  def spans(self, along: UOp, itemsize: int) -> Iterator[tuple[int, int]]:
    """(first byte, the one behind) of what one iteration of a loop reads, from where the sum of `rest` is."""
    inside = [(step, _extent(r)) for r, step in self.steps if r is not along]
    for counters in itertools.product(*[range(size) for _, size in inside]):
      first = self.constant + sum(step * n for (step, _), n in zip(inside, counters))
      yield first * itemsize, (first + self.count) * itemsize


@dataclass(frozen=True)
class _Filling:
  """A loop nest that packs an operand as it is: near memory, the loops around it, its own, and what it reads. Or one
  that reads an operand where it is, which then is the `memory`."""

  memory: UOp
  around: tuple[UOp, ...]
  own: tuple[UOp, ...]
  loads: tuple[_Load, ...]

  @property
  def itemsize(self) -> int:
    """Of what is read."""
    return _base(self.loads[0].index.src[0]).itemsize

  @property
  def nbytes(self) -> int:
    """That are read."""
    return sum(load.count for load in self.loads) * self.itemsize * math.prod(map(_extent, self.own))


def panels_ahead(
  linear: Sequence[UOp], info: ProgramInfo, caches: CacheSizes
) -> dict[UOp, tuple[UOp, tuple[Piece, ...]]]:
  """By the loop of a sum: memory that it reads, and what its iterations are to ask for."""
  sizes = {p.slot: p.size * p.dtype.itemsize for p in info.params if not p.written}
  near = {u: u.dtype.size * u.dtype.base.itemsize for u in linear if _is_near(u) and isinstance(u.dtype, PtrDType)}
  kept = caches.second - sum(near.values())
  large = {slot for slot, size in sizes.items() if size > kept}
  if not large:
    return {}
  found: dict[UOp, tuple[UOp, tuple[Piece, ...]]] = {}
  fillings, direct = _fillings(linear, large), sum(sizes[slot] for slot in _summed(linear) & (set(sizes) - large))
  for loop, around, loads in _sums(linear):
    memories = Counter([memory for u in loads if (memory := near_of(u.src[0])) is not None])
    packed = [
      (fillings[memory], near[memory], reads)
      for memory, reads in memories.items()
      if memory in fillings and loop not in fillings[memory].own
    ]
    as_it_is = [(read, read.nbytes, 1) for read in _read_as_it_is(loads, (*around, loop), large)]
    for filling, nbytes, reads in (*packed, *as_it_is):
      if around[: len(filling.around)] == filling.around:
        # what a sum has packed on its way is not needed any longer when the next is asked for: see `first_tile`
        copies = 1 if filling.memory in near and _has_sum(filling) else 2
        if sum(near.values()) + copies * nbytes + direct <= caches.second * ROOM:
          at, pieces = _pieces(filling, (*around[len(filling.around) :], loop), reads)
          if pieces and at not in found:
            found[at] = filling.memory, pieces
  return found


def ask(body: Function, piece: Piece, first: str, counter: UOp, near: str) -> None:
  """Ask for a line: in an iteration of the loop with this counter, of a column that begins at an address. Where it is
  not the time, for one of `near`, which is there, or soon is, and costs nothing."""
  kind, number = value_type(counter.dtype), body.operand(counter)
  row = number if piece.every == 1 else body.let(f"lshr {kind} {number}, {piece.every.bit_length() - 1}")
  wide = row if kind == "i64" else body.let(f"zext {kind} {row} to i64")
  step = body.let(f"mul i64 {wide}, {piece.step * _base(piece.pointer).itemsize}")
  address = body.let(f"getelementptr i8, ptr {first}, i64 {step}")
  if piece.every > 1:
    part = body.let(f"and {kind} {number}, {piece.every - 1}")
    address = body.let(f"select i1 {body.let(f'icmp eq {kind} {part}, 0')}, ptr {address}, ptr {near}")
  prefetch(body, address, write=False, level=2)


def _fillings(linear: Sequence[UOp], large: set[int]) -> dict[UOp, _Filling]:
  """Loop nests that pack what they read as it is, by near memory."""
  loops: list[UOp] = []
  found: dict[UOp, _Filling] = {}
  for u in linear:
    if u.op is Ops.RANGE:
      loops.append(u)
    elif u.op is Ops.END:
      del loops[len(loops) - len(u.src) + 1 :]
    elif u.op is Ops.STORE and (memory := near_of(u.src[0])) is not None:
      for read in _moved(u.src[1]):
        index = read.src[0]
        if index.src[0].op is Ops.PARAM and index.src[0].arg in large and index.src[1].dtype.count == 1:
          own = tuple([r for r in loops if r in u.src[0].src[1].toposort])
          around = tuple(loops[: len(loops) - len(own)])
          load = _Load.of(read, own)
          first = found.get(memory)
          if load is None or not around or around[-1].arg[1] is not AxisType.LOOP or (*around, *own) != tuple(loops):
            continue
          if first is None and own and all(map(_extent, own)):
            found[memory] = _Filling(memory, around, own, (load,))
          elif first is not None and own[:1] == first.own[:1] and load.rest == first.loads[0].rest:
            found[memory] = replace(first, loads=(*first.loads, load))
  return found


def _has_sum(filling: _Filling) -> bool:
  return any(r.arg[1] is AxisType.REDUCE for r in filling.own)


def _moved(value: UOp) -> list[UOp]:
  """The LOADs that a value consists of, in any order; none if it is computed from them."""
  if value.op is Ops.LOAD:
    return [value]
  if value.op not in (Ops.VECTORIZE, Ops.EXTRACT):
    return []
  return list(dict.fromkeys(itertools.chain(*[_moved(s) for s in value.src])))


def _read_as_it_is(loads: Sequence[UOp], loops: tuple[UOp, ...], large: set[int]) -> Iterator[_Filling]:
  """What vectors in the innermost of these loops, which are around a sum, read again in each tile of a loop outside the
  sum."""
  own = tuple(list(itertools.takewhile(lambda r: r.arg[1] is AxisType.REDUCE, reversed(loops)))[::-1])
  outside = loops[: len(loops) - len(own)]
  found: dict[tuple[UOp, frozenset[UOp]], list[_Load]] = {}
  for u in loads:
    index = u.src[0]
    if index.src[0].op is Ops.PARAM and index.src[0].arg in large and len(index.src) == 2 and u.dtype.count > 1:
      load = _Load.of(u, own) if index.src[1].dtype.count == 1 else None
      if load is not None:
        found.setdefault((index.src[0], load.rest), []).append(load)
  for (pointer, rest), same in found.items():
    moved = [n for n, r in enumerate(outside) if any(r in term.ranges for term in rest)]
    if moved and moved[-1] < len(outside) - 1 and all(map(_extent, own)):
      yield _Filling(pointer, outside[: moved[-1] + 1], own, tuple(same))


def _sums(linear: Sequence[UOp]) -> Iterator[tuple[UOp, tuple[UOp, ...], list[UOp]]]:
  """Innermost loops of sums, the loops around each, and what it loads."""
  loops: list[UOp] = []
  read: list[UOp] = []
  for u in linear:
    if u.op is Ops.RANGE:
      loops.append(u)
      read = []
    elif u.op is Ops.LOAD:
      read.append(u)
    elif u.op is Ops.END:
      if loops and loops[-1].arg[1] is AxisType.REDUCE and len(u.src) == 2 and read:
        yield loops[-1], tuple(loops[:-1]), read
      del loops[len(loops) - len(u.src) + 1 :]
      read = []


def _summed(linear: Sequence[UOp]) -> set[int]:
  """The operands that loops of sums read from where they are."""
  loops: list[UOp] = []
  found = set()
  for u in linear:
    if u.op is Ops.RANGE:
      loops.append(u)
    elif u.op is Ops.END:
      del loops[len(loops) - len(u.src) + 1 :]
    elif u.op is Ops.LOAD and u.src[0].src[0].op is Ops.PARAM and loops and loops[-1].arg[1] is AxisType.REDUCE:
      found.add(u.src[0].src[0].arg)
  return found


def near_of(index: UOp) -> UOp | None:
  """The near memory that is addressed."""
  memory = memory_of(index)
  return memory if _is_near(memory) else None


def _is_near(u: UOp) -> bool:
  return u.op is Ops.ALLOC and isinstance(u.dtype, PtrDType) and u.dtype.space is AddrSpace.LOCAL


def _base(pointer: UOp) -> DType:
  assert isinstance(pointer.dtype, PtrDType)
  return pointer.dtype.base


def _extent(loop: UOp) -> int:
  return int(loop.src[0].arg) if loop.src[0].op is Ops.CONST else 0


def _most(loop: UOp) -> int:
  """Iterations of a loop; those of a window that is inside of its image, where it leaves out what is not."""
  return int(loop.src[0].vmax)


def _pieces(filling: _Filling, inside: tuple[UOp, ...], reads: int) -> tuple[UOp, tuple[Piece, ...]]:
  """A loop of a sum, and what its iterations ask for: another column of lines of what is packed next in each tile; or
  of a part of one, where there are more tiles than columns. Nothing if the steps are too few. `inside`: the loops from
  the packing to the sum; `reads`: of near memory in an iteration of the innermost."""
  sums = list(itertools.takewhile(lambda r: r.arg[1] is AxisType.REDUCE, reversed(inside)))[::-1]
  tiles, walk = inside[: len(inside) - len(sums)], _walk(filling, sums, reads)
  if (
    walk is None
    or walk.rows * len(_rows(filling, walk.along)) * math.prod(map(_most, sums)) < LEAST_STEPS
    or not all(map(_extent, tiles))
    or not _same_integers(filling, inside)
  ):
    return sums[-1], ()
  outer, loop = sums[: walk.depth], sums[walk.depth]
  work = walk.rows * math.prod(map(_most, sums[walk.depth + 1 :]))
  lines, many = _lines(filling, walk), math.prod(map(_extent, tiles))
  each = -(-len(lines) // many)
  if not lines or each > MOST_LINES * work or many > SELDOM * len(lines):
    return loop, ()
  parts = 1 << max(many // len(lines), 1).bit_length() - 1
  while _extent(loop) % parts:
    parts //= 2
  tile, itemsize = _counted(tiles, loop), filling.itemsize
  base = loop.const_like(0)
  for term in sorted(filling.loads[0].rest, key=lambda term: term.render()):
    base = _plus(base, term)
  base = base.substitute(_following(filling.around))
  row = _plus(_times(_counted(tuple(outer), loop), _extent(loop)), _times(_rest(tile, parts), _extent(loop) // parts))
  base = _plus(base, _times(row, walk.step))
  found = []
  for number in range(each):
    column = _plus(_times(_whole(tile, parts), each), loop.const_like(number))
    place = _linear(lines, column, itemsize)
    if place is None:
      return loop, ()
    found.append(Piece(filling.loads[0].index.src[0], _plus(base, place), walk.step, parts))
  return loop, tuple(found)


@dataclass(frozen=True)
class _Walk:
  """How the loops of a sum walk along one that packs: the loop, how many sums are around the one whose iterations take
  `rows` of its iterations each, and how many elements that is."""

  along: UOp
  depth: int
  rows: int
  step: int


def _walk(filling: _Filling, sums: Sequence[UOp], reads: int) -> _Walk | None:
  """None where no loop that packs is as long as the sum, or as some of its loops; `reads` of near memory are in one
  iteration of the innermost."""
  for along in filling.own:
    for depth in range(len(sums)):
      steps = math.prod(map(_extent, sums[: depth + 1]))
      if not steps:
        break
      rows, rest = divmod(_extent(along), steps)
      if not rest and 1 <= rows <= MOST_ROWS and reads % rows == 0:
        return _Walk(along, depth, rows, rows * dict(filling.loads[0].steps)[along])
  return None


def _following(around: tuple[UOp, ...]) -> dict[UOp, UOp]:
  """The counters of the loops around a packing when it is done next."""
  last = around[-1]
  after = _plus(last, last.const_like(1))
  # iterations that threads share are taken in turns: the next one is another thread's
  if len(around) < 2 or around[-2].arg[1] is not AxisType.LOOP or not _extent(last):
    return {last: after}
  return {last: _rest(after, _extent(last)), around[-2]: _plus(around[-2], _whole(after, _extent(last)))}


def _same_integers(filling: _Filling, loops: tuple[UOp, ...]) -> bool:
  """Whether counters and offsets have one type, so that they can be added up."""
  return len({u.dtype for u in (*loops, *filling.around, *filling.loads[0].rest, filling.loads[0].index.src[1])}) == 1


def _lines(filling: _Filling, walk: _Walk) -> list[int]:
  """A byte of each cache line that one iteration of the sum walks over, from where the filling begins."""
  itemsize, pieces = filling.itemsize, _rows(filling, walk.along)
  # a piece that may begin anywhere in a line can end in one more
  starts = [first for first, _ in pieces] + [itemsize * step for step in _steps(filling, walk.along)]
  whole = all(start % LINE == 0 for start in starts)
  more = 0 if whole else LINE - 1
  # lines are named by their last element: if buffers do not begin with a line, the first one was the last one before
  last = LINE - itemsize if whole else 0
  lines = [byte + last for first, behind in pieces for byte in range(first, behind + more, LINE)]
  row = itemsize * walk.step // walk.rows
  return [line + row * n for n in range(walk.rows if row >= LINE else 1) for line in lines]


def _rows(filling: _Filling, along: UOp) -> list[tuple[int, int]]:
  """The first byte, and the one behind, of each piece of memory that one iteration of a loop that packs reads."""
  return joined(itertools.chain(*[load.spans(along, filling.itemsize) for load in filling.loads]), GAP)


def _steps(filling: _Filling, along: UOp) -> Iterator[int]:
  """By how many elements the loops that do not pack one piece move it; 1 where that is not known."""
  yield dict(filling.loads[0].steps)[along]
  for term in filling.loads[0].rest:
    for loop in term.ranges or (term,):
      yield stride(term, loop) or 1


def _linear(lines: list[int], column: UOp, itemsize: int) -> UOp | None:
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
  start = column.const_like(lines[0] // itemsize)
  return _plus(_plus(start, _times(_whole(column, group), far // itemsize) if far else inside.const_like(0)), inside)


def _counted(loops: tuple[UOp, ...], like: UOp) -> UOp:
  """The number of an iteration of a loop nest."""
  number = like.const_like(0)
  for r in loops:
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
