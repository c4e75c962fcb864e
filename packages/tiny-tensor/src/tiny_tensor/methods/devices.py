"""Devices: `to` copies a tensor to another one, `shard` spreads it over several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from tiny_runtime import Device
from tiny_tensor.base import TensorBase, is_const, place_const
from tiny_tensor.capturing import note_write
from tiny_tensor.naming import known_as
from tiny_tensor.placement import DeviceLike, canonical, even_cut, sharding_on
from tiny_uop import Devices, DType, Ops, Sharding, UOp, prod


class DeviceMixin(TensorBase):
  """Copies to other devices, whole or in pieces.

  What operations do with values on several devices follows from `UOp.sharding`; tiny-sched makes kernels and copies of
  it.
  """

  __slots__ = ()

  def to(self, device: DeviceLike | DType = None, dtype: DType | None = None) -> Self:
    """The values on another device (None: the default one), or in another dtype, or both; itself if they are there.

    Several devices get all values each. From several to one, pieces are put together.
    """
    if isinstance(device, DType):
      return self._as_dtype(device)
    if dtype is not None:
      return self.to(device)._as_dtype(dtype)
    name = canonical(device)
    if name == self.uop.device:
      return self
    if is_const(self.uop):
      return self._derive(place_const(self.uop, name))
    here = self.uop.device
    if isinstance(here, tuple) and isinstance(name, str) and not computes(name):
      first = Sharding(here).homes[0]
      return self._derive(self.uop.copy_to(first).copy_to(name))  # pieces are put together where kernels run
    return self._derive(self.uop.copy_to(name))

  def cpu(self) -> Self:
    """`to("CPU")`."""
    return self.to("CPU")

  def cuda(self, index: int = 0) -> Self:
    """`to("CUDA")`, or the CUDA device with a number."""
    return self.to(f"CUDA:{index}")

  def to_(self, device: DeviceLike) -> Self:
    """`to`, in place. The gradient moves along."""
    return self._become(self.to(device), lambda grad: grad.to(device))

  def shard(self, devices: DeviceLike, axis: int | Mapping[str, int] | None = None) -> Self:
    """The values on several devices: all of them on each (`axis` None), or in pieces along an axis, as equal as can be
    (of 10 rows, 4 devices get 3, 3, 2 and 2). One device is `to`.

    Devices in a `DeviceMesh` may cut several axes: `t.shard(mesh, {"data": 0, "model": 1})` has pieces of axis 0 along
    the axis "data" of the mesh, each of them in pieces of axis 1 along "model". What is not named has the same.

    `t.device` is the tuple of names then, and the pieces are `t.uop.sharding`. Operations compute each piece where it
    is; those that combine positions along the axis copy what they need of other pieces. Raises ValueError for an axis
    that is shorter than the number of its pieces or of symbolic size, and for a device named twice; IndexError for an
    axis that is not there; KeyError for a name that the mesh has not.
    """
    wanted, there = sharding_on(devices, axis, self.shape), self.uop.sharding
    if wanted.cuts:
      return self._laid_out(wanted)
    if there is not None and there.cuts and there.devices == wanted.devices:
      return self._derive(self.uop.copy_to(wanted.devices))
    return self.to(wanted.devices)

  def shard_(self, devices: DeviceLike, axis: int | Mapping[str, int] | None = None) -> Self:
    """`shard`, in place. The gradient is sharded along."""
    return self._become(self.shard(devices, axis), lambda grad: grad.shard(devices, axis))

  @known_as(y="other")
  def shard_like(self, other: Self) -> Self:
    """The values where those of another tensor are; in pieces of the same axis if that has pieces. The number of axes
    has to be the same then: ValueError."""
    wanted = other.uop.sharding
    if wanted is None or not wanted.cuts:
      return self.to(other.device)
    if self.ndim != other.ndim:
      axes = " and ".join([str(cut.axis) for cut in wanted.cuts])
      raise ValueError(
        f"shape {self.shape} cannot have pieces like a tensor of shape {other.shape}, which is in pieces along axis "
        f"{axes}: use shard"
      )
    cuts = []
    for cut in wanted.cuts:
      same = self.shape[cut.axis] == other.shape[cut.axis]
      cuts.append(cut if same else even_cut(self.shape, cut.axis, cut.along, len(cut.bounds) - 1))
    return self._laid_out(wanted.with_cuts(cuts))

  def _laid_out(self, sharding: Sharding) -> Self:
    """The values as `sharding` has them."""
    source = self.uop
    if is_const(source) and source.device != sharding.devices:
      source = place_const(source, sharding.devices)
    uop = in_packets(source, sharding) if packable(source, sharding) else source.laid_out(sharding)
    return self if uop is self.uop else self._derive(uop)

  def _in_pieces_of(self, other: Self) -> Self:
    """A tensor that all devices of `other` would have whole, and that they can make in its pieces instead."""
    wanted, uop = other.uop.sharding, self.uop
    if wanted is None or not wanted.cuts or uop.device != wanted.devices or self.shape != other.shape:
      return self
    kept = uop.op is Ops.CONTIGUOUS
    made = (uop.src[0] if kept else uop).laid_out(wanted)
    return self._derive(made.contiguous() if kept else made)

  def _become(self, moved: Self, also: Callable[[Any], Any]) -> Self:
    """Stands for the values of `moved` from now on; `also` moves the gradient."""
    if self.grad is not None:
      self.grad = also(self.grad)
    note_write()
    self.uop = moved.uop
    return self


def packable(source: UOp, sharding: Sharding) -> bool:
  """Whether pieces of a value lie scattered on one device that can put them in order before they are sent."""
  if not isinstance(source.device, str) or not computes(source.device) or is_const(source):
    return False
  return not sharding.spans and any(prod(source.shape[: cut.axis]) != 1 for cut in sharding.cuts)


def in_packets(source: UOp, sharding: Sharding) -> UOp:
  """The value in pieces, each made a run of memory before it is copied: a copy takes runs, and would take all of it."""
  parts = [(d, source.shrink(sharding.region(i, source.shape))) for i, d in enumerate(sharding.devices)]
  pieces = [part.copy_to(d) if d == source.device else part.contiguous().copy_to(d) for d, part in parts]
  return UOp.multi(sharding, pieces)


def computes(device: str) -> bool:
  """Whether kernels run on a device, told without opening it."""
  return Device.storage(device) is None


def placement(uop: UOp) -> str:
  """Where a value is, in words."""
  place: Devices | None = uop.device
  if not isinstance(place, tuple):
    return place or "any device"
  sharding = uop.sharding
  axes = [] if sharding is None else [str(cut.axis) for cut in sharding.cuts]
  how = f"in pieces of axis {' and '.join(axes)}" if axes else "each all of it"
  return f"{', '.join(place)} ({how})"
