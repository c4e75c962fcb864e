"""Software prefetch of the next panel, while a sum reads one."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from tiny_codegen.cost_model import CACHE_LINE, LEAST_STEPS, ROOM
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.loops import kind
from tiny_codegen.kernel.memory import element_of
from tiny_codegen.lower.prefetch.program import (
  GAP,
  Program,
  Read,
  counted,
  innermost_sums,
  is_sum,
  joined,
  known_size,
  known_sizes,
  line_at,
  most_steps,
  packed_buffer,
  plus,
  quotient,
  remainder,
  sums_at_the_end,
  times,
)
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.records import dataclass

SELDOM = 16
"""Steps of a sum for a line: where there are more, packing takes hardly any time, and asking some of every step."""
MOST_ROWS = 8
"""Iterations of the loop that packs which one step of a sum takes: steps that are written out."""
MOST_PANEL_LINES = 2
"""Lines that a step of a sum asks for: more would be in the way of what it reads itself."""


@dataclass(frozen=True)
class _Packing:
  """A loop nest that packs an operand as it is: the packed buffer, the loops around, those of the nest, and what it
  reads. Or one that reads an operand where it is, which then is the `memory`."""

  memory: UOp
  around: tuple[UOp, ...]
  own: tuple[UOp, ...]
  reads: tuple[Read, ...]

  @property
  def pointer(self) -> UOp:
    """The buffer that is read."""
    return self.reads[0].index.src[0]

  @property
  def nbytes(self) -> int:
    """Bytes that are read."""
    return sum(read.count for read in self.reads) * element_of(self.pointer).itemsize * known_sizes(self.own)

  def pieces(self, along: UOp) -> list[tuple[int, int]]:
    """The first byte, and the one behind, of each piece of memory that one iteration of a loop of the nest reads."""
    return joined(itertools.chain(*[read.spans(along, element_of(self.pointer).itemsize) for read in self.reads]), GAP)


def next_panels(program: Program) -> dict[UOp, tuple[UOp, list[UOp]]]:
  """By the loop of a sum: a panel that it reads, and the PREFETCHes of each iteration, of the next panel."""
  packed, second = sum(program.packed.values()), program.caches.second
  large = {p for p, size in program.read.items() if size > second - packed}
  if not large:
    return {}
  found: dict[UOp, tuple[UOp, list[UOp]]] = {}
  packings = _packings(program, large)
  loads = [u for u, loops in zip(program.linear, program.around) if u.op is Ops.LOAD and loops and is_sum(loops[-1])]
  direct = sum(program.read[p] for p in {u.src[0].src[0] for u in loads} & (program.read.keys() - large))
  for loop, reads in innermost_sums(program):
    loops = (*loop.around, loop.counter)
    buffers = Counter([buffer for u in reads if (buffer := packed_buffer(u.src[0])) is not None])
    known = [(packings[b], program.packed[b], n) for b, n in buffers.items() if b in packings]
    known = [k for k in known if loop.counter not in k[0].own]
    for packing, nbytes, count in (*known, *((p, p.nbytes, 1) for p in _read_as_it_is(reads, loops, large))):
      # what a sum has packed on its way is not needed any longer when the next is asked for: see `staging/pack.py`
      copies = 1 if packing.memory in program.packed and any(map(is_sum, packing.own)) else 2
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
      read = Read.of(load, own) if load.src[0].src[0] in large and load.src[0].src[1].dtype.count == 1 else None
      if read is None:
        continue
      first = found.get(memory)
      if first is None and own and known_sizes(own):
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


def _read_as_it_is(loads: Sequence[UOp], loops: tuple[UOp, ...], large: Collection[UOp]) -> Iterator[_Packing]:
  """What vectors in the innermost of these loops, which are around a sum, read again in each tile of a loop outside of
  the sum."""
  own = sums_at_the_end(loops)
  outside = loops[: len(loops) - len(own)]
  found: dict[tuple[UOp, frozenset[UOp]], list[Read]] = {}
  for u in loads:
    index = u.src[0]
    if index.src[0] in large and len(index.src) == 2 and u.dtype.count > 1 and index.src[1].dtype.count == 1:
      if (read := Read.of(u, own)) is not None:
        found.setdefault((index.src[0], read.rest), []).append(read)
  for (pointer, rest), reads in found.items():
    moved = [n for n, r in enumerate(outside) if any(r in term.ranges for term in rest)]
    if moved and moved[-1] < len(outside) - 1 and known_sizes(own):
      yield _Packing(pointer, outside[: moved[-1] + 1], own, tuple(reads))


def _next_panel(packing: _Packing, inside: tuple[UOp, ...], count: int) -> tuple[UOp, list[UOp]]:
  """A loop of a sum, and the PREFETCHes of its iterations: in each tile for another column of lines of the next panel;
  or for a part of one, where there are more tiles than columns. Nothing if the steps are too few. `inside`: the loops
  from the packing to the sum; `count`: reads of the packed buffer in an iteration of the innermost."""
  sums = sums_at_the_end(inside)
  tiles, walk = inside[: len(inside) - len(sums)], _walk(packing, sums, count)
  same_integers = (
    len({u.dtype for u in (*inside, *packing.around, *packing.reads[0].rest, packing.reads[0].index.src[1])}) == 1
  )
  if walk is None or not known_sizes(tiles) or not same_integers:
    return sums[-1], []
  along, depth, rows = walk
  if rows * len(packing.pieces(along)) * most_steps(sums) < LEAST_STEPS:
    return sums[-1], []
  loop, step, itemsize = sums[depth], rows * packing.reads[0].steps[along], element_of(packing.pointer).itemsize
  lines, many = _panel_lines(packing, along, rows), known_sizes(tiles)
  each = -(-len(lines) // many)
  if not lines or each > MOST_PANEL_LINES * rows * most_steps(sums[depth + 1 :]) or many > SELDOM * len(lines):
    return loop, []
  parts = 1 << max(many // len(lines), 1).bit_length() - 1
  while known_size(loop) % parts:
    parts //= 2
  tile, rest = counted(tiles, loop), sorted(packing.reads[0].rest, key=lambda term: term.render())
  base = reduce(plus, rest, loop.const_like(0)).substitute(_following(packing.around))
  row = plus(
    times(counted(sums[:depth], loop), known_size(loop)), times(remainder(tile, parts), known_size(loop) // parts)
  )
  base = plus(base, times(row, step))
  found = []
  for number in range(each):
    column = plus(times(quotient(tile, parts), each), loop.const_like(number))
    place = line_at(lines, column, itemsize)
    if place is None:
      return loop, []
    found.append(_in_parts(packing, plus(base, place), loop, step, parts))
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
      steps = known_sizes(sums[: depth + 1])
      if not steps:
        break
      rows, rest = divmod(known_size(along), steps)
      if not rest and 1 <= rows <= MOST_ROWS and count % rows == 0:
        return along, depth, rows
  return None


def _following(around: tuple[UOp, ...]) -> dict[UOp, UOp]:
  """The counters of the loops around a packing when it is done next."""
  last = around[-1]
  after = last + last.const_like(1)
  # iterations that threads share are taken in turns: the next one is another thread's
  if len(around) < 2 or kind(around[-2]) is not AxisType.LOOP or not known_size(last):
    return {last: after}
  return {last: remainder(after, known_size(last)), around[-2]: plus(around[-2], quotient(after, known_size(last)))}


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
