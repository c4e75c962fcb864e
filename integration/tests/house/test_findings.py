"""Dead code (vulture) and doubled code (pylint's symilar) in the sources of the packages.

A finding is an error unless `accepted_findings.toml` lists it with a reason. What is listed there and is not found any
more is an error, too.

Code that only tests use is dead. Public names are not: users call them, and `test_document_names.py` asks for their
docstrings.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from documents.public_names import imported, public_objects
from documents.reference import modules
from pylint.checkers.symilar import stripped_lines
from vulture import Vulture

ROOT = Path(__file__).parents[3]
ACCEPTED = tomllib.loads(Path(__file__).with_name("accepted_findings.toml").read_text("utf-8"))
LEAST_LINES = 6  # of two places that are the same, without comments, docstrings and imports


def sources() -> list[Path]:
  return sorted((ROOT / "packages").glob("*/src/**/*.py"))


def module_of(path: Path) -> str:
  """`tiny_uop/dtype.py`, of a path or of the text of one."""
  return path.as_posix().partition("/src/")[2]


def dead(users: list[Path], public: set[str]) -> Iterator[tuple[str, str]]:
  """(module, name) of what the sources define and neither they, nor `users`, nor users of `public` names use."""
  finder = Vulture(ignore_decorators=["@in_child", "@op"])  # which a fork calls; which a table has
  finder.scavenge(map(str, [*sources(), *users]))
  for name in public:
    finder.scan(f"_.{name}")
  for found in finder.get_unused_code(min_confidence=60):
    if (module := module_of(Path(found.filename))) and module.startswith("tiny_"):
      yield module, found.name


def alike(paths: list[Path]) -> list[Path]:
  """The files that have so many lines in a row which another has, too: symilar reads imports with a parser of its own,
  which takes 20 s for all of them."""
  places: dict[tuple[str, ...], set[Path]] = defaultdict(set)
  for path in paths:
    text = path.read_text("utf-8")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    left_out = {line for node in imports for line in range(node.lineno - 1, node.end_lineno or node.lineno)}
    found = stripped_lines(text.splitlines(), True, True, ignore_imports=False, ignore_signatures=False)
    lines = [line.text for line in found if line.line_number not in left_out]
    for run in zip(*[lines[n:] for n in range(LEAST_LINES)]):
      places[run].add(path)
  return sorted({path for shared in places.values() if len(shared) > 1 for path in shared})


def doubled(paths: list[Path]) -> Iterator[tuple[str, ...]]:
  """The modules that have the same lines, once for each run of lines."""
  command = [sys.executable, "-c", "import gc; gc.disable(); from pylint import run_symilar; run_symilar()"]
  command += [
    "--ignore-comments",
    "--ignore-docstrings",
    "--ignore-imports",
    "--duplicates",
    str(LEAST_LINES),
    *map(str, alike(paths)),
  ]
  report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
  assert f"TOTAL lines={0 if not paths else ''}" in report, report
  for group in re.findall(r"similar lines in \d+ files\n((?:==.+\n)+)", report):
    yield tuple(sorted(module_of(Path(line)) or Path(line).name for line in re.findall(r"==(.+):\[", group)))


def differences(found: set[tuple[str, str]], kind: str) -> str:
  """The findings that are not listed, and the listed ones that are no findings."""
  listed = [(row["where"], name) for row in ACCEPTED[kind] for name in row["what"].split()]

  def accepts(row: tuple[str, str], finding: tuple[str, str]) -> bool:
    return fnmatch(finding[0], row[0]) and fnmatch(finding[1], row[1])

  new = [f for f in sorted(found) if not any(accepts(row, f) for row in listed)]
  gone = [row for row in listed if not any(accepts(row, f) for f in found)]
  lines = [f"  {where}: {what}: use it, delete it, or list it with a reason" for where, what in new]
  return "\n".join(
    [*lines, *[f"  {where}: {what}: listed, and not found; take it off the list" for where, what in gone]]
  )


@pytest.fixture(scope="module")
def public() -> set[str]:
  return {name.rpartition(".")[2] for module in modules() for name, _ in public_objects(imported(module))}


def test_no_code_is_dead(public: set[str]) -> None:
  users = [p for p in sorted((ROOT / "integration").glob("**/*.py")) if "tests" not in p.parts]
  wrong = differences(set(dead(users, public)), "dead")
  assert not wrong, f"dead code:\n{wrong}"


def test_no_code_is_there_twice() -> None:
  wrong = differences({(first, " ".join(others)) for first, *others in doubled(sources())}, "doubled")
  assert not wrong, f"the same {LEAST_LINES} lines or more:\n{wrong}"


def test_every_listed_finding_has_a_reason() -> None:
  assert all(len(row["reason"]) > 10 for rows in ACCEPTED.values() for row in rows)


def test_what_is_dead_or_doubled_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  folder = tmp_path / "packages" / "tiny-example" / "src" / "tiny_example"
  folder.mkdir(parents=True)
  body = "".join(f"  x{n} = x + {n}\n" for n in range(8)) + "  return x0, x1, x2, x3, x4, x5, x6, x7\n"
  for name in ("one", "two"):
    (folder / f"{name}.py").write_text(f"def {name}(x):\n{body}")
  monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
  assert set(dead([], {"two"})) == {("tiny_example/one.py", "one")}
  assert list(doubled(sources())) == [("tiny_example/one.py", "tiny_example/two.py")]
