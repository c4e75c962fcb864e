"""HOST and DISK: bytes of this process and memory-mapped files as sources and targets of copies."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime import Buffer, Device, Unavailable, buffer_of, host_buffer, run
from tiny_uop import Ops, UOp, dtypes


def on_disk(path: Path, size: int) -> UOp:
  return UOp.new_buffer(f"DISK:{path}", size, dtypes.float32)


def test_read_a_file(tmp_path: Path) -> None:
  path = tmp_path / "data"
  path.write_bytes(b"abcdefgh" + b"tail")
  buffer = Buffer(f"DISK:{path}", 4, dtypes.int16)
  assert buffer.is_written() and buffer.read() == b"abcdefgh"
  assert buffer.view(2, 2, dtypes.uint8).read() == b"cd"
  out = bytearray(8)
  buffer.read_into(out)
  assert out == b"abcdefgh" and path.read_bytes() == b"abcdefghtail"


def test_pages_that_were_read_go_back_to_the_system(tmp_path: Path) -> None:
  path, mappings = tmp_path / "data", Path("/proc/self/smaps")
  path.write_bytes(bytes(range(256)) * 4096)
  buffer = Buffer(f"DISK:{path}", 1 << 20, dtypes.uint8)
  view = buffer.look()

  def resident() -> int:
    lines = iter(mappings.read_text().splitlines())
    while not next(lines).endswith(str(path)):
      pass
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

  for _ in range(2):
    assert bytes(view) == path.read_bytes()
    if mappings.exists():
      assert resident() == 1024
    Device.trim()
    if mappings.exists():
      assert resident() == 0


def test_missing_and_short_files(tmp_path: Path) -> None:
  path = tmp_path / "data"
  with pytest.raises(Unavailable, match="cannot be opened for reading: No such file"):
    Buffer(f"DISK:{path}", 4, dtypes.int16).read()
  path.write_bytes(b"abc")
  with pytest.raises(Unavailable, match="has 3 bytes, the buffer on it 8"):
    Buffer(f"DISK:{path}", 4, dtypes.int16).read()
  with pytest.raises(Unavailable, match="cannot be opened for writing"):
    Buffer(f"DISK:{tmp_path}/none/x", 4, dtypes.uint8).write(b"abcd")


def test_writing_creates_and_resizes(tmp_path: Path) -> None:
  path = tmp_path / "data"
  first = Buffer(f"DISK:{path}", 4, dtypes.uint8)
  first.write(b"abcd")
  assert path.read_bytes() == b"abcd"
  longer = Buffer(f"DISK:{path}", 6, dtypes.uint8)
  longer.write(b"ABCDEF")
  assert path.read_bytes() == b"ABCDEF" and first.read() == b"ABCD"
  with pytest.raises(Unavailable, match="cannot be cut from 6 to 2 bytes: a buffer of 6 bytes is mapped"):
    Buffer(f"DISK:{path}", 2, dtypes.uint8).write(b"xy")
  assert longer.read() == b"ABCDEF"
  del first, longer
  gc.collect()
  Buffer(f"DISK:{path}", 2, dtypes.uint8).write(b"xy")
  assert path.read_bytes() == b"xy"


def test_read_then_written(tmp_path: Path) -> None:
  path = tmp_path / "data"
  path.write_bytes(b"abcd")
  buffer = Buffer(f"DISK:{path}", 4, dtypes.uint8)
  assert buffer.read() == b"abcd"
  buffer.view(1, 2).write(b"XY")
  assert buffer.read() == b"aXYd" == path.read_bytes()


def test_read_only_file(tmp_path: Path) -> None:
  path = tmp_path / "data"
  path.write_bytes(b"abcd")
  path.chmod(0o444)
  assert Buffer(f"DISK:{path}", 4, dtypes.uint8).read() == b"abcd"


def test_copy_disk_to_device_and_back(kernels: Any, tmp_path: Path) -> None:
  source = tmp_path / "in"
  source.write_bytes(bytes(8) + buffer_of(kernels.buffer([1.0, 2.0])).read())
  file = on_disk(source, 4)
  part = UOp(Ops.BUFFER_VIEW, dtypes.float32, (file,), (8, 2))
  loaded, result, target = kernels.buffer(size=2), kernels.buffer(size=2), on_disk(tmp_path / "out", 2)
  run(kernels.linear(kernels.copy(loaded, part), kernels.add(result, loaded, 0.5), kernels.copy(target, result)))
  assert kernels.values(result) == [1.5, 2.5]
  assert (tmp_path / "out").read_bytes() == buffer_of(result).read()


def test_copy_host_to_disk(kernels: Any, tmp_path: Path) -> None:
  target = on_disk(tmp_path / "out", 1)
  run(kernels.linear(kernels.copy(target, host_buffer(b"abcd", dtypes.float32))))
  assert (tmp_path / "out").read_bytes() == b"abcd"


def test_kernels_are_refused(kernels_on: Any, tmp_path: Path) -> None:
  for device in ("HOST", f"DISK:{tmp_path}/x"):
    kernels = kernels_on(device)
    source = kernels.buffer([1.0, 2.0])
    with pytest.raises(Unavailable, match=r"kernel add has its buffers on .*, which only stores bytes.*Copy them"):
      run(kernels.linear(kernels.add(kernels.buffer(size=2), source)))
