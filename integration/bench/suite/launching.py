"""Kernels of a workload, launched one at a time, as they are timed apart from what calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from suite.tinygrad_like import Ours
from suite.workloads import all_workloads


def kernels_of(name: str, threads: int = 0) -> list[Any]:
  """The kernels of a workload, ready to be compiled, as they are where so many threads share them (0: few)."""
  from tiny_sched import Room, schedule
  from tiny_tensor.realize import room
  from tiny_uop import Ops

  (workload,) = [w for w in all_workloads(False) if w.name == name]
  library = Ours()
  weights, inputs = workload.arrays()
  tensors = workload.tensors(library, inputs)
  result = workload.program(library, {k: library.tensor(w) for k, w in weights.items()}, *tensors)
  first, *others = result if isinstance(result, tuple) else (result,)
  calls = schedule(first.graph(*others), lambda device: Room(room(device).local_memory, threads)).src
  return list(dict.fromkeys(call.src[0] for call in calls if call.src[0].op is Ops.SINK))


def names_of(only: list[str]) -> list[str]:
  """The workloads of a call that are chosen by groups, or by parts of their names. Raises SystemExit if none is."""
  chosen = [w for w in all_workloads(False) if any(word == w.group or word in w.name for word in only)]
  names = [w.name for w in chosen if w.kind == "call" and not w.name.startswith("MLP")]
  if not names:
    raise SystemExit(f"no workload of one call is called {only}; `bench.py --list` shows names and groups")
  return names


def memory_for(device: Any, params: Any) -> list[tuple[Any, int]]:
  """Memory for the parameters of a kernel, filled with normally distributed numbers."""
  rng = np.random.default_rng(0)
  memories = []
  for p in params:
    values = rng.standard_normal(p.size, dtype=np.float32).astype(p.dtype.scalar().name, copy=False)
    memories.append((device.alloc(p.size * p.dtype.itemsize), 0))
    device.write(memories[-1][0], 0, memoryview(values.tobytes()))
  return memories


def launcher(device: Any, binary: Any, program: Any, memories: list[tuple[Any, int]]) -> Callable[[], None]:
  """A function that launches a loaded kernel once and waits for it, with its variables as large as they get."""
  from tiny_runtime.execution import measure

  sizes = measure.largest(binary)
  grid, *_ = binary.sizes(sizes)
  integers = [sizes[v] for v in binary.variables]
  return lambda: device.launch(program, memories, integers, grid, (1,), True)


def operations_of(kernel: Any, binary: Any) -> int:
  """The operations of one launch; of a sum of products those that it needs: what is computed for nothing does not
  count."""
  from tiny_codegen.kernel.sum_of_products import SumOfProducts
  from tiny_runtime.execution import measure

  if (found := SumOfProducts.of(kernel)) is not None:
    return int(2 * found.outputs * found.length)
  return int(binary.sizes(measure.largest(binary))[2])
