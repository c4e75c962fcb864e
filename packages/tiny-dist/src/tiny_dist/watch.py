"""What happens when a rank is late, or gone: who it is, in words, instead of a program that hangs.

Each rank keeps a page of memory that says what it is doing. Two watch it: a thread, which says which ranks the others
wait for, and after a time ends all; and a small process, which outlives a rank that is killed and says which it was.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tiny_dist import system
from tiny_uop.context import ContextVar

DIST_SLOW = ContextVar("DIST_SLOW", 30, "seconds after which a rank that waits for others says which; 0: it never does")
DIST_TIMEOUT = ContextVar(
  "DIST_TIMEOUT", 1800, "seconds after which a rank that waits for others ends the program on all of them; 0: never"
)
_PAGE = 4096
_HEAD = struct.Struct("=QQ")  # steps begun, length of the words

_GONE = 5.0
"""Seconds for which a rank that waits for one that is gone leaves the end to the launcher."""

# It waits until the rank has closed the pipe, by an end of any kind. Of the ranks of a machine the first that ends by
# surprise speaks, for its launcher kills the others: the file is made once. Who says itself why all end makes it, too.
# While the fabric begins, ends, or ends all ranks, no thread of the rank may run: it has limits here. Slurm sends what
# asks a job to stop to this process as well, which is deaf to it.
_OUTLIVES = """
import mmap, os, select, signal, sys, time
pipe, page, rank, slow, limit = map(int, sys.argv[1:6])
marker, who = sys.argv[6:]
stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
def say(words):
  print(f"tiny_dist: {who} {words}", file=sys.stderr, flush=True)
def kill():
  if os.getppid() == rank:
    os.kill(rank, signal.SIGKILL)
def heard(words):
  began, said = time.monotonic(), False
  while not select.select([pipe], [], [], 0.5)[0]:
    if os.getppid() != rank:
      return b""
    waited = time.monotonic() - began
    ends = limit and waited > limit
    if ends or (slow and waited > slow and not said):
      said = True
      say(f"waits since {waited:.0f} s for {words}" + ("; it ends" if ends else ""))
    if ends:
      kill()
      sys.exit()
  return os.read(pipe, 1)
for number in stops:
  signal.signal(number, signal.SIG_IGN)
said = heard("ranks that have not called init")
if said == b"=":
  said = os.read(pipe, 1)
if said == b".":
  heard("ranks that do not end")
  sys.exit()
for number in stops:
  signal.signal(number, signal.SIG_DFL)
try:
  os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
except OSError:
  if not said:
    sys.exit()
if not said:
  words = mmap.mmap(page, 4096, access=mmap.ACCESS_READ)
  doing = words[16:16 + int.from_bytes(words[8:16], sys.byteorder)].decode()
  say(f"has ended by surprise, {doing}")
sys.stderr.close()
os.close(2)
time.sleep(20)
os.unlink(marker)
if said:
  kill()
