"""The environment variables that packages declare, read from their sources: nothing is imported, so that plugins whose
driver is not here are in the table as well. The page of the site is made of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from documents.repository import PACKAGES, package_of

CLASSES = ("ContextVar", "EnvironmentVariable")


@dataclass(frozen=True)
class Declared:
  """A `ContextVar` (a setting: `kind` is int or str) or an `EnvironmentVariable` (`kind` is empty) of a package."""

  package: str
  name: str
  kind: str
  default: str
  meaning: str


def sources() -> list[Path]:
  """Every module of every package, but for templates."""
  return sorted(path for package in PACKAGES for path in (package / "src").rglob("*.py"))


@cache
def declared() -> tuple[Declared, ...]:
  """What the packages declare, in the order of packages and of their sources.

  Raises ValueError for a declaration whose name, default or meaning is no literal.
  """
  return tuple(item for path in sources() for item in declared_in(path))


def declared_in(path: Path) -> Iterator[Declared]:
  """What one module declares."""
  for call in calls(path, CLASSES):
    is_setting = called(call) == "ContextVar"
    try:
      words = [ast.literal_eval(argument) for argument in call.args]
      name, default, meaning = words if is_setting else (words[0], "", *words[1:])
    except ValueError:
      raise ValueError(
        f"{path}:{call.lineno}: {ast.unparse(call)} declares no variable that a reader of the source can see; "
        "expected literals: its name, its default if it is a setting, what it means"
      ) from None
    kind = type(default).__name__ if is_setting else ""
    yield Declared(package_of(path), name, kind, repr(default) if kind else "", meaning)


def calls(path: Path, names: tuple[str, ...]) -> Iterator[ast.Call]:
  """The calls of functions of these names in a module, outside of the definitions of classes of these names."""
  text = path.read_text(encoding="utf-8")
  if not any(f"{name}(" in text for name in names):
    return
  tree = ast.parse(text, str(path))
  own = {id(n) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) and c.name in names for n in ast.walk(c)}
  for node in ast.walk(tree):
    if isinstance(node, ast.Call) and id(node) not in own and called(node) in names:
      yield node


def called(call: ast.Call) -> str:
  """The last part of the name of what is called, or nothing."""
  function = call.func
  return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def undeclared(path: Path) -> list[str]:
  """Where a module reads an environment variable by itself, a line each. To pass all of it on to another process
  (`{**os.environ, …}`, `os.environ | …`) is no read of a variable; to read is up to the two classes."""
  text = path.read_text(encoding="utf-8")
  if not any(name in text for name in ("environ", "getenv")):
    return []
  tree = ast.parse(text, str(path))
  parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
  return [f"{path}:{getattr(node, 'lineno', 0)}" for node in ast.walk(tree) if _reads(node, parents.get(id(node)))]


def _reads(node: ast.AST, parent: ast.AST | None) -> bool:
  if isinstance(node, ast.ImportFrom):  # as names of the module, whose uses would not be seen
    return node.module == "os" and any(alias.name in ("environ", "getenv") for alias in node.names)
  if isinstance(node, ast.Call):
    return called(node) == "getenv"
  is_environment = isinstance(node, ast.Attribute) and node.attr in ("environ", "environb")
  return is_environment and isinstance(parent, (ast.Subscript, ast.Attribute, ast.Compare))


def table(rows: Iterable[Declared]) -> str:
  """Settings as a table in Markdown; variables that are no settings have no type and default."""
  lines = ["| name | type | default | meaning |", "|---|---|---|---|"]
  lines += [f"| `{row.name}` | {row.kind} | {row.default} | {row.meaning} |" for row in rows]
  return "\n".join(lines)
