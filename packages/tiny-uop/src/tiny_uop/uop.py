"""`UOp`: the node with its properties and the ways to build new nodes from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from tiny_uop import arithmetic, build
from tiny_uop.arithmetic import Arithmetic
from tiny_uop.build import Memory, Movement
from tiny_uop.dtype import DType, PtrDType, dtypes
from tiny_uop.locks import shared_lock
from tiny_uop.node import cached, recursive
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.shape import Shape, join_geometry, prod, shape_of, sint, split_geometry
from tiny_uop.sharding import Sharding, sharding_of
from tiny_uop.truncate import truncate

_NO_RANGES: frozenset[Any] = frozenset()
Devices: TypeAlias = "str | tuple[str, ...]"
"""Where a value is: the name of a device, or the names of several."""
bound_values_read: list[Callable[[str], None]] = []
"""Called with the name of a variable whose bound value Python takes for a number: who records graphs refuses that."""
_CLOSERS = frozenset({Ops.REDUCE, Ops.END})
_next_buffer_id = 1
# BUFFERs with ids from here on have no memory: stages use them for what they have yet to place
RESERVED_BUFFER_IDS = 1 << 60
_buffer_lock = shared_lock()
_process_name = ""
_foreign: WeakValueDictionary[tuple[str, UOp], UOp] = WeakValueDictionary()
"""For each BUFFER of another process, by that one's name, the one that stands for it here."""


