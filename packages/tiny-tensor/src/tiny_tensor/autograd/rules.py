"""The table of derivatives: for each operation, the gradients of its sources, given that of its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tiny_tensor.autograd.custom_gradient import Grads
from tiny_tensor.base import is_const
from tiny_uop import Devices, GroupOp, Ops, UOp, dtypes
from tiny_uop.shape import pairs

Formula = Callable[[UOp, UOp], Grads]  # (gradient of the node, node) → gradient of each source, None for no gradient


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
  return (g.shrink([(b, b + s) for (b, _), s in zip(around, n.src[0].shape, strict=True)]),)


def of_shrink(g: UOp, n: UOp) -> Grads:
  """Zero for what was cut off."""
  kept = pairs(n.geometry)
  return (g.pad([(a, s - b) for (a, b), s in zip(kept, n.src[0].shape, strict=True)]),)


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
    value = moved(rest, chain)
    grads.insert(0, value)
    rest = rest - moved_back(value, chain)
  return (rest, *grads)


def of_multi(g: UOp, n: UOp) -> Grads:
  """To each piece its part. Of equal copies, the value is that of the first."""
  s = n.sharding
  assert s is not None
  if s.spans:
    return tuple([None] * len(n.src))  # what this process has is data; who wants its gradient shards the tensor
  first = {s.region(i, n.shape): i for i in reversed(range(len(s.devices)))}.values()
  pieces = [(i in first, s.region(i, n.shape), d) for i, d in enumerate(s.devices)]
  return tuple([(g.shrink(region) if s.cuts else g).copy_to(d) if own else None for own, region, d in pieces])


def back_to(x: UOp, g: UOp, device: Devices | None) -> UOp:
  """The gradient where the value is that was copied from there; on `device` if that is anywhere."""
  if x.sharding is not None:
    return g.laid_out(x.sharding)
  return g if x.device is None and device is None else g.copy_to(x.device or device or ())


def view_chain(view: UOp, base: UOp | None = None) -> list[UOp]:
  """The movement ops of a view, from the base (None: what is no movement) outward."""
  chain = []
  while view is not base and view.op in GroupOp.Movement:
    chain.append(view)
    view = view.src[0]
  return chain[::-1]


def moved(value: UOp, chain: Sequence[UOp]) -> UOp:
  """A value through movement ops."""
  for move in chain:
    value = move.with_src((value, *move.src[1:]))
  return value


def moved_back(g: UOp, chain: Sequence[UOp]) -> UOp:
  """The gradient before movement ops, given that behind them."""
  for move in reversed(chain):
    g = FORMULAS[move.op](g, move)[0]  # type: ignore[assignment]  # movement has a gradient
  return g


FORMULAS: dict[Ops, Formula] = {
  Ops.RESHAPE: lambda g, n: (g.reshape(n.src[0].shape),),
  Ops.EXPAND: of_expand,
  Ops.PERMUTE: of_permute,
  Ops.PAD: of_pad,
  Ops.SHRINK: of_shrink,
  Ops.FLIP: lambda g, n: (g.flip(n.arg),),
  Ops.CAST: lambda g, n: (g.cast(n.src[0].dtype),),  # rounding is taken for smooth
  Ops.EXP2: lambda g, n: (g * n * math.log(2),),
  Ops.EXP: lambda g, n: (g * n,),
  Ops.LOG2: lambda g, n: (g / (n.src[0] * math.log(2)),),
  Ops.LOG: lambda g, n: (g / n.src[0],),
  Ops.SIN: lambda g, n: (g * n.src[0].cos(),),
  Ops.COS: lambda g, n: (-(g * n.src[0].sin()),),
  Ops.LDEXP: lambda g, n: (g.alu(Ops.LDEXP, n.src[1]), None),  # the exponent has no gradient
  Ops.SQRT: lambda g, n: (g / (n * 2),),  # at 0: infinite
  Ops.TRUNC: lambda g, n: (g.const_like(0),),  # at steps: 0
  Ops.ADD: lambda g, n: (g, g),
  Ops.MUL: lambda g, n: (g * n.src[1], g * n.src[0]),
  Ops.FDIV: lambda g, n: (g / n.src[1], -(g * n) / n.src[1]),
  Ops.MAX: of_maximum,  # equal operands: half to each, NaN: all to both, as in PyTorch
  Ops.WHERE: of_where,  # the condition has no gradient
  Ops.REDUCE: of_reduce,  # several largest elements share the gradient
  Ops.CONTIGUOUS: lambda g, n: (g,),
  Ops.CONTIGUOUS_BACKWARD: lambda g, n: (g.contiguous(),),
  Ops.MULTI: of_multi,
  Ops.COPY: lambda g, n: (back_to(n.src[0], g, n.device), None),
  Ops.AFTER: of_after,
  Ops.BARRIER: lambda g, n: (g,),  # what has to come before has no gradient
  Ops.CUSTOM_GRADIENT: lambda g, n: (None, None),  # `reverse` asks the function that belongs to the node
  Ops.STORE: lambda g, n: (None, g),  # the view that is written through has no gradient
}
"""For each operation its formula. Where it has no derivative (kinks), what is given there. Examples of each, which are
compared with finite differences, are in the tests: `gradient_examples.py`."""

# Why no gradient passes through the other operations.
WITHOUT_GRADIENT: dict[Ops, str] = {
  Ops.DETACH: "this is what it is for",
  Ops.BITCAST: "bits are not numbers",
  **dict.fromkeys((Ops.COLLECTIVE, Ops.NATIVE), "it is the body of a CALL, which has none"),
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
