"""The pages of the API reference: which modules are public, and how their names are shown. The docstrings are read from
the sources, by mkdocstrings, when the site is built."""

from __future__ import annotations

import ast
from pathlib import Path

from documents.repository import PACKAGES, ROOT

SUBMODULES: dict[str, tuple[str, ...]] = {
  "tiny_uop": ("observe", "testing", "golden", "readable", "spec"),
  "tiny_codegen": ("render",),
  "tiny_runtime": ("contract", "ref"),
  "tiny_tensor": ("array_api", "nn", "nn.optim", "nn.schedule", "nn.state"),
}
"""Public modules beside the packages themselves."""


def modules() -> list[str]:
  """All public modules, package by package."""
  names = [folder.name.replace("-", "_") for folder in PACKAGES]
  return [module for name in names for module in (name, *(f"{name}.{sub}" for sub in SUBMODULES.get(name, ())))]


def pages() -> dict[str, str]:
  """Place in the site → text of a page for mkdocstrings."""
  return {f"reference/{module}.md": page(module) for module in modules()}


def page(module: str) -> str:
  """The page of one module: its own names in full, and links to those that it only passes on from other packages."""
  text = f"# `{module}`\n\n::: {module}\n"
  own, passed_on = exports(module)
  if not passed_on:
    return text
  members = "".join(f"        - {name}\n" for name in own)
  links = ", ".join(f"[`{name}`][{home}.{name}]" for name, home in passed_on.items())
  return f"{text}    options:\n      members:\n{members}\nFrom other packages: {links}.\n"


def exports(module: str) -> tuple[list[str], dict[str, str]]:
  """(names in `__all__` that are the package's own, those that it imports from other packages and whose they are)."""
  tree = ast.parse(source_of(module).read_text(encoding="utf-8"))
  package, homes = module.partition(".")[0], dict[str, str]()
  names: list[str] = []
  for node in tree.body:
    if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] != package:
      homes |= {alias.asname or alias.name: node.module.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
      names = ast.literal_eval(node.value)
  return [name for name in names if name not in homes], {name: homes[name] for name in names if name in homes}


def source_of(module: str) -> Path:
  """The file of a public module."""
  package, *rest = module.split(".")
  folder = ROOT / "packages" / package.replace("_", "-") / "src" / package
  path = folder.joinpath(*rest)
  return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
