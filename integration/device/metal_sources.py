"""What Apple's compiler says of our Metal source: the standard kernels for each family of GPUs, on a Mac with Xcode.

python integration/device/metal_sources.py
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from tiny_runtime.conformance.standard import STANDARD
from tiny_runtime_metal import BACKEND
from tiny_runtime_metal.arch import FAMILIES, LATEST

COMPILE = ("xcrun", "-sdk", "macosx", "metal", f"-std=metal{LATEST[0]}.{LATEST[1]}", "-x", "metal", "-c", "-", "-o")


def sources() -> Iterator[tuple[str, str]]:
  """Name and Metal source of each kernel, for each family."""
  for family in FAMILIES:
    compiler = BACKEND.compiler(family)
    for name, make in STANDARD.items():
      yield f"{family} {name}", compiler.compile(make()).source


def main() -> int:
  """The exit status: 0 where Apple's compiler takes all of them."""
  count, refused = 0, 0
  for name, source in sources():
    try:
      done = subprocess.run([*COMPILE, "/dev/null"], input=source, capture_output=True, text=True)
    except FileNotFoundError:
      print("there is no xcrun: this needs a Mac with Xcode")
      return 1
    count += 1
    if done.returncode:
      refused += 1
      print(f"{name} is refused:\n{done.stderr[-4000:]}\n{source}")
  print(f"Apple's compiler takes {count - refused} of {count} kernels")
  return int(refused > 0)


if __name__ == "__main__":
  sys.exit(main())
