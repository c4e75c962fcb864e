"""Triangular factors of matrices with rows exchanged: `P L U`, and equations by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.linalg.solving import SolveMixin
from tiny_tensor.shapes import broadcast_shape
from tiny_uop import DType, UOp, dtypes
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class Factored:
  """The derivative of packed factors `(…, m, n)`, k = min(m, n).

  With square factors it is P L⁻ᵀ (tril(Lᵀ gL, -1) + triu(gU Uᵀ)) U⁻ᵀ. Rows of L below the k-th are A₂ U⁻¹, and columns
  of U behind the k-th L⁻¹ A₂, which add to gU and gL.
  """

  wrap: Callable[[UOp], Any]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "pivots are integers, and have no gradient"
    packed, pivots, g = (self.wrap(u) for u in (*results, gs[0]))
    m, n = (int(s) for s in packed.shape[-2:])
    k = min(m, n)
    square, into = ([t[..., :k, :k], t[..., k:, :k], t[..., :k, k:]] for t in (packed, g))
    one = packed.eye(k, dtype=packed.dtype, device=packed.device)
    lower, upper = square[0].tril(-1) + one, square[0].triu()
    lower_turned, upper_turned = lower.transpose(-2, -1), upper.transpose(-2, -1)
    into_lower, into_upper = into[0].tril(-1), into[0].triu()
    if m > k:
      tail = upper.solved(into[1].transpose(-2, -1)).transpose(-2, -1)
      into_upper = into_upper - square[1].transpose(-2, -1).matmul(tail).triu()
    if n > k:
      tail = lower_turned.solved(into[2])
      into_lower = into_lower - tail.matmul(square[2].transpose(-2, -1)).tril(-1)
    middle = lower_turned.matmul(into_lower).tril(-1) + into_upper.matmul(upper_turned).triu()
    head = upper.solved(lower_turned.solved(middle).transpose(-2, -1)).transpose(-2, -1)
    out = head if m == n else head.cat(tail, dim=-2 if m > k else -1)
    return (pivots.permutation(m, out.dtype).matmul(out).uop,)


class LuMixin(SolveMixin):
  """lu_factor and what goes with it. All take batches `(…, m, n)`."""

  __slots__ = ()

  def lu_factor(self, pivot: bool = True) -> tuple[Self, Self]:
    """(LU, pivots) of `(…, m, n)`: `self = P L U`, by rows exchanged so that the pivot, the greatest element below,
    comes up. LU has U in its upper triangle and below it L, whose diagonal of ones is left out; in step i row i was
    exchanged with row `pivots[…, i]`, int32, counted from 1 as in LAPACK (getrf). Without `pivot` no row is exchanged.

    Raises ValueError for less than two axes. A column without a pivot is left as it is: U has a 0 on its diagonal.
    """
    if self.ndim < 2:
      raise ValueError(f"lu_factor takes matrices (…, m, n), got shape {self.shape}")
    x, dtype = self.with_precision()
    k = min(int(s) for s in self.shape[-2:])
    if 0 in self.shape:
      return x.as_dtype(dtype), x.filled((*self.shape[:-2], k), 0, dtypes.int32)
    packed, pivots = x.detach().factored(pivot)
    own = with_gradient((packed.uop, pivots.uop), (x.uop,), Factored(self.wrap), "lu")[0]
    return x.derive(own).as_dtype(dtype), pivots

  def factored(self, pivot: bool) -> tuple[Self, Self]:
    """`lu_factor` of detached floats. What a step works on is turned to the first row and column after each."""
    m, n = (int(s) for s in self.shape[-2:])
    lead, steps = self.shape[:-2], min(m, n)
    rest = self.contiguous()
    rows, columns = (self.filled((size,), 1, dtypes.int32).contiguous() for size in (m, n))
    pivots = self.filled((*lead, steps), 0, dtypes.int32).contiguous()
    top, left = self.count_up(m).eq(0), self.count_up(n).eq(0)
    for _ in range(steps):
      column = rest.select_axis(rest.ndim - 1, 0, 1)
      size = (rows > 0).where(column.squeeze(-1).abs(), -1)
      place = size.argmax(-1, keepdim=True) if pivot else size.filled((*lead, 1), 0, dtypes.int32)
      chosen = self.count_up(m).eq(place.contiguous()).unsqueeze(-1)
      row = chosen.where(rest, 0).sum(-2, keepdim=True).contiguous()
      first = top.unsqueeze(-1)
      swapped = first.where(row, chosen.where(rest.select_axis(rest.ndim - 2, 0, 1), rest))
      head = row.select_axis(row.ndim - 1, 0, 1)
      below = (rows > 0).unsqueeze(-1) & first.logical_not()
      factor = swapped.select_axis(rest.ndim - 1, 0, 1) / head.eq(0).where(1, head)
      ahead = below & (columns > 0)
      rest = ahead.where(left.where(factor, swapped - factor * row), swapped).roll((-1, -1), (-2, -1)).contiguous()
      rows = rows.pad_zeros([(0, 1)]).select_axis(0, 1, m + 1).contiguous()
      columns = columns.pad_zeros([(0, 1)]).select_axis(0, 1, n + 1).contiguous()
      pivots = pivots.select_axis(pivots.ndim - 1, 1, steps).cat(place, dim=-1).contiguous()
    return rest.roll((steps, steps), (-2, -1)).contiguous(), (pivots + self.count_up(steps) + 1).contiguous()

  def exchanged_rows(self, m: int) -> Self:
    """Which of `m` rows is where, int32 `(…, m)`, after the exchanges that pivots, itself `(…, k)`, stand for."""
    k = int(self.shape[-1])
    steps = (self - (self.count_up(k) + 1)).contiguous()
    order = self.count_up(m).broadcast_to((*self.shape[:-1], m)).contiguous()
    for _ in range(k):
      chosen = self.count_up(m).eq(steps.select_axis(steps.ndim - 1, 0, 1))
      picked = chosen.where(order, 0).sum(-1, keepdim=True)
      swapped = chosen.where(order.select_axis(order.ndim - 1, 0, 1), order)
      order = self.count_up(m).eq(0).where(picked, swapped).roll(-1, -1).contiguous()
      steps = steps.roll(-1, -1).contiguous()
    return order.roll(k, -1)

  def permutation(self, m: int, dtype: DType) -> Self:
    """The matrices P `(…, m, m)` of the exchanges that pivots, itself `(…, k)`, stand for: `P x` undoes them."""
    return (self.exchanged_rows(m).unsqueeze(-2) == self.count_up(m).unsqueeze(-1)).as_dtype(dtype)

  def lu(self, pivot: bool = True, get_infos: bool = False) -> tuple[Self, ...]:
    """`lu_factor`, and with `get_infos` what `lu_factor_ex` adds."""
    return self.lu_factor_ex(pivot) if get_infos else self.lu_factor(pivot)

  def lu_factor_ex(self, pivot: bool = True, check_errors: bool = False) -> tuple[Self, Self, Self]:
    """(LU, pivots, info) with `lu_factor`'s results and int32 `(…)`: 0, or the first step, counted from 1, that found
    no pivot. With `check_errors` that is looked at: ValueError where it is not 0.
    """
    packed, pivots = self.lu_factor(pivot)
    none = packed.detach().diagonal(0, -2, -1).eq(0)
    info = none.any(-1).where(none.argmax(-1) + 1, 0) if 0 not in none.shape else none.filled(none.shape[:-1], 0)
    info = info.as_dtype(dtypes.int32)
    if check_errors and bool(info.ne(0).any().item()):
      raise ValueError(f"lu_factor_ex: a matrix of shape {self.shape[-2:]} has no pivot in step {info.max().item()}")
    return packed, pivots, info

  def lu_unpack(self, pivots: Self, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Self, Self, Self]:
    """(P, L, U) of what `lu_factor` gives: `(…, m, m)`, `(…, m, k)` and `(…, k, n)`, k = min(m, n). Parts that are not
    asked for have no elements.
    """
    m, n = (int(s) for s in self.shape[-2:])
    k = min(m, n)
    if pivots.shape != (*self.shape[:-2], k) or not dtypes.is_int(pivots.dtype):
      raise ValueError(
        f"lu_unpack: factors of shape {self.shape} have int32 pivots of shape {(*self.shape[:-2], k)}, "
        f"got {pivots.dtype.name} of shape {pivots.shape}"
      )
    empty = self.filled((0,), 0)
    p = pivots.permutation(m, self.dtype) if unpack_pivots else empty
    if not unpack_data:
      return p, empty, empty
    one = self.eye(m, k, dtype=self.dtype, device=self.device)
    return p, self.select_axis(self.ndim - 1, 0, k).tril(-1) + one, self.select_axis(self.ndim - 2, 0, k).triu()

  def lu_solve(self, LU: Self, pivots: Self, *, left: bool = True, adjoint: bool = False) -> Self:
    """x with `A @ x = self`, or `x @ A = self` unless `left`, for the matrices A `(…, n, n)` of which `LU` and `pivots`
    are the factors; of their transposes with `adjoint`. `self` is `(…, n, k)`, or `(…, k, n)`; leading axes broadcast.
    """
    if not left:
      return self.transpose(-2, -1).lu_solve(LU, pivots, adjoint=not adjoint).transpose(-2, -1)
    n = LU.square_size("lu_solve")
    if self.ndim < 2 or self.shape[-2] != n:
      raise ValueError(f"lu_solve: {n} equations need as many rows, got shape {self.shape}")
    lead = broadcast_shape(self.shape[:-2], LU.shape[:-2])
    b = self.broadcast_to((*lead, *self.shape[-2:]))
    if 0 in b.shape:
      return b
    p, lower, upper = LU.lu_unpack(pivots)
    p, lower, upper = (t.broadcast_to((*lead, n, n)) for t in (p, lower, upper))
    if adjoint:
      return p.matmul(lower.transpose(-2, -1).solved(upper.transpose(-2, -1).solved(b)))
    return upper.solved(lower.solved(p.transpose(-2, -1).matmul(b)))
