"""What the packages ask of the operating system, where Python's own modules do not ask in the same way everywhere:
pages of memory, functions of the process, owners of files, other processes, what this one uses.

`posix.py` is for Linux, macOS and other POSIX systems, `windows.py` for Windows, which can be imported anywhere. Both
have the same names, with the same parameters. No other module of the package names what only one of them has.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
  from tiny_runtime.system.windows import *  # noqa: F403
else:
  from tiny_runtime.system.posix import *  # noqa: F403
