"""Files of a profile: lines of JSON, Chrome's JSON and CSV; and how any of them is written.

The JSON is that of Google's "Trace Event Format" (2016): complete events (`X`), metadata (`M`) and counters (`C`), in
microseconds since the beginning.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tiny_runtime.profiling.record import VERSION, Record
from tiny_runtime.whole_files import written_whole

if TYPE_CHECKING:
  from tiny_runtime.contract import Recording
  from tiny_runtime.profiling.recording import Profile
  from tiny_uop.origins import Origin


def write(path: str | os.PathLike[str], data: bytes) -> None:
  """Write a file so that there is all of it or what was there before; compressed if its name ends in `.gz`."""
  name = os.fspath(path)
  try:
    with written_whole(name) as file:
      file.write(gzip.compress(data, 6, mtime=0) if name.endswith(".gz") else data)
  except OSError as error:
    why = f"the profile cannot be written: {error.strerror}"
    raise type(error)(error.errno, why, name) from error


def arguments(record: Record) -> dict[str, int | str]:
  """What viewers show of a record, besides name and time."""
  busy = record.busy if record.kind in ("kernel", "graph") else 0  # of others it is the time that viewers show anyway
  known: dict[str, int | str] = {
    "busy_ns": busy, "operations": record.ops, "bytes": record.nbytes, "kernels": record.kernels,
    "origin": "; ".join(map(place, record.origins)), "allocation": record.memory, "tensor": record.tensor,
  }  # fmt: skip
  return {"device": record.device} | {name: value for name, value in known.items() if value}


def chrome(profile: Profile) -> bytes:
  """See Profile.chrome."""
  pid, zero = profile.process, profile.began
  events: list[dict[str, Any]] = [_metadata("process_name", pid, pid, os.path.basename(sys.argv[0]) or "python")]
  events += [_metadata("thread_name", pid, thread, name) for thread, name in profile.threads.items()]
  for record in sorted(profile.records, key=lambda record: (record.start, -record.end)):
    shared = {"name": record.name, "cat": record.kind, "pid": pid, "tid": record.thread}
    times = {"ts": (record.start - zero) / 1000, "dur": (record.end - record.start) / 1000}
    events.append({"ph": "X"} | shared | times | {"args": arguments(record)})
  for record in memory(profile):
    used = {"name": "memory in use", "ts": (record.end - zero) / 1000, "args": {"bytes": record.held}}
    events.append({"ph": "C", "pid": pid} | used)
  return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, separators=(",", ":")).encode()


def memory(profile: Profile) -> list[Record]:
  """The records after which another amount of memory is in use, in order."""
  return sorted((r for r in profile.records if r.kind in ("alloc", "free")), key=lambda record: record.end)


def _metadata(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
  return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def lines(profile: Profile) -> bytes:
  """See Profile.jsonl."""
  head = {
    "profile": VERSION, "program": os.path.basename(sys.argv[0]) or "python", "process": profile.process,
    "began": profile.began, "ended": profile.began + profile.duration,
    "threads": {str(thread): name for thread, name in profile.threads.items()},
    "peaks": {device: peaks._asdict() for device, peaks in profile.peaks().items()},
  }  # fmt: skip
  written: list[dict[str, Any]] = [head]
  numbers: dict[Origin, int] = {}
  programs: dict[bytes, int] = {}
  count = 0
  for record in list(profile.records):
    for origin in record.origins:
      if origin not in numbers:
        numbers[origin] = len(numbers)
        written.append({"origin": numbers[origin]} | origin._asdict())
    fields = {name: value for name, value in record._asdict().items() if value and name != "recording"}
    if record.origins:
      fields["origins"] = [numbers[origin] for origin in record.origins]
    written.append(fields)
    if record.recording is not None:
      written += recorded(record.recording, count, programs)
    count += 1
  return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in written).encode()


def recorded(found: Recording, number: int, programs: dict[bytes, int]) -> Iterator[dict[str, Any]]:
  """The lines of what the hardware recorded, behind record `number`. `programs` have their lines already."""

  def text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

  if found.code not in programs:
    programs[found.code] = len(programs)
    program = {"program": text(found.code), "code": programs[found.code]}
    yield program | {"chip": found.arch, "kernel": found.kernel}
  of_record = {"record": number}
  for engine, data in found.traces:
    yield {"thread_trace": text(data)} | of_record | {"code": programs[found.code], "engine": engine}
  if found.layout:
    yield {"counter_block": text(found.counters)} | of_record | {"layout": [list(row) for row in found.layout]}


def place(origin: Origin) -> str:
  """An origin in one text: `train.py:41 model.layer2.0.conv1`, with the phase where that is not `forward`."""
  phase = "" if origin.phase == "forward" else origin.phase
  return " ".join(filter(None, (f"{os.path.basename(origin.file)}:{origin.line}", origin.module, phase)))


def comma_separated(profile: Profile) -> bytes:
  """See Profile.csv."""
  out = io.StringIO(newline="")
  writer = csv.writer(out)
  columns = [name for name in Record._fields if name != "recording"]
  writer.writerow(columns)
  for record in profile.records:
    fields = record._asdict() | {"origins": "; ".join(map(place, record.origins))}
    writer.writerow([fields[name] for name in columns])
  return out.getvalue().encode()
