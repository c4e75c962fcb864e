"""What this package alone asks of the operating system: caches, AMX, control groups, threads. What others ask, too, is
in `tiny_runtime.system`."""

from __future__ import annotations

import sys

OBJECTS_ARE_ELF = sys.platform == "linux"
"""Whether LLVM writes object files of that format for this system."""
