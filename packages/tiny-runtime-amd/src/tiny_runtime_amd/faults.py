"""Events of KFD: that something was finished, and what goes wrong on the GPU, as KFD and the packet processor tell."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from tiny_runtime import DeviceLost
from tiny_runtime_amd.gpus import Gpu
from tiny_runtime_amd.kfd import (
  EVENT_HARDWARE,
  EVENT_MEMORY,
  EVENT_SIGNAL,
  KFD,
  WAIT_COMPLETE,
  EventData,
  KFDError,
  MemoryException,
)

QUEUE_ERRORS = {
  0x01: "a kernel needs more private memory than the queue has",
  0x02: "a launch has sizes that it must not have",
  0x04: "a launch asks for more shared memory than there is",
  0x08: "a launch names no kernel, or code that is not for this GPU",
  0x20: "a packet is of no known format",
  0x40: "a workgroup has more threads than the GPU takes",
  0x80: "a kernel needs more registers than there are for its workgroups",
  0x100: "a packet is of no known format",
  0x200: "private memory of more than its share was asked for, or asked back",
  0x400: "a kernel needs more private memory than the queue has for waves of 32 threads",
  0x20000000: "a kernel used an address that is in no buffer, or as it must not be used",
  0x40000000: "a kernel had an instruction that the GPU does not know",
  0x80000000: "a kernel came to a trap, or to a debugger's stop",
}
"""What the packet processor and trap handlers write to a queue's signal for errors, after the handler of ROCm's
runtime."""
EXCEPTIONS = {
  1: "a kernel was aborted",
  2: "a kernel came to a trap",
  3: "a kernel's arithmetic raised an exception",
  4: "a kernel had an instruction that the GPU does not know",
  5: "a kernel used an address that is in no buffer, or as it must not be used",
  6: "a kernel used an address that belongs to no kind of memory",
  16: "a launch has sizes that it must not have",
  17: "a launch asks for more shared memory than there is",
  18: "a launch names no kernel, or code that is not for this GPU",
  19: "a packet is of no known format",
  20: "a packet is of no known format",
  21: "a workgroup has more threads than the GPU takes",
  22: "a kernel needs more registers than there are for its workgroups",
  23: "a packet is of no known format",
  30: "the queue could not be interrupted",
}
"""What KFD writes to the place that the area for saved waves names: bit n - 1 for each of these
(kfd_dbg_trap_exception_code of linux/kfd_ioctl.h)."""
ERRORS = {1: "its memory had an error that could not be corrected", 2: "data were known to be damaged", 3: "it hangs"}
"""KFD_MEM_ERR_."""


FAULTS = 3
"""Of the events, the first so many are of what goes wrong."""


class Faults:
  """Events that are set where a GPU fails, and one that it sets itself when it has finished something."""

  def __init__(self, kfd: KFD, gpu: Gpu, page: tuple[int, int] | None = None) -> None:
    """`page`: address and handle of the memory that GPUs write to when they interrupt, once per process; where there is
    none, waiting is sleeping."""
    self.kfd, self.gpu = kfd, gpu
    self.events = (EventData * 4)()
    self.mailbox = 0
    """Where the GPU writes the last event's number before it interrupts; 0 where it does not."""
    self.look: Callable[[], None] = lambda: None
    """Raises DeviceLost if the queue has an error."""
    try:
      for event, kind in zip(self.events, (EVENT_MEMORY, EVENT_HARDWARE, EVENT_SIGNAL)):
        event.event_id = kfd("CREATE_EVENT", event_type=kind, node_id=gpu.node).event_id
      if page is not None:
        made = kfd("CREATE_EVENT", event_type=EVENT_SIGNAL, node_id=gpu.node, auto_reset=1)
        self.events[3].event_id, self.mailbox = made.event_id, page[0] + 8 * made.event_slot_index
    except KFDError:
      self.close()
      raise

  @property
  def of_queue(self) -> int:
    """The event that KFD is to set for errors of the queue."""
    return int(self.events[2].event_id)

  @property
  def finished(self) -> int:
    """The event that the GPU sets; 0 for none."""
    return int(self.events[3].event_id)

  def pause(self, seconds: float) -> None:
    """Sleep, or until something failed or was finished. Raises DeviceLost."""
    milliseconds = int(seconds * 1e3)
    if self.mailbox:
      if self._wait(len(self.events), max(1, milliseconds)) and self._wait(FAULTS, 0):  # which it was is not told
        self._tell()
    elif self._wait(FAULTS, milliseconds):
      self._tell()
    elif not milliseconds:
      time.sleep(seconds)

  def _wait(self, count: int, milliseconds: int) -> bool:
    """Wait for one of the first events; whether one was set."""
    found = self.kfd(
      "WAIT_EVENTS", events_ptr=ctypes.addressof(self.events), num_events=count, timeout=milliseconds
    )  # fmt: skip
    return bool(found.wait_result == WAIT_COMPLETE)

  def _tell(self) -> None:
    self.look()
    memory, hardware = self.events[0].memory_exception_data, self.events[1].hw_exception_data
    ours = self.gpu.gpu_id
    if memory.gpu_id == ours:
      raise DeviceLost(in_words(memory))
    if hardware.gpu_id == ours:
      lost = ", and its memory is lost" if hardware.memory_lost else ""
      why = "its memory had an error" if hardware.reset_cause else "it did not answer"
      raise DeviceLost(f"the GPU was reset, because {why}{lost}")
    if not memory.gpu_id and not hardware.gpu_id:
      raise DeviceLost("the GPU was reset")  # which older versions of Linux say no more about
    for event in self.events[:FAULTS]:  # another GPU's
      self.kfd("RESET_EVENT", event_id=event.event_id)
      ctypes.memset(ctypes.addressof(event.memory_exception_data), 0, ctypes.sizeof(MemoryException))

  def close(self) -> None:
    """Destroy the events."""
    for event in self.events:
      if event.event_id:
        self.kfd("DESTROY_EVENT", event_id=event.event_id)


def in_words(fault: MemoryException) -> str:
  """A memory exception."""
  if fault.ErrorType:
    return f"the GPU failed: {ERRORS.get(fault.ErrorType, f'error {fault.ErrorType}')}"
  failure = fault.failure
  what = "used an address that is in no buffer" if failure.NotPresent else "used an address as it must not be used"
  if failure.NoExecute:
    what = "jumped to where no code is"
  elif failure.ReadOnly:
    what = "wrote to memory that is only to be read"
  near = "about " if failure.imprecise else ""
  return f"a kernel {what}: {near}{fault.va:#x}"


def queue_error(code: int) -> DeviceLost:
  """What the packet processor stopped for."""
  return _stopped(f"error {code:#x}", [text for bit, text in QUEUE_ERRORS.items() if code & bit])


def queue_exception(mask: int) -> DeviceLost:
  """What KFD says of the queue."""
  return _stopped(f"exception {mask:#x}", [text for bit, text in EXCEPTIONS.items() if mask >> (bit - 1) & 1])


def _stopped(by: str, texts: list[str]) -> DeviceLost:
  why = ", ".join(dict.fromkeys(texts)) or "an exception in a kernel"
  return DeviceLost(f"the GPU stopped the queue with {by}: {why}")
