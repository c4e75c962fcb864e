"""Linear equations, determinants and triangular factors of matrices in the last two axes.

Every loop turns its matrix by one row or column per step, so that what a step works on is always in the first column:
its kernels are the same in every step, and as few are compiled for a large matrix as for a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.base import is_const
from tiny_tensor.shapes import broadcast_shape
from tiny_uop import UOp, dtypes
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


@dataclass(frozen=True)
class Turned:
  """The derivatives of equations and of determinants, by equations with the matrix turned over."""

  wrap: Callable[[UOp], Any]
  what: str

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "a function of one result"
    a, g, y = (self.wrap(u) for u in (inputs[0], gs[0], results[0]))
    if self.what == "solution":
      into_b = solved(a.transpose(-2, -1), g)
      return into_b.matmul(y.transpose(-2, -1)).mul(-1).uop, into_b.uop
    return (((g * y).reshape((*a.shape[:-2], 1, 1)) * a.inverse().transpose(-2, -1)).uop,)


def square_size(a: Tensor, what: str) -> int:
  """The number of rows. Raises ValueError where the matrices are not square."""
  if a.ndim < 2 or a.shape[-2] != a.shape[-1]:
    raise ValueError(f"{what} takes square matrices, got shape {a.shape}")
  return int(a.shape[-1])


def check_regular(a: Tensor, what: str) -> None:
  """ValueError for what is known to be singular before anything is computed: a matrix of one value."""
  if int(a.shape[-1]) > 1 and 0 not in a.shape and is_const(a.uop):
    raise ValueError(f"{what} of a singular matrix: all elements of the {a.shape} tensor are the same constant")


def solve(matrix: Tensor, b: Tensor) -> Tensor:
  """x with `matrix @ x = b`, for `b` of shape `(…, n, k)`, or of vectors `(n,)` or `(…, n)` as in PyTorch. Leading
  axes broadcast. By Gauss–Jordan elimination with partial pivoting, in at least float32.

  The residual is a small multiple of n·eps·|matrix|·|x|; the error is as much greater as the matrix is
  ill-conditioned. Whether a matrix is singular is not known before it is computed: x then has inf or NaN, or
  (where rounding hides it) huge elements. Raises ValueError for other shapes, and for a constant matrix.
  """
  n = square_size(matrix, "solve")
  check_regular(matrix, "solve")
  vectors = b.ndim == 1 or (b.ndim == matrix.ndim - 1 and b.shape == matrix.shape[:-1])
  right = b.unsqueeze(-1) if vectors else b
  if right.shape[-2] != n:
    raise ValueError(f"solve: {n} equations of shape {matrix.shape} need as many rows, got b of shape {b.shape}")
  a, dtype = matrix._with_precision()
  right = right._as_float()
  wide = dtypes.promote(a.dtype, right.dtype)
  lead = broadcast_shape(matrix.shape[:-2], right.shape[:-2])
  a = a._as_dtype(wide).broadcast_to((*lead, n, n))
  x = solved(a, right._as_dtype(wide).broadcast_to((*lead, n, right.shape[-1])))
  return (x.squeeze(-1) if vectors else x)._as_dtype(dtypes.promote(dtype, right.dtype))


def solved(a: Tensor, b: Tensor) -> Tensor:
  """`solve` for operands of one dtype that agree in their leading axes, with the derivative of the equations."""
  if 0 in b.shape:
    return b
  x = _eliminated(a, b)[0]
  own = with_gradient((x.uop,), (a.uop, b.uop), Turned(a._wrap, "solution"), "solve")[0]
  return x._derive(own)


def _eliminated(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
  """(a⁻¹ b, the determinants): each step takes the free row with the greatest first element as the pivot's, clears
  the first column elsewhere, and turns the columns by one. In place of the column it puts which row it was.
  """
  n, width = int(a.shape[-1]), int(b.shape[-1])
  both = a.cat(b, dim=-1).contiguous()
  free = a._filled(a.shape[:-1], 1).contiguous()
  det = a._filled((*a.shape[:-2], 1), 1).contiguous()
  for _ in range(n):
    column = both._select_axis(both.ndim - 1, 0, 1)
    size = (free > 0).where(column.detach().squeeze(-1).abs(), -1.0)
    chosen = size._along(size.ndim - 1).eq(size.argmax(-1, keepdim=True)).contiguous()
    hot = chosen.unsqueeze(-1)
    row = hot.where(both, 0).sum(-2, keepdim=True).contiguous()
    pivot = row._select_axis(row.ndim - 1, 0, 1)
    scaled = row / pivot
    cleared = hot.where(scaled, both - column * scaled)
    parts = cleared.split([1, n - 1, width], dim=-1)
    both = parts[1].cat(hot._as_dtype(both.dtype), parts[2], dim=-1).contiguous()
    free = chosen.where(0.0, free).contiguous()
    det = (det * pivot.squeeze(-1)).contiguous()
  order, right = both.split([n, width], dim=-1)
  return order.detach().transpose(-2, -1).matmul(right), det.squeeze(-1) * _permutation_sign(order)


def _permutation_sign(a: Tensor) -> Tensor:
  """1 or -1 for matrices with one 1 in each row and column: even or odd permutations."""
  place = a.detach().argmax(-2)
  pairs = (place.unsqueeze(-1) > place.unsqueeze(-2)).where(1, 0).triu(1)
  return pairs.sum((-2, -1)).mod(2).eq(0).where(1.0, -1.0)._as_dtype(a.dtype)


def inverse(a: Tensor) -> Tensor:
  """The inverse matrices: `solve` of the identity, whose remarks hold. Raises ValueError where not square."""
  n = square_size(a, "inverse")
  check_regular(a, "inverse")
  return a.solve(a.eye(n, dtype=a._as_float().dtype, device=a.device).broadcast_to(a.shape))


def det(a: Tensor) -> Tensor:
  """Determinants `(…)`; 0 for exactly singular matrices, where the gradient is NaN."""
  n = square_size(a, "det")
  x, dtype = a._with_precision()
  if n == 0:
    return x._filled(x.shape[:-2], 1)._as_dtype(dtype)
  found = _eliminated(x, x._select_axis(x.ndim - 1, 0, 0))[1]
  # past a pivot of 0 there is nothing but NaN
  found = (found.isnan() & x.isfinite().all((-2, -1))).where(0.0, found)
  own = with_gradient((found.uop,), (x.uop,), Turned(a._wrap, "determinant"), "det")[0]
  return found._derive(own)._as_dtype(dtype)


def cholesky(a: Tensor, upper: bool = False) -> Tensor:
  """L, lower triangular, with `L @ Lᵀ = a`, for symmetric positive definite matrices; for others L has NaN. Only
  differences of rounding come from the upper triangle. With `upper`, Lᵀ. Raises ValueError where not square.
  """
  n = square_size(a, "cholesky")
  if upper:
    return a.cholesky().transpose(-2, -1)
  x, dtype = a._with_precision()
  # the gradient is that of symmetric matrices, and symmetric
  even = (x + x.transpose(-2, -1)) * 0.5
  x = even + (x - even).detach()
  rest, lower = x.contiguous(), x.const_like(0).contiguous()
  for _ in range(n):
    column = rest._select_axis(rest.ndim - 1, 0, 1)
    column = (column / column._select_axis(column.ndim - 2, 0, 1).sqrt()).contiguous()
    rest = (rest - column * column.transpose(-2, -1)).roll((-1, -1), (-2, -1)).contiguous()
    lower = lower._select_axis(lower.ndim - 1, 1, n).cat(column, dim=-1).roll(-1, -2).contiguous()
  return lower.tril()._as_dtype(dtype)


# *** least squares ***


def lstsq(a: Tensor, b: Tensor) -> Tensor:
  """x `(…, n, k)` that makes `a @ x` closest to `b` `(…, m, k)`, or for m < n the smallest that solves it; by qr.

  Matrices `(…, m, n)` have full rank, else x has inf or NaN. Raises ValueError for shapes that do not fit.
  """
  if a.ndim < 2 or b.ndim < 2 or a.shape[-2] != b.shape[-2]:
    raise ValueError(f"lstsq takes matrices with as many rows as b, got shapes {a.shape} and {b.shape}")
  m, n = int(a.shape[-2]), int(a.shape[-1])
  q, r = (a if m >= n else a.transpose(-2, -1)).qr()
  small = min(m, n)
  basis, triangle = q._select_axis(q.ndim - 1, 0, small), r._select_axis(r.ndim - 2, 0, small)
  if m >= n:
    return triangle.solve(basis.transpose(-2, -1).matmul(b._as_float()))
  return basis.matmul(triangle.transpose(-2, -1).solve(b))


def qr(a: Tensor, mode: str = "complete") -> tuple[Tensor, Tensor]:
  """(Q `(…, m, m)`, R `(…, m, n)`) with Q orthogonal and R upper triangular, by Householder reflections (1958). With
  mode "reduced" only the first min(m, n) columns of Q and rows of R.
  """
  if mode not in ("complete", "reduced"):
    raise ValueError(f"mode must be 'complete' or 'reduced', got {mode!r}")
  if a.ndim < 2:
    raise ValueError(f"qr takes matrices, got shape {a.shape}")
  m, n = int(a.shape[-2]), int(a.shape[-1])
  if mode == "reduced":
    q, r = a.qr()
    return q._select_axis(q.ndim - 1, 0, min(m, n)), r._select_axis(r.ndim - 2, 0, min(m, n))
  r = a._as_float().contiguous()
  q = a.full((m, m), 0, device=a.device, dtype=r.dtype) + a.eye(m, dtype=r.dtype, device=a.device)
  q = q.broadcast_to((*a.shape[:-2], m, m)).contiguous()
  first = a._count_up(m).eq(0)
  free = r._filled((m,), 1.0).contiguous()
  steps = min(m - 1, n)
  for _ in range(steps):
    x = free * r._select_axis(r.ndim - 1, 0, 1).squeeze(-1)
    head = first.where(x, 0).sum(-1, keepdim=True)
    length = x.square().sum(-1, keepdim=True).sqrt()
    # away from the head, so that nothing cancels
    v = x + first.where((head < 0).where(-length, length), 0)
    scale = v.square().sum(-1, keepdim=True)
    v = (v / (scale > 0).where(scale.sqrt(), 1.0)).unsqueeze(-1).contiguous()
    r = (r - v * (v.transpose(-2, -1).matmul(r)) * 2).roll((-1, -1), (-2, -1)).contiguous()
    q = (q - q.matmul(v) * v.transpose(-2, -1) * 2).roll(-1, -1).contiguous()
    free = free._select_axis(0, 1, m)._pad_zeros([(0, 1)]).contiguous()
  return (q.roll(steps, -1), r.roll((steps, steps), (-2, -1)).triu()) if steps > 0 else (q, r.triu())
