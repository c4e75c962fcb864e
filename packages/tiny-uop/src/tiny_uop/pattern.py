"""Patterns over UOps and tables of named rewrite rules, compiled to Python functions at first use."""

from __future__ import annotations

import itertools
import os.path
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

from tiny_uop.dtype import DType, PtrDType
from tiny_uop.node import Node
from tiny_uop.operators import Operators
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.records import dataclass

if TYPE_CHECKING:
  from tiny_uop.samples import Samples
  from tiny_uop.uop import UOp

_ANY = object()


class UPat(Operators[Any]):
  """A pattern: what a node must look like, and under which name the rule's replacement gets it.

  `op` one operation or a set (None: any); `dtype` a scalar type or several, vectors of which match too; `src` a tuple
  (exactly these, in order), a list (these in any order), one pattern (every source matches it) or None; `more` allows
  further sources behind a tuple; `arg` the argument. Operators build patterns; commutative ones match both orders.
  """

  __slots__ = ("arg", "dtype", "more", "name", "op", "src")

  def __init__(
    self,
    op: Ops | Iterable[Ops] | None = None,
    dtype: DType | tuple[DType, ...] | None = None,
    src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
    arg: Any = _ANY,
    name: str | None = None,
    more: bool = False,
  ) -> None:
    self.op = None if op is None else frozenset({op} if isinstance(op, Ops) else op)
    self.dtype = None if dtype is None else frozenset(dtype if isinstance(dtype, tuple) else {dtype})
    self.src, self.arg, self.name, self.more = src, arg, name, more

  @staticmethod
  def var(name: str | None = None, dtype: DType | tuple[DType, ...] | None = None) -> UPat:
    """Any node."""
    return UPat(None, dtype, name=name)

  @staticmethod
  def cvar(name: str | None = None, dtype: DType | tuple[DType, ...] | None = None) -> UPat:
    """Any constant (scalar or all lanes equal)."""
    return UPat(Ops.CONST, dtype, (), name=name, arg=_SCALAR)

  @staticmethod
  def const(dtype: DType | tuple[DType, ...] | None, value: Any) -> UPat:
    """The constant `value`."""
    return UPat(Ops.CONST, dtype, (), arg=value)

  def named(self, name: str) -> UPat:
    """The same pattern, captured as `name`."""
    return UPat(self.op, None if self.dtype is None else tuple(self.dtype), self.src, self.arg, name, self.more)

  def _other(self, value: Any) -> UPat:
    return value if isinstance(value, UPat) else UPat.const(None, value)

  def alu(self, op: Ops, *src: Any) -> UPat:
    """An elementwise operation on this pattern and others; numbers stand for constants."""
    operands = [self, *map(self._other, src)]
    return UPat(op, src=operands if op in GroupOp.Commutative else tuple(operands))

  def __sub__(self, other: Any) -> UPat:
    return self.alu(Ops.ADD, -other)

  def where(self, yes: Any, no: Any) -> UPat:
    """WHERE with this condition."""
    return self.alu(Ops.WHERE, yes, no)

  def cast(self, dtype: DType | tuple[DType, ...] | None = None) -> UPat:
    """CAST of this pattern."""
    return UPat(Ops.CAST, dtype, (self,))

  def __repr__(self) -> str:
    ops = "any" if self.op is None else "|".join(sorted(o.name for o in self.op))
    children = ", ".join(map(repr, self._children()))
    inner = "" if self.src is None else f"(*{children})" if isinstance(self.src, UPat) else f"({children})"
    value = f"={self.arg!r}" if self.arg is not _ANY and self.arg is not _SCALAR else ""
    return f"{self.name + ':' if self.name else ''}{ops}{value}{inner}"

  def _children(self) -> Sequence[UPat]:
    return () if self.src is None else (self.src,) if isinstance(self.src, UPat) else self.src

  def captures(self) -> Iterator[str]:
    """The names in this pattern."""
    if self.name is not None:
      yield self.name
    for child in self._children():
      yield from child.captures()


_SCALAR = object()
Match: TypeAlias = "Callable[[UOp, Any], UOp | None]"
"""A compiled rule: `(node, context) -> replacement`, or None where it does not apply."""
Replacement: TypeAlias = "Callable[..., UOp | None]"
Example: TypeAlias = "Callable[[Samples], UOp | tuple[UOp, ...]]"


