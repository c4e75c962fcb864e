"""Pass: a padded loop runs without gates up to the last whole block; what is left over is a piece of its own.

`PADTO` and a split leave gates `outer * n + inner < size` that only the last iteration of `outer` needs. Here the
loop becomes one over the whole blocks, with the gate gone, and one more copy of its body for the last block, with the
gate. Where an outer loop (of threads) has only part of the blocks, the loop runs over those of its blocks that are
whole, and the copy runs only where the partial one is among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tiny_codegen.instructions.dot_product import MatrixProduct
from tiny_codegen.kernel.expressions import clauses, number, stride, terms
from tiny_codegen.kernel.loops import CLOSERS, IN_TILE, extent, kind, next_loop_id, substitute_simplified
from tiny_codegen.kernel.memory import gate_of, gates_of, own_memory, with_memory
from tiny_codegen.lower.reduce import identity
from tiny_codegen.lower.separate import separate
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, UOp, dtypes, simplify
from tiny_uop.graph import memory_of, rebuild

TRUE = UOp.const(dtypes.bool, True)
# each peeled loop doubles the code inside it
MOST_PEELED = 3


def peel_blocks(root: UOp, target: Target) -> UOp:
  """`peel`, of rows as well where they are not threads."""
  return peel(root, rows=not target.has_local)


def peel(root: UOp, rows: bool = False) -> UOp:
  """The kernel with the last, partial block of padded loops apart from the rest: of loops over lanes, and with `rows`
  also of those over rows of register tiles, of which the last one is then smaller."""
  for _ in range(MOST_PEELED):
    found = _find(root, rows)
    if found is None:
      return root
    loop, gates = found
    # the two copies of what is inside get loops of their own, which may then be peeled differently
    root = separate(_peel(root, loop, gates, rows))
  return root


def _find(root: UOp, rows: bool) -> tuple[UOp, list[UOp]] | None:
  candidates: dict[UOp, list[UOp]] = {}
  closed = {
    r for u in root.toposort if u.op in CLOSERS for r in u.src[1:] if kind(r) in (AxisType.LOOP, AxisType.REDUCE)
  }
  # tiles have no gates, and two copies of a sum would need accumulators for both
  closed = closed.difference(*[u.ranges for u in root.toposort if u.op is Ops.MMA and isinstance(u.arg, MatrixProduct)])
  for u in root.toposort:
    if u.op is Ops.CMPLT and u.src[0].dtype is dtypes.index:
      for loop in u.ranges & closed:
        if _only_last(u, loop) and (_starts_at_once(u, loop) or (_guarded(root, loop, u) and not _shares(root, loop))):
          candidates.setdefault(loop, []).append(u)
  # lanes that may not happen cost much, and rows that are computed for nothing: else a scalar gate is a select
  wanted = [
    (r, gates)
    for r, gates in candidates.items()
    if any(kind(v) is AxisType.VECTOR for g in gates for v in g.ranges)
    or (rows and _rows_left(gates[0], r) and _sums_in(root, r) and _guarded(root, r, gates[0]))
  ]
  return min(wanted, key=lambda found: int(found[0].arg[0])) if wanted else None


def _sums_in(root: UOp, loop: UOp) -> bool:
  """Whether all that a loop is around are stores of sums, which are what rows of a register tile cost."""
  ends = [u for u in root.toposort if u.op in CLOSERS and loop in u.src[1:]]
  return all(u.op is Ops.END and any(s.op is Ops.REDUCE for s in u.src[0].toposort) for u in ends)


def _rows_left(gate: UOp, loop: UOp) -> bool:
  """Whether a gate is about the rows of register tiles of which the last one is to be a smaller one."""
  block, rows = stride(gate.src[0], loop) or 1, [r for r in gate.ranges if kind(r) is AxisType.UPCAST]
  if len(rows) != 1 or gate.src[1].op is not Ops.CONST or _parts(gate.src[0], loop, block)[0].op is not Ops.CONST:
    return False
  size = int(gate.src[1].arg)
  return stride(gate.src[0], rows[0]) == 1 and block == extent(rows[0]) and rows_left(size, block) > 0


def _starts_at_once(gate: UOp, loop: UOp) -> bool:
  """Whether no outer loop decides which of this loop's iterations the gate is about: then only the last one is."""
  block = stride(gate.src[0], loop)
  return block is not None and not _parts(gate.src[0], loop, block)[0].ranges


