"""Ways to build nodes from nodes, in families that `UOp` inherits: movement, memory and loops. See also arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from tiny_uop.args import Accumulate, AxisType, Stage
from tiny_uop.dtype import AddrSpace, DType, PtrDType, dtypes
from tiny_uop.node import Node
from tiny_uop.ops import Ops
from tiny_uop.shape import Shape, prod, same_size, sint, split_geometry

if TYPE_CHECKING:
  from tiny_uop.sharding import Sharding
  from tiny_uop.uop import UOp


# UOp and UOp.const: tiny_uop.uop puts them here, since UOp inherits from the classes below. An import inside of a
# function would take as long as making the node.
_make = cast("Callable[..., UOp]", None)
_const = cast("Callable[[DType, Any], UOp]", None)


class Movement(Node):
  """Views of a tensor-level value. Raise ValueError where the geometry does not fit."""

  __slots__ = ()

  def _move(self, op: Ops, geometry: Sequence[sint]) -> UOp:
    arg, extra = split_geometry(geometry)
    return _make(op, self.dtype, (self, *extra), arg)

  def _axes(self) -> Shape:
    return cast("UOp", self).shape

  def reshape(self, shape: Sequence[sint]) -> UOp:
    """The same elements in the same order under another shape."""
    old, new = self._axes(), tuple(shape)
    if old == new:
      return cast("UOp", self)
    if not same_size(prod(old), prod(new)):
      raise ValueError(f"cannot reshape {old} to {new}: {prod(old)} and {prod(new)} elements")
    return self._move(Ops.RESHAPE, new)

  def expand(self, shape: Sequence[sint]) -> UOp:
    """Repeat axes of size 1."""
    old, new = self._axes(), tuple(shape)
    if old == new:
      return cast("UOp", self)
    if len(old) != len(new) or any(not same_size(o, n) and not same_size(o, 1) for o, n in zip(old, new, strict=True)):
      raise ValueError(f"cannot expand {old} to {new}: as many axes, and only axes of size 1 can change")
    return self._move(Ops.EXPAND, new)

  def permute(self, order: Sequence[int]) -> UOp:
    """Reorder the axes: axis i of the result is axis `order[i]`."""
    rank, new = len(self._axes()), tuple(order)
    if sorted(new) != list(range(rank)):
      raise ValueError(f"permutation {new} does not name each of the {rank} axes once")
    return cast("UOp", self) if new == tuple(range(rank)) else _make(Ops.PERMUTE, self.dtype, (self,), new)

  def pad(self, padding: Sequence[tuple[sint, sint]]) -> UOp:
    """Add zeros: (before, after) per axis."""
    shape, flat = self._axes(), [p for pair in padding for p in pair]
    if len(flat) != 2 * len(shape) or any(isinstance(p, int) and p < 0 for p in flat):
      raise ValueError(f"padding {tuple(padding)} for shape {shape}: one (before, after) per axis, none negative")
    return cast("UOp", self) if all(isinstance(p, int) and p == 0 for p in flat) else self._move(Ops.PAD, flat)

  def shrink(self, bounds: Sequence[tuple[sint, sint]]) -> UOp:
    """Keep [start, stop) of each axis."""
    shape, flat = self._axes(), [b for pair in bounds for b in pair]
    if len(flat) != 2 * len(shape):
      raise ValueError(f"bounds {tuple(bounds)} for shape {shape}: one (start, stop) per axis")
    for (start, stop), size in zip(bounds, shape, strict=True):
      known = isinstance(start, int) and isinstance(stop, int) and isinstance(size, int)
      if known and not 0 <= start <= stop <= size:
        raise ValueError(f"cannot shrink an axis of size {size} to [{start}, {stop})")
    whole = all(same_size(a, 0) and same_size(b, s) for (a, b), s in zip(bounds, shape, strict=True))
    return cast("UOp", self) if whole else self._move(Ops.SHRINK, flat)

  def flip(self, axes: Sequence[int]) -> UOp:
    """Reverse axes."""
    rank, chosen = len(self._axes()), tuple(sorted(set(axes)))
    if any(not 0 <= a < rank for a in chosen):
      raise ValueError(f"cannot flip axes {tuple(axes)} of a value with {rank} axes")
    return _make(Ops.FLIP, self.dtype, (self,), chosen) if chosen else cast("UOp", self)

  def reduce_axes(self, op: Ops, axes: Sequence[int]) -> UOp:
    """Combine along axes with ADD, MUL or MAX; they stay with size 1."""
    rank, chosen = len(self._axes()), tuple(sorted(set(axes)))
    if any(not 0 <= a < rank for a in chosen):
      raise ValueError(f"cannot reduce axes {tuple(axes)} of a value with {rank} axes")
    return _make(Ops.REDUCE, self.dtype, (self,), (op, chosen)) if chosen else cast("UOp", self)

  def contiguous(self) -> UOp:
    """Materialise here."""
    return cast("UOp", self) if self.op is Ops.CONTIGUOUS else _make(Ops.CONTIGUOUS, self.dtype, (self,))

  def contiguous_backward(self) -> UOp:
    """Identity whose gradient is materialised."""
    return _make(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,))

  def detach(self) -> UOp:
    """Identity that no gradient passes."""
    return _make(Ops.DETACH, self.dtype, (self,))

  def later_than(self, *before: UOp) -> UOp:
    """The same value, kept in memory: what is computed from it here is computed after the values `before`, and never
    taken for what is computed from the value itself.
    """
    return _make(Ops.BARRIER, self.dtype, (self, *before))

  def copy_to(self, device: str | tuple[str, ...]) -> UOp:
    """The value on another device, or all of it on each of several."""
    return _make(Ops.COPY, self.dtype, (self, _make(Ops.DEVICE, arg=device)))

  def laid_out(self, sharding: Sharding) -> UOp:
    """The value on several devices, all of it on each or a piece on each."""
    me = cast("UOp", self)
    if me.sharding == sharding:
      return me
    if sharding.axis is None:
      return self.copy_to(sharding.devices)
    shape = self._axes()
    pieces = [me.shrink(sharding.region(i, shape)).copy_to(d) for i, d in enumerate(sharding.devices)]
    return _make(Ops.MULTI, self.dtype, tuple(pieces), sharding.axis)

  def assign(self, value: UOp) -> UOp:
    """The contents of this buffer after `value` has been written to it."""
    return _make(Ops.AFTER, self.dtype, (self, _make(Ops.STORE, dtypes.void, (self, value))))


class Memory(Node):
  """Loops, memory and vectors: the kernel and program levels."""

  __slots__ = ()

  @staticmethod
  def range(extent: sint, id: int, kind: AxisType = AxisType.LOOP, dtype: DType = dtypes.index) -> UOp:
    """A loop counter in `[0, extent)`; `id` tells loops of one kernel apart."""
    size = extent if isinstance(extent, Node) else _const(dtype, extent)
    return _make(Ops.RANGE, dtype, (size,), (id, kind))

  @staticmethod
  def special(extent: sint, name: str, dtype: DType = dtypes.index) -> UOp:
    """A hardware counter in `[0, extent)`."""
    size = extent if isinstance(extent, Node) else _const(dtype, extent)
    return _make(Ops.SPECIAL, dtype, (size,), name)

  @staticmethod
  def param(slot: int, dtype: PtrDType) -> UOp:
    """The kernel's buffer argument number `slot`."""
    return _make(Ops.PARAM, dtype, (), slot)

  @staticmethod
  def alloc(id: int, dtype: PtrDType) -> UOp:
    """Near memory that lives for one kernel."""
    return _make(Ops.ALLOC, dtype, (), id)

  def index(self, offset: UOp | int, gate: UOp | None = None) -> UOp:
    """Address of element `offset` of this pointer; with a gate, accesses happen only where it holds."""
    place = offset if isinstance(offset, Node) else _const(dtypes.index, offset)
    return _make(Ops.INDEX, self.dtype, (self, place) if gate is None else (self, place, gate))

  def load(self, alt: UOp | None = None, dtype: DType | None = None) -> UOp:
    """The value at this INDEX (`dtype` a vector for several adjacent elements); `alt` where the gate is false."""
    if not isinstance(self.dtype, PtrDType):
      raise TypeError(f"cannot load through {self!r}: expected a pointer, as INDEX gives")
    return _make(Ops.LOAD, dtype or self.dtype.base, (self,) if alt is None else (self, alt))

  def store(self, value: UOp | float) -> UOp:
    """Write `value` through this INDEX, or at tensor level through this view."""
    if not isinstance(value, Node):
      base = self.dtype.base if isinstance(self.dtype, PtrDType) else self.dtype
      value = _const(base, value)
    return _make(Ops.STORE, dtypes.void, (self, value))

  def accumulate(self, op: Ops, value: UOp | float, atomic: bool = False) -> UOp:
    """Combine what is at this INDEX with `value`, by ADD, MUL, MAX, AND, OR or XOR, as one step.

    Loops in which several iterations may come to one element run in order. `atomic` allows threads to share them
    instead where the device can, in an order that is not always the same.
    """
    stored = self.store(value)
    return _make(Ops.STORE, dtypes.void, stored.src, Accumulate(op, atomic))

  def end(self, *ranges: UOp) -> UOp:
    """Close loops around this effect, first one outermost."""
    return _make(Ops.END, dtypes.void, (self, *ranges)) if ranges else cast("UOp", self)

  def after(self, *deps: UOp) -> UOp:
    """This pointer or buffer, once the dependencies have happened."""
    return _make(Ops.AFTER, self.dtype, (self, *deps)) if deps else cast("UOp", self)

  def reduce(self, op: Ops, *ranges: UOp) -> UOp:
    """Combine over loops, first one outermost."""
    return _make(Ops.REDUCE, self.dtype, (self, *ranges), (op, ())) if ranges else cast("UOp", self)

  def stage(self, *ranges: UOp, space: AddrSpace = AddrSpace.LOCAL, copies: int = 1) -> UOp:
    """Equal to this value, kept in near memory over the tile of `ranges`."""
    return _make(Ops.STAGE, self.dtype, (self, *ranges), Stage(space, copies))

  def barrier(self, *deps: UOp, pending: int | None = None) -> UOp:
    """All threads of the workgroup have passed this effect. `pending`: and all asynchronous STOREs are there but those
    of each thread's last so many groups; what came since the last such BARRIER is the last group."""
    return _make(Ops.BARRIER, dtypes.void, (self, *deps), pending)

  def shuffle(self, mask: int) -> UOp:
    """This value of another thread of the wave: the one whose number is this one's with the bits of `mask` flipped."""
    return _make(Ops.SHUFFLE, self.dtype, (self,), mask)

  def broadcast(self, count: int) -> UOp:
    """A vector of `count` lanes that all hold this scalar."""
    me = cast("UOp", self)
    if count == 1:
      return me
    if self.op is Ops.CONST:
      return _const(self.dtype.vec(count), self.arg)
    return _make(Ops.VECTORIZE, self.dtype.vec(count), (me,) * count)

  def extract(self, *lanes: int) -> UOp:
    """One lane of this vector, or a vector of several."""
    if any(not 0 <= lane < self.dtype.count for lane in lanes):
      raise ValueError(f"lanes {lanes} of a vector with {self.dtype.count} lanes")
    return _make(Ops.EXTRACT, self.dtype.scalar().vec(len(lanes)), (self,), lanes)
