"""Packets of an AQL queue, and the structures that queue and signal are for the packet processor.

Sources: "HSA Platform System Architecture Specification" 1.2, 2.9 (packets, their headers, the order of writing them,
what a doorbell is told); AMD's `amd_hsa_queue.h` and `amd_hsa_signal.h` of ROCm's runtime (the layouts of `amd_queue_t`
and `amd_signal_t`, which its packet processor reads).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tiny_runtime.hcq import Sizes

PACKET = 64
VENDOR, INVALID, DISPATCH, BARRIER = 0, 1, 2, 3
"""Types of packets. The processor waits at one that is INVALID, and makes those INVALID that it has taken."""
NONE, AGENT, SYSTEM = 0, 1, 2
"""Scopes of fences: what is written is seen by no one else, by this GPU, by all."""
WAITS = 1 << 8
"""A header's bit: the packet begins when all before it are done."""
ACQUIRES, RELEASES = 3 << 9, 3 << 11
"""A header's bits of whose writes a packet sees, and of who sees what it wrote."""
MOST_THREADS = (1 << 32) - 1
"""Along an axis of a grid."""

_DISPATCH = struct.Struct("<HHHHHHIIIIIQQQQ")
_BARRIER = struct.Struct("<HHI5QQQ")
_INDIRECT = struct.Struct("<HH4II8IQ")
_PM4_INDIRECT, _BEHIND = 1, 10
"""AMD's own kind of packet that names others of the kind PM4, and how many words of it follow those that do."""


def header(kind: int, acquire: int, release: int) -> int:
  """The first 16 bits of a packet that waits for those before it."""
  return kind | WAITS | acquire << 9 | release << 11


def dispatch(
  first: int, kernel_object: int, arguments: int, groups: Sizes, threads: Sizes, private_bytes: int, local_bytes: int,
  signal: int,
) -> bytes:  # fmt: skip
  """A packet that starts a kernel; `first` is its header. `kernel_object` is where its descriptor is, `private_bytes`
  are a thread's, `local_bytes` a workgroup's; `signal` is 0 for none. A grid counts threads."""
  x, y, z = (count * size for count, size in zip(groups, threads))
  return _DISPATCH.pack(
    first, 3, *threads, 0, x, y, z, private_bytes, local_bytes, kernel_object, arguments, 0, signal
  )  # 3: dimensions


def barrier(first: int, signal: int, depends: int = 0) -> bytes:
  """A packet that does nothing but wait, for the packets before and for a signal to be 0 if one is given, and
  signal."""
  return _BARRIER.pack(first, 0, 0, depends, 0, 0, 0, 0, 0, signal)


def indirect(first: int, packet: Sequence[int], signal: int) -> bytes:
  """A packet of AMD's own, after ROCm's runtime: the four words of `packet`, of the kind PM4, are carried out."""
  return _INDIRECT.pack(first, _PM4_INDIRECT, *packet, _BEHIND, *[0] * 8, signal)


DEPENDS_PLACE, SIGNAL_PLACE = 8, 56
"""Of the signal that a barrier waits for, and of a packet's completion signal, in bytes."""

# amd_queue_t: offsets of what is set here, and what else the processor writes
QUEUE_BYTES = 256
BASE_ADDRESS, DOORBELL, SIZE = 0x08, 0x10, 0x18
WRITTEN = 0x38
"""How many packets there have been, of which `READ` were taken."""
LOCAL_HIGH, PRIVATE_HIGH = 0x40, 0x44
"""The upper halves of where shared and private memory are in the address space."""
LAST_UNIT, LAST_WAVE = 0x48, 0x4C
READ = 0x80
READ_PLACE = 0x88
SCRATCH_SIZE, SCRATCH_BUFFER, SCRATCH_PLACE, SCRATCH_BYTES, SCRATCH_LANE = 0x8C, 0x90, 0xA0, 0xA8, 0xB0
"""COMPUTE_TMPRING_SIZE; a buffer's descriptor of scratch memory, for kernels that ask for one; its address and size;
bytes of a thread, where a wave has 64."""
PROPERTIES = 0xB4
POINTERS_64, PROFILED = 1 << 1, 1 << 3
INACTIVE = 0xC0
"""A signal for errors of the queue."""

# amd_signal_t
SIGNAL_BYTES = 64
KIND, VALUE, MAILBOX, EVENT, START, END = 0x00, 0x08, 0x10, 0x18, 0x20, 0x28
"""MAILBOX and EVENT: what is written where, and then interrupts the host, when the value changes."""
USER = 1


def signal(value: int) -> bytes:
  """One that nobody has used."""
  return struct.pack("<qq", USER, value).ljust(SIGNAL_BYTES, b"\0")