class UOp(Arithmetic, Movement, Memory):
  """A node of the graph: `op`, `dtype`, `src`, `arg`, `tag`. Immutable and hash-consed; see the package README."""

  __slots__ = ()

  # *** properties ***

  @recursive
  def _shape(self: UOp) -> Shape | None:
    return shape_of(self)

  @property
  def shape(self) -> Shape:
    """Sizes of the axes. Raises TypeError for nodes that have none (effects, pointers, devices)."""
    if (shape := self._shape) is None:
      raise TypeError(f"{self.op.name} of dtype {self.dtype} has no shape")
    return shape

  @property
  def size(self) -> sint:
    """Number of elements."""
    return prod(self.shape)

  @recursive
  def _device(self: UOp) -> Devices | None:
    op = self.op
    if op is Ops.DEVICE:
      found: Devices = self.arg
      return found
    if op is Ops.COPY and len(self.src) == 2:
      return self.src[1]._device
    if op is Ops.MULTI:
      return tuple([str(s._device) for s in self.src])
    return next((d for s in self.src if (d := s._device) is not None), None)

  @property
  def device(self) -> Devices | None:
    """Name of the device that the value is on, a tuple of names for one that is on several; None for one that is on
    no particular device (a constant)."""
    return self._device

  @recursive
  def _sharding(self: UOp) -> Sharding | None:
    return sharding_of(self)

  @property
  def sharding(self) -> Sharding | None:
    """How the value lies on several devices; None for one that is on one, or on none. Raises ValueError where sources
    are on different devices."""
    return self._sharding if type(self._device) is tuple else None

  @recursive
  def _around(self: UOp) -> frozenset[UOp]:
    """`ranges` without this node: one that holds itself would not be freed when it is dropped."""
    if self.op is Ops.CALL or not self.src:
      return _NO_RANGES
    open_ranges = self.src[0].ranges
    for s in self.src[1:]:
      other = s.ranges
      if other is not open_ranges and not other <= open_ranges:
        open_ranges = open_ranges | other
    if self.op in _CLOSERS and len(self.src) > 1:
      return open_ranges.difference(self.src[1:])
    return open_ranges

  @property
  def ranges(self) -> frozenset[UOp]:
    """The loops that the value is inside of."""
    return self._around if self.op is not Ops.RANGE else self._around | {self}

  @recursive
  def _bounds(self: UOp) -> tuple[Any, Any]:
    from tiny_uop.bounds import bounds

    return bounds(self)

  @property
  def vmin(self) -> Any:
    """A lower bound of the value (exact where cheaply known)."""
    return self._bounds[0]

  @property
  def vmax(self) -> Any:
    """An upper bound of the value."""
    return self._bounds[1]

  @recursive
  def key(self: UOp) -> bytes:
    """SHA-256 of the structure; the same in every process."""
    import hashlib  # late: it loads OpenSSL

    head = f"{self.op.name} {self.dtype.name} {self.arg!r} {self.tag!r}".encode()
    return hashlib.sha256(b"".join([head, *(s.key for s in self.src)])).digest()

  @cached
  def variables(self: UOp) -> tuple[UOp, ...]:
    """The VARIABLEs of the graph, sorted by name."""
    return tuple(sorted((u for u in self.walk() if u.op is Ops.VARIABLE), key=lambda u: str(u.arg[0])))

  @property
  def geometry(self) -> Shape:
    """The argument of a movement op with its symbolic entries filled in."""
    return join_geometry(self.arg, self.src[1:])

  @property
  def base(self) -> UOp:
    """The node below all movement ops."""
    node: UOp = self
    while node.op in GroupOp.Movement:
      node = node.src[0]
    return node

  # *** new nodes ***

  def replace(self, **fields: Any) -> UOp:
    """The same node with other `op`, `dtype`, `src`, `arg` or `tag`. Raises TypeError for any other name."""
    if unknown := fields.keys() - {"op", "dtype", "src", "arg", "tag"}:
      raise TypeError(f"a UOp has no field {', '.join(sorted(unknown))}: expected op, dtype, src, arg or tag")
    get = fields.get
    return UOp(
      get("op", self.op), get("dtype", self.dtype), get("src", self.src), get("arg", self.arg), get("tag", self.tag)
    )  # fmt: skip

  def with_src(self, src: tuple[UOp, ...]) -> UOp:
    """The same node over other sources."""
    return self if src == self.src else UOp(self.op, self.dtype, src, self.arg, self.tag)

  def rtag(self, tag: Any = True) -> UOp:
    """The same node with another tag."""
    return UOp(self.op, self.dtype, self.src, self.arg, tag)

  def substitute(self, changes: Mapping[UOp, UOp]) -> UOp:
    """The graph with every node that is a key of `changes` replaced; replacements are not searched again."""
    if not changes:
      return self
    done: dict[UOp, UOp] = dict(changes)
    for node in self.walk(lambda u: u not in changes):
      if node not in done:
        done[node] = node.with_src(tuple([done[s] for s in node.src]))
    return done[self]

  def bind(self, value: int) -> UOp:
    """BIND of this VARIABLE to a value. Raises ValueError outside its bounds."""
    if self.op is not Ops.VARIABLE:
      raise TypeError(f"only a VARIABLE can be bound, got {self.op.name}")
    name, low, high = self.arg
    if not low <= value <= high:
      raise ValueError(f"variable {name!r} has bounds [{low}, {high}], cannot bind it to {value}")
    return UOp(Ops.BIND, self.dtype, (self, UOp.const(self.dtype, value)))

  def unbind(self) -> tuple[UOp, int]:
    """The VARIABLE and the value of a BIND."""
    if self.op is not Ops.BIND:
      raise TypeError(f"only a BIND can be unbound, got {self.op.name}")
    return self.src[0], int(self.src[1].arg)

  # *** constructors ***

  @staticmethod
  def const(dtype: DType, value: Any, shape: Shape | None = None) -> UOp:
    """A constant, rounded to `dtype`; a tuple of values makes a vector; `shape` broadcasts it at tensor level."""
    scalar = dtype.scalar()
    if type(value) is tuple:
      lanes = tuple([truncate(scalar, v) for v in value])
      if len(lanes) != dtype.count:
        raise ValueError(f"{len(lanes)} values for a constant of {dtype}, which has {dtype.count} lanes")
      same = all(repr(v) == repr(lanes[0]) for v in lanes)
      return UOp(Ops.CONST, dtype, (), lanes[0] if same else lanes)
    node = UOp(Ops.CONST, dtype, (), truncate(scalar, value))
    return node.filling(shape) if shape else node

  def filling(self, shape: Shape) -> UOp:
    """A tensor-level scalar repeated to a shape."""
    arg, extra = split_geometry(shape)
    one = UOp(Ops.RESHAPE, self.dtype, (self,), (1,) * len(arg)) if arg else self
    return one if arg == one.arg else UOp(Ops.EXPAND, self.dtype, (one, *extra), arg)

  @staticmethod
  def variable(name: str, low: int, high: int, dtype: DType = dtypes.index) -> UOp:
    """A symbolic integer in `[low, high]`. Raises ValueError for an empty interval."""
    if low > high:
      raise ValueError(f"variable {name!r} has no values: minimum {low} is above maximum {high}")
    return UOp(Ops.VARIABLE, dtype, (), (name, low, high))

  @staticmethod
  def new_buffer(device: Devices, size: int, dtype: DType) -> UOp:
    """A BUFFER that no one else has."""
    return UOp(Ops.BUFFER, dtype, (UOp(Ops.DEVICE, arg=device),), (new_buffer_id(), size))

  @staticmethod
  def sink(*src: UOp, arg: Any = None) -> UOp:
    """Several roots in one."""
    return UOp(Ops.SINK, dtypes.void, src, arg)

  @staticmethod
  def group(*src: UOp) -> UOp:
    """Several effects as one."""
    return src[0] if len(src) == 1 else UOp(Ops.GROUP, dtypes.void, src)

  # *** showing ***

  def render(self) -> str:
    """A scalar expression as an infix formula."""
    from tiny_uop.text.formula import render_formula

    return render_formula(self)

  def __repr__(self) -> str:
    sources = ", ".join(s.op.name for s in self.src)
    arg = "" if self.arg is None else f" arg={self.arg!r}"
    return f"<{self.op.name} {self.dtype}({sources}){arg}>"

  def __bool__(self) -> bool:
    if self.op is Ops.CONST:
      return bool(self.arg)
    if self.dtype is not dtypes.void and not isinstance(self.dtype, PtrDType) and self._shape == ():
      low, high = self._bounds
      if bool(low) == bool(high) and (bool(low) is False or low > 0 or high < 0):
        return bool(low)
    raise TypeError(f"the truth of {self!r} is not known at this point: it depends on values")

  def __int__(self) -> int:
    if self.op is Ops.CONST:
      return int(self.arg)
    if self.op is Ops.BIND:
      variable, value = self.unbind()
      for told in bound_values_read:
        told(str(variable.arg[0]))
      return value
    raise TypeError(f"{self!r} is symbolic: bind its variables, or use its vmin and vmax")

  def __index__(self) -> int:
    return self.__int__()


