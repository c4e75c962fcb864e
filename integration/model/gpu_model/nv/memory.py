"""Memory of the model: what is allocated, at which addresses GPUs and the host see it, and with what permissions.

All of it lies in one file without a name, so that the same bytes can be at several addresses. A GPU's address is an
address of this process: kernels of the model follow pointers as they are. What the host has not mapped cannot be read
or written by it, but while GPUs work.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gpu_model.machine import Buffer
from gpu_model.nv.errors import MmuFault, Refusal, Status

PAGE = 4096
READ_WRITE, NONE = mmap.PROT_READ | mmap.PROT_WRITE, 0
PRIVATE_NOWHERE, NO_RESERVE, FIXED, FIXED_NEW, SHARED = 0x22, 0x4000, 0x10, 0x100000, 1
"""MAP_ of Linux; `PRIVATE_NOWHERE`: private and anonymous."""


@cache
def _libc() -> Any:
  library = ctypes.CDLL(None, use_errno=True)
  number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
  library.mmap.restype, library.mmap.argtypes = pointer, [pointer, size, number, number, number, ctypes.c_long]
  library.munmap.argtypes, library.mprotect.argtypes = [pointer, size], [pointer, size, number]
  return library


def _mmap(address: int, nbytes: int, protection: int, flags: int, descriptor: int = -1, offset: int = 0) -> int:
  found = _libc().mmap(address, nbytes, protection, flags, descriptor, offset)
  if not found or found == ctypes.c_void_p(-1).value:
    number = ctypes.get_errno()
    raise OSError(number, f"mmap of {nbytes} bytes at {address:#x}: {os.strerror(number)}")
  return int(found)


def _munmap(address: int, nbytes: int) -> None:
  if _libc().munmap(address, nbytes):
    raise OSError(ctypes.get_errno(), "munmap")


@dataclass(eq=False)
class Physical:
  """Memory of a GPU (`gpu` is its number), or of the host (-1). `page`: what its addresses are multiples of."""

  size: int
  gpu: int
  page: int
  offset: int
  uses: int = 1
  """The object, and every mapping."""
  view: int = 0
  """Where the model itself sees it."""


@dataclass(eq=False)
class Mapping:
  """Addresses of a GPU. `offset`: in the memory."""

  address: int
  size: int
  physical: Physical
  offset: int
  writable: bool = True
  owner: Any = None
  """What made it."""

  @property
  def end(self) -> int:
    """The address behind it."""
    return self.address + self.size


@dataclass
class Space:
  """The addresses that a GPU sees."""

  mappings: list[Mapping] = field(default_factory=list)
  starts: list[int] = field(default_factory=list)
  buffers: list[Buffer] = field(default_factory=list)
  """The mappings as the machine that runs kernels wants them."""

  def add(self, mapping: Mapping) -> None:
    """Another one. Raises Refusal where there is one already."""
    if self.overlap(mapping.address, mapping.size):
      raise Refusal(Status.INVALID_ADDRESS, f"{mapping.size} bytes at {mapping.address:#x} are mapped already")
    place = bisect_right(self.starts, mapping.address)
    self.mappings.insert(place, mapping)
    self.starts.insert(place, mapping.address)
    self.buffers.insert(place, Buffer(mapping.address, mapping.size, f"memory {mapping.address:#x}", mapping.writable))

  def remove(self, mapping: Mapping) -> None:
    """It is no longer."""
    place = self.mappings.index(mapping)
    del self.mappings[place], self.starts[place], self.buffers[place]

  def overlap(self, address: int, size: int) -> Mapping | None:
    """A mapping that has one of these addresses."""
    place = bisect_right(self.starts, address + size - 1) - 1
    found = self.mappings[place] if place >= 0 else None
    return found if found and found.end > address else None

  def reach(self, address: int, size: int, write: bool = False, what: str = "") -> int:
    """An address that can be used for so many bytes; raises MmuFault."""
    at = address
    while at < address + max(size, 1):
      found = self.overlap(at, 1)
      if found is None:
        raise MmuFault(at, "is not mapped", what)
      if write and not found.writable:
        raise MmuFault(at, "may only be read", what)
      at = found.end
    return address


@dataclass(eq=False)
class Place:
  """Pages of the process at an address: of GPUs, of the host or of both."""

  size: int
  physical: Physical
  offset: int
  gpus: int = 0
  hosts: int = 0


class Store:
  """The bytes, and what this process has at addresses."""

  def __init__(self, guarded: bool = True) -> None:
    self.guarded = guarded
    self.descriptor = os.memfd_create("nv-model")
    os.ftruncate(self.descriptor, 1 << 44)
    self.end = 0
    self.places: dict[int, Place] = {}
    self.reserved: dict[int, int] = {}
    self.open = 0
    self.unseen: list[tuple[int, int]] | None = None
    """Where runs of places begin that the host has not mapped, with their bytes; None: places have changed."""

  def close(self) -> None:
    """The bytes are gone, and the addresses are free."""
    for address, place in self.places.items():
      _munmap(address, place.size)
    for address, nbytes in self.reserved.items():
      _munmap(address, nbytes)
    self.places, self.reserved, self.unseen = {}, {}, None
    os.close(self.descriptor)

  # *** memory ***

  def allocate(self, size: int, gpu: int, page: int) -> Physical:
    """New memory; a GPU's is full of what nobody wrote."""
    made = Physical(size, gpu, page, self.end)
    self.end += -(-size // 65536) * 65536
    if gpu >= 0 and size <= 1 << 21:
      os.pwrite(self.descriptor, b"\xa5" * size, made.offset)
    return made

  def drop(self, physical: Physical) -> None:
    """One use less of it."""
    physical.uses -= 1
    if not physical.uses:
      if physical.view:
        _munmap(physical.view, physical.size)
      _punch(self.descriptor, physical.offset, physical.size)

  def view(self, physical: Physical) -> int:
    """Where the model sees it, whatever GPUs and host see."""
    if not physical.view:
      physical.view = _mmap(0, physical.size, READ_WRITE, SHARED, self.descriptor, physical.offset)
    return physical.view

  # *** addresses of the process ***

  def reserve(self, nbytes: int, address: int) -> int:
    """Addresses that nothing else gets. Raises OSError."""
    flags = PRIVATE_NOWHERE | NO_RESERVE | (FIXED_NEW if address else 0)
    found = _mmap(address, nbytes, NONE, flags)
    if address and found != address:
      _munmap(found, nbytes)
      raise FileExistsError(17, f"{nbytes} bytes at {address:#x} are in use")
    self.reserved[found] = nbytes
    return found

  def _is_reserved(self, address: int, size: int) -> bool:
    return any(begin <= address and address + size <= begin + n for begin, n in self.reserved.items())

  def place(self, address: int, size: int, physical: Physical, offset: int, host: bool) -> int:
    """Let a GPU or the host have memory at an address (the host also anywhere, at 0). Raises Refusal."""
    known = self.places.get(address)
    if known is None and any(a < address + size and address < a + p.size for a, p in self.places.items()):
      raise Refusal(Status.INVALID_ADDRESS, f"the model cannot map a part of what is at {address:#x} again")
    if known is not None and (known.size, known.physical, known.offset) != (size, physical, offset):
      raise Refusal(Status.INVALID_ADDRESS, f"the model has only one memory at {address:#x}, GPUs and host alike")
    if known is None:
      kind = 0 if not address else FIXED if self._is_reserved(address, size) else FIXED_NEW
      protection = READ_WRITE if host or self.open or not self.guarded else NONE
      try:
        found = _mmap(address, size, protection, SHARED | kind, self.descriptor, physical.offset + offset)
      except OSError as error:
        raise Refusal(Status.INVALID_ADDRESS, f"this process has something else at {address:#x}: {error}") from None
      if address and found != address:
        _munmap(found, size)
        raise Refusal(Status.INVALID_ADDRESS, f"this process has something else at {address:#x}")
      known = self.places[found] = Place(size, physical, offset)
      physical.uses += 1
      address = found
    self.unseen = None
    if host:
      known.hosts += 1
      _libc().mprotect(address, size, READ_WRITE)
    else:
      known.gpus += 1
    return address

  def displace(self, address: int, host: bool) -> None:
    """One mapping less there."""
    known = self.places[address]
    self.unseen = None
    known.hosts, known.gpus = known.hosts - host, known.gpus - (not host)
    if known.hosts or known.gpus:
      if not known.hosts and self.guarded and not self.open:
        _libc().mprotect(address, known.size, NONE)
      return
    del self.places[address]
    if self._is_reserved(address, known.size):
      _mmap(address, known.size, NONE, PRIVATE_NOWHERE | NO_RESERVE | FIXED)
    else:
      _munmap(address, known.size)
    self.drop(known.physical)

  def unreserve(self, address: int, nbytes: int) -> None:
    """These addresses are no longer reserved, alone or as a part of more: munmap gives them back."""
    for begin, size in list(self.reserved.items()):
      if begin <= address and address + nbytes <= begin + size:
        del self.reserved[begin]
        if begin < address:
          self.reserved[begin] = address - begin
        if address + nbytes < begin + size:
          self.reserved[address + nbytes] = begin + size - address - nbytes

  def release(self, address: int, nbytes: int) -> None:
    """Reserved addresses are free again."""
    del self.reserved[address]
    _munmap(address, nbytes)

  def read(self, address: int, size: int) -> bytes:
    """Bytes at an address that a GPU has, whether the host has mapped it or not."""
    found = b""
    while len(found) < size:
      at = address + len(found)
      base = max(place for place in self.places if place <= at)
      place = self.places[base]
      offset = place.physical.offset + place.offset + at - base
      found += os.pread(self.descriptor, min(size - len(found), base + place.size - at), offset)
    return found

  @contextmanager
  def working(self) -> Iterator[None]:
    """While GPUs work, all that they have can be used."""
    self.open += 1
    try:
      if self.open == 1:
        self._protect(READ_WRITE)
      yield
    finally:
      self.open -= 1
      if not self.open:
        self._protect(NONE)

  def _protect(self, protection: int) -> None:
    """Of all that the host has not mapped: of memory side by side at once, as there can be hundreds."""
    if not self.guarded:
      return
    if self.unseen is None:
      self.unseen = []
      for address, place in sorted(self.places.items()):
        if place.hosts:
          continue
        if self.unseen and sum(self.unseen[-1]) == address:
          self.unseen[-1] = self.unseen[-1][0], self.unseen[-1][1] + place.size
        else:
          self.unseen.append((address, place.size))
    change = _libc().mprotect
    for address, size in self.unseen:
      change(address, size, protection)


def _punch(descriptor: int, offset: int, size: int) -> None:
  """The system may have these bytes of the file back."""
  library = _libc()
  library.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
  library.fallocate(descriptor, 3, offset, -(-size // PAGE) * PAGE)  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
