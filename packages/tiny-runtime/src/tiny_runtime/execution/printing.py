"""What DEBUG prints about kernels, in columns. All of it goes to stderr, so that stdout stays the program's own."""

from __future__ import annotations

import sys

from tiny_runtime.binary import Binary
from tiny_runtime.counters import GlobalCounters
from tiny_uop import UOp
from tiny_uop.context import DEBUG
from tiny_uop.text.print import print_uop

NAME_WIDTH = 34


def print_binary(kernel: UOp, binary: Binary) -> None:
  """The kernel's UOps with DEBUG=5, its program text with DEBUG=4."""
  if DEBUG >= 5:
    print(f"--- {binary.entry}: UOps\n{print_uop(kernel)}", file=sys.stderr)
  if DEBUG >= 4:
    print(f"--- {binary.entry}: code\n{binary.source}", file=sys.stderr)


def print_launch(device: str, name: str, seconds: float, ops: int, nbytes: int) -> None:
  """One line for one launch: number, device, name, time, GFLOPS, GB/s, memory in use."""
  number = GlobalCounters.kernel_count
  if len(name) > NAME_WIDTH:
    name = name[: NAME_WIDTH - 1] + "…"
  rate = f"{per_second(ops, seconds)} GFLOPS {per_second(nbytes, seconds)} GB/s" if seconds else " " * 27
  used = amount(GlobalCounters.mem_used)
  print(f"{number:6d}  {device:<8} {name:<{NAME_WIDTH}} {duration(seconds)}  {rate}  {used} in use", file=sys.stderr)


def per_second(count: int, seconds: float) -> str:
  """Thousand millions per second, 8 wide."""
  return f"{count / seconds * 1e-9:8.2f}"


def duration(seconds: float) -> str:
  """`  12.50 µs`: 10 wide."""
  for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
    if seconds < limit:
      return f"{seconds * scale:7.2f} {unit}"
  return f"{seconds:7.2f} s "


def amount(nbytes: int) -> str:
  """`  1.50 MB`: 9 wide."""
  for limit, unit in ((10**3, "B "), (10**6, "kB"), (10**9, "MB")):
    if nbytes < limit:
      return f"{nbytes / limit * 1000:6.2f} {unit}"
  return f"{nbytes / 10**9:6.2f} GB"


def short(nbytes: int) -> str:
  """`1.5 MB`: as short as it can be said."""
  number, unit = amount(nbytes).split()
  return f"{float(number):.3g} {unit}"
