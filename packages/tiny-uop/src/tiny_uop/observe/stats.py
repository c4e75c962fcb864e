"""How often each rule was tried, how often it matched, and how long that took: TRACK_MATCH_STATS."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from tiny_uop.context import TRACK_MATCH_STATS
from tiny_uop.locks import in_child, shared_lock
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


class MatchStats(Observer):
  """Counts attempts. Attach it with `observing(MatchStats())` to count those of a block."""

  def __init__(self) -> None:
    self._tallies: dict[tuple[str, Rule], list[Any]] = {}
    """The figures of a MatchCount."""
    self._lock = shared_lock()

  def tried(self, table: str, rule: Rule, seconds: float, matched: bool) -> None:
    with self._lock:
      tally = self._tallies.setdefault((table, rule), [0, 0, 0.0, 0.0])
      tally[1] += 1
      tally[3] += seconds
      if matched:
        tally[0] += 1
        tally[2] += seconds

  def tallies(self) -> list[tuple[str, Rule, MatchCount]]:
    """One entry per table and rule that was tried, in the order in which they first were."""
    with self._lock:
      return [(table, rule, MatchCount(rule.name, rule.where, *t)) for (table, rule), t in list(self._tallies.items())]

  def by_rule(self) -> list[MatchCount]:
    """One row per rule, that which took longest first."""
    return grouped(((rule.name, rule.where), count) for _, rule, count in self.tallies())

  def by_table(self) -> list[MatchCount]:
    """One row per table (the `name` given to `graph_rewrite`), that which took longest first."""
    return grouped(((table, ""), count) for table, _, count in self.tallies())

  def clear(self) -> None:
    """Count from 0 again."""
    self._tallies = {}


def grouped(counts: Iterable[tuple[tuple[str, str], MatchCount]]) -> list[MatchCount]:
  """One row per (name, where), with the sum of its counts, that which took longest first."""
  groups: dict[tuple[str, str], list[MatchCount]] = {}
  for key, count in counts:
    groups.setdefault(key, []).append(count)
  rows = [_sum(name, where, of_key) for (name, where), of_key in groups.items()]
  return sorted(rows, key=lambda row: (-row.seconds, row.name))


def _sum(name: str, where: str, counts: list[MatchCount]) -> MatchCount:
  matching, seconds = sum(c.match_seconds for c in counts), sum(c.seconds for c in counts)
  return MatchCount(name, where, sum(c.matches for c in counts), sum(c.attempts for c in counts), matching, seconds)


HEADING = "share  matches / attempts  --  ms in matches / in all -- "


def format_match_stats(rows: Iterable[MatchCount], what: str) -> str:
  """A report: a heading, a line per row, and the sum. `what` says what a row is: `"rule"` or `"table"`."""
  rows = list(rows)
  whole = _sum(f"all {len(rows)} {what}s", "", rows)
  return "\n".join([HEADING + what, *[row.line(whole.seconds) for row in (*rows, whole)]]) + "\n"


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


@in_child
def _count_for_itself() -> None:
  if _process is not None:
    _process.clear()


def print_match_stats(file: TextIO | None = None) -> None:
  """What TRACK_MATCH_STATS has counted so far: per table with 1, per rule with 2. To stderr, unless told where."""
  counted = process_stats()
  # at exit a `with Context(TRACK_MATCH_STATS=2)` may be over: what was counted is shown per rule all the same
  rows, what = (counted.by_table(), "table") if TRACK_MATCH_STATS.value == 1 else (counted.by_rule(), "rule")
  if rows:
    print(f"--- match stats\n{format_match_stats(rows, what)}", end="", file=file or sys.stderr)
