"""`UOp`: the node with its properties and the ways to build new nodes from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from tiny_uop.args import Accumulate, AxisType, Sharding, Stage
from tiny_uop.bounds import bounds
from tiny_uop.dtype import AddrSpace, DType, PtrDType, dtypes
from tiny_uop.locks import in_child, shared_lock
from tiny_uop.node import Node, cached, recursive
from tiny_uop.operators import Operators
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.shape import Shape, join_geometry, prod, same_size, shape_of, sint, split_geometry
from tiny_uop.sharding import sharding_of
from tiny_uop.truncate import truncate

_NO_RANGES: frozenset[Any] = frozenset()
_CLOSERS = frozenset({Ops.REDUCE, Ops.END})
Devices: TypeAlias = "str | tuple[str, ...]"
"""Where a value is: the name of a device, or the names of several."""
bound_values_read: list[Callable[[str], None]] = []
"""Called with the name of a variable whose bound value Python takes for a number: who records graphs refuses that."""


class UOp(Operators["UOp | float"], Node):
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
      if isinstance(self.arg, Sharding):
        return self.arg.devices
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
    open_ranges: frozenset[UOp] = _NO_RANGES
    for s in self.src:
      other = s._around if s.op is not Ops.RANGE else s.ranges
      if other is not open_ranges and not other <= open_ranges:
        open_ranges = other if open_ranges <= other else open_ranges | other  # mostly a set that is there
    if self.op in _CLOSERS and len(self.src) > 1:
      return open_ranges.difference(self.src[1:])
    return open_ranges

  @property
  def ranges(self) -> frozenset[UOp]:
    """The loops that the value is inside of."""
    return self._around if self.op is not Ops.RANGE else self._around | {self}

  @recursive
  def _bounds(self: UOp) -> tuple[Any, Any]:
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
    from tiny_uop.system import sha256  # late: not every program has a key

    head = f"{self.op.name} {self.dtype.name} {self.arg!r} {self.tag!r}".encode()
    return sha256(b"".join([head, *(s.key for s in self.src)])).digest()

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
    # most nodes are made here: to call the class takes a third longer
    return self if src == self.src else UOp.__new__(UOp, self.op, self.dtype, src, self.arg, self.tag)

  def rtag(self, tag: Any = True) -> UOp:
    """The same node with another tag."""
    return UOp(self.op, self.dtype, self.src, self.arg, tag)

  def substitute(self, changes: Mapping[UOp, UOp]) -> UOp:
    """The graph with every node that is a key of `changes` replaced; replacements are not searched again."""
    if not changes:
      return self
    done = dict(changes)
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
    if not shape:
      return self
    arg, extra = split_geometry(shape)
    one = UOp(Ops.RESHAPE, self.dtype, (self,), (1,) * len(arg))
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

  # *** elementwise operations ***

  def const_like(self, value: Any) -> UOp:
    """A constant of this node's dtype and, at tensor level, shape."""
    shape = self._shape
    made = UOp.const(self.dtype, value)
    return made.filling(shape) if shape else made

  def alu(self, op: Ops, *src: UOp) -> UOp:
    """An elementwise node with this as its first source; gives bool for comparisons."""
    dtype = src[-1].dtype if op is Ops.WHERE else self.dtype
    return UOp(op, dtypes.bool.vec(dtype.count) if op in GroupOp.Compare else dtype, (self, *src))

  def _other(self, value: Any) -> UOp:
    return value if isinstance(value, UOp) else self.const_like(value)

  def __neg__(self) -> UOp:
    if self.op is Ops.CONST and type(self.arg) is not tuple:
      return UOp.const(self.dtype, -self.arg)
    return self._binary(Ops.MUL, -1)

  def __invert__(self) -> UOp:
    return self.logical_not() if self.dtype.kind == "bool" else self._binary(Ops.XOR, -1)

  def __le__(self, other: UOp | float) -> UOp:
    # not (other < self) would be true for NaN
    return (self < other) | self.eq(other) if self.dtype.kind == "float" else (self > other).logical_not()

  def __ge__(self, other: UOp | float) -> UOp:
    return (self > other) | self.eq(other) if self.dtype.kind == "float" else (self < other).logical_not()

  def minimum(self, other: UOp | float) -> UOp:
    """Elementwise minimum, made of the maximum of the complements."""
    right = self._other(other)
    if self.dtype.kind in ("float", "index"):
      return -((-self).maximum(-right))
    return ~((~self).maximum(~right))

  def where(self, yes: UOp | float, no: UOp | float) -> UOp:
    """`yes` where this bool holds, else `no`. At least one of them is a node."""
    if not isinstance(yes, UOp):
      if not isinstance(no, UOp):
        raise TypeError(f"where({yes!r}, {no!r}): one branch must be a UOp, which gives the dtype")
      yes = no.const_like(yes)
    return self.alu(Ops.WHERE, yes, yes._other(no))

  def cast(self, dtype: DType) -> UOp:
    """Convert to another type with as many lanes."""
    if dtype.count == 1 and self.dtype.count > 1:
      dtype = dtype.vec(self.dtype.count)
    if dtype is self.dtype:
      return self
    return UOp.const(dtype, self.arg) if self.op is Ops.CONST and not self.src else UOp(Ops.CAST, dtype, (self,))

  def bitcast(self, dtype: DType) -> UOp:
    """Reinterpret the bits."""
    return self if dtype is self.dtype else UOp(Ops.BITCAST, dtype, (self,))

  def exp2(self) -> UOp:
    """2 to the power of it. Floats only, as for the functions below."""
    return self.alu(Ops.EXP2)

  def log2(self) -> UOp:
    """Logarithm to base 2; -inf for 0, NaN below."""
    return self.alu(Ops.LOG2)

  def exp(self) -> UOp:
    """e to the power of it."""
    return self.alu(Ops.EXP)

  def log(self) -> UOp:
    """Natural logarithm; -inf for 0, NaN below."""
    return self.alu(Ops.LOG)

  def sin(self) -> UOp:
    """Sine of radians."""
    return self.alu(Ops.SIN)

  def cos(self) -> UOp:
    """Cosine of radians."""
    return self.alu(Ops.COS)

  def sqrt(self) -> UOp:
    """Square root; NaN below 0."""
    return self.alu(Ops.SQRT)

  def trunc(self) -> UOp:
    """The integer next to it, toward zero."""
    return self.alu(Ops.TRUNC)

  def reciprocal(self) -> UOp:
    """`1 / x`, rounded once."""
    return self._binary(Ops.FDIV, 1, swap=True)

  def threefry(self, key: UOp) -> UOp:
    """Threefry-2x32 of this counter under a key; both uint64."""
    return self.alu(Ops.THREEFRY, key)

  # *** movement and other tensor-level operations; ValueError where the geometry does not fit ***

  def _move(self, op: Ops, geometry: Sequence[sint]) -> UOp:
    arg, extra = split_geometry(geometry)
    return UOp(op, self.dtype, (self, *extra), arg)

  def reshape(self, shape: Sequence[sint]) -> UOp:
    """The same elements in the same order under another shape."""
    old, new = self.shape, tuple(shape)
    if old == new:
      return self
    if not same_size(prod(old), prod(new)):
      raise ValueError(f"cannot reshape {old} to {new}: {prod(old)} and {prod(new)} elements")
    return self._move(Ops.RESHAPE, new)

  def expand(self, shape: Sequence[sint]) -> UOp:
    """Repeat axes of size 1."""
    old, new = self.shape, tuple(shape)
    if old == new:
      return self
    if len(old) != len(new) or any(not same_size(o, n) and not same_size(o, 1) for o, n in zip(old, new, strict=True)):
      raise ValueError(f"cannot expand {old} to {new}: as many axes, and only axes of size 1 can change")
    return self._move(Ops.EXPAND, new)

  def permute(self, order: Sequence[int]) -> UOp:
    """Reorder the axes: axis i of the result is axis `order[i]`."""
    rank, new = len(self.shape), tuple(order)
    if sorted(new) != list(range(rank)):
      raise ValueError(f"permutation {new} does not name each of the {rank} axes once")
    return self if new == tuple(range(rank)) else UOp(Ops.PERMUTE, self.dtype, (self,), new)

  def pad(self, padding: Sequence[tuple[sint, sint]]) -> UOp:
    """Add zeros: (before, after) per axis."""
    shape, flat = self.shape, [p for pair in padding for p in pair]
    if len(flat) != 2 * len(shape) or any(isinstance(p, int) and p < 0 for p in flat):
      raise ValueError(f"padding {tuple(padding)} for shape {shape}: one (before, after) per axis, none negative")
    return self if all(isinstance(p, int) and p == 0 for p in flat) else self._move(Ops.PAD, flat)

  def shrink(self, bounds: Sequence[tuple[sint, sint]]) -> UOp:
    """Keep [start, stop) of each axis."""
    shape, flat = self.shape, [b for pair in bounds for b in pair]
    if len(flat) != 2 * len(shape):
      raise ValueError(f"bounds {tuple(bounds)} for shape {shape}: one (start, stop) per axis")
    for (start, stop), size in zip(bounds, shape, strict=True):
      known = isinstance(start, int) and isinstance(stop, int) and isinstance(size, int)
      if known and not 0 <= start <= stop <= size:
        raise ValueError(f"cannot shrink an axis of size {size} to [{start}, {stop})")
    whole = all(same_size(a, 0) and same_size(b, s) for (a, b), s in zip(bounds, shape, strict=True))
    return self if whole else self._move(Ops.SHRINK, flat)

  def _axes(self, verb: str, axes: Sequence[int]) -> tuple[int, ...]:
    """Axes of this value, each once and in order."""
    rank, chosen = len(self.shape), tuple(sorted(set(axes)))
    if chosen and not 0 <= chosen[0] <= chosen[-1] < rank:
      raise ValueError(f"cannot {verb} axes {tuple(axes)} of a value with {rank} axes")
    return chosen

  def flip(self, axes: Sequence[int]) -> UOp:
    """Reverse axes."""
    chosen = self._axes("flip", axes)
    return UOp(Ops.FLIP, self.dtype, (self,), chosen) if chosen else self

  def reduce_axes(self, op: Ops, axes: Sequence[int]) -> UOp:
    """Combine along axes with ADD, MUL or MAX; they stay with size 1."""
    chosen = self._axes("reduce", axes)
    return UOp(Ops.REDUCE, self.dtype, (self,), (op, chosen)) if chosen else self

  def contiguous(self) -> UOp:
    """Materialise here."""
    return self if self.op is Ops.CONTIGUOUS else UOp(Ops.CONTIGUOUS, self.dtype, (self,))

  def contiguous_backward(self) -> UOp:
    """Identity whose gradient is materialised."""
    return UOp(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,))

  def detach(self) -> UOp:
    """Identity that no gradient passes."""
    return UOp(Ops.DETACH, self.dtype, (self,))

  def later_than(self, *before: UOp) -> UOp:
    """The same value, kept in memory: what is computed from it here is computed after the values `before`, and never
    taken for what is computed from the value itself.
    """
    return UOp(Ops.BARRIER, self.dtype, (self, *before))

  def copy_to(self, device: str | tuple[str, ...]) -> UOp:
    """The value on another device, or all of it on each of several."""
    return UOp(Ops.COPY, self.dtype, (self, UOp(Ops.DEVICE, arg=device)))

  def laid_out(self, sharding: Sharding) -> UOp:
    """The value on several devices, all of it on each or a piece on each."""
    if self.sharding == sharding:
      return self
    if not sharding.cuts:
      return self.copy_to(sharding.devices)
    if sharding.spans:
      return UOp(Ops.COPY, self.dtype, (self, UOp(Ops.DEVICE, arg=sharding.devices)), sharding)
    shape = self.shape
    pieces = [self.shrink(sharding.region(i, shape)).copy_to(d) for i, d in enumerate(sharding.devices)]
    return UOp.multi(sharding, pieces)

  @staticmethod
  def multi(sharding: Sharding, pieces: Sequence[UOp]) -> UOp:
    """A value of its pieces: those on the devices of this process, in their order."""
    apart = sharding.spans or sharding.grid
    return UOp(Ops.MULTI, pieces[0].dtype, tuple(pieces), sharding if apart else sharding.axis)

  def assign(self, value: UOp) -> UOp:
    """The contents of this buffer after `value` has been written to it."""
    return UOp(Ops.AFTER, self.dtype, (self, UOp(Ops.STORE, dtypes.void, (self, value))))

  # *** loops, memory and vectors: the kernel and program levels ***

  @staticmethod
  def range(extent: sint, id: int, kind: AxisType = AxisType.LOOP, dtype: DType = dtypes.index) -> UOp:
    """A loop counter in `[0, extent)`; `id` tells loops of one kernel apart."""
    return UOp(Ops.RANGE, dtype, (_as_uop(extent, dtype),), (id, kind))

  @staticmethod
  def special(extent: sint, name: str, dtype: DType = dtypes.index) -> UOp:
    """A hardware counter in `[0, extent)`."""
    return UOp(Ops.SPECIAL, dtype, (_as_uop(extent, dtype),), name)

  @staticmethod
  def param(slot: int, dtype: PtrDType) -> UOp:
    """The kernel's buffer argument number `slot`."""
    return UOp(Ops.PARAM, dtype, (), slot)

  @staticmethod
  def alloc(id: int, dtype: PtrDType) -> UOp:
    """Memory, local or in registers, that lives for one kernel."""
    return UOp(Ops.ALLOC, dtype, (), id)

  def index(self, offset: UOp | int, gate: UOp | None = None) -> UOp:
    """Address of element `offset` of this pointer; with a gate, accesses happen only where it holds."""
    place = offset if isinstance(offset, UOp) else UOp.const(dtypes.index, offset)
    return UOp(Ops.INDEX, self.dtype, (self, place) if gate is None else (self, place, gate))

  def load(self, alt: UOp | None = None, dtype: DType | None = None) -> UOp:
    """The value at this INDEX (`dtype` a vector for several adjacent elements); `alt` where the gate is false."""
    if not isinstance(self.dtype, PtrDType):
      raise TypeError(f"cannot load through {self!r}: expected a pointer, as INDEX gives")
    return UOp(Ops.LOAD, dtype or self.dtype.base, (self,) if alt is None else (self, alt))

  def store(self, value: UOp | float) -> UOp:
    """Write `value` through this INDEX, or at tensor level through this view."""
    base = self.dtype.base if isinstance(self.dtype, PtrDType) else self.dtype
    return UOp(Ops.STORE, dtypes.void, (self, _as_uop(value, base)))

  def prefetch(self, access: str = "read", level: int = 1, otherwise: UOp | None = None) -> UOp:
    """Ask for the cache line of this INDEX, which will be read or written: into the caches from `level` on. Where its
    gate is false, for that of the INDEX `otherwise`."""
    return UOp(Ops.PREFETCH, dtypes.void, (self,) if otherwise is None else (self, otherwise), (access, level))

  def accumulate(self, op: Ops, value: UOp | float, atomic: bool = False) -> UOp:
    """Combine what is at this INDEX with `value`, by ADD, MUL, MAX, AND, OR or XOR, as one step.

    Loops in which several iterations may come to one element run in order. `atomic` allows threads to share them
    instead where the device can, in an order that is not always the same.
    """
    stored = self.store(value)
    return UOp(Ops.STORE, dtypes.void, stored.src, Accumulate(op, atomic))

  def end(self, *ranges: UOp) -> UOp:
    """Close loops around this effect, first one outermost."""
    return UOp(Ops.END, dtypes.void, (self, *ranges)) if ranges else self

  def after(self, *deps: UOp) -> UOp:
    """This pointer or buffer, once the dependencies have happened."""
    return UOp(Ops.AFTER, self.dtype, (self, *deps)) if deps else self

  def reduce(self, op: Ops, *ranges: UOp) -> UOp:
    """Combine over loops, first one outermost."""
    return UOp(Ops.REDUCE, self.dtype, (self, *ranges), (op, ())) if ranges else self

  def stage(self, *ranges: UOp, space: AddrSpace = AddrSpace.LOCAL, copies: int = 1) -> UOp:
    """Equal to this value, kept in local memory, or registers, over the tile of `ranges`."""
    return UOp(Ops.STAGE, self.dtype, (self, *ranges), Stage(space, copies))

  def barrier(self, *deps: UOp, pending: int | None = None) -> UOp:
    """All threads of the workgroup have passed this effect. `pending`: and all asynchronous STOREs are there but those
    of each thread's last so many groups; what came since the last such BARRIER is the last group."""
    return UOp(Ops.BARRIER, dtypes.void, (self, *deps), pending)

  def shuffle(self, mask: int) -> UOp:
    """This value of another thread of the subgroup: its number is this thread's with the bits of `mask` flipped."""
    return UOp(Ops.SHUFFLE, self.dtype, (self,), mask)

  def broadcast(self, count: int) -> UOp:
    """A vector of `count` lanes that all hold this scalar."""
    if count == 1:
      return self
    if self.op is Ops.CONST:
      return UOp.const(self.dtype.vec(count), self.arg)
    return UOp(Ops.VECTORIZE, self.dtype.vec(count), (self,) * count)

  def extract(self, *lanes: int) -> UOp:
    """One lane of this vector, or a vector of several."""
    if any(not 0 <= lane < self.dtype.count for lane in lanes):
      raise ValueError(f"lanes {lanes} of a vector with {self.dtype.count} lanes")
    return UOp(Ops.EXTRACT, self.dtype.scalar().vec(len(lanes)), (self,), lanes)

  # *** questions ***

  def checked(self, stage: str = "") -> UOp:
    """The graph itself. Raises SpecError, which names `stage`, where a node of it is legal at no level."""
    from tiny_uop.spec.verify import check_nodes

    check_nodes(self, stage)
    return self

  # *** as text, as a Python value, as a pickle ***

  def render(self) -> str:
    """A scalar expression as an infix formula."""
    from tiny_uop.text.formula import render_formula

    return render_formula(self)

  def __repr__(self) -> str:
    if self.dtype is dtypes.index and (value := self._bound_value()) is not None:
      return f"{self.render()}={value}"  # a size, as errors show it
    sources = ", ".join(s.op.name for s in self.src)
    arg = "" if self.arg is None else f" arg={self.arg!r}"
    return f"<{self.op.name} {self.dtype}({sources}){arg}>"

  def _bound_value(self) -> object:
    """The value of an expression of variables that all are bound; None for others, and for those too long to read."""
    from tiny_uop.evaluate import evaluate

    nodes = list(islice(self.walk(), _READ + 1))
    if len(nodes) > _READ or not any(u.op is Ops.BIND for u in nodes) or any(u.op not in _OF_SIZES for u in nodes):
      return None
    try:
      return evaluate(self)
    except Exception:  # a variable without a value; and a malformed node, which is to be shown, may fail in any way
      return None

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

  def __reduce__(self) -> tuple[Any, ...]:
    place = {u: i for i, u in enumerate(self.toposort)}
    # as a flat list: pickling a deep graph node by node would exhaust the stack
    nodes = [(u.op, u.dtype, tuple([place[s] for s in u.src]), u.arg, u.tag) for u in place]
    return (_unpickled, (nodes, process_name()))


