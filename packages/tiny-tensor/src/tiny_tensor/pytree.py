"""Nested containers (lists, tuples, named tuples, dicts, dataclasses) as trees of leaves."""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


def parts(tree: Any) -> dict[str, Any] | None:
  """What a container holds, each with the expression that leads there from the container; None for a leaf."""
  if isinstance(tree, dict):
    return {f"[{key!r}]": value for key, value in tree.items()}
  if isinstance(tree, (list, tuple)):
    return {f"[{i}]": value for i, value in enumerate(tree)}
  if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
    return {f".{field.name}": getattr(tree, field.name) for field in dataclasses.fields(tree)}
  return None


def nodes(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
  """`tree` and all that is in it, containers before their parts, each with its path: `("batch['x'][0]", value)`."""
  yield path, tree
  for name, value in (parts(tree) or {}).items():
    yield from nodes(value, path + name)


def leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
  """Everything in `tree` that is no container, with its path."""
  return ((p, value) for p, value in nodes(tree, path) if parts(value) is None)


def rebuild(tree: Any, new: Callable[[Any], Any]) -> Any:
  """The same containers, with `new(leaf)` in place of each leaf, called in the order of `leaves`."""
  if isinstance(tree, dict):
    values = {key: rebuild(value, new) for key, value in tree.items()}
    if type(tree) is dict:
      return values
    made = copy.copy(tree)  # a subclass: its constructor may take anything
    made.update(values)
    return made
  if isinstance(tree, (list, tuple)):
    items = [rebuild(value, new) for value in tree]
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
  if parts(tree) is not None:
    made = copy.copy(tree)
    for field in dataclasses.fields(tree):
      object.__setattr__(made, field.name, rebuild(getattr(tree, field.name), new))  # also of a frozen one
    return made
  return new(tree)


def refilled(tree: Any, values: Iterable[Any]) -> Any:
  """The same containers with these values in place of the leaves, in their order."""
  rest = iter(values)
  return rebuild(tree, lambda _: next(rest))


def children_of(obj: object) -> Iterator[tuple[str, object]]:
  """The named parts of a container or of any object with attributes, as they are now: they may change meanwhile."""
  if isinstance(obj, Mapping):
    yield from ((str(name), value) for name, value in tuple(obj.items()))
  elif isinstance(obj, tuple) and hasattr(obj, "_asdict"):
    yield from obj._asdict().items()
  elif isinstance(obj, (list, tuple)):
    yield from ((str(i), value) for i, value in enumerate(obj))
  elif not isinstance(obj, type) and isinstance(held := getattr(obj, "__dict__", None), dict):  # cffi's is a function
    yield from tuple(held.items())
