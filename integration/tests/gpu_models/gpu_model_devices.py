"""What tests of the models of GPUs do with devices: the conformance kit in a process, memory and sizes of launches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gpu_model.as_device import as_device
from tiny_runtime import Binary
from tiny_uop.context import Context

Array = np.ndarray[Any, np.dtype[Any]]
MODEL = Path(__file__).parents[2] / "model"
KEPT = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), "268435456")
"""glibc would give LLVM's memory back to the system behind each kernel, and ask for it again: 7 % of such a process."""
KIT = "-q -p tiny_runtime.conformance.options -p no:cacheprovider --pyargs tiny_runtime.conformance".split()


def conformance(backend: str, cases: str, *options: str, name: str = "BACKEND", **variables: str) -> None:
  """The cases of the conformance kit that pytest's `-k` takes, in a process of their own, on a backend (a module of
  `integration/model/gpu_model`)."""
  path = os.pathsep.join([str(MODEL), *(p for p in sys.path if p)])
  env = {**os.environ, **KEPT, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
  command = [sys.executable, "-m", "pytest", *KIT, "--backend", f"gpu_model.{backend}:{name}", "-k", cases, *options]
  done = subprocess.run(command, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr


@contextmanager
def on(backend: Any, name: str, level: int = 0) -> Iterator[None]:
  """Tensors are on a model of a GPU, the device `name`; kernels are cached as `CACHELEVEL` says."""
  with as_device(backend, name), Context(DEVICE=name, CACHELEVEL=level):
    yield


def sizes(binary: Binary, wait: bool = False) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
  """The end of what a launch is given: workgroups, threads of each, whether to wait."""
  return tuple(int(u.arg) for u in binary.global_size), tuple(int(u.arg) for u in binary.local_size), wait


def filled(device: Any, values: Array) -> Any:
  """New memory of a device, with these values."""
  memory = device.alloc(values.nbytes)
  device.write(memory, 0, values.data)
  return memory


def contents(device: Any, memory: Any) -> Array:
  """The float32 numbers in memory of a device."""
  out = np.empty(memory.nbytes // 4, np.float32)
  device.read(memory, 0, out.data.cast("B"))
  return out


def copied_to_any_place(device: Any, to: int, sizes: Sequence[int]) -> None:
  """Bytes come to a place in memory and nowhere else, and may change once they were given."""
  free = np.random.default_rng(to)
  for nbytes in sizes:
    data = free.integers(0, 256, nbytes, np.uint8)
    memory = device.alloc(nbytes + to + 9)
    device.write(memory, 0, memoryview(bytes(memory.nbytes)))
    given = data.copy()
    device.write(memory, to, given.data)
    given[:] = 0  # which is allowed on return
    out = np.zeros(memory.nbytes, np.uint8)
    device.read(memory, 0, out.data)
    assert (out[to : to + nbytes] == data).all() and not out[:to].any() and not out[to + nbytes :].any()
    device.free(memory)
