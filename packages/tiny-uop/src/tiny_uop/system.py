"""What this package asks of the operating system, where Python's own modules do not ask in the same way everywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

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
