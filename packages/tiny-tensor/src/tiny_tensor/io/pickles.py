"""A reader of pickles that runs nothing: it makes containers, numbers and text, and what a table of functions allows.

`pickletools` (Python's own) reads the operations and their arguments; this file gives a meaning to those that data
needs. Nothing is imported, no attribute is set, no class is instantiated by name: a GLOBAL is a key of the table.

Time is linear in the bytes. Two things would make it quadratic, and have limits. Keys whose hashes a file can choose:
Python salts the hashes of text, not those of numbers and tuples. And values that are used again and again, of which
each use makes a copy: all that is copied may be a few times the bytes of the pickle.
"""

import pickletools
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from tiny_tensor.io.files import TensorIO, short


@dataclass(slots=True)
class Global:
  """A name that a pickle asks for, and what it stands for here: a function to call, or a value where it is none."""

  name: str
  value: Any


@dataclass
class Costly:
  """A function of the table of which some calls take long: `cost`, given the arguments, says how many bytes of a
  pickle take as long."""

  function: Callable[..., Any]
  cost: Callable[[tuple[Any, ...]], int]

  def __call__(self, *arguments: Any) -> Any:
    return self.function(*arguments)


class Stateful:
  """An object that a function of the table makes, and that gets its contents as a state. Containers get `finished`."""

  def set_state(self, state: Any) -> None:
    """Takes the state. ValueError for one that is none."""
    raise NotImplementedError

  def finished(self) -> Any:
    """The object that containers get."""
    return self


