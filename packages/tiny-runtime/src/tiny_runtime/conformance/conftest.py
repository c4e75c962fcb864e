"""The kit's fixtures, expectations and report. Its command line is in options.py."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime.conformance.expectations import Expectations
from tiny_runtime.conformance.target import Target, find_target, reference
from tiny_runtime.errors import BackendError

LEVELS = ("package", "memory", "ops", "programs", "life cycle", "capabilities")
_KEY = pytest.StashKey[Target]()
_EXPECTATIONS = pytest.StashKey[Expectations]()
_HERE = Path(__file__).parent


def _target(config: pytest.Config) -> Target:
  if _KEY not in config.stash:
    name = config.getoption("--backend")
    if not name:
      raise pytest.UsageError("say which backend to test: --backend CPU, or --backend module:OBJECT")
    try:
      config.stash[_KEY] = find_target(name)
    except (BackendError, ImportError, AttributeError, TypeError) as error:
      raise pytest.UsageError(f"backend {name}: {error}") from error
  return config.stash[_KEY]


def _expectations(config: pytest.Config) -> Expectations:
  if _EXPECTATIONS not in config.stash:
    path = config.getoption("--expectations")
    try:
      found = Expectations.read(Path(path)) if path else Expectations.of_module(_target(config).origin)
    except (OSError, ValueError) as error:
      raise pytest.UsageError(f"expectations: {error}") from error
    config.stash[_EXPECTATIONS] = found
  return config.stash[_EXPECTATIONS]


def case_name(node_id: str) -> str:
  """`test_level2_ops.py::test_op[ADD-float16]`, wherever the kit is installed."""
  return node_id.rpartition("/")[2]


def level_of(node_id: str) -> int | None:
  """The level that a case belongs to, from its file's name."""
  found = re.match(r"test_level(\d)_", case_name(node_id))
  return int(found[1]) if found else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
  ours = [item for item in items if item.path.parent == _HERE]
  if not ours:
    return
  expectations = _expectations(config)
  for item in ours:
    case = case_name(item.nodeid)
    if (reason := expectations.reason_unsupported(case)) is not None:
      item.add_marker(pytest.mark.skip(reason=f"unsupported: {reason}"))
    elif (reason := expectations.reason_failing(case)) is not None:
      item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
  # with a part of the cases selected, a pattern may well match none of them
  whole = len({level_of(item.nodeid) for item in ours}) == len(LEVELS) and not config.getoption("keyword")
  if whole and (stale := expectations.stale()):
    raise pytest.UsageError(f"expectations that match no case: {', '.join(stale)}. Remove them")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
  """The backend under test."""
  found = _target(request.config)
  yield found
  if "device" in found.__dict__:
    found.device.close()


@pytest.fixture(scope="session")
def oracle() -> Target:
  """The reference backend."""
  return reference()


def _cases(terminal: Any) -> Iterator[tuple[str, str, Any]]:
  """(outcome, case, report) of every case that ran."""
  for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
    for report in terminal.stats.get(outcome, ()):
      if level_of(report.nodeid) is not None:
        yield outcome, case_name(report.nodeid), report


def _reason(report: Any) -> str:
  if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
    return str(report.longrepr[2]).removeprefix("Skipped: ")
  if hasattr(report, "wasxfail"):
    return str(report.wasxfail)
  crash = getattr(report.longrepr, "reprcrash", None)
  return str(crash.message if crash is not None else report.longrepr or "").strip()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
  if _KEY not in config.stash:
    return
  counts: Counter[tuple[int, str]] = Counter()
  cases = []
  for outcome, case, report in _cases(terminalreporter):
    level = level_of(report.nodeid)
    assert level is not None
    counts[level, outcome] += 1
    entry = {"case": case, "level": level, "outcome": outcome, "seconds": round(report.duration, 4)}
    if outcome != "passed":
      entry["reason"] = _reason(report)
    cases.append(entry)
  _print_table(terminalreporter, config.stash[_KEY].name, counts)
  if config.getoption("--report") or config.getoption("--report-file"):
    _print_json(terminalreporter, config, cases)


def _print_table(terminal: Any, name: str, counts: Counter[tuple[int, str]]) -> None:
  terminal.section(f"conformance of {name}")
  terminal.write_line(f"{'level':<18}{'passed':>8}{'failed':>8}{'expected':>10}{'skipped':>9}")
  for level, title in enumerate(LEVELS):
    failed = sum(counts[level, outcome] for outcome in ("failed", "error", "xpassed"))
    row = f"{counts[level, 'passed']:>8}{failed:>8}{counts[level, 'xfailed']:>10}{counts[level, 'skipped']:>9}"
    terminal.write_line(f"{level} {title:<16}{row}", red=failed > 0)


def _print_json(terminal: Any, config: pytest.Config, cases: list[dict[str, Any]]) -> None:
  target = config.stash[_KEY]
  arch = target.__dict__.get("arch", "")
  text = json.dumps({"backend": target.name, "origin": target.origin, "arch": arch, "cases": cases}, indent=1)
  path = config.getoption("--report-file")
  if path:
    Path(path).write_text(text + "\n")
    terminal.write_line(f"report written to {path}")
  else:
    terminal.write_line(text)
