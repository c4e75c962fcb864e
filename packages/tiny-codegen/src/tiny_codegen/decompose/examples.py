"""Examples of rules that hold for several operations and types."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from tiny_uop import DType, Samples, UOp

MADE_OF_OTHERS = "a decomposition: made of what the target has"  # why the graph grows


def each(make: Callable[..., UOp], *choices: Iterable[object]) -> tuple[Callable[[Samples], UOp], ...]:
  """The example `make(samples, a, b, …)` for every combination of one of each choice."""
  return tuple([_chosen(make, values) for values in itertools.product(*choices)])


def _chosen(make: Callable[..., UOp], values: tuple[object, ...]) -> Callable[[Samples], UOp]:
  return lambda s: make(s, *values)


def place_in(s: Samples, dtype: DType, gate: UOp | None = None) -> UOp:
  """The address of an element, which has a neighbour, of memory of this type."""
  return UOp.param(9, dtype.ptr(8)).index(s.var("offset", 0, 6), gate)
