"""Shared memory whose size a launch gives: how the compiler tells the device about it.

A kernel may have 48 KiB of shared memory as arrays of its own; of more it has one array without a size
(`.extern .shared`), and the driver is told twice how large it is: once for the kernel, once for each launch ("CUDA C++
Programming Guide", dynamic shared memory). The number stands in a comment before the PTX,
and before the cubin that is made of it.
"""

from __future__ import annotations

import re

STATIC = 48 << 10
"""Bytes of shared memory that a kernel may have without asking the driver for more."""
_NOTE = re.compile(rb"// shared memory at launch: (\d+) bytes\n")


def noted(ptx: bytes, nbytes: int) -> bytes:
  """Code that says how many bytes of shared memory its launch has to give; 0: none."""
  return b"// shared memory at launch: %d bytes\n%s" % (nbytes, ptx) if nbytes else ptx


def at_launch(ptx: bytes) -> int:
  """The bytes of shared memory that the launch of a kernel has to give."""
  found = _NOTE.match(ptx)
  return int(found[1]) if found else 0


def without_note(code: bytes) -> bytes:
  """The code alone."""
  return _NOTE.sub(b"", code, count=1)
