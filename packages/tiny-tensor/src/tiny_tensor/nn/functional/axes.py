"""Functions over one, two or three spatial axes, of which each is written once for any number of axes.

>>> conv1d, conv2d, conv3d = for_axes("conv{}d", _conv)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from tiny_tensor.methods.windows import Sizes
from tiny_tensor.shapes import as_tuple
from tiny_tensor.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def for_axes(
  name: str, function: Callable[Concatenate[int, P], R], counts: Sequence[int] = (1, 2, 3)
) -> tuple[Callable[P, R], ...]:
  """`function(axes, …)` for each number of axes in `counts`, as a function of its own whose name has this number in it.
  Signature and docstring are those of `function`, without `axes`."""
  function.__qualname__ = name.format("N")  # for errors about arguments
  return tuple(_made(name.format(axes), function, axes) for axes in counts)


def _made(name: str, function: Callable[Concatenate[int, P], R], axes: int) -> Callable[P, R]:
  def over_axes(*args: P.args, **kwargs: P.kwargs) -> R:
    return function(axes, *args, **kwargs)

  over_axes.__name__ = over_axes.__qualname__ = name
  over_axes.__module__ = function.__module__
  over_axes.__doc__ = (
    f"{' '.join((function.__doc__ or '').split())} (Over {axes} spatial {'axis' if axes == 1 else 'axes'}.)"
  )
  over_axes.__wrapped__ = partial(function, axes)  # type: ignore[attr-defined]  # where `inspect.signature` looks
  return over_axes


def batched(input: Tensor, axes: int, apply: Callable[[Tensor], Tensor]) -> Tensor:
  """`apply` of `(n, c, size…)` with `axes` sizes; of one sample `(c, size…)` the result also lacks the axis n."""
  if input.ndim == axes + 1:
    return apply(input.unsqueeze(0)).squeeze(0)
  if input.ndim != axes + 2:
    raise ValueError(f"expected an input of shape (n, c, size…) or (c, size…) with {axes} sizes, got {input.shape}")
  return apply(input)


def pad_pairs(padding: Sizes, axes: int) -> list[int]:
  """Padding per axis as pairs (before, after), the last axis first, as the methods of Tensor take it."""
  return [x for p in reversed(as_tuple(padding, axes)) for x in (p, p)]
