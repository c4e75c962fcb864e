"""The records that stand in a node's `arg`. They are literals: frozen, hashable and printed by the textual form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tiny_uop.dtype import AddrSpace, DType
from tiny_uop.ops import Named, Ops
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_uop.shape import Shape, sint


class AxisType(Named):
  """What a loop is for. The scheduler makes LOOP and REDUCE; the optimiser makes the others of them.

  The iterations of an ORDER loop happen one after another: each may change what the ones before have left in memory.
  """

  LOOP = "loop"
  """An ordinary loop: its iterations may happen in any order."""
  REDUCE = "reduce"
  """The loop that a reduction goes over."""
  ORDER = "order"
  """A loop whose iterations happen one after another."""
  THREAD = "thread"
  """The threads of a processor share it."""
  GLOBAL = "global"
  """The workgroups of a GPU share it."""
  LOCAL = "local"
  """The threads of a workgroup share it."""
  GROUP = "group"
  """The threads of a workgroup share it, and combine what each has of a reduction."""
  UPCAST = "upcast"
  """A loop that is written out: rows of a register tile."""
  UNROLL = "unroll"
  """A loop of a reduction that is written out."""
  VECTOR = "vector"
  """It becomes the lanes of a vector."""


ASYNC = "async"
"""Argument of a STORE that copies while its thread goes on; see the README, "Kernel level"."""
STREAMING = "streaming"
"""Argument of a STORE of a program that goes past the caches."""


ACCUMULATORS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR)
"""The operations that a STORE can accumulate with."""


@dataclass(frozen=True)
class Accumulate:
  """Argument of a STORE that combines: `memory[offset] = memory[offset] op value`, as one step.

  Within a loop that runs in order, so do its steps. `atomic` says that they may also come from several threads at once,
  in any order.
  """

  op: Ops
  atomic: bool = False


class OptOps(Named):
  """The optimisations that codegen knows; see tiny-codegen."""

  UPCAST = "upcast"
  UNROLL = "unroll"
  VECTOR = "vector"
  LOCAL = "local"
  GROUP = "group"
  THREAD = "thread"
  TC = "tc"
  PADTO = "padto"
  SPLIT = "split"
  BLOCK = "block"
  SWAP = "swap"
  MERGE = "merge"
  STAGE = "stage"
  NOLOCALS = "nolocals"


@dataclass(frozen=True)
class Opt:
  """One optimisation choice: what, on which loop (`axis`: the id of its RANGE), with which argument."""

  op: OptOps
  axis: int | None = None
  arg: int | tuple[int, ...] | None = None


@dataclass(frozen=True)
class Sharding:
  """Where the elements of a value are: all of them on each of `devices` (`axis` None), or piece i, the positions from
  `bounds[i]` to before `bounds[i + 1]` of an axis, on device i. No piece is empty.

  Devices of other processes have their rank behind the name: `CPU@3`. Where there are such, this process's own have
  `@=` and its rank: `CPU@=1` is the device CPU here, in the process of rank 1.
  """

  devices: tuple[str, ...]
  axis: int | None = None
  bounds: tuple[int, ...] = ()

  def region(self, device: int, shape: Shape) -> tuple[tuple[sint, sint], ...]:
    """(start, stop) per axis of what is on a device, given by its number, of a value of a shape."""
    whole: list[tuple[sint, sint]] = [(0, s) for s in shape]
    if self.axis is not None:
      whole[self.axis] = (self.bounds[device], self.bounds[device + 1])
    return tuple(whole)

  def part_shape(self, device: int, shape: Shape) -> Shape:
    """The shape of what is on a device, given by its number, of a value of a shape."""
    if self.axis is None:
      return shape
    length = self.bounds[device + 1] - self.bounds[device]
    return (*shape[: self.axis], length, *shape[self.axis + 1 :])

  @property
  def spans(self) -> bool:
    """Whether the devices belong to several processes."""
    return "@" in self.devices[0]

  @property
  def here(self) -> tuple[int, ...]:
    """The numbers of the devices of this process: all of them, unless they belong to several."""
    if not self.spans:
      return tuple(range(len(self.devices)))
    return tuple([i for i, name in enumerate(self.devices) if "@=" in name])

  @property
  def homes(self) -> tuple[str, ...]:
    """The devices of this process, as it calls them itself."""
    return tuple([self.devices[i].partition("@")[0] for i in self.here])

  @property
  def ranks(self) -> tuple[int, ...]:
    """The rank of each device; of devices of one process, none."""
    return tuple([int(name.partition("@")[2].lstrip("=")) for name in self.devices]) if self.spans else ()

  def along(self, axis: int | None, bounds: Sequence[int] = ()) -> Sharding:
    """Another layout on the same devices."""
    return Sharding(self.devices, axis, tuple(bounds))

  def evenly(self, axis: int, size: sint) -> Sharding:
    """Pieces of an axis as equal as can be; all of it on each device where there are fewer positions than devices."""
    if not isinstance(size, int) or size < len(self.devices):
      return self.along(None)
    return self.along(axis, even_bounds(size, len(self.devices)))


def even_bounds(size: int, count: int) -> tuple[int, ...]:
  """Where `count` pieces of an axis begin, and its end: the first `size % count` of them are one longer."""
  length, longer = divmod(size, count)
  return tuple([i * length + min(i, longer) for i in range(count + 1)])


@dataclass(frozen=True)
class Collective:
  """Argument of COLLECTIVE: what several processes (ranks) do together, each with arrays of its own.

  Of array k this rank sends `sent[k][p]` elements to the rank at position p of `ranks`, one part after the other, and
  gets `received[k][p]` from it: of itself what it sends itself, or nothing, as it has that anyway. With "all_gather" it
  sends all ranks the same, and both are what each rank has.
  """

  kind: str
  """"all_gather": every rank gets what all have, in the order of the ranks. "all_to_all": every rank has a part for
  each. "all_reduce", "reduce_scatter": sums over the ranks, whole or `received` elements at each; tiny-sched makes them
  of the others, or leaves them to the fabric. "broadcast": what the first of `ranks` has."""
  ranks: tuple[int, ...]
  """The processes that take part, by number, in the order that results have."""
  sent: tuple[tuple[int, ...], ...] = ()
  received: tuple[tuple[int, ...], ...] = ()
  position: int = 0
  """Of this process in `ranks`."""
  op: Ops | None = None
  """What a sum is made with: ADD, MUL or MAX."""
  number: int = 0
  """Its place among the collectives of the schedule: all ranks keep to that order."""
  graph: str = ""
  """Of the graph that it belongs to, as all ranks have it: a digest that they compare."""


@dataclass(frozen=True)
class KernelInfo:
  """Argument of a kernel's SINK. `opts` None means the optimiser chooses; a tuple is applied as given."""

  name: str = "kernel"
  opts: tuple[Opt, ...] | None = None


