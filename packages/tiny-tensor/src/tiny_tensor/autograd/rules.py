"""The table of derivatives: for each operation, the gradients of its sources, given that of its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.base import is_const
from tiny_uop import Devices, GroupOp, Ops, UOp, dtypes
from tiny_uop.records import dataclass

Formula = Callable[[UOp, UOp], Grads]  # (gradient of the node, node) → gradient of each source, None for no gradient


@dataclass(frozen=True, eq=False)
class Example:
  """`build` makes a value of float64 inputs that are at `inputs`, nested tuples of numbers, away from kinks.

  Numbers have few bits, so that a CAST to float32 is exact around them.
  """

  build: Callable[..., UOp]
  inputs: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Derivative:
  """A row of the table. `kinks` says where the function has no derivative, and what is given there."""

  op: Ops
  formula: Formula
  examples: tuple[Example, ...]
  kinks: str = ""

  @property
  def name(self) -> str:
    """The rule's name: of its operation."""
    return f"gradient_{self.op.name.lower()}"


def pairs(flat: Sequence[object]) -> list[tuple[object, object]]:
  return list(zip(flat[::2], flat[1::2], strict=True))


def sum_to(g: UOp, axes: Sequence[int]) -> UOp:
  """Sum along axes; halves are summed in float32."""
  wide = dtypes.promote(g.dtype, dtypes.float32) if dtypes.is_float(g.dtype) else g.dtype
  return g.cast(wide).reduce_axes(Ops.ADD, axes).cast(g.dtype)


def of_expand(g: UOp, n: UOp) -> Grads:
  """Repeated elements: their gradients add up."""
  old, new = n.src[0].shape, n.shape
  return (sum_to(g, [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a is not b and a != b]),)


def of_pad(g: UOp, n: UOp) -> Grads:
  """Only what was inside."""
  around = pairs(n.geometry)
  return (g.shrink([(b, b + s) for (b, _), s in zip(around, n.src[0].shape, strict=True)]),)  # type: ignore[operator, misc]


def of_shrink(g: UOp, n: UOp) -> Grads:
  """Zero for what was cut off."""
  kept = pairs(n.geometry)
  return (g.pad([(a, s - b) for (a, b), s in zip(kept, n.src[0].shape, strict=True)]),)  # type: ignore[operator, misc]


def of_permute(g: UOp, n: UOp) -> Grads:
  return (g.permute([n.arg.index(i) for i in range(len(n.arg))]),)


def of_maximum(g: UOp, n: UOp) -> Grads:
  """To the larger operand."""
  a, b = n.src
  half = g * 0.5
  zero = g.const_like(0)
  return tuple(x.eq(y).where(half, (x < y).where(zero, g)) for x, y in ((a, b), (b, a)))


def of_reduce(g: UOp, n: UOp) -> Grads:
  """A sum passes the gradient on, a maximum shares it among the elements that attain it, a product is a case by
  zeros.
  """
  op, axes = n.arg
  x = n.src[0]
  spread = g.expand(x.shape)
  if op is Ops.ADD:
    return (spread,)
  if op is Ops.MAX:
    top = x.eq(n.expand(x.shape)).cast(g.dtype)
    return (spread * (top / sum_to(top, axes).expand(x.shape)),)
  # Product: g·n/x where nothing is zero. With one zero, its gradient is the product of the others; that of the others
  # is 0, as a multiple of that element, whose derivative counts in second derivatives; so is that of two zeros.
  one, zero = x.const_like(1), x.const_like(0)
  is_zero = x.eq(zero)
  filled = is_zero.where(one, x)
  zeros = is_zero.cast(dtypes.int32).reduce_axes(Ops.ADD, axes).expand(x.shape)
  others = filled.reduce_axes(Ops.MUL, axes).expand(x.shape)
  nothing = is_zero.where(x, zero).reduce_axes(Ops.ADD, axes).expand(x.shape)  # all that is zero, summed
  of_zero = zeros.eq(1).where(others, zeros.eq(2).where((nothing - x) * others, zero))
  of_rest = zeros.eq(0).where(n.expand(x.shape) / filled, zeros.eq(1).where(nothing * others / filled, zero))
  return (spread * is_zero.where(of_zero, of_rest),)


def of_where(g: UOp, n: UOp) -> Grads:
  c, zero = _condition(n), g.const_like(0)
  return (None, c.where(g, zero), c.where(zero, g))


def _condition(n: UOp) -> UOp:
  """Which source a WHERE has taken. Where it has limited x from below (relu), its result says so, and x, which nothing
  else may need any more, is not kept for that."""
  c, least, x = n.src
  limited = is_const(least) and c is (x <= least)
  return n.eq(least) if limited else c


def of_after(g: UOp, n: UOp) -> Grads:
  """An assignment: what was written gets the gradient of the place it went to; the old contents that of the rest."""
  stores = n.src[1:]
  grads: list[UOp | None] = []
  rest: UOp = g
  for s in reversed(stores):
    chain = view_chain(s.src[0], n.src[0])
    value = rest
    for move in chain:
      value = move.with_src((value, *move.src[1:]))
    grads.insert(0, value)
    back = value
    for move in reversed(chain):
      back = FORMULAS[move.op](back, move)[0]  # type: ignore[assignment]
    rest = rest - back
  return (rest, *grads)


