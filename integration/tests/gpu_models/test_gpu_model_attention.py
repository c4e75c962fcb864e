"""Attention in kernels of blocks on the models of GPUs: workgroups that share keys and values, against the formula.

The models find races in shared memory, accesses outside of it, and barriers that some threads never reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gpu_model_devices import on
from test_online_softmax import gradients_by_the_formula

from gpu_model import cuda, kfd_backend, metal
from gpu_model.toolchain import compiler
from tiny_sched import schedule_cache_clear
from tiny_sched.softmax import candidates
from tiny_tensor import Tensor
from tiny_tensor.realize import plan_tensors
from tiny_uop import Ops, PtrDType

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

Array = np.ndarray[Any, Any]
BACKENDS: dict[str, Any] = {
  "METAL": metal.BACKEND, "CUDA": cuda.BACKEND, "GFX1100": kfd_backend.GFX1100, "GFX942": kfd_backend.BACKEND,
  "CODE1100": kfd_backend.CODE1100, "CODE942": kfd_backend.CODE942,
}  # fmt: skip
NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in BACKENDS if name != "GFX1100"]
GPUS = ["GFX1100", *NIGHTLY]


@pytest.fixture(autouse=True)
def every_size() -> Iterator[None]:
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(candidates, "LEAST_SCORES", 0)
    schedule_cache_clear()
    yield
  schedule_cache_clear()


def normal(seed: int, *shape: int) -> Array:
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention(scores: Array, values: Array) -> Array:
  """softmax(scores) · values in float64."""
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  return np.asarray((weights / weights.sum(-1, keepdims=True)) @ values)


KINDS = ["float16", *[pytest.param(kind, marks=pytest.mark.nightly) for kind in ("bfloat16", "float32")]]
ERRORS = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_attention_is_one_kernel(gpu: str, kind: str, causal: bool) -> None:
  """Blocks that do not divide the lengths: the last rows are computed twice, and what is past the keys counts for
  nothing."""
  length, seen, size = 70, 70 if causal else 53, 16
  with on(BACKENDS[gpu], gpu):
    q, k, v = (of(kind, n, 2, t, size) for n, t in enumerate((length, seen, seen)))
    got = q.scaled_dot_product_attention(k, v, is_causal=causal)
    calls = plan_tensors([got])[0].src
    assert [call.src[0].arg.name for call in calls] == [f"softmax_2x{length}x{size}_r{seen}"]
    assert not any(b.arg[1] >= length * seen for b in calls[0].toposort if b.op is Ops.BUFFER)
    a, b, c, found = (x.float().numpy().astype(np.float64) for x in (q, k, v, got))
  scores = a @ b.swapaxes(-1, -2) / math.sqrt(size)
  if causal:
    scores[..., ~np.tri(length, seen, dtype=bool)] = -np.inf
  np.testing.assert_allclose(found, attention(scores, c), rtol=ERRORS[kind], atol=ERRORS[kind])


def of(kind: str, seed: int, *shape: int) -> Tensor:
  """Numbers of a type in memory."""
  return Tensor(normal(seed, *shape)).cast(kind).realize()


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("kind", ["float32", *[pytest.param(k, marks=pytest.mark.nightly) for k in list(ERRORS)[:2]]])
@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_gradients_are_two_kernels(gpu: str, kind: str, causal: bool) -> None:
  """One for queries and one for keys and values, with no memory for pairs; blocks do not divide the lengths."""
  length, seen, size, width = 70, 70 if causal else 53, 20, 16
  shapes = ((length, size), (seen, size), (seen, width), (length, width))
  with on(BACKENDS[gpu], gpu):
    q, k, v, g = (of(kind, n, 2, *shape) for n, shape in enumerate(shapes))
    for x in (q, k, v):
      x.requires_grad_()
    out = q.scaled_dot_product_attention(k, v, is_causal=causal)
    (out * g).sum().backward()
    results = [out, *(x.grad for x in (q, k, v) if x.grad is not None)]
    calls = plan_tensors(results)[0].src
    names = [name for call in calls if (name := call.src[0].arg.name).startswith("softmax")]
    gradients = [f"softmax_gradients_2x{a}x{b}" for a, b in ((length, seen), (seen, length))]
    assert sorted(names) == sorted([f"softmax_2x{length}x{width}_r{seen}", *gradients])
    given = [u.dtype for call in calls for u in call.src[0].toposort if u.op is Ops.PARAM]
    assert max(t.size for t in given if isinstance(t, PtrDType)) < length * seen
    out.realize(*results[1:])
    found = [x.float().numpy() for x in results]
    a, b, c, d = (x.float().numpy() for x in (q, k, v, g))
  formula = gradients_by_the_formula(a, b, c, d, 1 / math.sqrt(size), "causal" if causal else "none", False)
  for got, wanted in zip(found, formula, strict=True):
    error = ERRORS[kind] * max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(got, wanted, rtol=ERRORS[kind], atol=error)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("wanted", ["v", pytest.param("qkv", marks=pytest.mark.nightly)])
def test_gradients_of_a_sum(gpu: str, wanted: str) -> None:
  """What comes back to the results is a number: rows leave no more than their maxima and sums, and one number each."""
  length, seen, size, width = 70, 53, 20, 16
  with on(BACKENDS[gpu], gpu):
    shapes = {"q": (length, size), "k": (seen, size), "v": (seen, width)}
    given = {name: of("float32", n, 2, *shape) for n, (name, shape) in enumerate(shapes.items())}
    for name in wanted:
      given[name].requires_grad_()
    given["q"].scaled_dot_product_attention(given["k"], given["v"]).sum().backward()
    results = [grad for name in wanted if (grad := given[name].grad) is not None]
    calls = plan_tensors(results)[0].src
    params = [u.dtype for call in calls for u in call.src[0].toposort if u.op is Ops.PARAM]
    assert max(t.size for t in params if isinstance(t, PtrDType)) < length * seen
    results[0].realize(*results[1:])
    found = dict(zip(wanted, [x.numpy() for x in results], strict=True))
    a, b, c = (x.numpy() for x in given.values())
  formula = gradients_by_the_formula(a, b, c, np.ones((2, length, width)), 1 / math.sqrt(size), "none", False)
  for name, want in zip("qkv", formula[1:], strict=True):
    if name in wanted:
      np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(want).max())))
