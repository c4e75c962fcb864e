"""Software prefetch of results: lines that a register tile will store to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.expressions import split_constant, stride
from tiny_codegen.kernel.memory import element_of, in_register
from tiny_codegen.lower.prefetch.program import (
  Program,
  element_at,
  joined,
  known_size,
  lines_of,
  most_steps,
  plus,
  spans_of,
)
from tiny_codegen.lower.tile_order import steps_of_sum
from tiny_uop import STREAMING, Ops, UOp, simplify

LEAST_RESULT_STEPS = 16
"""Steps of the sums in which a line of a result can arrive, and that are worth asking for it."""
MOST_BLOCKS = 16
"""Iterations of a loop that stores a tile in blocks."""

_CONTROL = frozenset({Ops.RANGE, Ops.END, Ops.SPECIAL, Ops.IF, Ops.ENDIF, Ops.BARRIER})


def results_behind(program: Program) -> tuple[dict[UOp, list[UOp]], dict[UOp, list[UOp]]]:
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
    steps = most_steps(u for u in (loop.counter, *body) if u.op is Ops.RANGE) * max(written, 1)
    if stores and steps >= LEAST_RESULT_STEPS and not any(map(_writes_result, body)):
      rows, r = list(_rows(stores)), loop.counter
      spread = all(count * 2 <= known_size(r) for *_, count in rows)
      for pointer, offset, byte, step, count in rows:
        first = r.const_like(0) if offset is None else offset
        if not spread or count == 1:
          lines = [element_at(pointer, first, byte + n * step) for n in range(count)]
          before.setdefault(r, []).extend(line.prefetch("write") for line in lines)
        else:
          row = r.alu(Ops.CMPLT, r.const_like(count - 1)).where(r, r.const_like(count - 1))
          elements = step // element_of(pointer).itemsize
          place = element_at(pointer, first, byte).src[1] + row.cast(first.dtype) * elements
          inside.setdefault(r, []).append(pointer.index(place).prefetch("write"))
  return before, inside


def _stores_behind(linear: Sequence[UOp], end: int) -> Iterator[UOp]:
  """The ungated stores of adjacent elements to buffers between an END and what begins or ends next; where that is a
  loop that does nothing else, as of `store_tiles`, those of its iterations."""
  behind = _straight(linear, end + 1)
  yield from filter(_is_plain_store, behind)
  begin = end + 1 + len(behind)
  loop = linear[begin] if begin < len(linear) else None
  if loop is None or loop.op is not Ops.RANGE or not 0 < known_size(loop) <= MOST_BLOCKS:
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
      for n in range(known_size(loop)):
        place = plus(firsts[offset], offset.const_like(constant + n * step))
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
  for (pointer, offset), spans in spans_of((s.src[0], s.src[1].dtype) for s in stores).items():
    pieces = joined(spans, 0)
    steps = {b[0] - a[0] for a, b in itertools.pairwise(pieces)}
    even = len(steps) <= 1 and len({behind - first for first, behind in pieces}) == 1
    for first, behind in pieces[:1] if even else pieces:
      # of a short piece that lies on two lines the last one: no tile before this one has fetched that
      lines = lines_of(first, behind)[-1 if behind - first < CACHE_LINE else 0 :]
      for byte in lines:
        yield (pointer, offset, byte, sum(steps), len(pieces)) if even else (pointer, offset, byte, 0, 1)
