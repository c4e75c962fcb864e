"""How kernels would divide among more processors than this machine has: a simulation of the thread pool.

    hatch run scaling                      # all workloads of `bench` that are one call, on one and two sockets
    hatch run scaling conv --threads 16 64
    hatch run scaling matmul --threads 8 --slow 4   # half of them efficiency cores
    hatch run scaling --shares --threads 16 64      # not simulated: who does what, of more threads than processors

Each kernel of a workload is compiled for this processor with so many threads, and timed on one. The division of its
outermost loop is that of the pool (`tiny_runtime_cpu.program.divide`); threads claim parts as `pool.ll` has them do;
the rest is data: what a claim costs, and when workers wake. Printed for each number of threads:

* faster: one thread's time by the simulated one, of all kernels of the workload;
* imbalance: by how much a kernel takes longer than if all the threads that its work is enough for had an equal share of
  it and were awake, the worst of those with at least 1 ms of work: in all, which is 8 µs for each of 128 threads;
* waking: by how much longer it takes since they are woken one after the other, of the same kernel;
* far: bytes that a thread on one socket reads or writes of another's memory, if each part has bytes of its own, which
  that part's socket has touched first;
* claims: of the counters of parts, one for some 8 threads of a socket, per kernel;
* work: one thread's time of the kernels for so many threads by that of those for one: what is packed several times.
"""

from __future__ import annotations

import argparse
import heapq
import os
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np

THREADS = (2, 4, 8, 16, 32, 64, 128)
SHARERS = 8
"""Threads that claim from one counter, at most; up to so many have one each: `shares_for` of pool.ll."""
LONG = 1e6
"""Nanoseconds on one thread from which on a kernel counts for the imbalance."""
UNEVEN = 0.05
"""Imbalance that is listed in the end."""


@dataclass(frozen=True)
class Machine:
  """What is simulated. Times are in nanoseconds."""

  sockets: int = 1
  claim: float = 50.0
  """What one thread pays for a part, and for which the counter is another's."""
  shared: float = 40.0
  """What the counter's line takes to get to the next processor: claims wait for each other for so long."""
  wake: float = 1500.0
  """Until the first worker runs; it spins."""
  woken: float = 60.0
  """From one worker to the next."""
  slow: int = 0
  """Efficiency cores among the processors."""
  slowness: float = 2.5
  """What takes an efficiency core so long as others take 1."""

  def pace(self, thread: int, threads: int) -> float:
    """Of one of so many threads, the caller's being the first: how long it takes for what others do in 1."""
    return self.slowness if thread >= threads - self.slow else 1.0


@dataclass(frozen=True)
class Kernel:
  """A kernel: iterations of its outermost loop, nanoseconds on one thread, and bytes that it reads and writes."""

  name: str
  extent: int
  nanoseconds: float
  useful: int
  nbytes: int


@dataclass(frozen=True)
class Division:
  """What the simulation says of one kernel."""

  nanoseconds: float
  imbalance: float
  waking: float
  far: float
  claims: int


