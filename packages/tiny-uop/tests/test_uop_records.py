"""Records are what `dataclasses.dataclass` would make of the same class, whatever is asked of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from tiny_uop import records


class _Fields:
  """A class before it is decorated."""

  name: str
  sizes: tuple[int, ...] = (1, 2)
  scale: float = 0.5

  @property
  def first(self) -> int:
    """Of the sizes."""
    return self.sizes[0]


def made(decorate: Any, options: dict[str, Any], **more: Any) -> Any:
  namespace = {k: v for k, v in vars(_Fields).items() if k not in ("__dict__", "__weakref__")}
  return decorate(**options)(type("Tile", (), namespace | more))


OPTIONS = [
  {"frozen": True},
  {"frozen": True, "eq": False},
  {"frozen": True, "slots": True},
  {"frozen": True, "slots": True, "eq": False},
  {"frozen": True, "order": True},
  {},
]


@pytest.fixture(params=OPTIONS, ids=str)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
  """The record, and what the standard library makes."""
  return made(records.dataclass, request.param), made(dataclasses.dataclass, request.param)


def outcome(f: Any) -> Any:
  try:
    return f()
  except Exception as error:
    return type(error), str(error)


def test_objects(pair: tuple[Any, Any]) -> None:
  def seen(kind: Any) -> list[Any]:
    a, b, other = kind("a"), kind("a", (1, 2), scale=0.5), kind("b", (3,))
    return [
      repr(other), a == b, a == other, a != b, a == ("a", (1, 2), 0.5), a.first, other.first,
      len({a, b}) if kind.__hash__ else 0,
      dataclasses.astuple(other), dataclasses.replace(a, name="c").name, copy.copy(other).sizes, hasattr(a, "__dict__"),
      outcome(lambda: setattr(a, "name", "z")), outcome(lambda: delattr(a, "name")), outcome(lambda: kind()),
      outcome(lambda: kind("a", nonsense=1))[0],
    ]  # fmt: skip

  record, standard = pair
  assert seen(record) == seen(standard)


def test_classes(pair: tuple[Any, Any]) -> None:
  def seen(kind: Any) -> list[Any]:
    return [
      str(inspect.signature(kind)), [f.name for f in dataclasses.fields(kind)], kind.__match_args__, kind.__doc__,
      dataclasses.is_dataclass(kind), kind.__init__.__qualname__, kind.__module__, kind.__hash__ is None,
      (params := kind.__dataclass_params__).frozen, params.eq, params.repr, params.init,
    ]  # fmt: skip

  record, standard = pair
  assert seen(record) == seen(standard)


def test_the_faster_way_is_taken() -> None:
  """Methods that all records share are those of `records`."""
  plain, ordered = (made(records.dataclass, options) for options in ({"frozen": True}, {"frozen": True, "order": True}))
  assert plain.__setattr__ is records.SHARED["__setattr__"]
  assert ordered.__setattr__ is not records.SHARED["__setattr__"]


def test_methods_of_its_own() -> None:
  """Are kept, as the standard library keeps them, and `__post_init__` is called."""

  def after(self: Any) -> None:
    object.__setattr__(self, "name", self.name.upper())

  kind = made(records.dataclass, {"frozen": True}, __post_init__=after, __repr__=lambda self: "shown")
  assert kind("a").name == "A" and repr(kind("a")) == "shown"
  kind = made(records.dataclass, {"frozen": True}, __eq__=lambda self, other: True)
  assert kind("a") == kind("b")


@records.dataclass(frozen=True)
class Point:
  """A record."""

  x: int
  items: list[int] = dataclasses.field(default_factory=list)


@records.dataclass(frozen=True, slots=True)
class Slotted:
  """A record with slots."""

  x: int
  y: int = 2


@records.dataclass(frozen=True)
class Special(Point):
  """One that inherits."""

  y: int = 3


def test_fields_that_are_special() -> None:
  assert Point(1) == Point(1, []) and Point(1).items is not Point(1).items
  assert Special(1, [], 4) != Special(1) and str(Special(1)) == "Special(x=1, items=[], y=3)"


def test_pickled() -> None:
  for value in (Slotted(1), Slotted(1, 5), Point(2), Special(2)):
    assert pickle.loads(pickle.dumps(value)) == value


def test_made_of_a_record() -> None:
  """A class that inherits from a record and is none itself may have more, as with the standard library."""

  class More(Point):
    pass

  more = More(1)
  more.note = "changes"  # type: ignore[attr-defined]
  with pytest.raises(dataclasses.FrozenInstanceError):
    more.x = 2  # type: ignore[misc]
