"""Makes the modules that several tests share importable."""

import sys
from pathlib import Path

# pytest's importlib mode puts no test directory on the path
sys.path.insert(0, str(Path(__file__).parent))
