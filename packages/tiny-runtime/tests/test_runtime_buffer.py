"""Buffers: sizes, views, life time, and that reading what is not there is an error."""

from __future__ import annotations

import gc
from array import array

import pytest

from tiny_runtime import Buffer, Device, GlobalCounters, adopted_buffer, buffer_of, host_buffer
from tiny_runtime.buffer import LARGE
from tiny_runtime.contract import Capabilities, DeviceInfo
from tiny_runtime.opened import OpenDevice
from tiny_runtime.storage import HostDevice
from tiny_uop import Ops, UOp, dtypes


def test_write_and_read() -> None:
  buffer = Buffer("REF", 3, dtypes.int16)
  assert not buffer.is_allocated() and not buffer.is_written()
  buffer.write(array("h", [1, -2, 3]))
  assert buffer.is_allocated() and buffer.is_written()
  assert memoryview(buffer.read()).cast("h").tolist() == [1, -2, 3]
  out = bytearray(6)
  buffer.read_into(out)
  assert out == buffer.read()


def test_empty_buffer() -> None:
  buffer = Buffer("REF", 0, dtypes.float32)
  buffer.write(b"")
  assert buffer.read() == b"" and buffer.nbytes == 0
  assert Buffer("HOST", 3, dtypes.uint8).view(3, 0).nbytes == 0


def test_reading_before_writing() -> None:
  buffer = Buffer("REF", 3, dtypes.int16)
  with pytest.raises(RuntimeError, match=r"3 × int16 on REF, empty> was never written to"):
    buffer.read()
  buffer.allocate()
  with pytest.raises(RuntimeError, match=r"allocated> was never written to"):
    buffer.read_into(bytearray(6))
  with pytest.raises(RuntimeError, match="was never written to"):
    buffer.view(2, 1).read()


def test_using_after_free() -> None:
  buffer = Buffer("REF", 3, dtypes.int16)
  buffer.write(bytes(6))
  view = buffer.view(0, 1)
  buffer.free()
  for use in (buffer.read, view.read):
    with pytest.raises(RuntimeError, match="was freed, so there is nothing to read"):
      use()
  with pytest.raises(RuntimeError, match="used after it was freed"):
    buffer.write(bytes(6))
  buffer.free()  # twice is harmless


@pytest.mark.parametrize("data", [b"12345", b"1234567", b""])
def test_wrong_size(data: bytes) -> None:
  buffer = Buffer("REF", 3, dtypes.int16)
  with pytest.raises(ValueError, match=rf"{len(data)} bytes do not fill .* 6 \(3 × 2\)"):
    buffer.write(data)
  assert not buffer.is_written()
  buffer.write(bytes(6))
  with pytest.raises(ValueError, match=f"into {len(data)} bytes: expected 6"):
    buffer.read_into(bytearray(data))


def test_layout_and_read_only_targets() -> None:
  buffer = Buffer("REF", 3, dtypes.int16)
  with pytest.raises(ValueError, match="not C-contiguous"):
    buffer.write(memoryview(bytes(12))[::2])
  buffer.write(bytes(6))
  with pytest.raises(ValueError, match="writable"):
    buffer.read_into(memoryview(bytes(6)))


def test_views_share_memory() -> None:
  base = Buffer("REF", 4, dtypes.int32)
  base.write(array("i", [1, 2, 3, 4]))
  view = base.view(8, 1, dtypes.int32)
  assert view.read() == (3).to_bytes(4, "little")
  view.write(array("i", [30]))
  assert memoryview(base.read()).cast("i").tolist() == [1, 2, 30, 4]
  inner = base.view(4, 12, dtypes.uint8).view(4, 2, dtypes.int16)
  assert inner.offset == 8 and inner.base is base and inner.read() == (30).to_bytes(4, "little")
  del base
  gc.collect()
  assert view.read() == (30).to_bytes(4, "little")


@pytest.mark.parametrize(("offset", "size"), [(-4, 1), (0, 5), (16, 1), (12, 2), (0, -1)])
def test_view_out_of_bounds(offset: int, size: int) -> None:
  with pytest.raises(ValueError, match="does not fit in .* which has 16"):
    Buffer("REF", 4, dtypes.int32).view(offset, size)


def test_view_unaligned() -> None:
  with pytest.raises(ValueError, match="view of int32 at byte 2 .* not aligned to 4"):
    Buffer("REF", 4, dtypes.int32).view(2, 1)


def test_buffer_of_node() -> None:
  uop = UOp.new_buffer("ref:0", 4, dtypes.float32)
  buffer = buffer_of(uop)
  assert buffer is buffer_of(uop) and (buffer.device, buffer.size, buffer.dtype) == ("REF", 4, dtypes.float32)
  view = UOp(Ops.BUFFER_VIEW, dtypes.int16, (uop,), (4, 6))
  assert buffer_of(view).base is buffer and buffer_of(view).offset == 4
  with pytest.raises(TypeError, match="only BUFFER and BUFFER_VIEW have memory, got <ADD"):
    buffer_of(UOp.const(dtypes.int32, 1).alu(Ops.ADD, UOp.variable("x", 0, 3, dtypes.int32)))


