"""Writing in place: `assign`, `t[...] = v`, and PyTorch's methods that end in `_`.

A tensor that is a view of a buffer writes through it, and every live tensor that is a view of the same buffer sees the
new contents, as in PyTorch. A tensor that is not computed yet just stands for another graph from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from tiny_runtime import Device
from tiny_tensor.autograd import tracing
from tiny_tensor.autograd.rules import FORMULAS, view_chain
from tiny_tensor.base import ALIASES, Copy, Operand, TensorBase, is_const, only_stored, together
from tiny_tensor.capturing import note_write
from tiny_tensor.live import tensors_above
from tiny_tensor.methods.indexing import Gather, from_front, gathers_of
from tiny_tensor.naming import by_name
from tiny_tensor.origins import mark
from tiny_tensor.realize import (
  HOLDERS,
  buffer_for,
  buffer_under,
  is_holder,
  moves_between_devices,
  pieces_of,
  storage,
  stored,
)
from tiny_tensor.shapes import broadcast_shape
from tiny_tensor.strides import bytes_of, every_so_many
from tiny_uop import DType, Ops, UOp, dtypes, prod, same_shape
from tiny_uop.origins import recording

SHARING = HOLDERS | ALIASES | {Ops.MULTI}
WRITABLE = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP})


def writable_storage(uop: UOp, across: bool = False) -> UOp | None:
  """The BUFFER or AFTER that can be written through a view; None where elements would be hit twice or are not in it.
  `across`: also where the view has moved elements between devices.
  """
  after: list[UOp] = []
  while uop.op in WRITABLE or (uop.op is Ops.EXPAND and every_so_many(uop, after)):
    if not across and moves_between_devices(uop):
      return None
    after.insert(0, uop)
    uop = uop.src[0]
  return uop if is_holder(uop) else None


def write(target: TensorBase, view: UOp, base: UOp, value: UOp) -> None:
  """Store `value` through `view` of `base`, the storage of `target`; all live views of `target` see it.

  Tensors that have the storage by chance, because they stood for the same graph, get a copy of the old contents.
  """
  note_write()
  if tracing.active():
    for memory in pieces_of(buffer_under(base)):
      tracing.check_write(memory.base, value)
  new = {target._contents: stored(base, view, value)}
  for t in sharing(base):
    if t.uop.op in SHARING and storage(t.uop, across=True) is base:
      if t._contents not in new:
        buffer = buffer_for(base)[0]
        new[t._contents] = stored(buffer, buffer, base)
      t.uop = t.uop.substitute({base: new[t._contents]})


def sharing(uop: UOp) -> list[TensorBase]:
  """The live tensors that are views of what `uop` is a view of, oldest first, those in another dtype too."""
  while uop.op in ALIASES or uop.op is Ops.BITCAST:
    uop = uop.src[0]
  return tensors_above([uop], lambda reader, _: reader.op in ALIASES or reader.op is Ops.BITCAST)


def write_file(target: TensorBase, view: UOp, value: UOp) -> None:
  """Store `value`, which is where kernels run, through a view of memory that only stores. All live views see it.

  What follows one another there is copied there; for other views all of it is read, and written whole.
  """
  base = view
  while not is_holder(base):
    if base.op not in ALIASES and base.op is not Ops.BITCAST:
      raise ValueError(f"{base.op.name} of what is on {view.device} cannot be written: assign to a view of it")
    base = base.src[0]
  device, whole = base.device, base
  assert isinstance(device, str)
  count, odd = divmod(int(prod(value.shape)) * value.dtype.itemsize, base.dtype.itemsize)
  run = bytes_of(view, base)
  if run is None or odd or run % base.dtype.itemsize:
    memory = target._wrap(base.copy_to(Device.DEFAULT).contiguous(), False)
    in_new_buffer(memory)
    if not write_through(memory, view.substitute({base: memory.uop}), value):
      raise ValueError(
        f"this view of what is on {device} has elements twice, or their bytes in parts: write another one"
      )
    source = memory.uop
  else:
    start = run // base.dtype.itemsize
    whole = base.shrink([(start, start + count)])
    source = value.contiguous().reshape((int(prod(value.shape)),)).bitcast(base.dtype)
  note_write()
  if tracing.active():
    tracing.check_write(buffer_under(base), value)
  new = stored(base, whole, source.copy_to(device))
  for t in sharing(base):
    if t.uop.device == device:
      t.uop = t.uop.substitute({base: new})


def in_new_buffer(t: TensorBase) -> None:
  """Give a tensor a buffer of its own, with its present contents."""
  buffer, view = buffer_for(t.uop)
  t.uop = view.substitute({buffer: stored(buffer, view, t.uop)})


def write_through(target: TensorBase, view: UOp, value: UOp) -> bool:
  """Write through a view of the storage of `target`; False where it has none that could be written.

  Through a view that moves elements between devices all of the storage is written, with the old contents elsewhere.
  """
  view = moved_out(target, attached(view))
  if recording.wanted:
    mark(value)
  if only_stored(view):
    write_file(target, view, value)
  elif (base := writable_storage(view)) is not None:
    write(target, view, base, value)
  elif (base := writable_storage(view, across=True)) is not None:
    inside = value.const_like(True) if value.dtype is dtypes.bool else value.cast(dtypes.bool).const_like(True)
    for move in reversed(view_chain(view, base)):
      back = FORMULAS[move.op]
      value, inside = cast(UOp, back(value, move)[0]), cast(UOp, back(inside, move)[0])
    write(target, base, base, inside.where(value, base))
  else:
    return False
  return True


def moved_out(target: TensorBase, view: UOp) -> UOp:
  """A view of the memory of a tensor that is to be written to: in a new buffer for a `Copy` in that of another one.
  Raises RuntimeError where that is a file, in which there is no other place."""
  copy, base = target._contents, storage(view, across=True)
  if not isinstance(copy, Copy) or copy.moved or base is None:
    return view
  if only_stored(base):
    raise RuntimeError(
      f"this tensor would be a copy of what {base.device} holds, which a write must not change: "
      "copy it to a device that runs kernels first, with .to(…)"
    )
  copy.moved, buffer = True, buffer_for(base)[0]
  change = {base: stored(buffer, buffer, base)}
  for t in sharing(base):
    if t._contents is copy:
      t.uop = t.uop.substitute(change)
  return view.substitute(change)


T = TypeVar("T", bound=TensorBase)


def in_place(own_name: str) -> Callable[..., Any]:
  """The method `name_`: what the method `name` gives is written to the tensor."""
  name = own_name.removesuffix("_")

  def method(self: T, *args: Any, **kwargs: Any) -> T:
    check_may_change(self, own_name)
    return become(self, getattr(self, name)(*args, **kwargs), own_name)

  method.__doc__ = (
    f"`{name}`, whose result is written to this tensor, which is given back. Raises RuntimeError for a leaf that "
    "requires a gradient and a view of one, TypeError or ValueError where dtype or shape of the result do not fit."
  )
  return method


if TYPE_CHECKING:

  def written(self: T, *args: Any, **kwargs: Any) -> T: ...
else:
  written = by_name(in_place)


def check_may_change(target: TensorBase, name: str) -> None:
  """Raises RuntimeError for a leaf that requires a gradient, or a view of one."""
  if not target.requires_grad or not TensorBase._recording:
    return
  own = not target._history
  if own or any(t._contents is target._contents and t.requires_grad and not t._history for t in sharing(target.uop)):
    what = "a leaf that requires a gradient" if own else "a view of a leaf that requires a gradient"
    raise RuntimeError(
      f"{name} would change {what}: its gradient would be that of other values. Do so in `with Tensor.no_grad():`, or "
      "assign to it"
    )


def become(target: T, value: TensorBase, name: str) -> T:
  """Write a value to a tensor; gives back the tensor."""
  if value.shape != target.shape:
    raise ValueError(f"{name} gives shape {value.shape}, which does not fit in this tensor, of shape {target.shape}")
  if category(value.dtype) > category(target.dtype):
    raise TypeError(f"{name} gives {value.dtype.name}, which this tensor, of {target.dtype.name}, cannot hold: cast it")
  made = value._as_dtype(target.dtype)
  if storage(target.uop) is None:
    note_write()
    target.uop = made.uop
  elif not write_through(target, target.uop, made.uop):
    check_places(target, name)
  if made.requires_grad and not target.requires_grad:
    target.requires_grad = target._history = True
  return target


def category(dtype: DType) -> int:
  """0 for bool, 1 for integers, 2 for floats: PyTorch writes no result to a lower one."""
  return 2 if dtypes.is_float(dtype) else int(not dtypes.is_bool(dtype))


def attached(view: UOp) -> UOp:
  """A view of memory without its DETACHs, which are no places in it."""
  base = storage(view, across=True)
  for u in [] if base is None else [u for u in view.walk(lambda u: u is not base) if u.op is Ops.DETACH]:
    view = view.substitute({u: u.src[0]})
  return view


def check_places(target: TensorBase, name: str) -> None:
  """Raises RuntimeError for a view of memory in which elements share a place."""
  if storage(target.uop) is not None and 0 not in target.shape:
    raise RuntimeError(f"{name}: several elements of {target!r} are the same place in memory: clone() it first")


class AssignMixin(TensorBase):
  """assign, __setitem__, and the methods that have a form in place, by name."""

  __slots__ = ()

  def _value_for(self, x: Any, shape: Any, part: bool = False) -> Self:
    """What is written: on this device, or where it can be copied to it from, of this dtype (cast) and shape. A value
    for a `part` may have more axes of size 1 in front, as in PyTorch. Raises TypeError for what is no number,
    ValueError naming what differs."""
    in_file = only_stored(self.uop)
    if not isinstance(x, (TensorBase, bool, int, float, UOp)):
      kind = {"dtype": self.dtype} if isinstance(x, (list, tuple)) else {}
      x = type(self)(x, device=None if in_file else self.device, **kind)  # type: ignore[call-arg]
    value = self._operand(x)._as_dtype(self.dtype)
    if in_file:
      value = value.to(None) if only_stored(value.uop) else value
    elif not is_const(self.uop):
      value = together([self, value])[1]
    while part and value.ndim > len(shape) and value.shape[0] == 1:
      value = value.squeeze(0)
    if not same_shape(broadcast_shape(value.shape, shape), shape):
      raise ValueError(f"cannot write shape {value.shape} to shape {shape}")
    return value.broadcast_to(shape)

  def assign(self, x: Operand | Any) -> Self:
    """Replace all contents by `x` (broadcast, cast to this dtype; of the same device). Gives back `self`. What is in a
    file (`Tensor(path)`) is written there, from any device.

    Lazy as everything: the write happens when this tensor or a view of it is realised, after reads of the old contents.
    """
    value = self._value_for(x, self.shape)
    if value.uop is self.uop:
      return self
    if not write_through(self, self.uop, value.uop):
      check_places(self, "assign")
      note_write()
      self.uop = value.uop
    return self

  def _in_buffer(self) -> None:
    """Give the tensor storage that can be written, with its present contents."""
    if writable_storage(attached(self.uop)) is None and not only_stored(self.uop):
      check_places(self, "an assignment to elements")
      in_new_buffer(self)

  def _own_storage(self) -> None:
    """Give the tensor a buffer that no independent tensor has.

    A gradient belongs to a node, and equal graphs are one node: two parameters of equal zeros, or a parameter and a
    zero somewhere in the program, would otherwise get each other's gradients.
    """
    base = storage(self.uop)
    others = () if base is None else (t for t in sharing(base) if t._contents is not self._contents)
    if 0 not in self.shape and (base is None or any(storage(t.uop) is base for t in others)):
      note_write()
      buffer, view = buffer_for(self.uop)
      self.uop = view.substitute({buffer: stored(buffer, view, self.uop.detach())})
      self._contents = object()

  def __setitem__(self, key: Any, x: Any) -> None:
    """Write elements by integers, slices, None, `...`, integer tensors or masks. Of several values for a place the
    last counts.

    A value that is the same for all that a mask picks does not need their count: then nothing is looked at, and it is
    possible in `vmap` and in `TinyJit`.

    Raises IndexError, TypeError or ValueError as reading and `assign` do.
    """
    if (chosen := self._with_masked(key, x)) is not None:
      self[...] = chosen
      return
    entries = self._parse_index(key)
    if only_stored(self.uop) and any(isinstance(e, Gather) for e in entries):
      changed = self.to(None).clone()
      changed[key] = x
      self.assign(changed)
      return
    gathers, front = gathers_of(entries)
    result = self[key] if not gathers else self._view_of(entries)._gather_axes(gathers, front)
    value = self._value_for(x, result.shape, part=True)
    if 0 in result.shape:
      return
    self._in_buffer()
    view = self._view_of(entries)
    new = view._written(gathers, value, front).uop if gathers else value.uop
    if not write_through(self, view.uop, new):
      raise IndexError(f"cannot write to every so many elements of an axis of symbolic size: {key}")

  def _with_masked(self, key: Any, x: Any) -> Self | None:
    """`self` with `x` where a mask holds; None if the key is more than a mask, or `x` has a value for each place."""
    mask = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    if not isinstance(mask, TensorBase) or not dtypes.is_bool(mask.dtype) or not mask.ndim:
      return None
    rest = self.shape[mask.ndim :]
    if mask.shape != self.shape[: mask.ndim] or isinstance(x, (list, tuple)) or getattr(x, "ndim", 0) > len(rest):
      return None
    value = self._value_for(x, rest)
    old = self.to(None) if only_stored(self.uop) else self
    return cast(Self, mask).reshape((*mask.shape, *(1,) * len(rest))).where(value, old)

  def _written(self, gathers: Sequence[tuple[int, Self]], value: Self, front: bool) -> Self:
    """`self` with `value` (of the shape that indexing gives) at the places that index tensors name."""
    axes = [axis for axis, _ in gathers]
    shape = broadcast_shape(*(g.shape for _, g in gathers))
    sizes = [int(self.shape[a]) for a in axes]
    total = self.numel()
    counted = dtypes.int32 if isinstance(total, int) and total < 1 << 30 else dtypes.int64
    linear: Any = 0
    outside: Any = False
    for (_, index), size in zip(gathers, sizes, strict=True):
      wide = from_front(index, size)._as_dtype(counted)
      linear, outside = wide + linear * size, (wide < 0) | (wide >= size) | outside
    linear = outside.where(-1, linear)  # which names nothing
    at, k, lead = 0 if front else axes[0], len(shape), self.ndim - len(axes)
    v = value.movedim(range(at, at + k), range(lead, lead + k))
    v = v.reshape((*v.shape[:lead], math.prod(map(int, shape))))
    places = self._count_up(math.prod(sizes), linear.dtype).unsqueeze(-1)
    hot = linear.broadcast_to(shape).reshape((1, v.shape[-1])) == places
    x = self.movedim(axes, range(lead, self.ndim))
    out = x.reshape((*x.shape[:lead], math.prod(sizes)))._write_hot(v, hot).reshape(x.shape)
    return out.movedim(range(lead, self.ndim), axes)

  def __delitem__(self, key: Any) -> None:
    """Not possible: TypeError."""
    raise TypeError("elements of a tensor cannot be deleted: use a slice or a mask to make a smaller one")

  abs_ = acos_ = acosh_ = add_ = addbmm_ = addcdiv_ = addcmul_ = addmm_ = addmv_ = addr_ = asin_ = asinh_ = written
  atan_ = atan2_ = atanh_ = baddbmm_ = bitwise_and_ = bitwise_not_ = bitwise_or_ = bitwise_xor_ = ceil_ = written
  clamp_ = clamp_max_ = clamp_min_ = clip_ = copysign_ = cos_ = cosh_ = cumprod_ = cumsum_ = deg2rad_ = written
  digamma_ = div_ = eq_ = erf_ = erfc_ = erfinv_ = exp_ = exp2_ = expm1_ = fill_ = float_power_ = floor_ = written
  fmod_ = frac_ = gcd_ = ge_ = gt_ = heaviside_ = hypot_ = i0_ = igamma_ = igammac_ = index_add_ = written
  index_copy_ = index_fill_ = index_put_ = index_reduce_ = lcm_ = ldexp_ = le_ = lerp_ = lgamma_ = log_ = written
  log10_ = log1p_ = log2_ = logical_and_ = logical_not_ = logical_or_ = logical_xor_ = logit_ = lt_ = written
  masked_fill_ = masked_scatter_ = mul_ = mvlgamma_ = nan_to_num_ = ne_ = neg_ = nextafter_ = polygamma_ = written
  pow_ = put_ = rad2deg_ = reciprocal_ = relu_ = renorm_ = round_ = rsqrt_ = scatter_ = written
  scatter_add_ = scatter_reduce_ = sgn_ = sigmoid_ = sign_ = sin_ = sinc_ = sinh_ = sqrt_ = square_ = sub_ = written
  tan_ = tanh_ = tril_ = triu_ = trunc_ = xlogy_ = written

  def copy_(self, src: Self | Any) -> Self:
    """Write the values of `src`, on whatever device and of whatever dtype, repeated along axes of size 1."""
    check_may_change(self, "copy_")
    value: Self = src if isinstance(src, type(self)) else type(self)(src, device=self.device)  # type: ignore[call-arg]
    moved = value.shard_like(self) if value.shape == self.shape else value.to(self.device)
    return become(self, moved._as_dtype(self.dtype).broadcast_to(self.shape), "copy_")

  def zero_(self) -> Self:
    """Write zeros."""
    self.fill_(0)
    return self

  def uniform_(self, low: float = 0.0, high: float = 1.0) -> Self:
    """Write random numbers, uniform in [low, high)."""
    check_may_change(self, "uniform_")
    return become(self, self.rand_like() * (high - low) + low, "uniform_")

  def normal_(self, mean: float = 0.0, std: float = 1.0) -> Self:
    """Write random numbers, normal with a mean and a standard deviation."""
    check_may_change(self, "normal_")
    return become(self, self.randn_like() * std + mean, "normal_")

  def bernoulli_(self, p: float = 0.5) -> Self:
    """Write ones with probability `p`, and zeros."""
    check_may_change(self, "bernoulli_")
    return become(self, (self.rand_like(dtype=dtypes.float32) < p)._as_dtype(self.dtype), "bernoulli_")
