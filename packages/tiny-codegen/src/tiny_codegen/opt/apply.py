"""Optimisation choices as data: what each `Opt` does to a kernel.

`axis` is the id of a RANGE (the first number in its arg) of the kernel as the passes before `optimise` leave it:
`--print-after merge_loops` shows it. Splitting RANGE `a` leaves the outer loop under the id `a` and gives the new inner
loop the next free id, so that a list of Opts means the same whatever comes after it.

| Opt | effect |
|---|---|
| `UPCAST(a, n)` | n iterations of output loop `a` are written out side by side; 0: all of them |
| `UNROLL(a, n)` | n iterations of reduce loop `a` are written out; 0: all |
| `VECTOR(a, n)` | n iterations of `a` become lanes of vectors; 0: all. On a reduce loop: n partial results |
| `THREAD(a, n)` | output loop `a` becomes the outermost one, shared between threads n iterations at a time; 0: one |
| `LOCAL(a, n)` | n iterations of output loop `a` run in one workgroup, which fills what STAGE keeps over it together |
| `GROUP(a, n)` | reduce loop `a` is shared by n threads of a workgroup, which add up in shared memory |
| `PADTO(a, n)` | the extent of `a` is rounded up to a multiple of n; accesses beyond it are gated off |
| `SPLIT(a, n)` | loop `a` becomes two: blocks of n iterations, and the n iterations of a block as the innermost loop |
| `BLOCK(a, n)` | the sum over reduce loop `a` is taken n iterations at a time, around all other loops |
| `SWAP(a, b)` | loops `a` and `b` change places |
| `MERGE(a, b)` | loops `a` and `b` become one, `a`, which has `b` inside; both belong to the same sums and effects |
| `STAGE(slot, (a, b))` | reads of PARAM `slot`, and arithmetic on them alone, are kept in local memory for loops a, b |
| `STAGE(None, (a, b))` | what is computed over loop a and again over loop b is computed once, into local memory |
| `NOLOCALS()` | output loops become workgroups of one thread each: no LOCAL may come before or after |
| `TC(a, n)` | tensor core n of the target does the product summed over reduce loop `a`; None: the first that fits |
| `TC(a, (n, i, j))` | the same, with output loop `i` as the rows and `j` as the columns |

Behind the tensor cores the target's dot-product instructions are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tiny_codegen.errors import KernelError, KernelOptError
from tiny_codegen.errors import opt_error as _error
from tiny_codegen.instructions.dot_product import DotProduct
from tiny_codegen.kernel.dependences import carried_loops, updates
from tiny_codegen.kernel.loops import CLOSERS, extent, kind, loops_of, named_loop, next_loop_id, parts_of, replace_loop
from tiny_codegen.kernel.memory import filled_in_each, gated
from tiny_codegen.kernel.threads import check_workgroup
from tiny_codegen.lower.reduce import identity
from tiny_codegen.lower.workgroups import globals_from_loops, lower_workgroups
from tiny_codegen.matrix.dot_products import use_dot_product
from tiny_codegen.matrix.tensor_cores import closers_of, use_tensor_core
from tiny_codegen.staging.stage import keep_tiles, lower_stage, stage_operand, stage_twins
from tiny_codegen.target import Target
from tiny_codegen.tiling.k_blocking import block_sum
from tiny_uop import Accumulate, AxisType, Ops, Opt, OptOps, UOp, simplify
from tiny_uop.graph import rebuild

INNER = {
  OptOps.UPCAST: (AxisType.UPCAST, AxisType.LOOP),
  OptOps.UNROLL: (AxisType.UNROLL, AxisType.REDUCE),
  OptOps.GROUP: (AxisType.GROUP, AxisType.REDUCE),
  OptOps.LOCAL: (AxisType.LOCAL, AxisType.LOOP),
}


def apply_opts(root: UOp, opts: tuple[Opt, ...], target: Target) -> UOp:
  """The kernel with the choices applied in order. Raises KernelOptError for one that does not fit."""
  for opt in opts:
    root = apply_opt(root, opt, target)
  return root


def apply_opt(root: UOp, opt: Opt, target: Target) -> UOp:
  """The kernel with one choice applied. Raises KernelOptError where it does not fit the kernel or the target."""
  return _APPLY[opt.op](root, opt, target)


def _amount(opt: Opt) -> int:
  if opt.arg is None:
    return 0
  if not isinstance(opt.arg, int) or opt.arg < 0:
    raise _error(opt, f"expected an amount that is an int of 0 or more, got {opt.arg!r}")
  return opt.arg


def _split(root: UOp, opt: Opt, loop: UOp, inner_kind: AxisType) -> tuple[UOp, UOp]:
  """The kernel with `loop` = outer * n + inner, and the inner RANGE, innermost in its END or REDUCE."""
  amount, size = _amount(opt), extent(loop)
  if amount == 0:
    if size is None:
      raise _error(opt, f"the extent of loop {loop.arg[0]} is symbolic: give an amount")
    amount = size
  if amount == 0:
    raise _error(opt, f"loop {loop.arg[0]} has no iterations")
  rest = simplify(loop.src[0] % amount)
  if rest.op is not Ops.CONST or rest.arg != 0:
    raise _error(
      opt, f"the extent {loop.src[0].render()} of loop {loop.arg[0]} is not a multiple of {amount}: PADTO first"
    )
  outer = UOp.range(simplify(loop.src[0] // amount), loop.arg[0], kind(loop))
  inner = UOp.range(amount, next_loop_id(root), inner_kind)
  if extent(outer) == 1:
    return replace_loop(root, loop, inner, inside=(inner,)), inner
  return replace_loop(root, loop, outer * amount + inner, (outer,), (inner,)), inner


def _write_out(root: UOp, opt: Opt, target: Target) -> UOp:
  inner, wanted = INNER[opt.op]
  loop = named_loop(root, opt, wanted)
  if opt.op in (OptOps.LOCAL, OptOps.GROUP) and not target.has_local:
    raise _error(opt, "the target has no workgroups")
  if opt.op is OptOps.LOCAL and any(u.op is Ops.STAGE and loop in u.src[1:] for u in root.toposort):
    # what threads read from local memory all of them fill
    try:
      root = keep_tiles(root, target, loop)[0]
    except KernelError as error:
      raise _error(opt, str(error)) from None
  _refuse_carried(root, opt, loop)
  if filled_in_each(root, loop):
    raise _error(opt, f"each iteration of loop {loop.arg[0]} fills the same local memory: {opt.op.name} comes first")
  written = _split(root, opt, loop, inner)[0]
  if opt.op in (OptOps.LOCAL, OptOps.GROUP) and (reason := check_workgroup(written, target)):
    raise _error(opt, reason)
  return written


def _refuse_carried(root: UOp, opt: Opt, loop: UOp) -> None:
  """Written out or as lanes, iterations that update the same element in the same way would be one node of the graph."""
  if opt.op in (OptOps.UPCAST, OptOps.VECTOR) and any(
    u.op is Ops.STORE and isinstance(u.arg, Accumulate) and u.arg.atomic
    for part in parts_of(root, loop)
    for u in part.toposort
  ):
    carried = {r for r, found in carried_loops(updates(root)).items() if any(u.accumulates for u in found)}
    if loop in carried:
      raise _error(opt, f"iterations of loop {loop.arg[0]} may update the same element")


def _in_two(root: UOp, opt: Opt, target: Target) -> UOp:
  loop = named_loop(root, opt, AxisType.LOOP, AxisType.REDUCE)
  if _amount(opt) < 2:
    raise _error(opt, "expected a block of 2 or more iterations")
  return _split(root, opt, loop, kind(loop))[0]


def _block(root: UOp, opt: Opt, target: Target) -> UOp:
  loop = named_loop(root, opt, AxisType.REDUCE)
  if target.has_local:
    raise _error(opt, "workgroups share the loops of this target, which have no order")
  if _amount(opt) < 1:
    raise _error(opt, "expected a block of 1 or more iterations")
  if _amount(opt) > 1:
    root = _split(root, opt, loop, AxisType.REDUCE)[0]
    if loop.arg[0] not in loops_of(root):
      raise _error(opt, f"loop {loop.arg[0]} has one block of so many iterations")
  return block_sum(root, opt, loops_of(root)[loop.arg[0]])


def _vector(root: UOp, opt: Opt, target: Target) -> UOp:
  loop = named_loop(root, opt, AxisType.LOOP, AxisType.REDUCE)
  nodes = (u for part in parts_of(root, loop) for u in part.toposort)
  if any(u.op is Ops.MMA and not isinstance(u.arg, DotProduct) and loop in u.ranges for u in nodes):
    raise _error(opt, f"loop {opt.axis} is around a tensor-core instruction, whose operands are vectors already")
  _refuse_carried(root, opt, loop)
  amount = _amount(opt) or extent(loop) or 0
  if amount > target.max_vector_lanes:
    raise _error(opt, f"{amount} lanes, the target has vectors of up to {target.max_vector_lanes}")
  return _split(root, opt, loop, AxisType.VECTOR)[0]


def _thread(root: UOp, opt: Opt, target: Target) -> UOp:
  if not target.has_threads:
    raise _error(opt, "the target has no threads that share a loop")
  if any(kind(r) is AxisType.THREAD for r in loops_of(root).values()):
    raise _error(opt, "the kernel has a THREAD loop already")
  loop = named_loop(root, opt, AxisType.LOOP)
  if not all(effect.op is Ops.END and loop in effect.src[1:] for effect in root.src):
    raise _error(opt, f"loop {opt.axis} is not around all effects of the kernel")
  if loop.src[0].ranges:
    raise _error(opt, f"the extent of loop {opt.axis} depends on another loop")
  block: UOp | None = None
  if _amount(opt) > 1:
    root, block = _split(root, opt, loop, AxisType.LOOP)
    loop = loops_of(root).get(loop.arg[0], block)
  shared = UOp.range(loop.src[0], loop.arg[0], AxisType.THREAD)
  # a block of iterations stays next to the loop it was cut from
  first = [r for r in (shared, block) if r is not None and r is not loop]

  def change(_: UOp, u: UOp) -> UOp | None:
    inside = [r for r in u.src[1:] if r not in first]
    return u.replace(src=(u.src[0], *first, *inside)) if u.op is Ops.END and shared in u.src else None

  return rebuild(replace_loop(root, loop, shared, (shared,)), change)


def _pair(root: UOp, opt: Opt) -> tuple[UOp, UOp]:
  if not isinstance(opt.arg, int):
    raise _error(opt, "expected the id of the other loop as the argument")
  return named_loop(root, opt), named_loop(root, opt, axis=opt.arg)


def _swap(root: UOp, opt: Opt, target: Target) -> UOp:
  a, b = _pair(root, opt)
  if AxisType.THREAD in (kind(a), kind(b)):
    raise _error(opt, "a THREAD loop stays outermost")

  def change(_: UOp, u: UOp) -> UOp | None:
    if u.op not in CLOSERS or a not in u.src[1:] or b not in u.src[1:]:
      return None
    return u.replace(src=(u.src[0], *[b if r is a else a if r is b else r for r in u.src[1:]]))

  swapped = rebuild(root, change)
  if swapped is root:
    raise _error(opt, f"no END or REDUCE closes both loop {opt.axis} and loop {opt.arg}")
  return swapped


def _merge(root: UOp, opt: Opt, target: Target) -> UOp:
  a, b = _pair(root, opt)
  if a is b or kind(a) is not kind(b) or kind(a) not in (AxisType.LOOP, AxisType.REDUCE):
    raise _error(opt, f"loops {a.arg} and {b.arg} are no two LOOP or REDUCE loops")
  sizes = extent(a), extent(b)
  if sizes[0] is None or sizes[1] is None:
    raise _error(opt, "the extent of a loop is symbolic")
  if closers_of(root, a) != closers_of(root, b):
    raise _error(opt, f"an END, REDUCE or STAGE names one of loops {opt.axis} and {opt.arg} without the other")
  merged = UOp.range(sizes[0] * sizes[1], a.arg[0], kind(a))
  return replace_loop(replace_loop(root, b, merged % sizes[1]), a, merged // sizes[1], (merged,))


def _pad(root: UOp, opt: Opt, target: Target) -> UOp:
  loop, amount = named_loop(root, opt), _amount(opt)
  if kind(loop) not in (AxisType.LOOP, AxisType.REDUCE):
    raise _error(opt, f"loop {opt.axis} is a {kind(loop).name} loop: pad it before it is split or shared")
  if amount < 1:
    raise _error(opt, "expected a multiple of 1 or more to pad to")
  size = loop.src[0]
  padded = UOp.range(simplify((size + (amount - 1)) // amount * amount), loop.arg[0], kind(loop))
  if padded.src[0] is size:
    return root
  valid = padded < size
  root = replace_loop(root, loop, padded, (padded,))

  def change(_: UOp, u: UOp) -> UOp | None:
    if (u.op is Ops.LOAD and padded in u.src[0].src[1].ranges) or (u.op is Ops.STORE and padded in u.ranges):
      return gated(u, valid)
    if u.op is Ops.REDUCE and padded in u.src[1:]:
      return u.replace(src=(valid.where(u.src[0], identity(u.arg[0], u.dtype)), *u.src[1:]))
    return None

  return rebuild(root, change)


def _stage(root: UOp, opt: Opt, target: Target) -> UOp:
  ids = opt.arg if isinstance(opt.arg, tuple) else () if opt.arg is None else (opt.arg,)
  tile = tuple([named_loop(root, opt, axis=i) for i in ids])
  if opt.axis is None:
    if len(tile) != 2 or tile[0].src[0] is not tile[1].src[0]:
      raise _error(opt, f"expected two loops of one extent, got {ids}")
    staged = stage_twins(root, *tile)
    if staged is None:
      raise _error(opt, f"loops {ids[0]} and {ids[1]} have no computation in common")
    return staged
  staged = stage_operand(root, opt.axis, tile, bool(target.tensor_cores)) if tile else None
  if staged is None:
    raise _error(opt, f"nothing that the kernel reads from PARAM {opt.axis} depends on loops {ids}")
  kept = [u.src[0] for u in staged.toposort if u.op is Ops.STAGE]
  if target.has_local and any(u.op is Ops.STAGE for value in kept for u in value.toposort):
    raise _error(opt, "local memory would be filled from local memory, which threads share: expected one STAGE of each")
  return staged


def _tensor_core(root: UOp, opt: Opt, target: Target) -> UOp:
  place = opt.arg[0] if isinstance(opt.arg, tuple) and opt.arg else opt.arg
  behind = isinstance(place, int) and place >= len(target.tensor_cores)
  if target.dot_products and (behind or not target.tensor_cores):
    return use_dot_product(root, opt, target)
  return use_tensor_core(root, opt, target)


def _no_locals(root: UOp, opt: Opt, target: Target) -> UOp:
  used = [i for i, r in loops_of(root).items() if kind(r) in (AxisType.LOCAL, AxisType.GROUP)]
  if used:
    raise _error(opt, f"loops {used} are shared by the threads of a workgroup already")
  return globals_from_loops(root, target)


_APPLY: dict[OptOps, Callable[[UOp, Opt, Target], UOp]] = {
  OptOps.UPCAST: _write_out,
  OptOps.UNROLL: _write_out,
  OptOps.GROUP: _write_out,
  OptOps.LOCAL: _write_out,
  OptOps.VECTOR: _vector,
  OptOps.THREAD: _thread,
  OptOps.SPLIT: _in_two,
  OptOps.BLOCK: _block,
  OptOps.SWAP: _swap,
  OptOps.MERGE: _merge,
  OptOps.PADTO: _pad,
  OptOps.STAGE: _stage,
  OptOps.TC: _tensor_core,
  OptOps.NOLOCALS: _no_locals,
}


# *** Opts that have been chosen, one after the other ***


@dataclass
class OptList:
  """The Opts that have been chosen so far, and the kernel with them applied."""

  root: UOp
  target: Target
  opts: list[Opt] = field(default_factory=list)

  def take(self, *opts: Opt) -> bool:
    """Apply Opts if all of them fit."""
    try:
      self.root = apply_opts(self.root, opts, self.target)
    except KernelOptError:
      return False
    self.opts += opts
    return True

  def attempt(self, choose: Callable[[], bool]) -> bool:
    """What `choose` gives. Where that is False, nothing of what it has taken stays."""
    before = self.root, list(self.opts)
    if choose():
      return True
    self.root, self.opts = before
    return False

  def split(self, op: OptOps, loop: int, amount: int) -> int | None:
    """Take n iterations of a loop, padded if need be, inside; the id of the loop they become, None if that fails."""
    size, inner = extent(loops_of(self.root)[loop]), next_loop_id(self.root)
    padding = [Opt(OptOps.PADTO, loop, amount)] if size is None or size % amount else []
    return inner if self.take(*padding, Opt(op, loop, amount)) else None

  def fits(self) -> bool:
    """Whether what is staged fits into shared memory, and the threads into a workgroup."""
    try:
      lower_workgroups(lower_stage(self.root, self.target), self.target)
    except KernelError:
      return False
    return True
