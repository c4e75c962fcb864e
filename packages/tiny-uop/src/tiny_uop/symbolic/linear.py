"""Linear forms: an integer expression as `sum(coefficient * term) + constant`, the view in which most integer rules are
stated.

A form equals its expression modulo 2**bits. It equals it as a mathematical integer, which rules about division and
order need, when its bounds fit the type (`exact`); `index` always does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tiny_uop.bounds import fits
from tiny_uop.dtype import DType, dtypes
from tiny_uop.node import kept
from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

INTEGERS = (*dtypes.ints, dtypes.index)
"""The types of which expressions are linear forms."""
MAX_TERMS = 64  # sums of more are split, so that a pathological one costs linear time


class Linear:
  """`terms` maps nodes to non-zero coefficients, in order of appearance; `leaves` counts the summands collected."""

  __slots__ = ("const", "leaves", "terms")

  def __init__(self, terms: dict[UOp, int] | None = None, const: int = 0) -> None:
    self.terms: dict[UOp, int] = terms or {}
    self.const = const
    self.leaves = 0

  def add(self, term: UOp, coefficient: int) -> None:
    """Add `coefficient * term`, where term is not itself looked into."""
    total = self.terms.get(term, 0) + coefficient
    if total:
      self.terms[term] = total
    else:
      self.terms.pop(term, None)

  def add_form(self, other: Linear, factor: int = 1) -> None:
    """Add `factor * other`."""
    for term, coefficient in other.terms.items():
      self.add(term, coefficient * factor)
    self.const += other.const * factor

  def copy(self) -> Linear:
    return Linear(dict(self.terms), self.const)

  def bounds(self) -> tuple[int, int]:
    """Interval of the form as a mathematical integer."""
    low = high = self.const
    for term, coefficient in self.terms.items():
      ends = term._bounds
      low += coefficient * ends[coefficient < 0]
      high += coefficient * ends[coefficient > 0]
    return low, high

  def exact(self, dtype: DType) -> bool:
    """Whether an expression of this form in `dtype` never wraps."""
    return dtype.kind == "index" or fits(dtype, *self.bounds())


def is_const(u: UOp) -> bool:
  """A scalar constant, or a vector of equal ones."""
  return u.op is Ops.CONST and type(u.arg) is not tuple


def _signed(dtype: DType, value: int) -> int:
  # in an unsigned type, 2**bits - 1 is a way to write -1
  return value - (1 << dtype.bits) if dtype.kind == "uint" and value >> (dtype.bits - 1) else value


def linear(u: UOp, limit: int = MAX_TERMS) -> Linear:
  """The linear form of an integer expression, through ADD, NEG, SUB and MUL by constants; at most about `limit`
  summands are looked into."""
  form = Linear()
  dtype = u.dtype
  stack: list[tuple[UOp, int]] = [(u, 1)]
  while stack:
    node, factor = stack.pop()
    op = node.op
    if op is Ops.ADD and form.leaves < limit:
      stack.append((node.src[1], factor))
      stack.append((node.src[0], factor))
    elif op is Ops.MUL and is_const(node.src[1]):
      stack.append((node.src[0], factor * _signed(dtype, node.src[1].arg)))
    elif op is Ops.MUL and is_const(node.src[0]):
      stack.append((node.src[1], factor * _signed(dtype, node.src[0].arg)))
    elif is_const(node):
      form.const += factor * _signed(dtype, node.arg)
      form.leaves += 1
    else:
      form.add(node, factor)
      form.leaves += 1
  return form


@kept
def _loops(u: UOp) -> tuple[int, ...]:
  """The ids of the loops that a value is inside of, innermost first."""
  return tuple(sorted([r.arg[0] for r in u.ranges], reverse=True))


@kept
def order(u: UOp) -> tuple[Any, ...]:
  """Sort key of terms: by innermost loop first, so that in a left-nested sum what is invariant in the inner loops comes
  first. What variables are bound to does not count: the same expression is the same for all values.
  """
  loops = _loops(u)
  free = u.substitute({b: b.src[0] for b in u.walk() if b.op is Ops.BIND})
  name = free.arg[0] if free.op is Ops.VARIABLE else ""
  return (loops, name, free.key)


def comes_before(a: UOp, b: UOp) -> bool:
  """`order(a) < order(b)`. Mostly loops decide, and no name has to be made of the structure."""
  first, second = _loops(a), _loops(b)
  return first < second if first != second else order(a) < order(b)


def in_order(terms: Iterable[UOp]) -> list[UOp]:
  """Terms sorted by `order`."""
  found = list(terms)
  return sorted(found, key=order if len({_loops(t) for t in found}) < len(found) else _loops)


def scaled(term: UOp, coefficient: int) -> UOp:
  """`term * coefficient`, without a MUL by 1."""
  return term if coefficient == 1 else term.alu(Ops.MUL, term.const(term.dtype, coefficient))


def build(like: UOp, form: Linear, terms: Iterable[UOp] | None = None) -> UOp:
  """The expression of a form, of the dtype of `like`: a left-nested sum in canonical order (or that of `terms`), the
  constant last."""
  total: UOp | None = None
  for term in in_order(form.terms) if terms is None else terms:
    part = scaled(term, form.terms[term])
    total = part if total is None else total.alu(Ops.ADD, part)
  if total is not None and form.const == 0:
    return total
  constant = like.const(like.dtype, form.const)
  return constant if total is None else total.alu(Ops.ADD, constant)
