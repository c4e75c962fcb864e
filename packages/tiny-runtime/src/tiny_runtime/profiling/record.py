"""What a profile knows of one thing that was done."""

from __future__ import annotations

from typing import Literal, NamedTuple

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
