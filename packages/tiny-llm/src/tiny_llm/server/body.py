"""What a request's body says, checked field by field: each is honoured, or refused with its name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tiny_llm.sampling import SamplingOptions

__all__ = ["Body", "Refused", "parsed"]


class Refused(Exception):
  """A request that is answered with an error of OpenAI's form."""

  def __init__(
    self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None,
    kind: str = "invalid_request_error",
  ) -> None:  # fmt: skip
    super().__init__(message)
    self.status = status
    self.error = {"message": message, "type": kind, "param": param, "code": code}


def parsed(data: bytes) -> Body:
  """The body of a request: a JSON object, in which NaN and names that stand twice are refused."""

  def refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")

  def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(items)
    if len(made) != len(items):
      raise ValueError("a name stands twice in an object")
    return made

  try:
    value = json.loads(data, parse_constant=refuse, object_pairs_hook=pairs)
  except (ValueError, RecursionError) as error:
    raise Refused(f"the body is no JSON: {error}"[:300]) from None
  if not isinstance(value, dict):
    raise Refused(f"the body is a {type(value).__name__}: expected a JSON object")
  return Body(value)


LABELS = ("user", "safety_identifier", "prompt_cache_key", "metadata")
"""Fields that name a request for whoever reads logs, and mean nothing for its answer."""


class Body:
  """The fields of a body, each taken once; `done` refuses what nobody took."""

  def __init__(self, fields: Mapping[str, Any]) -> None:
    self._fields = {name: value for name, value in fields.items() if value is not None and name not in LABELS}

  def take(self, name: str, default: Any = None) -> Any:
    """The value of a field, whatever it is."""
    return self._fields.pop(name, default)

  def _checked(self, name: str, default: Any, fits: Callable[[Any], bool], expected: str) -> Any:
    value = self._fields.pop(name, None)
    if value is None:
      return default
    if not fits(value):
      raise Refused(f"{name} is {value!r:.60}: expected {expected}", name)
    return value

  def flag(self, name: str, default: bool = False) -> bool:
    return bool(self._checked(name, default, lambda v: isinstance(v, bool), "true or false"))

  def integer(self, name: str, default: int | None, least: int, most: int) -> int | None:
    def fits(value: Any) -> bool:
      return type(value) is int and least <= value <= most

    found: int | None = self._checked(name, default, fits, f"an integer from {least} to {most}")
    return found

  def number(self, name: str, least: float, most: float) -> float | None:
    def fits(value: Any) -> bool:
      return type(value) in (int, float) and math.isfinite(value) and least <= value <= most

    found: float | None = self._checked(name, None, fits, f"a number from {least:g} to {most:g}")
    return found

  def text(self, name: str, default: str | None = None) -> str | None:
    found: str | None = self._checked(name, default, lambda v: isinstance(v, str), "text")
    return found

  def texts(self, name: str, most: int) -> tuple[str, ...]:
    """Text, or a list of texts, none of them empty."""

    def fits(value: Any) -> bool:
      items = value if isinstance(value, list) else [value]
      return len(items) <= most and all(isinstance(item, str) and item for item in items)

    value = self._checked(name, [], fits, f"text, or a list of at most {most} texts, none of them empty")
    return tuple(value) if isinstance(value, list) else (value,)

  def neutral(self, **values: tuple[Any, ...]) -> None:
    """Fields that are not supported, and the values that ask for nothing."""
    for name, fine in values.items():
      value = self._fields.pop(name, None)
      if value is not None and not any(value == item and type(value) is type(item) for item in fine):
        raise Refused(f"{name} is {value!r:.60}: this server does not support it", name)

  def options(self, defaults: Mapping[str, Any]) -> SamplingOptions:
    """How tokens are drawn; the fields of OpenAI, and those that vLLM and llama.cpp add."""
    found: dict[str, Any] = {
      "temperature": self.number("temperature", 0, 100),
      "top_p": self.number("top_p", 0, 1),
      "min_p": self.number("min_p", 0, 1),
      "top_k": self.integer("top_k", None, -1, 1 << 31),
      "presence_penalty": self.number("presence_penalty", -100, 100),
      "frequency_penalty": self.number("frequency_penalty", -100, 100),
      "repeat_last_n": self.integer("repeat_last_n", None, -1, 1 << 31),
      "seed": self.integer("seed", None, -(1 << 63), (1 << 64) - 1),
    }
    names = [name for name in ("repeat_penalty", "repetition_penalty") if name in self._fields]
    if len(names) == 2:
      raise Refused("repeat_penalty and repetition_penalty are one thing: give one of them", names[1])
    found["repeat_penalty"] = self.number(names[0], 1e-3, 1e3) if names else None
    if found["top_k"] == -1:  # vLLM's word for all
      found["top_k"] = 0
    if found["seed"] is not None:
      found["seed"] %= 1 << 64
    bias = self.take("logit_bias")
    if bias is not None:
      found["logit_bias"] = _bias(bias)
    try:
      return SamplingOptions(**{**defaults, **{name: value for name, value in found.items() if value is not None}})
    except ValueError as error:
      raise Refused(str(error)) from None

  def done(self) -> None:
    """Refuses fields that were not taken: what is not understood is not ignored."""
    if self._fields:
      name = sorted(self._fields)[0]
      raise Refused(f"{name} is not a field that this server knows here", name)


def _bias(value: Any) -> dict[int, float]:
  def fits(token: Any, bias: Any) -> bool:
    return isinstance(token, str) and token.isdecimal() and len(token) < 10 and type(bias) in (int, float)

  if not isinstance(value, dict) or not all(fits(*item) and abs(item[1]) <= 100 for item in value.items()):
    raise Refused("logit_bias: expected an object of numbers from -100 to 100 by the number of a token", "logit_bias")
  # OpenAI: -100 means never
  return {int(token): -math.inf if bias == -100 else float(bias) for token, bias in value.items()}
