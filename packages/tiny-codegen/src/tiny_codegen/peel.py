"""Pass: a padded loop runs without gates up to the last whole block; what is left over is a piece of its own.

`PADTO` and a split leave gates `outer * n + inner < size` that only the last iteration of `outer` needs. Here the loop becomes one over the whole blocks, with
the gate gone, and one more copy of its body for the last block, with the gate.
"""

from __future__ import annotations

from tiny_codegen.loops import CLOSERS, kind, stride, substitute_simplified
from tiny_uop import AxisType, Ops, UOp, dtypes, simplify

TRUE = UOp.const(dtypes.bool, True)
# each peeled loop doubles the code inside it
MOST_PEELED = 3


def peel(root: UOp) -> UOp:
  """The kernel with the last, partial block of padded loops apart from the rest."""
  for _ in range(MOST_PEELED):
    found = _find(root)
    if found is None:
      return root
    loop, gates = found
    root = _peel(root, loop, gates)
  return root


def _find(root: UOp) -> tuple[UOp, list[UOp]] | None:
  candidates: dict[UOp, list[UOp]] = {}
  closed = {r for u in root.toposort if u.op in CLOSERS for r in u.src[1:] if kind(r) in (AxisType.LOOP, AxisType.REDUCE)}
  for u in root.toposort:
    if u.op is Ops.CMPLT and u.src[0].dtype is dtypes.index:
      for loop in u.ranges & closed:
        if _only_last(u, loop):
          candidates.setdefault(loop, []).append(u)
  # only lanes that may not happen cost much: a scalar gate is a select
  wanted = [(r, gates) for r, gates in candidates.items() if any(kind(v) is AxisType.VECTOR for g in gates for v in g.ranges)]
  return min(wanted, key=lambda found: int(found[0].arg[0])) if wanted else None


def _only_last(gate: UOp, loop: UOp) -> bool:
  """Whether the gate holds in all iterations of the loop but the last."""
  offset, size = gate.src
  block = stride(offset, loop)
  if block is None or block < 2 or loop in size.ranges:
    return False
  rest = simplify(offset - loop * block)
  whole = simplify(size // block)
  blocks = simplify((size + (block - 1)) // block)
  return bool(rest.vmin >= 0 and rest.vmax < block and loop.src[0] is blocks and whole is not blocks)


def _peel(root: UOp, loop: UOp, gates: list[UOp]) -> UOp:
  size = gates[0].src[1]
  block = stride(gates[0].src[0], loop) or 1
  whole = simplify(size // block)
  main = UOp.range(whole, loop.arg[0], kind(loop))
  open_gates = {g: TRUE for g in gates}
  done: dict[UOp, UOp] = {}
  for u in root.toposort:
    new = u.replace(src=tuple([done[s] for s in u.src])) if u.src else u
    if u.op in CLOSERS and loop in u.src[1:]:
      body, others = new.src[0], tuple([r for r in u.src[1:] if r is not loop])
      loops = tuple([main if r is loop else r for r in u.src[1:]])
      inside = substitute_simplified(body.substitute(open_gates), {loop: main})
      last = substitute_simplified(body, {loop: whole})
      new = _both(new, inside, loops, last, others)
    done[u] = new
  return done[root]


def _both(closer: UOp, inside: UOp, loops: tuple[UOp, ...], last: UOp, others: tuple[UOp, ...]) -> UOp:
  if closer.op is Ops.END:
    return UOp.group(inside.end(*loops), last.end(*others))
  op = closer.arg[0]
  return inside.reduce(op, *loops).alu(op, last.reduce(op, *others))
