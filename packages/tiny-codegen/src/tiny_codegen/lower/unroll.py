"""Pass: UPCAST and UNROLL loops are written out, the counter replaced by each of its values.

Hash-consing shares what does not depend on the counter. A REDUCE over an UNROLL loop becomes a chain; a REDUCE inside
an UPCAST loop becomes several that share one RANGE and so one loop. This is what makes a register tile.
"""

from __future__ import annotations

import itertools

from tiny_codegen.kernel.expressions import number
from tiny_codegen.kernel.loops import CLOSERS, kind, substitute_simplified
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.graph import chain, rebuild

UNROLLED = frozenset({AxisType.UPCAST, AxisType.UNROLL})


def unroll(root: UOp) -> UOp:
  """The kernel without UPCAST and UNROLL loops."""

  def change(u: UOp, new: UOp) -> UOp | None:
    return _write_out(new) if u.op in CLOSERS and any(kind(r) in UNROLLED for r in u.src[1:]) else None

  return rebuild(root, change)


def _write_out(closer: UOp) -> UOp:
  axes = [r for r in closer.src[1:] if kind(r) in UNROLLED]
  others = tuple([r for r in closer.src[1:] if kind(r) not in UNROLLED])
  values = itertools.product(*[[number(v) for v in range(int(r.src[0].arg))] for r in axes])
  bodies = [substitute_simplified(closer.src[0], dict(zip(axes, value))) for value in values]
  if closer.op is Ops.END:
    return UOp.group(*bodies).end(*others)
  return chain(closer.arg[0], bodies).reduce(closer.arg[0], *others)
