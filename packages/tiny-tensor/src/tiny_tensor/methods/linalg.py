"""Linear algebra as methods: `linalg/` has the functions."""

from __future__ import annotations

from tiny_tensor.base import TensorBase
from tiny_tensor.linalg import functions, lu, rotations, solving


class LinalgMixin(TensorBase):
  """Equations, decompositions and norms of matrices in the last two axes."""

  __slots__ = ()

  solve = solving.solve
  inverse = solving.inverse
  det = solving.det
  cholesky = solving.cholesky
  lstsq = solving.lstsq
  qr = solving.qr

  lu_factor = lu.lu_factor
  lu_factor_ex = lu.lu_factor_ex
  lu_unpack = lu.lu_unpack
  lu_solve = lu.lu_solve
  lu = lu.lu  # last: it hides the module

  svd = rotations.svd
  eigh = rotations.eigh
  eigvalsh = rotations.eigvalsh
  svd_lowrank = rotations.svd_lowrank
  pca_lowrank = rotations.pca_lowrank
  newton_schulz = rotations.newton_schulz

  inv = functions.inv
  slogdet = solving.slogdet
  logdet = functions.logdet
  matrix_power = functions.matrix_power
  multi_dot = functions.multi_dot
  matrix_exp = functions.matrix_exp
  svdvals = functions.svdvals
  pinv = functions.pinv
  matrix_rank = functions.matrix_rank
  nuclear_norm = functions.nuclear_norm
  matrix_norm = functions.matrix_norm
  cond = functions.cond
  solve_triangular = functions.solve_triangular
  cholesky_solve = functions.cholesky_solve
  cholesky_inverse = functions.cholesky_inverse
  tensorinv = functions.tensorinv
  tensorsolve = functions.tensorsolve
  vander = functions.vander
