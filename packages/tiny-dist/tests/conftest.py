"""Programs that the tests start in several processes stand in `programs/`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers that tests share
