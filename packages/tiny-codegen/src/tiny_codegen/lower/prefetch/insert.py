"""Pass: loops ask for cache lines that they, or the instructions behind them, will use some iterations later.

A processor fetches by itself most of what is read in order. Six kinds of lines it does not:

- **Panels.** A sum reads one panel of an operand while the next one lies beyond the second cache level, in pieces that
  are far apart. Each step of the sum asks for a line or two of the next panel, into the second level.
- **Results.** A register tile writes dozens of lines at once, after a long sum in which memory had nothing to do. Each
  step of the sum asks for the line of another row; where steps are too few, the lines are asked for before.
- **Gaps.** A loop packs every second row of an image, or a few elements of each row of a matrix. Each iteration asks
  for what the iteration `AHEAD` later reads.
- **Tiles.** A register tile of a convolution reads rows of many channels where they are. Each step of its sum asks for
  what the same sum reads in the next tile.
- **Streams.** A sum reads blocks of several lines one after the other, such as quantised weights, and computes so much
  from each that the processor sees the loads of the next ones too late. Each iteration asks for a later block.
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
from collections.abc import Collection, Iterator, Mapping, Sequence

from tiny_codegen.kernel.memory import in_register
from tiny_codegen.lower.prefetch.gaps import gaps
from tiny_codegen.lower.prefetch.lookups import looked_up
from tiny_codegen.lower.prefetch.panels import next_panels
from tiny_codegen.lower.prefetch.program import Loop, Program
from tiny_codegen.lower.prefetch.results import results_behind
from tiny_codegen.lower.prefetch.streams import streams
from tiny_codegen.lower.prefetch.tiles import next_tiles
from tiny_codegen.lower.tile_order import adds_to_register
from tiny_codegen.target import Target
from tiny_uop import GroupOp, Ops, UOp

_MOVABLE = GroupOp.Elementwise | {Ops.CONST, Ops.VARIABLE, Ops.PARAM, Ops.INDEX, Ops.PREFETCH}


def drop_hints(kernel: UOp, target: Target) -> UOp:
  """The kernel without its PREFETCHes, where the target has none."""
  if target.has_prefetch:
    return kernel
  nothing = UOp.group()
  return kernel.substitute({u: nothing for u in kernel.toposort if u.op is Ops.PREFETCH})


def prefetch(linear: UOp, target: Target) -> UOp:
  """The LINEAR with PREFETCHes, where the target has them."""
  if not target.has_prefetch:
    return linear
  program = Program(linear.src, target.caches)
  panels = next_panels(program)
  before, stored = results_behind(program)
  packing, found = gaps(program, [memory for memory, _ in panels.values()]), looked_up(program)
  tiles, blocks = next_tiles(program), streams(program)
  asked: dict[UOp, list[UOp]] = {}
  for loop in program.loops:
    r = loop.counter
    lines = [*panels.get(r, (None, ()))[1], *stored.get(r, ()), *packing.get(r, ()), *found.get(r, ())]
    lines += [*tiles.get(r, ()), *blocks.get(r, ())]
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


def _place(linear: Sequence[UOp], loop: Loop, target: Target) -> UOp:
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
