"""Meshes: named axes over the ranks of a group."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tiny_dist.ranks import World, world
from tiny_runtime import Device
from tiny_tensor import DeviceMesh


class Mesh(DeviceMesh):
  """Devices of several ranks, in a grid with named axes: `Mesh({"data": 2, "model": 4})`.

  It is a sequence of device names, and can stand where a tensor takes several devices: `t.shard(mesh, axis=0)` has a
  piece on each rank, `t.shard(mesh)` and `Tensor.zeros(3, device=mesh)` all of it on each, `t.shard(mesh, {"data": 0})`
  a piece on the ranks of each place along an axis, and `t.shard(mesh, {"data": 0, "model": 1})` pieces of two axes. Of
  one device it is the device itself. The names are `CPU@3` for the device of rank 3, `CPU@=1` for that of this process,
  of rank 1.

  `mesh.row("model")` is the row of this rank along an axis: a mesh of one axis. Ranks count row by row, the last axis
  the fastest, so ranks next to each other, which are often on one machine, are along the last axis. `local` devices of
  each rank are in it, next to each other: `CPU@3` and `CPU:1@3`.

  Raises ValueError if the sizes do not multiply to the number of devices (one of them may be -1 for what is left), or
  if a row along an axis has devices of a rank that are not in the same places of it as those of the others.
  """

  def __init__(self, axes: Mapping[str, int] | None = None, device: str | None = None, local: int = 1) -> None:
    self._world: World = world()
    size = self._world.size * local
    sizes = dict(axes or {"data": -1})
    rest = prod(n for n in sizes.values() if n != -1)
    left = [name for name, n in sizes.items() if n == -1]
    if len(left) == 1 and rest and size % rest == 0:
      sizes[left[0]] = size // rest
    if any(n < 1 for n in sizes.values()) or prod(sizes.values()) != size:
      devices = "ranks" if local == 1 else f"devices, {local} of each of {self._world.size} ranks"
      raise ValueError(f"a mesh {dict(axes or {})} has {prod(sizes.values())} places, and there are {size} {devices}")
    within = [prod(list(sizes.values())[i:]) for i in range(len(sizes) + 1)]
    if all(local % small or large % local for large, small in zip(within, within[1:])):
      raise ValueError(f"the {local} devices of a rank are not in one row, or in whole rows, of a mesh {sizes}")
    self.device = Device.canonicalize(device)
    """The first device of each rank that is in it."""
    names = [self.device, *[f"{self.device.partition(':')[0]}:{i}" for i in range(1, local)]]
    self._set(sizes, [(rank, name) for rank in range(self._world.size) for name in names])

  def _set(self, axes: Mapping[str, int], places: list[tuple[int, str]]) -> None:
    own, alone = self._world.rank, len({rank for rank, _ in places}) == 1
    self._places = places
    names = [name if alone else f"{name}@{'=' if rank == own else ''}{rank}" for rank, name in places]
    super().__init__(axes, names)

  @property
  def ranks(self) -> tuple[int, ...]:
    """The ranks in it, in order."""
    return tuple(dict.fromkeys([rank for rank, _ in self._places]))

  @property
  def coordinates(self) -> dict[str, int]:
    """Where this rank, or its first device, is along each axis."""
    place, found = self._first, {}
    for name, n in reversed(self.axes.items()):
      place, found[name] = divmod(place, n)
    return {name: found[name] for name in self.axes}

  @property
  def _first(self) -> int:
    return next(i for i, (rank, _) in enumerate(self._places) if rank == self._world.rank)

  @property
  def rank(self) -> int:
    """That of this process."""
    return self._world.rank

  @property
  def here(self) -> tuple[int, ...]:
    """The numbers of the devices of this rank."""
    return tuple([i for i, (rank, _) in enumerate(self._places) if rank == self._world.rank])

  def row(self, axis: str) -> Mesh:
    """The devices along one axis through this rank, or its first device, as a mesh. Raises KeyError for an axis that is
    not there."""
    if axis not in self.axes:
      raise KeyError(f"the mesh has no axis {axis!r}, it has {', '.join(self.axes)}")
    names = list(self.axes)
    step = prod(self.axes[n] for n in names[names.index(axis) + 1 :])
    first = self._first - self.coordinates[axis] * step
    found = Mesh.__new__(Mesh)
    found._world, found.device = self._world, self.device
    found._set({axis: self.axes[axis]}, [self._places[first + i * step] for i in range(self.axes[axis])])
    return found

  def __repr__(self) -> str:
    return f"Mesh({self.axes}, {self.device!r})"
