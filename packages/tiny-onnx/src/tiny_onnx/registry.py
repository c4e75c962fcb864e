"""Which function computes which operator: one table, filled by the modules in `tiny_onnx.ops`.

`@op("Softmax", since=13)` says that a function computes ai.onnx's Softmax from version 13 on, until a row with a later
version. Versions are those of the schemas: of the model's opset, the schema that holds there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tiny_onnx.errors import ModelError

if TYPE_CHECKING:
  from tiny_onnx.graph import Graph, Run, Scope

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
V = TypeVar("V")

ONNX, TRAINING = "", "ai.onnx.preview.training"


@dataclass(frozen=True)
class Implementation:
  """A row of the table.

  `function(call, *inputs)` gets tensors, and None for inputs that are left out; with `raw` it gets any values as they
  are. `host`, where there is one, computes on arrays what is known before anything runs. `moves` says that the operator
  only moves elements, so that what it does to codes of narrow numbers it does to the numbers.
  """

  since: int
  function: Callable[..., Any]
  host: Callable[..., Any] | None = None
  moves: bool = False
  raw: bool = False
  needs: frozenset[int] = frozenset()
  """Inputs whose values, not only shapes, the implementation looks at: by their places."""
  random: bool = False
  scoped: bool = False
  """Whether the implementation looks at other values of the graph, by `call.scope`."""


REGISTRY: dict[tuple[str, str], list[Implementation]] = {}
"""(domain, operator) → implementations by rising version."""


def op(
  name: str,
  since: int = 1,
  *,
  domain: str = ONNX,
  host: Callable[..., Any] | None = None,
  moves: bool = False,
  raw: bool = False,
  needs: tuple[int, ...] = (),
  random: bool = False,
  scoped: bool = False,
) -> Callable[[F], F]:
  """Registers the decorated function as the implementation of an operator from version `since` of its schema on."""

  def register(function: F) -> F:
    rows = REGISTRY.setdefault((domain, name), [])
    rows.append(Implementation(since, function, host, moves, raw, frozenset(needs), random, scoped))
    rows.sort(key=lambda row: row.since)
    return function

  return register


def find(domain: str, name: str, version: int) -> Implementation | None:
  """The implementation of a version of an operator, None if there is none."""
  rows = REGISTRY.get((domain, name), [])
  place = bisect_right([row.since for row in rows], version)
  return rows[place - 1] if place else None


@dataclass
class Call:
  """What an implementation knows of the node that it computes, besides its inputs."""

  name: str
  op_type: str
  domain: str
  version: int
  attributes: dict[str, Any]
  outputs: tuple[str, ...]
  """Names of the outputs; "" for one that nothing takes."""
  graphs: dict[str, Graph] = field(default_factory=dict)
  run: Run | None = None
  scope: Scope | None = None

  def __getitem__(self, name: str) -> Any:
    """An attribute, its default where the node does not say. None where there is no default either."""
    return self.attributes.get(name)

  def get(self, name: str, default: Any) -> Any:
    """An attribute, `default` where neither the node nor the schema says. Raises ModelError for one of another type
    than the default's: operators without a schema have nothing else that says it."""
    found = self.attributes.get(name)
    if found is None or default is None:
      return default if found is None else found
    if isinstance(default, (list, tuple)):
      item = next((type(x) for x in default if isinstance(x, (int, float, str))), object)
      fits = isinstance(found, list) and all(_is(x, item) for x in found)
    else:
      fits = _is(found, type(default))
    if not fits:
      raise ModelError(f"attribute {name!r} is {found!r}, expected one like {default!r}")
    return found

  def given(self, name: str, kind: type[V]) -> V | None:
    """An attribute of this type, None where the node does not say. Raises ModelError for one of another type."""
    found = self.attributes.get(name)
    if found is not None and not _is(found, kind):
      raise ModelError(f"attribute {name!r} is {found!r}, expected {kind.__name__}")
    return found

  def need(self, name: str, kind: type[V]) -> V:
    """An attribute of this type. Raises ModelError where there is none."""
    found = self.given(name, kind)
    if found is None:
      raise ModelError(f"attribute {name!r} is missing: {kind.__name__} expected")
    return found

  def choice(self, name: str, known: Mapping[K, V], default: K | None = None) -> V:
    """What an attribute, one of few words or numbers, stands for. Raises ModelError for any other."""
    found = self.get(name, default)
    if found not in known:
      raise ModelError(f"attribute {name!r} is {found!r}, expected one of {', '.join(map(repr, known))}")
    return known[found]

  def wants(self, place: int) -> bool:
    """Whether the output at this place is taken."""
    return place < len(self.outputs) and bool(self.outputs[place])


def _is(found: Any, kind: type) -> bool:
  return isinstance(found, (int, float) if kind is float else int if kind is bool else kind)
