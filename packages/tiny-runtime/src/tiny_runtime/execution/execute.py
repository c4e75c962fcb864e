"""Runs schedules, in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from tiny_runtime.execution.collectives import CollectiveLaunch
from tiny_runtime.execution.graph import recording
from tiny_runtime.execution.launch import Launch, new_kernels, prepare
from tiny_runtime.profiling.recording import Peaks, measurers
from tiny_uop import Ops, UOp
from tiny_uop.locks import uncollected
from tiny_uop.spec import check_stage

LARGE = 8
"""New kernels in a schedule from which on other processes may help to compile them."""


def run(linear: UOp, wait: bool = False, do_update_stats: bool = True) -> float | None:
  """Run a schedule, `LINEAR(CALL…)`: compile what is new, allocate what is written, launch in order.

  Everything is compiled before anything runs, so a CompileError leaves all buffers as they were. Launches may still
  be going on when this returns; reading a buffer waits for them. With `wait` each has ended, and the seconds that they
  took together are given back. `do_update_stats` counts them in `GlobalCounters`. If a device fails in the middle, the
  error names kernel and device, and the rest is not run.
  """
  if linear.op is not Ops.LINEAR:
    raise TypeError(f"run takes a schedule (LINEAR), got {linear!r}")
  launches = prepare_all(linear.src)
  check_stage(linear, "schedule")  # after `prepare`, which says more about a call that cannot be run
  for capture in recording():
    capture.record(linear, launches)
  if not wait:
    begun: list[CollectiveLaunch] = []
    for launch in launches:
      for other in [other for other in begun if other.meets(launch)]:
        begun.remove(other)
        other.finish()
      launch.run(False, do_update_stats)
      if isinstance(launch, CollectiveLaunch):
        begun.append(launch)
    for other in begun:
      other.finish()
    return None
  return sum([launch.run(True, do_update_stats) or 0.0 for launch in launches])


def _peaks(name: str, ops_per_s: float, bytes_per_s: float) -> Peaks | None:
  from tiny_runtime.execution.peaks import peaks  # late: for who looks at a profile

  return peaks(name, ops_per_s, bytes_per_s)


measurers.append(_peaks)


def prepare_all(calls: Sequence[UOp]) -> list[Launch]:
  """The launches of CALLs, with everything compiled that they need."""
  new = new_kernels(calls)
  if not new:
    return [prepare(call) for call in calls]
  from tiny_runtime.execution.compile_progress import compiling  # late, both: once all is compiled, nobody needs them

  launches = []
  with ExitStack() as around:
    around.enter_context(uncollected())  # not only in each compilation: what one has made is looked through after it
    begin = around.enter_context(compiling([call.src[0] for call in new]))
    if len(new) >= LARGE:
      from tiny_runtime.execution.compile_processes import helped

      around.enter_context(helped(calls))
    for call in calls:
      begin(call.src[0])
      launches.append(prepare(call))
  return launches
