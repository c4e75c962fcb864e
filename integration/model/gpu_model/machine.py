"""Runs kernels on the machine of machine.cpp: threads with barriers, and what is wrong with their accesses."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpu_model.toolchain import COMMON, HERE, built

Sizes = tuple[int, int, int]
MARGIN = 256
"""Bytes on both sides of an allocation that are nobody's; its alignment too."""


@dataclass(frozen=True)
class Buffer:
  """Memory that a launch may touch, in the order of the kernel's arguments."""

  address: int
  size: int
  name: str
  writable: bool = True
  unaliased: bool = False
  """The compiler was told that what a thread reads or writes there no other does, as LLVM's `noalias` says."""


def allocated(nbytes: int, value: int = 0) -> Any:
  """A new ctypes array of that many bytes, all `value`. Python's allocator puts small arrays side by side, and what is
  just behind one would be the start of another that a launch may touch: the margins make it an access outside."""
  room = ctypes.create_string_buffer(nbytes + 3 * MARGIN)
  at = ctypes.addressof(room)
  array = (ctypes.c_char * nbytes).from_buffer(room, (at // MARGIN + 2) * MARGIN - at)
  if value:
    ctypes.memset(array, value, nbytes)
  return array


class Counts(ctypes.Structure):
  """See machine.cpp."""

  NAMES = (
    "groups", "loads", "load_bytes", "load_sectors", "load_fresh", "stores", "store_bytes", "store_sectors", "shared",
    "shared_cycles", "shared_least", "barriers",
  )  # fmt: skip
  _fields_ = [(name, ctypes.c_uint64) for name in NAMES]

  def __getitem__(self, name: str) -> int:
    return int(getattr(self, name))


class _Buffer(ctypes.Structure):
  _fields_ = [
    ("begin", ctypes.c_void_p), ("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("writable", ctypes.c_int),
    ("unaliased", ctypes.c_int),
  ]  # fmt: skip


class _Launch(ctypes.Structure):
  _fields_ = [
    ("call", ctypes.c_void_p), ("arguments", ctypes.c_void_p), ("buffers", ctypes.c_void_p), ("count", ctypes.c_uint),
    ("groups", ctypes.c_uint * 3), ("threads", ctypes.c_uint * 3), ("warp", ctypes.c_uint), ("most", ctypes.c_uint),
    ("backwards", ctypes.c_int), ("flush", ctypes.c_int), ("counting", ctypes.c_int), ("unchecked", ctypes.c_int),
    ("counts", Counts), ("message", ctypes.c_char * 512),
  ]  # fmt: skip


class Wrong(Exception):
  """What a kernel does that it must not."""


@dataclass
class Options:
  """How the machine runs what is launched."""

  backwards: bool = False
  """The last thread of a workgroup comes first, which shows what only one order gets right."""
  flush: bool = False
  """float32 numbers below 2**-126 are 0, as they may be on a GPU; x86-64 only."""
  counting: bool = False
  """Count accesses to memory."""
  checking: bool = True
  """Look for races, which takes twenty times the memory of the buffers."""
  most: int = 0
  """Workgroups to run of a launch; 0: all."""


@cache
def library() -> Any:
  """The machine, compiled, with names that kernels find."""
  source = (HERE / "machine.cpp").read_text()
  return ctypes.CDLL(str(built(source, (*COMMON, "-O1"))), mode=ctypes.RTLD_GLOBAL)


def launch(
  call: Any, buffers: Sequence[Buffer], groups: Sizes, threads: Sizes, options: Options | None = None, warp: int = 32,
  others: Sequence[Buffer] = (),
) -> Counts:  # fmt: skip
  """Run the function `model_call` of a kernel with these buffers as arguments; it may touch `others` too. Raises Wrong,
  naming thread, place and what it does."""
  options = options or Options()
  addresses = (ctypes.c_void_p * max(1, len(buffers)))(*(buffer.address for buffer in buffers))
  known = [*buffers, *others]
  given = (_Buffer * max(1, len(known)))(
    *(_Buffer(b.address, b.size, b.name.encode(), b.writable, b.unaliased) for b in known)
  )
  request = _Launch(
    ctypes.cast(call, ctypes.c_void_p), ctypes.addressof(addresses), ctypes.addressof(given), len(known),
    (ctypes.c_uint * 3)(*groups), (ctypes.c_uint * 3)(*threads), warp, options.most, options.backwards, options.flush,
    options.counting, not options.checking,
  )  # fmt: skip
  if library().machine_run(ctypes.byref(request)):
    raise Wrong(request.message.decode())
  return Counts.from_buffer_copy(request.counts)
