"""Kernels written by hand go through the same compiler as those that are made: optimised, lowered, checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tiny_codegen import LLVMRenderer, compile_kernel
from tiny_tensor import Context, Tensor, TinyJit, vmap
from tiny_tensor.custom_kernel import Memory
from tiny_tensor.func import grad
from tiny_uop import AddrSpace, AxisType, BoundsError, KernelInfo, Ops, UOp, dtypes

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _on_the_processor() -> Iterator[None]:
  with Context(DEVICE="CPU"):
    yield


def product(out: Memory, a: Memory, b: Memory) -> UOp:
  """A matrix product, as simply as it can be written."""
  (rows, inner), columns = a.shape, b.shape[1]
  i, j, k = UOp.range(rows, 0), UOp.range(columns, 1), UOp.range(inner, 2, AxisType.REDUCE)
  return out[i, j].store((a[i, k].load() * b[k, j].load()).reduce(Ops.ADD, k)).end(i, j)


def product_gradient(gradient: Tensor, out: Tensor, a: Tensor, b: Tensor) -> tuple[None, Tensor, Tensor]:
  return None, matmul(gradient, b.T), matmul(a.T, gradient)


def matmul(a: Tensor, b: Tensor) -> Tensor:
  return Tensor.empty(a.shape[0], b.shape[1]).custom_kernel(a, b, fxn=product, grad_fxn=product_gradient)[0]


def matrices(*shapes: tuple[int, ...]) -> list[Array]:
  rng = np.random.default_rng(0)
  return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("settings", [{}, {"NOOPT": 1}, {"SPEC": 2}], ids=str)
def test_settings_hold_for_it(settings: dict[str, int]) -> None:
  a, b = matrices((9, 5), (5, 7))
  with Context(CACHELEVEL=0, **settings):
    np.testing.assert_allclose((matmul(Tensor(a).exp(), Tensor(b)) + 1).numpy(), np.exp(a) @ b + 1, rtol=1e-4)


def test_it_is_optimised_as_others_are() -> None:
  """The program is that of the scheduler's own kernel for the same product: tiles, vectors, copies to near memory."""
  a, b = (Tensor.empty(256, 256) for _ in range(2))
  by_hand = matmul(a, b).schedule()[-1].ast
  made = (a @ b).schedule()[-1].ast
  assert by_hand.arg == KernelInfo("product") and made is not by_hand
  written, scheduled = (
    compile_kernel(k.replace(arg=KernelInfo("same")), LLVMRenderer()).src[2].arg for k in (by_hand, made)
  )
  assert written == scheduled


def test_second_derivatives_and_batches() -> None:
  a, b = matrices((5, 4), (4, 3))
  batch = matrices((2, 5, 4))[0]

  def loss(x: Tensor) -> Tensor:
    return matmul(x, Tensor(b)).square().sum()

  np.testing.assert_allclose(grad(loss)(Tensor(a)).numpy(), 2 * a @ b @ b.T, rtol=1e-4)
  curvature = grad(lambda x: grad(loss)(x).square().sum())(Tensor(a)).numpy()
  np.testing.assert_allclose(curvature, 8 * a @ b @ b.T @ b @ b.T, rtol=1e-4)
  np.testing.assert_allclose(vmap(grad(loss))(Tensor(batch)).numpy(), 2 * batch @ b @ b.T, rtol=1e-4)


def running_sums(out: Memory, x: Memory) -> UOp:
  """A sum that goes on from one place to the next: iterations that have to stay one after the other."""
  i, total = UOp.range(x.size, 0), UOp.alloc(0, dtypes.float64.ptr(1, AddrSpace.REG))
  kept = total.after(total.index(0).store(0.0), i)
  add = kept.index(0).store(kept.index(0).load() + x.flat(i).load())
  return out.flat(i).store(total.after(add).index(0).load()).end(i)


def test_what_a_kernel_keeps_from_place_to_place_is_kept() -> None:
  x = np.random.default_rng(0).standard_normal((3, 40))

  def summed(t: Tensor) -> Tensor:
    return Tensor.custom_kernel(t.empty_like(), t, fxn=running_sums)[0]

  np.testing.assert_allclose(summed(Tensor(x)).numpy().reshape(-1), np.cumsum(x))
  np.testing.assert_allclose(vmap(summed)(Tensor(x)).numpy(), np.cumsum(x, 1))


def first_ones(out: Memory, count: Memory) -> UOp:
  """Ones, as many as `count` says."""
  i, j = UOp.range(out.size, 0), UOp.range(count[0].load().cast(dtypes.index).maximum(0).minimum(out.size), 1)
  return out.after(out[i].store(0.0).end(i))[j].store(1.0).end(j)


def test_a_loop_may_read_how_often_it_runs() -> None:
  found = Tensor.empty(5).custom_kernel(Tensor(np.array([3], np.int32)), fxn=first_ones)[0]
  assert found.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_memory_after_a_loop_that_runs_once() -> None:
  """Once the loop is gone, so is its counter from what comes after it."""

  def doubled(out: Memory, x: Memory) -> UOp:
    once, i = UOp.range(1, 0, AxisType.ORDER), UOp.range(x.size, 1)
    return out.after(once)[i].store(x[i].load() * 2).end(i).end(once)

  with Context(SPEC=2, CACHELEVEL=0):
    assert Tensor.empty(3).custom_kernel(Tensor([1.0, 2.0, 3.0]), fxn=doubled)[0].tolist() == [2.0, 4.0, 6.0]


def test_an_access_out_of_bounds_is_found_before_it_happens() -> None:
  def beyond(out: Memory, x: Memory) -> UOp:
    i = UOp.range(4, 0)
    return out[i].store(x[i + 1].load()).end(i)

  x = Tensor.empty(4)
  with Context(SPEC=2), pytest.raises(BoundsError, match="INDEX"):
    x.empty_like().custom_kernel(x, fxn=beyond)[0].schedule()


def test_it_is_replayed() -> None:
  w = Tensor(matrices((4, 3))[0]).realize()

  @TinyJit
  def step(x: Tensor) -> Tensor:
    return (matmul(x * 2, w).relu() + 1).realize()

  for x in (*matrices((5, 4), (5, 4), (5, 4)), matrices((5, 4))[0] * 3):
    expected = np.maximum(2 * x @ w.numpy(), 0) + 1
    np.testing.assert_allclose(step(Tensor(x)).numpy(), expected, rtol=1e-4)
