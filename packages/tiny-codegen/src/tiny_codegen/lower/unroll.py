"""Pass: UPCAST and UNROLL loops are written out, the counter replaced by each of its values.

Hash-consing shares what does not depend on the counter. A REDUCE over an UNROLL loop becomes a chain; a REDUCE inside
an UPCAST loop becomes several that share one RANGE and so one loop. This is what makes a register tile.
"""

from __future__ import annotations

import itertools

from tiny_codegen.kernel.expressions import number
from tiny_codegen.kernel.loops import CLOSERS, kind, substitute_each
from tiny_codegen.lower.reduce import identity
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.graph import chain, operands, rebuild

UNROLLED = frozenset({AxisType.UPCAST, AxisType.UNROLL})


def unroll(root: UOp) -> UOp:
  """The kernel without UPCAST and UNROLL loops."""
  conditional = False

  def change(u: UOp, new: UOp) -> UOp | None:
    nonlocal conditional
    if u.op not in CLOSERS or all(kind(r) not in UNROLLED for r in u.src[1:]):
      return None
    conditional |= u.op is Ops.REDUCE and u.src[0].op is Ops.WHERE
    return _write_out(new)

  root = rebuild(root, change)
  return rebuild(root, lambda _, u: _without_zeros(u)) if conditional else root


def _without_zeros(u: UOp) -> UOp | None:
  """A sum over loops without the terms that are zero: it begins with zero, and so is the same without them."""
  if u.op is not Ops.REDUCE or u.arg[0] is not Ops.ADD or len(u.src) == 1:
    return None
  terms, zero = list(operands(u.src[0], Ops.ADD)), identity(Ops.ADD, u.dtype)
  left = [t for t in terms if t is not zero]
  return None if len(left) in (0, len(terms)) else u.with_src((chain(Ops.ADD, left), *u.src[1:]))


def _write_out(closer: UOp) -> UOp:
  axes = [r for r in closer.src[1:] if kind(r) in UNROLLED]
  others = tuple([r for r in closer.src[1:] if kind(r) not in UNROLLED])
  values = itertools.product(*[[number(v) for v in range(int(r.src[0].arg))] for r in axes])
  bodies = substitute_each(closer.src[0], [dict(zip(axes, value)) for value in values])
  if closer.op is Ops.END:
    return UOp.group(*bodies).end(*others)
  return chain(closer.arg[0], bodies).reduce(closer.arg[0], *others)
