"""`python -m tiny_dist plan script.py --ranks 1024`: what a program would send and keep on so many ranks.

The program runs as rank 0 of a world in which nobody else is: its schedules are those of that many ranks, its kernels
compute its own pieces, and what others would send is made up (zeros). So memory and bytes are exact; what the program
prints is not.
"""

from __future__ import annotations

import re
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tiny_dist.groups.local import LocalGroup
from tiny_dist.groups.protocol import Group
from tiny_dist.ranks import World, use_world
from tiny_runtime import Buffer, GlobalCounters, use_communicator
from tiny_uop import Collective


class PlannedGroup(LocalGroup):
  """Rank 0 of a group whose other ranks are not there: they say what this one says, and send zeros."""

  def __init__(self, size: int) -> None:
    self.size = size

  def all_gather(self, out: memoryview, data: memoryview, counts: Sequence[int]) -> None:
    """See `Group`."""
    if len(set(counts)) == 1 and counts[0] <= 4096:
      for i in range(self.size):
        out[i * counts[0] : (i + 1) * counts[0]] = data
    else:
      out[: data.nbytes] = data

  def all_to_all(self, out: memoryview, received: Sequence[int], data: memoryview, sent: Sequence[int]) -> None:
    """See `Group`."""
    out[: received[0]] = data[: received[0]]

  def send(self, data: memoryview, to: int) -> None:
    """See `Group`."""

  def recv(self, data: memoryview, of: int) -> None:
    """See `Group`."""

  def split(self, ranks: Sequence[int]) -> Group:
    """See `Group`."""
    return PlannedGroup(len(ranks))


class Step(NamedTuple):
  """One run of a schedule."""

  graph: str
  messages: int
  """Collectives."""
  nbytes: int
  """That this rank sends to others."""
  seconds: float
  """From its first collective to that of the next schedule, without the time in collectives."""


class PlannedWorld(World):
  """A world of which there is only rank 0, that notes what it would send."""

  def __init__(self, size: int) -> None:
    super().__init__("plan", PlannedGroup(size))
    self.steps: list[Step] = []
    self._began = 0.0

  def collective(
    self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]
  ) -> Callable[[], None] | None:  # fmt: skip
    """See `tiny_runtime.Communicator`."""
    now = time.process_time()
    if self.steps:
      self.steps[-1] = self.steps[-1]._replace(seconds=self.steps[-1].seconds + now - self._began)
    if what.number == 0 or not self.steps:
      self.steps.append(Step(what.graph, 0, 0, 0.0))
    before = sum(self.traffic.values())
    end = super().collective(what, results, inputs)
    last = self.steps[-1]
    nbytes = last.nbytes + sum(self.traffic.values()) - before
    self.steps[-1] = last._replace(messages=last.messages + 1, nbytes=nbytes)
    self._began = time.process_time()
    return end

  def end(self) -> None:
    """See `World`."""
    if self.steps:
      seconds = self.steps[-1].seconds + time.process_time() - self._began
      self.steps[-1] = self.steps[-1]._replace(seconds=seconds)
    use_communicator(None)


_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def rate_of(text: str) -> float:
  """A number with a unit, as "50GB/s" or "300T": what it is per second. Raises ValueError."""
  match = re.fullmatch(r"([\d.]+)\s*([kMGTP]?)(?:B|FLOPS|FLOP)?(?:/s)?", text)
  if match is None:
    raise ValueError(f"{text!r} is no rate: write a number and a unit, as 50GB/s or 300T")
  return float(match[1]) * _UNITS[match[2]]


def plan(program: Sequence[str], ranks: int, link: float, latency: float, speed: float) -> str:
  """Runs a program as rank 0 of `ranks`, and says what it would do: `link` in bytes and `speed` in operations per
  second (0: as fast as here), `latency` in seconds."""
  found = PlannedWorld(ranks)
  use_world(found)
  sys.argv = list(program)
  used, operations = GlobalCounters.mem_used, GlobalCounters.global_ops
  runpy.run_path(program[0], run_name="__main__")
  found.end()
  lines = [f"{program[0]} on {ranks} ranks: rank 0 keeps {_amount(GlobalCounters.mem_used - used)}B"]
  counted: dict[str, list[Step]] = {}
  for step in found.steps:
    counted.setdefault(step.graph, []).append(step)
  head = ("runs", 6), ("messages", 10), ("bytes sent", 14), ("sending", 12), ("computing", 12), ("share", 8)
  lines.append("schedule".ljust(18) + "".join([word.rjust(width) for word, width in head]))
  total = GlobalCounters.global_ops - operations
  for graph, runs in sorted(counted.items(), key=lambda item: -len(item[1]) * item[1][0].nbytes):
    own = sorted(run.seconds for run in runs)[len(runs) // 2]
    computing = total / sum(map(len, counted.values())) / speed if speed else own
    sending = runs[0].nbytes / link + runs[0].messages * latency
    share = sending / (sending + computing) if sending + computing else 0.0
    lines.append(
      f"{graph:18}{len(runs):6}{runs[0].messages:10}{_amount(runs[0].nbytes):>13}B{_amount(sending):>11}s"
      f"{_amount(computing):>11}s{share:8.0%}"
    )
  return "\n".join(lines)


def _amount(value: float) -> str:
  """A number with three digits and a unit."""
  for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("µ", 1e-6)):
    if abs(value) >= size:
      return f"{value / size:.3g} {unit}"
  return f"{value:.3g} "