@dataclass(frozen=True, eq=False)
class Rule:
  """One row of a table: a unique name, a pattern and the replacement, with what its tests are generated from.

  `examples` are graphs whose root the rule rewrites, `near_misses` graphs whose root it leaves alone, though they
  nearly match. `changes` says why a result may differ from the original's (of floats, by design); `grows` why the
  graph may get larger. Both are empty for rules that keep every value and do not add work.
  """

  name: str
  pattern: UPat
  replacement: Replacement
  examples: tuple[Example, ...] = ()
  near_misses: tuple[Example, ...] = ()
  changes: str = ""
  grows: str = ""
  where: str = ""
  """`package/module.py:line` of the row."""
  matcher: list[Match] = field(default_factory=list, repr=False)

  def match(self) -> Match:
    """The compiled function `(uop, ctx) -> replacement or None`."""
    if not self.matcher:
      self.matcher.append(_Compiler(self).compile())
    return self.matcher[0]


def _several(of: Example | tuple[Example, ...] | None) -> tuple[Example, ...]:
  return () if of is None else of if isinstance(of, tuple) else (of,)


def rule(
  name: str,
  pattern: UPat,
  replacement: Replacement,
  example: Example | tuple[Example, ...] | None = None,
  near_miss: Example | tuple[Example, ...] | None = None,
  changes: str = "",
  grows: str = "",
) -> Rule:
  """A row of a rule table. A parameter of `replacement` named `ctx` gets the rewrite's context, the others captures.

  `example` and `near_miss` build a graph, or a tuple of several, from the leaves of `Samples` (or are tuples of such
  functions); `tiny_uop.testing` makes the rule's tests of them. Raises TypeError when the replacement wants a name
  that the pattern does not capture.
  """
  wanted = set(parameters(replacement)) - {"ctx"}
  if missing := sorted(wanted - set(pattern.captures())):
    raise TypeError(f"rule {name!r}: the replacement takes {missing}, which the pattern {pattern!r} does not capture")
  return Rule(name, pattern, replacement, _several(example), _several(near_miss), changes, grows, _row())


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
  """The names of a function's parameters."""
  if type(function) is FunctionType and not vars(function):  # nothing that stands for another one
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
  import inspect  # takes a hundred times as long, and there are a thousand rules

  return tuple(inspect.signature(function).parameters)


def _row() -> str:
  """Where the innermost call that is not of this module was made."""
  frame: FrameType | None = sys._getframe()
  while frame is not None and frame.f_globals.get("__name__") == __name__:
    frame = frame.f_back
  if frame is None:
    return ""
  parents, file = frame.f_globals.get("__name__", "").split(".")[:-1], os.path.basename(frame.f_code.co_filename)
  return f"{'/'.join([*parents, file])}:{frame.f_lineno}"


class _Compiler:
  """Writes one Python function for one rule: nested ifs, with loops over orders where operands commute."""

  def __init__(self, row: Rule) -> None:
    self.row = row
    self.lines: list[str] = ["def match(u, ctx):"]
    self.names: dict[str, Any] = {"_replace": row.replacement, "_permutations": itertools.permutations}
    self.bound: dict[str, str] = {}
    self.fresh = 0
    self.depth = 1

  def emit(self, line: str) -> None:
    self.lines.append(" " * self.depth + line)

  def block(self, head: str) -> None:
    """What follows stands inside of this."""
    self.emit(f"{head}:")
    self.depth += 1

  def check(self, condition: str) -> None:
    self.block(f"if {condition}")

  def constant(self, value: Any) -> str:
    name = self.local()
    self.names[name] = value
    return name

  def local(self) -> str:
    self.fresh += 1
    return f"v{self.fresh}"

  def node(self, pattern: UPat, place: str) -> list[tuple[UPat, str]]:
    """Checks of one node; gives back the children still to be checked."""
    if pattern.op is not None and place != "u":
      one = len(pattern.op) == 1
      test = f"is {self.constant(*pattern.op)}" if one else f"in {self.constant(pattern.op)}"
      self.check(f"{place}.op {test}")
    if pattern.name is not None:
      if pattern.name in self.bound:
        self.check(f"{place} is {self.bound[pattern.name]}")
        return []
      self.bound[pattern.name] = place
    if pattern.arg is _SCALAR:
      self.check(f"type({place}.arg) is not tuple")
    elif pattern.arg != pattern.arg:  # NaN
      self.check(f"{place}.arg != {place}.arg")
    elif pattern.arg is not _ANY:
      self.check(f"{place}.arg == {self.constant(pattern.arg)}")
    if pattern.dtype is not None and place != "u":
      self.check(f"{place}.dtype.scalar() in {self.constant(pattern.dtype)}")
    return self.children(pattern, place)

  def children(self, pattern: UPat, place: str) -> list[tuple[UPat, str]]:
    src = pattern.src
    if src is None or (src == () and pattern.op == frozenset({Ops.CONST})):
      return []
    if isinstance(src, UPat):
      if src.name is not None or src.src is not None:
        raise TypeError(f"rule {self.row.name!r}: a pattern for every source cannot capture or look deeper")
      test = f"x.op in {self.constant(src.op)}" if src.op is not None else "True"
      test += f" and x.dtype.scalar() in {self.constant(src.dtype)}" if src.dtype is not None else ""
      self.check(f"all({test} for x in {place}.src)")
      return []
    self.check(f"len({place}.src) {'>=' if pattern.more else '=='} {len(src)}")
    locals_ = [self.local() for _ in src]
    if isinstance(src, list) and len(src) == 2 and self.order_matters(src):
      self.block(f"for {', '.join(locals_)} in ({place}.src, {place}.src[::-1])")
    elif isinstance(src, list) and len(src) > 2:
      self.block(f"for {', '.join(locals_)} in _permutations({place}.src)")
    else:
      for i, name in enumerate(locals_):
        self.emit(f"{name} = {place}.src[{i}]")
    return list(zip(src, locals_, strict=True))

  @staticmethod
  def order_matters(src: Sequence[UPat]) -> bool:
    # two unnamed identical wildcards match in either order alike
    return not all(s.op is None and s.name is None and s.dtype is None and s.src is None for s in src)

  def compile(self) -> Match:
    pending = self.node(self.row.pattern, "u")
    while pending:
      # what rejects soonest comes first: nodes with an operation before wildcards
      pending.sort(key=lambda item: item[0].op is None)
      pattern, place = pending.pop(0)
      pending.extend(self.node(pattern, place))
    wanted = parameters(self.row.replacement)
    arguments = ", ".join(f"{p}={'ctx' if p == 'ctx' else self.bound[p]}" for p in wanted)
    self.emit(f"r = _replace({arguments})")
    self.emit("if r is not None and r is not u: return r")
    self.lines.append(" return None")
    code = compile("\n".join(self.lines), f"<rule {self.row.name}>", "exec")
    exec(code, self.names)  # the text was written above, from our own patterns
    made: Match = self.names["match"]
    return made


