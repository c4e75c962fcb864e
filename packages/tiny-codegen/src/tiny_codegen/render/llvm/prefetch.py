"""Results that are on their way before they are written: cache lines that a tile stores to are fetched during its sums.

A store to a line that no near cache has waits for it, and stores wait for those before them. A register tile whose rows
are far apart in memory touches dozens of such lines at once, after a long sum in which memory had nothing to do. So
where a loop is followed by stores to addresses that do not depend on it, each of its iterations asks for the lines of
another row; all at once they would keep the first steps of the sum waiting, for a core waits for a few dozen lines at a
time. Where the iterations are too few, the lines are asked for before the loop.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from tiny_codegen.kernel.loops import extent
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.streaming import LINE
from tiny_codegen.render.llvm.text import memory_type, value_type
from tiny_codegen.target import CacheSizes
from tiny_uop import DType, Ops, ProgramInfo, PtrDType, UOp
from tiny_uop.records import dataclass

GAP = LINE // 2
"""Bytes between two pieces of memory that are asked for as one."""
LEAST_STEPS = 16
"""Iterations of the loops in which a line can arrive, and that are worth asking for it."""

_CONTROL = frozenset({Ops.RANGE, Ops.END, Ops.SPECIAL, Ops.IF, Ops.ENDIF, Ops.BARRIER})


@dataclass(frozen=True)
class Rows:
  """Cache lines of a buffer, one in each of `count` rows that are `step` bytes apart: the first has the byte so far
  behind the element at `offset` (None: the first one)."""

  pointer: UOp
  offset: UOp | None
  byte: int
  step: int
  count: int


def lines_to_fetch(linear: Sequence[UOp], info: ProgramInfo, caches: CacheSizes) -> dict[UOp, tuple[Rows, ...]]:
  """By the loop to fetch them in: lines that what follows the loop writes, of results larger than near caches. Those of
  another row in each iteration where there are enough, for a processor waits for no more than a few dozen lines at a
  time; else all of them before the loop, each as rows of its own."""
  large = {p.slot for p in info.params if p.written and p.size * p.dtype.itemsize > caches.second}
  if not large:
    return {}
  places = {u: place for place, u in enumerate(linear) if u.op is Ops.RANGE}
  found = {}
  for end, u in enumerate(linear):
    loops = [r for r in u.src[1:] if r in places] if u.op is Ops.END else []
    if loops:
      first = min(loops, key=places.__getitem__)
      body = linear[places[first] : end]
      stores = [s for s in _following(linear, end) if s.src[0].src[0].arg in large and _known(s, frozenset(body))]
      if stores and _steps(body) >= LEAST_STEPS and not any(map(_writes, body)):
        rows = _rows(stores)
        spread = all(r.count * 2 <= (extent(first) or 0) for r in rows)
        found[first] = rows if spread else tuple(_one_by_one(rows))
  return found


def fetch_row(body: Function, rows: Rows, first: str, counter: UOp) -> None:
  """Ask for the line of the row that has the number of the iteration; of the last one again where there are fewer. The
  line of the first row is at the address `first`."""
  kind = value_type(counter.dtype)
  row = body.call(f"llvm.umin.{kind}", kind, (kind, body.operand(counter)), (kind, str(rows.count - 1)))
  wide = row if kind == "i64" else body.let(f"zext {kind} {row} to i64")
  place = body.let(f"getelementptr i8, ptr {first}, i64 {body.let(f'mul i64 {wide}, {rows.step}')}")
  prefetch(body, place, write=True, level=3)


def address_of(body: Function, pointer: UOp, offset: UOp | None) -> str:
  """Where an element of a buffer is."""
  assert isinstance(pointer.dtype, PtrDType)
  address = body.operand(pointer)
  if offset is None:
    return address
  kind = memory_type(pointer.dtype.base)
  return body.let(f"getelementptr {kind}, ptr {address}, {value_type(offset.dtype)} {body.operand(offset)}")


def prefetch(body: Function, address: str, write: bool, level: int) -> None:
  """LLVM's intrinsic. `level` 3: into all caches; 2: from the second one on."""
  flags = (str(int(write)), str(level), "1")  # 1: data, no instructions
  body.call("llvm.prefetch.p0", "void", ("ptr", address), *[("i32", flag) for flag in flags])


