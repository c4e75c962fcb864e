"""KFD's requests against Linux's header, where there is one, and the layouts of packets, queues and save areas."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_runtime.hcq.system import Linux
from tiny_runtime_amd import Arch, aql
from tiny_runtime_amd.gpus import Gpu, SaveArea
from tiny_runtime_amd.kfd import (
  KFD,
  NUMBERS,
  REQUESTS,
  Apertures,
  EventData,
  HardwareException,
  KFDError,
  MemoryException,
  MemoryFailure,
  NamesEvent,
  SaveAreaHeader,
  out_of_memory,
)
from tiny_runtime_amd.scratch import scratch_for

HEADER = Path("/usr/include/linux/kfd_ioctl.h")
needs_header = pytest.mark.skipif(
  not HEADER.exists() or shutil.which("cc") is None,
  reason="there is no linux/kfd_ioctl.h, or no C compiler: apt-get install linux-libc-dev gcc",
)
STRUCTURES: dict[str, type[ctypes.Structure]] = {
  "kfd_process_device_apertures": Apertures, "kfd_memory_exception_failure": MemoryFailure,
  "kfd_hsa_memory_exception_data": MemoryException, "kfd_hsa_hw_exception_data": HardwareException,
  "kfd_event_data": EventData, "kfd_ioctl_reset_event_args": NamesEvent,
}  # fmt: skip
ENUMERATORS = {
  "KFD_IOCTL_MAJOR_VERSION": 1, "KFD_IOC_QUEUE_TYPE_COMPUTE_AQL": 2, "KFD_MAX_QUEUE_PERCENTAGE": 100,
  "KFD_IOC_EVENT_HW_EXCEPTION": 3, "KFD_IOC_EVENT_MEMORY": 8, "KFD_IOC_WAIT_RESULT_COMPLETE": 0,
  "KFD_IOC_ALLOC_MEM_FLAGS_VRAM": 1 << 0, "KFD_IOC_ALLOC_MEM_FLAGS_GTT": 1 << 1,
  "KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE": 1 << 31, "KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE": 1 << 30,
  "KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE": 1 << 28, "KFD_IOC_ALLOC_MEM_FLAGS_COHERENT": 1 << 26,
  "KFD_MEM_ERR_GPU_HANG": 3, "KFD_MEM_ERR_SRAM_ECC": 1, "KFD_HW_EXCEPTION_ECC": 1,
}  # fmt: skip


def place_of_wave_state(field: str) -> bool:
  """Whether C calls it wave_state.FIELD."""
  return field.startswith(("control_stack", "wave_state"))


def facts() -> list[str]:
  """What has to hold of the header, in C."""
  found = [f"(unsigned)({name}) == {number}u" for name, number in ENUMERATORS.items()]
  structures, header = dict(STRUCTURES), HEADER.read_text()
  newer = {"kfd_context_save_area_header": SaveAreaHeader}  # since Linux 6.5, as RUNTIME_ENABLE
  structures |= {name: kind for name, kind in newer.items() if name in header}
  for name, (_, _, kind) in REQUESTS.items():
    if name == "RUNTIME_ENABLE" and f"AMDKFD_IOC_{name}" not in header:
      continue
    found.append(f"AMDKFD_IOC_{name} == {NUMBERS[name]:#x}u")
    structures[f"kfd_ioctl_{name.lower()}_args"] = kind
  for name, kind in structures.items():
    found.append(f"sizeof(struct {name}) == {ctypes.sizeof(kind)}")
    for field, *_ in kind._fields_:
      if field == "data" or name == "kfd_context_save_area_header" and place_of_wave_state(field):
        continue  # an unnamed union, and a structure in the structure
      place = getattr(kind, field)
      found.append(f"offsetof(struct {name}, {field}) == {place.offset}")
      found.append(f"sizeof(((struct {name}*)0)->{field}) == {place.size}")
  return found


@needs_header
def test_requests_are_those_of_the_header(tmp_path: Path) -> None:
  source = tmp_path / "facts.c"
  lines = [f'_Static_assert({fact}, "{fact}");' for fact in facts()]
  # drm.h, which it wants for its types only, comes with another package
  (tmp_path / "drm").mkdir()
  (tmp_path / "drm" / "drm.h").write_text("#include <linux/types.h>\n")
  source.write_text("\n".join(["#include <stddef.h>", "#include <linux/kfd_ioctl.h>", *lines]))
  command = ["cc", "-fsyntax-only", "-idirafter", str(tmp_path), str(source)]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert len(lines) > 100


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="these are Linux's")
def test_system_calls(tmp_path: Path) -> None:
  linux, path = Linux(), tmp_path / "file"
  path.write_bytes(bytes(8192))
  descriptor = linux.open(str(path))
  assert not os.get_inheritable(descriptor)
  begin = linux.reserve(1 << 20)
  assert linux.map(descriptor, 4096, 4096, begin + 8192) == begin + 8192
  ctypes.memmove(begin + 8192, b"here", 4)
  elsewhere = linux.map(descriptor, 8192, 0)
  assert ctypes.string_at(elsewhere + 4096, 4) == path.read_bytes()[4096:4100] == b"here"
  linux.unmap(begin, 1 << 20)
  linux.unmap(elsewhere, 8192)
  with pytest.raises(OSError, match="mmap of 4096 bytes"):
    linux.map(descriptor, 4096, 1)
  with pytest.raises(OSError, match="munmap of 4096 bytes"):
    linux.unmap(1, 4096)
  linux.close(descriptor)
  with pytest.raises(KFDError, match=r"KFD refuses ACQUIRE_VM\(drm_fd=0x5, gpu_id=0x7\): .*ioctl") as found:
    KFD(linux, str(path))("ACQUIRE_VM", drm_fd=5, gpu_id=7)
  assert found.value.errno == errno.ENOTTY and not out_of_memory(found.value)


def test_packets_have_their_fields_where_the_specification_has_them() -> None:
  first = aql.header(aql.DISPATCH, aql.SYSTEM, aql.AGENT)
  assert first == 2 | 1 << 8 | 2 << 9 | 1 << 11
  packet = aql.dispatch(first, 0x1000, 0x2000, (3, 2, 1), (64, 2, 1), 16, 32, 0x4000)
  assert len(packet) == len(aql.barrier(first, 0)) == aql.PACKET
  halves, words, longs = (
    struct.unpack(f"<{64 // size}{code}", packet) for size, code in ((2, "H"), (4, "I"), (8, "Q"))
  )
  assert halves[:6] == (first, 3, 64, 2, 1, 0)
  assert words[3:8] == (192, 4, 1, 16, 32)
  assert longs[4:] == (0x1000, 0x2000, 0, 0x4000)
  assert struct.unpack("<8Q", aql.barrier(aql.header(aql.BARRIER, 2, 2), 7)) == (
    3 | 1 << 8 | 2 << 9 | 2 << 11,
    *[0] * 6,
    7,
  )


def gpu(version: int, **properties: int) -> Gpu:
  given = {"simd_count": 1216, "simd_per_cu": 4, "array_count": 32, "simd_arrays_per_engine": 1, "num_xcc": 8}
  return Gpu(1, 7, version, Path("renderD128"), 1 << 30, {**given, "lds_size_in_kb": 64, **properties})


def test_sizes_of_what_a_queue_brings() -> None:
  """Of MI300X, by hand: 38 units in a die, 40 waves each; registers, shared memory, and 20 KiB more for each unit."""
  stack = 12288  # 40 + 8 + 1520 · 8, in whole pages
  assert gpu(90402).save_area == SaveArea(stack, stack + 38 * (512 + 64 + 20 << 10), 1520 * 32)
  seven = {"simd_count": 192, "simd_per_cu": 2, "array_count": 12, "simd_arrays_per_engine": 2, "num_xcc": 1}
  stack = 40960  # 48 + 96 · 32 · 12, in whole pages
  assert gpu(110000, **seven).save_area == SaveArea(stack, stack + 96 * (384 + 64 + 20 << 10), 96 * 32 * 32)
  assert gpu(90402, cwsr_size=4096 * 9, ctl_stack_size=4096).save_area.nbytes == 4096 * 9, "what Linux says comes first"


def test_private_memory() -> None:
  found = scratch_for(Arch.parse("gfx942"), gpu(90402), 100, 1 << 30)
  waves = found.register & 4095
  # 100 bytes for 64 threads are 7 units of 1 KiB
  assert found.register >> 12 == 7 and found.lane_bytes == 7 * 1024 // 64
  assert waves == 38 * 32 and found.die_bytes == waves * 7 * 1024 and found.nbytes == 8 * found.die_bytes
  few = scratch_for(Arch.parse("gfx942"), gpu(90402), 100, 10 * 8 * 7 * 1024)
  assert few.register & 4095 == 8, "fewer waves at once where there is little memory, as many in each of 4 engines"
  with pytest.raises(ValueError, match="100 bytes of private memory a thread are more than this GPU has"):
    scratch_for(Arch.parse("gfx942"), gpu(90402), 100, 8 * 3 * 7 * 1024)
  card = gpu(110000, simd_count=192, simd_per_cu=2, array_count=12, simd_arrays_per_engine=2, num_xcc=1)
  seven = scratch_for(Arch.parse("gfx1100"), card, 20, 1 << 30)
  assert seven.register >> 12 == 5 and seven.register & 4095 == 96 // 6 * 32, "waves of each of 6 engines"
  assert seven.nbytes == seven.die_bytes == 96 * 32 * 5 * 256 and seven.words(1 << 40) == (0, 0, 0, 0)
  two = gpu(90010, simd_count=440, array_count=8, num_xcc=1)
  last = scratch_for(Arch.parse("gfx90a"), two, 100, 1 << 30)
  # INDEX_STRIDE 64 is 3 in bits 21 and 22, ADD_TID_ENABLE bit 23
  assert last.words(0x12_3456_7000) == (0x3456_7000, 0x8000_0012, last.die_bytes, 0x00E0_0000)
