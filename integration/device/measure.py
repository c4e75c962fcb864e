"""Measures workloads on a GPU, ours or PyTorch's: `measure.py ours "matmul bf16 8192"`. Prints a line of JSON for each.

The result is compared with NumPy's in float64, at places where that is quick, before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
SLICE, SLICES = 0.1, 5
"""Seconds of a slice, and how many of them."""


class Library(ABC):
  """What is measured, behind the few names that the workloads use. A tensor is the library's own."""

  @abstractmethod
  def tensor(self, array: Array, kind: str) -> Any:
    """On the GPU, as float32, float16 or bfloat16."""

  @abstractmethod
  def array(self, tensor: Any) -> Array:
    """As float32 of NumPy's."""

  @abstractmethod
  def captured(self, function: Callable[..., Any], *inputs: Any) -> Callable[[], Any]:
    """A call of a function, prepared as the library does it best."""

  @abstractmethod
  def wait(self) -> None:
    """Until the GPU has done everything."""

  @abstractmethod
  def softmax(self, x: Any) -> Any:
    """Of the last axis."""

  @abstractmethod
  def layer_norm(self, x: Any) -> Any:
    """Of the last axis, without weights."""

  @abstractmethod
  def attention(self, q: Any, k: Any, v: Any) -> Any:
    """Causal."""

  @abstractmethod
  def chain(self, x: Any, length: int) -> Any:
    """As many small kernels, each of which needs the one before it."""


class Ours(Library):
  """tiny-tensor on DEVICE, by TinyJit. `tf32`: products of float32 are rounded to 11 bits."""

  def __init__(self, tf32: bool = False) -> None:
    import tiny_runtime_nv.settings
    from tiny_tensor import Context, Device, Tensor, TinyJit, dtypes

    self.made, self.jit, self.dtypes = Tensor, TinyJit, dtypes
    with Context(**{tiny_runtime_nv.settings.TF32.name: int(tf32)}):  # which is read when the device is opened
      self.device: Any = Device[Device.DEFAULT]

  def tensor(self, array: Array, kind: str) -> Any:
    return self.made(array).cast(getattr(self.dtypes, kind)).contiguous().realize()

  def array(self, tensor: Any) -> Array:
    return np.asarray(tensor.cast(self.dtypes.float32).numpy())

  def captured(self, function: Callable[..., Any], *inputs: Any) -> Callable[[], Any]:
    jit = self.jit(lambda *given: function(*given).realize())
    return lambda: jit(*inputs)

  def wait(self) -> None:
    self.device.sync()

  def softmax(self, x: Any) -> Any:
    return x.softmax(-1)

  def layer_norm(self, x: Any) -> Any:
    return x.layernorm()

  def attention(self, q: Any, k: Any, v: Any) -> Any:
    return q.scaled_dot_product_attention(k, v, is_causal=True)

  def chain(self, x: Any, length: int) -> Any:
    for _ in range(length):
      x = (x + 1).realize()  # or they would be one kernel
    return x


