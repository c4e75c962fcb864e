"""Commands as the words of a pushbuffer: methods of the channel, of its compute engine, and of its copy engine.

Launches follow each other in the compute engine, which waits until it is idle; copies follow each other in the copy
engine. Where the engine changes, and at the end, the one that worked writes a number to a word in memory, and the
channel waits for that number before it reads on. At the end the word is 0 again, so the same words can be submitted
again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from tiny_runtime.hcq import Command, Dispatch, Signal, Transfer, Wait
from tiny_runtime_nv.kernel_driver.tables import method, word

COMPUTE, COPY = 1, 4
"""Subchannels. On a channel of the graphics engine, 4 is the copy engine's."""
INCREASING = 1 << 29
"""A header's: each word goes to the method after the one before."""
MARK = 16
"""Bytes of a time stamp: a number of 64 bits, then nanoseconds."""
WORDS = 32
"""Of a command. What is left of them are zeros, which are no method."""
LONGEST_COPY = 1 << 31


_RELEASE, _REPORT, _COPIED = (
  {
    stamp: word("SEM_EXECUTE", OPERATION="RELEASE", PAYLOAD_SIZE="64BIT", RELEASE_TIMESTAMP="EN" if stamp else "DIS")
    for stamp in (False, True)
  },
  {
    stamp: word("SET_REPORT_SEMAPHORE_D", OPERATION="RELEASE", STRUCTURE_SIZE="FOUR_WORDS" if stamp else "ONE_WORD")
    for stamp in (False, True)
  },
  {
    stamp: word("LAUNCH_DMA", DATA_TRANSFER_TYPE="NONE", FLUSH_ENABLE=1, SEMAPHORE_TYPE=kind)
    for stamp, kind in ((False, "RELEASE_ONE_WORD_SEMAPHORE"), (True, "RELEASE_FOUR_WORD_SEMAPHORE"))
  },
)
"""How numbers are written, without and with the time behind them: by the channel, by either engine."""
_IDLE = word("SEM_EXECUTE", RELEASE_WFI="EN")
_ACQUIRE = word("SEM_EXECUTE", OPERATION="ACQUIRE", ACQUIRE_SWITCH_TSG="EN")
_COPY = word(
  "LAUNCH_DMA", DATA_TRANSFER_TYPE="NON_PIPELINED", FLUSH_ENABLE=1, SRC_MEMORY_LAYOUT="PITCH", DST_MEMORY_LAYOUT="PITCH"
)
_START = {
  True: ("SEND_SIGNALING_PCAS2_B", word("SEND_SIGNALING_PCAS2_B", PCAS_ACTION="INVALIDATE_COPY_SCHEDULE")),
  False: ("SEND_SIGNALING_PCAS_B", word("SEND_SIGNALING_PCAS_B", INVALIDATE=1, SCHEDULE=1)),
}
_NEW_CODE = word("INVALIDATE_SHADER_CACHES", INSTRUCTION=1, DATA=1, CONSTANT=1)


def methods(subchannel: int, name: str, *data: int) -> list[int]:
  """Words for a method, and for those behind it."""
  return [INCREASING | len(data) << 16 | subchannel << 13 | method(name) >> 2, *[value & 0xFFFFFFFF for value in data]]


def release(address: int, payload: int, idle: bool = False, stamp: bool = False) -> list[int]:
  """The channel writes a number of 64 bits; `idle`: when the engines have nothing to do, and all that they wrote is
  seen; `stamp`: with the time behind it."""
  return _semaphore(address, payload, _RELEASE[stamp] | (_IDLE if idle else 0))


def acquire(address: int, payload: int) -> list[int]:
  """The channel waits for a number of 32 bits; others of its group may run meanwhile."""
  return _semaphore(address, payload, _ACQUIRE)


def _semaphore(address: int, payload: int, execute: int) -> list[int]:
  return methods(0, "SEM_ADDR_LO", address, address >> 32, payload, payload >> 32, execute)


def interrupt() -> list[int]:
  """The channel interrupts the host, and goes on."""
  return methods(0, "NON_STALL_INTERRUPT", 0)


def report(address: int, payload: int, stamp: bool) -> list[int]:
  """The compute engine writes a number of 32 bits when all launches before are done."""
  return methods(COMPUTE, "SET_REPORT_SEMAPHORE_A", address >> 32, address, payload, _REPORT[stamp])


def copied(address: int, payload: int, stamp: bool) -> list[int]:
  """The copy engine writes a number of 32 bits when all copies before are done."""
  place = methods(COPY, "SET_SEMAPHORE_A", address >> 32, address, payload)
  return [*place, *methods(COPY, "LAUNCH_DMA", _COPIED[stamp])]


def launch(qmd: int, action: bool) -> list[int]:
  """The compute engine starts what is described at an address."""
  return [*methods(COMPUTE, "SEND_PCAS_A", qmd >> 8), *methods(COMPUTE, *_START[action])]


def copy(command: Transfer) -> list[int]:
  """The copy engine copies a row of bytes, after those before it."""
  source, target = command.source, command.target
  return [
    *methods(COPY, "OFFSET_IN_UPPER", source >> 32, source, target >> 32, target),
    *methods(COPY, "LINE_LENGTH_IN", command.nbytes, 1),
    *methods(COPY, "LAUNCH_DMA", _COPY),
  ]


def new_code() -> list[int]:
  """Nothing of instructions or constants that was read before is used again."""
  return methods(COMPUTE, "INVALIDATE_SHADER_CACHES", _NEW_CODE)


class Encoder:
  """Makes words of commands: `order` is the address of the word for order, `action` how launches are told, `is_code`
  whether code may be at an address."""

  def __init__(self, order: int, action: bool, is_code: Callable[[int], bool]) -> None:
    self.order, self.action, self.is_code = order, action, is_code

  def block(self, commands: Sequence[Command], n: int, qmd: int, mark: int) -> array[int]:
    """The `WORDS` of command `n`. `qmd`: where a launch is described; `mark`: where the time goes at which it is done,
    0 for nowhere."""
    command = commands[n]
    following = commands[n + 1] if n + 1 < len(commands) else None
    done = report if isinstance(command, Dispatch) else copied
    if isinstance(command, (Signal, Wait)):
      at_once = release(command.fence, 1, idle=True) if isinstance(command, Signal) else acquire(command.fence, 1)
      return _padded([*at_once, *(release(mark, n + 1, stamp=True) if mark else [])])
    words = launch(qmd, self.action) if isinstance(command, Dispatch) else copy(command)
    if mark:
      words += done(mark, n + 1, True)
    code = isinstance(command, Transfer) and self.is_code(command.target)
    if code or type(following) is not type(command):
      words += [*done(self.order, n + 1, False), *acquire(self.order, n + 1)]
    elif isinstance(command, Dispatch):
      words += methods(COMPUTE, "WAIT_FOR_IDLE", 0)
    return _padded(words + new_code() if code else words)


def _padded(words: list[int]) -> array[int]:
  assert len(words) <= WORDS
  return array("I", words + [0] * (WORDS - len(words)))
