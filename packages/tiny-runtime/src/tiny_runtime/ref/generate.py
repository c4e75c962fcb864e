"""A kernel-level SINK → a Python function that computes it.

Where a value is computed follows from the loops it is inside of (`UOp.ranges`) alone: as far out as these allow. So
each open loop is a scope with its own lines and its own names, and a node belongs to the innermost scope among the
loops in its ranges. Nothing here optimises.

The LOCAL loops of a workgroup are one scope. Where there is a BARRIER in it, its body becomes a generator function that
yields at each, and all threads of the workgroup run from one to the next (workgroup.py); else they are plain loops.

The text is generated from node types, numbers and counters only; no name that a kernel brings along gets into it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from itertools import count
from typing import Any, NoReturn
from weakref import finalize

from tiny_runtime.ref.expressions import constant, expression, identity, is_supported
from tiny_runtime.ref.memory import decode, encode, is_native, new_array
from tiny_runtime.ref.workgroup import run_workgroup
from tiny_uop import Accumulate, AddrSpace, AxisType, DType, GroupOp, Ops, PtrDType, UOp, parse_uop
from tiny_uop.records import dataclass

_serial = count()


class Unsupported(ValueError):
  """A node that has no place in a kernel, or that the interpreter does not know."""


@dataclass(frozen=True)
class Function:
  """The function: `call(*views of the buffers in slot order, *values of the variables sorted by name)`."""

  source: str
  call: Callable[..., Any]


@dataclass
class _Scope:
  """The body of one loop (of several, for the threads of a workgroup; of none, for the function)."""

  loops: tuple[UOp, ...] = ()
  names: dict[UOp, str] = field(default_factory=dict)
  lines: list[str] = field(default_factory=list)
  has_barrier: bool = False

  @property
  def is_workgroup(self) -> bool:
    return bool(self.loops) and is_local(self.loops[0])


@lru_cache(128)
def function_of(text: bytes) -> Function:
  """The function of a kernel in its textual form: made once for the compiler, which looks whether that can be done, and
  for each device that loads it. Raises Unsupported; ValueError for a text that is no graph."""
  return generate(parse_uop(text.decode()))


def generate(kernel: UOp) -> Function:
  """Compile a kernel. Raises Unsupported."""
  if kernel.op is not Ops.SINK:
    raise Unsupported(f"expected a SINK, got {kernel!r}")
  return _Generator(kernel).finish()


class _Generator:
  def __init__(self, kernel: UOp) -> None:
    self.kernel = kernel
    self.namespace: dict[str, Any] = {}
    self.scopes = [_Scope()]
    self.places: dict[UOp, int] = {}
    """The scope of each open loop."""
    self.counter = count()

  def finish(self) -> Function:
    nodes = self.kernel.toposort
    params = sorted((u for u in nodes if u.op is Ops.PARAM), key=lambda u: int(u.arg))
    names = self.scopes[0].names
    for u in params:
      names[u] = f"p{int(u.arg)}"
    for i, u in enumerate(self.kernel.variables):
      names[u] = f"n{i}"
    arguments = [names[u] for u in (*params, *self.kernel.variables)]
    for effect in self.kernel.src:
      self.effect(effect)
    body = self.scopes[0].lines or ["pass"]
    source = "\n".join(block(f"def kernel({', '.join(arguments)}):", body)) + "\n"
    filename = f"<REF kernel {next(_serial)}>"
    try:
      exec(compile(source, filename, "exec"), self.namespace)
    except SyntaxError as error:  # Python nests at most 20 loops
      raise Unsupported(f"{error.msg} in the generated function") from error
    function = self.namespace.pop("kernel")  # whose globals would otherwise hold it
    # as long as it lives, a traceback can show its lines
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    finalize(function, linecache.cache.pop, filename, None).atexit = False
    return Function(source, function)

  # *** scopes ***

  def place(self, ranges: frozenset[UOp]) -> int | None:
    """The scope that a node inside of these loops belongs to; None where one of them is not open."""
    found, places = 0, self.places
    for loop in ranges:
      if (place := places.get(loop)) is None:
        return None
      found = max(found, place)
    return found

  def depth(self, ranges: frozenset[UOp], user: UOp) -> int:
    """The scope that a node inside of these loops belongs to. Raises Unsupported where one of them is not open."""
    if (found := self.place(ranges)) is None:
      loop = next(loop for loop in ranges if loop not in self.places)
      raise Unsupported(f"{user!r} is inside of {loop!r}, but that loop is not open where it is needed")
    return found

  def open_scopes(self, scopes: list[_Scope]) -> None:
    """From now on these are open, the outermost first."""
    self.scopes = scopes
    self.places = {loop: place for place, scope in enumerate(scopes) for loop in scope.loops}

  def in_loops(self, loops: tuple[UOp, ...], body: Callable[[], None]) -> None:
    """Write `body` inside of new loops, first one outermost, at the end of the innermost scope."""
    if not loops:
      body()
      return
    if wrong := [loop for loop in loops if loop.op is not Ops.RANGE]:
      raise Unsupported(f"expected a RANGE to loop over, got {wrong[0]!r}")
    together = 1
    while is_local(loops[0]) and together < len(loops) and is_local(loops[together]):
      together += 1
    scope = _Scope(loops[:together])
    extents = [self.value(loop.src[0]) for loop in scope.loops]
    names = [f"i{next(self.counter)}" for _ in scope.loops]
    scope.names.update(zip(scope.loops, names))
    outer = self.scopes[-1]
    around = self.scopes
    self.open_scopes([*around, scope])
    self.in_loops(loops[together:], body)
    self.open_scopes(around)
    lines = scope.lines or ["pass"]
    if scope.has_barrier:
      outer.lines.extend(self._threads(names, extents, lines))
      return
    for name, extent in reversed(list(zip(names, extents))):
      lines = block(f"for {name} in range({extent}):", lines)
    outer.lines.extend(lines)

  def _threads(self, names: list[str], extents: list[str], lines: list[str]) -> list[str]:
    """The threads of a workgroup as generators."""
    self.namespace["run_workgroup"] = run_workgroup
    thread = f"thread{next(self.counter)}"
    each = " ".join(f"for {name} in range({extent})" for name, extent in zip(names, extents))
    call = f"{thread}({', '.join(names)})"
    return [*block(f"def {call}:", lines), f"run_workgroup([{call} {each}])"]

  def at_depth(self, depth: int, body: Callable[[], None]) -> None:
    """Write `body` at the end of an outer scope; what is already written in the inner ones comes after it."""
    scopes = self.scopes
    if depth == len(scopes) - 1:
      body()
      return
    self.open_scopes(scopes[: depth + 1])
    body()
    self.open_scopes(scopes)

  # *** effects ***

  def effect(self, u: UOp) -> None:
    """Write an effect, once, in the scope it belongs to."""
    depth = self.depth(u.ranges, u)
    if u in self.scopes[depth].names:
      return
    self.scopes[depth].names[u] = ""
    self.at_depth(depth, lambda: self._effect(u))

  def _in_loop(self, u: UOp, loops: tuple[UOp, ...]) -> None:
    """The effect of loops. One that uses no counter stands inside nevertheless if it accumulates, which each iteration
    does, or if there may be no iteration.
    """
    if u.op is Ops.GROUP:
      for s in u.src:
        self._in_loop(s, loops)
    elif u.op is Ops.STORE and (isinstance(u.arg, Accumulate) or any(loop.src[0].vmin < 1 for loop in loops)):
      self._store(u)
    else:
      self.effect(u)

  def _effect(self, u: UOp) -> None:
    if u.op is Ops.END:
      self.in_loops(u.src[1:], lambda: self._in_loop(u.src[0], u.src[1:]))
    elif u.op in (Ops.GROUP, Ops.SINK):
      for s in u.src:
        self.effect(s)
    elif u.op is Ops.BARRIER:
      self._barrier(u)
    elif u.op is Ops.STORE:
      self._store(u)
    elif u.op is Ops.AFTER:
      self.pointer(u)
    else:
      raise Unsupported(f"{u!r} is not an effect")

  def _barrier(self, u: UOp) -> None:
    for s in u.src:
      if s.op is not Ops.RANGE:  # which only says in which loop the barrier stands
        self.effect(s)
    around = next((scope for scope in reversed(self.scopes) if scope.is_workgroup), None)
    if around is not None:  # a single thread has nobody to wait for
      around.has_barrier = True
      self.scopes[-1].lines.append("yield")

  def _store(self, u: UOp) -> None:
    target, value = u.src
    stored = self.value(value)
    pointer, offset, gate = self._address(target)
    base, element = self._element(target), f"{pointer}[{offset}]"
    if isinstance(u.arg, Accumulate):
      stored = expression(u.arg.op, base, [self._decoded(base, element), stored], base, self.namespace)
    if not is_native(base):
      self.namespace["encode"] = encode
      stored = f"encode({self._object(base)}, {stored})"
    lines = [*self._check(target, pointer, offset, "write"), f"{element} = {stored}"]
    self.scopes[-1].lines.extend(block(f"if {gate}:", lines) if gate else lines)

  # *** values ***

  def value(self, u: UOp) -> str:
    """The name of a node's value, writing first what it needs: the graph in order, so that depth is no limit."""
    if (known := self._known(u)) is not None:
      return known
    for node in u.walk(lambda n: n.op not in (Ops.REDUCE, Ops.AFTER, Ops.END) and self._known(n) is None):
      if node.op in GroupOp.Effect or (depth := self.place(node.ranges)) is None:
        continue
      if node not in self.scopes[depth].names:
        self._write(node, depth)
    return self.scopes[self.depth(u.ranges, u)].names[u]

  def _known(self, u: UOp) -> str | None:
    depth = self.place(u.ranges)
    return None if depth is None else self.scopes[depth].names.get(u)

  def _write(self, u: UOp, depth: int) -> None:
    if isinstance(u.dtype, PtrDType) and u.op is not Ops.LOAD:
      name = "" if u.op is Ops.INDEX else self.pointer(u)
    elif u.op is Ops.CONST and not isinstance(u.arg, tuple):
      name = constant(u.dtype, u.arg, self.namespace)
    elif u.op is Ops.STAGE:
      name = self.value(u.src[0])
    else:
      name = f"v{next(self.counter)}"
      self.at_depth(depth, lambda: self._assign(u, name))
    self.scopes[depth].names[u] = name

  def _assign(self, u: UOp, name: str) -> None:
    if u.op is Ops.REDUCE:
      self._reduce(u, name)
    elif u.op is Ops.LOAD:
      self._load(u, name)
    elif u.op in GroupOp.Elementwise and is_supported(u):
      args = [self.value(s) for s in u.src]
      self.scopes[-1].lines.append(f"{name} = {expression(u.op, u.dtype, args, u.src[0].dtype, self.namespace)}")
    else:
      raise Unsupported(f"{u!r} has no meaning in a kernel of scalars")

  def _reduce(self, u: UOp, name: str) -> None:
    op = u.arg[0]
    start = constant(u.dtype, identity(op, u.dtype), self.namespace)
    self.scopes[-1].lines.append(f"{name} = {start}")

    def step() -> None:
      value = self.value(u.src[0])
      self.scopes[-1].lines.append(f"{name} = {expression(op, u.dtype, [name, value], u.dtype, self.namespace)}")

    self.in_loops(u.src[1:], step)

  def _load(self, u: UOp, name: str) -> None:
    target = u.src[0]
    base = self._element(target)
    if u.dtype is not base:
      raise Unsupported(f"{u!r} loads {u.dtype} from a pointer to {base}")
    pointer, offset, gate = self._address(target)
    element = self._decoded(base, f"{pointer}[{offset}]")
    lines = [*self._check(target, pointer, offset, "read"), f"{name} = {element}"]
    if gate:
      alternative = self.value(u.src[1]) if len(u.src) > 1 else constant(base, identity(Ops.ADD, base), self.namespace)
      lines = [*block(f"if {gate}:", lines), "else:", f"  {name} = {alternative}"]
    self.scopes[-1].lines.extend(lines)

  def _decoded(self, base: DType, element: str) -> str:
    """The value of an element of memory."""
    if is_native(base):
      return element
    self.namespace["decode"] = decode
    return f"decode({self._object(base)}, {element})"

  # *** memory ***

  def pointer(self, u: UOp) -> str:
    """The name of the buffer behind a pointer, writing first the effects that it comes after."""
    while u.op is Ops.AFTER:
      for dep in u.src[1:]:
        self.effect(dep)
      u = u.src[0]
    names = self.scopes[0].names
    if u.op is Ops.ALLOC:
      assert isinstance(u.dtype, PtrDType)
      home = self._home(u.dtype.space)
      names = home.names
      if u not in names:
        names[u] = f"a{next(self.counter)}"
        self.namespace["new_array"] = new_array
        # before all else: each launch, or each thread, has its own
        home.lines.insert(0, f"{names[u]} = new_array({self._object(u.dtype)})")
    if u not in names:
      raise Unsupported(f"{u!r} is not a pointer")
    return names[u]

  def _home(self, space: AddrSpace) -> _Scope:
    """Where local memory is made: a workgroup shares its LOCAL memory, a thread has REG memory of its own."""
    workgroup = next((scope for scope in self.scopes if scope.is_workgroup), None)
    return workgroup if workgroup is not None and space is AddrSpace.REG else self.scopes[0]

  def _element(self, index: UOp) -> Any:
    if index.op is not Ops.INDEX or not isinstance(index.dtype, PtrDType):
      raise Unsupported(f"expected an INDEX to access, got {index!r}")
    return index.dtype.base

  def _address(self, index: UOp) -> tuple[str, str, str]:
    self._element(index)
    pointer = self.pointer(index.src[0])
    return pointer, self.value(index.src[1]), self.value(index.src[2]) if len(index.src) > 2 else ""

  def _check(self, index: UOp, pointer: str, offset: str, verb: str) -> list[str]:
    assert isinstance(index.dtype, PtrDType)
    self.namespace["outside"] = outside
    return [f"if not 0 <= {offset} < {index.dtype.size}: outside({verb!r}, {pointer!r}, {offset}, {index.dtype.size})"]

  def _object(self, value: Any) -> str:
    name = f"o{value.name}" if not isinstance(value, PtrDType) else f"o{next(self.counter)}"
    self.namespace[name] = value
    return name


def block(head: str, lines: list[str]) -> list[str]:
  """Lines that stand under another one."""
  return [head, *(f"  {line}" for line in lines)]


def is_local(loop: UOp) -> bool:
  """Whether the iterations of a RANGE are threads of one workgroup."""
  return loop.op is Ops.RANGE and loop.arg[1] is AxisType.LOCAL


def outside(verb: str, pointer: str, offset: int, size: int) -> NoReturn:
  """The error for an access outside a buffer."""
  where = f"buffer {pointer[1:]}" if pointer[0] == "p" else "its local memory"
  raise IndexError(
    f"the kernel would {verb} element {offset} of {where}, which has {size} elements: its offset or its gate is wrong"
  )
