"""What the optimisations that are chosen for a GPU do with its memory: the standard kernels, counted on the model.

    hatch run gpu-counts [names or parts of them]
    PYTHONPATH=integration/model python integration/model/counts.py --opt "LOCAL(0,16)" matmul_float32

The first workgroups of each kernel are run. Columns, per workgroup but for the last:
- threads: of a workgroup; groups: how many there are.
- used: of the bytes of sectors (32 bytes) that accesses of warps touch, how much they asked for. 100 %: neighbours read
  neighbours. Above: several lanes read the same, which costs nothing.
- again: how often a sector is read by the same workgroup, which its cache then has to give. 1.0: once.
- moved: bytes that workgroups read for the first time and write, of all together, as a multiple of what the kernel's
  buffers have. 1.0: each byte is moved once.
- banks: cycles that accesses to shared memory take, as a multiple of the fewest for their bytes. 1.0: no two lanes want
  different words of one bank.
- barriers: that a workgroup waits at.
- flop/B: operations for each byte that is moved.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import re
import sys

import tiny_runtime_nv
from gpu_model.machine import Buffer, Counts, Options, launch
from gpu_model.metal_source import Library
from gpu_model.ptx import Module
from tiny_codegen import compile_kernel
from tiny_runtime import Binary
from tiny_runtime.conformance.standard import STANDARD
from tiny_runtime_metal import Arch, MetalRenderer
from tiny_runtime_nv.entries import entries
from tiny_runtime_nv.shared_memory import at_launch
from tiny_runtime_nv.target import PTXRenderer
from tiny_uop import Opt, OptOps, UOp, evaluate

SECTOR, ALIGNED = 32, 256
HEADER = ("kernel", "threads", "groups", "loads used", "again", "stores used", "moved", "banks", "barriers", "flop/B")


def counted_ptx(binary: Binary, most: int) -> Counts:
  """The same of PTX, of its kernel for aligned buffers if there is one."""
  sizes = [p.size * p.dtype.itemsize for p in binary.params]
  memories = [(ctypes.c_char * (size + ALIGNED))() for size in sizes]
  places = [(ctypes.addressof(memory) // ALIGNED + 1) * ALIGNED for memory in memories]
  words = (ctypes.c_uint64 * len(places))(*places)
  buffers = [Buffer(ctypes.addressof(words), ctypes.sizeof(words), "the parameters", False)]
  buffers += [Buffer(place, size, f"p{n}") for n, (place, size) in enumerate(zip(places, sizes))]
  call = Module(binary.code.decode()).kernels[entries(binary.code, binary.entry)[-1]].call(at_launch(binary.code))
  return launch(call, buffers, grid(binary.global_size), grid(binary.local_size),
                Options(counting=True, checking=False, most=most))  # fmt: skip


def counted(binary: Binary, most: int) -> Counts:
  """What the first `most` workgroups do, on buffers of zeros."""
  library = Library(binary.source)
  sizes = {f"p{p.slot}": p.size * p.dtype.itemsize for p in binary.params}
  memories = [(ctypes.c_char * (sizes[argument.name] + ALIGNED))() for argument in library.arguments]
  buffers = [
    Buffer((ctypes.addressof(memory) // ALIGNED + 1) * ALIGNED, sizes[a.name], a.name, a.writable)
    for memory, a in zip(memories, library.arguments)
  ]
  return launch(library.call, buffers, grid(binary.global_size), grid(binary.local_size),
                Options(counting=True, checking=False, most=most))  # fmt: skip


def grid(sizes: tuple[UOp, ...]) -> tuple[int, int, int]:
  """A launch size without variables, as numbers."""
  x, y, z = (number(size) for size in sizes)
  return x, y, z


def number(size: UOp) -> int:
  """An expression without variables as the number that it is."""
  found = evaluate(size, {})
  assert isinstance(found, int)
  return found


def row(name: str, binary: Binary, counts: Counts) -> tuple[str, ...]:
  """A line of the table."""
  groups, threads = math.prod(grid(binary.global_size)), math.prod(grid(binary.local_size))
  share = groups / counts["groups"]
  moved = share * (counts["load_fresh"] * SECTOR + counts["store_sectors"] * SECTOR)
  return (
    name,
    str(threads),
    str(groups),
    percent(counts["load_bytes"], counts["load_sectors"] * SECTOR),
    ratio(counts["load_sectors"], counts["load_fresh"]),
    percent(counts["store_bytes"], counts["store_sectors"] * SECTOR),
    ratio(moved, sum(p.size * p.dtype.itemsize for p in binary.params)),
    ratio(counts["shared_cycles"], counts["shared_least"]),
    str(counts["barriers"] // counts["groups"]),
    ratio(number(binary.ops), moved),
  )


def percent(part: float, whole: float) -> str:
  return f"{100 * part / whole:.0f}%" if whole else ""


def ratio(part: float, whole: float) -> str:
  return f"{part / whole:.2f}" if whole else ""


def parse_opt(text: str) -> Opt:
  """`LOCAL(0,16)`. Raises ValueError."""
  found = re.fullmatch(r"(\w+)\((\d+),(-?\d+|\d+(?:;\d+)+)\)", text.replace(" ", ""))
  if found is None or found[1] not in OptOps.__members__:
    raise ValueError(f"no optimisation: {text!r}, expected OP(axis,amount)")
  amounts = tuple(map(int, found[3].split(";")))
  return Opt(OptOps[found[1]], int(found[2]), amounts if len(amounts) > 1 else amounts[0])


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("names", nargs="*", help="parts of names of kernels; all if there are none")
  parser.add_argument("--arch", default="apple9", help="of Metal's (apple9) or of NVIDIA's (sm_90a)")
  parser.add_argument("--most", type=int, default=2, help="workgroups to run of each")
  parser.add_argument("--opt", action="append", type=parse_opt, help="in the place of what the heuristics choose")
  options = parser.parse_args()
  rows: list[tuple[str, ...]] = [HEADER]
  for name, make in STANDARD.items():
    if options.names and not any(part in name for part in options.names):
      continue
    if options.arch.startswith("sm_"):
      arch = tiny_runtime_nv.Arch.parse(options.arch)
      program = compile_kernel(make(), PTXRenderer(arch), options.opt)
      binary = tiny_runtime_nv.NVCompiler(arch).assemble(program)
      rows.append(row(name, binary, counted_ptx(binary, options.most)))
    else:
      program = compile_kernel(make(), MetalRenderer(Arch.parse(options.arch)), options.opt)
      binary = Binary.of(program, b"")
      rows.append(row(name, binary, counted(binary, options.most)))
    print(name, " ".join(f"{o.op.name}({o.axis},{o.arg})" for o in program.src[1].arg.opts), file=sys.stderr)
  widths = [max(len(line[n]) for line in rows) for n in range(len(HEADER))]
  for line in rows:
    print(
      "  ".join(text.ljust(width) if n == 0 else text.rjust(width) for n, (text, width) in enumerate(zip(line, widths)))
    )


if __name__ == "__main__":
  main()
