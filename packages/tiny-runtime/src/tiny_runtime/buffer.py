"""`Buffer`: the memory behind a BUFFER node, allocated when first needed and freed when the node is collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from weakref import WeakKeyDictionary

from tiny_runtime.contract import Memory
from tiny_runtime.devices import Device
from tiny_runtime.errors import DeviceLost
from tiny_runtime.opened import OpenDevice
from tiny_runtime.profiling.recording import Told, begin
from tiny_uop import DType, Ops, UOp, dtypes
from tiny_uop.locks import shared_lock
from tiny_uop.origins import MARK, Mark

if TYPE_CHECKING:
  from _typeshed import ReadableBuffer, WriteableBuffer


LARGE = 1 << 16
"""Bytes from which on copies for the host are in the device's memory."""


class Buffer:
  """`size` elements of `dtype` on a device, or a view of a part of another buffer, which it keeps alive.

  A new buffer has no memory and no contents; reading it then is a RuntimeError, since the values would be arbitrary.
  """

  __slots__ = (
    "__weakref__", "_memory", "_opened", "_owner", "_state", "device", "dtype", "mark", "nbytes", "offset", "size",
    "temporaries",
  )  # fmt: skip
  mark: Mark
  """Where what it holds comes from; set where that is known."""
  temporaries: bool
  """Set to True where it is memory for many short-lived values."""
  frees: ClassVar[int] = 0
  """How often `free` was called. A captured graph, which does not look at its buffers again, does when this changes."""

  def __init__(self, device: str, size: int, dtype: DType, base: Buffer | None = None, offset: int = 0) -> None:
    self._memory: Memory = None
    self._opened: OpenDevice | None = None
    self._state = "empty"  # of the base: empty → written → freed
    self.device = device
    """Canonical name of the device."""
    self.size = size
    """Number of elements."""
    self.dtype = dtype
    self.nbytes = size * dtype.itemsize
    self._owner = base  # not itself: a cycle would put freeing off until the next collection
    self.offset = offset
    """Where a view begins in its base, in bytes."""

  def __del__(self) -> None:
    if self._opened is not None:
      self._opened.release(self._memory, self.nbytes)

  def __reduce_ex__(self, protocol: Any, /) -> NoReturn:
    raise TypeError(f"{self!r} cannot be pickled or copied, it is memory of this process: pickle or copy the tensor")

  def __repr__(self) -> str:
    state = self.base._state if self.base._opened is None or self.base._state != "empty" else "allocated"
    where = f" at byte {self.offset} of {self.base!r}" if self.base is not self else ""
    return f"<Buffer {self.size} × {self.dtype.name} on {self.device}, {state}{where}>"

  @property
  def base(self) -> Buffer:
    """The buffer that owns the memory; itself if this is not a view."""
    return self._owner or self

  @property
  def opened(self) -> OpenDevice:
    """The open device that the memory is on, or will be."""
    return self.base._opened or Device.opened(self.device)

  @property
  def memory(self) -> Memory:
    """The device's handle of the memory; None if there is none."""
    return self.base._memory

  def is_allocated(self) -> bool:
    """Whether there is memory behind it."""
    return self.base._opened is not None

  def is_written(self) -> bool:
    """Whether there is something to read: it was written to, or its device keeps contents by itself, as a file does."""
    base = self.base
    return base._state == "written" or (base._state == "empty" and self.opened.capabilities.persistent)

  def allocate(self) -> Buffer:
    """Get memory now instead of at first use. Raises OutOfMemory; RuntimeError if the buffer was freed. Gives itself
    back."""
    base = self.base
    if base._state == "freed":
      raise RuntimeError(f"{base!r} is used after it was freed")
    if base._opened is None:
      opened = Device.opened(base.device)
      base._memory = opened.alloc(base.nbytes, base._told() if begin() else None)
      base._opened = opened
    elif base._opened.lost:
      raise DeviceLost(f"{base!r} is gone with its device: {base._opened.lost}. Compute the data again")
    return self

  def _told(self) -> Told:
    """What profiles say of its memory."""
    mark: Mark | None = getattr(self, "mark", None)
    what = "temporaries" if getattr(self, "temporaries", False) else f"{self.size} × {self.dtype.name}"
    return Told(what, (mark.origin,) if mark is not None else ())

  def _adopt(self, data: memoryview) -> None:
    opened = self.opened
    self._memory = opened.adopt(data, self._told() if begin() else None)
    self._opened, self._state = opened, "written"

  def free(self) -> None:
    """Give the memory back now; using the buffer or a view of it after that is an error. Usually the garbage
    collector does it."""
    base = self.base
    Buffer.frees += 1
    opened, base._opened, base._state = base._opened, None, "freed"
    memory, base._memory = base._memory, None
    if opened is not None:
      opened.release(memory, base.nbytes)

  def release(self) -> None:
    """Give the memory and the contents back; the next use gets new memory, and has to write it first."""
    base = self.base
    if base._opened is not None:
      base.free()
      base._state = "empty"

  def to_write(self) -> tuple[Memory, int]:
    """(memory, byte offset) for writing, allocated if need be; counts as written from now on."""
    base = self.base
    if base._opened is None or base._opened.lost:
      self.allocate()
    base._state = "written"
    return base._memory, self.offset

  def written_memory(self) -> Memory:
    """The memory of a buffer that is no view, if it can be read and written as it is; else None: `to_read` and
    `to_write` say why, or mend it."""
    opened = self._opened
    return self._memory if opened is not None and self._state == "written" and not opened.lost else None

  def to_read(self) -> tuple[Memory, int]:
    """(memory, byte offset) for reading. Raises RuntimeError if nothing was ever written, or it was freed."""
    base = self.base
    if base._state != "written" and not self.is_written():
      what = "was freed" if base._state == "freed" else "was never written to"
      raise RuntimeError(f"{self!r} {what}, so there is nothing to read")
    if base._opened is None or base._opened.lost:
      self.allocate()
    return base._memory, self.offset

  def write(self, data: ReadableBuffer) -> None:
    """Replace all contents by `data`: C-contiguous, of exactly `nbytes` bytes, else ValueError."""
    with memoryview(data) as given:
      if not given.c_contiguous:
        raise ValueError(f"data for {self!r} is not C-contiguous: copy it first")
      if given.nbytes != self.nbytes:
        raise ValueError(
          f"{given.nbytes} bytes do not fill {self!r}, which has {self.nbytes} ({self.size} × {self.dtype.itemsize})"
        )
      written = self.base._state
      memory, offset = self.to_write()
      try:
        # an empty memoryview cannot be cast
        if self.nbytes:
          self.opened.write(memory, offset, given.cast("B"))
      except BaseException:
        if self.base._state == "written":
          self.base._state = written
        raise

  def read(self) -> bytes:
    """All contents, after every launch that writes them."""
    return bytes(self.look())

  def look(self) -> memoryview:
    """All contents as bytes to read at once: where the device is mapped it is the memory itself, which the next launch
    may change."""
    memory, offset = self.to_read()
    if not self.nbytes:
      return memoryview(b"")
    opened = self._opened or self.opened
    if opened.capabilities.host_mapped:
      return opened.view(memory)[offset : offset + self.nbytes]
    out = memoryview(bytearray(self.nbytes))
    opened.read(memory, offset, out)
    return out

  def copy_out(self, nbytes: int) -> memoryview:
    """A copy of the first `nbytes` bytes that the caller may keep and change. Where the device is mapped it is in the
    device's memory, which is warm: new pages would cost several times the copying."""
    if nbytes < LARGE:
      return memoryview(bytearray(self.look()[:nbytes]))
    opened = self.opened
    if not (opened.capabilities.host_mapped and opened.capabilities.kernels):
      return memoryview(bytearray(self.look()[:nbytes]))
    memory, offset = self.to_read()
    copy = Buffer(self.device, nbytes, dtypes.uint8)
    target, _ = copy.to_write()
    opened.write(target, 0, opened.view(memory)[offset : offset + nbytes])
    return copy._lasting_view()

  def _lasting_view(self) -> memoryview:
    """All bytes, with the memory kept for as long as anyone has the view or what is made from it."""
    import ctypes

    memory, _ = self.to_read()
    array = (ctypes.c_ubyte * self.nbytes).from_buffer(self.opened.view(memory))
    array.keeper = self  # type: ignore[attr-defined]  # a memoryview keeps its array, and only that
    return memoryview(array).cast("B")

  def read_into(self, out: WriteableBuffer) -> None:
    """Copy all contents to `out`: writable, C-contiguous, of exactly `nbytes` bytes, else ValueError."""
    with memoryview(out) as target:
      if target.readonly or not target.c_contiguous or target.nbytes != self.nbytes:
        raise ValueError(
          f"cannot read {self!r} into {target.nbytes} bytes: expected {self.nbytes} writable C-contiguous ones"
        )
      memory, offset = self.to_read()
      if self.nbytes:
        self.opened.read(memory, offset, target.cast("B"))

  def view(self, byte_offset: int, size: int, dtype: DType | None = None) -> Buffer:
    """`size` elements of `dtype` (default: this one's) from a byte offset on; shares memory. ValueError if out of
    bounds or unaligned."""
    dtype = dtype or self.dtype
    end = byte_offset + size * dtype.itemsize
    if byte_offset < 0 or size < 0 or end > self.nbytes:
      raise ValueError(f"a view of bytes {byte_offset} to {end} does not fit in {self!r}, which has {self.nbytes}")
    offset = self.offset + byte_offset
    if offset % dtype.scalar().itemsize:
      raise ValueError(
        f"a view of {dtype.name} at byte {offset} of {self.base!r} is not aligned to {dtype.scalar().itemsize}"
      )
    return Buffer(self.device, size, dtype, self.base, offset)


