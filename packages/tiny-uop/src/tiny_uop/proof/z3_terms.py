"""Scalar and vector UOps as z3 terms, and proofs about them.

    terms = Terms()
    terms.prove(terms.of(x * 2 // 2) == terms.of(x)).proved

`index` is z3's mathematical integer, a bool a bool. A fixed-width integer is a bit vector, or an integer that wraps
(`Terms(Integers())`): some questions are easy for one, some for the other. A float is the bit vector of its bits and
operations on it are functions of which nothing is known, as is memory: LOAD is a function of pointer and offset, the
alternative where its gate does not hold. What is proved with unknown functions holds for all of them; a counter-example
may be one that the true function does not allow, so `Answer.certain` tells.

z3 is imported when `Terms` is made: `pip install 'tiny-uop[proof]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from tiny_uop.dtype import DType, PtrDType, dtypes
from tiny_uop.evaluate import lanes_of, packed
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.proof.z3_arithmetic import BitVectors, Integers, load_z3
from tiny_uop.records import dataclass
from tiny_uop.truncate import from_bits, to_bits, truncate
from tiny_uop.uop import UOp

__all__ = ["Answer", "BitVectors", "Integers", "Terms", "load_z3"]

TIMEOUT_MS = 10_000
_COUNTERS = frozenset({Ops.VARIABLE, Ops.RANGE, Ops.SPECIAL})
_PLACES = frozenset({Ops.PARAM, Ops.ALLOC, Ops.DEVICE, Ops.BUFFER})
_MEMORY_OPS = frozenset({Ops.LOAD, Ops.STORE, Ops.INDEX})


@dataclass(frozen=True)
class Answer:
  """What the solver found. Neither proved nor a counter-example: it gave up.

  `counterexample` gives values to leaves (VARIABLE, RANGE, SPECIAL, LOAD, …); `certain` is False where unknown
  functions stood for operations that have a meaning. `values` are those that `prove` was asked to show.
  """

  proved: bool
  counterexample: dict[UOp, Any] = field(default_factory=dict)
  certain: bool = True
  values: tuple[Any, ...] = ()

  @property
  def unknown(self) -> bool:
    return not self.proved and not self.counterexample

  def __str__(self) -> str:
    if self.proved:
      return "proved"
    return ", ".join(f"{leaf_name(u)} = {v}" for u, v in self.counterexample.items()) or "unknown"


def leaf_name(u: UOp) -> str:
  """How a leaf is called in messages: a variable or loop by its name, an element of memory as `param0[3]`."""
  if u.op in _COUNTERS:
    return f"r{u.arg[0]}" if u.op is Ops.RANGE else str(u.arg if u.op is Ops.SPECIAL else u.arg[0])
  if u.op is Ops.LOAD and u.src[0].op is Ops.INDEX:
    pointer, offset = u.src[0].src[:2]
    return f"{pointer.op.name.lower()}{pointer.arg}[{offset.render()}]"
  return u.op.name.lower()


class Terms:
  """Translates UOps; asking twice for a node gives the same term.

  `constraints` collects the bounds of leaves, which proofs may use; `specified` what must hold for the value to be
  specified (shift counts), which they do not use.
  """

  def __init__(self, arithmetic: Integers | None = None) -> None:
    self.z3 = load_z3()
    self.arithmetic = arithmetic or BitVectors()
    self.constraints: list[Any] = []
    self.specified: list[Any] = []
    self.leaves: dict[UOp, Any] = {}
    self.opaque: set[UOp] = set()  # operations with a meaning for which an unknown function stands
    self._terms: dict[UOp, Any] = {}

  # *** asking ***

  def of(self, root: UOp) -> Any:
    """The term of a node, for a vector a tuple of terms; loops that the node is inside of are entered."""
    for u in root.toposort:
      if u not in self._terms:
        self._terms[u] = self._translate(u)
    for loop in root.ranges:
      self.constraints.append(self.arithmetic.less(loop.dtype, self._terms[loop], self._terms[loop.src[0]]))
    return self._terms[root]

  def equal(self, x: UOp, y: UOp) -> Any:
    """The claim that two nodes of one dtype have the same value (floats: the same bits)."""
    pairs = zip(lanes_of(self.of(x), 1), lanes_of(self.of(y), 1), strict=True)
    return self.z3.And(*[a == b for a, b in pairs])

  def prove(self, claim: Any, timeout_ms: int = TIMEOUT_MS, show: Sequence[UOp] = ()) -> Answer:
    """Whether the claim holds for all values of the leaves within their bounds; with a counter-example come the values
    of the nodes `show`."""
    z3 = self.z3
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.add(*self.constraints, z3.Not(claim))
    result = solver.check()
    if result == z3.unsat:
      return Answer(True)
    if result == z3.unknown:
      return Answer(False)
    model = solver.model()
    found = {u: self._value(model, u, term) for u, term in self.leaves.items()}
    values = tuple(self._value(model, u, self._terms[u]) for u in show)
    return Answer(False, found or {UOp.const(dtypes.bool, True): True}, not self.opaque, values)

  def _value(self, model: Any, u: UOp, term: Any) -> Any:
    return packed([self._scalar(model, u.dtype.scalar(), t) for t in lanes_of(term, 1)])

  def _scalar(self, model: Any, dtype: DType, term: Any) -> Any:
    value = model.eval(term, model_completion=True)
    if not _has_value(dtype):
      return value
    if dtype.kind == "bool":
      return self.z3.is_true(value)
    if dtype.kind == "float":
      return from_bits(dtype, value.as_long())
    return self.arithmetic.number(value, dtype)

  # *** translating ***

  def _translate(self, u: UOp) -> Any:
    if u.op is Ops.CONST:
      return packed([self._constant(u.dtype.scalar(), lane) for lane in lanes_of(u.arg, u.dtype.count)])
    if u.op in _COUNTERS:
      return self._counter(u)
    sources = [self._terms[s] for s in u.src]
    if u.op is Ops.BIND:
      return sources[0]
    if u.op is Ops.VECTORIZE:
      return tuple([lane for s in sources for lane in (s if isinstance(s, tuple) else (s,))])
    if u.op is Ops.EXTRACT:
      return packed([sources[0][lane] for lane in u.arg])
    if u.op in _MEMORY_OPS:
      return self._memory(u, sources)
    if u.op in GroupOp.Elementwise:
      return self._lanes(u, sources)
    return self._function(u, sources)

  def _constant(self, dtype: DType, value: Any) -> Any:
    return self._sort(dtype).cast(to_bits(dtype, value) if dtype.kind == "float" else truncate(dtype, value))

  def _counter(self, u: UOp) -> Any:
    name = f"{u.op.name}:{u.arg[0] if isinstance(u.arg, tuple) else u.arg}:{u.dtype.name}:{u.key.hex()[:8]}"
    term = self.arithmetic.symbol(name, u.dtype)
    if u.op is Ops.VARIABLE:
      low, high = (self.arithmetic.constant(u.dtype, end) for end in u.arg[1:])
      self.constraints += [self._at_most(u.dtype, low, term), self._at_most(u.dtype, term, high)]
    else:
      # Below the extent only where the loop is entered: see `of`. Of a loop that has been closed nothing is known,
      # as it may have had no iterations; a hardware counter always runs.
      self.constraints.append(self._at_most(u.dtype, self.arithmetic.constant(u.dtype, 0), term))
      if u.op is Ops.SPECIAL or (u.src[0].op is Ops.CONST and u.src[0].arg > 0):
        self.constraints.append(self.arithmetic.less(u.dtype, term, self._terms[u.src[0]]))
    self.leaves[u] = term
    return term

  def _at_most(self, dtype: DType, x: Any, y: Any) -> Any:
    return self.z3.Not(self.arithmetic.less(dtype, y, x))

  # *** elementwise ***

  def _lanes(self, u: UOp, sources: list[Any]) -> Any:
    columns = [lanes_of(s, u.dtype.count) for s in sources]
    return packed([self._alu(u, list(row)) for row in zip(*columns, strict=True)])

  def _alu(self, u: UOp, args: list[Any]) -> Any:
    z3, op, dtype = self.z3, u.op, u.src[-1].dtype.scalar()
    if op is Ops.WHERE:
      return z3.If(*args)
    if op in (Ops.CAST, Ops.BITCAST):
      made = (self._cast if op is Ops.CAST else self._bitcast)(args[0], dtype, u.dtype.scalar())
    elif op is Ops.THREEFRY:
      made = self._threefry(*args)
    elif op in GroupOp.Compare and dtype.kind != "float":
      x, y = args
      less = z3.And(z3.Not(x), y) if dtype.kind == "bool" else self.arithmetic.less(dtype, x, y)
      made = less if op is Ops.CMPLT else x == y if op is Ops.CMPEQ else x != y
    elif dtype.kind == "bool":
      made = self._logic(op, args)
    else:
      if op in (Ops.SHL, Ops.SHR) and dtype.kind != "index":
        zero, bits = self.arithmetic.constant(dtype, 0), self.arithmetic.constant(dtype, dtype.bits)
        self.specified += [self._at_most(dtype, zero, args[1]), self.arithmetic.less(dtype, args[1], bits)]
      made = None if dtype.kind == "float" else self.arithmetic.apply(op, dtype, args)
    return self._unknown(u, args) if made is None else made

  def _logic(self, op: Ops, args: list[Any]) -> Any | None:
    z3 = self.z3
    make = {Ops.AND: z3.And, Ops.MUL: z3.And, Ops.OR: z3.Or, Ops.ADD: z3.Or, Ops.MAX: z3.Or, Ops.XOR: z3.Xor}.get(op)
    return None if make is None else make(*args)

  def _cast(self, x: Any, source: DType, target: DType) -> Any | None:
    if source is target:
      return x
    if source.kind == "bool":
      return self.z3.If(x, self._constant(target, 1), self._constant(target, 0))
    if source.kind == "float" or target.kind == "float":
      return None
    if target.kind == "bool":
      return x != self._constant(source, 0)
    return self.arithmetic.convert(x, source, target)

  def _bitcast(self, x: Any, source: DType, target: DType) -> Any | None:
    if source is target:
      return x
    if "bool" in (source.kind, target.kind) or source.bits != target.bits:
      return None
    if not isinstance(self.arithmetic, BitVectors) and "float" in (source.kind, target.kind):
      return None
    return self.arithmetic.convert(x, source, target)

  def _threefry(self, counter: Any, key: Any) -> Any | None:
    """The steps of `tiny_uop.evaluate.threefry` on bit vectors."""
    z3 = self.z3
    if not isinstance(self.arithmetic, BitVectors):
      return None
    x0, x1, k0, k1 = (z3.Extract(top, top - 31, word) for word in (counter, key) for top in (31, 63))
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = x0 + k0, x1 + k1
    for group in range(5):
      for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
        x0 = x0 + x1
        x1 = z3.RotateLeft(x1, rotation) ^ x0
      x0, x1 = x0 + keys[(group + 1) % 3], x1 + keys[(group + 2) % 3] + group + 1
    return z3.Concat(x1, x0)

  # *** memory, and what is not known ***

  def _memory(self, u: UOp, sources: list[Any]) -> Any:
    """INDEX gives an address, nowhere where its gate is false; a LOAD from nowhere gives its alternative."""
    address = u if u.op is Ops.INDEX else u.src[0]
    if address.op is not Ops.INDEX:  # a pointer from elsewhere
      return self._function(u, sources)
    places = [self._terms[s] for s in address.src]
    gate = places[2] if len(places) == 3 else None
    if u.op is Ops.INDEX:
      here, other = self._function(u, places[:2]), self._named("nowhere", [], u.dtype)
    elif u.op is Ops.STORE:
      here, other = self._function(u, [*places[:2], sources[1]]), self._named("nothing", [], u.dtype)
    else:
      here = self._function(u, places[:2])
      other = sources[1] if len(sources) > 1 else self._constant(u.dtype.scalar(), 0)
      self.leaves[u] = here
    if gate is None:
      return here
    pairs = zip(lanes_of(here, 1), lanes_of(other, u.dtype.count), strict=True)
    return packed([self.z3.If(gate, x, y) for x, y in pairs])

  def _unknown(self, u: UOp, args: list[Any]) -> Any:
    self.opaque.add(u)
    return self._named(_function_name(u), args, u.dtype.scalar())

  def _function(self, u: UOp, sources: list[Any]) -> Any:
    """A function of the sources of which nothing is known: equal sources give equal results."""
    args = [lane for s in sources for lane in lanes_of(s, 1)]
    scalar = u.dtype.scalar()
    lanes = [self._named(f"{_function_name(u)}.{lane}", args, scalar) for lane in range(u.dtype.count)]
    if u.op not in _MEMORY_OPS and u.op not in _PLACES:
      self.opaque.add(u)
    if u.op not in _MEMORY_OPS and _has_value(u.dtype):
      self.leaves[u] = packed(lanes)
    return packed(lanes)

  def _named(self, name: str, args: list[Any], dtype: DType) -> Any:
    """A function of that name, of which no more is known than the range of an integer type."""
    sorts = [a.sort() for a in args]
    made = self.z3.Function(f"{name}({','.join(map(str, sorts))})", *sorts, self._sort(dtype))(*args)
    if dtype.kind in ("int", "uint") and not isinstance(dtype, PtrDType):
      self.constraints += self.arithmetic.in_type(made, dtype)
    return made

  def _sort(self, dtype: DType) -> Any:
    if not _has_value(dtype):
      return self.z3.DeclareSort(dtype.name)
    if dtype.kind == "bool":
      return self.z3.BoolSort()
    return self.z3.BitVecSort(dtype.bits) if dtype.kind == "float" else self.arithmetic.sort(dtype)


def _has_value(dtype: DType) -> bool:
  return not isinstance(dtype, PtrDType) and dtype.kind != "void"


def _function_name(u: UOp) -> str:
  return f"{u.op.name}:{u.dtype.scalar().name}:{u.arg!r}"
