"""The guard of names: globals, closure cells and attributes that a function's code reads, with their values.

The names are read from the bytecode (`dis`), in the function, in functions and lambdas in it, and, breadth first, in
the Python functions, methods, properties and callable objects to which these names lead. Chains of attributes count, as
in `model.scale`, and the contents of lists, tuples and dicts so reached. Values are those after the captured call.

Not seen are names reached through a local variable, an argument, a subscript or `getattr`; attributes in `__slots__`;
names that C code, the standard library or our other packages read; and all beyond the first `MOST`.

Only `guards` imports this file. Where it is left out, TinyJit works without this guard.
"""

import builtins
import dis
import functools
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from tiny_tensor.jit.values import PLAIN, same_value, short
from tiny_tensor.tensor import Tensor
from tiny_uop import UOp

MOST = 512
"""The most names that a replay looks at: each takes some 15 ns."""

_ABSENT = object()
_FRONTEND = ("tiny_tensor", "tiny_sched", "tiny_runtime", "tiny_uop")
_ROOTS = {"LOAD_GLOBAL": "global", "LOAD_NAME": "global", "LOAD_DEREF": "cell", "LOAD_CLASSDEREF": "cell"}
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


class Names:
  """The names that one function reads, with their values. In slots: `get_state_dict` must not find weights here."""

  __slots__ = ("_contents", "_entries", "_queue", "_seen", "same")

  catches: ClassVar[str] = (
    "a global, closure cell, attribute of these or of `self`, or an element of a list or dict so reached, that the "
    "function or Python code that it calls reads by name, the nearest 512 of them"
  )

  def __init__(self, fxn: Any, bound: Any = None) -> None:
    """Of `fxn`, or of it as a method of `bound`."""
    self._entries: list[tuple[Mapping[str, Any] | types.CellType, str, Any, str]] = []
    """(namespace or closure cell, name in it, value, path) of each name."""
    self._contents: list[tuple[Any, tuple[Any, ...], str]] = []
    self._seen: set[tuple[int, Any]] = set()
    self._queue: deque[Callable[[], None]] = deque()
    if bound is None:
      self._enter(fxn, "")
    else:
      self._enter_function(fxn, bound, "self")
    while self._queue and len(self._entries) < MOST:
      self._queue.popleft()()
    self._queue.clear()
    self._seen.clear()
    self.same: Callable[[], bool] = self._compile()
    """Whether every name stands for the same object. If it does not, `failure` tells if that matters."""

  def _compile(self) -> Callable[[], bool]:
    """All comparisons as one expression: they are a part of every replay, and a loop would take three times as long."""
    known: dict[str, Any] = {"all": all, "len": len, "map": map, "is_": operator.is_, "content": _content}
    tests = []

    def constant(value: Any) -> str:
      known[name := f"k{len(known)}"] = value
      return name

    for namespace, name, value, _ in self._entries:
      where = constant(namespace)
      if isinstance(namespace, types.CellType):
        content = f"content({where})" if value is _ABSENT else f"{where}.cell_contents"
        tests.append(f"{content} is {constant(value)}")
      else:
        tests.append(f"{name!r} not in {where}" if value is _ABSENT else f"{where}[{name!r}] is {constant(value)}")
    for container, values, _ in self._contents:
      where = constant(container)
      tests.append(f"len({where}) == {constant(len(container))}")
      if isinstance(container, dict):
        tests.append(f"all(map(is_, {where}, {constant(values[::2])}))")
        tests.append(f"all(map(is_, {where}.values(), {constant(values[1::2])}))")
      else:
        tests.append(f"all(map(is_, {where}, {constant(values)}))")
    # KeyError: a name is gone; ValueError: a cell is empty; RuntimeError: a dict grows in another thread
    text = f"def same():\n  try:\n    return {' and '.join(tests) or True}\n"
    exec(text + "  except (KeyError, ValueError, RuntimeError):\n    return False\n", known)
    made: Callable[[], bool] = known["same"]
    return made

  def failure(self, call: None = None) -> str | None:
    """The message for the first name that has changed."""
    if (what := self._change()) is None:
      return None
    return (
      f"{what} when TinyJit captured the function, which reads it: pass it as an argument, as a Tensor if it "
      "changes, or reset() the TinyJit"
    )

  def _change(self) -> str | None:
    """The first change in words; None if there is none."""
    for namespace, name, value, path in self._entries:
      if (now := _look_up(namespace, name)) is not value and not same_value(now, value):
        return _changed(path, now, value)
    for container, values, path in self._contents:
      found = _flat(container)
      if len(found) == len(values) and all(map(operator.is_, found, values)):
        continue
      for now, value in zip(found, values, strict=False):
        if not same_value(now, value):
          return _changed(f"an element of {path}", now, value)
      if len(found) != len(values):
        return f"{path} has {len(container)} elements, which is not what it had"
    return None

  def path_of(self, tensors: Iterable[Tensor]) -> str | None:
    """The name under which one of some tensors is read, if it is."""
    wanted = {id(t) for t in tensors}
    named = [(value, path) for _, _, value, path in self._entries]
    named += [(value, f"an element of {path}") for _, values, path in self._contents for value in values]
    return next((path for value, path in named if id(value) in wanted), None)

  # *** finding them ***

  def _enter(self, value: Any, path: str) -> None:
    """Notes what `value`, found at `path`, reads when it is called, and what it contains."""
    if isinstance(value, (Tensor, UOp, types.ModuleType, type)) or isinstance(value, PLAIN):
      return
    if isinstance(value, (list, tuple, dict)):
      if (id(value), None) in self._seen:
        return
      self._seen.add((id(value), None))
      self._contents.append((value, tuple(_flat(value)), path))
      for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        self._queue.append(functools.partial(self._enter, item, f"{path}[{key!r}]"))
    elif isinstance(value, functools.partial):
      if value.args and isinstance(value.func, types.FunctionType):
        self._enter_function(value.func, value.args[0], f"{path}.args[0]".lstrip("."))
      for part, name in ((value.func, "func"), (value.args, "args"), (value.keywords, "keywords")):
        self._enter(part, f"{path}.{name}")
    elif isinstance(value, types.MethodType):
      self._enter_function(value.__func__, value.__self__, path.rpartition(".")[0] or "self")
    elif isinstance(value, types.FunctionType):
      self._enter_function(value, None, path)
    elif isinstance(call := (_holder(type(value), "__call__") or {}).get("__call__"), types.FunctionType):
      inner = getattr(value, "fxn", None) if type(value).__module__.startswith(_FRONTEND) else None
      if inner is not None:  # a TinyJit
        self._enter(inner, path)
      else:
        self._enter_function(call, value, path)

  def _enter_function(self, fxn: Any, bound: Any, path: str) -> None:
    """Notes what a function reads; as a method, of `bound`, found at `path`."""
    if not isinstance(fxn, types.FunctionType) or not _is_followed(fxn.__module__ or ""):
      return
    if fxn.__globals__.get("__name__") == "tiny_tensor.origins":  # what says where a layer's graph comes from
      fxn = getattr(fxn, "__wrapped__", fxn)
    if (id(fxn.__code__), id(bound)) in self._seen:
      return
    self._seen.add((id(fxn.__code__), id(bound)))
    code = fxn.__code__
    cells = dict(zip(code.co_freevars, fxn.__closure__ or (), strict=True))
    me = code.co_varnames[0] if bound is not None and code.co_argcount else None
    for kind, names in _chains(code):
      first, *attributes = names
      where, value = first, bound
      if first == me and kind != "global":
        where = path
      elif kind == "global" and (first in fxn.__globals__ or not hasattr(builtins, first)):
        value = self._note(fxn.__globals__, first, first)
      elif kind == "cell" and first in cells:
        value = self._note(cells[first], first, first)
      else:
        continue
      self._queue.append(functools.partial(self._follow, value, attributes, where))

  def _note(self, namespace: Mapping[str, Any] | types.CellType, name: str, path: str) -> Any:
    """Notes one name in a namespace or a closure cell, and gives its value."""
    value = _look_up(namespace, name)
    if (id(namespace), name) not in self._seen:
      self._seen.add((id(namespace), name))
      self._entries.append((namespace, name, value, path))
    return value

  def _follow(self, value: Any, attributes: list[str], path: str) -> None:
    """Notes a chain of attributes of `value`, found at `path`, and enters what it leads to."""
    for name in attributes:
      if _is_of_frontend(value) or isinstance(value, PLAIN):
        return
      own = getattr(value, "__dict__", None)
      path = f"{path}.{name}"
      if isinstance(own, (dict, types.MappingProxyType)) and name in own:
        value = self._note(own, name, path)
        continue
      if (shared := _holder(value if isinstance(value, type) else type(value), name)) is None:
        return
      found = shared[name]
      if isinstance(found, property):
        return self._enter_function(found.fget, value, path.rpartition(".")[0])
      if isinstance(found, types.FunctionType):
        return self._enter_function(found, value, path.rpartition(".")[0])
      if hasattr(type(found), "__get__"):
        return
      if isinstance(own, dict):
        self._note(own, name, path)  # one of its own would hide that of the class
      value = self._note(shared, name, path)
    self._enter(value, path)


