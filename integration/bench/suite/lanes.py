"""Lanes: a library used in one way, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from suite.library import Library

# glibc then keeps what is freed instead of giving it back to the system, so results land in warm memory
_WARM = (("MALLOC_MMAP_MAX_", "0"), ("MALLOC_TRIM_THRESHOLD_", str(1 << 40)), ("MALLOC_TOP_PAD_", str(1 << 28)))


@dataclass(frozen=True)
class Lane:
  """`library`: the module that must be there. `variant`: what the `Library` is told. `needs`: what the processor must
  have, by LLVM's name."""

  name: str
  library: str
  variant: str = ""
  environment: tuple[tuple[str, str], ...] = ()
  needs: str = ""

  def open(self) -> Library:
    """The library itself, imported now."""
    if self.library == "numpy":
      from suite.numpy_library import Numpy

      return Numpy(self.variant)
    if self.library == "torch":
      from suite.torch_library import Torch

      return Torch(self.variant)
    from suite.tinygrad_like import Ours, Tinygrad

    return Tinygrad(self.variant) if self.library == "tinygrad" else Ours(self.variant)

  def usable(self) -> bool:
    """Whether the library can be imported, and the processor has what it is told to use."""
    from tiny_runtime_cpu import host_arch

    able = not self.needs or f"+{self.needs}" in host_arch().features.split(",")
    return able and importlib.util.find_spec(self.library) is not None


LANES = {
  lane.name: lane
  for lane in (
    Lane("ours", "tiny_tensor"),
    Lane("ours fp32", "tiny_tensor", "fp32"),
    Lane("numpy", "numpy"),
    Lane("numpy warm", "numpy", environment=_WARM),
    Lane("numpy skylakex", "numpy", environment=(("OPENBLAS_CORETYPE", "SkylakeX"),), needs="avx512f"),
    Lane("torch", "torch"),
    Lane("torch warm", "torch", environment=_WARM),
    Lane("torch channels last", "torch", "channels last"),
    Lane("torch compiled", "torch", "compiled", (*_WARM, ("TORCHINDUCTOR_COMPILE_THREADS", "1"))),
    Lane("tinygrad", "tinygrad", environment=(("DEV", "CPU"),)),
    Lane("exact", "numpy", "exact"),
  )
}


def environment(lane: Lane, threads: int) -> dict[str, str]:
  """The environment of the lane's process: so many threads, whatever the library calls them."""
  names = ("CPU_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
  return os.environ | dict.fromkeys(names, str(threads)) | dict(lane.environment)
