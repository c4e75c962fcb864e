"""What the machine is: GPU, driver, processor, and versions of what is installed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "llvmlite", "torch", "pytest", "pytest-xdist", "hypothesis", "scikit-learn", "tqdm", "pillow")
NODES = Path("/sys/class/kfd/kfd/topology/nodes")
FACTS = ("gfx_target_version", "simd_count", "simd_per_cu", "array_count", "simd_arrays_per_engine", "num_xcc",
         "max_waves_per_simd", "lds_size_in_kb", "cwsr_size", "ctl_stack_size", "fw_version")  # fmt: skip
"""Of an AMD GPU in sysfs."""
QUERY = "name,memory.total,driver_version,clocks.max.sm,clocks.max.memory,power.limit"


COMMANDS = (
  ("system_profiler", "SPDisplaysDataType") if sys.platform == "darwin"
  else ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"),
)  # fmt: skip


def main() -> int:
  print(f"Python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} processors")
  for name in PACKAGES:
    try:
      print(f"{name} {version(name)}")
    except PackageNotFoundError:
      print(f"{name} is not installed")
  sys.stdout.flush()
  failed = 1
  for command in COMMANDS:
    try:
      failed &= subprocess.run(command, timeout=20).returncode
    except FileNotFoundError:
      print(f"there is no {command[0]}")
    except subprocess.TimeoutExpired:
      print(f"{command[0]} does not end")
  for node in sorted(NODES.glob("*/properties")):
    about = dict(line.split(maxsplit=1) for line in node.read_text().splitlines() if " " in line)
    if about.get("gfx_target_version", "0") != "0":
      failed = 0
      print("KFD:", ", ".join(f"{name} {about[name]}" for name in FACTS if name in about))
  return failed


if __name__ == "__main__":
  sys.exit(main())
