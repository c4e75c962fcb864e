"""The function being written: numbered values, blocks, loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tiny_codegen.render.base import used_too_early
from tiny_codegen.render.llvm.instructions import Instruction
from tiny_codegen.render.llvm.text import constant, value_type
from tiny_uop import AxisType, DType, Ops, UOp, dtypes


@dataclass
class _Loop:
  head: str
  exit: str
  next: str
  extent: str
  place: int
  """The line of the counter's PHI."""
  phi: str
  """That, but for the value from the block that closes the loop, known only then."""


@dataclass
class Function:
  """Instructions of one function in order.

  `pin_masked_loads`: the result of a masked load is in a register before anything uses it (see `memory.py`).
  `instructions`: those of the processor that ops may be written with. `distances`: sums that are not written, as what
  they are added to is an address (see `memory.py`). `fence_halves`: what a float32 number was computed with does not
  become one instruction with its rounding to float16.
  """

  lines: list[str] = field(default_factory=list)
  entry: list[str] = field(default_factory=list)  # allocas: LLVM turns only those of the entry block into registers
  declarations: dict[str, str] = field(default_factory=dict)
  values: dict[UOp, str] = field(default_factory=dict)
  shuffled: dict[tuple[str, str, str, tuple[int, ...]], str] = field(default_factory=dict)  # see `transpose.py`
  block: str = "start"
  pin_masked_loads: bool = False
  instructions: tuple[Instruction, ...] = ()
  distances: frozenset[UOp] = frozenset()
  fence_halves: bool = False
  masks: dict[tuple[int, int], str] = field(default_factory=dict)  # of so many first lanes of so many
  addresses: dict[tuple[str, UOp, UOp], str] = field(default_factory=dict)  # by block, memory and offset
  _loops: dict[UOp, _Loop] = field(default_factory=dict)
  _count: int = 0

  def fresh(self, prefix: str) -> str:
    """A name that nothing else has."""
    self._count += 1
    return f"{prefix}{self._count}"

  def emit(self, instruction: str) -> None:
    """Write an instruction that has no result."""
    self.lines.append(f"  {instruction}")

  def let(self, instruction: str) -> str:
    """Write `%new = instruction`; gives the new name."""
    name = self.fresh("%v")
    self.emit(f"{name} = {instruction}")
    return name

  def call(self, name: str, result: str, *arguments: tuple[str, str], flags: str = "") -> str:
    """Call an intrinsic with (type, operand) arguments, declaring it. Gives the result's name, "" for void. `flags`:
    what LLVM may assume of floats.
    """
    self.declarations[name] = f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})"
    passed = ", ".join(f"{kind} {operand}" for kind, operand in arguments)
    text = f"call {flags} {result} @{name}({passed})" if flags else f"call {result} @{name}({passed})"
    if result != "void":
      return self.let(text)
    self.emit(text)
    return ""

  def cast_bits(self, kind: str, value: str, wanted: str) -> str:
    """A value of one type as another one of as many bits."""
    return value if kind == wanted else self.let(f"bitcast {kind} {value} to {wanted}")

  def pieces(self, kind: str, value: str, piece: str, bits: int, count: int) -> list[str]:
    """A value of type `kind` as so many of type `piece`, each of so many bits."""
    if count == 1:
      return [self.cast_bits(kind, value, piece)]
    words = f"<{count} x i{bits}>"
    value = self.cast_bits(kind, value, words)
    parts = [self.lane(words, value, n) for n in range(count)]
    return [self.cast_bits(f"i{bits}", part, piece) for part in parts]

  def joined(self, kind: str, parts: Iterable[str], piece: str, bits: int, count: int) -> str:
    """The inverse of `pieces`."""
    if count == 1:
      return self.cast_bits(piece, next(iter(parts)), kind)
    words, one = f"<{count} x i{bits}>", f"i{bits}"
    return self.cast_bits(words, self.vector(words, one, (self.cast_bits(piece, p, one) for p in parts)), kind)

  def members(self, kind: str, value: str, count: int) -> Iterator[str]:
    """The members of a struct."""
    return (self.let(f"extractvalue {kind} {value}, {n}") for n in range(count))

  def lane(self, kind: str, value: str, lane: int) -> str:
    """A lane of a vector of type `kind`."""
    return self.let(f"extractelement {kind} {value}, i32 {lane}")

  def vector(self, kind: str, scalar: str, lanes: Iterable[str], into: str = "poison") -> str:
    """A vector of type `kind` whose first lanes are these, of type `scalar`."""
    for number, lane in enumerate(lanes):
      into = self.let(f"insertelement {kind} {into}, {scalar} {lane}, i32 {number}")
    return into

  def splat(self, kind: str, scalar: str, value: str, count: int) -> str:
    """A vector of type `kind`, all of whose lanes are a value."""
    one = self.vector(kind, scalar, [value])
    return self.let(f"shufflevector {kind} {one}, {kind} poison, <{count} x i32> zeroinitializer")

  def shuffle(self, kind: str, value: str, lanes: Iterable[int | None], other: str = "poison") -> str:
    """These lanes (None: any) of a vector of type `kind`, or of two side by side."""
    mask = ["i32 poison" if lane is None else f"i32 {lane}" for lane in lanes]
    return self.let(f"shufflevector {kind} {value}, {kind} {other}, <{len(mask)} x i32> <{', '.join(mask)}>")

  def part(self, value: str, dtype: DType, start: int, count: int) -> tuple[str, str]:
    """(type, operand) of `count` lanes of a value, those beyond its end being any."""
    scalar = dtype.scalar()
    whole = value_type(scalar.vec(count))
    if dtype.count == 1:
      return whole, self.vector(whole, value_type(scalar), [value])
    if dtype.count == count:
      return whole, value
    lanes = [start + lane if start + lane < dtype.count else None for lane in range(count)]
    return whole, self.shuffle(value_type(dtype), value, lanes)

  def first(self, value: str, dtype: DType, count: int) -> str:
    """The first lanes of a vector."""
    if count == 1:
      return self.lane(value_type(dtype), value, 0)
    return value if count == dtype.count else self.shuffle(value_type(dtype), value, range(count))

  def label(self, name: str) -> None:
    """Begin a block."""
    self.lines.append(f"{name}:")
    self.block = name

  def branch(self, condition: str, yes: str, no: str) -> None:
    """End the block on a bool."""
    self.emit(f"br i1 {condition}, label %{yes}, label %{no}")

  def operand(self, uop: UOp) -> str:
    """The name or constant that holds a value. Raises ValueError for one that the list has not computed yet."""
    if (found := self.values.get(uop)) is not None:
      return found
    if uop.op is Ops.CONST:
      return constant(uop.dtype, uop.arg)
    if uop.op is Ops.AFTER:
      return self.operand(uop.src[0])
    if uop in self.distances:  # of an access that is more than an address
      kind, (first, second) = value_type(uop.dtype), map(self.operand, uop.src)
      return self.let(f"add nsw {kind} {first}, {second}")
    raise used_too_early(uop)

  def open_loop(self, uop: UOp, first: str, extent: str) -> None:
    """Begin a loop whose counter, the value of `uop`, goes from `first` up to but not including `extent`.

    It is written as LLVM turns all loops (rotated): the end is looked for at the end, and before the loop only where it
    may be empty.
    """
    number = self.fresh("")
    head, done, counter, kind = f"loop{number}", f"done{number}", f"%i{number}", value_type(uop.dtype)
    if first.isdecimal() and extent.isdecimal() and int(first) < int(extent):
      self.emit(f"br label %{head}")
    else:
      self.branch(self.let(f"icmp slt {kind} {first}, {extent}"), head, done)
    phi = f"  {counter} = phi {kind} [ {first}, %{self.block} ]"
    self.label(head)
    self._loops[uop] = _Loop(head, done, f"%next{number}", extent, len(self.lines), phi)
    self.lines.append(phi)
    self.values[uop] = counter

  def close_loop(self, uop: UOp) -> None:
    """End the loop of a counter. Raises ValueError when it is not open."""
    if (loop := self._loops.pop(uop, None)) is None:
      raise ValueError(f"END closes {uop!r}, which is not open")
    kind = value_type(uop.dtype)
    self.emit(f"{loop.next} = add nsw {kind} {self.values[uop]}, 1")
    self.lines[loop.place] = f"{loop.phi}, [ {loop.next}, %{self.block} ]"
    self.branch(self.let(f"icmp slt {kind} {loop.next}, {loop.extent}"), loop.head, loop.exit)
    self.label(loop.exit)

  @property
  def open_loops(self) -> list[UOp]:
    """The counters of the loops that are open, outermost first."""
    return list(self._loops)


