"""Places among MPI's processes for those that torchrun has started.

torchrun says who is who, and no MPI knows of its processes. So the first of them starts mpiexec with as many
placeholders, and each placeholder hands what mpiexec told it to the process with its number on its machine, which then
is that rank of MPI: the script runs once, in the processes of torchrun, and they talk over MPI as ever.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shlex
import socket
import sys
import tempfile
import time
from pathlib import Path

from tiny_dist.groups import placeholder
from tiny_dist.groups.protocol import Unusable
from tiny_dist.launch import command, environment
from tiny_dist.start import Start
from tiny_dist.watch import DIST_SLOW, DIST_TIMEOUT
from tiny_uop.context import ContextVar, EnvironmentVariable

assert sys.platform != "win32", "`tiny_dist.groups.mpi` says so"

DIST_MPI = ContextVar(
  "DIST_MPI", "",
  "options for the mpiexec that torchrun's processes get their places from: of several machines, which those are, as "
  "`-hosts node1,node2 -ppn 8`",
)  # fmt: skip
_PORT = EnvironmentVariable("MASTER_PORT", "what torchrun's processes on a machine have in common, as torchrun sets it")
_RESTARTS = EnvironmentVariable("TORCHELASTIC_RESTART_COUNT", "how often they have been started, as torchrun sets it")
_PREFIXES = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "OPAL_", "MPI_", "MPIR_", "I_MPI_")
"""Of the variables that launchers tell MPI something with."""


class Place:
  """The place of this process. It is kept until `leave`."""

  def __init__(self, start: Start) -> None:
    if start.local_size != start.size and not DIST_MPI:
      reason = f"torchrun has started {start.local_size} of {start.size} processes here"
      raise Unusable(f"{reason}: DIST_MPI='-hosts node1,node2 -ppn {start.local_size}' says where mpiexec finds all")
    folder = Path(tempfile.gettempdir()) / f"tiny-dist-{os.getuid()}-{_PORT.get()}-{_RESTARTS.get() or 0}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
      raise Unusable(f"{folder} belongs to somebody else: remove it, or set TMPDIR")
    path = folder / str(start.local_rank)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
      listening.bind(str(path))
      listening.listen(1)
      mpiexec = _start(start.size, folder) if start.rank == 0 else 0
      connection = _accepted(listening, mpiexec)
    path.unlink()
    data, files, _, _ = socket.recv_fds(connection, 1 << 20, 1)
    while not data.endswith(b"\n"):
      data += (more := connection.recv(1 << 20))
      if not more:
        raise Unusable("mpiexec has ended already. What it printed says why")
    told = {k: v for k, v in json.loads(data).items() if k.startswith(_PREFIXES)}
    os.environ |= told | ({"PMI_FD": str(files[0])} if files else {})
    self._connection = connection.detach()  # it is open until the process is gone, and MPI has taken its leave
    self._flags = fcntl.fcntl(self._connection, fcntl.F_GETFL)
    fcntl.fcntl(self._connection, fcntl.F_SETOWN, os.getpid())
    # When mpiexec ends the placeholder, another rank is gone. The signal SIGIO ends this process then, wherever it is:
    # in MPI_Init, which waits for all, no thread of Python runs.
    fcntl.fcntl(self._connection, fcntl.F_SETFL, self._flags | os.O_ASYNC)
    if select.select([self._connection], [], [], 0)[0]:
      raise Unusable("mpiexec has ended already. What it printed says why")

  def leave(self) -> None:
    """This process ends as it should."""
    fcntl.fcntl(self._connection, fcntl.F_SETFL, self._flags)
    os.write(self._connection, b".")


def _accepted(listening: socket.socket, mpiexec: int) -> socket.socket:
  """The connection to a placeholder, as long as mpiexec runs; 0 for one that another process has started, which
  may be on another machine, and have failed there."""
  listening.settimeout(0.2)
  began = time.monotonic()
  while True:
    try:
      connection, _ = listening.accept()
    except TimeoutError:
      if mpiexec and os.waitpid(mpiexec, os.WNOHANG)[0]:
        raise Unusable("mpiexec has ended, and this process has no place in MPI. What it printed says why") from None
      waited = time.monotonic() - began
      if DIST_TIMEOUT.value and waited > DIST_TIMEOUT.value:
        reason = f"in {waited:.0f} s nobody has come to {socket.gethostname()} with a place in MPI for this process"
        raise Unusable(f"{reason}: what mpiexec has printed, where rank 0 is, says why") from None
      continue
    connection.settimeout(None)
    return connection


def _start(count: int, folder: Path) -> int:
  """Starts the placeholders, which end with this process. Gives the process of mpiexec."""
  told = [socket.gethostname(), str(os.getpid()), str(DIST_SLOW.value), str(DIST_TIMEOUT.value)]
  program = ["-I", "-S", str(placeholder.__file__), str(folder), *told]
  found = command(count, program, shlex.split(DIST_MPI.value))
  sys.stderr.flush()
  closed = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
  return os.posix_spawn(found[0], found, environment(), file_actions=closed, setpgroup=0)
