"""Marks the graphs of tensors with the line and the module that asks for them: see `tiny_uop.origins`.

The line is the innermost one outside of our packages. The module is the object whose method that line is in, or the
layer of `nn` that it calls, under the name of the variable with the model, and of the attributes that lead on from
there. Stacks are walked where a user's line begins something, and not for every node: in a layer, an optimiser or a
`backward()` only what comes out and what is assigned is marked, and what is only there for it is of it too.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from sys import getrefcount
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar, cast

from tiny_tensor.pytree import children_of
from tiny_uop import UOp
from tiny_uop.origins import MARK, Mark, Phase, recording, set_mark

_Call = TypeVar("_Call", bound=Callable[..., Any])
OPTIMIZED = 1
"""In `co_flags`: a function, whose variables are no dict."""
NOBODY_ELSE = 4
"""References to the variables of a frame: its own, two here, and that of the question."""
MOST_OBJECTS = 100_000
"""Objects of a model that are given names."""
LONG = 1000
"""Entries from which on a list or dict that begins with a number or a text is data: a vocabulary takes long to walk."""
NO_PARTS = (ModuleType, type, FunctionType, BuiltinFunctionType, MethodType)
"""Objects with attributes that belong to the program and not to the object that holds them."""


class _Here(threading.local):
  mark: Mark | None = None
  """Of what is built now; None: of the line that it is built by."""


here = _Here()


class _Ours(dict[str, bool]):
  """File name → whether it is of our packages."""

  def __missing__(self, name: str) -> bool:
    packages = [sys.modules.get(name) for name in ("tiny_tensor", "tiny_sched", "tiny_runtime", "tiny_uop")]
    homes = tuple([os.path.dirname(os.path.abspath(p.__file__ or "")) + os.sep for p in packages if p is not None])
    found = self[name] = os.path.abspath(name).startswith(homes) or name.startswith("<frozen ")
    return found


_ours = _Ours()


def mark(uop: UOp) -> None:
  """Mark a node that a method of a tensor has made, if it has no mark. Called where `recording.wanted`."""
  if MARK not in uop.__dict__ and (made := here.mark or caller(2)) is not None:
    set_mark(uop, made)


def mark_all(results: object) -> None:
  """Mark what a layer gives: a tensor, or several."""
  if isinstance(results, (tuple, list)):
    for result in results:
      mark_all(result)
  elif isinstance(uop := getattr(results, "uop", None), UOp):
    mark(uop)


def caller(depth: int) -> Mark | None:
  """The line of the user that calls, from so many frames up on; None where all of the program is ours."""
  frame = users_frame(sys._getframe(depth))
  return None if frame is None else Mark.at(frame.f_code, frame.f_lasti, module_of_frame(frame))


def users_frame(frame: FrameType | None) -> FrameType | None:
  """The innermost frame that is not of our packages."""
  ours = _ours
  while frame is not None and ours[frame.f_code.co_filename]:
    frame = frame.f_back
  return frame


@contextmanager
def marked(mark: Mark | None) -> Iterator[None]:
  """What this thread builds in the block has the mark."""
  before, here.mark = here.mark, mark
  try:
    yield
  finally:
    here.mark = before


def phase(name: Phase) -> Callable[[_Call], _Call]:
  """A decorator: what the function builds is of a phase, and comes from the line that calls it."""

  def decorated(function: _Call) -> _Call:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
      if not recording.wanted:
        return function(*args, **kwargs)
      where = here.mark or caller(2)
      with marked(where and where.of(name)):
        return function(*args, **kwargs)

    return cast(_Call, call)

  return decorated


def layer(call: _Call) -> _Call:
  """A decorator of the `__call__` of a layer: what it builds is of that module, and comes from the user's line."""

  @wraps(call)
  def called(self: Any, *args: Any, **kwargs: Any) -> Any:
    if not recording.wanted:
      return call(self, *args, **kwargs)
    place = here.mark
    if place is None and (frame := users_frame(sys._getframe(1))) is not None:
      place = Mark.at(frame.f_code, frame.f_lasti)
    if place is not None:
      name = path_of(self, sys._getframe(1))
      place = Mark.at(place.code, place.instruction, name or place.module, place.phase)
    with marked(place):
      result = call(self, *args, **kwargs)
      mark_all(result)
    return result

  return cast(_Call, called)


# *** names of modules ***


_paths: dict[int, tuple[weakref.ref[Any], str]] = {}
"""Of an object by its id, with which it goes."""