@dataclass(frozen=True)
class Stage:
  """Argument of STAGE: the memory that the tile is kept in, and how many copies of it.

  `copies` belongs to the textual form; nothing reads it. The pass `double_buffer` of tiny-codegen decides how many
  there are, one to four.
  """

  space: AddrSpace = AddrSpace.LOCAL
  copies: int = 1


@dataclass(frozen=True)
class ParamInfo:
  """One buffer argument of a program: PARAM slot, element type, size in elements, whether it is written / read."""

  slot: int
  dtype: DType
  size: int
  written: bool
  read: bool


@dataclass(frozen=True)
class ProgramInfo:
  """Argument of PROGRAM: how to call it. Integers are passed in the order of `variables`."""

  name: str
  target: str
  params: tuple[ParamInfo, ...]
  variables: tuple[str, ...]


@dataclass(frozen=True)
class CustomGradient:
  """Argument of CUSTOM_GRADIENT: which derivative (`number` is its identity in this process), how many of the bundle's
  sources are inputs, and which of its results, from 0, the node is.
  """

  name: str
  number: int
  inputs: int
  output: int = 0


ARG_TYPES: dict[str, type] = {
  t.__name__: t
  for t in (
    AxisType,
    AddrSpace,
    OptOps,
    Opt,
    Sharding,
    Collective,
    KernelInfo,
    Stage,
    Accumulate,
    ParamInfo,
    ProgramInfo,
    CustomGradient,
  )
}

_T = TypeVar("_T", bound=type)


def register_arg(cls: _T) -> _T:
  """Class decorator: lets a frozen dataclass or an enum stand in `UOp.arg`; the textual form prints it by name.

  Raises ValueError when another class has taken the name.
  """
  if ARG_TYPES.setdefault(cls.__name__, cls) is not cls:
    raise ValueError(f"an argument class named {cls.__name__!r} is already registered: {ARG_TYPES[cls.__name__]!r}")
  return cls


def mistyped_field(record: Any) -> str | None:
  """What is wrong with a record whose values come from elsewhere: the first field whose value is not of its type.

  Types are checked that are classes, unions and tuples of these; any other declaration allows everything.
  """
  hints = _hints(type(record))
  for field in fields(record):
    value = getattr(record, field.name)
    if not _fits(value, hints.get(field.name, Any)):
      return f"field {field.name} is {value!r}, expected {field.type}"
  return None


_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)


def _fits(value: Any, hint: Any) -> bool:
  origin, parts = get_origin(hint), get_args(hint)
  if origin in (Union, UnionType):
    return any(_fits(value, part) for part in parts)
  if origin is tuple:
    kinds = parts[:1] * len(value) if isinstance(value, tuple) and parts[1:] == (...,) else parts
    return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
  if not isinstance(hint, type) or origin is not None:
    return True
  # True is an int for Python, and an int would do for a float: a literal says which it is
  return type(value) is hint if hint in (int, bool, float, str) else isinstance(value, hint)
