"""Profiles: what is recorded, the table, and files as their formats' readers see them. Nothing is timed."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime import (
  Buffer,
  CapturedGraph,
  CompileError,
  Device,
  GlobalCounters,
  Profile,
  Record,
  buffer_of,
  capture,
  profile,
  run,
)  # fmt: skip
from tiny_runtime.profiling import table
from tiny_runtime.profiling.recording import Peaks, begin
from tiny_uop import Context, dtypes
from tiny_uop.origins import Origin


def kinds(p: Profile) -> dict[str, int]:
  return dict(Counter(record.kind for record in p.records))


def test_records_of_a_known_program(kernels: Any) -> None:
  with profile() as p:
    a, b, c, host = kernels.buffer([1.0, 2.0]), *[kernels.buffer(size=2) for _ in range(3)]
    GlobalCounters.reset()
    run(kernels.linear(kernels.add(b, a), kernels.add(c, b), kernels.increment(b), kernels.copy(host, c)))
    assert kernels.values(host) == [3.0, 4.0]
  assert kinds(p) == {"alloc": 4, "write": 1, "load": 2, "compile": 2, "kernel": 3, "copy": 1}
  launches = [record for record in p.records if record.kind == "kernel"]
  assert [record.name for record in launches] == ["add", "add", "increment"]
  # two elements each, one addition and four bytes of each buffer for each
  assert [(r.ops, r.nbytes, r.kernels) for r in launches] == [(2, 16, 1), (2, 16, 1), (2, 8, 1)]
  (copy,) = [record for record in p.records if record.kind == "copy"]
  assert (copy.name, copy.device, copy.nbytes) == ("copy from REF", "REF", 16)
  assert sum(r.ops for r in p.records) == GlobalCounters.global_ops
  assert sum(r.nbytes for r in (*launches, copy)) == GlobalCounters.global_mem
  assert [r.nbytes for r in p.records if r.kind == "alloc"] == [8] * 4
  for record in p.records:
    assert record.device == "REF" and record.thread == threading.get_native_id()
    assert p.began <= record.start <= record.end and 0 <= record.busy <= record.end - record.start
  assert p.ended is not None and max(record.end for record in p.records) <= p.ended
  compiled = {record.name: record for record in p.records if record.kind == "compile"}
  for load in (record for record in p.records if record.kind == "load"):
    assert load.start <= compiled[load.name].start and compiled[load.name].end <= load.end


def test_memory_that_is_given_back(kernels: Any) -> None:
  before = GlobalCounters.mem_used
  with profile() as p:
    buffer = Buffer("REF", 100, dtypes.float32).allocate()
    del buffer
  allocated, freed = p.records
  assert (allocated.kind, allocated.nbytes, allocated.held) == ("alloc", 400, before + 400)
  assert (freed.kind, freed.nbytes, freed.held) == ("free", 400, before)
  assert allocated.tensor == "100 × float32" and freed.memory == allocated.memory > 0
  (origin,) = allocated.origins
  assert (origin.file, origin.function) == (__file__, "test_memory_that_is_given_back")


def test_nothing_is_recorded_outside(kernels: Any) -> None:
  a, b = kernels.buffer([1.0]), kernels.buffer(size=1)
  with profile() as p:
    assert begin() > 0
  run(kernels.linear(kernels.add(b, a)))
  assert p.records == [] and begin() == 0 and "0 in 0 calls" in p.table()


def test_nested_blocks_each_record(kernels: Any) -> None:
  a, b = kernels.buffer([1.0]), kernels.buffer(size=1)
  schedule = kernels.linear(kernels.add(b, a))
  with profile() as outer:
    run(schedule)
    with profile() as inner:
      run(schedule)
    run(schedule)
  assert kinds(outer)["kernel"] == 3 and kinds(inner) == {"kernel": 1}
  assert inner.records[0] in outer.records


def test_an_exception_ends_the_block(kernels: Any) -> None:
  a, b, empty = kernels.buffer([1.0]), kernels.buffer(size=1), kernels.buffer(size=1)
  known = kernels.add(b, a, 3.0, "known")
  run(kernels.linear(known))
  with pytest.raises(RuntimeError, match="was never written"):
    with profile() as p:
      run(kernels.linear(known, kernels.add(b, empty, 3.0, "known")))
  assert kinds(p) == {"kernel": 1} and p.ended is not None and begin() == 0


def test_a_kernel_that_does_not_compile_is_not_recorded(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
  from tiny_runtime.ref.compiler import RefCompiler

  def fail(*_: Any) -> Any:
    raise CompileError("no")

  monkeypatch.setattr(RefCompiler, "compile", fail)
  a, b = kernels.buffer([1.0]), kernels.buffer(size=1)
  with profile() as p, pytest.raises(CompileError):
    run(kernels.linear(kernels.add(b, a, 11.0, "fails")))
  assert kinds(p) == {}


def test_all_threads_are_recorded(kernels: Any) -> None:
  schedules = [kernels.linear(kernels.add(kernels.buffer(size=1), kernels.buffer([1.0]))) for _ in range(4)]
  run(schedules[0])
  all_run = threading.Barrier(4)

  def work(schedule: Any) -> None:
    for _ in range(10):
      run(schedule)
    all_run.wait()  # none ends before, whose number another would get

  with profile() as p:
    threads = [threading.Thread(target=work, args=(schedule,), name=f"t{n}") for n, schedule in enumerate(schedules)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
  launches = Counter(record.thread for record in p.records if record.kind == "kernel")
  assert sorted(launches.values()) == [10] * 4
  assert sorted(p.threads[number] for number in launches) == ["t0", "t1", "t2", "t3"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_forked_child_begins_anew(kernels: Any) -> None:
  a, b = kernels.buffer([1.0]), kernels.buffer(size=1)
  schedule = kernels.linear(kernels.add(b, a))
  with profile() as p:
    run(schedule)
    read, write = os.pipe()
    child = os.fork()
    if not child:
      run(schedule)
      os.write(write, json.dumps([kinds(p), p.process == os.getpid()]).encode())
      os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(read, 1000)) == [{"kernel": 1}, True]
    os.close(read)
    os.close(write)
  assert kinds(p)["kernel"] == 1


def test_kernels_have_the_keys_of_their_graphs(kernels: Any) -> None:
  """Launched alone and in a graph; what is no kernel has none."""
  a, b = kernels.buffer([1.0]), kernels.buffer(size=1)
  schedule = kernels.linear(kernels.add(b, a))
  with capture() as captured:
    run(schedule)
  graph = CapturedGraph(captured, [a], [b])
  with profile(by_kernel=True) as p:
    run(schedule)
    graph.replay([a])
  of_kernels = {record.key for record in p.records if record.kind in ("kernel", "graph kernel", "load")}
  assert of_kernels == {schedule.src[0].src[0].key[:8].hex()}
  assert {record.key for record in p.records if record.kind not in ("kernel", "graph kernel", "load")} <= {""}


QUEUES = """
import sys
sys.path.insert(0, FOLDER)
from queue_toy import BACKEND
"""


def test_a_device_with_queues_is_waited_for(kernels_on: Any, make_plugin: Callable[..., Path]) -> None:
  """What it has to do is done when it is recorded, and its own time is what the hardware says."""
  make_plugin("tiny-runtime-queues", "QUEUES", QUEUES.replace("FOLDER", repr(str(Path(__file__).parent))))
  kernels = kernels_on("QUEUES")
  x, t, y = kernels.buffer([1.0, 2.0]), *[kernels.buffer(size=2) for _ in range(2)]
  with capture() as captured:
    run(kernels.linear(kernels.add(t, x), kernels.add(y, t)))
  device: Any = Device.opened("QUEUES").device
  timeline = device.timeline
  graph = CapturedGraph(captured, [x], [y], name="step")
  graph.replay([x])
  found = []
  for work in (lambda: run(kernels.linear(kernels.add(t, x, 7.0))), lambda: graph.replay([x])):
    work()
    assert not timeline.reached(timeline.submitted), "nobody waits without a profile"
    with profile() as p:
      work()
      assert timeline.reached(timeline.submitted)
    found += [(r.kind, r.name, r.kernels) for r in p.records if r.kernels]
    assert all(0 <= record.busy <= record.end - record.start for record in p.records)
  adds, step = [("graph kernel", "add", 1)] * 2, ("graph", "step", 2)
  assert found == [("kernel", "add", 1), *adds, step]
  with profile(by_kernel=True) as p:
    graph.replay([x])
  assert [(r.kind, r.name, r.kernels) for r in p.records if r.kernels] == [*adds, step]
  silent = replace(device.info.capabilities, graph_times=False)  # of another device, whose times of kernels want this
  Device.opened("QUEUES").capabilities = silent
  with profile(by_kernel=True) as p:
    graph.replay([x])
  assert [(r.kind, r.name) for r in p.records if r.kernels] == [("kernel", "add")] * 2


# *** the table ***


FORWARD = Origin("/home/me/train.py", 41, "forward", "model.conv1", "forward")
BACKWARD = FORWARD._replace(phase="backward")


def made(*records: Record, threads: int = 1) -> Profile:
  """A profile of 1 ms with these records."""
  p = Profile()
  p.began, p.process = 1_000_000, 77
  p.threads = {n: f"thread {n}" for n in range(1, threads + 1)}
  p.records, p.ended = list(records), 2_000_000
  return p


def at(kind: Any, name: str, start: int, end: int, busy: int = 0, thread: int = 1, **more: int) -> Record:
  """A record between these nanoseconds of `made`."""
  figures: Any = {"ops": 0, "nbytes": 0, "kernels": 0, "held": 0} | more
  return Record(kind, name, "CPU", thread, 1_000_000 + start, 1_000_000 + end, busy or end - start, **figures)


SOME = (
  at("alloc", "allocate on CPU", 110_000, 120_000, nbytes=4000, held=4000),
  at("kernel", "add", 100_000, 300_000, busy=150_000, ops=300, nbytes=1500, kernels=1),
  at("kernel", "add", 300_000, 500_000, busy=150_000, ops=300, nbytes=1500, kernels=1),
  at("graph kernel", "mul", 520_000, 560_000, ops=60, nbytes=40, kernels=1),
  at("graph", "step", 500_000, 600_000, busy=80_000, ops=100, nbytes=80, kernels=3),
  at("write", "write to CPU", 650_000, 680_000, nbytes=60),
  at("copy", "copy from HOST", 640_000, 700_000, nbytes=120),
  at("compile", "add", 20_000, 80_000),
  at("load", "add", 10_000, 90_000),
)


def test_rows_by_kernel() -> None:
  found = {row.what: row[3:] for row in table.rows(made(*SOME))}
  assert found == {
    "add": (2, 300_000, 600, 3000),
    "between kernels of step (graph of 3)": (1, 40_000, 40, 40),
    "mul": (1, 40_000, 60, 40),
    "copy from HOST to CPU": (1, 30_000, 0, 120),
    "write to CPU": (1, 30_000, 0, 60),
  }


def test_parts_are_the_whole() -> None:
  *found, whole = table.parts(made(*SOME))
  assert {part.what: part.nanoseconds for part in found} == {
    "kernels": 340_000, "launch overhead": 150_000, "copies": 60_000, "compiling": 60_000, "loading": 20_000,
    "memory": 10_000, "not explained": 1_000_000 - 640_000,
  }  # fmt: skip
  assert sum(part.nanoseconds for part in found) == whole.nanoseconds == 1_000_000


def test_threads_explain_time_once() -> None:
  p = made(at("kernel", "a", 0, 600_000), at("kernel", "a", 200_000, 800_000, thread=2), threads=2)
  shares = {part.what: part.nanoseconds for part in table.parts(p)}
  assert shares["kernels"] == 1_200_000 and shares["not explained"] == 200_000 and shares["launch overhead"] == 0


def test_text_and_html() -> None:
  lines = made(*SOME).table().splitlines()
  assert lines[0].split() == ["calls", "total", "share", "GFLOPS", "GB/s", "what"], "columns without cells are left out"
  assert lines[1].split() == "2 300.00 µs 68.2% 0.00 0.01 add".split()
  assert any(line.startswith("launch overhead  150.00 µs") for line in lines)
  assert "4 others" in made(*SOME).table(limit=1) and str(made(*SOME)) == made(*SOME).table()
  page = made(at("kernel", "<b>", 0, 10))._repr_html_()
  assert "&lt;b&gt;" in page and "<b>" not in page
  assert repr(made(*SOME)) == "<Profile of 9 records in 0.001 s>"


def with_origins(
  kind: str, module: str, phase: Any, start: int, line: int = 41, more: tuple[Origin, ...] = ()
) -> Record:
  origin = Origin("/home/me/train.py", line, "forward", module, phase)
  return at(kind, f"kernel_{start}", start, start + 100_000, ops=10)._replace(origins=(origin, *more))


def test_layers() -> None:
  p = made(
    with_origins("kernel", "model.conv1", "forward", 0),
    with_origins("graph kernel", "model.conv1", "backward", 100_000),
    # what it computes of the forward pass again is for the gradient
    with_origins("kernel", "model.conv2", "forward", 200_000, 42, (BACKWARD,)),
    with_origins("kernel", "model.conv1", "backward", 300_000),
    with_origins("kernel", "", "optimiser", 400_000, 50),
  )
  assert table.layers(p) == [
    ("model.conv1", "train.py:41", 300_000, (100_000, 200_000, 0)),
    ("model.conv2", "train.py:42", 100_000, (0, 100_000, 0)),
    ("", "train.py:50", 100_000, (0, 0, 100_000)),
  ]
  rows = {row.where for row in table.rows(p)}
  assert rows == {
    "train.py:41 model.conv1", "train.py:41 model.conv1 backward", "train.py:42 model.conv2 backward +1",
    "train.py:50 optimiser",
  }  # fmt: skip
  lines = [line.split() for line in p.table().splitlines()]
  assert "300.00 µs 60.0% 100.00 µs 200.00 µs model.conv1 train.py:41".split() in lines


def test_memory_at_its_most() -> None:
  def alloc(number: int, start: int, nbytes: int, held: int, tensor: str) -> Record:
    made = at("alloc", "allocate on CPU", start, start + 1, nbytes=nbytes, held=held, memory=number)
    return made._replace(tensor=tensor, origins=(FORWARD,))

  p = made(
    alloc(1, 100_000, 1000, 1500, "250 × float32"),
    alloc(2, 200_000, 2000, 3500, "500 × float32"),
    at("free", "free on CPU", 300_000, 300_001, nbytes=1000, held=2500, memory=1),
    alloc(3, 400_000, 2000, 4500, "500 × float32"),
    at("free", "free on CPU", 500_000, 500_001, nbytes=2000, held=2500, memory=2),
    alloc(4, 600_000, 1, 2501, "1 × bool"),
  )
  when, nbytes, held = table.held_at_most(p)
  assert (when - p.began, nbytes) == (400_001, 4500)
  where = "train.py:41 model.conv1"
  assert held == [("500 × float32", where, 2, 4000, p.began + 200_001, None)]
  lines = [line.split() for line in p.memory().splitlines()]
  assert lines[0] == "4.5 kB in use at most, at 0.40 ms of 1.00 ms".split()
  assert lines[3] == ["4", "kB", "2", "0.20", "kept", *where.split(), *"500 × float32".split()]
  assert lines[4] == "500 B from before the profile".split()
  assert made().memory() == "0 B in use at most, at 0.00 ms of 1.00 ms"


def test_a_share_of_the_roof() -> None:
  peaks = Peaks(100e9, 10e9)
  assert table.share_of_roof(50_000_000, 1000, 1e-3, peaks) == "50% ops"
  assert table.share_of_roof(1000, 8_000_000, 1e-3, peaks) == "80% mem"
  assert table.share_of_roof(0, 0, 1e-3, peaks) == table.share_of_roof(1, 1, 1e-3, None) == ""


def test_lines_fit_a_terminal() -> None:
  p = made(at("kernel", "k" * 100, 0, 10)._replace(origins=(FORWARD._replace(module="m" * 100),)))
  assert max(map(len, p.table().splitlines())) <= 120


# *** files ***


def test_chrome(tmp_path: Path) -> None:
  p = made(*SOME, at("kernel", 'a "quoted" µ', 5, 6, thread=2), threads=2)
  p.chrome(tmp_path / "trace.json")
  trace = json.loads((tmp_path / "trace.json").read_text("utf-8"), parse_constant=lambda name: pytest.fail(name))
  events = strictly_read(trace)
  slices = [event for event in events if event["ph"] == "X"]
  assert len(slices) == len(p.records)
  assert {event["name"] for event in slices} == {record.name for record in p.records}
  (graph,) = [event for event in slices if event["cat"] == "graph"]
  assert (graph["ts"], graph["dur"], graph["tid"]) == (500.0, 100.0, 1)
  assert graph["args"] == {"device": "CPU", "busy_ns": 80_000, "operations": 100, "bytes": 80, "kernels": 3}
  assert [event["args"] for event in events if event["ph"] == "C"] == [{"bytes": 4000}]
  names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
  assert names == {1: "thread 1", 2: "thread 2"}


def strictly_read(trace: Any) -> list[dict[str, Any]]:
  """The events of a trace, where all that "Trace Event Format" asks of them is so."""
  assert trace.keys() == {"traceEvents", "displayTimeUnit"} and trace["displayTimeUnit"] in ("ms", "ns")
  fields = {
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "M": {"ph", "name", "pid", "tid", "args"},
    "C": {"ph", "name", "pid", "ts", "args"},
  }
  ends: dict[int, list[float]] = {}
  for event in trace["traceEvents"]:
    assert event.keys() == fields[event["ph"]]
    assert isinstance(event["name"], str) and type(event["pid"]) is int and isinstance(event["args"], dict)
    if event["ph"] == "M":
      assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
    elif event["ph"] == "C":
      assert all(isinstance(value, (int, float)) for value in event["args"].values())
    else:
      assert event["dur"] >= 0 and event["ts"] >= 0
      inside = ends.setdefault(event["tid"], [])
      while inside and inside[-1] <= event["ts"]:
        inside.pop()
      # complete events of a thread are within each other, or apart
      assert not inside or event["ts"] + event["dur"] <= inside[-1]
      inside.append(event["ts"] + event["dur"])
  return list(trace["traceEvents"])


Message = dict[int, list[Any]]


def message(data: bytes) -> Message:
  """A protobuf message as field number → values: integers, or bytes."""
  found: Message = {}
  place = 0

  def varint() -> int:
    nonlocal place
    value = shift = 0
    while True:
      byte = data[place]
      place += 1
      value |= (byte & 127) << shift
      shift += 7
      if byte < 128:
        return value

  while place < len(data):
    tag = varint()
    assert tag & 7 in (0, 2), "only integers, and what has a length"
    value: int | bytes = varint()
    if tag & 7 == 2:
      assert isinstance(value, int) and place + value <= len(data)
      length = value
      value, place = data[place : place + length], place + length
    found.setdefault(tag >> 3, []).append(value)
  return found


def slices(packets: list[Message]) -> list[tuple[int, str, int, int]]:
  """Track, name, start and end of each slice; every end has a begin."""
  found, stacks = [], dict[int, list[tuple[str, int]]]()
  last: dict[int, int] = {}
  for packet in packets:
    if 11 not in packet:
      continue
    (event,) = map(message, packet[11])
    (track,), (kind,), (time,) = event[11], event[9], packet[8]
    assert time >= last.get(track, 0)
    last[track] = time
    if kind == 1:
      stacks.setdefault(track, []).append((event[23][0].decode(), time))
    elif kind == 2:
      name, start = stacks[track].pop()
      found.append((track, name, start, time))
  assert not any(stacks.values())
  return found


def test_perfetto(tmp_path: Path) -> None:
  p = made(*SOME, at("kernel", "a µ", 5, 5_000, thread=2), threads=2)
  p.perfetto(tmp_path / "trace.pftrace")
  packets = [message(packet) for packet in message((tmp_path / "trace.pftrace").read_bytes())[1]]
  assert all(packet[10] == [1] for packet in packets) and packets[0][13] == [1]
  tracks = {message(packet[60][0])[1][0]: message(packet[60][0]) for packet in packets if 60 in packet}
  threads = {uuid: message(track[4][0]) for uuid, track in tracks.items() if 4 in track}
  number = {uuid: thread[2][0] for uuid, thread in threads.items()}
  assert [thread[5] for thread in threads.values()] == [[b"thread 1"], [b"thread 2"]]
  found = [(number[track], *rest) for track, *rest in slices(packets)]
  expected = [(r.thread, r.name, r.start - p.began, r.end - p.began) for r in p.records]
  assert sorted(found) == sorted(expected)
  counts = [message(packet[11][0]) for packet in packets if 11 in packet and message(packet[11][0])[9] == [4]]
  assert [count[30] for count in counts] == [[4000]] and tracks[counts[0][11][0]][2] == [b"memory in use"]


def test_perfetto_by_its_schema(tmp_path: Path) -> None:
  schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
  p = made(*SOME)
  p.perfetto(tmp_path / "trace.pftrace.gz")
  trace = schema.Trace()
  trace.ParseFromString(gzip.decompress((tmp_path / "trace.pftrace.gz").read_bytes()))
  size = trace.ByteSize()
  trace.DiscardUnknownFields()
  assert trace.ByteSize() == size, "fields that the schema does not have"
  begins = [packet for packet in trace.packet if packet.track_event.type == schema.TrackEvent.TYPE_SLICE_BEGIN]
  assert sorted(packet.track_event.name for packet in begins) == sorted(record.name for record in p.records)
  (graph,) = [packet.track_event for packet in begins if list(packet.track_event.categories) == ["graph"]]
  notes = {note.name: note.string_value or note.int_value for note in graph.debug_annotations}
  assert notes == {"device": "CPU", "busy_ns": 80_000, "operations": 100, "bytes": 80, "kernels": 3}
  threads = [packet.track_descriptor.thread for packet in trace.packet if packet.track_descriptor.HasField("thread")]
  assert [(thread.pid, thread.tid, thread.thread_name) for thread in threads] == [(77, 1, "thread 1")]
  (counter,) = [packet for packet in trace.packet if packet.track_event.type == schema.TrackEvent.TYPE_COUNTER]
  assert counter.track_event.counter_value == 4000 and counter.timestamp == 120_000


def test_csv(tmp_path: Path) -> None:
  p = made(*SOME, at("kernel", 'a, "b"\nc', 5, 6)._replace(origins=(FORWARD, BACKWARD)))
  p.csv(tmp_path / "records.csv")
  with (tmp_path / "records.csv").open(newline="", encoding="utf-8") as file:
    head, *lines = csv.reader(file)
  columns = Record._fields[:-1]  # all but what a device recorded
  assert tuple(head) == columns
  *others, last = [[str(value) if value != () else "" for value in record[:-1]] for record in p.records]
  last[Record._fields.index("origins")] = "train.py:41 model.conv1; train.py:41 model.conv1 backward"
  assert lines == [*others, last]


def test_lines_of_json(tmp_path: Path) -> None:
  two = (
    at("kernel", "µ", 5, 6)._replace(origins=(FORWARD, BACKWARD)),
    at("kernel", "b", 6, 7)._replace(origins=(BACKWARD,)),
  )
  p = made(*SOME, *two)
  p.save(tmp_path / "run.jsonl.gz")
  head, *lines = map(json.loads, gzip.decompress((tmp_path / "run.jsonl.gz").read_bytes()).splitlines())
  assert (head["profile"], head["process"], head["began"], head["ended"]) == (1, 77, 1_000_000, 2_000_000)
  assert head["threads"] == {"1": "thread 1"}
  origins: list[Origin] = []
  records: list[Record] = []
  nothing = {"busy": 0, "ops": 0, "nbytes": 0, "kernels": 0, "held": 0, "origins": []}
  for line in lines:
    if "origin" in line:
      assert line.pop("origin") == len(origins)
      origins.append(Origin(**line))
    else:
      assert all(line.values()), "what is nothing is left out"
      made_of = nothing | line
      records.append(Record(**made_of | {"origins": tuple(origins[n] for n in made_of["origins"])}))
  assert records == p.records and origins == [FORWARD, BACKWARD]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
  p = made(*SOME)
  path = tmp_path / "trace.json.gz"
  p.save(path)
  before = path.read_bytes()
  assert strictly_read(json.loads(gzip.decompress(before)))
  with pytest.raises(FileNotFoundError, match="the profile cannot be written: .*missing/x.csv"):
    p.csv(tmp_path / "missing" / "x.csv")
  p.records.append(at("kernel", object(), 1, 2))  # type: ignore[arg-type]
  with pytest.raises(TypeError):
    p.chrome(path)
  p.records.pop()
  assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]
  with pytest.raises(ValueError, match=r"saved as \.json, \.jsonl, \.pftrace, \.csv, .* got 'x\.txt'"):
    p.save("x.txt")
  p.save(tmp_path / "p.pftrace")
  p.save(tmp_path / "r.csv.gz")
  assert sorted(os.listdir(tmp_path)) == ["p.pftrace", "r.csv.gz", path.name]


PROGRAM = """
import tiny_runtime
from tiny_runtime import Buffer
from tiny_uop import Context, dtypes
from tiny_uop.origins import Origin
buffer = Buffer("REF", 4, dtypes.uint8)
buffer.write(b"1234")
print("output")
"""


def whole_program(program: str, **settings: str) -> subprocess.CompletedProcess[str]:
  """A program in a process of its own."""
  environment = {**os.environ, **settings}
  return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)


def test_a_whole_program(tmp_path: Path) -> None:
  done = whole_program(PROGRAM, PROFILE="1", PROFILE_FILE=str(tmp_path / "%p.csv"))
  assert done.stdout == "output\n" and "write to REF" in done.stderr and "not explained" in done.stderr
  (file,) = tmp_path.glob("*.csv")
  assert f"profile  {file}" in done.stderr and "write,write to REF,REF," in file.read_text("utf-8")
  assert whole_program(PROGRAM).stderr == ""


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
  for name, why in (("missing/x.json", "cannot be written"), ("x.txt", "saved as .json")):
    done = whole_program(PROGRAM, PROFILE="1", PROFILE_FILE=str(tmp_path / name))
    assert why in done.stderr and "set PROFILE_FILE to another" in done.stderr and "Traceback" not in done.stderr


def test_profile_is_no_part_of_what_kernels_depend_on(kernels: Any) -> None:
  a, b = kernels.buffer([1.0]), kernels.buffer(size=1)
  schedule = kernels.linear(kernels.add(b, a, 5.0))
  run(schedule)
  with Context(PROFILE=0, PROFILE_FILE="x"), profile() as p:
    run(schedule)
  assert kinds(p) == {"kernel": 1}


def test_buffers_read_and_written(kernels: Any) -> None:
  with profile() as p:
    buffer = buffer_of(kernels.buffer([1.0, 2.0]))
    buffer.read_into(out := bytearray(8))
  assert len(out) == 8
  assert [(r.kind, r.name, r.nbytes) for r in p.records if r.kind in ("read", "write")] == [
    ("write", "write to REF", 8),
    ("read", "read from REF", 8),
  ]
