"""Who does the parts of a launch where there are more threads than processors: `hatch run scaling --shares`.

The pool's threads do parts of equal length, which are arithmetic in registers and note whose they are.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from time import process_time

KERNEL = """
declare i64 @pthread_self()
define void @work(ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr %claim, ptr %pool) {
entry:
  %whose = load ptr, ptr %buffers
  %steps = load i64, ptr %integers
  %self = call i64 @pthread_self()
  br label %part
part:
  %i = phi i64 [ %begin, %entry ], [ %next, %done ]
  br label %step
step:
  %n = phi i64 [ 0, %part ], [ %n1, %step ]
  %x = phi i64 [ %steps, %part ], [ %x3, %step ]
  %left = shl i64 %x, 13
  %x1 = xor i64 %x, %left
  %right = lshr i64 %x1, 7
  %x2 = xor i64 %x1, %right
  %again = shl i64 %x2, 17
  %x3 = xor i64 %x2, %again
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, %steps
  br i1 %more, label %step, label %done
done:
  %place = getelementptr [2 x i64], ptr %whose, i64 %i
  %result = getelementptr [2 x i64], ptr %whose, i64 %i, i64 1
  store i64 %self, ptr %place
  store i64 %x3, ptr %result
  %next = add i64 %i, 1
  %others = icmp slt i64 %next, %end
  br i1 %others, label %part, label %exit
exit:
  ret void
}
"""
STEPS = 500_000
"""Of a part: some 0.8 ms."""


def print_shares(threads: int, parts_of_each: int, launches: int, by: int = 1) -> None:
  """A line for launches of so many parts for each of some threads, `by` times shorter ones."""
  from tiny_runtime.llvm import compile_object
  from tiny_runtime_cpu.host import host_arch
  from tiny_runtime_cpu.machine import LoadedObject
  from tiny_runtime_cpu.pool import Pool

  native, pool, parts = (
    LoadedObject(compile_object(KERNEL, host_arch().processor), "work"),
    Pool(),
    threads * parts_of_each,
  )
  pool.ensure(threads)
  whose = (ctypes.c_int64 * (2 * parts))()
  buffers, integers = struct.pack("P", ctypes.addressof(whose)), struct.pack("q", STEPS // by)
  found: Counter[int] = Counter()
  began = process_time()
  for _ in range(launches):
    pool.run(native.address("work"), buffers, integers, parts, parts, threads)
    found.update(whose[0::2])
  each = (process_time() - began) / parts / launches * 1e3
  pool.close()
  mean = parts * launches / threads
  print(
    f"{threads:3} threads, {launches:4} × {parts:5,} parts of {each:.3f} ms: {len(found)} threads took part, the least "
    f"{min(found.values()) / mean:.2f} and the most {max(found.values()) / mean:.2f} of an equal share",
    flush=True,
  )


def main(threads: list[int]) -> None:
  """Lines for one thread, and for each of these numbers of threads: long launches, and shorter ones."""
  for count in (1, *threads):
    for parts_of_each, launches, by in ((16, 1, 1), (4, 4, 1), (4, 300, 100)):
      print_shares(count, parts_of_each, launches, by)
