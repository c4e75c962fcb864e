"""What `Tensor` can do, by family: the classes that it is put together of, each in a file named for what it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from documents.repository import ROOT

SOURCES = ROOT / "packages" / "tiny-tensor" / "src" / "tiny_tensor"


@dataclass(frozen=True)
class Family:
  """A class of the tower: what its file is about, the classes below it, its public methods and properties, and which of
  these are rows, `half = unary(…)`."""

  about: str
  bases: tuple[str, ...]
  members: tuple[str, ...]
  rows: tuple[str, ...]


@cache
def families() -> list[Family]:
  """The classes that Tensor is made of, Tensor last, each after those that it builds on."""
  classes = dict(pair for path in sorted(SOURCES.rglob("*.py")) for pair in classes_of(path.read_text("utf-8")))
  ordered: dict[str, Family] = {}

  def add(name: str) -> None:
    if name in classes and name not in ordered:
      for base in classes[name].bases:
        add(base)
      ordered[name] = classes[name]

  add("Tensor")
  return list(ordered.values())


def classes_of(source: str) -> Iterator[tuple[str, Family]]:
  """(name, what it is) of the classes of a module."""
  tree = ast.parse(source)
  about = (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".:")
  for node in tree.body:
    if isinstance(node, ast.ClassDef):
      functions = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
      assigned = [item for item in node.body if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)]
      rows = [ast.unparse(target) for item in assigned for target in item.targets]
      members, made = (tuple(dict.fromkeys(n for n in names if n[0] != "_")) for names in (functions + rows, rows))
      yield node.name, Family(about, tuple(ast.unparse(base) for base in node.bases), members, made)


def family_table() -> str:
  """A table in Markdown, with links to the members of `Tensor`."""
  lines = ["| family | methods and properties |", "|---|---|"]
  for family in families():
    links = ", ".join(f"[`{name}`][tiny_tensor.Tensor.{name}]" for name in family.members)
    if links:
      lines.append(f"| {family.about} | {links} |")
  return "\n".join(lines)