arithmetic._make, arithmetic._const = build._make, build._const = UOp, UOp.const


def new_buffer_id() -> int:
  """An id that no BUFFER of this process has."""
  global _next_buffer_id
  with _buffer_lock:
    number, _next_buffer_id = _next_buffer_id, _next_buffer_id + 1  # nothing runs in between that could take it as well
  return number


def reserve_buffer_id(used: int) -> None:
  """Keep `new_buffer_id` from giving `used`: a BUFFER with this id came from text."""
  global _next_buffer_id
  if used >= RESERVED_BUFFER_IDS:
    return
  with _buffer_lock:
    _next_buffer_id = max(_next_buffer_id, used + 1)


def process_name() -> str:
  """A word that no other process has, forked ones included."""
  global _process_name
  with _buffer_lock:
    _process_name = _process_name or os.urandom(8).hex()
    return _process_name


def with_own_buffers(graph: UOp, process: str) -> UOp:
  """The graph of another process with new BUFFERs in place of its, which may have the ids of ours; the same ones again
  for the same BUFFERs of that process."""
  changes: dict[UOp, UOp] = {}
  for node in graph.walk():
    if node.op is Ops.BUFFER and node.arg[0] < RESERVED_BUFFER_IDS:
      key, mine = (process, node), node.replace(arg=(new_buffer_id(), *node.arg[1:]))
      changes[node] = _foreign.setdefault(key, mine)
  return graph.substitute(changes)


def _in_child() -> None:
  global _process_name
  _process_name = ""


if hasattr(os, "register_at_fork"):
  os.register_at_fork(after_in_child=_in_child)
