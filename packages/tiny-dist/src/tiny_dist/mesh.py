"""Meshes: named axes over the ranks of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import overload

from tiny_dist.ranks import World, world
from tiny_runtime import Device


class Mesh(Sequence[str]):
  """Devices of several ranks, in a grid with named axes: `Mesh({"data": 4})`.

  It is a sequence of device names, and can stand where a tensor takes several devices: `t.shard(mesh, axis=0)` has a
  piece on each rank, `t.shard(mesh)` and `Tensor.zeros(3, device=mesh)` all of it on each. Of one rank it is the
  device itself. The names are `CPU@3` for the device of rank 3, `CPU@=1` for that of this process, of rank 1.

  `mesh["model"]` is the row of this rank along an axis: a mesh of one axis. Ranks count row by row, the last axis the
  fastest, so ranks next to each other, which are often on one machine, are along the last axis.

  Raises ValueError if the sizes do not multiply to the number of ranks; one of them may be -1 for what is left.
  """

  def __init__(self, axes: Mapping[str, int] | None = None, device: str | None = None) -> None:
    self._world: World = world()
    size = self._world.size
    sizes = dict(axes or {"data": -1})
    rest = prod(n for n in sizes.values() if n != -1)
    left = [name for name, n in sizes.items() if n == -1]
    if len(left) == 1 and rest and size % rest == 0:
      sizes[left[0]] = size // rest
    if any(n < 1 for n in sizes.values()) or prod(sizes.values()) != size:
      raise ValueError(f"a mesh {dict(axes or {})} has {prod(sizes.values())} places, and there are {size} ranks")
    self.axes = sizes
    """The size of each axis, by name."""
    self.device = Device.canonicalize(device)
    """The device of each rank that is in it."""
    self._ranks: tuple[int, ...] = tuple(range(size))

  @property
  def ranks(self) -> tuple[int, ...]:
    """The ranks in it, in order."""
    return self._ranks

  @property
  def coordinates(self) -> dict[str, int]:
    """Where this rank is along each axis."""
    place, found = self._ranks.index(self._world.rank), {}
    for name, n in reversed(self.axes.items()):
      place, found[name] = divmod(place, n)
    return {name: found[name] for name in self.axes}

  def row(self, axis: str) -> Mesh:
    """The ranks along one axis through this one, as a mesh. Raises KeyError for an axis that is not there."""
    if axis not in self.axes:
      raise KeyError(f"the mesh has no axis {axis!r}, it has {', '.join(self.axes)}")
    names = list(self.axes)
    step = prod(self.axes[n] for n in names[names.index(axis) + 1 :])
    first = self._ranks.index(self._world.rank) - self.coordinates[axis] * step
    found = Mesh.__new__(Mesh)
    found._world, found.device, found.axes = self._world, self.device, {axis: self.axes[axis]}
    found._ranks = tuple([self._ranks[first + i * step] for i in range(self.axes[axis])])
    return found

  def __len__(self) -> int:
    return len(self._ranks)

  @overload
  def __getitem__(self, index: int) -> str: ...
  @overload
  def __getitem__(self, index: slice) -> Sequence[str]: ...
  def __getitem__(self, index: int | slice) -> str | Sequence[str]:
    return self._names()[index]

  def __iter__(self) -> Iterator[str]:
    return iter(self._names())

  def _names(self) -> tuple[str, ...]:
    if len(self._ranks) == 1:
      return (self.device,)
    own = self._world.rank
    return tuple([f"{self.device}@{'=' if rank == own else ''}{rank}" for rank in self._ranks])

  def __repr__(self) -> str:
    return f"Mesh({self.axes}, {self.device!r})"