Candidates: TypeAlias = "tuple[tuple[Rule, Match], ...]"


class _ByType(dict[DType, Candidates]):
  """Of the rules for an operation those for nodes of a type."""

  def __init__(self, every: Candidates) -> None:
    super().__init__()
    self.every = every

  def __missing__(self, dtype: DType) -> Candidates:
    one = dtype.scalar()
    found = tuple([(r, m) for r, m in self.every if r.pattern.dtype is None or one in r.pattern.dtype])
    if not isinstance(dtype, PtrDType):  # of which there is one for every size of a buffer
      self[dtype] = found
    return found


_table_numbers = itertools.count()


class PatternMatcher:
  """A table of rules, tried in order. Raises ValueError when two rules have one name.

  `mark` is the key under which a node keeps that no rule of this table, used without a context, applies to it or to
  anything below it.
  """

  def __init__(self, rules: Iterable[Rule]) -> None:
    self.rules: tuple[Rule, ...] = tuple(rules)
    names: dict[str, Rule] = {}
    for row in self.rules:
      if names.setdefault(row.name, row) is not row:
        raise ValueError(f"two rules are named {row.name!r}")
    self.mark = f"fixed_by_table_{next(_table_numbers)}"
    self._by_op: dict[Ops, Candidates | _ByType] = {}

  def __add__(self, other: PatternMatcher) -> PatternMatcher:
    return PatternMatcher(dict.fromkeys((*self.rules, *other.rules)))

  def candidates(self, op: Ops, dtype: DType) -> Candidates:
    """The rules that can match a node of this operation and type, with their compiled functions."""
    found = self._by_op.get(op)
    if found is None:
      every = tuple([(r, r.match()) for r in self.rules if r.pattern.op is None or op in r.pattern.op])
      found = self._by_op[op] = every if all(r.pattern.dtype is None for r, _ in every) else _ByType(every)
    return found[dtype] if isinstance(found, _ByType) else found

  def rewrite(self, uop: UOp, ctx: Any = None) -> UOp | None:
    """What the first rule that applies makes of this one node; None when none does."""
    rules = self._by_op.get(uop.op)
    if rules is None:
      rules = self.candidates(uop.op, uop.dtype)
    elif isinstance(rules, _ByType):
      rules = rules[uop.dtype]
    for _, match in rules:
      if (new := match(uop, ctx)) is not None:
        return new
    return None

  def rewrite_named(self, uop: UOp, ctx: Any = None) -> tuple[str, UOp] | None:
    """As `rewrite`, with the name of the rule."""
    for row, match in self.candidates(uop.op, uop.dtype):
      if (new := match(uop, ctx)) is not None:
        if not isinstance(new, Node):
          raise TypeError(f"rule {row.name!r} gave {new!r} instead of a UOp for {uop!r}")
        return row.name, new
    return None
