"""Operators that make, move, choose and count elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto as T

from tiny_onnx.errors import ModelError
from tiny_onnx.registry import Call, op
from tiny_onnx.values import (
  ARRAY_DTYPES,
  DTYPES,
  Host,
  Narrow,
  Value,
  boxed,
  checked_count,
  elem_of,
  host_of,
  ints_of,
  shape_of,
  sizes_array,
  tensor_of,
)
from tiny_tensor import Tensor, dtypes
from tiny_uop import UOp

Array = np.ndarray[Any, Any]
FAR = 1 << 62
"""Ends of slices beyond this are the end of the axis."""


def moved(x: Value, function: Any) -> Value:
  """`function` of a tensor, or of the codes of narrow numbers."""
  if isinstance(x, Host):
    x = x.device_value
  return Narrow(function(x.codes), x.elem) if isinstance(x, Narrow) else function(tensor_of(x))


def is_text(x: Value) -> bool:
  return isinstance(x, Host) and x.array.dtype.kind == "O" and not x.symbolic


def axes_of(call: Call, given: Value, rank: int, default: Sequence[int] | None = None) -> list[int]:
  """Axes by the input or the attribute that names them, counted from the front."""
  axes = ints_of(given) if given is not None else call["axes"]
  if axes is None:
    axes = list(range(rank)) if default is None else list(default)
  return [axis_in(a, rank) for a in axes]


def axis_in(axis: int, rank: int) -> int:
  """An axis counted from the front. Raises ModelError for one that is not there."""
  if not -rank <= axis < max(rank, 1):
    raise ModelError(f"axis {axis} is out of range for {rank} axes")
  return axis % rank if rank else 0


# what is there


@op("Shape", raw=True)
def shape(call: Call, x: Value) -> Array:
  sizes = shape_of(x)
  start, end = call.get("start", 0), call["end"]
  return sizes_array(sizes[slice(start, end)])


@op("Size", raw=True)
def size(call: Call, x: Value) -> Array:
  count = math.prod(shape_of(x))
  return np.array(count, object if isinstance(count, UOp) else np.int64)


@op("Identity", raw=True)
def identity(call: Call, x: Value) -> Value:
  return x


@op("Constant", raw=True)
def constant(call: Call) -> Value:
  for name, dtype in (
    ("value_int", np.int64),
    ("value_ints", np.int64),
    ("value_float", np.float32),
    ("value_floats", np.float32),
  ):
    if call[name] is not None:
      return Host(np.array(call[name], dtype))
  for name in ("value_string", "value_strings"):
    if call[name] is not None:
      return Host(np.array(call[name], object))
  found = call.get("value", call["sparse_value"])
  if found is None:
    raise ModelError("a Constant has one of value, sparse_value, value_int, value_ints, value_float, value_floats, …")
  value: Value = found
  return value


@op("ConstantOfShape", 9, raw=True, needs=(0,))
def constant_of_shape(call: Call, shape: Value) -> Value:
  value = host_of(call["value"]).reshape(-1) if call["value"] is not None else np.zeros(1, np.float32)
  sizes = sizes_in(shape)
  number = value[0]
  if all(isinstance(s, int) for s in sizes) and math.prod(sizes) <= 1024:
    return Host(np.full(sizes, number, value.dtype))
  elem = Host(value).elem
  if elem not in DTYPES:
    return moved(Host(value), lambda x: x.reshape([1] * len(sizes)).expand(*sizes))
  return Tensor.full(tuple(sizes), number.item(), dtype=DTYPES[elem])


def sizes_in(value: Value) -> list[Any]:
  """Sizes of axes from a tensor. Raises ModelError for negative ones."""
  sizes = ints_of(value)
  if any(isinstance(s, int) and s < 0 for s in sizes):
    raise ModelError(f"sizes are not negative, found {sizes}")
  return sizes


@op("EyeLike", 9, raw=True)
def eye_like(call: Call, x: Value) -> Tensor:
  rows, columns = shape_of(x)
  elem = call.get("dtype", elem_of(x))
  k = call.get("k", 0)
  made = Tensor.arange(rows).unsqueeze(1) + k == Tensor.arange(columns)
  return made.cast(DTYPES[elem])


@op("Range", 11, raw=True, needs=(0, 1, 2))
def range_(call: Call, start: Value, limit: Value, delta: Value) -> Value:
  first, last, step = (host_of(v).reshape(-1)[0] for v in (start, limit, delta))
  elem = next((elem_of(v) for v in (start, limit, delta) if not (isinstance(v, Host) and v.symbolic)), int(T.INT64))
  if any(isinstance(v, UOp) for v in (first, last, step)):
    made = Tensor.arange((last - first) // step if int(step) != 1 else last - first, dtype=DTYPES[elem])
    return made * int(step) + Tensor.full((), first, dtype=DTYPES[elem])
  if step == 0:
    raise ModelError("the step of a Range is not 0")
  if elem in (T.FLOAT16, T.BFLOAT16):
    first, last, step = (np.float32(v) for v in (first, last, step))
  count = (
    max(0, math.ceil((last - first) / step))
    if elem in (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16)
    else len(range(int(first), int(last), int(step)))
  )
  if count <= 4096:
    return Host((np.arange(count).astype(type(first)) * step + first).astype(ARRAY_DTYPES[elem]))
  return Tensor.arange(count, dtype=DTYPES[elem]) * step.item() + first.item()


# other shapes of the same elements


def reshape_array(call: Call, x: Array, shape: Array | None = None) -> Array:
  return x.reshape(
    new_shape(x.shape, call["shape"] if shape is None else ints_of(Host(shape)), bool(call["allowzero"]))
  )


def without_common(whole: Sequence[Any], parts: Sequence[Any]) -> tuple[Any, Any]:
  """The products of two lists of sizes, without the symbolic ones that both have."""
  left, right = list(whole), list(parts)
  for size in parts:
    if isinstance(size, UOp) and any(size is other for other in left):
      left.remove(size)
      right.remove(size)
  return math.prod(left), math.prod(right)


def new_shape(old: Sequence[Any], sizes: Sequence[Any], allow_zero: bool) -> list[Any]:
  """The shape that Reshape asks for: 0 keeps a size, −1 is what is left."""
  if len([s for s in sizes if isinstance(s, int) and s == 0 and not allow_zero]) and len(sizes) > len(old):
    for place, s in enumerate(sizes):
      if isinstance(s, int) and s == 0 and place >= len(old):
        raise ModelError(f"size 0 at axis {place} keeps a size of {tuple(old)}, which has no such axis")
  made = [old[i] if isinstance(s, int) and s == 0 and not allow_zero else s for i, s in enumerate(sizes)]
  if any(isinstance(s, int) and s < -1 for s in made) or [s for s in made if isinstance(s, int)].count(-1) > 1:
    raise ModelError(f"sizes are not negative, but for one -1, found {list(sizes)}")
  if -1 in [s for s in made if isinstance(s, int)]:
    place = next(i for i, s in enumerate(made) if isinstance(s, int) and s == -1)
    whole, rest = without_common(old, [s for i, s in enumerate(made) if i != place])
    if isinstance(rest, UOp) or isinstance(whole, UOp):
      made[place] = whole // rest
    else:
      if rest == 0 or whole % rest:
        raise ModelError(f"{tuple(old)} does not reshape to {list(sizes)}")
      made[place] = whole // rest
  return made


@op("Reshape", 5, raw=True, host=reshape_array, needs=(1,))
def reshape(call: Call, x: Value, shape: Value) -> Value:
  sizes = new_shape(shape_of(x), ints_of(shape), bool(call["allowzero"]))
  return moved(x, lambda t: t.reshape(tuple(sizes)))


@op("Reshape", 1, moves=True, host=reshape_array)
def reshape_by_attribute(call: Call, x: Tensor) -> Tensor:
  return x.reshape(tuple(new_shape(x.shape, call["shape"], False)))


@op("Flatten", 1, moves=True)
def flatten(call: Call, x: Tensor) -> Tensor:
  axis = call["axis"]
  axis = axis + x.ndim if axis < 0 else axis
  return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def squeezed(shape: Sequence[Any], axes: Sequence[int] | None) -> list[Any]:
  """A shape without some axes of size 1; without all of them, if none is named."""
  rank = len(shape)
  gone = (
    {i for i, s in enumerate(shape) if isinstance(s, int) and s == 1}
    if axes is None
    else {axis_in(a, rank) for a in axes}
  )
  if any(isinstance(shape[a], int) and shape[a] != 1 for a in gone):
    raise ModelError(f"only axes of size 1 can be left out: {sorted(gone)} of {tuple(shape)}")
  return [s for i, s in enumerate(shape) if i not in gone]


def squeeze_array(call: Call, x: Array, axes: Array | None = None) -> Array:
  return x.reshape(squeezed(x.shape, call["axes"] if axes is None else [int(a) for a in axes]))


@op("Squeeze", 13, raw=True, host=squeeze_array, needs=(1,))
def squeeze(call: Call, x: Value, axes: Value = None) -> Value:
  sizes = squeezed(shape_of(x), None if axes is None else ints_of(axes))
  return moved(x, lambda t: t.reshape(tuple(sizes)))


@op("Squeeze", 1, moves=True, host=squeeze_array)
def squeeze_by_attribute(call: Call, x: Tensor) -> Tensor:
  return x.reshape(tuple(squeezed(x.shape, call["axes"])))


def unsqueezed(shape: Sequence[Any], axes: Sequence[int]) -> list[Any]:
  rank = len(shape) + len(axes)
  new = [axis_in(a, rank) for a in axes]
  if len(set(new)) < len(new):
    raise ModelError(f"axes {list(axes)} name one twice")
  rest = iter(shape)
  return [1 if i in new else next(rest) for i in range(rank)]


def unsqueeze_array(call: Call, x: Array, axes: Array | None = None) -> Array:
  return x.reshape(unsqueezed(x.shape, call["axes"] if axes is None else [int(a) for a in axes.reshape(-1)]))


@op("Unsqueeze", 13, raw=True, host=unsqueeze_array, needs=(1,))
def unsqueeze(call: Call, x: Value, axes: Value) -> Value:
  sizes = unsqueezed(shape_of(x), ints_of(axes))
  return moved(x, lambda t: t.reshape(tuple(sizes)))


@op("Unsqueeze", 1, moves=True, host=unsqueeze_array)
def unsqueeze_by_attribute(call: Call, x: Tensor) -> Tensor:
  return x.reshape(tuple(unsqueezed(x.shape, call["axes"])))


@op("Transpose", moves=True, host=lambda call, x: np.transpose(x, call["perm"]))
def transpose(call: Call, x: Tensor) -> Tensor:
  order = call.get("perm", list(range(x.ndim))[::-1])
  return x.permute(tuple(order)) if order else x


def expanded(old: Sequence[Any], sizes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
  """(the old shape with axes of size 1 in front, the shape that both broadcast to)."""
  rank = max(len(old), len(sizes))
  front, wanted = [1] * (rank - len(old)) + list(old), [1] * (rank - len(sizes)) + list(sizes)
  one = [isinstance(w, int) and w == 1 for w in wanted]
  return front, [a if is_one else b for a, b, is_one in zip(front, wanted, one)]


@op("Expand", 8, raw=True, needs=(1,))
def expand(call: Call, x: Value, shape: Value) -> Value:
  front, wanted = expanded(shape_of(x), sizes_in(shape))
  if isinstance(x, Host) and all(isinstance(s, int) for s in wanted) and math.prod(wanted) <= 4096:
    return Host(np.broadcast_to(x.array, wanted))
  return moved(x, lambda t: t.reshape(tuple(front)).expand(*wanted))


@op("Tile", 6, raw=True, needs=(1,))
def tile(call: Call, x: Value, repeats: Value) -> Value:
  times = sizes_in(repeats)
  if is_text(x):
    return Host(np.tile(host_of(x), times))
  return moved(x, lambda t: t.repeat(*times))


@op("Tile", 1, needs=(1, 2))
def tile_axis(call: Call, x: Tensor, tiles: Tensor, axis: Tensor) -> Tensor:
  times = [1] * x.ndim
  times[ints_of(axis)[0]] = ints_of(tiles)[0]
  return x.repeat(*times)


def concat_arrays(call: Call, *arrays: Array) -> Array:
  return np.concatenate(arrays, axis_in(call.get("axis", 1), arrays[0].ndim))


@op("Concat", raw=True, host=concat_arrays)
def concat(call: Call, *values: Value) -> Value:
  axis = call.get("axis", 1)
  if any(is_text(v) for v in values):
    return Host(np.concatenate([host_of(v) for v in values], axis))
  devices = [v.device_value if isinstance(v, Host) else v for v in values]
  if isinstance(devices[0], Narrow):
    codes = [v.codes for v in devices if isinstance(v, Narrow)]
    return Narrow(codes[0].cat(*codes[1:], dim=axis), devices[0].elem)
  tensors = [tensor_of(v) for v in devices]
  return tensors[0].cat(*tensors[1:], dim=axis)


def split_sizes(call: Call, whole: Any, given: Sequence[int] | None) -> list[int]:
  """The sizes of the parts of a Split."""
  if given is not None:
    return [int(s) for s in given]
  parts = call["num_outputs"] or len(call.outputs)
  if parts != len(call.outputs):
    raise ModelError(f"num_outputs is {parts}, and the node has {len(call.outputs)} outputs")
  step = -(-whole // parts)
  return [min(step, max(0, whole - i * step)) for i in range(parts)]


@op("Split", 1, raw=True, needs=(1,))
def split(call: Call, x: Value, sizes: Value = None) -> tuple[Value, ...]:
  axis = axis_in(call.get("axis", 0), len(shape_of(x)))
  given = ints_of(sizes) if sizes is not None else call["split"]
  parts = split_sizes(call, shape_of(x)[axis], given)
  ends = np.cumsum([0, *parts])
  if ends[-1] != shape_of(x)[axis]:
    raise ModelError(f"parts {parts} do not fill an axis of size {shape_of(x)[axis]}")
  cuts = [(slice(None),) * axis + (slice(int(a), int(b)),) for a, b in zip(ends, ends[1:])]
  if isinstance(x, Host):
    return tuple(Host(x.array[cut]) for cut in cuts)
  return tuple(moved(x, lambda t, cut=cut: t[cut]) for cut in cuts)


def cuts_of(
  rank: int, starts: Sequence[Any], ends: Sequence[Any], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> tuple[slice, ...]:
  """The slices of a Slice, one for each axis."""
  cuts = [slice(None)] * rank
  for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps or [1] * len(starts)):
    if step == 0:
      raise ModelError("the step of a slice is not 0")
    far = isinstance(end, int) and abs(end) >= FAR // 2 and (end > 0) == (step > 0)
    cuts[axis_in(axis, rank)] = slice(
      start if step != 1 or not (isinstance(start, int) and start == 0) else None,
      None if far else end,
      step if step != 1 else None,
    )
  return tuple(cuts)


def slice_array(
  call: Call, x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
  first, last = ints_of(Host(starts)), ints_of(Host(ends))
  return x[
    cuts_of(
      x.ndim,
      first,
      last,
      None if axes is None else ints_of(Host(axes)),
      None if steps is None else ints_of(Host(steps)),
    )
  ]


@op("Slice", 10, raw=True, host=slice_array, needs=(1, 2, 3, 4))
def slice_(call: Call, x: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None) -> Value:
  rank = len(shape_of(x))
  cuts = cuts_of(
    rank,
    ints_of(starts),
    ints_of(ends),
    None if axes is None else ints_of(axes),
    None if steps is None else ints_of(steps),
  )
  return moved(x, lambda t: t[cuts])


@op("Slice", 1, moves=True, host=lambda call, x: x[cuts_of(x.ndim, call["starts"], call["ends"], call["axes"], None)])
def slice_by_attributes(call: Call, x: Tensor) -> Tensor:
  return x[cuts_of(x.ndim, call["starts"], call["ends"], call["axes"], None)]


@op("Pad", 11, raw=True, needs=(1, 2, 3))
def pad(call: Call, x: Value, pads: Value, value: Value = None, axes: Value = None) -> Tensor:
  rank = len(shape_of(x))
  named = [axis_in(a, rank) for a in ints_of(axes)] if axes is not None else list(range(rank))
  return padded(
    tensor_of(x), ints_of(pads), named, call["mode"], 0 if value is None else host_of(value).reshape(-1)[0].item()
  )


@op("Pad", 1)
def pad_by_attributes(call: Call, x: Tensor) -> Tensor:
  return padded(x, call.get("pads", call["paddings"]), list(range(x.ndim)), call["mode"], call.get("value", 0.0))


def padded(x: Tensor, pads: Sequence[Any], axes: Sequence[int], mode: str, value: Any) -> Tensor:
  """`x` with elements before and behind its axes, or without some where a number is negative."""
  count = len(axes)
  if len(pads) != 2 * count:
    raise ModelError(f"{2 * count} numbers of padding were expected for {count} axes, found {len(pads)}")
  pairs = {axis: (pads[i], pads[i + count]) for i, axis in enumerate(axes)}
  if mode == "constant":
    cut = [
      slice(max(0, -b), x.shape[i] - max(0, -a))
      if not isinstance(b, UOp) and not isinstance(a, UOp) and (a < 0 or b < 0)
      else slice(None)
      for i, (b, a) in ((i, pairs.get(i, (0, 0))) for i in range(x.ndim))
    ]
    x = x[tuple(cut)]
    around = [pairs.get(i, (0, 0)) for i in range(x.ndim)]
    return x.pad(
      tuple((b if isinstance(b, UOp) else max(b, 0), a if isinstance(a, UOp) else max(a, 0)) for b, a in around),
      value=value,
    )
  for axis, (before, after) in pairs.items():
    if before or after:
      size = shape_of(x)[axis]
      checked_count(size + max(before, 0) + max(after, 0), "a padded axis")
      kept = np.arange(size)[max(0, -before) : size - max(0, -after)]
      if mode not in ("reflect", "edge", "wrap"):
        raise ModelError(f"mode is constant, reflect, edge or wrap, found {mode!r}")
      places: Array = np.pad(kept, (max(before, 0), max(after, 0)), mode=mode)  # type: ignore[call-overload]
      x = x[(slice(None),) * axis + (Tensor(places.astype(np.int32)),)]
  return x


@op("DepthToSpace", 1)
def depth_to_space(call: Call, x: Tensor) -> Tensor:
  b, c, h, w = x.shape
  n = call["blocksize"]
  if call.get("mode", "DCR") == "DCR":
    return x.reshape(b, n, n, c // (n * n), h, w).permute(0, 3, 4, 1, 5, 2).reshape(b, c // (n * n), h * n, w * n)
  return x.reshape(b, c // (n * n), n, n, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // (n * n), h * n, w * n)


@op("SpaceToDepth", 1)
def space_to_depth(call: Call, x: Tensor) -> Tensor:
  b, c, h, w = x.shape
  n = call["blocksize"]
  if call.get("mode", "DCR") == "DCR":
    return x.reshape(b, c, h // n, n, w // n, n).permute(0, 3, 5, 1, 2, 4).reshape(b, c * n * n, h // n, w // n)
  return x.reshape(b, c, h // n, n, w // n, n).permute(0, 1, 3, 5, 2, 4).reshape(b, c * n * n, h // n, w // n)


# chosen elements


def gather_array(call: Call, x: Array, indices: Array) -> Array:
  found = np.take(x, indices.astype(np.int64), axis_in(call["axis"], x.ndim))
  return boxed(found) if isinstance(found, UOp) else np.asarray(found)


@op("Gather", raw=True, host=gather_array)
def gather(call: Call, x: Value, indices: Value) -> Value:
  rank = len(shape_of(x))
  axis = axis_in(call["axis"], rank)
  before = (slice(None),) * axis
  if is_text(x):
    return Host(np.asarray(np.take(host_of(x), host_of(indices), axis)))
  if isinstance(indices, Host) and indices.array.ndim == 0 and not indices.symbolic:
    place = int(indices.array)
    return moved(x, lambda t: t[(*before, place)])
  return moved(x, lambda t: t[(*before, tensor_of(indices))])


def wrapped(indices: Tensor, size: Any) -> Tensor:
  """Indices counted from the front."""
  return (indices < 0).where(indices + size, indices)


@op("GatherElements", 11, moves=True)
def gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
  axis = axis_in(call["axis"], x.ndim)
  return x.gather(axis, wrapped(indices, x.shape[axis]))


@op("GatherND", 11, moves=True)
def gather_nd(call: Call, x: Tensor, indices: Tensor) -> Tensor:
  batch, depth = call.get("batch_dims", 0), indices.shape[-1]
  rank = indices.ndim - 1
  rows = [
    Tensor.arange(shape_of(x)[i]).reshape(*[x.shape[i] if a == i else 1 for a in range(rank)]) for i in range(batch)
  ]
  return x[(*rows, *[indices[..., i] for i in range(depth)])]


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scattered(call: Call, x: Tensor, axis: int, indices: Tensor, updates: Tensor) -> Tensor:
  """`x` with updates put in at places along an axis, or reduced with what is there."""
  reduction = call.get("reduction", "none")
  if reduction == "none":
    return x.scatter(axis, indices, updates)
  return x.scatter_reduce(axis, indices, updates, REDUCTIONS[reduction], include_self=True)


@op("Scatter", 9)
@op("ScatterElements", 11)
def scatter_elements(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
  axis = axis_in(call["axis"], x.ndim)
  return scattered(call, x, axis, wrapped(indices, x.shape[axis]), updates)


@op("ScatterND", 11)
def scatter_nd(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
  depth = indices.shape[-1]
  row = Tensor.zeros(*indices.shape[:-1], dtype=dtypes.int64)
  for i in range(depth):
    row = row * x.shape[i] + wrapped(indices[..., i], x.shape[i])
  rows, rest = math.prod(x.shape[:depth]), math.prod(x.shape[depth:])
  count = math.prod(indices.shape[:-1])
  places = row.reshape(count, 1).expand(count, rest)
  made = scattered(call, x.reshape(rows, rest), 0, places, updates.reshape(count, rest))
  return made.reshape(x.shape)


@op("TensorScatter", 24)
def tensor_scatter(call: Call, past: Tensor, update: Tensor, starts: Tensor | None = None) -> Tensor:
  """A cache with rows written from `starts` on, in a circle with mode `circular`."""
  axis = axis_in(call["axis"], past.ndim)
  batch, length, rows = past.shape[0], past.shape[axis], update.shape[axis]
  first = Tensor.zeros(batch, dtype=dtypes.int64) if starts is None else starts
  places = first.reshape(-1, *[1] * (past.ndim - 1)) + Tensor.arange(rows, dtype=dtypes.int64).reshape(
    *[rows if a == axis else 1 for a in range(past.ndim)]
  )
  if call["mode"] == "circular":
    places = places % length
  return past.scatter(axis, places.expand(*update.shape), update)


@op("Compress", 9, needs=(1,))
def compress(call: Call, x: Tensor, condition: Tensor) -> Tensor:
  axis = call["axis"]
  x, axis = (x.reshape(-1), 0) if axis is None else (x, axis_in(axis, x.ndim))
  kept = np.flatnonzero(host_of(condition)[: x.shape[axis]])
  return x[(slice(None),) * axis + (Tensor(kept.astype(np.int64)),)]


@op("NonZero", 9, needs=(0,))
def non_zero(call: Call, x: Tensor) -> Value:
  return Host(np.asarray(np.nonzero(np.atleast_1d(host_of(x))), np.int64))


@op("OneHot", 9, raw=True, needs=(1,))
def one_hot(call: Call, indices: Value, depth: Value, values: Value) -> Tensor:
  places, count = tensor_of(indices), ints_of(depth)[0]
  axis = axis_in(call["axis"], places.ndim + 1)
  whole = places.cast(dtypes.int64)
  at = wrapped(whole, count).unsqueeze(axis)
  hot = at == Tensor.arange(count, dtype=dtypes.int64).reshape(
    *[-1 if a == axis else 1 for a in range(places.ndim + 1)]
  )
  off_on = tensor_of(values)
  return hot.where(off_on[1], off_on[0])


@op("Trilu", 14, needs=(1,))
def trilu(call: Call, x: Tensor, k: Tensor | None = None) -> Tensor:
  diagonal = 0 if k is None else ints_of(k)[0]
  rows, columns = x.shape[-2:]
  ahead = Tensor.arange(columns).unsqueeze(0) - Tensor.arange(rows).unsqueeze(1)
  kept = ahead >= diagonal if call["upper"] else ahead <= diagonal
  return kept.where(x, False if x.dtype is dtypes.bool else 0)


@op("TopK", 10, needs=(1,))
def topk(call: Call, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
  return largest(call, x, ints_of(k)[0])


@op("TopK", 1)
def topk_by_attribute(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
  return largest(call, x, call["k"])


def largest(call: Call, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
  axis = axis_in(call["axis"], x.ndim)
  if not 0 <= k <= x.shape[axis]:
    raise ModelError(f"k is {k}, and the axis has {x.shape[axis]} elements")
  values, places = x.sort(axis, descending=bool(call.get("largest", 1)))
  cut = (slice(None),) * axis + (slice(0, k),)
  return values[cut], places[cut].cast(dtypes.int64)


@op("Unique", 11, raw=True, needs=(0,))
def unique(call: Call, x: Value) -> tuple[Value, Value, Value, Value]:
  array, axis = host_of(x), call["axis"]
  made, first, inverse, counts = np.unique(array, return_index=True, return_inverse=True, return_counts=True, axis=axis)
  inverse = inverse.reshape(-1)
  if not call["sorted"]:
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    made, first, counts, inverse = np.take(made, order, axis or 0), first[order], counts[order], rank[inverse]
  return Host(made), *[Host(a.astype(np.int64)) for a in (first, inverse, counts)]  # type: ignore[return-value]


@op("ReverseSequence", 10)
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
  batch, time = axis_in(call["batch_axis"], x.ndim), axis_in(call["time_axis"], x.ndim)
  steps = Tensor.arange(x.shape[time], dtype=dtypes.int64).reshape(*[-1 if a == time else 1 for a in range(x.ndim)])
  length = lengths.cast(dtypes.int64).reshape(*[-1 if a == batch else 1 for a in range(x.ndim)])
  places = (steps < length).where(length - 1 - steps, steps)
  return x.gather(time, places.expand(*x.shape))


def scanned(call: Call, x: Tensor, axis: Tensor, product: bool) -> Tensor:
  along = axis_in(ints_of(axis)[0], x.ndim)
  if call["reverse"]:
    x = x.flip(along)
  made = (x.cumprod(along) if product else x.cumsum(along)).cast(x.dtype)
  if call["exclusive"]:
    front = [(0, 0)] * x.ndim
    front[along] = (1, 0)
    cut = (slice(None),) * along + (slice(0, x.shape[along]),)
    made = made.pad(tuple(front), value=int(product))[cut]
  return made.flip(along) if call["reverse"] else made


@op("CumSum", 11, needs=(1,))
def cumsum(call: Call, x: Tensor, axis: Tensor) -> Tensor:
  return scanned(call, x, axis, False)


@op("CumProd", 26, needs=(1,))
def cumprod(call: Call, x: Tensor, axis: Tensor) -> Tensor:
  return scanned(call, x, axis, True)
