"""What the cost model says of the tilings of a workload's kernels, and what they are when measured.

    hatch run tilings "64×64×1²"                 # groups, or parts of names, as for bench
    hatch run tilings --count 30 --processors 2 "matmul 512"

Each sum of products among the kernels is compiled as the cost model ranks its tilings, and launched in turns with the
others. A model is good if what it puts first is about as fast as the fastest; by how much is in the last line. (A
kernel gets another one of the first where that is as good and less code: `best_tiling`.) For
work on `tiling/cost.py`, whose figures `refit.py` fits to such measurements.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
from suite.launching import kernels_of, launcher, memory_for, names_of, operations_of


def described(tiling: Any) -> str:
  """A tiling in a few words: rows × lanes, and from where each operand is read."""
  lanes, rows = tiling.lanes_from.name, tiling.rows_from.name
  lanes += f"·{tiling.panels}" if tiling.panels > 1 else ""
  rows += f"·{tiling.images}" if tiling.images > 1 else ""
  written = f" {tiling.steps} steps of {tiling.written.arg[0]}" if tiling.steps > 1 else ""
  loops = f"{tiling.row_loop.arg[0]} × {tiling.lane_loop.arg[0]}"
  return f"{tiling.rows:>2} × {tiling.lanes:<3} of loops {loops}; rows {rows:9} lanes {lanes:9}{written}"


def candidates(kernel: Any, target: Any, count: int, only: str) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
  """Tilings of a kernel, best estimate first: the sum of products, the tiling and its optimisations. Nothing for a
  kernel of another kind."""
  from tiny_codegen.kernel.sum_of_products import SumOfProducts
  from tiny_codegen.opt.dot_products import ways
  from tiny_codegen.opt.neighbours import opts_of
  from tiny_codegen.tiling.choose import ranked_tilings

  if (found := SumOfProducts.of(kernel)) is None:
    return
  ranked = [(opts, c, t) for opts, c in ways(kernel, found, target) for t in ranked_tilings(c, target)]
  for way in sorted(ranked, key=lambda way: way[2].cycles):
    if count and re.search(only, described(way[2])) and (opts := opts_of(kernel, target, way)):
      count -= 1
      yield way[1], way[2], opts


def measured(kernel: Any, options: argparse.Namespace) -> tuple[list[tuple[Any, Any, float]], int]:
  """Sum of products, tiling and seconds of each candidate, all launched in turns; and the operations of a launch."""
  from tiny_codegen import compile_kernel
  from tiny_codegen.opt.beam import before_opts
  from tiny_runtime_cpu import CPUDevice, host_arch
  from tiny_runtime_cpu.compiler import CPUCompiler, renderer_for

  device, compiler = CPUDevice(), CPUCompiler(host_arch())
  renderer = renderer_for(compiler.arch)
  launches, found, memories, operations = [], [], None, 0
  kernel = before_opts(kernel)
  for product, tiling, opts in candidates(kernel, renderer.target, options.count, options.only_tilings):
    binary = compiler.assemble(compile_kernel(kernel, renderer, opts))
    memories = memories or memory_for(device, binary.params)
    operations = operations or operations_of(kernel, binary)
    launches.append(launcher(device, binary, device.load(binary), memories))
    found.append((product, tiling))
  times: list[list[float]] = [[] for _ in launches]
  end = perf_counter() + options.seconds * len(launches)
  while launches and (perf_counter() < end or len(times[0]) < 3):
    for launch, taken in zip(launches, times, strict=True):
      for again in range(3):
        start = perf_counter()
        launch()
        if again:  # the first has its weights in another cache than the others
          taken.append(perf_counter() - start)
  return [(*each, float(np.median(taken))) for each, taken in zip(found, times, strict=True)], operations


def compare(kernel: Any, options: argparse.Namespace) -> list[str]:
  """Lines on the tilings of one kernel."""
  found, operations = measured(kernel, options)
  if not found:
    return [f"{kernel.arg.name}: no sum of products of two operands"]
  least = min(seconds for *_, seconds in found)
  lines = [f"{kernel.arg.name}, on {os.environ['CPU_COUNT']} processors"]
  for _, tiling, seconds in found:
    estimate = tiling.cycles / found[0][1].cycles
    rate = f"{operations / seconds * 1e-9:6.1f} GFLOPS, {least / seconds:4.0%} of the fastest"
    lines.append(f"  {described(tiling)}  {estimate:.2f} estimated, {rate}")
  lines.append(f"  chosen: {least / found[0][2]:.0%} of the fastest of {len(found)}")
  return lines


def options_of(arguments: list[str] | None, doc: str, count: int) -> argparse.Namespace:
  """The command line of a tool that measures tilings."""
  parser = argparse.ArgumentParser(description=doc.splitlines()[0])
  parser.add_argument("only", nargs="+", help="groups, or parts of the names of workloads")
  parser.add_argument("--count", type=int, default=count, help=f"tilings of each kernel (default: {count})")
  parser.add_argument("--seconds", type=float, default=0.3, help="of launching each tiling (default: 0.3)")
  parser.add_argument("--processors", type=int, default=1, help="to launch on (default: 1)")
  parser.add_argument("--only-tilings", default="", help="a regular expression that tilings, as printed, must match")
  options = parser.parse_args(arguments)
  os.environ.update(CPU_COUNT=str(options.processors), DEVICE="CPU")
  return options


def main() -> None:
  """See the head of this file."""
  options = options_of(None, __doc__, 12)
  for name in names_of(options.only):
    print(name)
    for kernel in kernels_of(name):
      print(*compare(kernel, options), sep="\n", flush=True)


if __name__ == "__main__":
  main()
