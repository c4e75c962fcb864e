"""Factorisations, sorts and scans on the models of GPUs: threads of a workgroup exchange values through global memory.

The models find races, and reads of what nobody has written. NumPy says what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_model_devices import on

from gpu_model import cuda, kfd_backend, metal
from gpu_model.toolchain import compiler
from tiny_tensor import Tensor

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

Array = np.ndarray[Any, Any]
BACKENDS: dict[str, Any] = {
  "METAL": metal.BACKEND, "CUDA": cuda.BACKEND, "GFX1100": kfd_backend.GFX1100, "CODE1100": kfd_backend.CODE1100,
}  # fmt: skip


def matrices(n: int) -> Array:
  """Two of them, far from singular."""
  noise = np.random.default_rng(n).standard_normal((2, n, n))
  return np.asarray(noise + n**0.5 * np.eye(n), np.float32)


def transposed(a: Any) -> Any:
  return a.transpose(-2, -1) if isinstance(a, Tensor) else np.swapaxes(a, -2, -1)


def from_lu(a: Tensor) -> Tensor:
  p, lower, upper = Tensor.lu_unpack(*a.lu_factor())
  return p @ lower @ upper


def from_qr(a: Tensor) -> Tensor:
  q, r = a.qr()
  return (q @ r).cat(transposed(q) @ q, r.tril(-1))


def from_svd(a: Tensor) -> Tensor:
  u, s, v = a.svd()
  return ((u * s.unsqueeze(-2)) @ v).cat(transposed(u) @ u)


def from_eigh(a: Tensor) -> Tensor:
  symmetric: Tensor = a + transposed(a)
  values, vectors = symmetric.eigh()
  product: Tensor = (vectors * values.unsqueeze(-2)) @ transposed(vectors)
  return product.cat(transposed(vectors) @ vectors)


def with_identity(a: Array, *zeros: Array) -> Array:
  return np.concatenate([a, np.broadcast_to(np.eye(a.shape[-1]), a.shape), *zeros])


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
  "solve": (lambda a: a.solve(a[..., :3] * 2), lambda a: np.linalg.solve(a, a[..., :3] * 2)),
  "inverse": (lambda a: a.inverse(), np.linalg.inv),
  "slogdet": (lambda a: a.slogdet()[1], lambda a: np.linalg.slogdet(a)[1]),
  "lu": (from_lu, lambda a: a),
  "cholesky": (lambda a: (a @ transposed(a)).cholesky(), lambda a: np.linalg.cholesky(a @ transposed(a))),
  "qr": (from_qr, lambda a: with_identity(a, np.zeros_like(a))),
  "lstsq": (
    lambda a: a[..., :-2].lstsq(a[..., -2:]),
    lambda a: np.linalg.pinv(a[..., :-2].astype(float)) @ a[..., -2:],
  ),
  "svd": (from_svd, with_identity),
  "eigh": (from_eigh, lambda a: with_identity(a + transposed(a))),
  "sort": (lambda a: a.sort(-1)[0], lambda a: np.sort(a, -1)),
  "cumsum": (lambda a: a.flatten().cumsum(0), lambda a: np.cumsum(a.astype(float))),
  "median": (lambda a: a.quantile(0.5, -1), lambda a: np.median(a, -1)),
}
MANY_STEPS = ("qr", "svd", "eigh")
HERE = [("METAL", name, n) for name in CASES for n in (6, 36) if n == 6 or name not in MANY_STEPS]
NIGHTLY = [(gpu, name, n) for gpu in BACKENDS for name in CASES for n in (1, 6, 36) if (gpu, name, n) not in HERE]
NIGHTLY += [("METAL", "svd", 70), ("METAL", "eigh", 130)]  # of several parts


@pytest.mark.parametrize("gpu, name, n", [*HERE, *[pytest.param(*case, marks=pytest.mark.nightly) for case in NIGHTLY]])
def test_results_are_those_of_numpy(gpu: str, name: str, n: int) -> None:
  compute, expected = CASES[name]
  a = matrices(n)
  with on(BACKENDS[gpu], gpu, 1):
    found = compute(Tensor(a)).numpy()
  np.testing.assert_allclose(found, expected(a), rtol=2e-4, atol=2e-4)
