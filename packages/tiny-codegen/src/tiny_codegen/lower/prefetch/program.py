"""The loops of a program, what they read, and addresses of cache lines: what passes over it share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.expressions import split_constant, stride, terms
from tiny_codegen.kernel.loops import extent, kind, size_of
from tiny_codegen.kernel.memory import element_of, nbytes_of, space_of
from tiny_codegen.target import CacheSizes
from tiny_uop import AddrSpace, AxisType, DType, Ops, PtrDType, UOp
from tiny_uop.graph import memory_of
from tiny_uop.records import dataclass

GAP = CACHE_LINE // 2
"""Bytes between two pieces of memory that are asked for as one."""


@dataclass(frozen=True)
class Loop:
  """A loop: its RANGE, those around it, outermost first, and where its instructions begin and end."""

  counter: UOp
  around: tuple[UOp, ...]
  begin: int
  end: int
  innermost: bool


class Program:
  """The instructions of a LINEAR, its loops as they end, and how large its memory is, in bytes."""

  def __init__(self, linear: Sequence[UOp], caches: CacheSizes) -> None:
    self.linear, self.caches = linear, caches
    self.loops: list[Loop] = []
    self.around: list[tuple[UOp, ...]] = []
    """The open loops at each instruction."""
    loops: tuple[UOp, ...] = ()
    begins: list[int] = []
    last = -1  # the last END
    for place, u in enumerate(linear):
      if u.op is Ops.END:
        begin = begins.pop()
        self.loops.append(Loop(loops[-1], loops[:-1], begin, place, last < begin))
        loops, last = loops[:-1], place
      self.around.append(loops)
      if u.op is Ops.RANGE:
        loops = (*loops, u)
        begins.append(place + 1)
    sizes = {u: nbytes_of(u) for u in linear if isinstance(u.dtype, PtrDType)}
    stored = {memory_of(u.src[0]) for u in linear if u.op is Ops.STORE}
    self.packed = {u: size for u, size in sizes.items() if u.op is Ops.ALLOC and space_of(u) is AddrSpace.LOCAL}
    self.written = {u: size for u, size in sizes.items() if u.op is Ops.PARAM and u in stored}
    self.read = {u: size for u, size in sizes.items() if u.op is Ops.PARAM and u not in stored}


def packed_buffer(index: UOp) -> UOp | None:
  """The packed buffer that is addressed."""
  memory = memory_of(index)
  return memory if memory.op is Ops.ALLOC and space_of(memory) is AddrSpace.LOCAL else None


def is_sum(loop: UOp) -> bool:
  """Whether a loop is one of a sum."""
  return kind(loop) is AxisType.REDUCE


def known_size(loop: UOp) -> int:
  """Iterations of a loop; 0 where they are not known."""
  return extent(loop) or 0


def known_sizes(loops: Iterable[UOp]) -> int:
  """Iterations of a loop nest; 0 where they are not known."""
  return math.prod(map(known_size, loops))


def most_steps(loops: Iterable[UOp]) -> int:
  """Iterations of a loop nest, at most: a window that leaves out padding has fewer."""
  return math.prod(size_of(r) for r in loops)


def innermost_sums(program: Program) -> Iterator[tuple[Loop, list[UOp]]]:
  """Innermost loops of sums, and what each loads."""
  for loop in program.loops:
    reads = [u for u in program.linear[loop.begin : loop.end] if u.op is Ops.LOAD]
    if loop.innermost and is_sum(loop.counter) and reads:
      yield loop, reads


def sums_at_the_end(loops: tuple[UOp, ...]) -> tuple[UOp, ...]:
  """The loops of sums inside of all others."""
  return tuple(itertools.takewhile(is_sum, reversed(loops)))[::-1]


# *** pieces of memory ***


def spans_of(accesses: Iterable[tuple[UOp, DType]]) -> dict[tuple[UOp, UOp | None], list[tuple[int, int]]]:
  """By buffer and what varies of an offset: the first byte, and the one behind, of each access. Given are INDEXes, and
  the types that are read or written there."""
  found: dict[tuple[UOp, UOp | None], list[tuple[int, int]]] = {}
  for index, dtype in accesses:
    offset, constant = split_constant(index.src[1])
    size = dtype.scalar().itemsize
    found.setdefault((index.src[0], offset), []).append((constant * size, (constant + dtype.count) * size))
  return found


def joined(spans: Iterable[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
  """Spans of bytes as pieces: those with no more than `gap` bytes between them are one."""
  pieces: list[tuple[int, int]] = []
  for first, behind in sorted(spans):
    if pieces and first <= pieces[-1][1] + gap:
      first, behind = pieces[-1][0], max(pieces.pop()[1], behind)
    pieces.append((first, behind))
  return pieces


def lines_of(first: int, behind: int) -> tuple[int, ...]:
  """A byte in each cache line of a piece, wherever in a line it begins."""
  return (*range(first, behind - 1, CACHE_LINE), behind - 1)


def element_at(pointer: UOp, offset: UOp, byte: int) -> UOp:
  """The INDEX of the element that has a byte, so far behind the element at an offset."""
  return pointer.index(plus(offset, offset.const_like(byte // element_of(pointer).itemsize)))


@dataclass(frozen=True)
class Read:
  """What a loop nest that packs reads at a time: `count` elements at `constant`, the sum of `rest` and what the loops
  of the nest add, each by its `steps`."""

  index: UOp
  rest: frozenset[UOp]
  constant: int
  steps: dict[UOp, int]
  count: int

  @staticmethod
  def of(load: UOp, own: tuple[UOp, ...]) -> Read | None:
    """None where a loop of the nest moves it by no known step."""
    offset, rest, constant = load.src[0].src[1], set[UOp](), 0
    for term in terms(offset):
      if term.op is Ops.CONST:
        constant += int(term.arg)
      elif term.ranges.isdisjoint(own):
        rest.add(term)
    steps = {r: step for r in own if (step := stride(offset, r)) is not None}
    known = len(steps) == len(own)
    return Read(load.src[0], frozenset(rest), constant, steps, load.dtype.count) if known else None

  def spans(self, along: UOp | None, itemsize: int) -> Iterator[tuple[int, int]]:
    """(first byte, the one behind) of what one iteration of a loop reads, from where the sum of `rest` is; without a
    loop, of what all iterations read."""
    inside = [
      range(0, step * known_size(r), step) if step else (0,) * known_size(r)
      for r, step in self.steps.items()
      if r is not along
    ]
    for places in itertools.product(*inside):
      first = self.constant + sum(places)
      yield first * itemsize, (first + self.count) * itemsize


def line_at(lines: list[int], column: UOp, itemsize: int) -> UOp | None:
  """The element in a line, by its number: an expression for lines that are evenly far apart, in groups that are, too.
  None for others."""
  steps = [b - a for a, b in itertools.pairwise(lines)]
  group = next((n + 1 for n, step in enumerate(steps) if step != steps[0]), len(lines))
  far = lines[group] - lines[0] if group < len(lines) else 0
  near = steps[0] if group > 1 else 0
  if any(line != lines[0] + n // group * far + n % group * near for n, line in enumerate(lines)):
    return None
  if any(m % itemsize for m in (lines[0], far, near)):
    return None
  inside = times(remainder(column, group), near // itemsize) if near else column.const_like(0)
  outside = times(quotient(column, group), far // itemsize) if far else column.const_like(0)
  return plus(plus(column.const_like(lines[0] // itemsize), outside), inside)


# *** arithmetic without needless instructions: algebra has been done ***


def counted(loops: Iterable[UOp], like: UOp) -> UOp:
  """The number of an iteration of a loop nest."""
  number = like.const_like(0)
  for r in loops:
    number = plus(times(number, known_size(r)), r)
  return number


def plus(a: UOp, b: UOp) -> UOp:
  """`a + b`."""
  return b if a.op is Ops.CONST and a.arg == 0 else a if b.op is Ops.CONST and b.arg == 0 else a + b


def times(a: UOp, factor: int) -> UOp:
  """`a * factor`."""
  return a if factor == 1 or (a.op is Ops.CONST and a.arg == 0) else a * factor


def quotient(a: UOp, by: int) -> UOp:
  """`a / by`, of a number that is not negative."""
  return a if by == 1 else a.alu(Ops.TRUNCDIV, a.const_like(by))


def remainder(a: UOp, by: int) -> UOp:
  """`a % by`, of a number that is not negative."""
  return a.const_like(0) if by == 1 else a.alu(Ops.TRUNCMOD, a.const_like(by))
