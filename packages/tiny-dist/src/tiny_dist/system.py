"""What this package asks of the operating system, where Python's own modules do not ask in the same way everywhere."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.platform == "win32":
  OUTLIVES = False
  """Whether a process may be started that has open files of this one, and outlives it."""
  STOPS = (signal.SIGTERM, signal.SIGBREAK)
  """Signals by which a program is asked to stop."""

  def outliving(files: Sequence[int]) -> dict[str, Any]:
    """For other systems."""
    raise NotImplementedError("open files are not handed on: OUTLIVES is false")

  def user() -> str:
    """What tells this user from others of the machine, in a name of a file."""
    return getpass.getuser()

else:
  OUTLIVES = True
  """Whether a process may be started that has open files of this one, and outlives it."""
  STOPS = (signal.SIGTERM,)
  """Signals by which a program is asked to stop."""

  def outliving(files: Sequence[int]) -> dict[str, Any]:
    """For `subprocess.Popen`: a process that has these open files, and that the end of this one's group leaves
    alone."""
    return {"pass_fds": tuple(files), "start_new_session": True}

  def user() -> str:
    """What tells this user from others of the machine, in a name of a file."""
    return str(os.getuid())


SHOWS_FILES = sys.platform == "linux"
"""Whether open files of other processes can be read."""


def file_of(process: int, number: int) -> bytes:
  """What a file holds that another process of this machine has open. Raises OSError where it is gone."""
  return Path(f"/proc/{process}/fd/{number}").read_bytes()
