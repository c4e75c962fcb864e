"""The kit's fixtures, expectations and messages. Its command line is in options.py, what it prints in report.py."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tiny_runtime.conformance.expectations import Expectations
from tiny_runtime.conformance.failure import Misbehaved
from tiny_runtime.conformance.report import LEVELS, level_of
from tiny_runtime.conformance.target import Target, find_target, reference
from tiny_runtime.errors import BackendError
from tiny_uop import DType, print_uop

_KEY = pytest.StashKey[Target]()
_HERE = Path(__file__).parent
RAISED = (
  "{where}:\n{name} came out of the backend, where the contract has none: the last lines above that are in your files"
)


def _target(config: pytest.Config) -> Target:
  if _KEY not in config.stash:
    name = config.getoption("--backend", None)
    if not name:
      command = "pytest --pyargs tiny_runtime.conformance --backend CPU"
      raise pytest.UsageError(f"say which backend to test: {command}, or --backend module:OBJECT")
    try:
      config.stash[_KEY] = find_target(name, config.getoption("--arch"))
    except (BackendError, ImportError, AttributeError, TypeError) as error:
      raise pytest.UsageError(f"backend {name}: {error}") from error
  return config.stash[_KEY]


def _expectations(config: pytest.Config) -> Expectations:
  path = config.getoption("--expectations", None)
  try:
    return Expectations.read(Path(path)) if path else Expectations.of_module(_target(config).origin)
  except (OSError, ValueError) as error:
    raise pytest.UsageError(f"expectations: {error}") from error


def case_name(item: pytest.Item) -> str:
  """`test_level2_ops.py::test_op[ADD-float16]`, wherever the kit is installed."""
  return f"{item.path.name}::{item.name}"


def some_of(items: list[pytest.Item], every: int) -> Iterator[pytest.Item]:
  """Of the cases of each test the first, and then each `every`th."""
  seen: Counter[tuple[Path, str]] = Counter()
  for item in items:
    test = (item.path, item.name.partition("[")[0])
    if seen[test] % every == 0:
      yield item
    seen[test] += 1


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
  """Cases that look for leaks call `gc.collect`: it is to look at what they make, not at all that was imported and
  collected before."""
  gc.freeze()
  try:
    return (yield)
  finally:
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
  ours = [item for item in items if item.path.parent == _HERE]
  if not ours:
    return
  highest = int(config.getoption("--level", 5))
  every = int(config.getoption("--every", 1))
  chosen = {item for item in some_of(ours, every) if level_of(case_name(item)) <= highest}
  items[:] = [item for item in items if item.path.parent != _HERE or item in chosen]
  expectations = _expectations(config)
  for item in ours:
    case = case_name(item)
    if (reason := expectations.reason_unsupported(case)) is not None:
      item.add_marker(pytest.mark.skip(reason=f"unsupported: {reason}"))
    elif (reason := expectations.reason_failing(case)) is not None:
      item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
  # with a part of the cases selected, a pattern may well match none of them
  whole = len({level_of(case_name(item)) for item in ours}) == len(LEVELS) and not config.getoption("keyword")
  if whole and (stale := expectations.stale()):
    raise pytest.UsageError(f"expectations that match no case: {', '.join(stale)}. Remove them")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
  item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
  """A message that says level, case and backend takes the place of a traceback through the kit, which would tell the
  author of a backend nothing."""
  if item.path.parent != _HERE:
    return (yield)
  if call.when == "setup":
    item.user_properties.append(("case", case_name(item)))
  error = call.excinfo.value if call.excinfo is not None else None
  case = case_name(item)
  where = f"level {level_of(case)} ({LEVELS[level_of(case)]}), {case}, backend {_target(item.config).name}"
  if not isinstance(error, Misbehaved):
    report = yield
    if report.failed:
      report.sections.append(("what this means", RAISED.format(where=where, name=type(error).__name__)))
    return report
  for name, text in (("kernel", print_uop(error.kernel) if error.kernel is not None else ""), ("source", error.source)):
    if text:
      item.user_properties.append((name, text))
  report = yield
  if report.failed:
    cause = error.__cause__
    told = f"\n  raised:   {type(cause).__name__}: {cause}" if cause is not None else ""
    report.longrepr = f"{where}:\n{error}{told}"
  return report


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


@pytest.fixture(autouse=True)
def types_of_the_case(request: pytest.FixtureRequest) -> None:
  """Skips a case whose parameters have data types that the device does not claim."""
  parameters = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
  if types := [value for value in parameters if isinstance(value, DType)]:
    _target(request.config).needs_types(*types)
