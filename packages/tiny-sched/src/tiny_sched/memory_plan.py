"""Planning of temporaries: where in one arena each of them lies, so that what is alive at one time does not overlap.

This is for the temporaries of one schedule. `tiny_runtime.execution.arena` does the same over all schedules that a
captured graph is made of.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from tiny_sched.normalise import arena_buffer, is_temporary
from tiny_uop import Ops, UOp, collective_of
from tiny_uop.records import dataclass

ALIGNMENT = 256

_Name = TypeVar("_Name", bound=Hashable)


def aligned(nbytes: int) -> int:
  """The size rounded up to the alignment of temporaries."""
  return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Lifetime:
  """A temporary of `nbytes` bytes, written by call `first`, used by call `last` for the last time."""

  nbytes: int
  first: int
  last: int


def plan(lifetimes: dict[_Name, Lifetime]) -> tuple[dict[_Name, int], int]:
  """(byte offset of each temporary, bytes of the arena). Best fit over the free gaps, in order of first use.

  The arena is never larger than the sum of the aligned sizes; two temporaries overlap only if one is done before the
  other begins.
  """
  offsets: dict[_Name, int] = {}
  total = 0
  free: list[tuple[int, int]] = []  # (start, stop), sorted, neither touching nor overlapping
  alive: list[tuple[int, int, int]] = []  # (last, start, stop)
  for name in sorted(lifetimes, key=lambda n: (lifetimes[n].first, -lifetimes[n].nbytes)):
    life = lifetimes[name]
    for item in [a for a in alive if a[0] < life.first]:
      alive.remove(item)
      free = _released(free, item[1], item[2])
    size = aligned(max(life.nbytes, 1))
    gaps = [gap for gap in free if gap[1] - gap[0] >= size]
    if gaps:
      start, stop = min(gaps, key=lambda gap: (gap[1] - gap[0], gap[0]))
      free.remove((start, stop))
      if start + size < stop:
        free = _released(free, start + size, stop)
    elif free and free[-1][1] == total:
      start, _ = free.pop()  # the gap at the end grows
    else:
      start = total
    total = max(total, start + size)
    offsets[name] = start
    alive.append((life.last, start, start + size))
  return offsets, total


def _released(free: Sequence[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
  """The free gaps with one more, merged with its neighbours."""
  merged: list[tuple[int, int]] = []
  for gap in sorted([*free, (start, stop)]):
    if merged and merged[-1][1] == gap[0]:
      merged[-1] = (merged[-1][0], gap[1])
    else:
      merged.append(gap)
  return merged


def plan_memory(linear: UOp) -> UOp:
  """The schedule with each temporary as a view of its device's arena."""
  lives: dict[str, dict[UOp, Lifetime]] = {}
  for number, call in enumerate(linear.src):
    for argument in call.src[1:]:
      base = base_of(argument)
      if base.op is Ops.BUFFER and is_temporary(base):
        of_device = lives.setdefault(str(base.device), {})
        known = of_device.get(base)
        of_device[base] = Lifetime(base.arg[1] * base.dtype.itemsize, known.first if known else number, number)
  for number, call in enumerate(linear.src):
    if (body := collective_of(call.src[0])) is not None:
      _keep(linear.src, number, len(body.src) // 2, lives)
  offsets: dict[UOp, int] = {}
  arenas: dict[UOp, UOp] = {}
  for number, (device, lifetimes) in enumerate(lives.items()):
    planned, total = plan(lifetimes)
    offsets |= planned
    arenas |= dict.fromkeys(lifetimes, arena_buffer(number, device, total))

  def placed(argument: UOp) -> UOp:
    base = base_of(argument)
    if base not in arenas:
      return argument
    start, size = (0, argument.arg[1]) if argument is base else argument.arg
    return UOp(Ops.BUFFER_VIEW, argument.dtype, (arenas[base],), (offsets[base] + start, size))

  calls = [call.with_src((call.src[0], *[placed(a) for a in call.src[1:]])) for call in linear.src]
  return linear.with_src(tuple(calls))


def _keep(calls: Sequence[UOp], number: int, results: int, lives: dict[str, dict[UOp, Lifetime]]) -> None:
  """What a collective reads and writes lives until somebody needs its results: it may be under way until then."""
  bases = [base_of(argument) for argument in calls[number].src[1:]]
  written = set(bases[:results])
  end = next((n for n in range(number + 1, len(calls)) if written & {base_of(a) for a in calls[n].src[1:]}), number)
  for base in bases:
    of_device = lives.get(str(base.device), {})
    if base in of_device:
      of_device[base] = replace(of_device[base], last=max(of_device[base].last, end))


def base_of(argument: UOp) -> UOp:
  """The BUFFER of an argument of a CALL; the argument itself where that is no memory."""
  return argument.src[0] if argument.op is Ops.BUFFER_VIEW else argument
