"""Two devices of one backend, for the suites of `peers` and `peer_graphs`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tiny_runtime.conformance.failure import demand
from tiny_runtime.conformance.target import Target
from tiny_runtime.contract import Memory
from tiny_runtime.errors import Unavailable

LOOK_AT = "copy_from comes after all launches so far on both devices, and what comes later on either comes after it"


class Pair:
  """The first device and the second, as targets: `one` and `two`."""

  def __init__(self, one: Target, two: Target) -> None:
    self.one, self.two = one, two

  def reach(self) -> bool:
    """Whether each of them reaches the other."""
    ways = ((self.one, self.two), (self.two, self.one))
    answers = [to.device.reaches(of.device) for to, of in ways]  # type: ignore[attr-defined]  # claimed
    what = "reaches"
    demand(all(isinstance(answer, bool) for answer in answers), what, expected="True or False", got=answers)
    return all(answers)


def copy(
  to: Target, memory: Memory, of: Target, source: Memory, nbytes: int, offset: int = 0, source_offset: int = 0,
  wait: bool = False,
) -> float | None:  # fmt: skip
  """`nbytes` from one device to another."""
  seconds: float | None = to.device.copy_from(  # type: ignore[attr-defined]  # claimed
    memory, offset, of.device, source, source_offset, nbytes, wait
  )
  return seconds


def opened_beside(target: Target) -> Target:
  """The second device. Skips the test where there is none."""
  found = target.backend.probe()
  if isinstance(found, Unavailable) or len(found) < 2:
    pytest.skip("there is one device: this needs two")
  return target.again(1)


def paired(target: Target, claim: str) -> Iterator[Pair]:
  """A fixture's body: two devices that make a claim and reach each other, or the test is skipped."""
  target.needs(claim)
  other = opened_beside(target)
  try:
    pair = Pair(target, other)
    what = f"{claim} is claimed by the first device, and not by the second"
    demand(getattr(other.device.info.capabilities, claim), what)
    if not pair.reach():
      pytest.skip("the first two devices do not reach each other")
    yield pair
  finally:
    other.device.close()