def of_multi(g: UOp, n: UOp) -> Grads:
  """To each piece its part. Of equal copies, the value is that of the first."""
  s = n.sharding
  assert s is not None
  if s.axis is None:
    return (g.copy_to(s.devices[0]), *[None] * (len(n.src) - 1))
  return tuple([g.shrink(s.region(i, n.shape)).copy_to(d) for i, d in enumerate(s.devices)])


def back_to(x: UOp, g: UOp, device: Devices | None) -> UOp:
  """The gradient where the value is that was copied from there; on `device` if that is anywhere."""
  if x.sharding is not None:
    return g.laid_out(x.sharding)
  return g if x.device is None and device is None else g.copy_to(x.device or device or ())


def view_chain(view: UOp, base: UOp) -> list[UOp]:
  """The movement ops of a view, from the base outward."""
  chain = []
  while view is not base and view.op in GroupOp.Movement:
    chain.append(view)
    view = view.src[0]
  return chain[::-1]


def _at(build: Callable[..., UOp], *inputs: Any) -> tuple[Example, ...]:
  return (Example(build, inputs),)


def _overwritten(x: UOp, y: UOp, z: UOp) -> UOp:
  """Two writes into a buffer, the second over part of the first."""
  return x.after(x.shrink(((0, 3),)).store(y), x.shrink(((2, 5),)).flip((0,)).store(z))


def _in_pieces(x: UOp, y: UOp) -> UOp:
  """Columns on one device and on another, and rows that both have, put together."""
  here = str(x.device)
  other = f"{here}:1"
  columns = UOp(Ops.MULTI, x.dtype, (x * 2, (y * y).copy_to(other)), 1)
  rows = UOp(Ops.MULTI, x.dtype, (x, x.copy_to(other)))
  return (columns * rows.pad(((0, 0), (2, 1)))).copy_to(here)


def _own(x: UOp) -> UOp:
  """A cube, whose value does not know that it is one."""
  value = x.detach() * x.detach() * x.detach()
  return with_gradient((value,), (x,), _pull_cube, "cube")[0] * x


