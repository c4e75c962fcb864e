"""Methods as rows of a table; arguments under two names: the system's, and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
T = TypeVar("T")


class _Row:
  """Stands for a method in the body of a class: `make` gives it, by its name."""

  def __init__(self, make: Callable[[str], Any]) -> None:
    self.make = make

  def __set_name__(self, owner: type, name: str) -> None:
    method = self.make(name)
    method.__name__, method.__qualname__ = name, f"{owner.__name__}.{name}"
    setattr(owner, name, method)


def unary(doc: str, function: Callable[[Any], Any]) -> Callable[[T], T]:
  """A method without arguments as a row: `deg2rad = unary("Degrees as radians.", lambda x: x * (math.pi / 180))`."""
  function.__doc__ = doc
  return cast("Callable[[T], T]", _Row(lambda name: function))


def by_name(make: Callable[[str], Any]) -> Any:
  """A method that `make` makes of its name, for several rows."""
  return _Row(make)


def known_as(**names: str) -> Callable[[F], F]:
  """`@known_as(dim="axis")`: callers may give the argument `axis` as `dim=`. Both are a TypeError.

  The method's `other_names` is `{"dim": "axis"}`.
  """

  def decorate(method: F) -> F:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
      if kwargs:
        for theirs, ours in names.items():
          if theirs in kwargs:
            if ours in kwargs:
              raise TypeError(f"{method.__name__}() got {ours!r} and {theirs!r}, which are names of the same argument")
            kwargs[ours] = kwargs.pop(theirs)
      return method(*args, **kwargs)

    call.other_names = names  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]

  return decorate


def methods_known_as(**names: str) -> Callable[[C], C]:
  """`known_as` for the public methods of a class that have such arguments."""

  def decorate(owner: C) -> C:
    for name, method in list(vars(owner).items()):
      if callable(method) and not name.startswith("_"):
        code = method.__code__
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if found := {theirs: ours for theirs, ours in names.items() if ours in arguments}:
          setattr(owner, name, known_as(**found)(method))
    return owner

  return decorate