class Torch(Library):
  """PyTorch, by CUDA graphs. `tf32`: products of float32 are rounded to 10 bits."""

  def __init__(self, tf32: bool = False) -> None:
    import torch

    self.torch = torch
    torch.backends.cuda.matmul.allow_tf32 = tf32

  def tensor(self, array: Array, kind: str) -> Any:
    return self.torch.from_numpy(array).to("cuda", getattr(self.torch, kind))

  def array(self, tensor: Any) -> Array:
    return np.asarray(tensor.float().cpu().numpy())

  def captured(self, function: Callable[..., Any], *inputs: Any) -> Callable[[], Any]:
    torch = self.torch
    for _ in range(3):
      function(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
      result = function(*inputs)

    def run() -> Any:
      graph.replay()
      return result

    return run

  def wait(self) -> None:
    self.torch.cuda.synchronize()

  def softmax(self, x: Any) -> Any:
    return x.softmax(-1)

  def layer_norm(self, x: Any) -> Any:
    return self.torch.nn.functional.layer_norm(x, x.shape[-1:])

  def attention(self, q: Any, k: Any, v: Any) -> Any:
    return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

  def chain(self, x: Any, length: int) -> Any:
    for _ in range(length):
      x = x + 1
    return x


@dataclass(frozen=True)
class Workload:
  """What is computed of tensors of these shapes, and what a result has to be.

  `exact(result, *inputs)` gives, for as much of the result as is quick, (what it is, what it should be). `operations`
  or `nbytes` of a call say how fast it is; with neither, it is the time of one of `parts`.
  """

  kind: str
  shapes: tuple[tuple[int, ...], ...]
  run: Callable[..., Any]
  exact: Callable[..., tuple[Array, Array]]
  tolerance: float
  operations: float = 0
  nbytes: float = 0
  parts: int = 1


def product(size: int, kind: str, tolerance: float) -> Workload:
  """A square product; some of its rows are checked."""

  def exact(result: Array, a: Array, b: Array) -> tuple[Array, Array]:
    rows = np.arange(0, size, size // 16 + 1)
    return result[rows], a[rows].astype(np.float64) @ b

  return Workload(kind, ((size, size),) * 2, lambda _, a, b: a @ b, exact, tolerance, operations=2.0 * size**3)


def by_rows(name: str, function: Callable[[Array], Array]) -> Workload:
  """What has rows of its own: 1 GiB is read and written."""
  shape = (32768, 4096)

  def exact(result: Array, x: Array) -> tuple[Array, Array]:
    return result[:: shape[0] // 16], function(x[:: shape[0] // 16].astype(np.float64))

  return Workload("float32", (shape,), lambda lib, x: getattr(lib, name)(x), exact, 1e-5, nbytes=2.0 * 4 * 4096 * 32768)


def softmax(x: Array) -> Array:
  e = np.exp(x - x.max(-1, keepdims=True))
  return np.asarray(e / e.sum(-1, keepdims=True))


def layer_norm(x: Array) -> Array:
  centred = x - x.mean(-1, keepdims=True)
  return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5))


def attention(result: Array, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
  q, k, v = (t[0, 0].astype(np.float64) for t in (q, k, v))
  scores = q @ k.T / q.shape[-1] ** 0.5
  scores[~np.tri(len(q), dtype=bool)] = -np.inf
  return result[0, 0], softmax(scores) @ v


HEADS, LENGTH, WIDTH = 64, 2048, 64
WORKLOADS = {
  "matmul bf16 8192": product(8192, "bfloat16", 1e-2),
  "matmul bf16 4096": product(4096, "bfloat16", 1e-2),
  "matmul fp16 8192": product(8192, "float16", 2e-3),
  "matmul fp32 4096": product(4096, "float32", 1e-5),
  "matmul tf32 4096": product(4096, "float32", 2e-3),
  "add one, 1 GiB": Workload(
    "float32", ((1 << 28,),), lambda _, x: x + 1,
    lambda r, x: (r[:: 1 << 16], x[:: 1 << 16] + 1.0), 1e-6, nbytes=2.0**31,
  ),
  "sum, 1 GiB": Workload(
    "float32", ((1 << 28,),), lambda _, x: x.sum(),
    lambda r, x: (r, np.asarray(x.sum(dtype=np.float64))), 1e-3, nbytes=2.0**30,
  ),
  "softmax": by_rows("softmax", softmax),
  "layer norm": by_rows("layer_norm", layer_norm),
  "attention bf16": Workload(
    "bfloat16", ((4, HEADS // 4, LENGTH, WIDTH),) * 3, lambda lib, q, k, v: lib.attention(q, k, v), attention, 2e-2,
    operations=2.0 * HEADS * LENGTH**2 * WIDTH,
  ),
  "a kernel of a graph": Workload(
    "float32", ((1024,),), lambda lib, x: lib.chain(x, 200), lambda r, x: (r, x + 200.0), 1e-5, parts=200
  ),
  "a call of a small graph": Workload(
    "float32", ((1024,),), lambda lib, x: lib.chain(x, 1), lambda r, x: (r, x + 1.0), 1e-6
  ),
}  # fmt: skip


def seconds_of(call: Callable[[], Any], wait: Callable[[], None]) -> float:
  """The median of slices, each of so many calls that it is long."""
  count, slices = 1, []
  while True:
    start = time.perf_counter()
    for _ in range(count):
      call()
    wait()
    took = time.perf_counter() - start
    if took >= SLICE:
      slices.append(took / count)
      if len(slices) == SLICES:
        return statistics.median(slices)
    else:
      slices, count = [], max(count + 1, int(count * min(100, 1.2 * SLICE / took)))


def error_of(found: Array, expected: Array) -> float:
  """‖found − expected‖ / ‖expected‖; infinite where one is no number."""
  difference = np.linalg.norm((found.astype(np.float64) - expected).ravel())
  share = float(difference / np.linalg.norm(expected.ravel()))
  return share if np.isfinite(share) else float("inf")


def measured(library: Library, workload: Workload) -> dict[str, float]:
  """Time and error. Raises ValueError for a wrong result."""
  generator = np.random.default_rng(0)
  arrays = [generator.random(shape, np.float32) * 2 - 1 for shape in workload.shapes]
  inputs = [library.tensor(array, workload.kind) for array in arrays]
  given = [library.array(tensor) for tensor in inputs] if workload.kind != "float32" else arrays
  start = time.perf_counter()
  call = library.captured(lambda *tensors: workload.run(library, *tensors), *inputs)
  for _ in range(3):
    result = call()
  library.wait()
  first = time.perf_counter() - start
  error = error_of(*workload.exact(library.array(result), *given))
  if error > workload.tolerance:
    raise ValueError(f"the result is wrong: its error is {error:.1e}, expected at most {workload.tolerance:.0e}")
  seconds = seconds_of(call, library.wait) / workload.parts
  return {
    "seconds": seconds, "error": error, "first": first, "operations": workload.operations, "nbytes": workload.nbytes
  }  # fmt: skip


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("library", choices=("ours", "torch"))
  parser.add_argument("workloads", nargs="+", choices=WORKLOADS, metavar="workload")
  given = parser.parse_args()
  failed = 0
  for name in given.workloads:
    try:
      library = (Ours if given.library == "ours" else Torch)(tf32="tf32" in name)
      found = measured(library, WORKLOADS[name])
      print(json.dumps({"workload": name, "library": given.library, **found}), flush=True)
    except Exception:
      failed += 1
      print(f"{name} failed\n{traceback.format_exc()}", flush=True)
  return int(failed > 0)


if __name__ == "__main__":
  sys.exit(main())