def is_thread_range(uop: UOp) -> bool:
  """Whether a RANGE is the one that the caller's workers share."""
  return uop.op is Ops.RANGE and uop.arg[1] is AxisType.THREAD


def integer_from(body: Function, operand: str, uop: UOp) -> str:
  """A 64-bit argument as the integer type of `uop`."""
  kind = value_type(uop.dtype)
  return operand if uop.dtype.bits == dtypes.int64.bits else body.let(f"trunc i64 {operand} to {kind}")


# *** dynamic scheduling ***
# Dynamic scheduling: a worker claims chunk after chunk of the loop that workers share.
#
# What a kernel computes before that loop, as panels that all of its iterations read, each call of it computes anew. The
# entry point of a target with `dynamic_scheduling` is therefore passed `int64_t claim(void* pool, int64_t range[2])`,
# and `pool`: after [begin, end) it goes on with what that writes to `range`, until it gives 0. Both are null where
# [begin, end) is all there is.


ARGUMENTS = ("ptr %claim", "ptr %pool")


def prepares(linear: Sequence[UOp]) -> bool:
  """Whether a kernel stores something before the loop that workers share."""
  shared = next((place for place, u in enumerate(linear) if is_thread_range(u)), 0)
  return any(u.op is Ops.STORE for u in linear[:shared])


def begin_chunk(body: Function) -> tuple[str, str]:
  """Begin what is done for each chunk; gives its two ends."""
  body.entry.append("  %range = alloca [2 x i64], align 8")
  before = body.block
  body.emit("br label %part")
  body.label("part")
  body.emit(f"%first = phi i64 [ %begin, %{before} ], [ %claimed.begin, %claimed ]")
  body.emit(f"%last = phi i64 [ %end, %{before} ], [ %claimed.end, %claimed ]")
  return "%first", "%last"


def end_chunk(body: Function) -> None:
  """Go on with another one, if there is one."""
  alone = body.let("icmp eq ptr %claim, null")
  body.branch(alone, "over", "more")
  body.label("more")
  got = body.let("call i64 %claim(ptr %pool, ptr %range)")
  body.branch(body.let(f"icmp eq i64 {got}, 0"), "over", "claimed")
  body.label("claimed")
  body.emit("%claimed.begin = load i64, ptr %range, align 8")
  body.emit("%range.end = getelementptr i64, ptr %range, i64 1")
  body.emit("%claimed.end = load i64, ptr %range.end, align 8")
  body.emit("br label %part")
  body.label("over")
