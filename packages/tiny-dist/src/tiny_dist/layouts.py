"""Layouts of parameters and of the state of optimisers over a mesh: what "ZeRO: memory optimizations toward training
trillion parameter models" (Rajbhandari et al., 2020) calls its stages. No other code knows of them."""

from __future__ import annotations

from collections.abc import Iterable

from tiny_dist.mesh import Mesh
from tiny_tensor import Tensor
from tiny_tensor.nn.optim import Optimizer


def longest_axis(t: Tensor, count: int) -> int | None:
  """The axis that a tensor is best cut along in `count` pieces: the first that they divide, else the longest; None for
  a tensor too small for a piece on each."""
  sizes = [n if isinstance(n, int) else 0 for n in t.shape]
  even = [axis for axis, n in enumerate(sizes) if n and n % count == 0]
  if even:
    return even[0]
  longest = max(range(len(sizes)), key=lambda axis: sizes[axis], default=None)
  return longest if longest is not None and sizes[longest] >= count else None


def shard_state(optimizer: Optimizer, mesh: Mesh) -> None:
  """Stages 1 and 2: each rank keeps a piece of the state of each parameter, which is whole everywhere. Gradients are
  added where they are used, so each rank has a piece of them, too; the new parameters are gathered."""
  for name in optimizer.per_parameter:
    for state in getattr(optimizer, name):
      if len(mesh) > 1 and (axis := longest_axis(state, len(mesh))) is not None:
        state.shard_(mesh, axis)


def shard_parameters(parameters: Iterable[Tensor], mesh: Mesh) -> None:
  """Stage 3: each rank keeps a piece of each parameter, and so of its gradient and state. Where a parameter is used it
  is gathered; what has been computed with it frees it."""
  for p in parameters:
    if len(mesh) > 1:
      p.shard_(mesh, longest_axis(p, len(mesh)))
