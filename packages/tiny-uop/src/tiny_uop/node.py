"""The node itself: five fields, hash-consed through weak references, with properties computed once per node."""

from __future__ import annotations

import struct
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]  # as weakref.WeakValueDictionary does
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload
from weakref import ref

from tiny_uop.dtype import DType, dtypes
from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

T = TypeVar("T")

_answers: set[str] = set()
"""Names under which nodes keep what was computed of them."""


class cached(Generic[T]):
  """A property of an immutable node, computed at first use and kept in the node."""

  def __init__(self, compute: Callable[[Any], T]) -> None:
    self.compute = compute
    self.__doc__ = compute.__doc__

  def __set_name__(self, owner: type, name: str) -> None:
    self.name = name
    _answers.add(name)

  @overload
  def __get__(self, node: None, owner: type) -> Self: ...
  @overload
  def __get__(self, node: object, owner: type) -> T: ...
  def __get__(self, node: object | None, owner: type) -> Self | T:
    if node is None:
      return self
    # a non-data descriptor: from now on the instance dictionary answers
    value = node.__dict__[self.name] = self.compute(node)
    return value


class recursive(cached[T]):
  """A cached property whose value depends on that of the sources; computed without recursion, so depth is no limit."""

  @overload
  def __get__(self, node: None, owner: type) -> Self: ...
  @overload
  def __get__(self, node: object, owner: type) -> T: ...
  def __get__(self, node: object | None, owner: type) -> Self | T:
    if node is None:
      return self
    name, compute = self.name, self.compute
    known = node.__dict__
    for s in node.src:  # type: ignore[attr-defined]  # a Node
      if name not in s.__dict__:
        break
    else:  # mostly the sources have been asked before
      found = known[name] = compute(node)
      return found
    stack: list[Any] = [node]
    while stack:
      top = stack[-1]
      known = top.__dict__
      if name in known:
        stack.pop()
        continue
      for s in top.src:
        if name not in s.__dict__:
          stack.append(s)
      if stack[-1] is top:
        known[name] = compute(top)
        stack.pop()
    found = node.__dict__.get(name, stack)  # in one look: another thread may call `forget`
    return compute(node) if found is stack else found


def kept(compute: Callable[[UOp], T]) -> Callable[[UOp], T]:
  """A function of a node whose result the node keeps, as `cached` for modules that are not the node's own. The result
  must not hold the node itself, which would never be freed then, and nobody may change it.
  """
  name = f"{compute.__module__}.{compute.__qualname__}"
  _answers.add(name)

  @wraps(compute)
  def known(node: UOp) -> T:
    values = node.__dict__
    found: Any = values.get(name, values)  # in one look: another thread may call `forget`
    if found is values:
      found = values[name] = compute(node)
    return found  # type: ignore[no-any-return]

  return known


def forget(node: UOp) -> None:
  """Drops what the nodes below this one keep of what was computed of them (`cached`, `kept`): it is computed anew.
  For graphs that live long and are hardly looked at any more: it takes more memory than the nodes."""
  for below in node._below:
    known = below.__dict__
    names = list(known)  # in one step: another thread may keep something meanwhile
    # a node inside of a loop is in no tensor's graph, so that no thread keeps anything of somebody else in it
    if known.get("_around") and _answers.issuperset(names):
      known.clear()
    else:
      for name in _answers.intersection(names):
        known.pop(name, None)


class _Entry(ref["Node"]):
  __slots__ = ("key",)
  key: tuple[Any, ...]


_nodes: dict[tuple[Any, ...], _Entry] = {}


def _forget(entry: Any) -> None:
  # the slot may already hold a younger node with the same fields, or get it between a look and a deletion
  _remove_dead_weakref(_nodes, entry.key)


def _arg_key(arg: Any) -> Any:
  """An argument as a dictionary key under which 1, 1.0 and True differ, as do 0.0 and -0.0, and NaN equals itself."""
  kind = type(arg)
  if kind is float:
    return (float, struct.pack("<d", arg) if arg == arg else "nan")
  if kind is bool:
    return (bool, arg)
  if kind is tuple:
    return tuple([a if type(a) is int else _arg_key(a) for a in arg])
  return arg


def live_nodes() -> int:
  """How many nodes are alive in this process."""
  return len(_nodes)


class Node:
  """Fields of a UOp. Building a node twice with the same fields gives the same object."""

  __slots__ = ("__dict__", "__weakref__", "arg", "dtype", "op", "src", "tag")
  op: Ops
  dtype: DType
  src: tuple[UOp, ...]
  arg: Any
  tag: Any

  def __new__(
    cls, op: Ops, dtype: DType = dtypes.void, src: tuple[UOp, ...] = (), arg: Any = None, tag: Any = None
  ) -> Self:
    key = (
      op,
      dtype,
      src,
      arg if arg is None or type(arg) is int else _arg_key(arg),
      tag if tag is None else _arg_key(tag),
    )
    if (entry := _nodes.get(key)) is not None and (found := entry()) is not None:
      return found  # type: ignore[return-value]  # one class is ever built
    self = _new_object(cls)
    _set_op(self, op)
    _set_dtype(self, dtype)
    _set_src(self, src)
    _set_arg(self, arg)
    _set_tag(self, tag)
    mine = _Entry(self, _forget)
    mine.key = key
    # two threads may get here at once: the first one's node stands
    while (other := _nodes.setdefault(key, mine)) is not mine:
      if (found := other()) is not None:
        return found  # type: ignore[return-value]
      _remove_dead_weakref(_nodes, key)
    return self

  def __setattr__(self, field: str, value: object) -> None:
    raise AttributeError(f"a UOp is immutable: cannot set {field!r}; use .replace({field}=...)")

  def __delattr__(self, field: str) -> None:
    raise AttributeError(f"a UOp is immutable: cannot delete {field!r}")

  def __copy__(self) -> Self:
    return self

  def __deepcopy__(self, memo: object) -> Self:
    return self

  def walk(self, gate: Callable[[UOp], bool] | None = None) -> Iterator[UOp]:
    """Every node of the graph once, sources before users; where `gate(node)` is false the walk does not go below."""
    seen: set[Any] = set()
    stack: list[Any] = [self]
    while stack:
      node = stack.pop()
      if node is None:  # the sources of the node below this mark have been given
        yield stack.pop()
      elif node not in seen:
        seen.add(node)
        if not node.src or (gate is not None and not gate(node)):
          yield node
        else:
          stack += (node, None)
          stack += [s for s in reversed(node.src) if s not in seen]

  @cached
  def _below(self) -> tuple[UOp, ...]:
    """Every node of the graph but this one: with it, the node would hold itself and never be freed."""
    found: dict[Any, None] = {}
    waiting: list[tuple[Any, Iterator[Any]]] = []  # nodes above, and those of their sources that are still to come
    node: Any = self
    sources = iter(self.src)
    while True:
      for s in sources:
        if s not in found:
          if s.src:
            waiting.append((node, sources))
            node, sources = s, iter(s.src)
            break
          found[s] = None
      else:
        if not waiting:
          return tuple(found)
        found[node] = None
        node, sources = waiting.pop()

  @property
  def toposort(self) -> tuple[UOp, ...]:
    """Every node of the graph once, sources before users, this node last; kept in the node."""
    return (*self._below, self)  # type: ignore[arg-type]  # every Node is a UOp


_new_object = object.__new__
# a slot's own setter: `Node.__setattr__` refuses, and `object.__setattr__` looks the name up
_set_op, _set_dtype, _set_src, _set_arg, _set_tag = (
  vars(Node)[field].__set__ for field in ("op", "dtype", "src", "arg", "tag")
)