_READ = 64  # nodes of a size that is shown as a formula
_OF_SIZES = frozenset({Ops.BIND, Ops.VARIABLE, Ops.CONST, *GroupOp.Elementwise})


def _as_uop(value: UOp | float, dtype: DType) -> UOp:
  return value if isinstance(value, UOp) else UOp.const(dtype, value)


# *** the identity of BUFFERs, in this process and in others ***

RESERVED_BUFFER_IDS = 1 << 60
"""BUFFERs with ids from here on have no memory: stages use them for what they have yet to place."""
_next_buffer_id = 1
_buffer_lock = shared_lock()
_process_name = ""
_foreign: WeakValueDictionary[tuple[str, UOp], UOp] = WeakValueDictionary()
"""For each BUFFER of another process, by that one's name, the one that stands for it here."""


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


def _unpickled(nodes: list[tuple[Ops, DType, tuple[int, ...], Any, Any]], process: str) -> UOp:
  """The graph of `UOp.__reduce__`."""
  made: list[UOp] = []
  for op, dtype, src, arg, tag in nodes:
    made.append(UOp(op, dtype, tuple([made[i] for i in src]), arg, tag))
  return made[-1] if process == process_name() else with_own_buffers(made[-1], process)


@in_child
def _forget_name() -> None:
  global _process_name
  _process_name = ""
