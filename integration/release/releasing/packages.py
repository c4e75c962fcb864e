"""The packages of this repository, as their pyproject.toml files describe them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("packages", "integration/plugins")
"""Where packages lie, from the root: each is a folder with a pyproject.toml."""


@dataclass(frozen=True)
class Package:
  """One folder that becomes a wheel."""

  folder: Path
  project: Mapping[str, Any]
  """The table [project] of its pyproject.toml."""

  @property
  def name(self) -> str:
    return str(self.project["name"])

  @property
  def version(self) -> str:
    return str(self.project["version"])

  @property
  def module(self) -> str:
    """The name it is imported by, which is that of its files in `dist/` too."""
    return self.name.replace("-", "_")

  def requirements(self, *extras: str) -> list[Requirement]:
    """What it declares to need, and what these extras of it add."""
    optional = self.project.get("optional-dependencies", {})
    lists = [self.project.get("dependencies", []), *(optional.get(extra, []) for extra in extras)]
    return [Requirement(text) for texts in lists for text in texts]

  @property
  def needs(self) -> set[str]:
    """Names of all that it, or an extra of it, needs itself."""
    return {requirement.name for requirement in self.requirements(*self.extras)}

  @property
  def extras(self) -> list[str]:
    return list(self.project.get("optional-dependencies", {}))


def load(root: Path = ROOT) -> dict[str, Package]:
  """Every package, by name; each stands after those that it needs. Raises ValueError if they need each other."""
  projects = [path for folder in FOLDERS for path in sorted((root / folder).glob("*/pyproject.toml"))]
  found = [Package(path.parent, tomllib.loads(path.read_text(encoding="utf-8"))["project"]) for path in projects]
  waiting = {package.name: package for package in found}
  done: dict[str, Package] = {}
  while waiting:
    free = [p for p in waiting.values() if not p.needs & (waiting.keys() - {p.name})]
    if not free:
      raise ValueError(f"these packages need each other: {', '.join(sorted(waiting))}. Take a dependency out of one")
    done |= {package.name: waiting.pop(package.name) for package in free}
  return done


def siblings(names: Iterable[str], packages: Mapping[str, Package], *extras: str) -> list[str]:
  """These packages and everything of ours that they need, with these extras of them; in the order of `packages`."""
  needed = set(names)
  waiting = [(name, extras) for name in needed]
  while waiting:
    name, wanted = waiting.pop()
    for requirement in packages[name].requirements(*wanted):
      if requirement.name in packages and requirement.name not in needed:
        needed.add(requirement.name)
        waiting.append((requirement.name, tuple(requirement.extras)))
  return [name for name in packages if name in needed]