def lengths(extent: int, parts: int, share: int, shares: int) -> list[int]:
  """Iterations of each part of one of some shares, as `pool.ll` divides."""
  first, end = (parts * n // shares for n in (share, share + 1))
  if first == end:
    return []
  quotient, remainder = divmod(extent * end // parts - extent * first // parts, end - first)
  return [quotient + (n < remainder) for n in range(end - first)]


def simulate(kernel: Kernel, threads: int, machine: Machine) -> Division:
  """One launch, with the pool's division, on so many processors."""
  from tiny_runtime_cpu.program import divide

  parts, used = divide(kernel.extent, kernel.useful, threads, machine.slow > 0)
  if used == 1:
    return Division(kernel.nanoseconds, min(kernel.useful, threads) - 1.0, 0.0, 0.0, 0)
  each = kernel.nanoseconds / kernel.extent
  ready = [(0.0 if n == 0 else machine.wake + machine.woken * n, n) for n in range(used)]
  heapq.heapify(ready)
  sharers = machine.sockets * (SHARERS if used > SHARERS else 1)
  count = machine.sockets * -(-used // sharers)
  free, ends, far, claims = [0.0] * count, [0.0] * used, 0, used
  shares = [deque(lengths(kernel.extent, parts, share, count)) for share in range(count)]
  while ready:
    now, thread = heapq.heappop(ready)
    here = thread * count // used
    found = next((k for k in range(count) if shares[(here + k) % count]), None)
    if found is None:
      continue
    share = (here + found) % count
    length = shares[share].popleft()
    claims += 1
    begun = max(
      now + found * machine.claim, free[share]
    )  # each other's counter that is looked at is a line to wait for
    free[share] = begun + machine.shared
    far += length * (share * machine.sockets // count != here * machine.sockets // count)
    done = begun + machine.claim + length * each * machine.pace(thread, threads)
    ends[thread] = done
    heapq.heappush(ready, (done, thread))
  end = max(ends)
  ideal = kernel.nanoseconds / sum(1 / machine.pace(n, threads) for n in range(min(kernel.useful, threads)))
  if machine.wake or machine.woken:
    awake = simulate(kernel, threads, replace(machine, wake=0.0, woken=0.0)).nanoseconds
  else:
    awake = end
  return Division(end, awake / ideal - 1, (end - awake) / ideal, far / kernel.extent, claims)


class Kernels:
  """The kernels of a workload, compiled for a number of threads and timed on one thread of this machine."""

  def __init__(self, name: str, seconds: float) -> None:
    from tiny_runtime_cpu import CPUDevice

    self.name, self.seconds, self.device = name, seconds, CPUDevice()
    self._timed: dict[bytes, float] = {}

  def divided_for(self, threads: int, uneven: bool = False) -> list[Kernel]:
    """As they are compiled on a machine with so many, some of them slower where it is uneven."""
    from suite.launching import kernels_of, launcher, memory_for

    from tiny_runtime.execution import measure
    from tiny_runtime_cpu import host_arch
    from tiny_runtime_cpu.compiler import CPUCompiler
    from tiny_runtime_cpu.host import UNEVEN_SHARES, many

    compiler = CPUCompiler(replace(host_arch(), threads=many(threads * (UNEVEN_SHARES if uneven else 1))))
    made = []
    for ast in kernels_of(self.name, many(threads)):
      binary = compiler.compile(ast)
      program: Any = self.device.load(binary)
      if binary.code not in self._timed:
        launch = launcher(self.device, binary, program, memory_for(self.device, binary.params))
        times, end = list[float](), perf_counter() + self.seconds
        while perf_counter() < end or len(times) < 5:
          start = thread_time()  # of this thread alone: others may have the processor between
          launch()
          times.append(thread_time() - start)
        self._timed[binary.code] = min(times) * 1e9
      (extent, *_), *_ = binary.sizes(measure.largest(binary))
      nbytes = int(binary.nbytes.vmax)
      made.append(Kernel(binary.entry, extent, self._timed[binary.code], program.useful_threads, nbytes))
    return made


def rows(alone: float, kernels: Sequence[Kernel], threads: int, machine: Machine) -> tuple[str, ...]:
  """A line of the table."""
  found = [simulate(kernel, threads, machine) for kernel in kernels]
  took = sum(division.nanoseconds for division in found)
  long = [(d.imbalance, d.waking) for kernel, d in zip(kernels, found) if kernel.nanoseconds >= LONG]
  imbalance, waking = max(long, default=(0.0, 0.0))
  far = sum(division.far * kernel.nbytes for kernel, division in zip(kernels, found))
  work = sum(kernel.nanoseconds for kernel in kernels)
  return (
    str(threads), f"{alone / took:.1f}", f"{imbalance:.1%}" if long else "–", f"{waking:.1%}" if long else "–",
    f"{far * 1e-6:.1f} MB",
    f"{sum(division.claims for division in found) / len(found):.0f}", f"{work / alone:.2f}",
  )  # fmt: skip


def main() -> None:
  """See the head of this file."""
  import shares
  from suite.launching import names_of
  from suite.workloads import all_workloads

  parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
  parser.add_argument("only", nargs="*", help="groups, or parts of the names of workloads (default: all)")
  parser.add_argument("--threads", nargs="+", type=int, default=THREADS)
  parser.add_argument("--sockets", type=int, default=2, help="of the simulated machine, with half of the threads each")
  parser.add_argument("--slow", type=int, default=0, help="efficiency cores of it, with 0.4 of the speed (default: 0)")
  parser.add_argument("--seconds", type=float, default=0.2, help="of timing each kernel here (default: 0.2)")
  parser.add_argument(
    "--kernels", action="store_true", help="a line per kernel as well: iterations, time on one thread"
  )
  parser.add_argument(
    "--shares", action="store_true", help="how this machine's pool shares parts among so many threads"
  )
  options = parser.parse_args()
  if options.shares:
    return shares.main(options.threads)
  names = names_of(options.only or sorted({workload.group for workload in all_workloads(False)}))
  machine = Machine(options.sockets, slow=options.slow)
  worst: list[tuple[float, float, str]] = []
  long = 0
  for name in names:
    try:
      workload = Kernels(name, options.seconds)
    except NotImplementedError as reason:  # of the form in which workloads are written
      print(f"{name}\n  left out: {reason}")
      continue
    alone = sum(kernel.nanoseconds for kernel in workload.divided_for(1))
    table: list[tuple[str, ...]] = [("threads", "faster", "imbalance", "waking", "far", "claims", "work")]
    print(name)
    for count in options.threads:
      kernels = workload.divided_for(count, options.slow > 0)
      table.append(rows(alone, kernels, count, machine))
      for kernel in kernels:
        if options.kernels:
          print(
            f"  {count} threads: {kernel.name}: {kernel.extent:,} parts, {kernel.nanoseconds * 1e-3:,.0f} µs on one"
          )
        if kernel.nanoseconds < LONG:
          continue
        long, division = long + 1, simulate(kernel, count, machine)
        if division.imbalance > UNEVEN:
          what = f"{name}: {kernel.name} on {count} threads, {kernel.extent:,} parts"
          worst.append((division.imbalance, division.nanoseconds, what))
    widths = [max(len(row[n]) for row in table) for n in range(7)]
    for row in table:
      print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)), flush=True)
  print(
    f"\nmore than {UNEVEN:.0%} of imbalance: {len(worst)} of {long} kernels with 1 ms of work in all, over all threads"
  )
  print(f"of these, {sum(took >= LONG for _, took, _ in worst)} take 1 ms and more on so many threads")
  for over, took, what in sorted(worst, reverse=True):
    print(f"  {over:6.1%}  {took * 1e-3:5,.0f} µs  {what}")


if __name__ == "__main__":
  os.environ["CPU_COUNT"] = "1"
  os.environ.setdefault("DEVICE", "CPU")
  sys.path.insert(0, str(Path(__file__).parent))
  np.seterr(all="ignore")
  main()