def _chains(code: types.CodeType) -> Iterator[tuple[str, list[str]]]:
  """The (kind of the first name, names) that code loads one from the other, also in functions inside of it."""
  chain: tuple[str, list[str]] | None = None
  for instruction in dis.get_instructions(code):
    name, value = instruction.opname, instruction.argval
    if name in _ATTRIBUTES and chain is not None:
      chain[1].append(value)
      continue
    if name in ("CACHE", "PUSH_NULL", "EXTENDED_ARG"):
      continue
    if chain is not None:
      yield chain
    last = value[-1] if isinstance(value, tuple) and value else value  # two loads in one instruction
    if name in _ROOTS:
      chain = (_ROOTS[name], [value])
    elif name.startswith("LOAD_FAST") and isinstance(last, str):
      chain = ("local", [last])
    else:
      chain = None
  if chain is not None:
    yield chain
  for constant in code.co_consts:
    if isinstance(constant, types.CodeType):
      yield from _chains(constant)


def _is_followed(module: str) -> bool:
  """Whether functions of a module are looked into: not those of the standard library, nor of the frontend but nn."""
  top = module.partition(".")[0]
  if top in _FRONTEND:
    return module.startswith("tiny_tensor.nn")
  return top == "__main__" or top not in sys.stdlib_module_names


