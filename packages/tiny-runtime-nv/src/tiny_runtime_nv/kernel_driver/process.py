"""What a process has of NVIDIA's driver once and for all: its client, and the GPUs that it lists. A forked process has
to begin anew."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiny_runtime import Unavailable
from tiny_runtime.hcq.system import FreshAddresses
from tiny_runtime_nv.arch import ARCHS, Arch
from tiny_runtime_nv.gpus import INSTALL
from tiny_runtime_nv.kernel_driver import generations
from tiny_runtime_nv.kernel_driver.generations import Generation
from tiny_runtime_nv.kernel_driver.resource_manager import CONTROL_FILE, ResourceManager, RMError
from tiny_runtime_nv.kernel_driver.system import NVSystem
from tiny_runtime_nv.kernel_driver.tables import constant, structure
from tiny_uop.locks import shared_lock

ANY = "Any machine can compile for one: tiny_runtime_nv.NV.compiler('sm_90a')"
X86_64 = ("x86_64", "AMD64")
OLDEST = 550
"""The first version of the driver whose structures are known here."""
CARDS = 32


@dataclass(frozen=True)
class Gpu:
  """One GPU, as the driver describes it. `device` and `subdevice` are its objects."""

  path: str
  gpu_id: int
  device: int
  subdevice: int
  arch: Arch
  generation: Generation
  usermode: str
  channel: str
  copy: str
  memory: int
  warps: int
  """Of a multiprocessor, at most."""
  processors: int
  """Multiprocessors of a TPC, a pair of them."""
  pairs: int
  """TPCs, of all that there may be."""


class Process:
  """The client of a process. Raises Unavailable."""

  def __init__(self, system: NVSystem) -> None:
    self.system, self.pid = system, os.getpid()
    try:
      self.manager = ResourceManager(system)
    except FileNotFoundError as error:
      what = f"{INSTALL}. {ANY}"
      raise Unavailable(f"NVIDIA's kernel driver is not loaded: there is no {CONTROL_FILE}", what) from error
    except PermissionError as error:
      raise Unavailable(
        f"this user may not open {CONTROL_FILE}",
        "`ls -l /dev/nvidia*` shows who may; in a container, pass these files on",
      ) from error
    except OSError as error:
      what = "A container may have the files and yet keep the driver's requests from programs: try outside of it"
      raise Unavailable(f"{CONTROL_FILE} takes no requests: {error}", what) from error
    self.code = FreshAddresses(system)
    self.refused: list[str] = []
    """Why GPUs cannot be used."""
    self.gpus: list[Gpu] = []
    self.files: list[int] = []
    """GPUs are kept awake by these."""
    try:
      self._check_version()
      for card in self._cards():
        self._add(card)
    except BaseException:
      self.close()
      raise

  def close(self) -> None:
    """The end of the client, and of what it had."""
    for descriptor in (*self.files, self.manager.descriptor):
      self.system.close(descriptor)
    self.files.clear()

  def _check_version(self) -> None:
    params = structure("NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS")()
    try:
      self.manager.control(self.manager.root, "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2", params)
    except RMError as error:
      raise Unavailable(f"NVIDIA's driver does not tell its version: {error}", "`nvidia-smi` says more") from error
    text = bytes(params.driverVersionBuffer).partition(b"\0")[0].decode(errors="replace")
    major = re.match(r"\d+", text)
    if major is None or int(major[0]) < OLDEST:
      raise Unavailable(f"NVIDIA's driver is version {text}, and {OLDEST} is the first known here", INSTALL)

  def _cards(self) -> list[Any]:
    cards = (structure("nv_ioctl_card_info_t") * CARDS)()
    try:
      self.manager.escape("CARD_INFO", cards)
    except RMError as error:
      raise Unavailable(f"NVIDIA's driver lists no GPUs: {error}", "`nvidia-smi` says more") from error
    return [card for card in cards if card.valid]

  def _add(self, card: Any) -> None:
    """Take a GPU into the list, or why it is not there."""
    path, descriptor = f"/dev/nvidia{card.minor_number}", -1
    try:
      descriptor = self.system.open(path)  # which wakes it up
      self.gpus.append(self._gpu(card, path, descriptor))
      self.files.append(descriptor)
    except (OSError, LookupError) as error:
      if descriptor >= 0:
        self.system.close(descriptor)
      self.refused.append(f"{path}: {error}")

  def _gpu(self, card: Any, path: str, descriptor: int) -> Gpu:
    """What is known of a GPU, by its open file. Raises OSError, LookupError."""
    manager = self.manager
    manager.escape("REGISTER_FD", structure("nv_ioctl_register_fd_t")(ctl_fd=manager.descriptor), descriptor)
    ids = structure("NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS")(gpuId=card.gpu_id)
    manager.control(manager.root, "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", ids)
    made = structure("NV0080_ALLOC_PARAMETERS")(
      deviceId=ids.deviceInstance, hClientShare=manager.root,
      vaMode=constant("NV_DEVICE_ALLOCATION_VAMODE_OPTIONAL_MULTIPLE_VASPACES"),
    )  # fmt: skip
    device = manager.alloc(0, "NV01_DEVICE_0", made)
    subdevice = manager.alloc(
      device, "NV20_SUBDEVICE_0", structure("NV2080_ALLOC_PARAMETERS")(subDeviceId=ids.subDeviceInstance)
    )
    classes = self._classes(device)
    generation = generations.generation_of(classes)
    usermode, channel, copy = (
      generations.newest(names, classes) for names in (generations.USERMODE, generations.CHANNEL, generations.COPY)
    )
    sm, warps, clusters, pairs, processors = self._facts(
      subdevice, "GR",
      ("SM_VERSION", "MAX_WARPS_PER_SM", "LITTER_NUM_GPCS", "LITTER_NUM_TPC_PER_GPC", "LITTER_NUM_SM_PER_TPC"),
    )  # fmt: skip
    (kib,) = self._facts(subdevice, "FB", ("HEAP_SIZE",))
    arch = Arch.of(sm >> 8, sm & 0xFF)
    if generation is None or arch is None or not usermode or not channel or not copy:
      raise LookupError(
        f"a GPU of compute capability {sm >> 8}.{sm & 0xFF}, and {ARCHS[0].name} (Turing) is the oldest known here"
        if arch is None
        else f"a GPU of compute capability {sm >> 8}.{sm & 0xFF} without classes that are known here"
      )
    return Gpu(path, card.gpu_id, device, subdevice, arch, generation, usermode, channel, copy,
               kib << 10, warps, processors, clusters * pairs)  # fmt: skip

  def _classes(self, device: int) -> frozenset[int]:
    command, kind = "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", structure("NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS")
    count = self.manager.control(device, command, kind()).numClasses
    found = (ctypes.c_uint32 * max(1, count))()
    self.manager.control(device, command, kind(numClasses=count, classList=ctypes.addressof(found)))
    return frozenset(found)

  def _facts(self, subdevice: int, part: str, names: Sequence[str]) -> list[int]:
    """Numbers of a part of the GPU (GR: what computes, FB: its memory) by their names."""
    rows = (structure("NVXXXX_CTRL_XXX_INFO") * len(names))()
    for row, name in zip(rows, names):
      row.index = constant(f"NV2080_CTRL_{part}_INFO_INDEX_{name}")
    lower = part.lower()
    params = structure(f"NV2080_CTRL_{part}_GET_INFO_PARAMS")(
      **{f"{lower}InfoListSize": len(rows), f"{lower}InfoList": ctypes.addressof(rows)}
    )
    self.manager.control(subdevice, f"NV2080_CTRL_CMD_{part}_GET_INFO", params)
    return [row.data for row in rows]

  def uuid(self, gpu: Gpu) -> bytes:
    """The name that UVM has for a GPU. Raises RMError."""
    params = structure("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS")(
      flags=constant("NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY")
    )
    self.manager.control(gpu.subdevice, "NV2080_CTRL_CMD_GPU_GET_GID_INFO", params)
    return bytes(params.data[:16])

  def usable(self) -> list[Gpu] | Unavailable:
    """Each GPU that can be used, in the driver's order, or why there is none."""
    if self.gpus:
      return self.gpus
    if self.refused:
      return Unavailable(f"no GPU of NVIDIA's can be used: {'; '.join(self.refused)}", f"`nvidia-smi` says more. {ANY}")
    return Unavailable("NVIDIA's kernel driver is loaded, but it lists no GPU", f"`nvidia-smi` says more. {ANY}")


class Processes:
  """The one of the process that asks."""

  def __init__(self, system: NVSystem) -> None:
    self.system = system
    self.lock = shared_lock()
    self.current: Process | None = None

  def get(self) -> Process:
    """Raises Unavailable."""
    if not sys.platform.startswith("linux"):
      raise Unavailable(f"NV drives GPUs through Linux's driver, and this system is {sys.platform}", "Use CUDA")
    if os.uname().machine not in X86_64:
      raise Unavailable(f"NV is for x86-64, and this machine's processor is {os.uname().machine}", "Use CUDA")
    with self.lock:
      if self.current is None or self.current.pid != os.getpid():
        self.current = Process(self.system)
      return self.current
