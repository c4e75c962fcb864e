"""Linear equations, determinants and triangular factors of matrices in the last two axes, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.base import is_const
from tiny_tensor.linalg.triangles import eliminated, equated, root
from tiny_tensor.shapes import broadcast_shape
from tiny_uop import UOp, dtypes
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_tensor.tensor import Tensor


UPPER, LOWER, SQUARE = "upper", "lower", "square"
_TURNED = {UPPER: LOWER, LOWER: UPPER, SQUARE: SQUARE}


@dataclass(frozen=True)
class OfSolution:
  """The derivative of equations, by equations with the matrix turned over. `shape`: what counts of the matrix."""

  wrap: Callable[[UOp], Any]
  shape: str

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "a function of one result"
    a, g, y = (self.wrap(u) for u in (inputs[0], gs[0], results[0]))
    into_b = solved(a.transpose(-2, -1), g, _TURNED[self.shape])
    return into_b.matmul(y.transpose(-2, -1)).mul(-1).uop, into_b.uop


@dataclass(frozen=True)
class OfDeterminant:
  """The derivative of determinants, g det A⁻ᵀ, or of the logarithms of their magnitudes."""

  wrap: Callable[[UOp], Any]
  logarithm: bool

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "a function of one result"
    a, g, y = (self.wrap(u) for u in (inputs[0], gs[0], results[0]))
    factor = (g if self.logarithm else g * y).reshape((*a.shape[:-2], 1, 1))
    return ((factor * a.inverse().transpose(-2, -1)).uop,)


@dataclass(frozen=True)
class OfCholesky:
  """The derivative of L: the even part of L⁻ᵀ P L⁻¹, where P is the lower triangle of Lᵀ gL, its diagonal halved
  (Murray, "Differentiation of the Cholesky decomposition", 2016)."""

  wrap: Callable[[UOp], Any]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    assert gs[0] is not None, "a function of one result"
    lower, g = self.wrap(results[0]), self.wrap(gs[0])
    turned = lower.transpose(-2, -1)
    product = turned.matmul(g.tril())
    half = solved(turned, (product.tril() + product.tril(-1)) * 0.5, UPPER)
    out = solved(turned, half.transpose(-2, -1), UPPER)
    return (((out + out.transpose(-2, -1)) * 0.5).uop,)


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
  axes broadcast. By elimination with partial pivoting, in at least float32.

  The residual is a small multiple of n·eps·|matrix|·|x|; the error is as much greater as the matrix is
  ill-conditioned. Whether a matrix is singular is not known before it is computed: x then has inf or NaN, or
  (where rounding hides it) huge elements. Raises ValueError for other shapes, and for a constant matrix.
  """
  check_regular(matrix, "solve")
  return equations(matrix, b, SQUARE)


def equations(matrix: Tensor, b: Tensor, shape: str) -> Tensor:
  """`solve`, with what counts of the matrix."""
  n = square_size(matrix, "solve")
  vectors = b.ndim == 1 or (b.ndim == matrix.ndim - 1 and b.shape == matrix.shape[:-1])
  right = b.unsqueeze(-1) if vectors else b
  if right.shape[-2] != n:
    raise ValueError(f"solve: {n} equations of shape {matrix.shape} need as many rows, got b of shape {b.shape}")
  a, dtype = matrix._with_precision()
  right = right._as_float()
  wide = dtypes.promote(a.dtype, right.dtype)
  lead = broadcast_shape(matrix.shape[:-2], right.shape[:-2])
  a = a._as_dtype(wide).broadcast_to((*lead, n, n))
  x = solved(a, right._as_dtype(wide).broadcast_to((*lead, n, right.shape[-1])), shape)
  return (x.squeeze(-1) if vectors else x)._as_dtype(dtypes.promote(dtype, right.dtype))


def solved(a: Tensor, b: Tensor, shape: str = SQUARE) -> Tensor:
  """`solve` for operands of one dtype that agree in their leading axes, with the derivative of the equations."""
  if 0 in b.shape:
    return b
  x, y = a.detach(), b.detach()
  if shape is LOWER:  # backwards it is an upper one
    x = equated(x.flip((-2, -1)), y.flip(-2), True).flip(-2)
  else:
    x = equated(x, y, shape is UPPER)
  own = with_gradient((x.uop,), (a.uop, b.uop), OfSolution(a._wrap, shape), "solve")[0]
  return a._derive(own, b)


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
  pivots, sign = _pivots(x)
  own = with_gradient(((pivots.prod(-1) * sign).uop,), (x.uop,), OfDeterminant(a._wrap, False), "det")[0]
  return x._derive(own)._as_dtype(dtype)


def slogdet(a: Tensor) -> tuple[Tensor, Tensor]:
  """(sign of the determinant, logarithm of its magnitude), from the pivots: without overflow. 0 and -inf for
  singular matrices.
  """
  n = square_size(a, "slogdet")
  x, dtype = a._with_precision()
  if n == 0:
    return x._filled(x.shape[:-2], 1)._as_dtype(dtype), x._filled(x.shape[:-2], 0)._as_dtype(dtype)
  pivots, sign = _pivots(x)
  size = pivots.abs().log().sum(-1)
  own = with_gradient((size.uop,), (x.uop,), OfDeterminant(a._wrap, True), "slogdet")[0]
  return (pivots.sign().prod(-1) * sign)._as_dtype(dtype), x._derive(own)._as_dtype(dtype)


def _pivots(a: Tensor) -> tuple[Tensor, Tensor]:
  """(the diagonal of U, -1 or 1 for the exchanges of rows) of `a = P L U`."""
  packed, steps = eliminated(a.detach(), True)
  odd = steps.ne(steps._count_up(int(steps.shape[-1]))).sum(-1).mod(2)
  return packed.diagonal(0, -2, -1), odd.eq(0).where(1.0, -1.0)._as_dtype(a.dtype)


def cholesky(a: Tensor, upper: bool = False) -> Tensor:
  """L, lower triangular, with `L @ Lᵀ = a`, for symmetric positive definite matrices; for others L has NaN. Only the
  lower triangle is read. With `upper`, Lᵀ. The gradient is that of symmetric matrices, and symmetric. Raises ValueError
  where not square.
  """
  n = square_size(a, "cholesky")
  if upper:
    return a.cholesky().transpose(-2, -1)
  x, dtype = a._with_precision()
  if n == 0 or 0 in a.shape:
    return x._as_dtype(dtype)
  own = with_gradient((root(x.detach()).uop,), (x.uop,), OfCholesky(a._wrap), "cholesky")[0]
  return x._derive(own)._as_dtype(dtype)
