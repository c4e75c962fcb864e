"""The records that stand in a node's `arg`. They are literals: frozen, hashable and printed by the textual form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tiny_uop.dtype import AddrSpace, DType
from tiny_uop.ops import Named, Ops, members
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_uop.shape import Shape, sint


@members
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


@members
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
class Cut:
  """An axis of a value in pieces: piece i is the positions from `bounds[i]` to before `bounds[i + 1]`; none is empty.

  The pieces lie along axes of the grid of devices, `along`: a device has the piece of its place there, where the last
  of these axes counts the fastest. Devices that differ elsewhere only have the same.
  """

  axis: int
  bounds: tuple[int, ...]
  along: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Sharding:
  """Where the elements of a value are: all of them on each of `devices`, or pieces of some axes, one `Cut` for each.

  `grid` are the sizes of the grid that the devices lie in, row by row; () for one row. `with_cuts` gives the one form
  of a layout: cuts in the order of their axes, and no grid where no cut tells its axes apart.
  Devices of other processes have their rank behind the name: `CPU@3`. Where there are such, this process's own have
  `@=` and its rank: `CPU@=1` is the device CPU here, in the process of rank 1.
  """

  devices: tuple[str, ...]
  cuts: tuple[Cut, ...] = ()
  grid: tuple[int, ...] = ()

  @staticmethod
  def of(devices: tuple[str, ...], axis: int | None = None, bounds: Sequence[int] = ()) -> Sharding:
    """One piece of an axis on each device; all of the value on each for None."""
    return Sharding(devices, () if axis is None else (Cut(axis, tuple(bounds)),))

  @property
  def axis(self) -> int | None:
    """The axis that is in pieces; None where none is. Raises ValueError where several are: see `cuts`."""
    return self._only().axis if self.cuts else None

  @property
  def bounds(self) -> tuple[int, ...]:
    """Where the pieces of `axis` begin, and its end."""
    return self._only().bounds if self.cuts else ()

  def _only(self) -> Cut:
    if len(self.cuts) > 1:
      raise ValueError(f"a value in pieces of axes {', '.join(str(c.axis) for c in self.cuts)}; expected one axis")
    return self.cuts[0]

  @property
  def cut_axes(self) -> frozenset[int]:
    """The axes that are in pieces."""
    return frozenset([c.axis for c in self.cuts])

  def place(self, cut: Cut, device: int) -> int:
    """Which piece of a cut a device has, given by its number."""
    grid, found = self.grid or (len(self.devices),), 0
    for along in cut.along:
      found = found * grid[along] + device // math.prod(grid[along + 1 :]) % grid[along]
    return found

  def span(self, cut: Cut, device: int) -> tuple[int, int]:
    """(start, stop) of that piece."""
    place = self.place(cut, device)
    return cut.bounds[place], cut.bounds[place + 1]

  def region(self, device: int, shape: Shape) -> tuple[tuple[sint, sint], ...]:
    """(start, stop) per axis of what is on a device, given by its number, of a value of a shape."""
    found: list[tuple[sint, sint]] = [(0, s) for s in shape]
    for cut in self.cuts:
      found[cut.axis] = self.span(cut, device)
    return tuple(found)

  def part_shape(self, device: int, shape: Shape) -> Shape:
    """The shape of what is on a device, given by its number, of a value of a shape."""
    found = list(shape)
    for cut in self.cuts:
      start, stop = self.span(cut, device)
      found[cut.axis] = stop - start
    return tuple(found)

  def row(self, device: int, along: Collection[int]) -> tuple[int, ...]:
    """The numbers of the devices whose place differs from that of a device along some axes of the grid only."""
    grid = self.grid or (len(self.devices),)
    places = [range(0, math.prod(grid[i:]), math.prod(grid[i + 1 :])) for i in range(len(grid))]
    own = [device % math.prod(grid[i:]) // step.step * step.step for i, step in enumerate(places)]
    steps = [step if i in along else (first,) for i, (step, first) in enumerate(zip(places, own))]
    return tuple(map(sum, itertools.product(*steps)))

  def rows(self, along: Collection[int]) -> list[tuple[int, ...]]:
    """All rows of devices along some axes of the grid: each device is in one."""
    found: dict[int, tuple[int, ...]] = {}
    for device in range(len(self.devices)):
      if device not in found:
        found |= dict.fromkeys(row := self.row(device, along), row)
    return list(dict.fromkeys(found.values()))

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

  def with_cuts(self, cuts: Iterable[Cut]) -> Sharding:
    """Another layout on the same devices in the same grid."""
    found = tuple(sorted(cuts, key=lambda c: c.axis))
    if all(len(c.along) == max(1, len(self.grid)) for c in found):
      return Sharding(self.devices, tuple([Cut(c.axis, c.bounds) for c in found]))
    return Sharding(self.devices, found, self.grid)

  def in_grid(self, grid: tuple[int, ...]) -> Sharding | None:
    """The same layout told of another grid, () for one row; None where that cannot be. Not in its one form."""
    if self.grid == grid:
      return self
    if self.grid and self.cuts:
      return None
    every = tuple(range(len(grid)))
    return Sharding(self.devices, tuple([Cut(c.axis, c.bounds, every) for c in self.cuts]), grid)

  def joined(self, other: Sharding) -> Sharding:
    """This layout, with the cuts of another on the same devices that go together with its own: of other axes, along
    other axes of the grid."""
    grid = self.grid or other.grid
    mine, more = self.in_grid(grid), other.in_grid(grid)
    if mine is None or more is None:
      return self
    axes, taken = mine.cut_axes, {a for c in mine.cuts for a in c.along}
    return mine.with_cuts([*mine.cuts, *[c for c in more.cuts if c.axis not in axes and not taken & set(c.along)]])

  def evenly(self, cut: Cut, size: sint) -> Cut | None:
    """Pieces of an axis as equal as can be, along the same axes of the grid; None where there are fewer positions."""
    count = len(cut.bounds) - 1
    return Cut(cut.axis, even_bounds(size, count), cut.along) if isinstance(size, int) and size >= count else None


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
  of the others, or leaves them to the fabric. "broadcast": an "all_gather" in which one rank alone has something.
  "send_recv": an "all_to_all" of two ranks."""
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
  """Of the graph that it belongs to, as all ranks have it: a digest that they compare. Before collectives are numbered,
  of what moves where, so that two that are the same for one rank and not for others stay two."""
  among: tuple[int, ...] = ()
  """The ranks that have this graph, and compare it; () for those that take part."""
  extent: tuple[int, int] = (0, 0)
  """The fewest and the most elements that a rank gives here, or gives meanwhile in another row of the grid. What ranks
  decide by a size they decide by these, and so alike."""


