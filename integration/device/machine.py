"""What the machine is: GPU, driver, processor, and versions of what is installed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("numpy", "llvmlite", "torch", "pytest", "pytest-xdist", "hypothesis", "scikit-learn", "tqdm", "pillow")
QUERY = "name,memory.total,driver_version,clocks.max.sm,clocks.max.memory,power.limit"


def main() -> int:
  print(f"Python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} processors")
  for name in PACKAGES:
    try:
      print(f"{name} {version(name)}")
    except PackageNotFoundError:
      print(f"{name} is not installed")
  sys.stdout.flush()
  try:
    return subprocess.run(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]).returncode
  except FileNotFoundError:
    print("there is no nvidia-smi")
    return 1


if __name__ == "__main__":
  sys.exit(main())
