"""The calls of Linux that a driver needs, in one small object that a model can stand in for."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Any, Protocol

READ, WRITE = 1, 2
SHARED, PRIVATE, FIXED, ANONYMOUS, NO_RESERVE, NO_REPLACE = 1, 2, 0x10, 0x20, 0x4000, 0x100000
"""PROT_ and MAP_ of x86-64's sys/mman.h, which is also that of arm64."""
FAILED = ctypes.c_void_p(-1).value
PAGE = 4096
AT_ONCE = 4 << 30
"""Bytes of addresses that are reserved at once for what needs new ones."""


class System(Protocol):
  """What a process can ask of Linux here. All of it raises OSError."""

  def open(self, path: str) -> int:
    """A file to read and write; its descriptor."""

  def close(self, descriptor: int) -> None:
    """The end of that."""

  def ioctl(self, descriptor: int, request: int, argument: ctypes.Structure) -> None:
    """A request with a structure, which is changed in place. Tried again where it is interrupted."""

  def reserve(self, nbytes: int, address: int = 0) -> int:
    """Addresses of this process that nothing else gets, at a multiple of a page: there, or else anywhere. They cannot
    be used as they are. Raises FileExistsError where something is there."""

  def map(self, descriptor: int, nbytes: int, offset: int, address: int = 0) -> int:
    """Map what a descriptor has at an offset, to be read and written: to an address that is reserved, or else anywhere.
    Gives the address."""

  def unmap(self, address: int, nbytes: int) -> None:
    """What is mapped or reserved there is so no longer."""


class Linux:
  """The system itself."""

  def open(self, path: str) -> int:
    """See System."""
    return os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))

  def close(self, descriptor: int) -> None:
    """See System."""
    os.close(descriptor)

  def ioctl(self, descriptor: int, request: int, argument: ctypes.Structure) -> None:
    """See System."""
    if sys.platform == "win32":
      raise NotImplementedError("KFD is a part of Linux")
    import fcntl

    while True:
      try:
        fcntl.ioctl(descriptor, request, argument)
        return
      except (InterruptedError, BlockingIOError):
        pass

  def reserve(self, nbytes: int, address: int = 0) -> int:
    """See System."""
    flags = PRIVATE | ANONYMOUS | NO_RESERVE | (NO_REPLACE if address else 0)
    found = _mapped(address, nbytes, 0, flags, -1, 0)
    if address and found != address:  # Linux before 4.17, which does not know the flag
      self.unmap(found, nbytes)
      raise FileExistsError(errno.EEXIST, f"something is at {address:#x} already")
    return found

  def map(self, descriptor: int, nbytes: int, offset: int, address: int = 0) -> int:
    """See System."""
    return _mapped(address, nbytes, READ | WRITE, SHARED | (FIXED if address else 0), descriptor, offset)

  def unmap(self, address: int, nbytes: int) -> None:
    """See System."""
    if _libc().munmap(address, nbytes):
      raise OSError(ctypes.get_errno(), f"munmap of {nbytes} bytes: {os.strerror(ctypes.get_errno())}")


class FreshAddresses:
  """Addresses that nobody had before, for code: a GPU may still have in a cache what was executed at others."""

  def __init__(self, system: System) -> None:
    self.system = system
    self.spaces: list[tuple[int, int]] = []
    """(begin, end) of what was reserved."""
    self.place = 0

  def take(self, nbytes: int, alignment: int = PAGE) -> int:
    """Whole pages; one is left between, since instructions are fetched ahead. Raises OSError."""
    begin = -(-self.place // alignment) * alignment
    if not self.spaces or begin + nbytes + PAGE > self.spaces[-1][1]:
      size = max(AT_ONCE, nbytes + PAGE + alignment)
      start = self.system.reserve(size)
      self.spaces.append((start, start + size))
      begin = -(-start // alignment) * alignment
    self.place = begin + nbytes + PAGE
    return begin

  def has(self, address: int) -> bool:
    """Whether an address is one of these."""
    return any(begin <= address < end for begin, end in self.spaces)


@cache
def _libc() -> Any:
  library = ctypes.CDLL(None, use_errno=True)
  number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
  library.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
  library.mmap.restype = pointer
  library.munmap.argtypes = [pointer, size]
  return library


def _mapped(address: int, nbytes: int, protection: int, flags: int, descriptor: int, offset: int) -> int:
  found = _libc().mmap(address, nbytes, protection, flags, descriptor, offset)
  if found in (None, FAILED):
    raise OSError(ctypes.get_errno(), f"mmap of {nbytes} bytes: {os.strerror(ctypes.get_errno())}")
  return int(found)
