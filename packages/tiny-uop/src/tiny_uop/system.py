"""What is not the same everywhere: what this package asks of the operating system where Python's own modules do not ask
in the same way, and what one Python has and another one has not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from hashlib import _Hash


def sha256(data: bytes | memoryview = b"") -> _Hash:
  """`hashlib.sha256` without OpenSSL, which hashlib loads: 4 MB of memory and 5 ms of each start, for a hash of a few
  kilobytes. The standard library does the same where it only hashes (`random`)."""
  return _sha256()(data)


@cache
def _sha256() -> Callable[..., _Hash]:
  """Python's own, `_sha2` from 3.12 on and `_sha256` before; hashlib's where a distribution leaves them out."""
  for name in ("_sha2", "_sha256", "hashlib"):
    try:
      found: Callable[..., _Hash] = import_module(name).sha256
      return found
    except (ImportError, AttributeError):
      continue
  raise ImportError("this Python has no SHA-256")


if sys.platform == "win32":

  def around_each_fork(before: Callable[[], None], parent: Callable[[], None], child: Callable[[], None]) -> None:
    """For other systems: this one does not copy processes."""

  def signal_to_show() -> tuple[int, str]:
    """The signal by which a user asks a program for what there is so far, and how it is sent."""
    import signal  # late: few programs are asked

    return signal.SIGBREAK, "Ctrl-Break"

else:

  def around_each_fork(before: Callable[[], None], parent: Callable[[], None], child: Callable[[], None]) -> None:
    """Call functions before each fork of this process, and after it in the process that forks and in its copy."""
    os.register_at_fork(before=before, after_in_parent=parent, after_in_child=child)

  def signal_to_show() -> tuple[int, str]:
    """The signal by which a user asks a program for what there is so far, and how it is sent."""
    import signal  # late: few programs are asked

    return signal.SIGUSR1, f"kill -USR1 {os.getpid()}"
