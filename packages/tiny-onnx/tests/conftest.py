"""The device of these tests: the reference, whose small kernels need no compiler, where the environment names none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("DEVICE", "REF")
sys.path.insert(0, str(Path(__file__).parent))  # helpers shared by the test files
