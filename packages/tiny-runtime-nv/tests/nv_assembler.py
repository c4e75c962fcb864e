"""What ptxas, NVIDIA's assembler, reports of kernels."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from nv_tools import differences

from tiny_runtime import Binary, CompileError
from tiny_runtime.conformance.compile_only import CompileOnly
from tiny_runtime_nv import CUDA, Arch, ptxas
from tiny_runtime_nv.kernel_driver.backend import NV
from tiny_runtime_nv.shared_memory import at_launch
from tiny_uop.updates import GPU_UPDATES


class Report(NamedTuple):
  """What a kernel takes of the hardware: registers of a thread, bytes of shared memory, bytes spilled; and why
  ptxas lets instructions wait for each other: for want of registers, say, or because accumulators are touched."""

  registers: int
  shared: int
  spilled: int
  losses: tuple[str, ...] = ()


def assemble(ptx: bytes, arch: str) -> Report:
  """What ptxas makes of PTX. Raises CompileError with its message."""
  said = ptxas.assemble(ptx, arch, report=True)[1]
  return Report(
    registers=max(map(int, re.findall(r"Used (\d+) registers", said)), default=0),
    shared=max(map(int, re.findall(r"(\d+) bytes smem", said)), default=0) + at_launch(ptx),
    spilled=sum(map(int, re.findall(r"(\d+) bytes spill", said))),
    losses=tuple(re.findall(r"Potential Performance Loss: (.*)", said)),
  )


ARCH = os.environ.get("NV_ARCH", "sm_90a")


def _assembles(binary: Binary) -> None:
  assemble(binary.code, ARCH)


BACKEND = CompileOnly(CUDA, ARCH, _assembles, Arch.parse(ARCH).shared_memory, GPU_UPDATES)
"""For the conformance kit: every kernel is compiled and assembled, and run by REF."""


def _as_the_tools_say(binary: Binary) -> None:
  """Raises CompileError for a cubin of which our reader says something else than NVIDIA's tools."""
  if wrong := differences(binary, ARCH):
    raise CompileError("; ".join(wrong), binary.source)


TOOLS = CompileOnly(NV, ARCH, _as_the_tools_say, BACKEND.local_memory, GPU_UPDATES)
"""For the conformance kit: every kernel is a cubin, which is held against what cuobjdump and nvdisasm say of it."""
