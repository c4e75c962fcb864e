"""`python -m tiny_llm`: the command line, which is in `command_line`, and quiet when it is interrupted.

Ctrl-C ends the program at once while modules are imported and while the interpreter ends: in both, KeyboardInterrupt
would be told as an error, or be lost in a module of C.
"""

import os

try:
  import signal
  import sys

  def _end(number: int, frame: object) -> None:
    os._exit(130)

  def _exit() -> int:
    ends = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background of a shell
    if ends:
      signal.signal(signal.SIGINT, _end)
    from tiny_llm.command_line import main

    try:
      if ends:
        signal.signal(signal.SIGINT, signal.default_int_handler)
      return main()
    finally:
      if ends:
        signal.signal(signal.SIGINT, _end)

  if __name__ == "__main__":
    sys.exit(_exit())
except KeyboardInterrupt:
  os._exit(130)
