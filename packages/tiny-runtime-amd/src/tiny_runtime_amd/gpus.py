"""Which GPUs the kernel's driver has: KFD, the compute part of amdgpu, tells in sysfs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tiny_runtime import Unavailable
from tiny_runtime_amd.arch import ARCHS, Arch

ANY = "Any machine can compile for one: tiny_runtime_amd.AMD.compiler('gfx1100')"
X86_64 = ("x86_64", "AMD64")
VIDEO_MEMORY = (1, 2)
"""Types of a memory bank that is on the GPU: HSA_MEM_HEAP_TYPE_FB_PUBLIC and _PRIVATE of linux/kfd_sysfs.h."""
PAGE = 4096


@dataclass(frozen=True)
class Places:
  """Where Linux has things, and what processor it runs on. Those of a machine, unless it is a test's."""

  nodes: Path = Path("/sys/class/kfd/kfd/topology/nodes")
  kfd: Path = Path("/dev/kfd")
  render: Path = Path("/dev/dri")
  processor: str = os.uname().machine if hasattr(os, "uname") else ""


@dataclass(frozen=True)
class SaveArea:
  """Where the hardware puts the waves of a queue that has to make room for another. Bytes, for one compute die."""

  stack: int
  nbytes: int
  """With the stack."""
  debugger: int


@dataclass(frozen=True)
class Gpu:
  """One GPU, as sysfs describes it."""

  node: int
  gpu_id: int
  """KFD's name of it."""
  version: int
  """`gfx_target_version`: 90402 for gfx942."""
  render: Path
  """Its device file for rendering, through which memory is mapped."""
  memory: int
  properties: dict[str, int]
  links: frozenset[int] = frozenset()
  """The nodes whose memory it can use: other GPUs, where something connects them."""

  @property
  def arch(self) -> Arch | None:
    """What to compile for; None if that is not known."""
    return Arch.of(self.version)

  @property
  def units(self) -> int:
    """Compute units, of all dies."""
    return self.properties["simd_count"] // self.properties["simd_per_cu"]

  @property
  def dies(self) -> int:
    """Compute dies (XCC) that work as one GPU."""
    return self.properties.get("num_xcc", 1) or 1

  @property
  def engines(self) -> int:
    """Shader engines, of all dies."""
    return self.properties["array_count"] // self.properties["simd_arrays_per_engine"]

  @property
  def scratch_waves(self) -> int:
    """Waves with private memory in a compute unit."""
    return self.properties.get("max_slots_scratch_cu", 0) or 32

  @property
  def waves(self) -> int:
    """Waves that a compute unit has at most."""
    return self.properties["max_waves_per_simd"] * self.properties["simd_per_cu"]

  @property
  def end_of_pipe(self) -> int:
    """Bytes of a buffer that the packet processor wants for events at the end of its pipe."""
    return self.properties.get("eop_buffer_size", 0) or PAGE

  @property
  def save_area(self) -> SaveArea:
    """What KFD expects a process to bring; newer versions refuse other sizes (`kfd_queue_ctx_save_restore_size` of
    Linux 6.12), and the newest list them here."""
    old = self.version < 100100
    units = self.units // self.dies
    waves = min(units * 40, self.engines * 512) if old else units * 32
    registers = 0x80000 if old else 0x60000 if self.version in (110000, 110001, 120000, 120001) else 0x40000
    shared = self.properties["lds_size_in_kb"] << 10 if self.version == 90500 else 64 << 10
    groups = _up(units * (registers + shared + 0x4000 + 0x1000))
    stack = self.properties.get("ctl_stack_size", 0) or _up(40 + 8 + waves * (8 if old else 12))
    return SaveArea(stack, self.properties.get("cwsr_size", 0) or stack + groups, (waves * 32 + 63) // 64 * 64)


def _up(nbytes: int) -> int:
  return (nbytes + PAGE - 1) // PAGE * PAGE


def find_gpus(places: Places) -> list[Gpu] | Unavailable:
  """Each GPU that can be used, in the kernel's order, or why there is none."""
  if not sys.platform.startswith("linux"):
    return Unavailable(f"AMD's GPUs are driven through Linux's amdgpu, and this system is {sys.platform}", ANY)
  if places.processor not in X86_64:
    return Unavailable(
      f"this machine's processor is {places.processor}, and only x86-64 shows a GPU the packets of a queue in order",
      ANY,
    )
  if not places.nodes.is_dir():
    return Unavailable(
      f"Linux has no driver amdgpu with KFD here: there is no {places.nodes}",
      f"On a machine with an AMD GPU, load the module amdgpu; in a container, pass {places.kfd} and /dev/dri on. {ANY}",
    )
  nodes = [_gpu(node, places) for node in sorted(places.nodes.iterdir(), key=_number)]
  found = [gpu for gpu in nodes if gpu is not None]
  if not found:
    return Unavailable("amdgpu is loaded, but it lists no GPU that computes", f"`dmesg | grep amdgpu` says more. {ANY}")
  known = [gpu for gpu in found if gpu.arch is not None]
  if not known:
    versions = ", ".join(f"gfx_target_version {gpu.version}" for gpu in found)
    names = ", ".join(arch.name for arch in ARCHS)
    return Unavailable(
      f"there are GPUs of other architectures than {names}: {versions}", "A row in arch.py is what another one needs"
    )
  if problem := _barred(places.kfd):
    return problem
  usable = [gpu for gpu in known if _barred(gpu.render) is None]
  return usable or _barred(known[0].render) or known


def _barred(path: Path) -> Unavailable | None:
  """Why a device file cannot be used."""
  if os.access(path, os.R_OK | os.W_OK):
    return None
  if path.exists():
    return Unavailable(
      f"there are GPUs, but this user may not open {path}",
      "Add the user to the groups render and video (`sudo usermod -aG render,video $USER`), and log in again",
    )
  return Unavailable(f"there are GPUs, but there is no {path}", f"In a container, pass it on: --device={path}")


def _number(node: Path) -> tuple[int, str]:
  return (int(node.name) if node.name.isdecimal() else 1 << 30, node.name)


def _gpu(node: Path, places: Places) -> Gpu | None:
  """None for a processor, which is a node too, and for one that this process may not see."""
  try:
    properties = _properties(node / "properties")
    if not (version := properties.get("gfx_target_version", 0)):
      return None
    banks = [_properties(bank) for bank in sorted(node.glob("mem_banks/*/properties"))]
    memory = sum(bank["size_in_bytes"] for bank in banks if bank.get("heap_type") in VIDEO_MEMORY)
    render = places.render / f"renderD{properties['drm_render_minor']}"
    return Gpu(int(node.name), int((node / "gpu_id").read_text()), version, render, memory, properties, _links(node))
  except (OSError, ValueError, KeyError):
    return None


def _links(node: Path) -> frozenset[int]:
  """xGMI is among `io_links`; ways over PCIe that a GPU can use are in `p2p_links`, which Linux has since 6.0."""
  files = (path for kind in ("io_links", "p2p_links") for path in node.glob(f"{kind}/*/properties"))
  return frozenset(_properties(path)["node_to"] for path in files)


def _properties(path: Path) -> dict[str, int]:
  rows = [line.split() for line in path.read_text().splitlines()]
  return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}