@dataclass(frozen=True)
class NativeCode:
  """Argument of NATIVE: a program in a form that one kind of device takes, with what a launch of it needs. The PARAMs
  that are its sources are its arguments, in its own order."""

  form: str
  """What `code` is, as devices name what they take: "code-object" (AMD), "ptx" (CUDA), "msl" (Metal), "llvm-ir"."""
  arch: str
  """What it was made for, by the name that devices have for their own: "gfx1100", "sm_80"."""
  code: str
  """Its bytes, each as the character of that number (Latin-1), so that text stays text."""
  entry: str
  """The name of the kernel in `code`."""
  groups: tuple[int, ...]
  """Workgroups along each axis."""
  threads: tuple[int, ...]
  """Threads of a workgroup along each axis."""
  written: tuple[int, ...]
  """The arguments that it writes, counted from 0. It reads the others."""
  ops: int = 0
  """Arithmetic operations of a launch, for who counts them."""
  source: str = ""
  """Its text for people, where `code` is none."""

  def __repr__(self) -> str:
    """Short, and another one for each program: keys of caches are made of it."""
    from tiny_uop.system import sha256  # late: few programs have one

    every = repr([getattr(self, field.name) for field in fields(self)])
    digest = sha256(every.encode()).hexdigest()
    return f"NativeCode({self.form} for {self.arch}, {self.entry!r}, {len(self.code)} bytes, {digest[:32]})"

  @property
  def content(self) -> bytes:
    """The code as bytes."""
    return self.code.encode("latin-1")

  @classmethod
  def of(cls, program: Any) -> NativeCode:
    """Of anything with these attributes; `code` may be bytes or text (UTF-8), `groups` and `threads` one number. Raises
    TypeError, or ValueError for sizes and arguments that cannot be."""
    lacking = [name for name in ("form", "arch", "code", "entry", "groups", "threads", "written")
               if not hasattr(program, name)]  # fmt: skip
    if lacking:
      raise TypeError(f"{program!r:.60} is no program: it has no {', '.join(lacking)}")
    code = program.code
    if not isinstance(program, cls):
      code = (code.encode() if isinstance(code, str) else bytes(code)).decode("latin-1")
    groups, threads = ((s,) if isinstance(s, int) else tuple(s) for s in (program.groups, program.threads))
    made = cls(
      program.form, program.arch, code, program.entry, groups, threads, tuple(sorted(set(program.written))),
      getattr(program, "ops", 0), getattr(program, "source", ""),
    )  # fmt: skip
    if (mistake := mistyped_field(made)) is not None:
      raise TypeError(f"{made!r}: {mistake}")
    for name, sizes in (("groups", groups), ("threads", threads)):
      if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise ValueError(f"{made!r}: {name} are {sizes}, expected one to three numbers above 0")
    if not made.written or made.written[0] < 0:
      raise ValueError(f"{made!r}: it writes the arguments {made.written}: expected one at least, counted from 0")
    return made


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
    Cut,
    Sharding,
    Collective,
    NativeCode,
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