_buffers: WeakKeyDictionary[UOp, Buffer] = WeakKeyDictionary()
_lock = shared_lock()


def buffer_of(uop: UOp) -> Buffer:
  """The Buffer behind a BUFFER or BUFFER_VIEW node. The same node always gives the same memory. TypeError for any
  other op."""
  found = _buffers.get(uop)
  if found is not None:
    return found
  if uop.op is Ops.BUFFER:
    _, size = uop.arg
    made = Buffer(Device.canonicalize(str(uop.device)), int(size), uop.dtype)
    if (mark := uop.__dict__.get(MARK)) is not None:
      made.mark = mark
  elif uop.op is Ops.BUFFER_VIEW:
    offset, size = uop.arg
    whole = buffer_of(uop.src[0])
    made = whole.view(int(offset), int(size), uop.dtype)
    if whole.dtype is not uop.dtype and whole.dtype is dtypes.uint8:  # an arena of the scheduler's
      whole.temporaries = True
  else:
    raise TypeError(f"only BUFFER and BUFFER_VIEW have memory, got {uop!r}; realize the value first")
  with _lock:
    return _buffers.setdefault(uop, made)


def adopted_buffer(device: str, data: memoryview, dtype: DType) -> UOp:
  """A new BUFFER of `device` whose memory is `data`: writable C-contiguous bytes of this process, a whole number of
  elements of `dtype`, one at least. They are kept for as long as the buffer is. Only where the device's capabilities
  have `host_import`."""
  if data.readonly or not data.c_contiguous or not data.nbytes or data.nbytes % dtype.itemsize:
    raise ValueError(
      f"a buffer of {dtype.name} can have {dtype.itemsize} or more writable C-contiguous bytes as its memory, "
      f"got {data.nbytes} {'read-only' if data.readonly else 'writable'} ones"
    )
  uop = UOp.new_buffer(device, data.nbytes // dtype.itemsize, dtype)
  buffer_of(uop)._adopt(data.cast("B"))
  return uop


def part_of(buffer: UOp, byte_offset: int, size: int, dtype: DType) -> UOp:
  """A new BUFFER of `size` elements of `dtype` in the memory of another, from a byte offset on; it keeps that memory.
  Schedules do not know that the two share it: nobody may use the other one for these bytes. ValueError if it does not
  fit, or the offset is no multiple of the size of an element."""
  uop = UOp.new_buffer(str(buffer.device), size, dtype)
  with _lock:
    _buffers[uop] = buffer_of(buffer).view(byte_offset, size, dtype)
  return uop


def host_buffer(data: ReadableBuffer, dtype: DType) -> UOp:
  """A new BUFFER on HOST with a copy of `data` (C-contiguous bytes, a whole number of elements of `dtype`, else
  ValueError)."""
  with memoryview(data) as given:
    if given.nbytes % dtype.itemsize:
      raise ValueError(f"{given.nbytes} bytes are no whole number of {dtype.name} ({dtype.itemsize} bytes each)")
    uop = UOp.new_buffer("HOST", given.nbytes // dtype.itemsize, dtype)
    buffer_of(uop).write(given)
  return uop
