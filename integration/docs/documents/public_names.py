"""The public names of the packages, by their sources, and whether they are documented."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

ASSIGNMENTS = (ast.Assign, ast.AnnAssign)


def public_objects(module: ModuleType) -> Iterator[tuple[str, Any]]:
  """(name, object) of what a module exports: its `__all__`, or what is defined in it and has no underscore. Functions
  and classes, and the functions, properties and class methods of these classes, inherited ones from ours included."""
  names = getattr(module, "__all__", None) or [
    name for name, value in vars(module).items() if not name.startswith("_") and _home(value) == module.__name__
  ]
  for name in names:
    value = getattr(module, name)
    if inspect.isclass(value) and _ours(value):
      yield f"{module.__name__}.{name}", value
      yield from _members(f"{module.__name__}.{name}", value)
    elif inspect.isfunction(value) and _ours(value):
      yield f"{module.__name__}.{name}", value


def undocumented(module: ModuleType) -> list[str]:
  """The public functions, classes, members and constants of a module that have no docstring. A member without one that
  overrides a documented one has that one's; a constant's is the string behind it."""
  objects = [name for name, value in public_objects(module) if not inspect.getdoc(value)]
  return objects + [f"{module.__name__}.{name}" for name in _constants(module)]


def _constants(module: ModuleType) -> Iterator[str]:
  """The exported constants, other names of classes among them, with no string behind them where they are assigned."""
  homes = dict.fromkeys(getattr(module, "__all__", ()), module.__name__)
  for node in ast.walk(ast.parse(inspect.getsource(module))) if homes else ():
    if isinstance(node, ast.ImportFrom) and node.module:
      names = [alias.name for alias in node.names]
      names = list(vars(imported(node.module))) if names == ["*"] else names
      homes |= {name: node.module for name in names if name in homes}
  for name, home in homes.items():
    made = inspect.isroutine(getattr(module, name))  # a function of a table: it has a docstring of its own
    if home.startswith("tiny_") and not made and name in _unexplained(imported(home)):
      yield name


def _unexplained(module: ModuleType) -> set[str]:
  """The names that are assigned at the top of a module with no string behind."""
  body = ast.parse(inspect.getsource(module)).body
  assigned = [(node, after) for node, after in pairwise([*body, ast.Pass()]) if isinstance(node, ASSIGNMENTS)]
  return {name for node, after in assigned if not _is_string(after) for name in _targets(node)}


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
  targets = node.targets if isinstance(node, ast.Assign) else [node.target]
  return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_string(node: ast.AST) -> bool:
  return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def imported(name: str) -> ModuleType:
  """A module by name."""
  return importlib.import_module(name)


def _members(name: str, cls: type) -> Iterator[tuple[str, Any]]:
  for member in dir(cls):
    if member.startswith("_") or member in getattr(cls, "__dataclass_fields__", ()):
      continue  # a field's value is data, though it may be a function
    value = inspect.getattr_static(cls, member)
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    if inspect.isfunction(function) and _ours(function):
      documented = getattr(cls, member) if not isinstance(value, property) else value
      yield f"{name}.{member}", documented


def _home(value: Any) -> str:
  return getattr(value, "__module__", None) or ""


def _ours(value: Any) -> bool:
  return _home(value).startswith("tiny_")