def _is_of_frontend(value: Any) -> bool:
  """Whether a value is a module, class or tensor of the frontend, or a tensor."""
  if isinstance(value, (Tensor, UOp)):
    return True
  module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "")
  return isinstance(value, (types.ModuleType, type)) and str(module).partition(".")[0] in _FRONTEND


def _holder(kind: type, name: str) -> Mapping[str, Any] | None:
  """The attributes of the first class of a family that has one of a name; None if none has."""
  return next((vars(c) for c in kind.__mro__ if name in vars(c)), None)


def _flat(container: Any) -> Any:
  """The elements of a list, tuple or dict, as a list or tuple."""
  return [item for pair in container.items() for item in pair] if isinstance(container, dict) else container


def _look_up(namespace: Mapping[str, Any] | types.CellType, name: str) -> Any:
  return _content(namespace) if isinstance(namespace, types.CellType) else namespace.get(name, _ABSENT)


def _content(cell: types.CellType) -> Any:
  try:
    return cell.cell_contents
  except ValueError:  # a name that is not bound yet
    return _ABSENT


def _changed(path: str, now: Any, before: Any) -> str:
  is_now, was = ("absent" if v is _ABSENT else short(v) for v in (now, before))
  if is_now == was or isinstance(now, Tensor) or isinstance(before, Tensor):
    return f"{path} is another {type(now).__name__}, {is_now}; it was {was}"
  return f"{path} is {is_now}, it was {was}"
