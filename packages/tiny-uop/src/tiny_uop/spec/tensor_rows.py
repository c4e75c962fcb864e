"""The rows of the spec for what only tensor graphs have: movement, reductions, effects, kernels that are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiny_uop.args import CustomGradient, Sharding
from tiny_uop.kernel import is_kernel, kernel_params, written_params
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.shape import Shape, all_known, pairs, prod, same_shape, same_size
from tiny_uop.spec.rows import alike, are_names, is_a, is_integer, is_name, is_value, row, void

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


REDUCED = (Ops.ADD, Ops.MUL, Ops.MAX)
"""The operations that a REDUCE combines with."""


def _geometry(u: UOp) -> bool:
  """The parts common to movement: dtype, and one extra integer source per None in the argument."""
  extra = u.src[1:]
  literal = all(a is None or is_a(a, int) for a in u.arg) and sum(a is None for a in u.arg) == len(extra)
  return u.dtype is u.src[0].dtype and literal and all(is_integer(e.dtype) for e in extra)


def _expand(u: UOp) -> bool:
  # sources of another rank raise
  return _geometry(u) and all(same_size(o, n) or same_size(o, 1) for o, n in zip(u.src[0].shape, u.shape, strict=True))


def _shrink(u: UOp) -> bool:
  known = [(a, b, s) for (a, b), s in zip(pairs(u.geometry), u.src[0].shape, strict=True) if all_known((a, b, s))]
  return _geometry(u) and all(0 <= a <= b <= s for a, b, s in known)


def _pad(u: UOp) -> bool:
  return _geometry(u) and len(u.arg) == 2 * len(u.src[0].shape) and all(a is None or a >= 0 for a in u.arg)


def _axes(arg: Any, rank: int) -> bool:
  return isinstance(arg, tuple) and all(is_a(a, int) and 0 <= a < rank for a in arg) and list(arg) == sorted(set(arg))


def _tensor_reduce(u: UOp) -> bool:
  op, axes = u.arg
  return op in REDUCED and alike(u, 1) and _axes(axes, len(u.src[0].shape))


def _tensor_store(u: UOp) -> bool:
  view, value = u.src
  target = view.base
  while target.op is Ops.BITCAST or target.op in GroupOp.Movement:
    target = target.src[0]
  pieces = target.src if target.op is Ops.MULTI else (target,)
  in_memory = all(p.base.op in (Ops.BUFFER, Ops.AFTER) for p in pieces)
  return void(u) and in_memory and view.dtype is value.dtype and same_shape(view.shape, value.shape)


def is_sized(u: UOp) -> bool:
  # of shape () broadcasts: constants stand without a shape
  shapes = [s.shape for s in u.src]
  return all(shape == () or same_shape(shape, u.shape) for shape in shapes)


def _own_gradient(u: UOp) -> bool:
  (value, bundle), rule = u.src, u.arg
  numbered = isinstance(rule, CustomGradient) and 0 <= rule.inputs and 0 <= rule.output < len(bundle.src) - rule.inputs
  return numbered and bundle.op is Ops.SINK and u.dtype is value.dtype and is_value(u.dtype)


def _layout(s: Sharding, shape: Shape) -> bool:
  """Whether a layout is in its one form, has a device for each place of its grid, and a piece for each place of it that
  a cut tells apart."""
  grid = s.grid or (len(s.devices),)
  along = [a for c in s.cuts for a in c.along]
  known = all(0 <= c.axis < len(shape) and c.along for c in s.cuts) and all(0 <= a < len(grid) for a in along)
  if not known or prod(grid) != len(s.devices) or any(n < 1 for n in grid) or s.with_cuts(s.cuts) != s:
    return False
  counted = all(len(c.bounds) == prod(grid[a] for a in c.along) + 1 and c.bounds[0] == 0 for c in s.cuts)
  rising = all(a < b for c in s.cuts for a, b in zip(c.bounds, c.bounds[1:]))
  return counted and rising and len(set(along)) == len(along) and len(s.cut_axes) == len(s.cuts)


def _multi(u: UOp) -> bool:
  if isinstance(u.arg, Sharding):
    s, shapes = u.arg, [piece.shape for piece in u.src]
    fits = _layout(s, u.shape) and alike(u, len(s.homes))
    fits = fits and all(same_shape(shape, s.part_shape(i, u.shape)) for i, shape in zip(s.here, shapes))
    return fits and tuple([piece.device for piece in u.src]) == s.homes
  if not alike(u, len(u.src)) or not are_names(u.device) or not (u.arg is None or is_a(u.arg, int)):
    return False
  first = u.src[0].shape
  if u.arg is None:
    return all(same_shape(s.shape, first) for s in u.src)
  if not 0 <= u.arg < len(first):
    return False
  sizes = [s.shape[u.arg] for s in u.src]
  others = [(*s.shape[: u.arg], *s.shape[u.arg + 1 :]) for s in u.src]
  return all(isinstance(n, int) and n > 0 for n in sizes) and all(same_shape(s, others[0]) for s in others)


def _tensor_call(u: UOp) -> bool:
  kernel, device, *inputs = u.src
  params, written = kernel_params(kernel), written_params(kernel)
  sizes = {n + len(written): (s.dtype, prod(s.shape)) for n, s in enumerate(inputs)}
  placed = is_kernel(kernel) and device.op is Ops.DEVICE and is_name(device.arg)
  result = written == set(range(len(written))) and is_a(u.arg, int) and params[u.arg].base is u.dtype
  fed = all(n in written or (p.base, p.size) == sizes.get(n) for n, p in params.items())
  return placed and result and u.arg in written and fed


TENSOR = (
  row(Ops.RESHAPE, "one value and a shape of as many elements",
      lambda u: _geometry(u) and same_size(prod(u.shape), prod(u.src[0].shape))),
  row(Ops.EXPAND, "one value and a shape that differs where its size is 1", _expand),
  row(Ops.PERMUTE, "one value and an order of its axes",
      lambda u: len(u.src) == 1 and u.dtype is u.src[0].dtype and sorted(u.arg) == list(range(len(u.src[0].shape)))),
  row(Ops.PAD, "one value and (before, after) per axis", _pad),
  row(Ops.SHRINK, "one value and (start, stop) per axis, inside it", _shrink),
  row(Ops.FLIP, "one value and some of its axes, ascending",
      lambda u: alike(u, 1) and _axes(u.arg, len(u.src[0].shape))),
  row(Ops.REDUCE, "one value of its dtype and arg (ADD, MUL or MAX, ascending axes)", _tensor_reduce),
  row(GroupOp.Identity, "one source of its dtype", lambda u: alike(u, 1)),
  row(Ops.CUSTOM_GRADIENT, "a value of its dtype, a SINK of inputs and results, and CustomGradient as arg",
      _own_gradient),
  row(Ops.BARRIER, "a value of its dtype, and values that come before",
      lambda u: bool(u.src) and u.src[0].dtype is u.dtype and all(is_value(s.dtype) for s in u.src)),
  row(Ops.CALL, "a kernel whose PARAMs are its results, then its inputs; a DEVICE; the inputs, of the sizes and dtypes "
      "of their PARAMs; the number of the result as arg, and its dtype", _tensor_call),
  row(Ops.COPY, "a value of its dtype and a DEVICE, of one name or several; of several, possibly the Sharding as arg",
      lambda u: len(u.src) == 2 and u.src[0].dtype is u.dtype and u.src[1].op is Ops.DEVICE
      and (u.arg is None or (isinstance(u.arg, Sharding) and u.arg.devices == u.src[1].arg))),
  row(Ops.MULTI, "pieces of its dtype, one on each of several devices, of shapes that agree but along the axis that is "
      "arg, along which none is empty; for arg None all of one shape; of devices of several processes, those of this "
      "one, and the Sharding as arg", _multi),
  row(Ops.STORE, "a view of a BUFFER, an AFTER or a MULTI of them, and a value of its dtype and shape", _tensor_store),
  row(Ops.AFTER, "a BUFFER, a view, an AFTER or a MULTI of these, and effects",
      lambda u: len(u.src) > 1 and u.src[0].dtype is u.dtype and is_value(u.dtype) and all(void(s) for s in u.src[1:])),
  row(Ops.SINK, "dtype void", void),
)  # fmt: skip
