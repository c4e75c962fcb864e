"""The machine under the models of GPUs: it finds what kernels must not do, and nothing in kernels that are right.

The kernels are written by hand in Metal's language, as tiny-runtime-metal writes them.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gpu_model
from gpu_model.machine import MARGIN, Buffer, Counts, Options, Wrong, allocated, launch
from gpu_model.metal_source import Library
from gpu_model.toolchain import Refused, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

HEAD = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n"
POSITIONS = "uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]"
COUNT = 256


def run(
  body: str, threads: int = 64, groups: int = 1, options: Options | None = None, integers: Sequence[int] = ()
) -> tuple[list[int], Counts]:
  """p0 (256 int32) after a kernel with this body, which may read p1 (the numbers from 0 on) as well."""
  source = (
    f"{HEAD}kernel void tiny_it(device int* p0 [[buffer(0)]], device const int* p1 [[buffer(1)]], "
    f"constant long* integers [[buffer(2)]], {POSITIONS}) {{\n{body}\n}}\n"
  )
  library = Library(source)
  out, given = (ctypes.c_int32 * COUNT)(), (ctypes.c_int32 * COUNT)(*range(COUNT))
  numbers = (ctypes.c_int64 * max(1, len(integers)))(*integers)
  memories: list[ctypes.Array[Any]] = [out, given, numbers]
  buffers = [
    Buffer(ctypes.addressof(memory), ctypes.sizeof(memory), a.name, a.writable)
    for memory, a in zip(memories, library.arguments)
  ]
  counts = launch(library.call, buffers, (groups, 1, 1), (threads, 1, 1), options)
  return list(out), counts


SHARE = """
  threadgroup int m0[64];
  const int t = lid.x;
  m0[t] = p1[gid.x * 64 + t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  p0[gid.x * 64 + t] = m0[63 - t];
"""


@pytest.mark.parametrize("backwards", [False, True])
def test_threads_read_what_others_wrote_before_a_barrier(backwards: bool) -> None:
  found, counts = run(SHARE, groups=4, options=Options(backwards=backwards))
  assert found == [group * 64 + 63 - t for group in range(4) for t in range(64)]
  assert counts["barriers"] == 4


def test_behind_an_allocation_is_nothing() -> None:
  """Small ones too, which lie in one pool of Python's allocator."""
  held = [allocated(64) for _ in range(50)]
  begins = sorted(map(ctypes.addressof, held))
  assert all(begin % MARGIN == 0 for begin in begins)
  assert min(after - before for before, after in zip(begins, begins[1:])) >= 64 + MARGIN
  assert bytes(allocated(3, 0xA5)) == b"\xa5\xa5\xa5"


@pytest.mark.parametrize(
  ("body", "message"),
  [
    ("p0[lid.x] = p1[lid.x + 193];", r"thread \(63, 0, 0\) .* reads 4 bytes at byte 1024 of p1, which has 1024"),
    ("p0[int(lid.x) - 1] = 0;", "writes 4 bytes at byte -4 of p0"),
    ("*(device packed_int4*)(p0 + 4 * lid.x + 2) = packed_int4(1, 2, 3, 4);", "bytes at byte 10[0-9]+ of p0"),
    ("*(device int*)(p1 + lid.x) = 1;", "writes to p1, which is only to be read"),
    ("threadgroup int m0[64];\n m0[lid.x * 2] = 1;", "writes 4 bytes at byte 256 of m0, which has 256"),
    ("*(device int*)8 = 1;", "writes 4 bytes that are in no buffer"),
    ("p0[lid.x] = integers[1];", "at byte 8 of integers, which has 8"),
  ],
)
def test_accesses_outside(body: str, message: str) -> None:
  with pytest.raises(Wrong, match=message):
    run(body)


@pytest.mark.parametrize(
  ("body", "groups", "message"),
  [
    (
      SHARE.replace("threadgroup_barrier(mem_flags::mem_threadgroup);", ""),
      1,
      "changes byte 128 of m0, which thread 31",
    ),
    (
      SHARE + "if (t == 0) m0[9] = 5;\n if (t == 40) p0[0] = m0[9];",
      1,
      "reads byte 36 of m0, which thread 0 of group number 0 has written",
    ),
    ("p0[lid.x / 2] = lid.x;", 1, "changes byte 0 of p0, which thread 0 of group number 0 has written"),
    (
      "p0[lid.x] = gid.x;",
      2,
      "thread (0, 0, 0) of group (1, 0, 0) changes byte 0 of p0, which thread 0 of group number",
    ),
    (
      "if (gid.x) p0[lid.x + 64] = p0[lid.x + 1] + 1; else p0[lid.x] = 1;",
      2,
      "reads byte 4 of p0, which thread 1 of group",
    ),
  ],
)
def test_races(body: str, groups: int, message: str) -> None:
  with pytest.raises(Wrong, match=message.replace("(", r"\(").replace(")", r"\)")):
    run(body, groups=groups)


EXCHANGE = """
  const int t = lid.x;
  p0[t] = p1[t];
  threadgroup_barrier({flags});
  p0[64 + t] = p0[63 - t];
"""
OVERWRITE = """
  const int t = lid.x, mine = p0[t + 1];
  threadgroup_barrier({flags});
  p0[t] = mine + t + 1;
"""
SHARED, DEVICE = "mem_flags::mem_threadgroup", "mem_flags::mem_device"


@pytest.mark.parametrize("flags", [DEVICE, f"{DEVICE} | {SHARED}"])
def test_a_barrier_for_device_memory(flags: str) -> None:
  """Threads exchange numbers through a buffer."""
  assert run(EXCHANGE.format(flags=flags))[0][64:128] == list(range(63, -1, -1))
  assert run(OVERWRITE.format(flags=flags))[0][:64] == list(range(1, 65))


def test_the_last_of_two_barriers_orders_device_memory() -> None:
  both = f"{SHARED}); threadgroup_barrier({DEVICE}"
  assert run(EXCHANGE.format(flags=both), groups=1)[0][64:128] == list(range(63, -1, -1))


@pytest.mark.parametrize("flags", [SHARED, "mem_flags::mem_none", f"{SHARED}); threadgroup_barrier({SHARED}"])
@pytest.mark.parametrize(
  ("body", "message"),
  [
    (EXCHANGE, "reads byte [0-9]+ of p0, which thread [0-9]+ of group number 0 has written"),
    (OVERWRITE, "changes byte [0-9]+ of p0, which thread [0-9]+ of group number 0 has read"),
  ],
)
def test_a_barrier_that_does_not_order_device_memory(body: str, message: str, flags: str) -> None:
  for backwards in (False, True):
    with pytest.raises(Wrong, match=f"{message} with no barrier between that orders device memory"):
      run(body.format(flags=flags), options=Options(backwards=backwards))


@pytest.mark.parametrize("flags", [DEVICE, "mem_flags::mem_none"])
def test_a_barrier_that_does_not_order_shared_memory(flags: str) -> None:
  with pytest.raises(
    Wrong, match="of m0, which thread .* has written with no barrier between that orders shared memory"
  ):
    run(SHARE.replace(SHARED, flags))
  assert run(SHARE.replace(SHARED, f"{flags} | {SHARED}"))[0][:64] == list(range(63, -1, -1))


def test_no_barrier_orders_what_other_workgroups_do() -> None:
  """Nor does the message speak of one."""
  body = f"threadgroup_barrier({SHARED});\n p0[lid.x] = gid.x;"
  with pytest.raises(Wrong, match="which thread 0 of group number 0 has written with no barrier between$"):
    run(body, groups=2)


def test_the_same_value_by_several_threads_is_no_race() -> None:
  assert run("p0[lid.x / 2] = lid.x / 2;")[0][:32] == list(range(32))


@pytest.mark.parametrize(
  ("body", "message"),
  [
    ("if (lid.x < 3) { threadgroup_barrier(mem_flags::mem_threadgroup); }",
     "3 of 64 threads wait at the barrier in line [0-9]+ that the others do not reach: 61 are done, 0 wait elsewhere"),
    ("if (lid.x < 3) {\n threadgroup_barrier(mem_flags::mem_threadgroup); } else {\n"
     "threadgroup_barrier(mem_flags::mem_threadgroup); p0[0] = 1; }",
     "0 are done, [0-9]+ wait elsewhere"),
    ("for (int i = 0; i < int(lid.x); i++) threadgroup_barrier(mem_flags::mem_threadgroup);", "1 are done"),
    ("simdgroup_matrix<float, 8, 8> a, b, c;\n if (lid.x < 40) { simdgroup_multiply_accumulate(c, a, b, c); }",
     "8 of 64 threads take part in an instruction of their warps that others of the warp do not reach"),
  ],
)  # fmt: skip
def test_what_not_all_threads_reach(body: str, message: str) -> None:
  with pytest.raises(Wrong, match=message):
    run(body)


@pytest.mark.parametrize(
  ("body", "message"),
  [
    ("p0[0] = p1[5] + 2147483647;", "adds signed numbers with an overflow in line"),
    ("p0[0] = p1[3] * 1073741824;", "multiplies signed numbers with an overflow"),
    ("p0[0] = 1 << p1[32];", "shifts by more than there are bits"),
    ("p0[0] = 5 / p1[0];", "divides by zero"),
  ],
)
def test_arithmetic_without_a_meaning(body: str, message: str) -> None:
  with pytest.raises(Wrong, match=message):
    run(body, threads=1)


def test_numbers_too_small_are_flushed_on_request() -> None:
  body = "p0[0] = as_type<int>(as_type<float>(p1[3]) * 2.0f);"
  assert run(body, threads=1)[0][0] == 6
  assert run(body, threads=1, options=Options(flush=True))[0][0] == 0


def test_shared_memory_holds_no_number_at_first() -> None:
  found, _ = run("threadgroup float m0[1];\n p0[gid.x] = m0[0] == m0[0]; m0[0] = 1.0f;", threads=1, groups=2)
  assert found[:2] == [0, 0]


@pytest.mark.parametrize(
  ("place", "sectors"), [("lid.x", 4), ("lid.x * 2", 8), ("lid.x * 8", 32), ("lid.x % 2 * 128", 2), ("0", 1)]
)
def test_transactions_of_a_warp(place: str, sectors: int) -> None:
  """Neighbours that read neighbours share a sector of 32 bytes; at a distance each has its own."""
  counts = run(f"p0[lid.x] = p1[{place}];", threads=32, options=Options(counting=True))[1]
  # a buffer of ctypes may begin in the middle of a sector
  assert counts["loads"] == 1 and counts["load_bytes"] == 128 and sectors <= counts["load_sectors"] <= sectors + 1
  assert counts["stores"] == 1 and counts["store_sectors"] in (4, 5)


@pytest.mark.parametrize(("step", "cycles"), [(1, 1), (2, 2), (32, 32), (33, 1)])
def test_banks_of_shared_memory(step: int, cycles: int) -> None:
  body = f"threadgroup int m0[1056];\n m0[lid.x * {step}] = lid.x;"
  counts = run(body, threads=32, options=Options(counting=True))[1]
  assert counts["shared"] == 1 and counts["shared_cycles"] == cycles


def test_what_is_no_kernel_is_refused() -> None:
  with pytest.raises(Refused, match="no function is a kernel"):
    Library("void f() {}")
  with pytest.raises(Refused, match="has no attribute"):
    Library("kernel void f(device int* p0) {\n}")
  with pytest.raises(Refused, match="a pointer to packed_int4 says no address space"):
    run("*(packed_int4*)(p0 + 4) = packed_int4(1, 2, 3, 4);")
  with pytest.raises(Refused, match="m0 is in threadgroup memory, and is cast to a pointer into device memory"):
    run("threadgroup int m0[64];\n *(device packed_int4*)(m0 + 4) = packed_int4(1, 2, 3, 4);")
  with pytest.raises(Refused, match="undeclared|not declared"):
    run("p0[0] = nothing;")


def test_the_table_of_counts() -> None:
  """As `hatch run gpu-counts` prints it: a copy moves each byte once, and what is read twice is seen."""
  command = [sys.executable, str(Path(gpu_model.__file__).parents[1] / "counts.py"), "gelu", "matmul_odd"]
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run(command, capture_output=True, text=True, env=env)
  assert done.returncode == 0, done.stderr
  header, *lines = done.stdout.splitlines()
  rows = [re.split(r"  +", line) for line in lines]
  assert re.split(r"  +", header)[3:5] == ["loads used", "again"] and [row[0] for row in rows] == ["matmul_odd", "gelu"]
  assert rows[1][3:7] == ["100%", "1.00", "100%", "1.00"] and float(rows[0][4]) > 1
