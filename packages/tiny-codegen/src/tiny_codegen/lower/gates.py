"""Pass: gated loads become loads that are safe anyway.

A scalar `LOAD(INDEX(p, offset, gate), alternative)` reads element 0 where the gate is false and selects afterwards:
no branch. So does a vector all of whose lanes have one gate; a constant in its offset is added afterwards, so that
neighbours share what is chosen. Other gates of vectors stay, for masked instructions; where a target has none, lanes of
a register with the same gate, which of neighbours in an image are all but those at its edges, are loaded so together.
Gates of scalar stores stay, and become IF … ENDIF when the program is laid out.

Where a target has masks, an accumulator is left as it is in place of adding nothing to it:

    total = total + WHERE(gate, x, 0)    →    total = WHERE(gate, total + x, total)

That is one instruction, a masked addition from memory. A sum that began with 0.0 is never -0.0, so that they are equal.
"""

from __future__ import annotations

from itertools import groupby

from tiny_codegen.kernel.expressions import all_of, clauses, split_constant
from tiny_codegen.kernel.memory import in_register, pointer_type
from tiny_codegen.target import Target
from tiny_uop import ASYNC, GroupOp, Ops, UOp, simplify
from tiny_uop.graph import rebuild


def lower_gates(root: UOp, target: Target) -> UOp:
  """The kernel in which every gated LOAD has a vector gate, as has every gated vector STORE of which only some lanes
  may happen; no gate, where vectors are not loaded under masks. What is copied asynchronously keeps its gate: where it
  does not hold, zeros are written.
  """
  root = rebuild(root, _tidy)
  copied = {u.src[1] for u in root.toposort if u.op is Ops.STORE and u.arg == ASYNC}
  return rebuild(root, lambda u, new: None if u in copied else _lower(new, target))


def _tidy(u: UOp, new: UOp) -> UOp | None:
  """Vectorising and unrolling leave conditions that can be simplified. All are, before a load is made safe: one that is
  read in an address and in its gate stays one node, as does a loop whose end is simpler where a workgroup's place is
  known."""
  if u.op is Ops.RANGE:
    return simplify(new)
  if u.op is Ops.INDEX and new.src[-1].op is not Ops.CONST:
    return simplify(new)
  return _selected(new, simplify(new.src[0])) if u.op is Ops.WHERE else None


def _selected(where: UOp, condition: UOp) -> UOp:
  """A WHERE under a condition that has been simplified."""
  if condition.op is Ops.CONST and not isinstance(condition.arg, tuple):
    return where.src[1] if condition.arg else where.src[2]
  return where.with_src((condition, *where.src[1:]))


def _lower(u: UOp, target: Target) -> UOp | None:
  if u.op not in (Ops.LOAD, Ops.STORE) or u.src[0].op is not Ops.INDEX:
    return None
  if u.op is Ops.STORE and target.has_masks and in_register(u.src[0]):
    return _keep_total(u)
  if len(u.src[0].src) < 3:
    return u.replace(src=u.src[:1]) if u.op is Ops.LOAD and len(u.src) > 1 else None
  pointer, offset, gate = u.src[0].src
  if gate.dtype.count > 1 and offset.dtype.count == 1 and u.op is Ops.LOAD:
    gate = _shared(gate)
    u = u.replace(src=(pointer.index(offset, gate), *u.src[1:]))
  known = gate.arg if gate.op is Ops.CONST and not isinstance(gate.arg, tuple) else None
  if known is True:
    plain = pointer.index(offset)
    return plain.load(dtype=u.dtype) if u.op is Ops.LOAD else u.replace(src=(plain, u.src[1]))
  if u.op is Ops.STORE:
    return _steps_before(pointer) if known is False else None
  alternative = u.src[1] if len(u.src) > 1 else UOp.const(u.dtype, 0)
  kind = pointer_type(pointer)
  lanes = u.dtype.count // kind.base.count
  if kind.size < 1 or known is False:
    return alternative
  if gate.dtype.count > 1:
    return u.replace(src=(u.src[0], alternative)) if target.masked_loads else _in_pieces(u, alternative, target)
  if kind.size < lanes:  # a wide load does not even fit at element 0
    return pointer.index(offset, gate.broadcast(lanes)).load(alternative, u.dtype)
  # elements are read from zeros instead where the whole offset is 0: see `render/llvm/zeros.py`
  safe = _safe(offset, gate, kind.size - lanes if lanes > 1 else 0)
  loaded = pointer.index(safe).load(dtype=u.dtype)
  return gate.broadcast(u.dtype.count).where(loaded, alternative)


