"""Values that are no tensors, as a `TinyJit` remembers them: by value where that can be told, else by identity."""

from typing import Any

from tiny_tensor.capturing import JitError
from tiny_uop import DType, dtypes
from tiny_uop.records import dataclass

PLAIN = (bool, int, float, complex, str, bytes, type(None), range)
"""Types that are compared by value."""


def same_value(a: Any, b: Any) -> bool:
  """Whether a graph made with `b` is that made with `a`: 0.0 and -0.0 differ, NaN and NaN do not, 1 and 1.0 do."""
  if a is b:
    return True
  if type(a) is not type(b) or not isinstance(a, PLAIN):
    return False
  return repr(a) == repr(b) if isinstance(a, (float, complex)) else bool(a == b)


def gradient_wish(requires_grad: bool | None, dtype: DType) -> bool | None:
  """`requires_grad` where it means something. What no gradient is for never has one, whether that is said or not: the
  integers that a function gives say so, those that a user makes do not."""
  return requires_grad if dtypes.is_float(dtype) else None


@dataclass(frozen=True, eq=False)
class Value:
  """A value, equal to those that are the same to a graph."""

  value: Any

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Value) and same_value(self.value, other.value)

  def __hash__(self) -> int:
    return hash(type(self.value))

  def __str__(self) -> str:
    return short(self.value)


@dataclass(frozen=True)
class Structure:
  """A container: its type and what leads to its parts."""

  kind: type
  parts: tuple[str, ...]

  def __str__(self) -> str:
    if not self.parts:
      return f"an empty {self.kind.__name__}"
    return f"a {self.kind.__name__} with {len(self.parts)} parts {', '.join(self.parts[:8])}"


@dataclass(frozen=True)
class Described:
  """A tensor: all of it that is part of a graph, `requires_grad` as `gradient_wish` has it. `view` is the graph of a
  symbolic view."""

  shape: tuple[Any, ...]
  dtype: str
  device: str
  requires_grad: bool | None
  has_grad: bool
  view: Any

  def __str__(self) -> str:
    viewed = "" if self.view is None else ", a symbolic view"
    grad = " and a gradient" if self.has_grad else ""
    return (
      f"a {self.dtype} tensor of shape {self.shape} on {self.device} with requires_grad={self.requires_grad}"
      f"{grad}{viewed}"
    )


@dataclass(frozen=True)
class Bound:
  """A variable: its name and bounds."""

  arg: tuple[Any, ...]

  def __str__(self) -> str:
    name, low, high = self.arg
    return f"the variable {name!r} in [{low}, {high}]"


def require(failure: str | None) -> None:
  """Raises JitError for a failure of a guard."""
  if failure is not None:
    raise JitError(failure)


def short(value: Any) -> str:
  """A value in an error."""
  text = repr(value)
  return text if len(text) <= 200 else f"{text[:200]}…"
