"""Tests of stages as text: a file says what is done to which graph and what comes out.

    # pass: merge
    # shows: rows and columns that lie next to each other become one loop
    tiny-uop 1
    %0 = ...
    # expected
    tiny-uop 1
    %0 = ...

The first comment lines are options, `name: value`; up to the line `# expected` it is a text that the stage tools read.
A test is a loop over the files of a directory:

    from tiny_uop.text.golden import golden_cases

    @pytest.mark.parametrize("case", golden_cases(DIRECTORY), ids=str)
    def test_golden(case):
      case.check(print_uop(my_pass(parse_uop(case.given))))

`UPDATE_GOLDEN=1 pytest` writes the expectations anew; read the difference before it is committed.

`round_trips_checked` is for a `conftest.py`: whatever the other tests compile is printed and parsed back on the side.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from pathlib import Path

from tiny_uop import spec
from tiny_uop.context import UPDATE_GOLDEN
from tiny_uop.records import dataclass
from tiny_uop.text.diff import diff_graphs, summarise
from tiny_uop.text.parse import ParseError, parse_uop
from tiny_uop.text.print import print_uop
from tiny_uop.uop import UOp

MARK = "# expected\n"


@dataclass(frozen=True)
class GoldenCase:
  """One file: `options` of its head, the text that is `given`, the one that is `expected`."""

  path: Path
  options: dict[str, str]
  given: str
  expected: str

  def __str__(self) -> str:
    return self.path.stem

  def check(self, result: str) -> None:
    """Raises AssertionError, with the difference, where `result` is not what the file expects. With UPDATE_GOLDEN=1 in
    the environment the file is rewritten to expect it."""
    if UPDATE_GOLDEN.get() == "1":
      self.path.write_text(self.given + MARK + result, encoding="utf-8")
    elif result != self.expected:
      difference = _difference(self.expected, result)
      raise AssertionError(f"{self.path.name} expects something else (UPDATE_GOLDEN=1 rewrites it):\n{difference}")


def golden_cases(directory: Path, pattern: str = "*.uop") -> list[GoldenCase]:
  """The cases of a directory, by name. Raises ValueError for a directory without any and for a file without options."""
  cases = [read_case(path) for path in sorted(directory.glob(pattern))]
  if not cases:
    raise ValueError(f"no {pattern} in {directory}: expected at least one golden case")
  return cases


def read_case(path: Path) -> GoldenCase:
  """The case in a file. One without `# expected` is new: it expects nothing until UPDATE_GOLDEN=1 fills it in."""
  given, _, expected = path.read_text(encoding="utf-8").partition(MARK)
  options: dict[str, str] = {}
  for line in given.splitlines():
    if not line.startswith("# "):
      break
    name, colon, value = line[2:].partition(": ")
    if not colon or name in options:
      raise ValueError(f"{path}: {line!r} is no option that the file does not have yet: expected '# name: value'")
    options[name] = value
  if not options:
    raise ValueError(f"{path}: expected lines '# name: value' before the graph")
  return GoldenCase(path, options, given, expected)


def unused(cases: Iterable[GoldenCase], option: str, known: Iterable[str]) -> set[str]:
  """Those of the `known` values of an option that no case has: what is not tested."""
  return set(known) - {case.options.get(option, "") for case in cases}


def _difference(expected: str, result: str) -> str:
  try:
    lines = diff_graphs(parse_uop(expected), parse_uop(result))
  except ParseError:
    old, new = expected.splitlines(), result.splitlines()
    return "\n".join(difflib.unified_diff(old, new, "expected", "result", lineterm=""))
  return "\n".join([summarise(lines), *map(str, lines)]) if lines else "the same graph in another form of text"


@contextmanager
def round_trips_checked(every: int = 40, most_nodes: int = 3000) -> Iterator[list[int]]:
  """While it lasts, one of `every` graphs that stages pass to `spec.check_stage`, and that has at most `most_nodes`
  nodes, is printed and parsed: AssertionError where that does not give the identical object. Yields a list whose only
  item is how many were."""
  checked, met = [0], 0
  original = spec.check_stage
  if hasattr(original, "__wrapped__"):  # on already
    yield checked
    return

  @wraps(original, assigned=("__doc__",), updated=())
  def check_stage(root: UOp, level: spec.Level, stage: str = "") -> UOp:
    nonlocal met
    met += 1
    if met % every == 0 and sum(1 for _ in islice(root.walk(), most_nodes + 1)) <= most_nodes:
      text = print_uop(root)
      assert parse_uop(text) is root, f"a graph at the {level} level {stage} does not parse back:\n{text}"
      checked[0] += 1
    return original(root, level, stage)

  holders = [m for m in list(sys.modules.values()) if m is not None and vars(m).get("check_stage") is original]
  for module in holders:
    setattr(module, "check_stage", check_stage)  # noqa: B010  # mypy knows the type of one module only
  try:
    yield checked
  finally:
    for module in holders:
      setattr(module, "check_stage", original)  # noqa: B010
