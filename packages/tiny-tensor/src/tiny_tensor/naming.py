"""Arguments under two names: the system's, and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


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
