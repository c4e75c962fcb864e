"""What a run of the kit ends with: a table by level, what comes next, and on request a report in JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tiny_runtime.conformance.target import Target, find_target

LEVELS = ("package", "memory", "ops", "programs", "life cycle", "capabilities")
NEXT = (
  "the backend object and the compiler; no hardware is needed. README of tiny-runtime, steps 1 and 3",
  "alloc, free, write and read. README of tiny-runtime, step 2",
  "compile, load and launch, one operation at a time. README of tiny-runtime, steps 3 and 4",
  "what the compiler makes of loops, gates, local memory and variables. README of tiny-runtime, step 5",
  "order of launches, errors, and what is given back. README of tiny-runtime, step 6",
  "the capability record: implement what it claims, or take the claim back. README of tiny-runtime, step 7",
)
FAILED = ("failed", "error", "xpassed")


def level_of(case: str) -> int:
  """The level that a case belongs to, from its file's name."""
  found = re.match(r"test_level(\d)_", case)
  assert found, f"{case} is in no file test_levelN_*.py"
  return int(found[1])


def entries(terminal: Any) -> Iterator[dict[str, Any]]:
  """Every case that ran: case, level, outcome, seconds, and where it did not pass, reason, kernel and source."""
  for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
    for report in terminal.stats.get(outcome, ()):
      properties = dict(getattr(report, "user_properties", ()))
      # a case that ended its process has no properties
      named = re.search(r"test_level\d_\w+\.py::.*", report.nodeid)
      case = properties.pop("case", named and named[0])
      if case is None:
        continue
      entry = {"case": case, "level": level_of(case), "outcome": outcome, "seconds": round(report.duration, 4)}
      if outcome != "passed":
        entry.update({"reason": _reason(report), **properties})
      yield entry


def _reason(report: Any) -> str:
  if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
    return str(report.longrepr[2]).removeprefix("Skipped: ")
  if hasattr(report, "wasxfail"):
    return str(report.wasxfail)
  crash = getattr(report.longrepr, "reprcrash", None)
  return str(crash.message if crash is not None else report.longrepr or "").strip()


def print_table(terminal: Any, name: str, cases: list[dict[str, Any]]) -> None:
  """A row per level that ran, and under it the first level that does not pass."""
  counts = Counter((case["level"], case["outcome"]) for case in cases)
  terminal.section(f"conformance of {name}")
  terminal.write_line(f"{'level':<18}{'passed':>8}{'failed':>8}{'expected':>10}{'skipped':>9}")
  first = None
  for level, title in enumerate(LEVELS):
    if not any(number == level for number, _ in counts):
      continue
    failed = sum(counts[level, outcome] for outcome in FAILED)
    row = f"{counts[level, 'passed']:>8}{failed:>8}{counts[level, 'xfailed']:>10}{counts[level, 'skipped']:>9}"
    terminal.write_line(f"{level} {title:<16}{row}", red=failed > 0)
    first = level if failed and first is None else first
  if first is not None:
    case = next(case["case"] for case in cases if case["level"] == first and case["outcome"] in FAILED)
    terminal.write_line(f"next: level {first}: {NEXT[first]}")
    terminal.write_line(f"      begin with: -k '{_keyword(case)}'")


def _keyword(case: str) -> str:
  """A case as an expression for `-k`, which has no brackets and no signs."""
  words = re.findall(r"\w+", case.partition("::")[2])
  return " and ".join(dict.fromkeys(words))


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
  """Called by pytest at the end of a run."""
  cases = list(entries(terminalreporter))
  if not config.getoption("backend") or not cases:
    return
  target = find_target(config.getoption("backend"), config.getoption("arch"))
  print_table(terminalreporter, target.name, cases)
  if path := config.getoption("report"):
    write_json(terminalreporter, target, cases, path)


def write_json(terminal: Any, target: Target, cases: list[dict[str, Any]], path: str) -> None:
  """The report: backend, origin, arch, cases."""
  text = json.dumps({"backend": target.name, "origin": target.origin, "arch": target.arch, "cases": cases}, indent=1)
  if path == "-":
    terminal.write_line(text)
  else:
    Path(path).write_text(text + "\n")
    terminal.write_line(f"report written to {path}")
