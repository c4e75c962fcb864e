"""How often each rule was tried, how often it matched, and how long that took: TRACK_MATCH_STATS."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from tiny_uop.context import TRACK_MATCH_STATS
from tiny_uop.locks import shared_lock
from tiny_uop.observe.observer import Observer
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_uop.pattern import Rule


@dataclass(frozen=True, slots=True)
class MatchCount:
  """What became of the attempts of one rule, or of all rules of one table. Times are in seconds.

  Time spent in a rule's replacement counts for the rule; where that runs other rules, theirs counts for them. So the
  times of all rows add up to the time spent in rules.
  """

  name: str
  where: str
  """`file.py:line` of the row; of a table, empty."""
  matches: int
  attempts: int
  match_seconds: float
  """In the attempts that matched."""
  seconds: float
  """In all attempts."""

  def line(self, total: float) -> str:
    """A line of the report, as a share of `total` seconds."""
    share = self.seconds / total if total else 0.0
    counts = f"{self.matches:8d} / {self.attempts:<9d}"
    times = f"{self.match_seconds * 1e3:9.1f} / {self.seconds * 1e3:<9.1f} ms"
    return f"{share:.2f} {counts} -- {times} -- {self.name}{'  ' + self.where if self.where else ''}"


@dataclass(slots=True)
class _Tally:
  matches: int = 0
  attempts: int = 0
  match_seconds: float = 0.0
  seconds: float = 0.0

  def add(self, other: _Tally) -> None:
    self.matches += other.matches
    self.attempts += other.attempts
    self.match_seconds += other.match_seconds
    self.seconds += other.seconds


class MatchStats(Observer):
  """Counts attempts. Attach it with `observing(MatchStats())` to count those of a block."""

  def __init__(self) -> None:
    self._tallies: dict[tuple[str, Rule], _Tally] = {}
    self._lock = shared_lock()

  def tried(self, table: str, rule: Rule, seconds: float, matched: bool) -> None:
    with self._lock:
      tally = self._tallies.get((table, rule))
      if tally is None:
        tally = self._tallies[table, rule] = _Tally()
      tally.attempts += 1
      tally.seconds += seconds
      if matched:
        tally.matches += 1
        tally.match_seconds += seconds

  def tallies(self) -> list[tuple[str, Rule, MatchCount]]:
    """One entry per table and rule that was tried, in the order in which they first were."""
    with self._lock:
      return [(table, rule, _count(rule.name, rule.where, t)) for (table, rule), t in list(self._tallies.items())]

  def by_rule(self) -> list[MatchCount]:
    """One row per rule, that which took longest first."""
    return self._grouped(lambda table, rule: (rule.name, rule.where))

  def by_table(self) -> list[MatchCount]:
    """One row per table (the `name` given to `graph_rewrite`), that which took longest first."""
    return self._grouped(lambda table, rule: (table, ""))

  def _grouped(self, key: Callable[[str, Rule], tuple[str, str]]) -> list[MatchCount]:
    groups: dict[tuple[str, str], _Tally] = {}
    with self._lock:
      for (table, rule), tally in list(self._tallies.items()):
        groups.setdefault(key(table, rule), _Tally()).add(tally)
    rows = [_count(name, where, tally) for (name, where), tally in groups.items()]
    return sorted(rows, key=lambda row: (-row.seconds, row.name))

  def clear(self) -> None:
    """Count from 0 again."""
    self._tallies = {}


def _count(name: str, where: str, tally: _Tally) -> MatchCount:
  return MatchCount(name, where, tally.matches, tally.attempts, tally.match_seconds, tally.seconds)


HEADING = "share  matches / attempts  --  ms in matches / in all -- "


def format_match_stats(rows: Iterable[MatchCount], what: str) -> str:
  """A report: a heading, a line per row, and the sum. `what` says what a row is: `"rule"` or `"table"`."""
  rows = list(rows)
  whole = _Tally()
  for row in rows:
    whole.add(_Tally(row.matches, row.attempts, row.match_seconds, row.seconds))
  lines = [row.line(whole.seconds) for row in (*rows, _count(f"all {len(rows)} {what}s", "", whole))]
  return "\n".join([HEADING + what, *lines]) + "\n"


_process: MatchStats | None = None
_making = shared_lock()


def process_stats() -> MatchStats:
  """What TRACK_MATCH_STATS has counted in this process."""
  global _process
  with _making:
    if _process is None:
      _process = MatchStats()
      atexit.register(print_match_stats)
    return _process


def _in_child() -> None:
  # a child process counts for itself
  if _process is not None:
    _process.clear()


if hasattr(os, "register_at_fork"):
  os.register_at_fork(after_in_child=_in_child)


def print_match_stats(file: TextIO | None = None) -> None:
  """What TRACK_MATCH_STATS has counted so far: per table with 1, per rule with 2. To stderr, unless told where."""
  counted = process_stats()
  # at exit a `with Context(TRACK_MATCH_STATS=2)` may be over: what was counted is shown per rule all the same
  rows, what = (counted.by_table(), "table") if TRACK_MATCH_STATS.value == 1 else (counted.by_rule(), "rule")
  if rows:
    print(f"--- match stats\n{format_match_stats(rows, what)}", end="", file=file or sys.stderr)
