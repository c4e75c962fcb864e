"""Integer expressions of fixed width as expressions over `index`, the mathematical integers, with equal values.

Where bounds show that an operation cannot wrap, it is the plain one; else a remainder is taken. What late passes make
of an expression (shifts, masks, multiply-adds, divisions toward zero) becomes again what it was, so that an offset has
one form from the scheduler to the last pass, and what was proved about it stays proved. What is not known (memory,
floats, sums over loops) becomes a VARIABLE with the bounds of its dtype, or of what is stored where it is loaded from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tiny_uop.bounds import fits
from tiny_uop.dtype import DType, PtrDType, dtypes
from tiny_uop.evaluate import lanes_of
from tiny_uop.graph import memory_of
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.uop import UOp

Lanes = tuple[UOp, ...]
_LONGEST_NAME = 120
_COUNTERS = frozenset({Ops.RANGE, Ops.SPECIAL})
_LOGIC = {Ops.MUL: Ops.AND, Ops.ADD: Ops.OR, Ops.MAX: Ops.OR}
_PLAIN = frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.FLOORDIV, Ops.FLOORMOD})


def _number(value: int) -> UOp:
  return UOp.const(dtypes.index, value)


def _index(op: Ops, *src: UOp) -> UOp:
  return UOp(op, dtypes.index, src)


def _whole(dtype: DType) -> bool:
  """Whether values of this type are integers or bools."""
  return not isinstance(dtype, PtrDType) and dtype.kind in ("int", "uint", "index", "bool")


def memory_name(pointer: UOp) -> str:
  """`PARAM 1` or `ALLOC 0`: the memory that a pointer leads to."""
  memory = memory_of(pointer)
  return f"{memory.op.name} {memory.arg}"


class Exact:
  """Rewrites the expressions of one graph; a node is rewritten once. `stores` are the STOREs of the graph: an ALLOC
  is read only where one of them has written it.
  """

  def __init__(self, stores: Iterable[UOp] = ()) -> None:
    self._lanes: dict[UOp, Lanes] = {}
    self._named: dict[str, UOp] = {}
    self._stored: dict[UOp, list[UOp]] = {}
    self._known: dict[UOp, tuple[int, int]] = {}
    for store in stores:
      self._stored.setdefault(memory_of(store.src[0]), []).append(store.src[1])

  def of(self, root: UOp) -> Lanes:
    """An integer or bool expression as one expression of dtype index or bool for each of its lanes."""
    for u in root.walk(lambda u: u not in self._lanes and not self._unknown(u)):
      if u not in self._lanes:
        self._lanes[u] = self._unknown_lanes(u) if self._unknown(u) else self._node(u)
    return self._lanes[root]

  def _unknown(self, u: UOp) -> bool:
    if u.op in GroupOp.Elementwise:
      return not all(_whole(s.dtype) for s in (u, *u.src)) or u.op is Ops.THREEFRY
    known = (Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.VECTORIZE, Ops.EXTRACT, *_COUNTERS)
    return u.op not in known or not _whole(u.dtype)

  def _node(self, u: UOp) -> Lanes:
    sources = [self._lanes[s] for s in u.src]
    if u.op is Ops.CONST:
      kind = dtypes.bool if u.dtype.kind == "bool" else dtypes.index
      return tuple([UOp.const(kind, v) for v in lanes_of(u.arg, u.dtype.count)])
    if u.op is Ops.BIND:
      return sources[0]
    if u.op is Ops.VARIABLE:
      return (self._register(str(u.arg[0]), u, UOp.variable(*u.arg)),)
    if u.op in _COUNTERS:
      return (UOp(u.op, dtypes.index, sources[0], u.arg),)
    if u.op is Ops.VECTORIZE:
      return tuple([lane for lanes in sources for lane in lanes])
    if u.op is Ops.EXTRACT:
      return tuple([sources[0][lane] for lane in u.arg])
    columns = [s if len(s) == u.dtype.count else s * u.dtype.count for s in sources]
    return tuple([self._alu(u, row, lane) for lane, row in enumerate(zip(*columns, strict=True))])

  # *** elementwise ***

  def _alu(self, u: UOp, x: Lanes, lane: int) -> UOp:
    scalar = u.dtype.scalar()
    if u.op in GroupOp.Compare:
      return UOp(u.op, dtypes.bool, x)
    if u.op is Ops.WHERE:
      return UOp(u.op, x[1].dtype, x)
    if scalar.kind == "bool":
      if u.op in GroupOp.Convert:
        return x[0] if x[0].dtype is dtypes.bool else x[0].ne(0)
      return UOp(_LOGIC.get(u.op, u.op), dtypes.bool, x)
    if (made := self._integer(u, x)) is not None:
      return _wrapped(made, scalar)
    return self._fresh(f"{u.op.name.lower()} of lane {lane}" if u.dtype.count > 1 else u.op.name.lower(), u)

  def _integer(self, u: UOp, x: Lanes) -> UOp | None:
    """The result before it wraps; None where there is no expression for it."""
    if u.op in GroupOp.Convert:
      return x[0].where(_number(1), 0) if x[0].dtype is dtypes.bool else x[0]
    if (rewrite := _REWRITES.get(u.op)) is not None:
      return rewrite(*x)
    return _index(u.op, *x) if u.op in _PLAIN else None

  # *** leaves ***

  def _unknown_lanes(self, u: UOp) -> Lanes:
    name, count = self._name(u), u.dtype.count
    return tuple([self._fresh(f"{name}.{lane}" if count > 1 else name, u) for lane in range(count)])

  def _name(self, u: UOp) -> str:
    if u.op is not Ops.LOAD or u.src[0].op is not Ops.INDEX:
      return u.op.name.lower()
    pointer, offset = u.src[0].src[:2]
    text = f"{memory_name(pointer)}[{self.of(offset)[0].render()}]"
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"

  def _fresh(self, name: str, u: UOp) -> UOp:
    """A VARIABLE for a value of which only the bounds are known; a bool is one that is 0 or 1."""
    scalar = u.dtype.scalar()
    if not _whole(scalar):
      return UOp.const(dtypes.bool, False)  # a float or an effect: its users are unknown themselves
    low, high = self._loaded(u) if u.op is Ops.LOAD else (int(u.vmin), int(u.vmax))
    made = self._register(name, None, UOp.variable(name, low, high))
    return made.ne(0) if scalar.kind == "bool" else made

  def _loaded(self, load: UOp) -> tuple[int, int]:
    """Bounds of what is loaded: for an ALLOC of what is stored there. An accumulator stores what it held, too, which
    adds nothing to the bounds of a maximum.
    """
    memory = memory_of(load.src[0])
    known = self._known.get(memory)
    if known is None:
      known = self._known[memory] = (int(load.vmin), int(load.vmax))  # what it is while it is being found out
      if memory.op is Ops.ALLOC and memory in self._stored:
        values = [lane for value in self._stored[memory] for part in _parts(value, memory) for lane in self.of(part)]
        if values and all(v.dtype is dtypes.index for v in values):
          known = self._known[memory] = (min(int(v.vmin) for v in values), max(int(v.vmax) for v in values))
    low, high = known
    if len(load.src) > 1 or len(load.src[0].src) > 2:  # the alternative where the gate does not hold
      others = self.of(load.src[1]) if len(load.src) > 1 else (_number(0),)
      low, high = min(low, *[int(v.vmin) for v in others]), max(high, *[int(v.vmax) for v in others])
    return low, high

  def _register(self, name: str, u: UOp | None, made: UOp) -> UOp:
    """`made`, under a name that no other value has."""
    number, chosen = 1, name
    while chosen in self._named and (u is None or self._named[chosen] is not made):
      number += 1
      chosen = f"{name}#{number}"
    made = made if chosen == name else UOp.variable(chosen, *made.arg[1:])
    self._named[chosen] = made
    return made


def _parts(value: UOp, memory: UOp) -> list[UOp]:
  """Nodes of which a value is always one, or one lane for each of its lanes; loads from `memory` are left out."""
  found: list[UOp] = []
  stack = [value]
  while stack:
    u = stack.pop()
    if u.op in (Ops.MAX, Ops.VECTORIZE, Ops.EXTRACT):
      stack += u.src
    elif u.op is Ops.WHERE:
      stack += u.src[1:]
    elif u.op is not Ops.LOAD or memory_of(u.src[0]) is not memory:
      found.append(u)
  return found


def _wrapped(x: UOp, dtype: DType) -> UOp:
  if fits(dtype, x.vmin, x.vmax):
    return x
  low, span = int(dtypes.min(dtype)), 1 << dtype.bits
  return (x - low) % span + low


def _constant(x: UOp) -> int | None:
  return int(x.arg) if x.op is Ops.CONST else None


def _truncated(toward_zero: Ops, down: Ops) -> Callable[[UOp, UOp], UOp]:
  return lambda x, y: _index(down if x.vmin >= 0 and y.vmin >= 0 else toward_zero, x, y)


def _shift(op: Ops, factor: Ops) -> Callable[[UOp, UOp], UOp | None]:
  def rewrite(x: UOp, count: UOp) -> UOp | None:
    known = _constant(count)
    return None if known is None or not 0 <= known < 64 else _index(factor, x, _number(1 << known))

  return rewrite


def _mask(x: UOp, y: UOp) -> UOp | None:
  known = _constant(y)
  if known is None or known < 0 or known & (known + 1):
    return None
  return _index(Ops.FLOORMOD, x, _number(known + 1))


def _flip(x: UOp, y: UOp) -> UOp | None:
  """x ^ y where one of them is a sign: 0, or -1, which inverts the other."""
  if y.vmin < -1 or y.vmax > 0:
    return _flip(y, x) if x.vmin >= -1 and x.vmax <= 0 else None
  return (y < 0).where(x * -1 - 1, x)


_REWRITES: dict[Ops, Callable[..., UOp | None]] = {
  Ops.NEG: lambda x: x * -1,
  Ops.SUB: lambda x, y: x + y * -1,
  Ops.MULACC: lambda x, y, z: x * y + z,
  Ops.TRUNCDIV: _truncated(Ops.TRUNCDIV, Ops.FLOORDIV),
  Ops.TRUNCMOD: _truncated(Ops.TRUNCMOD, Ops.FLOORMOD),
  Ops.SHL: _shift(Ops.SHL, Ops.MUL),
  Ops.SHR: _shift(Ops.SHR, Ops.FLOORDIV),
  Ops.AND: _mask,
  Ops.XOR: _flip,
}