"""


class Watch:
  """The page of this rank, and who looks at it. `others` tells where those of other ranks are: (machine, process,
  file descriptor) of each; it is asked once."""

  def __init__(self, rank: int, size: int) -> None:
    self.rank, self.size = rank, size
    self._abort: Callable[[int], None] = os._exit
    self._file = tempfile.TemporaryFile()
    self._file.truncate(_PAGE)
    self._page = mmap.mmap(self._file.fileno(), _PAGE)
    self._steps = 0
    self._since = 0.0
    self._doing = ""
    self._places: Sequence[tuple[str, int, int]] = ()
    self._seen: set[int] = set()
    """Ranks whose pages can be seen from here: containers may have the same name, and not be one machine."""
    self.note("at the start")
    self._pipe: int | None = None
    if system.OUTLIVES:
      self._start_outliving()

  def begun(self, abort: Callable[[int], None]) -> None:
    """The ranks have found each other. `abort` ends all."""
    self._abort = abort
    self._tell(b"=")
    threading.Thread(target=self._look, name="tiny_dist watch", daemon=True).start()

  @property
  def place(self) -> tuple[str, int, int]:
    """Where the page of this rank is."""
    return socket.gethostname(), os.getpid(), self._file.fileno()

  def know(self, places: Sequence[tuple[str, int, int]]) -> None:
    """Where the pages of all ranks are."""
    self._places = places
    self._seen = {rank for rank in range(len(places)) if self._page_of(rank) is not None}

  def _start_outliving(self) -> None:
    read, write = os.pipe()
    self._marker = Path(tempfile.gettempdir()) / f"tiny-dist-{os.getppid()}-{system.user()}"
    who = f"rank {self.rank} of {self.size} (process {os.getpid()} on {self.place[0]})"
    page = self._file.fileno()
    numbers = [read, page, os.getpid(), DIST_SLOW.value, DIST_TIMEOUT.value]
    subprocess.Popen(
      [sys.executable, "-I", "-S", "-c", _OUTLIVES, *map(str, numbers), str(self._marker), who],
      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **system.outliving((read, page)),
    )  # fmt: skip
    os.close(read)
    os.set_inheritable(write, False)
    self._pipe = write

  def note(self, doing: str) -> None:
    """Says on the page what this rank does from now on."""
    words = doing.encode()[: _PAGE - _HEAD.size]
    self._page[: _HEAD.size + len(words)] = _HEAD.pack(self._steps, len(words)) + words

  def begin(self, doing: str, again: bool = False) -> None:
    """A step in which this rank needs others. `again`: it has begun already, and is waited for now."""
    self._steps += not again
    self._doing, self._since = doing, time.monotonic()
    self.note(f"in {doing}")

  def end(self) -> None:
    """The step is over."""
    self._since = 0.0
    words = self._doing.encode()[: _PAGE - _HEAD.size - 6]
    self._page[_HEAD.size : _HEAD.size + 6 + len(words)] = b"after " + words
    self._page[8:16] = struct.pack("=Q", 6 + len(words))

  def ends(self) -> None:
    """This program ends as it should. It may wait for others once more, until it is gone."""
    self._since = 0.0
    self._tell(b".")

  def close(self) -> None:
    """It has not begun."""
    self.ends()
    if self._pipe is not None:
      os.close(self._pipe)
      self._pipe = None

  def end_all(self, code: int) -> None:
    """Ends all ranks. This one has said why: the ends of the others are no surprise."""
    self._since = 0.0
    if self._pipe is not None:
      self._marker.touch()
    self._tell(b"!")
    self._abort(code)

  def _tell(self, how: bytes) -> None:
    if self._pipe is not None:
      with suppress(OSError):  # somebody has killed the process
        os.write(self._pipe, how)

  def late(self) -> str:
    """Who has not come as far as this rank, and what each of them does; in words."""
    if not self._places:
      return "one that has not come to the end of `init`"
    found, unknown = [], []
    for rank, (_, process, _) in enumerate(self._places):
      if rank == self.rank:
        continue
      if rank not in self._seen:
        unknown.append(rank)
        continue
      if (head := self._page_of(rank)) is None:
        found.append(f"rank {rank} (process {process}), which is gone")
        continue
      steps, length = _HEAD.unpack_from(head)
      doing = head[_HEAD.size : _HEAD.size + length].decode(errors="replace")
      if steps < self._steps:
        found.append(f"rank {rank} (process {process}), which is {doing}")
    if not found and unknown:
      found.append(f"one of the ranks {', '.join(map(str, unknown))}, whose steps cannot be seen from here")
    return "; ".join(found) or "the transfer itself: all ranks take part in it"

  def _page_of(self, rank: int) -> bytes | None:
    """What another rank does; None where that cannot be seen from here, or no longer."""
    machine, process, page = self._places[rank]
    if machine != self.place[0] or not system.SHOWS_FILES:
      return None
    try:
      return system.file_of(process, page)
    except OSError:
      return None

  def _look(self) -> None:
    said = 0.0
    while True:
      time.sleep(0.5)
      since, slow, limit = self._since, DIST_SLOW.value, DIST_TIMEOUT.value
      if not since:
        said = 0.0
        continue
      waited = time.monotonic() - since
      gone = waited > _GONE and any(self._page_of(rank) is None for rank in self._seen)
      if gone or (limit and waited > limit):
        self._say(f"rank {self.rank} has waited {waited:.0f} s in {self._doing} for {self.late()}; it ends all ranks")
        self.end_all(3)
        os._exit(3)
      elif slow and waited > slow and said != since:
        said = since
        self._say(f"rank {self.rank} waits since {waited:.0f} s in {self._doing} for {self.late()}")

  def _say(self, words: str) -> None:
    print(f"tiny_dist: {words}", file=sys.stderr, flush=True)
