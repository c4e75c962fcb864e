"""A reader of pickles that runs nothing: it makes containers, numbers and text, and what a table of functions allows.

`pickletools` (Python's own) reads the operations and their arguments; this file gives a meaning to those that data
needs. Nothing is imported, no attribute is set, no class is instantiated by name: a GLOBAL is a key of the table.
"""

import pickletools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from tiny_tensor.nn.files import TensorIO


class _Mark:
  """Where a group of operands begins on the stack."""


class Global:
  """A name that a pickle asks for, and what it stands for here: a function to call, or a value where it is none."""

  __slots__ = ("name", "value")

  def __init__(self, name: str, value: Any) -> None:
    self.name, self.value = name, value


class Stateful:
  """An object that a function of the table makes, and that gets its contents as a state. Containers get `finished`."""

  def set_state(self, state: Any) -> None:
    """Takes the state. ValueError for one that is none."""
    raise NotImplementedError

  def finished(self) -> Any:
    """What it stands for."""
    return self


_MARK = _Mark()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
_VALUES = {
  "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
  "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
  "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip


def _frozen(values: list[Any]) -> frozenset[Any]:
  return frozenset(_key(v) for v in values)


_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {"TUPLE": tuple, "LIST": list, "FROZENSET": _frozen}


class PickleReader:
  """Reads one pickle from `file`, which is left behind its end.

  `names` has the globals that may occur, by "module name"; `persistent` makes the object of a persistent id.
  ValueError, with the offset in `file`, for everything else.
  """

  def __init__(self, file: TensorIO, names: Mapping[str, Any], persistent: Callable[[Any], Any]) -> None:
    self.file, self.names, self.persistent = file, names, persistent
    self.stack: list[Any] = []
    self.memo: dict[int, Any] = {}

  def load(self) -> Any:
    """The object."""
    at, name = self.file.tell(), "the first operation"
    try:
      for opcode, argument, position in pickletools.genops(self.file):  # type: ignore[arg-type]  # it reads and tells
        at, name = position or 0, opcode.name
        if name == "STOP":
          break
        self.step(name, argument)
      (result,) = self.stack
    except (IndexError, KeyError, TypeError, OverflowError, MemoryError, AttributeError) as error:
      raise ValueError(f"{name} at byte {at} of the pickle does not fit: {type(error).__name__}: {error}") from None
    except ValueError as error:
      raise ValueError(f"{name} at byte {at} of the pickle: {error}") from None
    return _plain(result)

  def step(self, name: str, argument: Any) -> None:
    """One operation."""
    stack = self.stack
    if name in _VALUES:
      stack.append(argument)
    elif name in _CONSTANTS:
      stack.append(_CONSTANTS[name])
    elif name in _EMPTY:
      stack.append(_EMPTY[name]())
    elif name in ("PROTO", "FRAME"):
      pass
    elif name == "MARK":
      stack.append(_MARK)
    elif name == "POP":
      stack.pop()
    elif name == "POP_MARK":
      self.group()
    elif name == "DUP":
      stack.append(stack[-1])
    elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
      self.memo[argument] = stack[-1]
    elif name == "MEMOIZE":
      self.memo[len(self.memo)] = stack[-1]
    elif name in ("GET", "BINGET", "LONG_BINGET"):
      stack.append(self.memo[argument])
    else:
      self.build(name, argument)

  def build(self, name: str, argument: Any) -> None:
    """An operation that makes an object of others."""
    stack = self.stack
    if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
      count = int(name[-1])
      self.need(count)
      stack[-count:] = [tuple(_plain(v) for v in stack[-count:])]
    elif name in ("TUPLE", "LIST", "FROZENSET"):
      stack.append(_COLLECTIONS[name]([_plain(v) for v in self.group()]))
    elif name == "DICT":
      items = self.group()
      stack.append({})
      self.set_items(items)
    elif name in ("APPEND", "APPENDS"):
      items = [stack.pop()] if name == "APPEND" else self.group()
      self.target(list).extend(_plain(v) for v in items)
    elif name in ("SETITEM", "SETITEMS"):
      items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self.group()
      self.set_items(items)
    elif name == "ADDITEMS":
      items = self.group()
      self.target(set).update(_key(v) for v in items)
    elif name == "GLOBAL":
      stack.append(self.known(argument))
    elif name == "STACK_GLOBAL":
      attribute, module = stack.pop(), stack.pop()
      stack.append(self.known(f"{module} {attribute}"))
    elif name in ("BINPERSID", "PERSID"):
      stack.append(self.persistent(stack.pop() if name == "BINPERSID" else argument))
    elif name == "REDUCE":
      arguments, function = stack.pop(), stack.pop()
      stack.append(_call(function, arguments))
    elif name == "BUILD":
      self.set_state(stack.pop())
    else:
      raise ValueError("this operation makes objects of classes, which no tensors need: the file is refused")

  def group(self) -> list[Any]:
    """What was pushed since the last MARK."""
    start = next((i for i in reversed(range(len(self.stack))) if self.stack[i] is _MARK), None)
    if start is None:
      raise ValueError("there is no MARK before it")
    items = self.stack[start + 1 :]
    del self.stack[start:]
    return items

  def need(self, count: int) -> None:
    """Checks that there are operands."""
    if len(self.stack) < count or any(v is _MARK for v in self.stack[-count:]):
      raise ValueError(f"it needs {count} operands")

  def target(self, kind: type) -> Any:
    """The container on top that items are added to."""
    if not isinstance(self.stack[-1], kind):
      raise ValueError(f"it adds to a {kind.__name__}, found a {type(self.stack[-1]).__name__}")
    return self.stack[-1]

  def set_items(self, items: list[Any]) -> None:
    """Keys and values in turn, for the dict on top."""
    if len(items) % 2:
      raise ValueError("a key has no value")
    made = self.target(dict)
    for key, value in zip(items[::2], items[1::2], strict=True):
      made[_key(key)] = _plain(value)

  def known(self, name: str) -> Global:
    """A global of the table."""
    if name not in self.names:
      raise ValueError(
        f"it asks for {name.replace(' ', '.', 1)!r}, which is none of the names that tensors and containers need; "
        "a file of untrusted origin is refused for it, a trusted one can be saved again as a state dict of tensors"
      )
    return Global(name, self.names[name])

  def set_state(self, state: Any) -> None:
    """Attributes: only the versions that PyTorch keeps with a state dict."""
    made = self.stack[-1]
    if isinstance(made, Stateful):
      made.set_state(state)
      return
    if not isinstance(made, OrderedDict) or not isinstance(state, dict) or state.keys() - {"_metadata"}:
      names = ", ".join(map(str, state)) if isinstance(state, dict) else type(state).__name__
      raise ValueError(f"it sets attributes ({names:.80}) of a {type(made).__name__}: the file is refused")
    for name, value in state.items():
      setattr(made, name, value)


def _plain(value: Any) -> Any:
  """A value that may be in a container: a function may not."""
  if isinstance(value, Global):
    if callable(value.value):
      raise ValueError(f"{value.name.replace(' ', '.', 1)!r} is used as a value")
    return value.value
  if value is _MARK:
    raise ValueError("a MARK is used as a value")
  if isinstance(value, Stateful):
    return value.finished()
  return value


def _key(value: Any) -> Any:
  """A value that can be a key. Tuples only flat: hashing nested ones can take exponential time."""
  value = _plain(value)
  parts = value if isinstance(value, tuple) else (value,)
  if not all(part is None or isinstance(part, (str, int, float, bytes)) for part in parts):
    raise ValueError(f"a {type(value).__name__} is no key: expected text, numbers, or a tuple of them")
  return value


def _call(function: Any, arguments: Any) -> Any:
  if not isinstance(function, Global) or not callable(function.value):
    raise ValueError(f"it calls a {type(getattr(function, 'value', function)).__name__}")
  if not isinstance(arguments, tuple):
    raise ValueError(f"it calls {function.name!r} with a {type(arguments).__name__}, expected a tuple")
  return function.value(*arguments)
