"""Attention in kernels of blocks on the models of GPUs: workgroups that share keys and values, against the formula.

The models find races in shared memory, accesses outside of it, and barriers that some threads never reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from gpu_model import cuda, kfd_backend, metal
from gpu_model.toolchain import compiler
from tiny_runtime import Device
from tiny_runtime.opened import OpenDevice
from tiny_sched import schedule_cache_clear
from tiny_sched.softmax import blocks
from tiny_tensor import Tensor
from tiny_tensor.realize import plan_tensors
from tiny_uop import Ops
from tiny_uop.context import Context

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

Array = np.ndarray[Any, Any]
BACKENDS: dict[str, Any] = {
  "METAL": metal.BACKEND, "CUDA": cuda.BACKEND, "GFX1100": kfd_backend.GFX1100, "GFX942": kfd_backend.BACKEND,
  "CODE1100": kfd_backend.CODE1100,
}  # fmt: skip
NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in BACKENDS if name != "GFX1100"]
GPUS = ["GFX1100", *NIGHTLY]


@pytest.fixture(autouse=True)
def every_size() -> Iterator[None]:
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(blocks, "LEAST_SCORES", 0)
    schedule_cache_clear()
    yield
  schedule_cache_clear()


@contextmanager
def on(name: str) -> Iterator[None]:
  """Tensors are on a model of a GPU."""
  backend, before = BACKENDS[name], dict(Device._opened)
  device = backend.open(0)
  Device._opened[name] = OpenDevice(name, device, backend.compiler(device.info.arch), "", None, backend)
  try:
    with Context(DEVICE=name, CACHELEVEL=0):
      yield
  finally:
    Device._opened.pop(name).close()
    Device._opened.update(before)


def normal(seed: int, *shape: int) -> Array:
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention(scores: Array, values: Array) -> Array:
  """softmax(scores) · values in float64."""
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  return np.asarray((weights / weights.sum(-1, keepdims=True)) @ values)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_attention_is_one_kernel(gpu: str, causal: bool) -> None:
  """Blocks that do not divide the lengths: the last rows are computed twice, and what is past the keys counts for
  nothing."""
  length, seen, size = 70, 70 if causal else 53, 20
  with on(gpu):
    q, k, v = (Tensor(normal(n, 2, t, size)).realize() for n, t in enumerate((length, seen, seen)))
    got = q.scaled_dot_product_attention(k, v, is_causal=causal)
    calls = plan_tensors([got])[0].src
    assert [call.src[0].arg.name for call in calls] == [f"softmax_2x{length}x{size}_r{seen}"]
    assert not any(b.arg[1] >= length * seen for b in calls[0].toposort if b.op is Ops.BUFFER)
    a, b, c = (x.numpy().astype(np.float64) for x in (q, k, v))
    found = got.numpy()
  scores = a @ b.swapaxes(-1, -2) / math.sqrt(size)
  if causal:
    scores[..., ~np.tri(length, seen, dtype=bool)] = -np.inf
  np.testing.assert_allclose(found, attention(scores, c), rtol=3e-6, atol=3e-6)
