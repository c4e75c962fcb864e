"""Arguments under two names: the system's, and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


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
