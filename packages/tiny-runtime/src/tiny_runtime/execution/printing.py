"""What DEBUG prints about kernels, in columns. All of it goes to stderr, so that stdout stays the program's own."""

from __future__ import annotations

import sys

from tiny_runtime.binary import Binary
from tiny_runtime.counters import GlobalCounters
from tiny_runtime.units import amount, duration, per_second
from tiny_uop import UOp
from tiny_uop.context import debugs
from tiny_uop.text.print import print_uop

NAME_WIDTH = 34


def print_binary(kernel: UOp, binary: Binary) -> None:
  """The kernel's UOps with DEBUG=5, its program text with DEBUG=4."""
  if debugs(binary.entry, 5):
    print(f"--- {binary.entry}: UOps\n{print_uop(kernel)}", file=sys.stderr)
  if debugs(binary.entry, 4):
    print(f"--- {binary.entry}: code\n{binary.source}", file=sys.stderr)


def print_launch(device: str, name: str, seconds: float, ops: int, nbytes: int) -> None:
  """One line for one launch: number, device, name, time, GFLOPS, GB/s, memory in use."""
  number = GlobalCounters.kernel_count
  if len(name) > NAME_WIDTH:
    name = name[: NAME_WIDTH - 1] + "…"
  rate = f"{per_second(ops, seconds)} GFLOPS {per_second(nbytes, seconds)} GB/s" if seconds else " " * 27
  used = amount(GlobalCounters.mem_used)
  print(f"{number:6d}  {device:<8} {name:<{NAME_WIDTH}} {duration(seconds)}  {rate}  {used} in use", file=sys.stderr)
