"""The device NV, a step at a time, with each request to NVIDIA's kernel driver and what came of it.

In: a machine with NVIDIA's driver, and perhaps a container that keeps some requests from programs. Out: a line for each
step and each request; the status is that of the first step that failed. Nothing of the GPU's settings is changed.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from tiny_runtime import Unavailable
from tiny_runtime_nv import ptxas
from tiny_runtime_nv.kernel_driver.backend import NVBackend
from tiny_runtime_nv.kernel_driver.system import NVLinux
from tiny_uop import KernelInfo, UOp, dtypes

FILES = "/dev/nvidia*"


class Told(NVLinux):
  """The system, which tells of each request."""

  def open(self, path: str) -> int:
    """See System."""
    return int(self._told(f"open {path}", lambda: NVLinux.open(self, path)))

  def ioctl(self, descriptor: int, request: int, argument: Any) -> None:
    """See System."""
    self._told(f"ioctl {request:#x} on {descriptor}", lambda: NVLinux.ioctl(self, descriptor, request, argument))
    words = bytes(argument)[: 4 * (ctypes.sizeof(argument) // 4)][:64]
    print(f"    {words.hex(' ', 4)}{' …' if ctypes.sizeof(argument) > 64 else ''}", flush=True)

  @staticmethod
  def _told(what: str, call: Callable[[], Any]) -> Any:
    try:
      found = call()
    except OSError as error:
      print(f"  {what}: {error}", flush=True)
      raise
    print(f"  {what}: {'done' if found is None else found}", flush=True)
    return found


def main() -> int:
  """All steps, as far as they go."""
  for path in sorted(glob.glob(FILES)):
    about = os.stat(path)
    may = "".join(letter if os.access(path, flag) else "-" for letter, flag in (("r", os.R_OK), ("w", os.W_OK)))
    print(f"{path}: mode {about.st_mode:o}, owner {about.st_uid}:{about.st_gid}, we may {may}")
  print(f"ptxas: {ptxas.find_ptxas()} {ptxas.version()}", flush=True)
  backend = NVBackend(Told())
  device: Any = None

  def probe() -> object:
    found = backend.probe()
    if isinstance(found, Unavailable):
      raise found
    return found

  def opened() -> object:
    nonlocal device
    device = backend.open(0)
    return device.info

  def copied() -> object:
    data = np.random.default_rng(0).integers(0, 256, 100_003, np.uint8)
    memory, out = device.alloc(data.nbytes), np.zeros_like(data)
    device.write(memory, 0, data.data)
    device.read(memory, 0, out.data)
    if not (out == data).all():
      raise ValueError(f"{int((out != data).sum())} of {data.nbytes} bytes differ")
    return "equal"

  def launched() -> object:
    i, floats = UOp.range(4096, 0), dtypes.float32.ptr(4096)
    double = UOp.param(0, floats).index(i).store(UOp.param(1, floats).index(i).load() * 2.0).end(i)
    binary = backend.compiler(device.info.arch).compile(UOp.sink(double, arg=KernelInfo("double")))
    numbers = np.arange(4096, dtype=np.float32)
    target, source, out = device.alloc(4 * 4096), device.alloc(4 * 4096), np.zeros_like(numbers)
    device.write(source, 0, numbers.data.cast("B"))
    grid, group = (tuple(int(u.arg) for u in sizes) for sizes in (binary.global_size, binary.local_size))
    program = device.load(binary)
    seconds = [device.launch(program, [(target, 0), (source, 0)], [], grid, group, True) for _ in range(5)]
    device.read(target, 0, out.data.cast("B"))
    if not (out == 2 * numbers).all():
      raise ValueError(f"{int((out != 2 * numbers).sum())} of 4096 numbers are wrong: {out[:8]}")
    return f"right, in {min(seconds) * 1e6:.1f} µs"

  def closed() -> object:
    device.close()
    return "closed"

  for number, step in enumerate((probe, opened, copied, launched, closed), 1):
    try:
      print(f"{step.__name__}: {step()}", flush=True)
    except Unavailable as error:
      print(f"{step.__name__}: {error}", flush=True)
      return number
    except Exception:
      traceback.print_exc()
      return number
  return 0


if __name__ == "__main__":
  sys.exit(main())
