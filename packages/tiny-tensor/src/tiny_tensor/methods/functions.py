"""Special functions and linear algebra as methods: `special/` and `linalg/` have the functions."""

from __future__ import annotations

from tiny_tensor.base import TensorBase
from tiny_tensor.linalg import functions as matrices
from tiny_tensor.linalg import lu, reflections, solving, spectra
from tiny_tensor.special import bessel, functions, incomplete_gamma, polynomials


class FunctionMixin(TensorBase):
  """Functions of the error, gamma and Bessel families, orthogonal polynomials; equations, decompositions and norms of
  matrices in the last two axes.
  """

  __slots__ = ()

  erfc = functions.erfc
  erfcx = functions.erfcx
  erfinv = functions.erfinv
  ndtr = functions.ndtr
  ndtri = functions.ndtri
  log_ndtr = functions.log_ndtr
  lgamma = functions.lgamma
  digamma = functions.digamma
  trigamma = functions.trigamma
  polygamma = functions.polygamma
  mvlgamma = functions.mvlgamma
  i0 = functions.i0
  i0e = functions.i0e
  i1 = functions.i1
  i1e = functions.i1e

  bessel_j0 = bessel.bessel_j0
  bessel_j1 = bessel.bessel_j1
  bessel_y0 = bessel.bessel_y0
  bessel_y1 = bessel.bessel_y1
  modified_bessel_i0 = functions.i0
  modified_bessel_i1 = functions.i1
  modified_bessel_k0 = bessel.modified_bessel_k0
  modified_bessel_k1 = bessel.modified_bessel_k1
  scaled_modified_bessel_k0 = bessel.scaled_modified_bessel_k0
  scaled_modified_bessel_k1 = bessel.scaled_modified_bessel_k1
  spherical_bessel_j0 = bessel.spherical_bessel_j0
  airy_ai = bessel.airy_ai

  igamma = incomplete_gamma.igamma
  igammac = incomplete_gamma.igammac
  zeta = incomplete_gamma.zeta

  chebyshev_polynomial_t = polynomials.chebyshev_polynomial_t
  chebyshev_polynomial_u = polynomials.chebyshev_polynomial_u
  chebyshev_polynomial_v = polynomials.chebyshev_polynomial_v
  chebyshev_polynomial_w = polynomials.chebyshev_polynomial_w
  shifted_chebyshev_polynomial_t = polynomials.shifted_chebyshev_polynomial_t
  shifted_chebyshev_polynomial_u = polynomials.shifted_chebyshev_polynomial_u
  shifted_chebyshev_polynomial_v = polynomials.shifted_chebyshev_polynomial_v
  shifted_chebyshev_polynomial_w = polynomials.shifted_chebyshev_polynomial_w
  hermite_polynomial_h = polynomials.hermite_polynomial_h
  hermite_polynomial_he = polynomials.hermite_polynomial_he
  laguerre_polynomial_l = polynomials.laguerre_polynomial_l
  legendre_polynomial_p = polynomials.legendre_polynomial_p

  solve = solving.solve
  inverse = solving.inverse
  det = solving.det
  cholesky = solving.cholesky
  lstsq = reflections.lstsq
  qr = reflections.qr

  lu_factor = lu.lu_factor
  lu_factor_ex = lu.lu_factor_ex
  lu_unpack = lu.lu_unpack
  lu_solve = lu.lu_solve
  lu = lu.lu  # last: it hides the module

  svd = spectra.svd
  eigh = spectra.eigh
  eigvalsh = spectra.eigvalsh
  svd_lowrank = spectra.svd_lowrank
  pca_lowrank = spectra.pca_lowrank
  newton_schulz = spectra.newton_schulz

  inv = matrices.inv
  slogdet = solving.slogdet
  logdet = matrices.logdet
  matrix_power = matrices.matrix_power
  multi_dot = matrices.multi_dot
  matrix_exp = matrices.matrix_exp
  svdvals = matrices.svdvals
  pinv = matrices.pinv
  matrix_rank = matrices.matrix_rank
  nuclear_norm = matrices.nuclear_norm
  matrix_norm = matrices.matrix_norm
  cond = matrices.cond
  solve_triangular = matrices.solve_triangular
  cholesky_solve = matrices.cholesky_solve
  cholesky_inverse = matrices.cholesky_inverse
  tensorinv = matrices.tensorinv
  tensorsolve = matrices.tensorsolve
  vander = matrices.vander
