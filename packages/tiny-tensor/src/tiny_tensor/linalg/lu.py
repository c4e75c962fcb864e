"""Triangular factors of matrices with rows exchanged: `P L U`, and equations by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.linalg.solving import LOWER, UPPER, solved, square_size
from tiny_tensor.linalg.triangles import eliminated, permuted
from tiny_tensor.shapes import broadcast_shape
from tiny_uop import DType, UOp, dtypes
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


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
      tail = solved(upper, into[1].transpose(-2, -1), UPPER).transpose(-2, -1)
      into_upper = into_upper - square[1].transpose(-2, -1).matmul(tail).triu()
    if n > k:
      tail = solved(lower_turned, into[2], UPPER)
      into_lower = into_lower - tail.matmul(square[2].transpose(-2, -1)).tril(-1)
    middle = lower_turned.matmul(into_lower).tril(-1) + into_upper.matmul(upper_turned).triu()
    head = solved(upper, solved(lower_turned, middle, UPPER).transpose(-2, -1), UPPER).transpose(-2, -1)
    out = head if m == n else head.cat(tail, dim=-2 if m > k else -1)
    return (_permutation(pivots, m, out.dtype).matmul(out).uop,)


def lu_factor(a: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor]:
  """(LU, pivots) of `(…, m, n)`: `a = P L U`, by rows exchanged so that the pivot, the greatest element below,
  comes up. LU has U in its upper triangle and below it L, whose diagonal of ones is left out; in step i row i was
  exchanged with row `pivots[…, i]`, int32, counted from 1 as in LAPACK (getrf). Without `pivot` no row is exchanged.

  Raises ValueError for less than two axes. A column without a pivot is left as it is: U has a 0 on its diagonal.
  """
  if a.ndim < 2:
    raise ValueError(f"lu_factor takes matrices (…, m, n), got shape {a.shape}")
  x, dtype = a._with_precision()
  k = min(int(s) for s in a.shape[-2:])
  if 0 in a.shape:
    return x._as_dtype(dtype), x._filled((*a.shape[:-2], k), 0, dtypes.int32)
  packed, steps = eliminated(x.detach(), pivot)
  pivots = steps + 1
  own = with_gradient((packed.uop, pivots.uop), (x.uop,), Factored(a._wrap), "lu")[0]
  return x._derive(own)._as_dtype(dtype), pivots


def _permutation(a: Tensor, m: int, dtype: DType) -> Tensor:
  """The matrices P `(…, m, m)` of the exchanges that pivots, itself `(…, k)`, stand for: `P x` undoes them."""
  order = permuted((a - 1)._as_dtype(dtypes.int32), m)
  return (order.unsqueeze(-2) == a._count_up(m).unsqueeze(-1))._as_dtype(dtype)


def lu(a: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
  """`lu_factor`, and with `get_infos` what `lu_factor_ex` adds."""
  return a.lu_factor_ex(pivot) if get_infos else a.lu_factor(pivot)


def lu_factor_ex(a: Tensor, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
  """(LU, pivots, info) with `lu_factor`'s results and int32 `(…)`: 0, or the first step, counted from 1, that found
  no pivot. With `check_errors` that is looked at: ValueError where it is not 0.
  """
  packed, pivots = a.lu_factor(pivot)
  none = packed.detach().diagonal(0, -2, -1).eq(0)
  info = none.any(-1).where(none.argmax(-1) + 1, 0) if 0 not in none.shape else none._filled(none.shape[:-1], 0)
  info = info._as_dtype(dtypes.int32)
  if check_errors and bool(info.ne(0).any().item()):
    raise ValueError(f"lu_factor_ex: a matrix of shape {a.shape[-2:]} has no pivot in step {info.max().item()}")
  return packed, pivots, info


def lu_unpack(
  a: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
  """(P, L, U) of what `lu_factor` gives: `(…, m, m)`, `(…, m, k)` and `(…, k, n)`, k = min(m, n). Parts that are not
  asked for have no elements.
  """
  m, n = (int(s) for s in a.shape[-2:])
  k = min(m, n)
  if pivots.shape != (*a.shape[:-2], k) or not dtypes.is_int(pivots.dtype):
    raise ValueError(
      f"lu_unpack: factors of shape {a.shape} have int32 pivots of shape {(*a.shape[:-2], k)}, "
      f"got {pivots.dtype.name} of shape {pivots.shape}"
    )
  empty = a._filled((0,), 0)
  p = _permutation(pivots, m, a.dtype) if unpack_pivots else empty
  if not unpack_data:
    return p, empty, empty
  one = a.eye(m, k, dtype=a.dtype, device=a.device)
  return p, a._select_axis(a.ndim - 1, 0, k).tril(-1) + one, a._select_axis(a.ndim - 2, 0, k).triu()


def lu_solve(right: Tensor, LU: Tensor, pivots: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
  """x with `A @ x = right`, or `x @ A = right` unless `left`, for the matrices A `(…, n, n)` of which `LU` and `pivots`
  are the factors; of their transposes with `adjoint`. `right` is `(…, n, k)`, or `(…, k, n)`; leading axes broadcast.
  """
  if not left:
    return right.transpose(-2, -1).lu_solve(LU, pivots, adjoint=not adjoint).transpose(-2, -1)
  n = square_size(LU, "lu_solve")
  if right.ndim < 2 or right.shape[-2] != n:
    raise ValueError(f"lu_solve: {n} equations need as many rows, got shape {right.shape}")
  lead = broadcast_shape(right.shape[:-2], LU.shape[:-2])
  b = right.broadcast_to((*lead, *right.shape[-2:]))
  if 0 in b.shape:
    return b
  p, lower, upper = LU.lu_unpack(pivots)
  p, lower, upper = (t.broadcast_to((*lead, n, n)) for t in (p, lower, upper))
  if adjoint:
    return p.matmul(solved(lower.transpose(-2, -1), solved(upper.transpose(-2, -1), b, LOWER), UPPER))
  return solved(upper, solved(lower, p.transpose(-2, -1).matmul(b), LOWER), UPPER)
