"""The device `NV` where there is no GPU: why it cannot be used, and the words that it would write."""

from __future__ import annotations

import errno
import sys

import pytest

from tiny_runtime import Unavailable
from tiny_runtime.hcq import Transfer
from tiny_runtime.hcq.system import FreshAddresses
from tiny_runtime_nv import NV
from tiny_runtime_nv.kernel_driver import commands
from tiny_runtime_nv.kernel_driver.backend import NVBackend
from tiny_runtime_nv.kernel_driver.faults import in_words
from tiny_runtime_nv.kernel_driver.generations import GENERATIONS, generation_of, newest
from tiny_runtime_nv.kernel_driver.resource_manager import RMError
from tiny_runtime_nv.kernel_driver.system import NVLinux
from tiny_runtime_nv.kernel_driver.tables import constant

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NV is for Linux")


class Without(NVLinux):
  """A machine whose files cannot be opened, or whose driver takes no requests."""

  def __init__(self, opening: int = 0, asking: int = 0) -> None:
    self.opening, self.asking, self.closed = opening, asking, 0

  def open(self, path: str) -> int:
    if self.opening:
      raise OSError(self.opening, path)
    return 99

  def close(self, descriptor: int) -> None:
    self.closed += 1

  def ioctl(self, descriptor: int, request: int, argument: object) -> None:
    raise OSError(self.asking, "refused")


@LINUX
@pytest.mark.parametrize(
  ("system", "why", "what"),
  [
    (Without(errno.ENOENT), "there is no /dev/nvidiactl", "Install NVIDIA's driver"),
    (Without(errno.EACCES), "this user may not open /dev/nvidiactl", "in a container, pass these files on"),
    (Without(asking=errno.ENOTTY), "takes no requests", "A container may have the files"),
    (Without(asking=errno.EPERM), "takes no requests", "try outside of it"),
  ],
)
def test_why_it_cannot_be_used(system: Without, why: str, what: str) -> None:
  found = NVBackend(system).probe()
  assert isinstance(found, Unavailable) and why in str(found) and what in str(found)
  assert system.closed == (system.opening == 0)
  with pytest.raises(Unavailable, match=r"nvidiactl"):
    NVBackend(system).open(0)


def test_this_machine_says_something() -> None:
  found = NV.probe()
  assert isinstance(found, Unavailable) or all(arch.startswith("sm_") for arch in found)


def test_words_of_a_copy_and_of_a_launch() -> None:
  """Headers and methods, by hand from the class headers: increasing methods are 1 << 29, the count is at bit 16."""
  made = commands.copy(Transfer(0x12_3456_7890, 0x7F00_0000_1000, 4096))
  assert made == [
    0x20048100, 0x7F00, 0x1000, 0x12, 0x34567890, 0x20028106, 4096, 1, 0x200180C0, 0x186,
  ]  # fmt: skip
  assert commands.launch(0x10_0000_0200, True) == [0x200120AD, 0x10000002, 0x200120B0, 3]
  assert commands.launch(0x10_0000_0200, False) == [0x200120AD, 0x10000002, 0x200120AF, 3]
  assert commands.release(0x10_0000_0040, 1 << 32 | 5, idle=True, stamp=True) == [
    0x20050017, 0x40, 0x10, 5, 1, 1 | 1 << 20 | 1 << 24 | 1 << 25,
  ]  # fmt: skip
  assert commands.acquire(0x10_0000_0040, 7) == [0x20050017, 0x40, 0x10, 7, 0, 1 << 12]


def test_the_engine_that_worked_is_waited_for_where_it_changes() -> None:
  encoder = commands.Encoder(0x10_0000_0020, True, lambda address: address >= 1 << 45)
  copies = [Transfer(1 << 40, 1 << 41, 64), Transfer(1 << 42, 1 << 40, 64), Transfer(1 << 45, 1 << 40, 64)]
  acquired = commands.acquire(encoder.order, 1)[0]
  blocks = [list(encoder.block(copies, n, 0, 0)) for n in range(3)]
  assert [acquired in block for block in blocks] == [False, False, True]
  assert all(len(block) == commands.WORDS for block in blocks)
  code = commands.new_code()
  assert [block[:26][-2:] == code or code[0] in block for block in blocks] == [False, False, True]


def test_classes_of_gpus() -> None:
  hopper = {constant(name) for name in ("HOPPER_COMPUTE_A", "AMPERE_COMPUTE_B", "HOPPER_CHANNEL_GPFIFO_A")}
  found = generation_of(hopper)
  assert found is not None and found.compute == "HOPPER_COMPUTE_A" and found.qmd == "4.0"
  assert newest(("BLACKWELL_CHANNEL_GPFIFO_A", "HOPPER_CHANNEL_GPFIFO_A"), hopper) == "HOPPER_CHANNEL_GPFIFO_A"
  assert generation_of({1}) is None and newest((), hopper) is None
  numbers = [constant(row.compute) for row in GENERATIONS]
  assert numbers == sorted(numbers, reverse=True)


def test_errors_in_words() -> None:
  assert "is in no buffer: 0x7f0000 (FAULT_PDE)" in in_words(31, 0x7F0000, 2, "FAULT_PDE")
  assert "Xid 13" in in_words(13, 0, 0, "") and "see NVIDIA's list" in in_words(1234, 0, 0, "")
  refused = RMError("an object X", 0x51)
  assert refused.out_of_memory and "status 0x51, there is no memory left" in str(refused)
  assert not RMError("X", 0, errno.EPERM).out_of_memory and "Operation not permitted" in str(
    RMError("X", 0, errno.EPERM)
  )


@LINUX
def test_addresses_are_reserved_once() -> None:
  linux = NVLinux()
  begin = linux.reserve(1 << 20)
  with pytest.raises(FileExistsError):
    linux.reserve(1 << 20, begin)
  linux.unmap(begin, 1 << 20)
  assert linux.reserve(1 << 20, begin) == begin
  fresh = FreshAddresses(linux)
  places = [fresh.take(5000, alignment) for alignment in (4096, 1 << 21, 4096)]
  assert len(set(places)) == 3 and places[1] % (1 << 21) == 0 and places[2] - places[1] >= 5000
  assert all(map(fresh.has, places)) and not fresh.has(begin)
  for start, end in (*fresh.spaces, (begin, begin + (1 << 20))):
    linux.unmap(start, end - start)
