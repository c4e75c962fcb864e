"""Every environment variable that a package reads is declared, with a line that says what it means."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from documents.repository import ROOT
from documents.settings import declared, declared_in, sources, table, undeclared

from tiny_uop import ContextVar

CONTEXT = ROOT / "packages" / "tiny-uop" / "src" / "tiny_uop" / "context.py"


def test_nothing_else_is_read() -> None:
  found = [place for path in sources() if path != CONTEXT for place in undeclared(path)]
  assert not found, (
    "these read an environment variable by themselves; declare it as a ContextVar (a setting) or an "
    f"EnvironmentVariable of tiny_uop, which read it: {', '.join(found)}"
  )


@pytest.mark.parametrize(
  ("line", "reads"),
  [
    ("os.environ['A']", True),
    ("os.environ.get('A', '')", True),
    ("'A' in os.environ", True),
    ("os.getenv('A')", True),
    ("tiny_uop.getenv('A', 0)", True),
    ("from os import environ", True),
    ("run(env={**os.environ, 'A': '1'})", False),
    ("run(env=os.environ | {'A': '1'})", False),
  ],
)
def test_what_counts_as_a_read(line: str, reads: bool, tmp_path: Path) -> None:
  path = tmp_path / "module.py"
  path.write_text(f"import os\n{line}\n")
  assert bool(undeclared(path)) is reads


def test_what_the_sources_say_is_so() -> None:
  """The table is read from the sources: it has the settings that there are, once these are imported."""
  for path in sources():
    if any(item.kind for item in declared_in(path)):
      parts = path.relative_to(next(p for p in path.parents if p.name == "src")).with_suffix("").parts
      importlib.import_module(".".join(parts))
  settings = {item.name: item for item in declared() if item.kind}
  ours = {name: var for name, var in ContextVar.registry.items() if not name.startswith("TINY_UOP_TEST")}
  assert settings.keys() == ours.keys()
  for name, item in settings.items():
    assert (item.kind, item.default, item.meaning) == (
      ours[name].type.__name__,
      repr(ours[name].default),
      ours[name].doc,
    )
  names = [item.name for item in declared()]
  assert len(names) == len(set(names)), "a variable is declared once, and imported by others"


def test_each_says_what_it_means() -> None:
  text = table(declared())
  assert "| `DEBUG` | int | 0 | how much to print" in text and "| `NO_COLOR` |  |  | no colours" in text
  assert all(len(item.meaning) > 10 and "\n" not in item.meaning for item in declared())


def test_a_declaration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
  path = tmp_path / "module.py"
  path.write_text("X = ContextVar(name, 1, 'what it means')\n")
  with pytest.raises(ValueError, match="module.py:1: .*expected literals"):
    list(declared_in(path))
