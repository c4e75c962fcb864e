"""The pages of the API reference: which modules are public, and how their names are shown. mkdocstrings reads the
docstrings from the sources when the site is built. What the sources make of tables has none there: of modules whose
`__all__` is computed, functions and classes without a docstring in the source are written out here."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from documents.families import families, family_table
from documents.repository import PACKAGES, ROOT

BESIDE: dict[str, tuple[str, ...]] = {
  "tiny_uop": ("observe", "testing", "text.golden", "text.readable"),
  "tiny_codegen": ("render",),
  "tiny_runtime": ("contract", "ref"),
  "tiny_tensor": ("array_api",),
  "tiny_tensor.nn": ("functional",),
}
"""Public modules of a package that its `__all__` does not name."""


def modules() -> list[str]:
  """All public modules: packages, what their `__all__` has that are modules, and those beside them."""
  return [module for folder in PACKAGES for module in _modules(folder.name.replace("-", "_"))]


def _modules(module: str) -> list[str]:
  # a package whose names are imported when they are used says under TYPE_CHECKING where they come from
  froms = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.ImportFrom) and node.module == module]
  inside = [alias.name for node in froms for alias in node.names if alias.name in exports(module)[0]]
  parts = (f"{module}.{name}" for name in (*inside, *BESIDE.get(module, ())))
  return [module, *(name for part in parts for name in _modules(part))]


def pages() -> dict[str, str]:
  """Place in the site → text of a page for mkdocstrings; the first is an index of all names."""
  return {"reference/index.md": index()} | {f"reference/{module}.md": page(module) for module in modules()}


def index() -> str:
  """The page of all public modules, each with the first line of its docstring and its own names."""
  text = "# Reference\n\nAll public names, by module.\n"
  for module in modules():
    summary = (ast.get_docstring(_tree(module)) or "").partition("\n\n")[0].replace("\n", " ")
    own = exports(module)[0]
    made = _made(module, own)
    names = " · ".join(_linked(module, name, name in made) for name in own)
    text += f"\n## [`{module}`]({module}.md)\n\n{summary}\n\n{names}\n"
  return text


def _linked(module: str, name: str, made: bool) -> str:
  """A public name as a link: to the page of a module, to the place of a function or class with a docstring of ours."""
  value = getattr(import_module(module), name)
  if inspect.ismodule(value):
    return f"[`{name}`]({module}.{name}.md)"
  ours = (inspect.isroutine(value) or inspect.isclass(value)) and source_of(value.__module__).exists()
  if source_of(f"{module}.{name}").exists():  # mkdocstrings takes the module of this name for it
    return f"`{name}`"
  return f"[`{name}`][{module}.{name}]" if made or (ours and name in _documented(value.__module__)) else f"`{name}`"


def page(module: str) -> str:
  """The page of one module: its own names in full, and links to those that it only passes on from other packages."""
  text = f"# `{module}`\n\n::: {module}\n"
  if module == "tiny_tensor":
    text = f"# `{module}`\n\n## Tensor, by family\n\n{family_table()}\n\n::: {module}\n"
  own, passed_on = exports(module)
  made = _made(module, own)
  if module == "tiny_tensor":
    tensor = import_module(module).Tensor
    rows = dict.fromkeys(name for family in families() for name in family.rows)
    made |= {f"Tensor.{name}": getattr(tensor, name) for name in rows}
  if passed_on or made:
    members = "".join(f"        - {name}\n" for name in own if name not in made)
    text += f"    options:\n      members:\n{members}"
  if passed_on:
    links = ", ".join(f"[`{name}`][{home}.{name}]" for name, home in passed_on.items())
    text += f"\nFrom other packages: {links}.\n"
  return text + "".join(_section(f"{module}.{name}", value) for name, value in made.items())


def _made(module: str, names: list[str]) -> dict[str, Any]:
  """The functions and classes among names whose docstring is not in the source."""
  if all(_literal(value) is not None for value in _assigned_all(module)):
    return {}
  found = {name: getattr(import_module(module), name) for name in names}
  found = {name: value for name, value in found.items() if inspect.isroutine(value) or inspect.isclass(value)}
  return {name: value for name, value in found.items() if name not in _documented(value.__module__)}


@cache
def _documented(module: str) -> set[str]:
  """The names of a module with a docstring in the source: functions, classes, and what has a string behind it."""
  found = set[str]()
  for node, after in pairwise([*_tree(module).body, ast.Pass()]):
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
      found.add(node.name)
    elif isinstance(node, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
      found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
  return found


def _section(path: str, value: Any) -> str:
  """What mkdocstrings would write of a function or class."""
  name = path.rpartition(".")[2]
  quoted = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
  signature = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", quoted)  # without the modules of types
  return f"\n## `{name}` {{ #{path} }}\n\n```python\n{name}{signature}\n```\n\n{inspect.getdoc(value)}\n"


def exports(module: str) -> tuple[list[str], dict[str, str]]:
  """(names in `__all__` that are the package's own, those that it imports from other packages and whose they are)."""
  package, homes = module.partition(".")[0], dict[str, str]()
  for node in _tree(module).body:
    if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] != package:
      homes |= {alias.asname or alias.name: node.module.partition(".")[0] for alias in node.names}
  names = [name for value in _assigned_all(module) for name in _literal(value) or import_module(module).__all__]
  return [name for name in names if name not in homes], {name: homes[name] for name in names if name in homes}


@cache
def _tree(module: str) -> ast.Module:
  return ast.parse(source_of(module).read_text(encoding="utf-8"))


def _assigned_all(module: str) -> list[ast.expr]:
  """What a module assigns to `__all__`: one expression, or none."""
  assignments = [node for node in _tree(module).body if isinstance(node, ast.Assign)]
  return [node.value for node in assignments if ast.unparse(node.targets[0]) == "__all__"]


def _literal(value: ast.expr) -> list[str] | None:
  """The list that an expression writes out; None for one that has to be computed."""
  try:
    found: list[str] = ast.literal_eval(value)
  except ValueError:
    return None
  return found


def source_of(module: str) -> Path:
  """The file of a public module."""
  package, *rest = module.split(".")
  folder = ROOT / "packages" / package.replace("_", "-") / "src" / package
  path = folder.joinpath(*rest)
  return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
