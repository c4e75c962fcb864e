"""Pass: a loop whose counter is compared with constants is cut there (index set splitting).

What is put together of pieces (concatenation, padding) picks one of several values by `i < c`. A vector of it loads
all of them and selects. In loops over `[0, c)` and `[c, n)` the condition is known: each loads what it stores and
nothing else, gates go, and neighbours that only the condition kept apart can be merged. The same holds for `i % n` of a
rotation, which is cut where it wraps around.

    for i < 128: out[i] = a[i] if i < 64 else b[i - 64]
      →  for i < 64: out[i] = a[i]
         for i < 64: out[i + 64] = b[i]

Threads share a loop that is around all pieces. Where there is none that is long enough, each piece is taken in as many
blocks, and the blocks and the loops outside are one loop: with `s < 16`,

    for s: {for i < 4: out[s * 4 + i] = a[s * 4 + i]; for i < 4: out[64 + s * 4 + i] = b[s * 4 + i]}

Where a piece is no multiple, its last blocks begin earlier, and write some elements a second time. Of pieces that are
too short for blocks, a loop inside is taken in blocks: of many pieces in few, which read longer runs of each. A kernel
with little to do needs no threads.

Source: M. Wolfe, High Performance Compilers for Parallel Computing (1996), index set splitting.
"""

from __future__ import annotations

import math

from tiny_codegen.kernel.expressions import number, stride
from tiny_codegen.kernel.loops import extent, iterations, kind, next_loop_id, substitute_simplified
from tiny_codegen.lower.separate import separate
from tiny_codegen.lower.simplify import drop_single
from tiny_codegen.target import Target
from tiny_uop import AxisType, Ops, UOp, simplify
from tiny_uop.graph import memory_of

MOST_PIECES = 256
"""Pieces of a kernel: each is code of its own."""
AT_ONCE = 6
"""Pieces that a loop is cut into. Where there are more, each is cut again: not all are looked at for each one then."""
LEAST_PIECE = 48
"""Elements of the longest piece of a loop, with the loops inside of it: shorter ones do not pay for their own loops."""
LEAST_SHARED, MOST_SHARED = 16, 64
"""Iterations of the loop around all pieces, for threads."""
LEAST_BLOCK = 16
"""Elements of one of many pieces, next to each other, that a thread takes."""
LITTLE = 1 << 16
"""Elements that one thread moves as fast as several."""
OTHER = frozenset({Ops.REDUCE, Ops.AFTER, Ops.ALLOC, Ops.STAGE})
"""Kernels with these do more than move and compute elements."""


def split_loops(root: UOp, target: Target) -> UOp:
  """The kernel with loops cut where conditions on their counters change. Not for a target with workgroups, whose
  threads take one side of a condition each; nor for one without vectors."""
  if target.has_local or not target.vector_bits or not _moves(root):
    return root
  done: list[UOp] = []
  waiting = list(root.src)
  while waiting:
    end = waiting.pop(0)
    found = _first_cut(end, MOST_PIECES - len(done) - len(waiting), target)
    if found is None:
      done.append(end)
    else:
      waiting[:0] = _pieces(end, *found, max(next_loop_id(other) for other in (end, *done, *waiting)))
  return root if len(done) == 1 else separate(drop_single(root.with_src(tuple(done))))


def _moves(root: UOp) -> bool:
  """Whether a kernel is loops around one plain STORE to memory that it does not read, and reads along what it stores:
  what it reads across is transposed in registers, in squares of one kernel."""
  end = root.src[0]
  store, nodes = end.src[0] if end.op is Ops.END else end, root.toposort
  if len(root.src) != 1 or store.op is not Ops.STORE or store.arg is not None or store is end:
    return False
  loads = [u.src[0] for u in nodes if u.op is Ops.LOAD]
  if (
    len(store.src[0].src) != 2 or memory_of(store.src[0]) in map(memory_of, loads) or any(u.op in OTHER for u in nodes)
  ):
    return False
  along = next((r for r in end.src[1:] if stride(store.src[0].src[1], r) == 1), None)
  return along is None or all(stride(place.src[1], along) in (None, -1, 0, 1) for place in loads)


