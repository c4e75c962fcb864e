"""Pass: gated loads become loads that are safe anyway.

A scalar `LOAD(INDEX(p, offset, gate), alternative)` reads element 0 where the gate is false and selects afterwards:
no branch. Gates of vectors stay, for masked instructions; gates of scalar stores stay, and become IF … ENDIF when the
program is laid out.
"""

from __future__ import annotations

from tiny_codegen.kernel.expressions import number
from tiny_codegen.kernel.memory import pointer_type
from tiny_uop import ASYNC, Ops, UOp, simplify
from tiny_uop.graph import rebuild


def lower_gates(root: UOp) -> UOp:
  """The kernel in which every gated LOAD has a vector gate, as has every gated vector STORE of which only some lanes
  may happen. What is copied asynchronously keeps its gate: where it does not hold, zeros are written.
  """
  root = simplify(root)
  copied = {u.src[1] for u in root.toposort if u.op is Ops.STORE and u.arg == ASYNC}
  return rebuild(root, lambda u, new: None if u in copied else _lower(new))


def _lower(u: UOp) -> UOp | None:
  if u.op not in (Ops.LOAD, Ops.STORE) or u.src[0].op is not Ops.INDEX:
    return None
  if len(u.src[0].src) < 3:
    return u.replace(src=u.src[:1]) if u.op is Ops.LOAD and len(u.src) > 1 else None
  pointer, offset, gate = u.src[0].src
  known = gate.arg if gate.op is Ops.CONST and not isinstance(gate.arg, tuple) else None
  if known is True:
    plain = pointer.index(offset)
    return plain.load(dtype=u.dtype) if u.op is Ops.LOAD else u.replace(src=(plain, u.src[1]))
  if u.op is Ops.STORE:
    return UOp(Ops.GROUP) if known is False else None
  alternative = u.src[1] if len(u.src) > 1 else UOp.const(u.dtype, 0)
  kind = pointer_type(pointer)
  lanes = u.dtype.count // kind.base.count
  if kind.size < 1 or known is False:
    return alternative
  if gate.dtype.count > 1:
    return u.replace(src=(u.src[0], alternative))
  if kind.size < lanes:  # a wide load does not even fit at element 0
    return pointer.index(offset, gate.broadcast(lanes)).load(alternative, u.dtype)
  safe = simplify(gate.where(offset, number(0)))
  loaded = pointer.index(safe).load(dtype=u.dtype)
  return gate.broadcast(u.dtype.count).where(loaded, alternative)
