"""The standard's extension for linear algebra, but for `eig` and `eigvals`, whose results are complex.

Matrices are in the last two axes, those before them are batches. All is computed in the dtype of `x`, float32 at least.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tiny_tensor.array_api.operands import Array, Axis, check_kind, of_one
from tiny_tensor.array_api.products import matmul, matrix_transpose, tensordot, vecdot
from tiny_tensor.linalg.solving import square_size
from tiny_tensor.shapes import broadcast_shape
from tiny_tensor.tensor import Tensor
from tiny_uop import DType

__all__ = [
  "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
  "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace",
  "vecdot", "vector_norm",
]  # fmt: skip


class EighResult(NamedTuple):
  """Eigenvalues, ascending, and eigenvectors in columns."""

  eigenvalues: Array
  eigenvectors: Array


class QRResult(NamedTuple):
  """Orthogonal and upper triangular factor."""

  Q: Array
  R: Array


class SlogdetResult(NamedTuple):
  """The sign of a determinant, and the logarithm of its magnitude."""

  sign: Array
  logabsdet: Array


class SVDResult(NamedTuple):
  """Left singular vectors in columns, singular values descending, right singular vectors in rows."""

  U: Array
  S: Array
  Vh: Array


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
  """L with `L @ L.mT == x`, or with `upper` its transpose. NaN where `x` is not positive definite."""
  check_kind("cholesky", "real floating", x)
  lower = x.cholesky()
  return lower.mT if upper else lower


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
  """The cross product of vectors of 3 along an axis, counted from the end; the others broadcast."""
  shape = broadcast_shape(x1.shape, x2.shape)
  if x1.shape[axis] != 3 or x2.shape[axis] != 3:
    raise ValueError(f"cross takes 3 elements along axis {axis}, got shapes {x1.shape} and {x2.shape}")
  return x1.broadcast_to(shape).cross(x2.broadcast_to(shape), axis)


det = of_one(Tensor.det, "The determinant.", kind="real floating")


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
  """The diagonal that lies `offset` above the main one."""
  return x.diagonal(offset, -2, -1)


def eigh(x: Array, /) -> EighResult:
  """Eigenvalues and eigenvectors of symmetric matrices.

  `x + c` with c no less than the largest magnitude of an eigenvalue (Gershgorin) is positive semidefinite, so its right
  singular vectors are the eigenvectors of `x`, and the values are their Rayleigh quotients.
  """
  check_kind("eigh", "real floating", x)
  n = square_size(x, "eigh")
  if 0 in x.shape:
    return EighResult(x.sum(-1), x)
  a, dtype = x._with_precision()
  limit = a.abs().sum(-1).max(-1).reshape((*a.shape[:-2], 1, 1))
  vectors = (a + Tensor.eye(n, dtype=a.dtype, device=a.device) * limit).svd()[2].mT.flip(-1).contiguous()
  values = (vectors * (a @ vectors)).sum(-2)
  values, order = values.sort(-1)
  vectors = vectors.gather(-1, order.unsqueeze(-2).broadcast_to(vectors.shape))
  return EighResult(values.cast(dtype), vectors.cast(dtype))


def eigvalsh(x: Array, /) -> Array:
  """Eigenvalues of symmetric matrices, ascending."""
  return eigh(x).eigenvalues


inv = of_one(Tensor.inverse, "The inverse.", "inv", "real floating")


def matrix_norm(
  x: Array, /, *, keepdims: bool = False, ord: int | float | Literal["fro", "nuc"] | None = "fro"
) -> Array:
  """The Frobenius or nuclear norm; ±2: the extreme singular values, ±1 and ±inf: the extreme sums of columns, rows."""
  check_kind("matrix_norm", "real floating", x)
  return x.matrix_norm("fro" if ord is None else ord, keepdim=keepdims)


def matrix_power(x: Array, n: int, /) -> Array:
  """`x @ x @ …`, n times; of the inverse for negative n."""
  check_kind("matrix_power", "real floating", x)
  return x.matrix_power(n)


def matrix_rank(x: Array, /, *, rtol: float | Array | None = None) -> Array:
  """How many singular values are greater than `rtol` (default: the longer side times eps) times the largest."""
  check_kind("matrix_rank", "real floating", x)
  return x.matrix_rank(rtol=rtol)


def outer(x1: Array, x2: Array, /) -> Array:
  """All products of an element of one vector and one of the other."""
  return x1.outer(x2)


def pinv(x: Array, /, *, rtol: float | Array | None = None) -> Array:
  """The pseudo-inverse (Moore–Penrose), with singular values up to `rtol` times the largest taken as zero."""
  check_kind("pinv", "real floating", x)
  return x.pinv(rtol)


def qr(x: Array, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
  """Q with orthonormal columns and R upper triangular; "complete" makes Q square."""
  check_kind("qr", "real floating", x)
  if mode not in ("reduced", "complete"):
    raise ValueError(f"qr: mode must be 'reduced' or 'complete', got {mode!r}")
  q, r = x.qr()
  k = min(int(x.shape[-2]), int(x.shape[-1])) if mode == "reduced" else int(x.shape[-2])
  return QRResult(q._select_axis(q.ndim - 1, 0, k), r._select_axis(r.ndim - 2, 0, k))


def slogdet(x: Array, /) -> SlogdetResult:
  """The sign of the determinant, and the logarithm of its magnitude, which does not overflow."""
  check_kind("slogdet", "real floating", x)
  return SlogdetResult(*x.slogdet())


def solve(x1: Array, x2: Array, /) -> Array:
  """y with `x1 @ y == x2`; `x2` is one vector, or matrices."""
  check_kind("solve", "real floating", x1, x2)
  if x2.ndim == 1:
    return x1.solve(x2)
  # Tensor.solve takes (batch, n) for vectors, as PyTorch does; here they are one matrix
  lead = broadcast_shape(x1.shape[:-2], x2.shape[:-2])
  return x1.broadcast_to((*lead, *x1.shape[-2:])).solve(x2.broadcast_to((*lead, *x2.shape[-2:])))


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
  """U, S, Vh with `U @ diag(S) @ Vh == x`, U and Vh square if `full_matrices`."""
  check_kind("svd", "real floating", x)
  return SVDResult(*x.svd(full_matrices))


def svdvals(x: Array, /) -> Array:
  """Singular values, descending."""
  return svd(x, full_matrices=False).S


def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
  """The sum of the diagonal that lies `offset` above the main one."""
  return diagonal(x, offset=offset).sum(-1, dtype=dtype)


def vector_norm(x: Array, /, *, axis: Axis = None, keepdims: bool = False, ord: int | float = 2) -> Array:
  """`sum(|x|^ord)^(1/ord)` over axes (None: all); ±inf: the extreme magnitudes; 0: how many are not zero."""
  check_kind("vector_norm", "real floating", x)
  return x.vector_norm(ord, axis, keepdims)