def _first_cut(end: UOp, most: int, target: Target) -> tuple[UOp, list[int], UOp, int] | None:
  """The outermost loop to cut into `most` pieces or fewer, where it begins, is cut and ends; and which loop of each
  piece is taken in how many blocks."""
  nodes = [u for u in end.src[0].toposort if u.op in (Ops.CMPLT, Ops.FLOORMOD) and u.src[0].dtype.kind == "index"]
  for place, loop in enumerate(end.src[1:], 1):
    size, outside = extent(loop), [extent(r) for r in end.src[1:place]]
    if size is None or kind(loop) is not AxisType.LOOP:
      continue
    cuts = sorted({0, size}.union(*[_cuts(u, loop, size) for u in nodes]))
    sizes = [high - low for low, high in zip(cuts, cuts[1:])]
    if not 2 <= len(sizes) <= most or max(sizes) * iterations(end.src[place + 1 :]) < LEAST_PIECE:
      continue
    few = len(sizes) <= AT_ONCE
    cuts = cuts if few else [*cuts[: -1 : -(-len(sizes) // AT_ONCE)], size]
    if any(n is None or n >= LEAST_SHARED for n in outside) or iterations(end.src[1:]) <= LITTLE:
      return loop, cuts, loop, 0
    around = math.prod([n or 1 for n in outside])
    numbers = range(max(MOST_SHARED // around, 1), -(-LEAST_SHARED // around) - 1, -1)
    if not few and target.threads <= LEAST_SHARED:
      numbers = numbers[::-1]
    for divided, parts in [
      *([(loop, sizes)] if few else []),
      *[(r, [extent(r) or 0]) for r in end.src[place + 1 :] if kind(r) is kind(loop)],
    ]:
      for blocks in numbers:
        if not few and parts[0] // blocks * iterations(end.src[end.src.index(divided) + 1 :]) < LEAST_BLOCK:
          continue
        if sum(-n % blocks for n in parts) * 16 <= sum(parts) and all(parts):
          return loop, cuts, divided, blocks
    if not few:
      return loop, cuts, loop, 0  # a thread alone is faster than one choice of so many
  return None


def _cuts(u: UOp, loop: UOp, size: int) -> set[int]:
  """The iterations of a loop, behind the first, at which a comparison changes or a remainder begins anew."""
  offset, period = (simplify(u.src[0] - u.src[1]), number(0)) if u.op is Ops.CMPLT else u.src
  step = stride(offset, loop)
  start = simplify(offset - loop * step) if step else None
  if not step or start is None or start.op is not Ops.CONST:
    return set()
  # an offset that goes down passes what one that goes up does, a step later
  first = int(start.arg)
  last = first + step * (size - 1)
  if u.op is Ops.CMPLT:
    edges = [0]
  elif period.op is Ops.CONST and period.arg > 0 and (abs(last - first) // period.arg) < AT_ONCE:
    edges = [n * period.arg for n in range(min(first, last) // period.arg, max(first, last) // period.arg + 1)]
  else:
    return set()
  found = {-((first - edge) // step) if step > 0 else (first - edge) // -step + 1 for edge in edges}
  return {cut for cut in found if 0 < cut < size}


def _pieces(end: UOp, loop: UOp, cuts: list[int], divided: UOp, blocks: int, fresh: int) -> list[UOp]:
  """An END for each piece of a loop, with new loops from the id `fresh` on; `blocks`: 0 where threads share a loop
  outside, or need none."""
  place = end.src.index(loop)
  outside, block, counters = end.src[1:place], number(0), {}
  if blocks:
    shared = UOp.range(math.prod([extent(r) or 1 for r in outside]) * blocks, fresh, AxisType.LOOP)
    rest, block = simplify(shared // blocks), simplify(shared % blocks)
    for r in reversed(outside):
      counters[r], rest = simplify(rest % r.src[0]), simplify(rest // r.src[0])
    outside = (shared,)
  pieces = []
  for low, high in zip(cuts, cuts[1:]):
    # loops of their own: side by side, pieces would be read and stored a multiple of a page apart
    own, values = [], dict(counters)
    for r in end.src[place:]:
      fresh += 1
      start, size = (number(low), number(high - low)) if r is loop else (number(0), r.src[0])
      if blocks and r is divided:
        each, last = -(-size.arg // blocks), size.arg % blocks
        start = start + (block * each if last == 0 else (block * each).minimum(size.arg - each))
        size = number(each)
      own.append(UOp.range(size, fresh, kind(r)))
      values[r] = simplify(start + own[-1])
    pieces.append(end.replace(src=(substitute_simplified(end.src[0], values), *outside, *own)))
  return pieces
