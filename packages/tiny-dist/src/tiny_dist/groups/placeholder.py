"""Started by mpiexec in place of a process that torchrun has started: gives that one its place among MPI's.

`placeholder.py FOLDER MACHINE STARTER SLOW LIMIT` needs the standard library only. The process with its number on this
machine listens at the socket FOLDER/number when it calls `init`. It gets the variables that mpiexec has set, and the
open file that one of them names. From then on each of the two ends when the other does.

STARTER is the process on MACHINE that has started mpiexec. SLOW and LIMIT are seconds, after which a placeholder that
waits says so, and gives up.
"""

import json
import os
import socket
import sys
import time
from contextlib import suppress

assert sys.platform != "win32", "started by `tiny_dist.groups.torchrun` only"


def _connected(address: str, starter: int, slow: float, limit: float) -> socket.socket:
  """The connection to the process. Raises TimeoutError, and ProcessLookupError if `starter` is gone. That is 0 on other
  machines than its own."""
  began, said = time.monotonic(), False
  while True:
    found = socket.socket(socket.AF_UNIX)
    try:
      found.connect(address)
      return found
    except OSError:
      found.close()
    waited = time.monotonic() - began
    late = f"tiny_dist: process {os.path.basename(address)} of {socket.gethostname()} has not called init"
    if slow and waited > slow and not said:
      said = True
      print(f"{late} yet: all others wait for it", file=sys.stderr, flush=True)
    if limit and waited > limit:
      raise TimeoutError(f"{late} in {waited:.0f} s")
    if starter:
      os.kill(starter, 0)  # raises ProcessLookupError
    time.sleep(0.02)


def main() -> None:
  """Connects, hands over, and waits."""
  folder, machine, starter, slow, limit = sys.argv[1:]
  given = dict(os.environ)
  number = given.get("MPI_LOCALRANKID") or given["OMPI_COMM_WORLD_LOCAL_RANK"]
  here = machine == socket.gethostname()
  files = [int(given["PMI_FD"])] if "PMI_FD" in given else []
  reason, ended_well = "", b""
  try:
    connection = _connected(f"{folder}/{number}", int(starter) if here else 0, float(slow), float(limit))
    socket.send_fds(connection, [json.dumps(given).encode() + b"\n"], files)
    ended_well = connection.recv(1)
    connection.recv(1)  # until the process is gone: MPI takes its leave after the program
  except OSError as error:
    reason = str(error)
  with suppress(OSError):  # another placeholder may have removed it
    os.rmdir(folder)
  if not ended_well:
    for file in files:  # hydra looks at what it is told here, not at how a process ends
      os.write(file, b"cmd=abort exitcode=1\n")
    sys.exit(reason or 1)


if __name__ == "__main__":
  main()
