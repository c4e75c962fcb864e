"""pytest's importlib mode puts no test directory on the path: this one has modules that several tests share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
