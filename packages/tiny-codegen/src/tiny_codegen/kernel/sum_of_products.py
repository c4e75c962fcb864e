"""Kernels that are one sum of products of two operands: matrix products, convolutions, their gradients."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

from tiny_codegen.instructions.dot_product import DotProduct
from tiny_codegen.kernel.expressions import stride, terms
from tiny_codegen.kernel.loops import extent, iterations, kind, size_of
from tiny_codegen.kernel.memory import gate_of, gates_of
from tiny_uop import AxisType, Ops, PtrDType, UOp
from tiny_uop.records import dataclass


@dataclass(frozen=True, eq=False)
class Operand:
  """One factor of the product, with the loops that it depends on."""

  value: UOp
  loads: tuple[UOp, ...]
  loops: frozenset[UOp]
  _steps: dict[UOp, int | None] = field(default_factory=dict, repr=False)

  @staticmethod
  def of(value: UOp) -> Operand:
    loads = tuple([u for u in value.toposort if u.op is Ops.LOAD])
    return Operand(value, loads, value.ranges)

  @cached_property
  def main(self) -> UOp:
    """The load that depends on most loops."""
    return max(self.loads, key=lambda u: (iterations(u.ranges), -u.src[0].src[0].arg))

  @property
  def slot(self) -> int:
    """The PARAM that the main load reads."""
    return int(self.main.src[0].src[0].arg)

  @cached_property
  def computed(self) -> bool:
    """Whether there is more to it than loading: arithmetic, a conversion, or a gate."""
    return self.value.op is not Ops.LOAD or gate_of(self.value) is not None

  @cached_property
  def gates(self) -> frozenset[UOp]:
    """What has to hold for it to be loaded, if there is no more to it than that; none for an expression."""
    return frozenset(gates_of(self.value) if self.value.op is Ops.LOAD else ())

  def step(self, loop: UOp) -> int | None:
    """By how many elements the main load moves with the loop."""
    if loop not in self._steps:
      self._steps[loop] = stride(self.main.src[0].src[1], loop)
    return self._steps[loop]

  def adjacent(self, loop: UOp) -> bool:
    """Whether neighbours along the loop are neighbours in memory, most of the time: where several loops have become
    one, along the last of them."""
    return any(
      term is loop or (term.op is Ops.FLOORMOD and term.src[0] is loop and term.src[1].op is Ops.CONST)
      for term in terms(self.main.src[0].src[1])
    )

  @property
  def itemsize(self) -> int:
    """Bytes of a value."""
    return self.value.dtype.itemsize

  @cached_property
  def elements(self) -> float:
    """Values that it has."""
    return iterations(self.loops)

  @cached_property
  def nbytes(self) -> float:
    """Bytes in memory that it reads."""
    pointer = self.main.src[0].src[0].dtype
    return float(pointer.size * pointer.base.itemsize) if isinstance(pointer, PtrDType) else 0.0


def unmasked(term: UOp) -> UOp:
  """The term of a sum without a mask of positions, as that of causal attention."""
  masked = term.op is Ops.WHERE and term.src[2].op is Ops.CONST and term.src[2].arg == 0
  return term.src[1] if masked and not any(u.op is Ops.LOAD for u in term.src[0].toposort) else term


@dataclass(frozen=True, eq=False)
class SumOfProducts:
  """A kernel that is one sum of products of two operands, and one effect."""

  end: UOp
  reduce: UOp
  operands: tuple[Operand, Operand]

  @staticmethod
  def of(root: UOp) -> SumOfProducts | None:
    """The kernel as a sum of products; None if it is none."""
    if len(root.src) != 1 or root.src[0].op is not Ops.END or root.src[0].src[0].op is not Ops.STORE:
      return None
    if root.src[0].src[0].arg is not None:  # it accumulates: what is there is an operand, too
      return None
    reduces = [u for u in root.toposort if u.op is Ops.REDUCE]
    if len(reduces) != 1 or reduces[0].arg[0] is not Ops.ADD:
      return None
    product = unmasked(reduces[0].src[0])
    while product.op is Ops.CAST:
      product = product.src[0]
    if product.op not in (Ops.MUL, Ops.MMA) or not all(kind(r) is AxisType.REDUCE for r in reduces[0].src[1:]):
      return None
    a, b = (Operand.of(s) for s in product.src[:2])
    summed = frozenset(reduces[0].src[1:])
    if not all(o.loads and o.loops & summed and all(u.src[0].src[0].op is Ops.PARAM for u in o.loads) for o in (a, b)):
      return None
    return SumOfProducts(root.src[0], reduces[0], (a, b))

  def own_loops(self, operand: Operand) -> list[UOp]:
    """Output loops of known extent that move this operand and not the other."""
    other = next(o for o in self.operands if o is not operand)
    own = operand.loops - other.loops
    return [r for r in self.end.src[1:] if r in own and kind(r) is AxisType.LOOP and extent(r) is not None]

  @cached_property
  def instruction(self) -> DotProduct | None:
    """What multiplies and adds; None: a multiply-add."""
    product = next((u for u in self.reduce.src[0].toposort if u.op is Ops.MMA), None)
    return None if product is None or not isinstance(product.arg, DotProduct) else product.arg

  @cached_property
  def length(self) -> float:
    """Products in each sum."""
    return iterations(self.reduce.src[1:])

  @cached_property
  def outputs(self) -> float:
    """Sums."""
    return iterations(self.end.src[1:])

  @cached_property
  def phases(self) -> int:
    """Sums that are written out around it."""
    return int(iterations(self._written_out))

  @cached_property
  def between(self) -> int:
    """Results of phases that are neighbours in memory, between those of another loop."""
    loops = {stride(self.end.src[0].src[0].src[1], r): r for r in self._written_out}
    run = 1
    while run in loops:
      run *= size_of(loops.pop(run))
    return run

  @cached_property
  def _written_out(self) -> tuple[UOp, ...]:
    return tuple([r for r in self.end.src[1:] if kind(r) is AxisType.UPCAST])

  def phases_of(self, operand: Operand) -> int:
    """For how many of them an operand has values of their own."""
    return self.phases if self.phases > 1 and not operand.loops.isdisjoint(self._written_out) else 1
