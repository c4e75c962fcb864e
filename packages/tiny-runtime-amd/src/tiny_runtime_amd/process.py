"""What a process has of KFD once and for all: the open files, and the address space that it shares with each GPU.

A process and a GPU have one address space together, from the first time that it is asked for until the process ends
(ACQUIRE_VM), so devices that are closed and opened again share these. A forked process has to begin anew.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tiny_runtime import Unavailable
from tiny_runtime.hcq import Block
from tiny_runtime.hcq.system import FreshAddresses, System
from tiny_runtime_amd.gpus import Gpu
from tiny_runtime_amd.kfd import KFD, MAJOR, RUNTIME_ENABLED, KFDError
from tiny_uop.locks import shared_lock


class Process:
  """The files of a process. Raises Unavailable."""

  def __init__(self, system: System, path: Path) -> None:
    self.system, self.pid = system, os.getpid()
    try:
      self.kfd = KFD(system, str(path))
    except OSError as error:
      raise Unavailable(f"{path} cannot be opened: {error}", "`dmesg | grep -e kfd -e amdgpu` says more") from error
    found = self.kfd("GET_VERSION")
    if found.major_version != MAJOR:
      raise Unavailable(
        f"Linux has KFD {found.major_version}.{found.minor_version}, and this plugin knows {MAJOR}.x",
        "Install a version of tiny-runtime-amd that knows it",
      )
    # KFD tells errors of a queue (see faults.py) to a process that asked for it, and no other
    with suppress(KFDError):  # Linux before 6.5, which cannot; another library in this process asked
      self.kfd("RUNTIME_ENABLE", mode_mask=RUNTIME_ENABLED)
    self.renders: dict[int, int] = {}
    """Descriptors of the GPUs' render files whose address spaces are acquired, by `gpu_id`."""
    self.code = FreshAddresses(system)
    self.event_page: Block | None = None
    """What GPUs write to when they interrupt (`Memories.event_page`), once one was opened."""
    self.asked_for_events = False

  def render(self, gpu: Gpu) -> int:
    """The descriptor through which a GPU's memory is mapped. Raises Unavailable."""
    if gpu.gpu_id not in self.renders:
      try:
        descriptor = self.system.open(str(gpu.render))
        self.kfd("ACQUIRE_VM", drm_fd=descriptor, gpu_id=gpu.gpu_id)
      except KFDError as error:
        self.system.close(descriptor)
        what = "Another library in this process has it (ROCm's, as PyTorch brings it?): use another process"
        raise Unavailable(f"this process cannot share its addresses with the GPU: {error}", what) from error
      except OSError as error:
        raise Unavailable(f"{gpu.render} cannot be opened: {error}", "`dmesg | grep amdgpu` says more") from error
      self.renders[gpu.gpu_id] = descriptor
    return self.renders[gpu.gpu_id]


class Processes:
  """The one of the process that asks."""

  def __init__(self, system: System, path: Path) -> None:
    self.system, self.path = system, path
    self.lock = shared_lock()
    self.current: Process | None = None

  def get(self) -> Process:
    """Raises Unavailable."""
    with self.lock:
      if self.current is None or self.current.pid != os.getpid():
        self.current = Process(self.system, self.path)
      return self.current
