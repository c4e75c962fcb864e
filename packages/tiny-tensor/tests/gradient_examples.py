"""Examples of every operation that has a derivative: the rules of both modes are compared with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_uop import Ops, UOp, dtypes


@dataclass(frozen=True, eq=False)
class Example:
  """`build` makes a value of float64 inputs that are at `inputs`, nested tuples of numbers, away from kinks.

  Numbers have few bits, so that a CAST to float32 is exact around them.
  """

  build: Callable[..., UOp]
  inputs: tuple[Any, ...]


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

EXAMPLES: dict[Ops, tuple[Example, ...]] = {
  Ops.RESHAPE: _at(lambda x: x.reshape((3, 2)), _A),
  Ops.EXPAND: _at(lambda x: x.expand((4, 3)), _ROW),
  Ops.PERMUTE: _at(lambda x: x.reshape((1, 2, 3)).permute((2, 0, 1)), _A),
  Ops.PAD: _at(lambda x: x.pad(((1, 0), (2, 3))), _A),
  Ops.SHRINK: _at(lambda x: x.shrink(((1, 2), (0, 2))), _A),
  Ops.FLIP: _at(lambda x: x.flip((1,)), _A),
  Ops.CAST: _at(lambda x: x.cast(dtypes.float32).cast(dtypes.float64), _A),
  Ops.EXP2: _at(lambda x: x.exp2(), _A),
  Ops.EXP: _at(lambda x: x.exp(), _A),
  Ops.LOG2: _at(lambda x: x.log2(), _POSITIVE),
  Ops.LOG: _at(lambda x: x.log(), _POSITIVE),
  Ops.SIN: _at(lambda x: x.sin(), _A),
  Ops.COS: _at(lambda x: x.cos(), _A),
  Ops.LDEXP: _at(lambda x: x.alu(Ops.LDEXP, x.const_like(-3)), _A),
  Ops.SQRT: _at(lambda x: x.sqrt(), _POSITIVE),
  Ops.TRUNC: _at(lambda x: x.trunc() * x, _A),
  Ops.ADD: _at(lambda x, y: x + y, _A, _B),
  Ops.MUL: (*_at(lambda x, y: x * y, _A, _B), *_at(lambda x: x * x, _A)),
  Ops.FDIV: _at(lambda x, y: x / y, _A, _B),
  Ops.MAX: _at(lambda x, y: x.maximum(y), _A, _B),
  Ops.WHERE: _at(lambda x, y: (x < 0.5).where(x * 3, y), _A, _B),
  Ops.REDUCE: (
    *_at(lambda x: x.reduce_axes(Ops.ADD, (1,)), _A),
    *_at(lambda x: x.reduce_axes(Ops.MAX, (0,)), _A),
    *_at(lambda x: x.reduce_axes(Ops.MUL, (1,)), _A),
    *_at(lambda x: x.reduce_axes(Ops.MUL, (1,)), _ZEROS),
  ),
  Ops.CONTIGUOUS: _at(lambda x: (x * 2).contiguous(), _A),
  Ops.CONTIGUOUS_BACKWARD: _at(lambda x: (x * 2).contiguous_backward(), _A),
  Ops.MULTI: _at(_in_pieces, _A, _B),
  Ops.COPY: _at(lambda x: x.copy_to("HOST").copy_to(str(x.device)), _A),
  Ops.AFTER: _at(_overwritten, _SIX, _THREE, _THREE_MORE),
  Ops.BARRIER: _at(lambda x, y: (x * 2).later_than(y) * y, _A, _B),
  Ops.CUSTOM_GRADIENT: (*_at(_own, _A), *_at(_two_of_own, _A, _B)),
  Ops.STORE: _at(_overwritten, _SIX, _THREE, _THREE_MORE),
}


def cases(ops: Iterable[Ops]) -> list[tuple[str, Ops, Example]]:
  """Each operation with each of its examples, and a name. Raises ValueError for an operation without one."""
  found = []
  for op in ops:
    if not EXAMPLES.get(op):
      raise ValueError(f"{op.name} has a formula and no example: add one to EXAMPLES in gradient_examples.py")
    found += [(f"{op.name.lower()}-{i}", op, example) for i, example in enumerate(EXAMPLES[op])]
  return found