def module_of_frame(frame: FrameType) -> str:
  """The module whose method a frame runs; empty for a function."""
  if (found := self_of(frame)) is None:
    return ""
  return path_of(found, frame)


def self_of(frame: FrameType) -> object:
  """The object whose method a frame runs; None for a function, and for an object that is not made yet."""
  code = frame.f_code
  if not code.co_argcount or code.co_varnames[0] != "self" or code.co_name == "__init__":
    return None
  with variables(frame) as names:
    return names.get("self")


@contextmanager
def variables(frame: FrameType) -> Iterator[Mapping[str, Any]]:
  """The local variables of a frame. Python before 3.13 copies them to a dict that the frame keeps, and with it what the
  program deletes: it is emptied, unless the program has it too (`locals()`)."""
  names = frame.f_locals
  try:
    yield names
  finally:
    if type(names) is dict and frame.f_code.co_flags & OPTIMIZED and getrefcount(names) <= NOBODY_ELSE:
      names.clear()


def path_of(value: object, frame: FrameType) -> str:
  """The name of an object by way of the outermost one that it belongs to, whose method one of the frames runs; empty
  where an object on the way cannot be looked through: a program is not to fail for want of a name."""
  try:
    return _path_of(value, frame)
  except Exception:
    return ""


def _path_of(value: object, frame: FrameType) -> str:
  known = _paths.get(id(value))
  if known is not None and known[0]() is value:
    return known[1]
  objects: list[tuple[object, FrameType]] = []
  theirs = _installed(frame.f_code.co_filename)
  above: FrameType | None = frame
  while above is not None and _installed(above.f_code.co_filename) <= theirs:  # not what runs a user's program
    if (found := self_of(above)) is not None:
      objects.append((found, above))
    above = above.f_back
  for root, called in reversed(objects):
    if root is value or holds(root, value):
      name_all(root, variable_of(root, called.f_back))
      known = _paths.get(id(value))
      return known[1] if known is not None and known[0]() is value else ""
  name_all(value, variable_of(value, frame.f_back))
  known = _paths.get(id(value))
  return known[1] if known is not None and known[0]() is value else ""


@cache
def _installed(name: str) -> bool:
  """Whether a file is a library's, but for ours."""
  return not _ours[name] and ("site-packages" in name or name.startswith((os.path.dirname(os.__file__), "<frozen ")))


def variable_of(value: object, frame: FrameType | None) -> str:
  """The name of a variable that holds an object, in the user's function that calls it or in his module; that of its
  class where there is none."""
  frame = users_frame(frame)
  if frame is not None:
    with variables(frame) as local:
      for name, held in (*local.items(), *frame.f_globals.items()):
        if held is value and name != "self" and not name.startswith("_"):
          return str(name)
  return type(value).__name__


def objects_below(root: object, name: str) -> Iterator[tuple[str, object]]:
  """The objects with attributes that an object holds, itself among them, each once, with paths; nearest first."""
  seen = {id(root)}
  queue: list[tuple[str, object]] = [(name, root)]
  for path, value in queue:
    yield path, value
    if len(seen) > MOST_OBJECTS or isinstance(value, UOp) or is_data(value):
      continue
    for part, child in children_of(value):
      if id(child) in seen or isinstance(child, NO_PARTS):
        continue
      if hasattr(child, "__dict__") or isinstance(child, (list, tuple, dict)):
        seen.add(id(child))
        queue.append((f"{path}.{part}", child))


def is_data(value: object) -> bool:
  """Whether a container is long and of numbers or texts, as its first entry says."""
  if not isinstance(value, (list, tuple, dict)) or len(value) < LONG:
    return False
  return isinstance(next(iter(value.values() if isinstance(value, dict) else value)), (str, bytes, int, float))


def holds(root: object, value: object) -> bool:
  """Whether an object can be reached from another by attributes and containers."""
  return any(found is value for _, found in objects_below(root, ""))


def name_all(root: object, name: str) -> None:
  """Name an object and what it holds, but what has a name."""
  for path, value in objects_below(root, name):
    known = _paths.get(id(value))
    if known is not None and known[0]() is value:
      continue
    try:
      _paths[id(value)] = weakref.ref(value, _forget(id(value))), path
    except TypeError:  # lists and the like are on the way only
      continue


def _forget(number: int) -> Callable[[weakref.ref[Any]], None]:
  def gone(reference: weakref.ref[Any]) -> None:
    if (known := _paths.get(number)) is not None and known[0] is reference:
      del _paths[number]

  return gone