def _shares(root: UOp, loop: UOp) -> bool:
  """Whether iterations read places of their own in local memory that is filled for all of them. Where there is no last
  block its place would be outside of that memory, and loads are made before it is known that there is none."""
  own = own_memory(root, loop)
  for u in root.toposort:
    if u.op is Ops.INDEX and loop in u.src[1].ranges:
      memory = memory_of(u.src[0])
      if memory.op is Ops.ALLOC and memory not in own:
        return True
  return False


def _guarded(root: UOp, loop: UOp, gate: UOp) -> bool:
  """Whether iterations in which the gate does not hold have no effect at all, so that they can be left out. What one
  has in local memory is for itself."""
  own = own_memory(root, loop)
  for u in root.toposort:
    if u.op is Ops.END and loop in u.src[1:]:
      effects = [
        s for s in u.src[0].toposort if s.op is Ops.STORE and loop in s.ranges and memory_of(s.src[0]) not in own
      ]
      if not all(_among(gate, gates_of(s), loop) for s in effects):
        return False
    elif u.op is Ops.REDUCE and loop in u.src[1:]:
      condition, otherwise = _choice(u.src[0])
      if not _among(gate, clauses(condition), loop) or otherwise is not identity(u.arg[0], u.dtype):
        return False
  return True


def _among(gate: UOp, conditions: Iterable[UOp], loop: UOp) -> bool:
  """Whether conditions hold only where the gate does, or the same one of other lanes."""
  return any(_alike(gate, clause, loop) for clause in conditions)


def _alike(gate: UOp, other: UOp, loop: UOp) -> bool:
  """Whether two gates say the same of an iteration of a loop, if perhaps of lanes of their own."""
  if gate is other:
    return True
  block = stride(gate.src[0], loop)
  if other.op is not Ops.CMPLT or other.src[1] is not gate.src[1] or block is None:
    return False
  alike = stride(other.src[0], loop) == block
  return alike and _parts(other.src[0], loop, block)[0] is _parts(gate.src[0], loop, block)[0]


def _choice(value: UOp) -> tuple[UOp, UOp]:
  """(condition, what the value is where it does not hold) of a WHERE or of a gated load."""
  if value.op is Ops.WHERE:
    return value.src[0], value.src[2]
  gate = gate_of(value) if value.op is Ops.LOAD else None
  if gate is None:
    return TRUE, value
  return gate, value.src[1] if len(value.src) == 2 else UOp.const(value.dtype, 0)


