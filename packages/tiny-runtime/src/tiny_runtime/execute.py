"""Runs schedules, in order."""

from __future__ import annotations

from tiny_runtime.graph import recording
from tiny_runtime.launch import Launch, new_kernels, prepare
from tiny_uop import Ops, UOp
from tiny_uop.spec import check_stage

LARGE = 8
"""New kernels in a schedule from which on other processes may help to compile them."""


def run(linear: UOp) -> None:
  """Run a schedule, `LINEAR(CALL…)`: compile what is new, allocate what is written, launch in order.

  Everything is compiled before anything runs, so a CompileError leaves all buffers as they were. Launches may still
  be going on when this
  returns; reading a buffer waits for them. If a device fails in the middle, the error names kernel and device, and
  the rest is not run.
  """
  if linear.op is not Ops.LINEAR:
    raise TypeError(f"run takes a schedule (LINEAR), got {linear!r}")
  launches = _prepared(linear)
  check_stage(linear, "schedule")  # after `prepare`, which says more about a call that cannot be run
  for capture in recording():
    capture.record(linear, launches)
  for launch in launches:
    launch.run()


def _prepared(linear: UOp) -> list[Launch]:
  """All launches, with everything compiled that they need."""
  if len(linear.src) >= LARGE and len(new_kernels(linear.src)) >= LARGE:
    from tiny_runtime.helpers import helped  # late: few processes need other ones

    with helped(linear.src):
      return [prepare(call) for call in linear.src]
  return [prepare(call) for call in linear.src]
