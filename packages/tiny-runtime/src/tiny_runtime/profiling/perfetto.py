"""Perfetto's traces, written by hand: `protos/perfetto/trace/trace.proto` of Perfetto has the numbers of the fields.

A trace is a list of packets: one that describes each track (the process, its threads, the memory in use), then the
begin and the end of each record on its thread's track.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tiny_runtime.profiling.files import arguments, memory
from tiny_runtime.profiling.record import Record

if TYPE_CHECKING:
  from tiny_runtime.profiling.recording import Profile

PACKET = 1  # of Trace
TIMESTAMP, SEQUENCE, TRACK_EVENT, SEQUENCE_FLAGS, TRACK_DESCRIPTOR = 8, 10, 11, 13, 60  # of TracePacket
ANNOTATIONS, TYPE, TRACK_UUID, CATEGORIES, NAME, COUNTER_VALUE = 4, 9, 11, 22, 23, 30  # of TrackEvent
BEGIN, END, COUNTER = 1, 2, 4  # types of a TrackEvent
UUID, TRACK_NAME, PROCESS, THREAD, PARENT, COUNTS = 1, 2, 3, 4, 5, 8  # of TrackDescriptor
SIZE_IN_BYTES = 3  # a unit of CounterDescriptor, whose field for it has the same number
INT, STRING, ANNOTATION_NAME = 4, 6, 10  # of DebugAnnotation
PROCESS_TRACK, MEMORY_TRACK, FIRST_THREAD = 1, 2, 3  # uuids of ours


def varint(value: int) -> bytes:
  """Seven bits a byte, the lowest first; negative numbers as 64 bits."""
  value &= (1 << 64) - 1
  out = bytearray()
  while value > 127:
    out.append(value & 127 | 128)
    value >>= 7
  out.append(value)
  return bytes(out)


def field(number: int, value: int | str | bytes) -> bytes:
  """One field of a message: an integer, a text, or a message."""
  if isinstance(value, int):
    return varint(number << 3) + varint(value)
  data = value.encode() if isinstance(value, str) else value
  return varint(number << 3 | 2) + varint(len(data)) + data


def perfetto(profile: Profile) -> bytes:
  """See Profile.perfetto."""
  pid, program = profile.process, os.path.basename(sys.argv[0]) or "python"
  process = field(1, pid) + field(6, program)
  packets = [field(SEQUENCE_FLAGS, 1) + field(TRACK_DESCRIPTOR, field(UUID, PROCESS_TRACK) + field(PROCESS, process))]
  counter = field(UUID, MEMORY_TRACK) + field(PARENT, PROCESS_TRACK) + field(TRACK_NAME, "memory in use")
  packets.append(field(TRACK_DESCRIPTOR, counter + field(COUNTS, field(3, SIZE_IN_BYTES))))
  tracks = {thread: FIRST_THREAD + n for n, thread in enumerate(profile.threads)}
  for thread, name in profile.threads.items():
    about = field(UUID, tracks[thread]) + field(THREAD, field(1, pid) + field(2, thread) + field(5, name))
    packets.append(field(TRACK_DESCRIPTOR, about))
  for thread, track in tracks.items():
    packets += _slices([record for record in profile.records if record.thread == thread], track, profile.began)
  for record in memory(profile):
    event = field(TRACK_UUID, MEMORY_TRACK) + field(TYPE, COUNTER) + field(COUNTER_VALUE, record.held)
    packets.append(_at(record.end - profile.began, event))
  return b"".join([field(PACKET, packet + field(SEQUENCE, 1)) for packet in packets])


def _at(time: int, event: bytes) -> bytes:
  return field(TIMESTAMP, max(0, time)) + field(TRACK_EVENT, event)


def _slices(records: list[Record], track: int, zero: int) -> list[bytes]:
  """Begins and ends in the order of time: an end belongs to the last begin that has none."""
  packets: list[bytes] = []
  ends: list[int] = []
  end = field(TRACK_UUID, track) + field(TYPE, END)
  for record in sorted(records, key=lambda record: (record.start, -record.end)):
    while ends and ends[-1] <= record.start:
      packets.append(_at(ends.pop() - zero, end))
    named = field(TRACK_UUID, track) + field(CATEGORIES, record.kind) + field(NAME, record.name)
    notes = b"".join([field(ANNOTATIONS, _note(name, value)) for name, value in arguments(record).items()])
    packets.append(_at(record.start - zero, named + field(TYPE, BEGIN) + notes))
    ends.append(record.end)
  packets += [_at(time - zero, end) for time in reversed(ends)]
  return packets


def _note(name: str, value: int | str) -> bytes:
  return field(ANNOTATION_NAME, name) + field(STRING if isinstance(value, str) else INT, value)