def _steps_before(pointer: UOp) -> UOp:
  """What has happened to the memory that a pointer is to: all that is left of a STORE that never happens."""
  return UOp(Ops.GROUP, src=pointer.src[1:] if pointer.op is Ops.AFTER else ())


def _safe(offset: UOp, gate: UOp, last: int) -> UOp:
  """The offset where a gate holds; elsewhere the constant in it, if that is at most `last`, or 0."""
  varying, constant = split_constant(offset)
  if varying is None or not 0 < constant <= last:
    varying, constant = offset, 0
  chosen = simplify(gate.where(varying, varying.const_like(0)))
  return chosen + constant if constant else chosen


def _shared(gate: UOp) -> UOp:
  """A gate of a vector as the scalar that all its lanes share, where that is all of it; else as a vector of which what
  the lanes share is computed once."""
  lanes, shared = list[UOp](), list[UOp]()
  for clause in clauses(gate):
    same = clause.op is Ops.VECTORIZE and len({*clause.src}) == 1 and clause.src[0].dtype.count == 1
    (shared if same else lanes).append(clause.src[0] if same else clause)
  together, rest = all_of(shared), all_of(lanes)
  if together is None or (rest is not None and len(shared) == 1):
    return gate
  return simplify(together) if rest is None else rest.alu(Ops.AND, together.broadcast(gate.dtype.count))


def _keep_total(store: UOp) -> UOp | None:
  """The STORE to an accumulator, which stays as it is where a gate does not hold; None for any other."""
  index, value = store.src
  if len(index.src) > 2 or not _begins_with_zero(index):
    return None
  kept = _kept(value, index)
  return None if kept is None or kept is value else store.replace(src=(index, kept))


def _begins_with_zero(index: UOp) -> bool:
  """Whether the first value of an accumulator is 0, and not -0.0."""
  behind = index.src[0].src[1:] if index.src[0].op is Ops.AFTER else ()
  first = [u.src[1] for u in behind if u.op is Ops.STORE]
  return len(first) == 1 and first[0].op is Ops.CONST and str(first[0].arg) in ("0", "0.0")


def _kept(value: UOp, index: UOp) -> UOp | None:
  """A sum that begins with the LOAD of an accumulator; None for another value."""
  if value.op is Ops.LOAD:
    return value if value.src[0] is index else None
  if value.op is not Ops.ADD or value.dtype.count == 1 or (total := _kept(value.src[0], index)) is None:
    return None
  term = value.src[1]
  if term.op is Ops.WHERE and term.src[2].op is Ops.CONST and term.src[2].arg == 0:
    return term.src[0].where(total + term.src[1], total)
  return total + term


def _in_pieces(u: UOp, alternative: UOp, target: Target) -> UOp | None:
  """A LOAD of a vector whose lanes have gates of their own: in a register, neighbours with one gate are one load. None
  for a gather."""
  pointer, offset, gate = u.src[0].src
  if offset.dtype.count > 1:
    return None
  size, lanes = target.lanes(u.dtype.scalar()), list[UOp]()
  gates = [simplify(_lane(gate, lane)) for lane in range(u.dtype.count)]
  for _, run in groupby(range(u.dtype.count), lambda lane: (lane // size, id(gates[lane]))):
    places = tuple(run)
    others = [_lane(alternative, lane) for lane in places]
    other = others[0].broadcast(len(places)) if len({*others}) == 1 else alternative.extract(*places)
    start, dtype = places[0], u.dtype.scalar().vec(len(places))
    load = pointer.index(simplify(offset + start), gates[start]).load(other, dtype)
    piece = load if (lowered := _lower(load, target)) is None else lowered
    lanes += [piece.extract(lane) for lane in range(dtype.count)] if dtype.count > 1 else [piece]
  return UOp(Ops.VECTORIZE, u.dtype, tuple(lanes))


def _lane(value: UOp, lane: int) -> UOp:
  """One lane of a gate: the same operations for one lane, where it is made of such."""
  if value.dtype.count == 1:
    return value
  if value.op is Ops.CONST:
    return UOp.const(value.dtype.scalar(), value.arg[lane] if isinstance(value.arg, tuple) else value.arg)
  if value.op is Ops.VECTORIZE and len(value.src) == value.dtype.count:
    return value.src[lane]
  if value.op in GroupOp.Elementwise:
    return value.replace(dtype=value.dtype.scalar(), src=tuple([_lane(s, lane) for s in value.src]))
  return value.extract(lane)
