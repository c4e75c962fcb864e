"""Which GPUs the kernel's driver has: KFD, the compute part of amdgpu, tells in sysfs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tiny_runtime import Unavailable

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
DEVICE = Path("/dev/kfd")
ANY = "Any machine can compile for one: tiny_runtime_amd.AMD.compiler('gfx1100')"


def gpu_versions(nodes: Path = NODES, device: Path = DEVICE) -> list[int] | Unavailable:
  """`gfx_target_version` of each GPU, in the kernel's order, or why there is none."""
  if not sys.platform.startswith("linux"):
    return Unavailable(f"AMD's GPUs are driven through Linux's amdgpu, and this system is {sys.platform}", ANY)
  if not nodes.is_dir():
    return Unavailable(
      f"Linux has no driver amdgpu with KFD here: there is no {nodes}",
      f"On a machine with an AMD GPU, load the module amdgpu; in a container, pass {device} and /dev/dri on. {ANY}",
    )
  found = [version for node in sorted(nodes.iterdir(), key=_number) if (version := _version(node / "properties"))]
  if not found:
    return Unavailable("amdgpu is loaded, but it lists no GPU that computes", f"`dmesg | grep amdgpu` says more. {ANY}")
  if not os.access(device, os.R_OK | os.W_OK):
    what = "may not be opened by this user" if device.exists() else "is not there"
    return Unavailable(
      f"there are GPUs, but {device} {what}", "Add the user to the group render, or pass it on to the container"
    )
  return found


def _number(node: Path) -> tuple[int, str]:
  return (int(node.name) if node.name.isdecimal() else 1 << 30, node.name)


def _version(properties: Path) -> int:
  """0 for a processor, which is a node too, and for one that cannot be read."""
  try:
    rows = dict(line.split() for line in properties.read_text().splitlines() if len(line.split()) == 2)
    return int(rows.get("gfx_target_version", "0"))
  except (OSError, ValueError):
    return 0
