"""Schedule items (each becomes a CALL of a kernel, or a copy), and the regions of buffers that they write and read."""

from __future__ import annotations

from dataclasses import field

from tiny_sched.index import largest_size
from tiny_sched.versions import Version
from tiny_uop import AxisType, DType, Ops, PtrDType, Shape, UOp, sint
from tiny_uop.records import dataclass
from tiny_uop.shape import simple_size


@dataclass(frozen=True, slots=True)
class BufferRegion:
  """Memory: `size` elements of `dtype` from `byte_offset` of `base`: a BUFFER, or the node that a temporary holds.

  `version` is that of a BUFFER.
  """

  base: UOp
  byte_offset: int
  size: int
  dtype: DType
  version: Version | None = None

  @staticmethod
  def whole(base: UOp, version: Version | None = None) -> BufferRegion:
    """All of a BUFFER."""
    return BufferRegion(base, 0, base.arg[1], base.dtype, version)

  @staticmethod
  def temporary(node: UOp, shape: Shape) -> BufferRegion:
    """The temporary that holds a node: so many elements of it."""
    return BufferRegion(node, 0, largest_size(shape), node.dtype)

  @property
  def is_whole(self) -> bool:
    """Whether it is all of its BUFFER, as elements of the type of that."""
    return self.byte_offset == 0 and self.size == self.base.arg[1] and self.dtype is self.base.dtype

  @property
  def pointer(self) -> PtrDType:
    """The type of a PARAM for this memory."""
    return self.dtype.ptr(self.size)

  @property
  def written_by(self) -> tuple[UOp, ...]:
    """What has to be computed before a read: the node of a temporary, or the last STOREs of the version."""
    if self.base.op is not Ops.BUFFER:
      return (self.base,)
    return () if self.version is None else self.version.last

  @property
  def nbytes(self) -> int:
    """Size in bytes."""
    return self.size * self.dtype.itemsize


def loop_over(size: sint, number: int, kind: AxisType = AxisType.LOOP) -> UOp:
  """A loop over an axis: with its size as simplification leaves it, which would make another loop of it otherwise."""
  return UOp.range(simple_size(size), number, kind)


@dataclass(eq=False)
class ScheduleItem:
  """One CALL to be: a kernel, or a copy."""

  number: int
  """Its position in the schedule so far."""
  root: UOp
  """The node that it computes."""
  device: str
  """The device that it runs on."""
  store: UOp | None
  """The STORE that it does; None where the result goes to a temporary."""
  regions: list[BufferRegion]
  """The memory of its PARAMs: what it writes, then what it reads."""
  loops: tuple[UOp, ...] = ()
  """A RANGE for each axis of the result, 0 for an axis of one element."""
  is_copy: bool = False
  """A copy between regions, and no kernel."""
  body: UOp | None = None
  """The effects of the kernel, in its loops; None for a copy, and for a kernel that is not made yet."""
  slots: dict[BufferRegion, int] = field(default_factory=dict)
  """The PARAM number of each region that is read."""
  next_range: int = 0
  """The number of the next RANGE."""
  contracts: bool = False
  """It has a contraction: a sum of products that reads each element many times."""
  given: bool = False
  """The kernel was made elsewhere and stays as it is."""
  more: tuple[UOp | None, ...] = ()
  """The STOREs of the second and further results of a given kernel."""
  scatters: bool = False
  """It accumulates in memory that `first` has filled, and so reads that memory as well."""
  first: ScheduleItem | None = None
  """The item that fills the memory of one that scatters."""
  nodes: tuple[UOp, ...] = ()
  """The nodes that are computed in it."""

  @property
  def stores(self) -> tuple[UOp | None, ...]:
    """The STORE of each result, None for a temporary; `regions` begins with where they go."""
    return (self.store, *self.more)

  @property
  def written(self) -> list[tuple[UOp | None, BufferRegion]]:
    """Each result: its STORE, None for a temporary, and where it goes."""
    return list(zip(self.stores, self.regions, strict=False))

  @property
  def read(self) -> list[BufferRegion]:
    """The regions that are not written."""
    return self.regions[len(self.stores) :]

  def new_range(self, size: sint) -> UOp:
    """A fresh REDUCE loop."""
    self.next_range += 1
    return loop_over(size, self.next_range - 1, AxisType.REDUCE)

  def pointer(self, region: BufferRegion) -> UOp:
    """The PARAM for a region that is read."""
    if region not in self.slots:
      self.slots[region] = len(self.regions)
      self.regions.append(region)
    return UOp.param(self.slots[region], region.pointer)
