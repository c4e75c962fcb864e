"""`python3 without_compilers.py COMMAND …`: runs a command where no C compiler can be found."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from releasing.environment import without_compilers

if __name__ == "__main__":
  with tempfile.TemporaryDirectory(prefix="tiny-tools-") as folder:
    path = without_compilers(Path(folder), os.environ["PATH"])
    environment = os.environ | {"PATH": path, "CC": os.devnull}
    sys.exit(subprocess.run(sys.argv[1:], env=environment).returncode)
