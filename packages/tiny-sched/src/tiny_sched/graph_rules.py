"""Rules on the tensor graph before it is cut: less movement, folded constants, fewer reductions, direct copies."""

from __future__ import annotations

from typing import Any

from tiny_sched.index import is_empty, known, largest_size
from tiny_sched.value_rules import VALUE_RULES
from tiny_sched.views import chain_view
from tiny_uop import GroupOp, Ops, PatternMatcher, Samples, UOp, UPat, dtypes, rule, same_shape
from tiny_uop.evaluate import identity_of
from tiny_uop.observe import observed

_x = UPat.var("x")
LONG = 65536  # terms of a reduction that are worth a second kernel
FEW = 16  # results that do not keep all cores busy
PARTS = 256
ROW = 2048  # what the length of a part is a multiple of: whole vectors, and blocks of them
_MEMORY = frozenset({Ops.BUFFER, Ops.AFTER, Ops.COPY})
_VIEWS = frozenset({*GroupOp.Movement, *GroupOp.Identity, Ops.BITCAST})


def _in_memory(u: UOp) -> bool:
  """Whether only views stand between `u` and memory, so that nothing has to be computed."""
  while u.op in _VIEWS:
    u = u.src[0]
  return u.op in _MEMORY


def scalar_of(u: UOp) -> UOp | None:
  """The CONST that fills `u`, if `u` is one number everywhere."""
  while u.op in GroupOp.Movement and u.op is not Ops.PAD:
    u = u.src[0]
  return u.replace(src=()) if u.op is Ops.CONST else None


def _same_shape(x: UOp, u: UOp) -> UOp | None:
  return x if same_shape(x.shape, u.shape) else None


def _elementwise_const(u: UOp) -> UOp | None:
  """An elementwise node over constants, or with a constant that makes it trivial, as VALUE_RULES has it."""
  if not u.shape or u.op is Ops.BITCAST and u.src[0].dtype.itemsize != u.dtype.itemsize:
    return None
  scalars = [scalar_of(s) for s in u.src]
  if all(s is None for s in scalars):
    return None
  simpler = observed(VALUE_RULES, "values").rewrite(
    UOp(u.op, u.dtype, tuple(c if c is not None else s for c, s in zip(scalars, u.src)), u.arg)
  )
  if simpler is None:
    return None
  return simpler if simpler in u.src else simpler.filling(u.shape) if simpler.op is Ops.CONST else None


def _reduce_nothing(x: UOp, u: UOp) -> UOp | None:
  return u.const_like(identity_of(u.arg[0], u.dtype)) if is_empty(x.shape) and not is_empty(u.shape) else None


def _reduce_ones(x: UOp, u: UOp) -> UOp | None:
  op, axes = u.arg
  left = tuple(a for a in axes if known(x.shape[a]) != 1)
  return None if len(left) == len(axes) else x.reduce_axes(op, left)


def _merge_reduce(x: UOp, u: UOp) -> UOp | None:
  inner = u.src[0]
  return x.reduce_axes(u.arg[0], (*u.arg[1], *inner.arg[1])) if inner.arg[0] is u.arg[0] else None


