"""Layouts of parameters and of the state of optimisers over a mesh: what "ZeRO: memory optimizations toward training
trillion parameter models" (Rajbhandari et al., 2020) calls its stages. No other code knows of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tiny_dist.mesh import Mesh
from tiny_tensor import Tensor
from tiny_tensor.nn.optim import Optimizer


def longest_axis(t: Tensor, count: int, taken: Collection[int] = ()) -> int | None:
  """The axis that a tensor is best cut along in `count` pieces: the first that they divide, else the longest; None for
  a tensor too small for a piece on each. Not one of those `taken`."""
  sizes = [n if isinstance(n, int) and axis not in taken else 0 for axis, n in enumerate(t.shape)]
  even = [axis for axis, n in enumerate(sizes) if n and n % count == 0]
  if even:
    return even[0]
  longest = max(range(len(sizes)), key=lambda axis: sizes[axis], default=None)
  return longest if longest is not None and sizes[longest] >= count else None


def _cut(t: Tensor, mesh: Mesh, along: str | None) -> None:
  """Cuts a tensor in place along one axis of a mesh, besides the pieces that it is in; or along all of the mesh."""
  count = len(mesh) if along is None else mesh.axes[along]
  if count == 1:
    return
  if along is None:
    t.shard_(mesh, longest_axis(t, count))
    return
  names = [name for name, n in mesh.axes.items() if n > 1]
  s = t.uop.sharding
  there = s.in_grid(tuple([mesh.axes[name] for name in names]) if len(names) > 1 else ()) if s is not None else None
  axes = {names[place]: cut.axis for cut in (there.cuts if there is not None else ()) for place in cut.along}
  axis = longest_axis(t, count, axes.values())
  if along not in axes and axis is not None:
    t.shard_(mesh, {**axes, along: axis})


def shard_state(optimizer: Optimizer, mesh: Mesh, along: str | None = None) -> None:
  """Stages 1 and 2: each rank keeps a piece of the state of each parameter, which is whole everywhere. Gradients are
  added where they are used, so each rank has a piece of them, too; the new parameters are gathered.

  With `along`, the pieces are along this axis of the mesh, "data" for example: of parameters that are in pieces along
  "model", the state is in pieces of two axes. KeyError for an axis that is not there."""
  for name in optimizer.per_parameter:
    for state in getattr(optimizer, name):
      if along is not None or longest_axis(state, len(mesh)) is not None:
        _cut(state, mesh, along)


def shard_parameters(parameters: Iterable[Tensor], mesh: Mesh, along: str | None = None) -> None:
  """Stage 3: each rank keeps a piece of each parameter, and so of its gradient and state. Where a parameter is used it
  is gathered; what has been computed with it frees it. `along` is as for `shard_state`."""
  for p in parameters:
    _cut(p, mesh, along)
