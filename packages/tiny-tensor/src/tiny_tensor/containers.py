"""Nested containers (lists, tuples, named tuples, dicts) as trees of leaves."""

from collections.abc import Callable, Iterator
from typing import Any


def leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
  """Everything in `tree` that is no container, each with the expression that leads to it: `("batch['x'][0]", leaf)`."""
  if isinstance(tree, dict):
    for key, value in tree.items():
      yield from leaves(value, f"{path}[{key!r}]")
  elif isinstance(tree, (list, tuple)):
    for i, value in enumerate(tree):
      yield from leaves(value, f"{path}[{i}]")
  else:
    yield path, tree


def rebuild(tree: Any, new: Callable[[Any], Any]) -> Any:
  """The same containers, with `new(leaf)` in place of each leaf, called in the order of `leaves`."""
  if isinstance(tree, dict):
    return type(tree)((key, rebuild(value, new)) for key, value in tree.items())
  if isinstance(tree, (list, tuple)):
    values = [rebuild(value, new) for value in tree]
    return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
  return new(tree)