_MARK = object()  # the beginning of a group of operands on the stack
_NEW: dict[str, Callable[[], Any]] = {
  "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_LIST": list, "EMPTY_DICT": dict,
  "EMPTY_SET": set, "EMPTY_TUPLE": tuple,
}  # fmt: skip
_VALUES = {
  "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
  "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
  "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip


_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {"TUPLE": tuple, "LIST": list, "FROZENSET": frozenset}
_MADE: dict[str, Callable[..., Any]] = {
  "collections OrderedDict": OrderedDict, "builtins set": set, "__builtin__ set": set,
}  # fmt: skip
"""Containers of keys that are called by name. They may be in a table of names, too."""

_LONGEST = 512  # bytes of an integer: states of random generators have 16
_LONGEST_KEY = 64  # members of a tuple that is a key
_MOST_SPREAD = 1 << 16  # keys that are integers which do not count something, or pairs of small ones
_MOST_CHOSEN = 1 << 12  # keys of which a file can have as many with one hash as it likes
_NEAR = 1 << 16  # integers that count something are less than this, or than twice the count of keys before them
_FREE, _TIMES = 1 << 16, 4  # what may be copied: so much, and so many times the bytes
_CALL = 16  # what a call counts for besides what it copies


class PickleReader:
  """Reads one pickle from `file`, which is left behind its end.

  `names` has the globals that may occur, by "module name"; `persistent` makes the object of a persistent id, of which
  there are none where it is None.
  ValueError, with the offset in `file`, for everything else.
  """

  def __init__(
    self, file: TensorIO | BytesIO, names: Mapping[str, Any], persistent: Callable[[Any], Any] | None = None
  ) -> None:
    self.file, self.names, self.persistent = file, names, persistent
    self.stack: list[Any] = []
    self.memo: dict[int, Any] = {}
    self.begin = file.tell()
    self.copied = self.spread = self.chosen = 0

  def load(self) -> Any:
    """The object."""
    at, name = self.file.tell(), "the first operation"
    try:
      for opcode, argument, position in pickletools.genops(self.file):  # type: ignore[arg-type]  # it reads and tells
        at, name = position or 0, opcode.name
        if name == "STOP":
          break
        if type(argument) is int and argument.bit_length() > 8 * _LONGEST:
          raise ValueError(f"an integer of {argument.bit_length()} bits, expected {8 * _LONGEST} at most")
        self.step(name, argument)
      (result,) = self.stack
    except (
      IndexError, KeyError, TypeError, OverflowError, MemoryError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
      raise ValueError(f"{name} at byte {at} of the pickle does not fit: {type(error).__name__}: {error}") from None
    except ValueError as error:
      raise ValueError(f"{name} at byte {at} of the pickle: {error}") from None
    return _plain(result)

  def step(self, name: str, argument: Any) -> None:
    """One operation."""
    stack = self.stack
    if name in _VALUES:
      stack.append(argument)
    elif name in _NEW:
      stack.append(_NEW[name]())
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
      if not 0 <= argument <= 2 * len(self.memo) + 256:  # they are counted by who writes a pickle
        raise ValueError(f"place {argument} of the memo, which has {len(self.memo)}: expected the next one")
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
      if len(stack) < count:
        raise ValueError(f"it needs {count} operands")
      stack[-count:] = [tuple(_plain(v) for v in stack[-count:])]
    elif name in ("TUPLE", "LIST", "FROZENSET"):
      values = [_plain(v) for v in self.group()]
      stack.append(_COLLECTIONS[name](self.keys(values) if name == "FROZENSET" else values))
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
      self.target(set).update(self.keys(items, len(self.target(set))))
    elif name == "GLOBAL":
      stack.append(self.known(argument))
    elif name == "STACK_GLOBAL":
      attribute, module = stack.pop(), stack.pop()
      if not isinstance(attribute, str) or not isinstance(module, str):
        raise ValueError(f"it asks for {short(attribute)} of {short(module)}, expected two names")
      stack.append(self.known(f"{module} {attribute}"))
    elif name in ("BINPERSID", "PERSID"):
      if self.persistent is None:
        raise ValueError("there are no persistent ids in such files")
      stack.append(self.persistent(stack.pop() if name == "BINPERSID" else argument))
    elif name == "REDUCE":
      arguments, function = stack.pop(), stack.pop()
      stack.append(self.call(function, arguments))
    elif name == "BUILD":
      self.set_state(stack.pop())
    else:
      raise ValueError("this operation makes objects of classes, which no tensors need: the file is refused")

  def group(self) -> list[Any]:
    """The operands that were pushed since the last MARK."""
    start = next((i for i in reversed(range(len(self.stack))) if self.stack[i] is _MARK), None)
    if start is None:
      raise ValueError("there is no MARK before it")
    items = self.stack[start + 1 :]
    del self.stack[start:]
    return items

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
      made[self.key(key, len(made))] = _plain(value)

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
      self.spend((state,))
      made.set_state(state)
      return
    if not isinstance(made, OrderedDict) or not isinstance(state, dict) or state.keys() - {"_metadata"}:
      names = short(list(state)) if isinstance(state, dict) else type(state).__name__
      raise ValueError(f"it sets attributes ({names:.80}) of a {type(made).__name__}: the file is refused")
    for name, value in state.items():
      setattr(made, name, value)

  def call(self, function: Any, arguments: Any) -> Any:
    """The result of a function of the table."""
    if not isinstance(function, Global) or not callable(function.value):
      raise ValueError(f"it calls a {type(getattr(function, 'value', function)).__name__}")
    if not isinstance(arguments, tuple):
      raise ValueError(f"it calls {function.name!r} with a {type(arguments).__name__}, expected a tuple")
    self.spend(arguments, function.value.cost(arguments) if isinstance(function.value, Costly) else 0)
    kind = _MADE.get(function.name)
    if kind is None or kind is not function.value:
      return function.value(*arguments)
    if not arguments:
      return kind()
    (values,) = arguments
    if not isinstance(values, list):
      raise ValueError(f"{function.name!r} is to be made of a {type(values).__name__}, expected a list")
    if kind is set:
      return set(self.keys(values))
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in values):
      raise ValueError("an OrderedDict is to be made of something else than pairs")
    return OrderedDict(zip(self.keys([key for key, _ in values]), [value for _, value in values], strict=True))

  def spend(self, arguments: tuple[Any, ...], more: int = 0) -> None:
    """Counts what a call may copy: its arguments, and what is in them; and what else it takes."""
    parts = [v for v in arguments if isinstance(v, _SIZED)]
    inner = [v for part in parts if isinstance(part, (list, tuple)) for v in part if isinstance(v, _SIZED)]
    self.copied += more + _CALL + len(arguments) + sum(map(len, parts)) + sum(map(len, inner))
    limit = _FREE + _TIMES * (self.file.tell() - self.begin)
    if self.copied > limit:
      raise ValueError(f"it uses values again and again, {self.copied} bytes of them: expected {limit} up to here")

  def keys(self, values: list[Any], before: int = 0) -> list[Any]:
    """The values as keys of a container that has some already."""
    return [self.key(value, before + n) for n, value in enumerate(values)]

  def key(self, value: Any, before: int) -> Any:
    """A value that can be a key of a container that has so many: text, a number, or a tuple of them. Tuples only flat:
    hashing nested ones can take exponential time."""
    value = _plain(value)
    if isinstance(value, (str, bytes)) or value is None or value is True or value is False:
      return value
    if type(value) is int:
      if 0 <= value < max(_NEAR, 2 * before):
        return value
      self.count_key(spread=abs(value) < sys.hash_info.modulus)
    elif type(value) is float:
      self.count_key(spread=False)
    elif type(value) is tuple and len(value) <= _LONGEST_KEY and all(isinstance(v, _SIMPLE) for v in value):
      if not all(isinstance(v, (str, bytes)) for v in value):
        small = all(isinstance(v, (str, bytes)) or (type(v) is int and 0 <= v < _NEAR) for v in value)
        self.count_key(spread=small and len(value) <= 3)
    else:
      raise ValueError(
        f"a {type(value).__name__} is no key: expected text, numbers, or a tuple of {_LONGEST_KEY} of them at most"
      )
    return value

  def count_key(self, spread: bool) -> None:
    """Notes a key whose hash a file can choose, to a degree (`spread`) or quite freely."""
    self.spread, self.chosen = self.spread + spread, self.chosen + (not spread)
    if self.spread > _MOST_SPREAD or self.chosen > _MOST_CHOSEN:
      raise ValueError(
        f"more than {_MOST_SPREAD} keys are numbers that do not count something, or more than {_MOST_CHOSEN} are "
        "floats, large integers or tuples: they can be chosen so that finding each takes the time of all, use text"
      )


_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_SIMPLE = (str, bytes, int, float, type(None))


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
