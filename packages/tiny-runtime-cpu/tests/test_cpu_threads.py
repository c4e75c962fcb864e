"""Kernels split among threads, however little work they have, against the reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tiny_runtime.conformance.kernels import random_kernel
from tiny_runtime.conformance.target import Target, reference
from tiny_runtime_cpu import BACKEND
from tiny_uop import AxisType, Context, KernelInfo, Ops, UOp, dtypes

F = dtypes.float32


@pytest.fixture(autouse=True)
def as_many_threads_as_there_are(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  monkeypatch.setattr("tiny_runtime_cpu.program.threads_for", lambda nanoseconds: 1000)
  with Context(CPU_COUNT=6):
    yield


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
  found = Target("CPU", BACKEND, "tiny_runtime_cpu.backend:BACKEND")
  yield found
  found.device.close()


@pytest.mark.parametrize("seed", range(200, 230))
def test_random_kernels(target: Target, seed: int) -> None:
  sink, contents, values = random_kernel(seed)
  assert target.run(sink, contents, values) == reference().run(sink, contents, values)


@pytest.mark.parametrize(("m", "n", "k"), ((1, 1, 1), (5, 3, 2), (64, 64, 8), (37, 129, 16), (128, 1, 7)))
def test_matmul(target: Target, m: int, n: int, k: int) -> None:
  i, j, r = UOp.range(m, 0), UOp.range(n, 1), UOp.range(k, 2, AxisType.REDUCE)
  a, b = UOp.param(1, dtypes.int32.ptr(m * k)), UOp.param(2, dtypes.int32.ptr(k * n))
  product = (a.index(i * k + r).load() * b.index(r * n + j).load()).reduce(Ops.ADD, r)
  store = UOp.param(0, dtypes.int32.ptr(m * n)).index(i * n + j).store(product)
  sink = UOp.sink(store.end(i, j), arg=KernelInfo("matmul"))
  contents = [bytes(4 * m * n), *(b"".join(v.to_bytes(4, "little") for v in range(s)) for s in (m * k, k * n))]
  for _ in range(5):
    assert target.run(sink, contents) == reference().run(sink, contents)
