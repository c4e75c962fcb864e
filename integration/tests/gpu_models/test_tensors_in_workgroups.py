"""From `Tensor` to results on a device with workgroups: the shapes of kernels that its threads have to share out.

`hatch run opencl:test` runs these; elsewhere they are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tiny_runtime import Device, Unavailable
from tiny_tensor import Tensor, Variable

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def device() -> str:
  """OPENCL, where it can be used."""
  pytest.importorskip("pyopencl", reason="no OPENCL here: `hatch run opencl:test` has it")
  try:
    Device["OPENCL"]
  except Unavailable as error:
    pytest.skip(str(error))
  return "OPENCL"


def softmax(x: Array) -> Array:
  e = np.exp(x - x.max(-1, keepdims=True))
  return np.asarray(e / e.sum(-1, keepdims=True), np.float32)


CASES: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
  "a row per workgroup": ((3, 999), lambda t: t.softmax(), softmax),
  "a column per thread": ((257, 65), lambda t: t.sum(0), lambda a: a.sum(0)),
  "one sum for all": ((2003,), lambda t: t.max(), lambda a: a.max()),
  "more loops than counters": (
    (3, 5, 4, 2, 6),
    lambda t: t.permute(4, 2, 0, 3, 1).contiguous(),
    lambda a: a.transpose(4, 2, 0, 3, 1),
  ),
  "tiles that do not fit": ((33, 65), lambda t: t @ t.transpose(0, 1), lambda a: a @ a.T),
  "tiles that fit": ((64, 32), lambda t: t @ t.transpose(0, 1), lambda a: a @ a.T),
}


@pytest.mark.parametrize("name", CASES)
def test_shapes(name: str, device: str) -> None:
  shape, compute, expected = CASES[name]
  values = RNG.random(shape, dtype=np.float32)
  np.testing.assert_allclose(compute(Tensor(values, device=device)).numpy(), expected(values), rtol=1e-4)


@pytest.mark.parametrize("length", [1, 33, 64])
def test_lengths_known_at_the_launch(length: int, device: str) -> None:
  keys, query = RNG.random((64, 16), dtype=np.float32), RNG.random((4, 16), dtype=np.float32)
  kept = Tensor(keys, device=device)[: Variable("kept", 1, 64).bind(length)]
  attention = (Tensor(query, device=device) @ kept.transpose(0, 1)).softmax() @ kept
  np.testing.assert_allclose(attention.numpy(), softmax(query @ keys[:length].T) @ keys[:length], rtol=1e-4)
