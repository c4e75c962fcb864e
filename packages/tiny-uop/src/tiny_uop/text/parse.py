"""Reads the textual form of the IR. Written by hand and safe on text from anywhere: nothing is evaluated, sizes and
nesting are limited."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, NoReturn

from tiny_uop.args import ARG_TYPES, mistyped_field
from tiny_uop.dtype import DType, dtypes
from tiny_uop.ops import Ops
from tiny_uop.text.print import HEADER, IR_VERSION, MAX_DIGITS, MAX_NESTING
from tiny_uop.uop import UOp, process_name, reserve_buffer_id, with_own_buffers

MAX_DTYPE = 64  # characters of a type's name
MAX_COLLISIONS = 4000  # of hashes, which only a text made for it has
_SHOWN = 40  # characters of the text in a message

_SPACE = re.compile(r"[ \t]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?(?:inf\b|(?:0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?)", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
_NODE_ID = re.compile(r"%(0|[1-9][0-9]{0,11})(?![0-9])", re.ASCII)
_DTYPE = re.compile(r"ptr<[a-z0-9]+, [0-9]{1,20}, [a-z]+>|[a-z][a-z0-9]*", re.ASCII)
_HEADER = re.compile(rf"{HEADER}[ \t]+([0-9]+)", re.ASCII)
# a line as `print_uop` writes it, up to its argument
_CANONICAL = re.compile(
  rf"{_NODE_ID.pattern} = ([A-Z][A-Z0-9_]*) ({_DTYPE.pattern}) \(((?:%[0-9]+(?:, %[0-9]+)*)?)\)(?: (?=arg=|tag=)|$)",
  re.ASCII,
)
_WORDS: dict[str, Any] = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
_OPS: dict[str, Ops] = dict(Ops.__members__)
_parse_dtype = lru_cache(maxsize=1024)(dtypes.parse)
_Head = tuple[str, Ops, DType, tuple[UOp, ...]]


class ParseError(ValueError):
  """Text that is not the IR: `reason`, and where; `line` and `column` count from 1."""

  def __init__(self, reason: str, line: int, column: int) -> None:
    super().__init__(f"line {line}, column {column}: {reason}")
    self.reason, self.line, self.column = reason, line, column


class _Line:
  """A cursor over one line."""

  __slots__ = ("number", "place", "text")

  def __init__(self, text: str, number: int) -> None:
    self.text, self.number, self.place = text, number, 0

  def fail(self, message: str, place: int | None = None) -> NoReturn:
    raise ParseError(message, self.number, (self.place if place is None else place) + 1)

  def found(self) -> str:
    rest = self.text[self.place : self.place + 20]
    return repr(rest) if rest else "the end of the line"

  def word(self, match: re.Match[str] | None) -> str:
    """What was found in the place of a word, cut to a length that a message can have."""
    return self.found() if match is None else match[0] if len(match[0]) <= _SHOWN else match[0][:_SHOWN] + "…"

  def space(self) -> None:
    self.take(_SPACE)

  def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
    match = pattern.match(self.text, self.place)
    if match is not None:
      self.place = match.end()
    return match

  def accept(self, text: str) -> bool:
    if self.text.startswith(text, self.place):
      self.place += len(text)
      return True
    return False

  def expect(self, text: str) -> None:
    self.space()
    if not self.accept(text):
      self.fail(f"expected {text!r}, found {self.found()}")

  # *** literals ***

  def literal(self, depth: int = 0) -> Any:
    if depth > MAX_NESTING:
      self.fail(f"literals nest deeper than {MAX_NESTING}")
    self.space()
    start = self.place
    if self.accept("("):
      return tuple([self.literal(depth + 1) for _ in self.items(of_tuple=True)])
    if self.accept("@"):
      return self.dtype()
    if (match := self.take(_STRING)) is not None:
      return json.loads(match[0])
    if (match := self.take(_NUMBER)) is not None:
      return self.number_of(match, start)
    if (match := self.take(_WORD)) is not None:
      word = match[0]
      return _WORDS[word] if word in _WORDS else self.record(word, start, depth)
    self.fail(f"expected a literal, found {self.found()}")

  def number_of(self, match: re.Match[str], start: int) -> int | float:
    text = match[0]
    if len(text) > MAX_DIGITS + 1:  # a sign is no digit
      self.fail(f"a number of {len(text)} characters; at most {MAX_DIGITS}", start)
    if text in ("inf", "-inf"):
      return float(text)
    if not (match[1] or match[2]):
      return int(text)
    value = float(text)
    if math.isinf(value):
      self.fail(f"{text[:_SHOWN]} is beyond the range of float64: expected a smaller number, or inf", start)
    return value

  def items(self, of_tuple: bool = False) -> Iterator[int]:
    """The places where the items of a list begin, up to its `)`: each item is read before the next one is asked for."""
    self.space()
    first = of_tuple
    while not self.accept(")"):
      yield self.place
      self.space()
      if not self.accept(","):
        if first:
          self.fail(f"expected ',' after the one item of a tuple, found {self.found()}")
        return self.expect(")")
      self.space()
      first = False

  def dtype(self) -> DType:
    start = self.place
    match = self.take(_DTYPE)
    if match is None:
      self.fail(f"expected a dtype, found {self.found()}")
    if len(match[0]) > MAX_DTYPE:
      self.fail(f"unknown dtype {self.word(match)}", start)
    try:
      return _parse_dtype(match[0])
    except ValueError as error:
      self.fail(str(error), start)

  def record(self, name: str, start: int, depth: int) -> Any:
    kind: type[Any] | None = Ops if name == "Ops" else ARG_TYPES.get(name)
    if kind is None:
      known = f"{', '.join(_WORDS)}, Ops, or a registered class ({', '.join(sorted(ARG_TYPES))})"
      self.fail(f"unknown word {name[:_SHOWN]!r}: expected {known}", start)
    if issubclass(kind, Enum):
      if not self.accept("."):
        self.fail(f"expected '.', found {self.found()}")
      place = self.place
      member = self.take(_WORD)
      if member is None or member[0] not in kind.__members__:
        self.fail(f"{name} has no member {self.word(member)}: expected one of {', '.join(kind.__members__)}", place)
      return kind.__members__[member[0]]
    assert is_dataclass(kind)
    self.expect("(")
    values = self.fields(name, {f.name for f in fields(kind)}, depth)
    try:
      record = kind(**values)
    except (TypeError, ValueError) as error:
      self.fail(f"cannot make a {name}: {error}", start)
    if (mistake := mistyped_field(record)) is not None:
      self.fail(f"cannot make a {name}: {mistake}", start)
    return record

  def fields(self, name: str, known: set[str], depth: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for start in self.items():
      word, left = self.take(_WORD), known - values.keys()
      if word is None or word[0] not in left:
        wanted = ", ".join(sorted(left))
        self.fail(f"expected a field of {name} not yet given ({wanted}), found {self.word(word)}", start)
      self.expect("=")
      values[word[0]] = self.literal(depth + 1)
    return values

  # *** nodes ***

  def sources(self, nodes: dict[str, UOp]) -> tuple[UOp, ...]:
    self.expect("(")
    found: list[UOp] = []
    self.space()
    while not self.accept(")"):
      if found:
        self.expect(",")
        self.space()
      start = self.place
      match = self.take(_NODE_ID)
      if match is None:
        self.fail(f"expected a source such as %0 or ')', found {self.found()}")
      node = nodes.get(match[1])
      if node is None:
        self.fail(f"{match[0]} is used before the line that defines it", start)
      found.append(node)
      self.space()
    return tuple(found)

  def node(self, nodes: dict[str, UOp]) -> tuple[str, UOp]:
    name, op, dtype, src = self.canonical(nodes) or self.head(nodes)
    arg = self.literal() if self.accept("arg=") else None
    self.space()
    tag = self.literal() if self.accept("tag=") else None
    self.space()
    if self.place != len(self.text):
      self.fail(f"expected the end of the line, found {self.found()}")
    if op is Ops.BUFFER and type(arg) is tuple and arg and type(arg[0]) is int:
      reserve_buffer_id(arg[0])  # or a buffer made later would be taken for this one
    return name, UOp(op, dtype, src, arg, tag)

  def canonical(self, nodes: dict[str, UOp]) -> _Head | None:
    """A line as `print_uop` writes it up to its argument, read in one go; None for one with anything else."""
    match = _CANONICAL.match(self.text)
    if match is None:
      return None
    name, word, type_name, sources = match.groups()
    if word not in _OPS or name in nodes or len(type_name) > MAX_DTYPE:
      return None
    try:
      src = tuple([nodes[s[1:]] for s in sources.split(", ")]) if sources else ()
      head = name, _OPS[word], _parse_dtype(type_name), src
    except (KeyError, ValueError):
      return None
    self.place = match.end()
    return head

  def head(self, nodes: dict[str, UOp]) -> _Head:
    """Any line up to its argument."""
    self.space()
    target = self.take(_NODE_ID)
    if target is None:
      self.fail(f"expected a node such as '%0 = CONST int32 () arg=1', found {self.found()}")
    if target[1] in nodes:
      self.fail(f"{target[0]} is defined twice", target.start())
    self.expect("=")
    self.space()
    start = self.place
    word = self.take(_WORD)
    op = _OPS.get(word[0]) if word else None
    if op is None:
      self.fail(f"unknown operation {self.word(word)}: expected a member of Ops", start)
    self.space()
    dtype = self.dtype()
    src = self.sources(nodes)
    self.space()
    return target[1], op, dtype, src


def _check_header(text: str, number: int) -> None:
  match = _HEADER.fullmatch(text)
  if match is None:
    raise ParseError(f"expected the header '{HEADER} {IR_VERSION}', found {text[:_SHOWN]!r}", number, 1)
  if match[1] != str(IR_VERSION):
    versions = f"the text is of IR version {match[1][:20]}, this tiny-uop reads version {IR_VERSION}"
    raise ParseError(f"{versions}: use the same tiny-uop on both sides", number, match.start(1) + 1)


def parse_node(text: str, nodes: dict[str, UOp], number: int = 1) -> UOp:
  """The node of one line, `%3 = ADD int32 (%0, %1)`, which is added to `nodes` (`{"0": …, "1": …}`, its sources).

  Raises ParseError; `number` is the line that it names.
  """
  name, node = _Line(text, number).node(nodes)
  nodes[name] = node
  return node


def parse_uop(text: str, process: str = "") -> UOp:
  """The graph that `print_uop` printed. Raises ParseError (a ValueError), which names line and column.

  Ids of BUFFERs are those of this process, which gets back its own. Of a text that another one printed, say which by
  `process`, its `process_name()` or any word: then BUFFERs are new ones, the same again for the same word and node.
  """
  graph = _parse(text, None)
  return graph if process in ("", process_name()) else with_own_buffers(graph, process)


def parse_lines(text: str) -> tuple[UOp, dict[UOp, int]]:
  """`parse_uop`, and the line that each node stands on."""
  lines: dict[UOp, int] = {}
  return _parse(text, lines), lines


def _parse(text: str, places: dict[UOp, int] | None) -> UOp:
  nodes: dict[str, UOp] = {}
  root: UOp | None = None
  header = False
  # Integers hash to themselves, so that a text can be made whose nodes all have equal hashes, and building them would
  # take time with the square of its length: different nodes with equal hashes are counted.
  hashes: dict[int, UOp] = {}
  collisions = 0
  lines = text.split("\n")
  for number, line in enumerate(lines, 1):
    line = line.rstrip("\r \t")
    if not line or line.lstrip(" \t").startswith("#"):
      continue
    if not header:
      _check_header(line, number)
      header = True
      continue
    root = parse_node(line, nodes, number)
    if root.arg is not None:
      collisions += hashes.setdefault(hash((root.op, root.dtype, root.src, root.arg, root.tag)), root) is not root
      if collisions > MAX_COLLISIONS:
        reason = f"more than {MAX_COLLISIONS} arguments have equal hashes: the text is made to be slow"
        raise ParseError(reason, number, 1)
    if places is not None:
      places.setdefault(root, number)
  if root is None:
    raise ParseError("the text has no nodes: expected the header and at least one line", len(lines), 1)
  return root
