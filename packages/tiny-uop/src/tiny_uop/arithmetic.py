"""Elementwise operators of nodes, and the functions that are one operation: a family of methods that `UOp` inherits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tiny_uop.dtype import DType, dtypes
from tiny_uop.node import Node
from tiny_uop.ops import GroupOp, Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


# UOp and UOp.const: tiny_uop.uop puts them here, since UOp inherits from the class below. An import inside of a
# function would take as long as making the node.
_make = cast("Callable[..., UOp]", None)
_const = cast("Callable[[DType, Any], UOp]", None)


class Arithmetic(Node):
  """Elementwise operators. A Python number takes the dtype of the node it meets."""

  __slots__ = ()

  def const_like(self, value: Any) -> UOp:
    """A constant of this node's dtype and, at tensor level, shape."""
    shape = self._shape  # type: ignore[attr-defined]
    made = _const(self.dtype, value)
    return made.filling(shape) if shape else made

  def alu(self, op: Ops, *src: UOp) -> UOp:
    """An elementwise node with this as its first source; gives bool for comparisons."""
    me = cast("UOp", self)
    dtype = src[-1].dtype if op is Ops.WHERE else self.dtype
    return _make(op, dtypes.bool.vec(dtype.count) if op in GroupOp.Compare else dtype, (me, *src))

  def _other(self, value: Any) -> UOp:
    return value if isinstance(value, Node) else self.const_like(value)  # type: ignore[return-value]

  def _binary(self, op: Ops, other: Any, swap: bool = False) -> UOp:
    right = self._other(other)
    return right.alu(op, cast("UOp", self)) if swap else self.alu(op, right)

  def __add__(self, other: UOp | float) -> UOp:
    return self._binary(Ops.ADD, other)

  def __radd__(self, other: float) -> UOp:
    return self._binary(Ops.ADD, other)

  def __sub__(self, other: UOp | float) -> UOp:
    return self._binary(Ops.ADD, -self._other(other))

  def __rsub__(self, other: float) -> UOp:
    return (-self)._binary(Ops.ADD, other)

  def __mul__(self, other: UOp | float) -> UOp:
    return self._binary(Ops.MUL, other)

  def __rmul__(self, other: float) -> UOp:
    return self._binary(Ops.MUL, other)

  def __neg__(self) -> UOp:
    if self.op is Ops.CONST and type(self.arg) is not tuple:
      return _const(self.dtype, -self.arg)
    return self._binary(Ops.MUL, -1)

  def __floordiv__(self, other: UOp | int) -> UOp:
    return self._binary(Ops.FLOORDIV, other)

  def __rfloordiv__(self, other: int) -> UOp:
    return self._binary(Ops.FLOORDIV, other, swap=True)

  def __mod__(self, other: UOp | int) -> UOp:
    return self._binary(Ops.FLOORMOD, other)

  def __rmod__(self, other: int) -> UOp:
    return self._binary(Ops.FLOORMOD, other, swap=True)

  def __truediv__(self, other: UOp | float) -> UOp:
    return self._binary(Ops.FDIV, other)

  def __rtruediv__(self, other: float) -> UOp:
    return self._binary(Ops.FDIV, other, swap=True)

  def __and__(self, other: UOp | int) -> UOp:
    return self._binary(Ops.AND, other)

  def __rand__(self, other: int) -> UOp:
    return self._binary(Ops.AND, other)

  def __or__(self, other: UOp | int) -> UOp:
    return self._binary(Ops.OR, other)

  def __ror__(self, other: int) -> UOp:
    return self._binary(Ops.OR, other)

  def __xor__(self, other: UOp | int) -> UOp:
    return self._binary(Ops.XOR, other)

  def __rxor__(self, other: int) -> UOp:
    return self._binary(Ops.XOR, other)

  def __lshift__(self, other: UOp | int) -> UOp:
    return self._binary(Ops.SHL, other)

  def __rshift__(self, other: UOp | int) -> UOp:
    return self._binary(Ops.SHR, other)

  def __invert__(self) -> UOp:
    return self.logical_not() if self.dtype.kind == "bool" else self._binary(Ops.XOR, -1)

  def __lt__(self, other: UOp | float) -> UOp:
    return self._binary(Ops.CMPLT, other)

  def __gt__(self, other: UOp | float) -> UOp:
    return self._binary(Ops.CMPLT, other, swap=True)

  def __le__(self, other: UOp | float) -> UOp:
    # not (other < self) would be true for NaN
    if self.dtype.kind == "float":
      return (self < other) | self.eq(other)
    return (self > other).logical_not()

  def __ge__(self, other: UOp | float) -> UOp:
    if self.dtype.kind == "float":
      return (self > other) | self.eq(other)
    return (self < other).logical_not()

  def logical_not(self) -> UOp:
    """not x, of a bool."""
    return self._binary(Ops.CMPNE, True)

  def eq(self, other: UOp | float) -> UOp:
    """Elementwise equality (`==` is identity)."""
    return self._binary(Ops.CMPEQ, other)

  def ne(self, other: UOp | float) -> UOp:
    """Elementwise inequality."""
    return self._binary(Ops.CMPNE, other)

  def maximum(self, other: UOp | float) -> UOp:
    """Elementwise maximum."""
    return self._binary(Ops.MAX, other)

  def minimum(self, other: UOp | float) -> UOp:
    """Elementwise minimum, made of the maximum of the complements."""
    right = self._other(other)
    if self.dtype.kind == "float" or self.dtype.kind == "index":
      return -((-self).maximum(-right))
    return ~((~self).maximum(~right))

  def where(self, yes: UOp | float, no: UOp | float) -> UOp:
    """`yes` where this bool holds, else `no`. At least one of them is a node."""
    if not isinstance(yes, Node):
      if not isinstance(no, Node):
        raise TypeError(f"where({yes!r}, {no!r}): one branch must be a UOp, which gives the dtype")
      yes = no.const_like(yes)
    return self.alu(Ops.WHERE, yes, yes._other(no))

  def cast(self, dtype: DType) -> UOp:
    """Convert to another type with as many lanes."""
    if dtype.count == 1 and self.dtype.count > 1:
      dtype = dtype.vec(self.dtype.count)
    me = cast("UOp", self)
    if dtype is self.dtype:
      return me
    return _const(dtype, self.arg) if self.op is Ops.CONST and not self.src else _make(Ops.CAST, dtype, (me,))

  def bitcast(self, dtype: DType) -> UOp:
    """Reinterpret the bits."""
    me = cast("UOp", self)
    return me if dtype is self.dtype else _make(Ops.BITCAST, dtype, (me,))

  def exp2(self) -> UOp:
    """2 to the power of it. Floats only, as for the functions below."""
    return self.alu(Ops.EXP2)

  def log2(self) -> UOp:
    """Logarithm to base 2; -inf for 0, NaN below."""
    return self.alu(Ops.LOG2)

  def exp(self) -> UOp:
    """e to the power of it."""
    return self.alu(Ops.EXP)

  def log(self) -> UOp:
    """Natural logarithm; -inf for 0, NaN below."""
    return self.alu(Ops.LOG)

  def sin(self) -> UOp:
    """Sine of radians."""
    return self.alu(Ops.SIN)

  def cos(self) -> UOp:
    """Cosine of radians."""
    return self.alu(Ops.COS)

  def sqrt(self) -> UOp:
    """Square root; NaN below 0."""
    return self.alu(Ops.SQRT)

  def trunc(self) -> UOp:
    """The integer next to it, toward zero."""
    return self.alu(Ops.TRUNC)

  def reciprocal(self) -> UOp:
    """`1 / x`, rounded once."""
    return self._binary(Ops.FDIV, 1, swap=True)

  def threefry(self, key: UOp) -> UOp:
    """Threefry-2x32 of this counter under a key; both uint64."""
    return self.alu(Ops.THREEFRY, key)