def _only_last(gate: UOp, loop: UOp) -> bool:
  """Whether the gate holds in all iterations of the loop but the last ones."""
  offset, size = gate.src
  block = stride(offset, loop)
  # where each row of a tile ends elsewhere, as under a causal mask, no block is the last one of all
  if block is None or block < 2 or any(r is loop or kind(r) in IN_TILE for r in size.ranges):
    return False
  start, lanes = _parts(offset, loop, block)
  if lanes.vmin < 0 or lanes.vmax >= block or simplify(start % block).op is not Ops.CONST:
    return False
  if not start.ranges:  # the extent has to say that there is one block at the end, at most
    blocks = simplify((size - start + (block - 1)) // block)
    return loop.src[0] is blocks and simplify((size - start) // block) is not blocks
  return extent(loop) is not None


def _parts(offset: UOp, loop: UOp, block: int) -> tuple[UOp, UOp]:
  """The offset without `loop * block`, as where the loop starts and the place within a block."""
  start, lanes = number(0), number(0)
  for term in terms(simplify(offset - loop * block)):
    if term.ranges and all(kind(r) in IN_TILE for r in term.ranges):
      lanes = lanes + term
    else:
      start = start + term
  return simplify(start), simplify(lanes)


def _peel(root: UOp, loop: UOp, gates: list[UOp], rows: bool) -> UOp:
  block = stride(gates[0].src[0], loop) or 1
  start, _ = _parts(gates[0].src[0], loop, block)
  same = [g for g in gates if _alike(gates[0], g, loop)]
  whole = simplify((gates[0].src[1] - start) // block)
  last_loops: tuple[UOp, ...] = ()
  fresh, guarded = next_loop_id(root), _guarded(root, loop, gates[0])
  last_value = whole
  if start.ranges or not (guarded or whole.op is Ops.CONST):
    # where the blocks of this loop end before the size does, all are whole and nothing is left over; nor is anything of
    # a size that only a launch knows, if it is a multiple
    size = loop.src[0]
    left_over = ((whole < 0) | (whole < size).logical_not()).where(number(0), number(1))
    last_loops = (UOp.range(simplify(left_over), fresh, kind(loop)),)
    last_value = whole.maximum(number(0))
    whole = simplify(-(-whole.maximum(number(0))).maximum(-size))
  # a loop of one block is none
  main = number(0) if whole.op is Ops.CONST and whole.arg == 1 else UOp.range(whole, loop.arg[0], kind(loop))
  open_gates = dict.fromkeys(same, TRUE)
  memory = own_memory(root, loop)
  shorter = _narrow(same, loop, last_value, fresh + 1) if guarded else {}

  def change(u: UOp, new: UOp) -> UOp | None:
    if u.op not in CLOSERS or loop not in u.src[1:]:
      return None
    body = new.src[0]
    loops = tuple([main if r is loop else r for r in u.src[1:] if r is not loop or main.op is Ops.RANGE])
    inside = substitute_simplified(body.substitute(open_gates), {loop: main})
    # lanes that go on after this loop cannot be fewer inside of it
    narrow = {lanes: fewer for lanes, fewer in shorter.items() if lanes not in u.ranges}
    others = (*[narrow.get(r, r) for r in u.src[1:] if r is not loop], *last_loops)
    last = substitute_simplified(with_memory(body, loop, memory).substitute(narrow), {loop: last_value})
    if main.op is not Ops.RANGE:
      last = _own_sums(last, fresh + 1 + len(shorter))
    if u.op is Ops.END:
      times = min([(extent(old) or 0) // (extent(r) or 1) for old, r in narrow.items()], default=1)
      last = with_remainder_tiles(last, others, times if rows else 1, max(fresh, next_loop_id(last)))
    return _both(new, inside, loops, last, others)

  return rebuild(root, change)


def _narrow(gates: list[UOp], loop: UOp, last: UOp, first: int) -> dict[UOp, UOp]:
  """Shorter loops over lanes for the last block, where half of them or more are beyond the end; or over rows."""
  sizes: dict[UOp, int] = {}
  for gate in gates:
    lanes = [r for r in gate.ranges if kind(r) is AxisType.VECTOR]
    inside = lanes or [r for r in gate.ranges if kind(r) is AxisType.UPCAST]
    left = simplify((gate.src[1] - gate.src[0]).substitute({loop: last, **dict.fromkeys(inside, number(0))}))
    if len(inside) == 1 and left.op is Ops.CONST and stride(gate.src[0], inside[0]) == 1:
      whole = extent(inside[0]) or 1
      size = lanes_left(left.arg, whole) if lanes else int(left.arg)
      sizes |= {inside[0]: size} if size < whole else {}
  return {r: UOp.range(size, first + n, kind(r)) for n, (r, size) in enumerate(sizes.items())}


def _own_sums(body: UOp, first: int) -> UOp:
  """The body with loops of its own for its sums: with no loop around the other copy, both would go through the same
  ones, with twice as many accumulators as there are registers for."""
  sums = {r: None for u in body.walk(lambda u: u.op is not Ops.AFTER) if u.op is Ops.REDUCE for r in u.src[1:]}
  own = {r: r.replace(arg=(first + place, kind(r))) for place, r in enumerate(sums) if kind(r) is AxisType.REDUCE}
  return body.substitute(own)


def _both(closer: UOp, inside: UOp, loops: tuple[UOp, ...], last: UOp, others: tuple[UOp, ...]) -> UOp:
  """The whole blocks and the last one, which of an END has been ended."""
  none = any(extent(r) == 0 for r in loops)
  if closer.op is Ops.END:
    return last if none else UOp.group(inside.end(*loops), last)
  op = closer.arg[0]
  rest = last.reduce(op, *others)
  return rest if none else inside.reduce(op, *loops).alu(op, rest)


# *** remainder tiles ***
# Narrow panels have register tiles of twice as many rows.
#
# In a last panel of one vector where the others have four, a tile has a quarter of the accumulators, each of which has
# to wait for itself. So tiles are taken two at a time there, but for the last one or two.


# of a vector: those of 128 bits that are left over take as long as fewer
LEAST_LANES = 4
# rows that would be computed for nothing are worth code of their own if they are one in so many
LEFT_OVER = 28
# each row that may be beyond the end has an address of its own, and with more LLVM spills the sums: tiles of 10 to 14
# rows × 2 vectors of 512 bits took 1.25 to 1.7 times as long with 6 to 11 such rows (Zen 4)
MOST_CLAMPED = 5
# a last panel that is so many times narrower than others has tiles of twice as many rows, but no more than these
NARROW, MOST_ROWS = 4, 14

LEAST_TILES = 5
"""Tiles that are taken in pairs: two pairs, so that there is a loop over them."""


def with_remainder_tiles(body: UOp, loops: tuple[UOp, ...], narrower: int, fresh: int) -> UOp:
  """The END of `loops` over the body of a panel that is so many times narrower than others. `fresh`: the first free
  number of a loop."""
  rows = math.prod(extent(r) or 0 for r in loops if kind(r) is AxisType.UPCAST)
  tiles = next((r for r in loops if _is_over_tiles(body, r)), None) if rows_of_last(rows, narrower) != rows else None
  if tiles is None:
    return body.end(*loops)
  count = extent(tiles) or 0
  pairs = (count - 1) // 2
  pair, upper = UOp.range(pairs, fresh, AxisType.LOOP), UOp.range(2, fresh + 1, AxisType.UPCAST)
  left = UOp.range(count - 2 * pairs, fresh + 2, AxisType.LOOP) if count % 2 == 0 else number(0)
  both = substitute_simplified(body, {tiles: pair * 2 + upper})
  one = substitute_simplified(body, {tiles: left + 2 * pairs})
  others = tuple([r for r in loops if r is not tiles])
  return UOp.group(both.end(*others, pair, upper), one.end(*others, *[left] * (left.op is Ops.RANGE)))


def _is_over_tiles(body: UOp, loop: UOp) -> bool:
  """Whether a loop goes over register tiles of one panel: it moves no lanes, and fills no memory."""
  if kind(loop) is not AxisType.LOOP or (extent(loop) or 0) < LEAST_TILES or own_memory(body, loop):
    return False
  nodes = list(body.walk(lambda u: u.op is not Ops.AFTER))
  lanes = [u for u in nodes if u.op is Ops.LOAD and any(kind(r) is AxisType.VECTOR for r in u.ranges)]
  sums = any(u.op is Ops.REDUCE for u in nodes)
  return sums and bool(lanes) and not any(loop in u.ranges for u in lanes)


def lanes_left(size: int, lanes: int) -> int:
  """The lanes of the last panel of a loop: fewer than of the others, where half of theirs or more would be computed for
  nothing (see `peel`)."""
  left = size % lanes
  while left and lanes % 2 == 0 and lanes // 2 >= max(left, LEAST_LANES):
    lanes //= 2
  return lanes


def rows_left(size: int, rows: int) -> int:
  """The rows of the last register tile of a loop, where there are so few that it is a smaller one (see `peel`); 0 where
  it is as large as the others, of which some rows may be computed for nothing."""
  left = size % rows
  beyond = rows - left
  return left if left and size > rows and (beyond * LEFT_OVER >= size or beyond > MOST_CLAMPED) else 0


def rows_of_last(rows: int, narrower: int) -> int:
  """The rows of register tiles of a last panel that is so many times narrower than others."""
  return 2 * rows if narrower >= NARROW and rows > 0 and 2 * rows <= MOST_ROWS else rows