def _following(linear: Sequence[UOp], end: int) -> Iterator[UOp]:
  """The ungated stores of adjacent elements to buffers between an END and what begins or ends next."""
  for u in itertools.takewhile(lambda u: u.op not in _CONTROL, linear[end + 1 :]):
    if _writes(u) and len(u.src[0].src) == 2 and u.src[0].src[1].dtype.count == 1:
      yield u


def _writes(u: UOp) -> bool:
  return u.op is Ops.STORE and u.src[0].src[0].op is Ops.PARAM


def _known(store: UOp, body: frozenset[UOp]) -> bool:
  """Whether an address can be computed before a loop: from counters outside it alone."""
  return not any(u.op is Ops.LOAD or (u.op is Ops.RANGE and u in body) for u in store.src[0].src[1].toposort)


def _steps(body: Sequence[UOp]) -> int:
  """Iterations of the loops in a part of a program; those of an unknown number count as one."""
  return math.prod(int(u.src[0].arg) for u in body if u.op is Ops.RANGE and u.src[0].op is Ops.CONST)


def _rows(stores: Sequence[UOp]) -> tuple[Rows, ...]:
  """The lines of pieces of memory that are written here; of pieces that are as long and evenly far apart as rows."""
  found = []
  for (pointer, offset), spans in spans_of((s.src[0], s.src[1].dtype) for s in stores).items():
    pieces = joined(spans, 0)
    steps = {b[0] - a[0] for a, b in itertools.pairwise(pieces)}
    even = len(steps) <= 1 and len({behind - first for first, behind in pieces}) == 1
    step, count = (steps.pop() if steps else 0, len(pieces)) if even else (0, 1)
    for first, behind in pieces[:1] if even else pieces:
      # of a short piece that lies on two lines the last one: no tile before this one has fetched that
      lines = bytes_of_lines(first, behind)[-1:] if behind - first < LINE else bytes_of_lines(first, behind)
      found += [Rows(pointer, offset, byte, step, count) for byte in lines]
  return tuple(found)


def _one_by_one(rows: Sequence[Rows]) -> Iterator[Rows]:
  for r in rows:
    for n in range(r.count):
      yield Rows(r.pointer, r.offset, r.byte + n * r.step, 0, 1)


def spans_of(accesses: Iterable[tuple[UOp, DType]]) -> dict[tuple[UOp, UOp | None], list[tuple[int, int]]]:
  """By buffer and what varies of an offset: the first byte, and the one behind, of each access. Given are INDEXes, and
  what is read or written there."""
  found: dict[tuple[UOp, UOp | None], list[tuple[int, int]]] = {}
  for index, dtype in accesses:
    offset, constant = split(index.src[1])
    size = dtype.scalar().itemsize
    found.setdefault((index.src[0], offset), []).append((constant * size, (constant + dtype.count) * size))
  return found


def bytes_of_lines(first: int, behind: int) -> tuple[int, ...]:
  """A byte in each cache line of a piece, wherever in a line it begins."""
  return (*range(first, behind - 1, LINE), behind - 1)


def joined(spans: Iterable[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
  """Spans of bytes as pieces: those with no more than `gap` bytes between them are one."""
  pieces: list[tuple[int, int]] = []
  for first, behind in sorted(spans):
    if pieces and first <= pieces[-1][1] + gap:
      first, behind = pieces[-1][0], max(pieces.pop()[1], behind)
    pieces.append((first, behind))
  return pieces


def split(offset: UOp) -> tuple[UOp | None, int]:
  """An offset as what varies and a constant, in elements."""
  if offset.op is Ops.CONST:
    return None, int(offset.arg)
  if offset.op is Ops.ADD and offset.src[1].op is Ops.CONST:
    return offset.src[0], int(offset.src[1].arg)
  return offset, 0