def test_memory_is_freed_with_its_node() -> None:
  gc.collect()
  before, device_before = GlobalCounters.mem_used, Device["REF"].used  # type: ignore[attr-defined]
  uop = UOp.new_buffer("REF", 1000, dtypes.float32)
  buffer_of(uop).write(bytes(4000))
  assert GlobalCounters.mem_used == before + 4000
  GlobalCounters.reset()
  assert GlobalCounters.mem_used == before + 4000
  view = buffer_of(UOp(Ops.BUFFER_VIEW, dtypes.float32, (uop,), (0, 1)))
  del uop
  assert GlobalCounters.mem_used == before + 4000  # the view keeps it
  assert view.nbytes == 4
  del view
  assert GlobalCounters.mem_used == before
  assert Device["REF"].used == device_before  # type: ignore[attr-defined]


def test_host_buffer() -> None:
  data = bytearray(b"abcd")
  uop = host_buffer(data, dtypes.int16)
  data[0] = 0
  assert buffer_of(uop).read() == b"abcd" and uop.device == "HOST" and uop.shape == (2,)
  buffer_of(uop).write(b"efgh")
  assert buffer_of(uop).read() == b"efgh"
  assert buffer_of(host_buffer(array("d", [1.5]), dtypes.float64)).read() == array("d", [1.5]).tobytes()
  assert host_buffer(b"", dtypes.float32).shape == (0,)
  with pytest.raises(ValueError, match="5 bytes are no whole number of int16"):
    host_buffer(b"12345", dtypes.int16)


class Unmapped(HostDevice):
  """A device whose memory the host cannot address; counts what is alive."""

  def __init__(self) -> None:
    super().__init__()
    self.info = DeviceInfo("FAR", "none", 0, Capabilities(kernels=False))
    self.alive = 0
    self.during_alloc: object = None

  def alloc(self, nbytes: int) -> bytearray:
    self.during_alloc = None  # drops a buffer while the device is busy
    self.alive += 1
    return super().alloc(nbytes)

  def free(self, memory: bytearray | memoryview) -> None:
    self.alive -= 1


def test_device_without_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
  opened = OpenDevice("FAR", Unmapped())
  monkeypatch.setitem(Device._opened, "FAR", opened)
  buffer = Buffer("FAR", 4, dtypes.uint8)
  buffer.write(b"abcd")
  assert buffer.read() == b"abcd" and buffer.view(1, 2).read() == b"bc"


def test_collection_while_the_device_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
  device = Unmapped()
  monkeypatch.setitem(Device._opened, "FAR", OpenDevice("FAR", device))
  first = Buffer("FAR", 4, dtypes.uint8)
  first.write(b"abcd")
  device.during_alloc = first
  del first
  second = Buffer("FAR", 4, dtypes.uint8).allocate()
  assert device.alive == 1 and second.is_allocated()
  del second
  assert device.alive == 0


@pytest.mark.parametrize("device", ["REF", "HOST"])
@pytest.mark.parametrize("size", [5, LARGE])
def test_copies_belong_to_the_caller(device: str, size: int) -> None:
  buffer = Buffer(device, size, dtypes.uint8)
  buffer.write(bytes(size))
  assert buffer.look().nbytes == size
  copy, part = buffer.copy_out(size), buffer.copy_out(3)
  copy[0] = 1
  buffer.write(b"\2" * size)
  assert (copy[0], copy[size - 1], part.nbytes, part[2], buffer.look()[0]) == (1, 0, 3, 0, 2)
  before, view = GlobalCounters.mem_used, copy[1:]
  del buffer, copy
  for _ in range(3):
    Buffer(device, size, dtypes.uint8).write(b"\3" * size)
  assert bytes(view) == bytes(size - 1), "the view keeps the memory"
  del view
  assert GlobalCounters.mem_used <= before - size


@pytest.mark.parametrize("device", ["REF", "HOST"])
def test_adopted_memory(device: str) -> None:
  own, before = bytearray(12), GlobalCounters.mem_used
  uop = adopted_buffer(device, memoryview(own).cast("i"), dtypes.int32)
  buffer = buffer_of(uop)
  assert (buffer.size, buffer.is_written(), GlobalCounters.mem_used - before) == (3, True, 12)
  own[0] = 7
  assert buffer.read()[0] == 7
  buffer.write(array("i", [1, 2, 3]))
  assert memoryview(own).cast("i").tolist() == [1, 2, 3]
  view = buffer.view(4, 1)
  del buffer, uop
  gc.collect()
  assert view.read() == own[4:8] and GlobalCounters.mem_used - before == 12
  del view
  gc.collect()
  own.append(0)  # nobody looks at it any more
  assert GlobalCounters.mem_used == before


def test_what_cannot_be_adopted() -> None:
  for data in (memoryview(bytes(4)), memoryview(bytearray(6)), memoryview(bytearray(16))[::2], memoryview(bytearray())):
    with pytest.raises(ValueError, match="a buffer of int32 can have 4 or more writable C-contiguous bytes"):
      adopted_buffer("REF", data, dtypes.int32)
