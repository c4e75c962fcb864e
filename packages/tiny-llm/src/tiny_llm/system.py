"""What this package asks of the operating system, where Python's own modules do not ask in the same way everywhere.
(What the process that renders templates asks is in `template_worker.py`, which imports nothing of the package.)"""

from __future__ import annotations

import signal
import sys
from typing import Any

APART: dict[str, Any] = {"creationflags": 0x200} if sys.platform == "win32" else {"start_new_session": True}
"""For `subprocess.Popen`: a process that keys of the terminal do not reach (on Windows CREATE_NEW_PROCESS_GROUP)."""
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that ask a program to end, and end it unless it says otherwise. (On Windows nobody sends them.)"""
