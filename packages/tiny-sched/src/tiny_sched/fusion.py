"""Whether a tensor node gets memory of its own, or is computed inside the kernels that use it: the policy.

The scheduler visits nodes from users to sources and hands over every demand on a node: in which kernel, inside which
loops, at which index. `ratio`, evaluations per element, tells how much would be recomputed.

This file has only the costs. `must_materialise` in `rangeify.py` asks `materialise` here, after the cases that leave no
choice (COPY, CONTIGUOUS, scattered sums). Fusion of another kind, kernels over the same loops that become one with
several results, comes after it: `merge_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from tiny_sched.index import Index, largest
from tiny_sched.recompute_cost import CHEAP_ALU, CHEAP_LOADS, Below, RecomputeCost, is_alu
from tiny_uop import AxisType, GroupOp, Ops, UOp, dtypes
from tiny_uop.records import dataclass

SMALL = 16384  # iterations that cost less than another kernel launch
TINY = 2048
ROWS = 32  # rows that keep all cores busy
LOOSE = 1.01  # ratios up to this one recompute nothing
LARGE = 1 << 22  # elements that no cache keeps: writing and reading each takes longer than its exponential
SHORT_CHOICE = 64  # operations of a comparison by which a sum picks, which is computed where it picks
SHORT = 4  # operations of an expression that two kernels may well compute then, expensive ones or not


@dataclass(frozen=True, slots=True)
class Demand:
  """One distinct use of a node: the kernel, and the loops around the place where it is used, outermost first."""

  kernel: int
  index: Index
  used: frozenset[UOp]
  loops: tuple[UOp, ...]

  @property
  def placed(self) -> tuple[UOp, ...]:
    """The loops that the value is computed in: down to the innermost that its index mentions."""
    depth = max((i + 1 for i, r in enumerate(self.loops) if r in self.used), default=0)
    return self.loops[:depth]

  @property
  def evaluations(self) -> int:
    """How often the value is computed if it is computed here."""
    return prod(largest(r.src[0]) for r in self.placed)


def _reduced(u: UOp) -> int:
  """Terms per element of a REDUCE."""
  return prod(largest(u.src[0].shape[a]) for a in u.arg[1])


def _materialise_reduce(
  u: UOp, elements: int, cost: RecomputeCost, demands: list[Demand], kernel_loops: tuple[UOp, ...]
) -> bool:
  if len(demands) > 1:
    return True
  (demand,) = demands
  evaluations = demand.evaluations
  work = evaluations * _reduced(u)
  if evaluations > LOOSE * max(elements, 1):
    return work > TINY
  if any(r.arg[1] is AxisType.REDUCE for r in demand.used):
    if cost.continues and not cost.contraction and prod(largest(r.src[0]) for r in kernel_loops) >= ROWS:
      return False  # one reduction over the loops of both
    return work > SMALL  # a reduction over reductions: neither could be tiled
  if all(r in demand.used for r in kernel_loops):
    return False
  # computed once per row of its kernel: one kernel less, but only as parallel as there are rows
  return evaluations < ROWS and work + prod(largest(r.src[0]) for r in kernel_loops) > SMALL


def _is_choice(u: UOp, cost: RecomputeCost) -> bool:
  """Whether a sum may pick one element by it. So it may by an integer that a reduction gave, as argmax does."""
  if cost.below is not Below.ROW:
    return cost.is_choice
  # short ones only: the expression is looked at
  return cost.alu <= SHORT_CHOICE and replace(cost, below=Below.NONE).is_choice and _compares_integers(u)


def _compares_integers(u: UOp) -> bool:
  """Whether it is a comparison of integers, or comparisons of which several have to hold."""
  while u.op in GroupOp.Movement:
    u = u.src[0]
  if u.op is Ops.AND and u.dtype is dtypes.bool:
    return all(map(_compares_integers, u.src))
  return u.op in GroupOp.Compare and dtypes.is_int(u.src[0].dtype)


def _materialise_alu(
  u: UOp, cost: RecomputeCost, demands: list[Demand], ratio: float, evaluations: int, in_table: bool
) -> bool:
  one_kernel = all(d.kernel == demands[0].kernel for d in demands)
  if in_table:
    return False
  if cost.is_table and not cost.heavy:
    return cost.alu > 64
  if len(demands) == 1 and ratio <= LOOSE:
    return False
  if _is_choice(u, cost):
    return cost.alu > SHORT_CHOICE
  if cost.below is Below.FULL:
    return True
  per_demand = ratio / len(demands)
  if cost.below is Below.ROW or cost.heavy:
    repeated = one_kernel and len(demands) <= 3 and per_demand <= LOOSE
    # several kernels read what there is one of per row from memory
    twice = len(demands) == 2 and evaluations >= 2 * LARGE and cost.alu <= SHORT and cost.loads <= CHEAP_LOADS
    cheap = not one_kernel and per_demand <= LOOSE and (twice or not cost.is_dear)
    return not repeated and not cheap and not (cost.below is Below.NONE and evaluations <= TINY)
  if ratio > len(demands) * 4:
    return cost.loads > 2 or cost.alu > 4  # in the innermost loop of something like a matrix product
  return cost.loads > CHEAP_LOADS or cost.alu > CHEAP_ALU


def _is_widened(u: UOp) -> bool:
  """Whether a float is a narrower one exactly: what gets memory, if anything does, is the narrower one."""
  if u.op is not Ops.CAST or not u.dtype.kind == u.src[0].dtype.kind == "float":
    return False
  return u.dtype is not u.src[0].dtype and dtypes.can_lossless_cast(u.src[0].dtype, u.dtype)


def _is_unpacked(u: UOp, cost: RecomputeCost) -> bool:
  """Whether an integer (as a float, perhaps) is a field of a word that is read, as quantised weights are: reading the
  word again, and taking it apart, is cheaper than reading a copy in which each field has a word."""
  small = cost.loads == 1 and cost.alu <= CHEAP_ALU and cost.below is Below.NONE and not cost.heavy
  number = u.src[0] if u.op is Ops.CAST else u
  return small and number.dtype.kind in ("int", "uint") and not cost.positional


def materialise(
  u: UOp,
  elements: int,
  cost: RecomputeCost,
  demands: Iterable[Demand],
  kernel_loops: tuple[UOp, ...],
  contracts: bool = False,
  in_table: bool = False,
) -> bool:
  """Whether `u` gets memory. `elements`: how many distinct ones it has; `kernel_loops`: the output loops of the kernel
  of the first demand; `contracts`: whether it holds a contraction already; `in_table`: whether all that the kernels
  compute is from the position alone."""
  uses = list(demands)
  if u.dtype.kind == "index" or not uses:
    return False
  if u.op is Ops.REDUCE and not cost.closed:
    # loops can be tiled for one contraction, not for two at once
    too_many = contracts and cost.contraction and uses[0].evaluations * _reduced(u) > SMALL
    return too_many or _materialise_reduce(u, elements, cost, uses, kernel_loops)
  if (not is_alu(u) and u.op is not Ops.REDUCE) or _is_widened(u) or _is_unpacked(u, cost):
    return False
  evaluations = sum(d.evaluations for d in uses)
  return _materialise_alu(u, cost, uses, evaluations / max(elements, 1), evaluations, in_table)
