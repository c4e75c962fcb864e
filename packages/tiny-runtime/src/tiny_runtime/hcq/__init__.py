"""A base for devices that are driven through queues in memory. See README.md of tiny-runtime, "Hardware queues"."""

from tiny_runtime.hcq.device import QueueDevice
from tiny_runtime.hcq.hardware import (
  Block,
  Command,
  Dispatch,
  Hardware,
  Kernel,
  Kind,
  Launch,
  PeerHardware,
  Prepared,
  RecordingHardware,
  Signal,
  Sizes,
  TimedHardware,
  Transfer,
  Wait,
  Work,
  three,
)
from tiny_runtime.hcq.programs import Program
from tiny_runtime.hcq.ring import Ring
from tiny_runtime.hcq.staging import HostRing
from tiny_runtime.hcq.timeline import Timeline
from tiny_runtime.settings import QUEUE_TIMEOUT

__all__ = [
  "QUEUE_TIMEOUT", "Block", "Command", "Dispatch", "Hardware", "HostRing", "Kernel", "Kind", "Launch",
  "PeerHardware", "Prepared", "Program", "QueueDevice", "RecordingHardware", "Ring", "Signal", "Sizes",
  "TimedHardware", "Timeline", "Transfer", "Wait", "Work", "three",
]  # fmt: skip
