"""What a profile knows of one thing that was done, and the lines of a profile's `.jsonl`.

`Profile.save("run.jsonl")` writes JSON, one object a line, in UTF-8; `.jsonl.gz` is compressed. `tiny_viz` reads it:

1. the head, whose key `profile` is the version of the format:
   `{"profile": 1, "program": "train.py", "process": 77, "began": 1000000, "ended": 2000000,
   "threads": {"77": "MainThread"}, "peaks": {"CPU": {"ops_per_s": 1.1e11, "bytes_per_s": 2.0e10}}}`.
   Times are nanoseconds of `time.perf_counter_ns`. `peaks` has those devices whose peaks are known;
2. an origin, before the first record that has it; records refer to it by its number:
   `{"origin": 0, "file": "/home/me/train.py", "line": 41, "function": "forward", "module": "model.layer2.0.conv1",
   "phase": "forward"}`. `module` may be empty; `phase` is `forward`, `backward` or `optimiser`;
3. a record, with the fields of `Record` under their names, those that are 0, "" or () left out:
   `{"kind": "kernel", "name": "reduce_64x64_r576", "device": "CPU", "thread": 77, "start": 1100000, "end": 1300000,
   "busy": 150000, "ops": 300, "nbytes": 1500, "kernels": 1, "held": 4000, "origins": [0, 2],
   "key": "5d41402abc4b2a76"}`.

With `VIZ=-2`, behind the record of a kernel whose device recorded its waves (`tiny_runtime.contract.Recording`): its
program, the first time, each shader engine's trace, and the block of its counters, bytes in base64. The head of
`tiny_viz/run.py` has these three.

Records come in the order in which things were done with; a reader takes unknown keys and kinds for what it does not
know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from tiny_uop.origins import Origin

if TYPE_CHECKING:
  from tiny_runtime.contract import Recording

VERSION = 1
"""Of the format above."""

Kind = Literal["kernel", "graph", "graph kernel", "copy", "read", "write", "load", "compile", "alloc", "free"]
"""Of a Record:

* `kernel`: one launch. `graph`: one submission of a captured graph, or of a part of it.
* `graph kernel`: one kernel within a `graph`, whose time it is a part of; from devices that tell these.
* `copy`: between two buffers, as scheduled; by way of the host it has a `read` or a `write` inside.
* `read`, `write`: bytes between a device and this process.
* `load`: a kernel made ready for a device, from whatever cache; with a `compile` inside where it was in none.
* `alloc`, `free`: memory of a device.
"""


class Record(NamedTuple):
  """One thing that was done. It is in the interval of another of its thread, or apart from it."""

  kind: Kind
  name: str
  """Of the kernel, of the captured function, or what was done: "write to CPU"."""
  device: str
  """As `Device.canonicalize` spells it."""
  thread: int
  """The system's number of the thread that did it, or asked for it."""
  start: int
  """Nanoseconds of `time.perf_counter_ns`, when it was asked for."""
  end: int
  """And when it was done."""
  busy: int
  """Nanoseconds that the device was at it, where it tells: the rest of a launch is overhead. Else all of them."""
  ops: int
  """Arithmetic operations, as the compiler estimates them."""
  nbytes: int
  """Bytes read and written, as the compiler estimates them; of a copy, exactly; of memory, its size."""
  kernels: int
  """Kernels launched, copies in a graph included."""
  held: int
  """Bytes of device memory in use afterwards, in this process."""
  origins: tuple[Origin, ...] = ()
  """Where the program asked for it: of a kernel, the lines and modules that it computes, that with most work first; of
  memory, those that it was taken for. Empty where nobody knows."""
  memory: int = 0
  """Of an `alloc`, its number; the `free` of the same memory has the same. 0 of anything else."""
  tensor: str = ""
  """Of an `alloc`, what is in it: "4096 × float32"."""
  key: str = ""
  """Of a kernel and of its `load`, the first 8 bytes of its graph's `UOp.key`, in hexadecimal digits: the same in every
  program that has this kernel. Empty of anything else."""
  recording: Recording | None = None
  """Of a kernel, with `VIZ=-2`: what the device recorded of its waves, where it does."""


class Call(NamedTuple):
  """A call of a captured graph, with the fields of its records that are the same in each run."""

  name: str
  device: str
  ops: int
  nbytes: int
  origins: tuple[Origin, ...]
  key: str = ""


class Replay(NamedTuple):
  """The calls of one submission of a captured graph, before they are records."""

  calls: Sequence[Call]
  times: Sequence[tuple[float, float]]
  """When each began and ended: seconds from the beginning of the submission."""
  began: int
  """When that was."""
  thread: int
  held: int

  def records(self) -> list[Record]:
    """A `graph kernel` each. Those of several devices, which may overlap, are shown one after the other."""
    found, at, thread, held = [], self.began, self.thread, self.held
    for (name, device, ops, nbytes, origins, key), (of, to) in zip(self.calls, self.times, strict=True):
      first, at = max(at, self.began + round(of * 1e9)), max(at, self.began + round(to * 1e9))
      figures = thread, first, at, at - first, ops, nbytes, 1, held
      found.append(Record("graph kernel", name, device, *figures, origins, key=key))
    return found