def _parts(size: int) -> tuple[int, int] | None:
  """Into how many parts of what length to cut an axis. A rest that fills no part is shorter than one."""
  if size < 16 * ROW:
    return next(((parts, size // parts) for parts in range(PARTS, 15, -1) if size % parts == 0), None)
  length = ROW * -(-size // (ROW * PARTS))
  return size // length, length


def _split_reduce(x: UOp, u: UOp) -> UOp | None:
  """A long reduction to few elements in two steps, the first of which has enough rows to run in parallel. Elements that
  do not fill the rows are left to the second."""
  op, axes = u.arg
  sizes = [known(s) for s in x.shape]
  if any(s is None for s in sizes) or is_empty(x.shape):
    return None
  if largest_size(u.shape) > FEW or largest_size(x.shape) < LONG * largest_size(u.shape):
    return None
  for axis in axes:
    size = known(x.shape[axis])
    if size is None or (found := _parts(size)) is None:
      continue
    parts, length = found
    rest = tuple(a if a < axis else a + 1 for a in axes if a != axis)
    cut = _piece(x, axis, 0, parts * length).reshape((*x.shape[:axis], parts, length, *x.shape[axis + 1 :]))
    rows = cut.reduce_axes(op, (axis + 1, *rest)).contiguous()
    whole, done = rows.reduce_axes(op, (axis,)).reshape(u.shape), parts * length
    return whole if done == size else whole.alu(op, _piece(x, axis, done, size).reduce_axes(op, axes))
  return None


def _piece(x: UOp, axis: int, start: int, stop: int) -> UOp:
  """Part of one axis."""
  if start == 0 and stop == x.shape[axis]:
    return x
  return x.shrink(tuple((start, stop) if a == axis else (0, s) for a, s in enumerate(x.shape)))


def _copy_of_movement(x: UOp, u: UOp, d: UOp) -> UOp | None:
  """Copies what lies in memory and moves afterwards: the source may be storage that computes nothing."""
  view = u.src[0]
  if view.op is not Ops.EXPAND and (chain_view(view) is not None or not _in_memory(x)):
    return None
  if view.op is Ops.SHRINK:
    bounds = view.geometry
    rows = ((bounds[0], bounds[1]), *[(0, s) for s in x.shape[1:]])
    if known(bounds[0]) is not None and known(bounds[1]) is not None and chain_view(part := x.shrink(rows)) is not None:
      inner = part.replace(op=Ops.COPY, src=(part, d), arg=None)
      return inner.shrink(((0, part.shape[0]), *zip(bounds[2::2], bounds[3::2])))
  return view.replace(src=(UOp(Ops.COPY, x.dtype, (x, d)), *view.src[1:]))


def _copy_of_bitcast(x: UOp, b: UOp, d: UOp) -> UOp | None:
  return b.replace(src=(UOp(Ops.COPY, x.dtype, (x, d)),)) if _in_memory(x) and chain_view(b) is None else None


def _copy_here(x: UOp, u: UOp) -> UOp | None:
  if (const := scalar_of(x)) is not None:
    return const.filling(u.shape)
  return x if x.device in (None, u.device) and x.op is not Ops.CONTIGUOUS else None


def _store_copied_const(v: UOp, c: UOp, u: UOp) -> UOp | None:
  """A constant that is stored on another device is made where it can be computed."""
  x, d = c.src
  if scalar_of(x) is None or x.device is None:
    return None
  return u.replace(src=(v, c.replace(src=(x.contiguous(), d))))


def _store_reshaped(v: UOp, x: UOp, u: UOp) -> UOp | None:
  """A run of memory may as well be written in the shape that the value is computed in."""
  return u.replace(src=(v.reshape(x.shape), x)) if x.op is Ops.COPY or chain_view(v) is not None else None


_reshape = UPat(Ops.RESHAPE, src=(_x,), more=True)
_moved = UPat(GroupOp.Movement, src=(_x,), more=True)
_device, _target = UPat(Ops.DEVICE, name="d"), UPat.var("v")
_copy, _flip = UPat(Ops.COPY, name="c"), UPat(Ops.FLIP, src=(_x,), name="i")
_bitcast = UPat(Ops.BITCAST, src=(_x,), name="b")


def _as_is(op: Ops, x: UOp, arg: Any) -> UOp:
  """A movement that the constructors would not make, but a text may hold."""
  return UOp(op, x.dtype, (x,), arg)


def _on_disk(s: Samples) -> UOp:
  return s.buffer(3, 4, dtype=dtypes.int32, device="DISK:/x")


def _placed_const(s: Samples) -> UOp:
  """A constant that says where it is computed."""
  return UOp(Ops.CONST, dtypes.int32, (UOp(Ops.DEVICE, arg="CPU"),), 3).reshape((1, 1)).expand((3, 4))


GRAPH_RULES = PatternMatcher([
  rule("detach", UPat(Ops.DETACH, src=(_x,)), lambda x: x,
       example=lambda s: s.buffer(3, 4).detach(), near_miss=lambda s: s.buffer(3, 4).contiguous()),
  rule("contiguous_backward", UPat(Ops.CONTIGUOUS_BACKWARD, src=(_x,)), lambda x: x,
       example=lambda s: s.buffer(3, 4).contiguous_backward(), near_miss=lambda s: s.buffer(3, 4).contiguous()),
  rule("barrier_of_number", UPat(Ops.BARRIER, src=(_x,), more=True), lambda x: None if scalar_of(x) is None else x,
       example=lambda s: s.buffer(3, 4).const_like(3).later_than(s.buffer(3, 4)),
       near_miss=lambda s: s.buffer(3, 4).later_than(s.buffer(3, 4, slot=1))),
  rule("contiguous_twice", UPat(Ops.CONTIGUOUS, src=(UPat(Ops.CONTIGUOUS, name="x"),)), lambda x: x,
       example=lambda s: s.buffer(3, 4).contiguous().alu(Ops.CONTIGUOUS),
       near_miss=lambda s: s.buffer(3, 4).contiguous()),
  rule("merge_reshape", UPat(Ops.RESHAPE, src=(_reshape,), name="u", more=True),
       lambda x, u: x.reshape(u.geometry),
       example=lambda s: s.buffer(3, 4).reshape((2, 6)),
       near_miss=lambda s: s.buffer(3, 4).permute((1, 0)).reshape((2, 6))),
  rule("merge_permute", UPat(Ops.PERMUTE, src=(UPat(Ops.PERMUTE, src=(_x,), name="i"),), name="u"),
       lambda x, i, u: x.permute([i.arg[axis] for axis in u.arg]),
       example=lambda s: s.buffer(2, 3, 4).permute((1, 0, 2)).permute((2, 0, 1)),
       near_miss=lambda s: s.buffer(2, 3, 4).flip((0,)).permute((2, 0, 1))),
  rule("reshape_to_same", UPat(Ops.RESHAPE, src=(_x,), name="u", more=True), _same_shape,
       example=lambda s: _as_is(Ops.RESHAPE, s.buffer(3, 4), (3, 4)),
       near_miss=lambda s: s.buffer(3, 4).reshape((4, 3))),
  rule("expand_to_same", UPat(Ops.EXPAND, src=(_x,), name="u", more=True), _same_shape,
       example=lambda s: _as_is(Ops.EXPAND, s.buffer(3, 4), (3, 4)), near_miss=lambda s: s.buffer(1, 4).expand((3, 4))),
  rule("permute_to_same", UPat(Ops.PERMUTE, src=(_x,), name="u"),
       lambda x, u: x if u.arg == tuple(sorted(u.arg)) else None,
       example=lambda s: _as_is(Ops.PERMUTE, s.buffer(3, 4), (0, 1)),
       near_miss=lambda s: s.buffer(3, 4).permute((1, 0))),
  rule("flip_twice", UPat(Ops.FLIP, src=(_flip,), name="u"), lambda x, i, u: x if i.arg == u.arg else None,
       example=lambda s: s.buffer(3, 4).flip((0,)).flip((0,)),
       near_miss=lambda s: s.buffer(3, 4).flip((0,)).flip((1,))),
  rule("pad_by_nothing", UPat(Ops.PAD, src=(_x,), name="u", more=True),
       lambda x, u: x if all(known(p) == 0 for p in u.geometry) else None,
       example=lambda s: _as_is(Ops.PAD, s.buffer(3, 4), (0, 0, 0, 0)),
       near_miss=lambda s: s.buffer(3, 4).pad(((0, 1), (0, 0)))),
  rule("shrink_to_all", UPat(Ops.SHRINK, src=(_x,), name="u", more=True),
       lambda x, u: _same_shape(x, u) if all(known(s) == 0 for s in u.geometry[::2]) else None,
       example=lambda s: _as_is(Ops.SHRINK, s.buffer(3, 4), (0, 3, 0, 4)),
       near_miss=lambda s: s.buffer(3, 4).shrink(((0, 2), (0, 4)))),
  rule("reduce_empty_axis", UPat(Ops.REDUCE, src=(_x,), name="u"), _reduce_nothing,
       example=(lambda s: s.buffer(0, 4).reduce_axes(Ops.MAX, (0,)),
                lambda s: s.buffer(0, 4).reduce_axes(Ops.MUL, (0,)),
                lambda s: s.buffer(0, 4, dtype=dtypes.int32).reduce_axes(Ops.ADD, (0, 1))),
       near_miss=lambda s: s.buffer(0, 4).reduce_axes(Ops.MAX, (1,))),
  rule("reduce_axis_of_one", UPat(Ops.REDUCE, src=(_x,), name="u"), _reduce_ones,
       example=(lambda s: s.buffer(1, 4).reduce_axes(Ops.ADD, (0, 1)),
                lambda s: s.buffer(1).reduce_axes(Ops.MAX, (0,))),
       near_miss=lambda s: s.buffer(3, 4).reduce_axes(Ops.ADD, (1,))),
  rule("merge_reduce", UPat(Ops.REDUCE, src=(UPat(Ops.REDUCE, src=(_x,)),), name="u"), _merge_reduce,
       changes="floats are summed in another order",
       example=(lambda s: s.buffer(3, 4).reduce_axes(Ops.ADD, (1,)).reduce_axes(Ops.ADD, (0,)),
                lambda s: s.buffer(3, 4, dtype=dtypes.int32).reduce_axes(Ops.MUL, (0,)).reduce_axes(Ops.MUL, (1,))),
       near_miss=lambda s: s.buffer(3, 4).reduce_axes(Ops.ADD, (1,)).reduce_axes(Ops.MAX, (0,))),
  rule("split_long_reduce", UPat(Ops.REDUCE, src=(_x,), name="u"), _split_reduce,
       changes="floats are summed in another order", grows="a kernel more, whose rows run in parallel",
       example=(lambda s: s.buffer(2 * LONG, dtype=dtypes.int32).reduce_axes(Ops.ADD, (0,)),
                lambda s: s.buffer(2 * LONG + 1, dtype=dtypes.int32).reduce_axes(Ops.MAX, (0,))),
       near_miss=lambda s: s.buffer(256, 512, dtype=dtypes.int32).reduce_axes(Ops.ADD, (0,))),
  rule("fold_elementwise", UPat(GroupOp.Elementwise, name="u"), _elementwise_const,
       example=(lambda s: s.buffer(3, 4).const_like(3) + s.buffer(3, 4).const_like(4), lambda s: s.buffer(3, 4) * 1),
       near_miss=(lambda s: s.buffer(3, 4) + 4, lambda s: s.buffer(3, 4, dtype=dtypes.int32) + 4)),
  rule("store_copied_const", UPat(Ops.STORE, src=(_target, _copy), name="u"), _store_copied_const,
       grows="the constant gets memory where it can be computed",
       example=lambda s: _on_disk(s).store(_placed_const(s).copy_to("DISK:/x")),
       near_miss=lambda s: _on_disk(s).store(s.buffer(3, 4, dtype=dtypes.int32, slot=1).copy_to("DISK:/x"))),
  rule("store_reshaped", UPat(Ops.STORE, src=(_target, _reshape), name="u"), _store_reshaped,
       grows="where the memory had the shape of the value before",
       example=lambda s: s.buffer(12).store((s.buffer(3, 4, slot=1) + 1).reshape((12,))),
       near_miss=lambda s: s.buffer(12).flip((0,)).store((s.buffer(3, 4, slot=1) + 1).reshape((12,)))),
  rule("copy_to_same_device", UPat(Ops.COPY, src=(_x, _device), name="u"), _copy_here,
       example=(lambda s: s.buffer(3, 4).copy_to("CPU"), lambda s: _placed_const(s).copy_to("DISK:/x")),
       near_miss=lambda s: _on_disk(s).copy_to("CPU")),
  rule("copy_of_movement", UPat(Ops.COPY, src=(_moved, _device), name="u"), _copy_of_movement,
       grows="where a part of memory is copied, and a part of that used",
       example=(lambda s: _on_disk(s).permute((1, 0)).copy_to("CPU"),
                lambda s: _on_disk(s).shrink(((1, 3), (0, 2))).copy_to("CPU"),
                lambda s: (s.buffer(1, 4) + 1).expand((3, 4)).copy_to("DISK:/x")),
       near_miss=lambda s: _on_disk(s).shrink(((1, 2), (0, 4))).copy_to("CPU")),
  rule("copy_of_bitcast", UPat(Ops.COPY, src=(_bitcast, _device)), _copy_of_bitcast,
       example=lambda s: _on_disk(s).permute((1, 0)).bitcast(dtypes.uint32).copy_to("CPU"),
       near_miss=lambda s: _on_disk(s).bitcast(dtypes.uint32).copy_to("CPU")),
])  # fmt: skip
