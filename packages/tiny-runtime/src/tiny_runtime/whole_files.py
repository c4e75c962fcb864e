"""Files that appear whole or not at all: who is interrupted, or has no room, leaves what was there before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from tiny_runtime import system

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | system.BINARY


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
  """A file to write, which takes its name, with the user's usual permissions, at the end of the block; until then it
  has another one in the same folder. Where the block raises, nothing is left of it. Raises OSError."""
  folder, name = os.path.split(os.fspath(path))
  temporary = os.path.join(folder or ".", f".{name}.{os.urandom(4).hex()}")
  try:
    with os.fdopen(os.open(temporary, _NEW, 0o666), "wb") as file:  # the system takes away what umask says
      yield file
      file.flush()
      os.fsync(file.fileno())
    system.replace(temporary, path)
  except BaseException:
    with suppress(OSError):
      os.unlink(temporary)
    raise
