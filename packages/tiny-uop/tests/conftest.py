"""Makes the modules that several tests share importable; no property test fails for taking long."""

import sys
from pathlib import Path

from hypothesis import settings

# pytest's importlib mode puts no test directory on the path
sys.path.insert(0, str(Path(__file__).parent))

# a busy machine is no counter-example
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
