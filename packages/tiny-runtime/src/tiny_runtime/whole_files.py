"""Files that appear whole or not at all: who is interrupted, or has no room, leaves what was there before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
  """A file to write, which takes its name, with the user's usual permissions, at the end of the block; until then it
  has another one in the same folder. Where the block raises, nothing is left of it. Raises OSError."""
  name = os.fspath(path)
  handle, temporary = tempfile.mkstemp(dir=os.path.dirname(name) or ".", prefix=f".{os.path.basename(name)}.")
  try:
    with os.fdopen(handle, "wb") as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes it private
    os.replace(temporary, name)
  except BaseException:
    with suppress(OSError):
      os.unlink(temporary)
    raise
