"""A convolution, its gradients and attention as programs have them: products on tensor cores, on the models of GPUs."""

from __future__ import annotations

import pytest
from gpu_model_kernels import check_on

from gpu_model.amd import GFX1100
from gpu_model.cuda import ModelBackend
from gpu_model.metal import BACKEND
from gpu_model.toolchain import compiler
from tiny_codegen import compile_kernel
from tiny_runtime.contract import Backend
from tiny_runtime_nv.arch import Arch
from tiny_runtime_nv.target import PTXRenderer
from tiny_tensor import Tensor
from tiny_uop import Ops, UOp

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

WORDS = ("simdgroup_multiply", "mma.", "wmma")
"""What the source of a product on tensor cores has."""


def kernels(*results: Tensor) -> list[UOp]:
  """Those that compute the results."""
  return [item.ast for item in results[0].schedule(*results[1:]) if item.ast.op is Ops.SINK]


def convolution(which: str, dtype: str, stride: int) -> Tensor:
  """3 × 3 with a border: two images of 16 channels and 7 × 7 pixels, 16 filters. Forward, or one of the gradients."""
  x, w = Tensor.empty(2, 16, 7, 7, dtype=dtype), Tensor.empty(16, 16, 3, 3, dtype=dtype)
  y = x.conv2d(w, stride=stride, padding=1)
  if which == "forward":
    return y
  return y.gradient(x if which == "images" else w, gradient=Tensor.empty(*y.shape, dtype=dtype))[0]


@pytest.mark.parametrize(
  ("backend", "which", "dtype", "stride"),
  (
    (BACKEND, "forward", "float32", 2),
    (ModelBackend(), "images", "float16", 1),
    (GFX1100, "weights", "float16", 1),
  ),
  ids=("metal", "cuda", "gfx1100"),
)
def test_convolutions(backend: Backend, which: str, dtype: str, stride: int) -> None:
  sources = [check_on(backend, kernel, tolerance=64) for kernel in kernels(convolution(which, dtype, stride))]
  assert sum(any(word in source for word in WORDS) for source in sources) == 1


def test_both_products_of_attention() -> None:
  """Scores and what they weigh: the weights are rounded to float16 and kept so."""
  q, k, v = (Tensor.empty(2, 4, 64, 64, dtype="float16") for _ in range(3))
  renderer = PTXRenderer(Arch.parse("sm_90a"))
  programs = [compile_kernel(kernel, renderer) for kernel in kernels(q.scaled_dot_product_attention(k, v))]
  assert [any(u.op is Ops.MMA for u in p.src[1].src) for p in programs] == [True, False, True]