def _pull_cube(gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
  (g,), (x,) = gs, inputs
  return (None if g is None else g * x * x * 3,)


def _two_of_own(x: UOp, y: UOp) -> UOp:
  """Sum and product, as two results of one function."""
  total, product = with_gradient((x + y, x * y), (x, y), _sum_and_product, "sum_and_product")
  return total * product * product


def _sum_and_product(gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
  (x, y), (s, p) = inputs, [x.const_like(0) if g is None else g for g, x in zip(gs, inputs, strict=True)]
  return s + p * y, s + p * x


_A = ((0.25, -1.5, 0.75), (-0.5, 1.25, -0.875))
_B = ((1.5, 0.5, -1.0), (-0.25, 2.0, -1.75))
_ROW = ((0.5, -1.25, 2.0),)
_POSITIVE = ((0.25, 1.5, 0.75), (4.0, 1.25, 0.875))
_ZEROS = ((0.0, 1.5, -2.0), (0.0, 0.5, 0.0))  # one in the first row, two in the second
_SIX, _THREE, _THREE_MORE = (0.25, -1.5, 0.75, -0.5, 1.25, -0.875), (1.5, 0.5, -1.0), (-0.25, 2.0, -1.75)

DERIVATIVES = (
  Derivative(Ops.RESHAPE, lambda g, n: (g.reshape(n.src[0].shape),), _at(lambda x: x.reshape((3, 2)), _A)),
  Derivative(Ops.EXPAND, of_expand, _at(lambda x: x.expand((4, 3)), _ROW)),
  Derivative(Ops.PERMUTE, of_permute, _at(lambda x: x.reshape((1, 2, 3)).permute((2, 0, 1)), _A)),
  Derivative(Ops.PAD, of_pad, _at(lambda x: x.pad(((1, 0), (2, 3))), _A)),
  Derivative(Ops.SHRINK, of_shrink, _at(lambda x: x.shrink(((1, 2), (0, 2))), _A)),
  Derivative(Ops.FLIP, lambda g, n: (g.flip(n.arg),), _at(lambda x: x.flip((1,)), _A)),
  Derivative(Ops.CAST, lambda g, n: (g.cast(n.src[0].dtype),),
             _at(lambda x: x.cast(dtypes.float32).cast(dtypes.float64), _A), kinks="rounding is taken for smooth"),
  Derivative(Ops.EXP2, lambda g, n: (g * n * math.log(2),), _at(lambda x: x.exp2(), _A)),
  Derivative(Ops.EXP, lambda g, n: (g * n,), _at(lambda x: x.exp(), _A)),
  Derivative(Ops.LOG2, lambda g, n: (g / (n.src[0] * math.log(2)),), _at(lambda x: x.log2(), _POSITIVE)),
  Derivative(Ops.LOG, lambda g, n: (g / n.src[0],), _at(lambda x: x.log(), _POSITIVE)),
  Derivative(Ops.SIN, lambda g, n: (g * n.src[0].cos(),), _at(lambda x: x.sin(), _A)),
  Derivative(Ops.COS, lambda g, n: (-(g * n.src[0].sin()),), _at(lambda x: x.cos(), _A)),
  Derivative(Ops.LDEXP, lambda g, n: (g.alu(Ops.LDEXP, n.src[1]), None),
             _at(lambda x: x.alu(Ops.LDEXP, x.const_like(-3)), _A), kinks="the exponent has no gradient"),
  Derivative(Ops.SQRT, lambda g, n: (g / (n * 2),), _at(lambda x: x.sqrt(), _POSITIVE), kinks="at 0: infinite"),
  Derivative(Ops.TRUNC, lambda g, n: (g.const_like(0),), _at(lambda x: x.trunc() * x, _A), kinks="at steps: 0"),
  Derivative(Ops.ADD, lambda g, n: (g, g), _at(lambda x, y: x + y, _A, _B)),
  Derivative(Ops.MUL, lambda g, n: (g * n.src[1], g * n.src[0]),
             (*_at(lambda x, y: x * y, _A, _B), *_at(lambda x: x * x, _A))),
  Derivative(Ops.FDIV, lambda g, n: (g / n.src[1], -(g * n) / n.src[1]), _at(lambda x, y: x / y, _A, _B)),
  Derivative(Ops.MAX, of_maximum, _at(lambda x, y: x.maximum(y), _A, _B),
             kinks="equal operands: half to each, NaN: all to both, as in PyTorch"),
  Derivative(Ops.WHERE, of_where, _at(lambda x, y: (x < 0.5).where(x * 3, y), _A, _B),
             kinks="the condition has no gradient"),
  Derivative(Ops.REDUCE, of_reduce,
             (*_at(lambda x: x.reduce_axes(Ops.ADD, (1,)), _A), *_at(lambda x: x.reduce_axes(Ops.MAX, (0,)), _A),
              *_at(lambda x: x.reduce_axes(Ops.MUL, (1,)), _A), *_at(lambda x: x.reduce_axes(Ops.MUL, (1,)), _ZEROS)),
             kinks="several largest elements share the gradient"),
  Derivative(Ops.CONTIGUOUS, lambda g, n: (g,), _at(lambda x: (x * 2).contiguous(), _A)),
  Derivative(Ops.CONTIGUOUS_BACKWARD, lambda g, n: (g.contiguous(),), _at(lambda x: (x * 2).contiguous_backward(), _A)),
  Derivative(Ops.MULTI, of_multi, _at(_in_pieces, _A, _B)),
  Derivative(Ops.COPY, lambda g, n: (back_to(n.src[0], g, n.device), None),
             _at(lambda x: x.copy_to("HOST").copy_to(str(x.device)), _A)),
  Derivative(Ops.AFTER, of_after, _at(_overwritten, _SIX, _THREE, _THREE_MORE)),
  Derivative(Ops.BARRIER, lambda g, n: (g,), _at(lambda x, y: (x * 2).later_than(y) * y, _A, _B),
             kinks="what has to come before has no gradient"),
  Derivative(Ops.CUSTOM_GRADIENT, lambda g, n: (None, None), (*_at(_own, _A), *_at(_two_of_own, _A, _B)),
             kinks="the walk asks the function that belongs to the node, and its inputs get what that gives"),
  Derivative(Ops.STORE, lambda g, n: (None, g), _at(_overwritten, _SIX, _THREE, _THREE_MORE),
             kinks="the view that is written through has no gradient"),
)  # fmt: skip

FORMULAS: dict[Ops, Formula] = {row.op: row.formula for row in DERIVATIVES}

# Why no gradient passes through the other operations.
WITHOUT_GRADIENT: dict[Ops, str] = {
  Ops.DETACH: "this is what it is for",
  Ops.BITCAST: "bits are not numbers",
  **dict.fromkeys(GroupOp.Compare, "gives a bool"),
  **dict.fromkeys((Ops.FLOORDIV, Ops.FLOORMOD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.THREEFRY), "integers"),
  **dict.fromkeys((Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.DEVICE, Ops.BUFFER), "a leaf"),
  Ops.SINK: "no value: several effects",
  **dict.fromkeys((Ops.NEG, Ops.SUB, Ops.MULACC, Ops.TRUNCDIV, Ops.TRUNCMOD), "only made in code generation"),
  **dict.fromkeys((Ops.PARAM, Ops.ALLOC, Ops.RANGE, Ops.SPECIAL, Ops.INDEX, Ops.LOAD, Ops.END, Ops.STAGE, Ops.GROUP,
                   Ops.MMA, Ops.SHUFFLE), "of kernels"),
  **dict.fromkeys((Ops.VECTORIZE, Ops.EXTRACT, Ops.IF, Ops.ENDIF, Ops.PREFETCH, Ops.LINEAR, Ops.CALL, Ops.SOURCE,
                   Ops.PROGRAM, Ops.BUFFER_VIEW), "of programs and schedules"),
}  # fmt: skip
