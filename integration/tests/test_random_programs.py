"""Random programs of movement, elementwise operations and reductions: the same on CPU, on REF and with NumPy.

Inputs are small integers, also as floats, so that sums and products are exact and the three must agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor

Array = Any
Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # the step for a Tensor and for an array
MOST = 300  # elements


def both(f: Callable[[Any], Any]) -> Pair:
  return f, f


@st.composite
def movements(draw: st.DrawFn, shape: tuple[int, ...]) -> Pair:
  """A view, a padding or a repetition of a value of this shape."""
  axes = len(shape)
  axis = draw(st.integers(0, axes - 1)) if axes else 0
  size = shape[axis] if axes else 1
  kind = draw(st.sampled_from(["permute", "flip", "slice", "pad", "reshape", "expand", "step", "roll", "repeat"]))
  if kind == "permute" and axes:
    order = draw(st.permutations(range(axes)))
    return (lambda t: t.permute(*order)), (lambda a: a.transpose(order))
  if kind == "flip" and axes:
    return (lambda t: t.flip(axis)), (lambda a: np.flip(a, axis))
  if kind in ("slice", "step") and axes:
    start = draw(st.integers(0, size))
    stop = draw(st.integers(start, size))
    step = draw(st.sampled_from([1, 2, 3, -1, -2])) if kind == "step" else 1
    piece = slice(start, stop, step) if step > 0 else slice(None, None, step)
    return both(lambda a: a[(slice(None),) * axis + (piece,)])
  if kind == "pad" and axes:
    around = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) if i == axis else (0, 0) for i in range(axes)]
    return (lambda t: t.pad(around)), (lambda a: np.pad(a, around))
  if kind == "roll" and axes:
    by = draw(st.integers(-3, 3))
    return (lambda t: t.roll(by, axis)), (lambda a: np.roll(a, by, axis))
  if kind == "repeat" and axes and int(np.prod(shape)) <= MOST // 2:
    return (lambda t: t.repeat_interleave(2, axis)), (lambda a: np.repeat(a, 2, axis))
  if kind == "expand" and int(np.prod(shape)) <= MOST // 3:
    return (lambda t: t.expand(3, *t.shape)), (lambda a: np.broadcast_to(a, (3, *a.shape)))
  total = int(np.prod(shape))
  first = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0])) if total else 0
  return both(lambda a: a.reshape((first, total // first) if total else (0,)))


@st.composite
def reductions(draw: st.DrawFn, shape: tuple[int, ...]) -> Pair:
  axis = draw(st.integers(0, len(shape) - 1))
  name = draw(st.sampled_from(["sum", "max", "min", "argmax", "cumsum", "any"]))
  if name == "cumsum":
    return (lambda t: t.cumsum(axis)), (lambda a: a.cumsum(axis, dtype=a.dtype))
  if name == "sum" or shape[axis] == 0:
    return (lambda t: t.sum(axis)), (lambda a: a.sum(axis, dtype=a.dtype))
  if name in ("argmax", "any"):
    like = draw(st.sampled_from(["int32"]))
    return (lambda t: getattr(t, name)(axis).cast(like)), (lambda a: getattr(a, name)(axis).astype(like))
  return both(lambda a: getattr(a, name)(axis))


UNARY: list[Pair] = [
  both(lambda a: -a),
  both(lambda a: a * 2 + 1),
  both(lambda a: a - 3),
  ((lambda t: t.abs()), np.abs),
  ((lambda t: t.relu()), lambda a: np.maximum(a, 0)),
  ((lambda t: t.clip(-4, 4)), lambda a: np.clip(a, -4, 4)),
  ((lambda t: t.contiguous()), lambda a: a),
  both(lambda a: a // 2),
  both(lambda a: a % 5),
]
BINARY: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = [
  ((lambda s, t: s + t), (lambda a, b: a + b)),
  ((lambda s, t: s - t), (lambda a, b: a - b)),
  ((lambda s, t: s * t), (lambda a, b: a * b)),
  ((lambda s, t: s.maximum(t)), np.maximum),
  ((lambda s, t: s.minimum(t)), np.minimum),
  ((lambda s, t: (s < t).where(s, t)), lambda a, b: np.where(a < b, a, b)),
  ((lambda s, t: (s == t).where(s * 2, 1)), lambda a, b: np.where(a == b, a * 2, 1).astype(np.result_type(a, b))),
]
LIMIT = 1 << 20  # beyond it float32 may round, and int32 come near to wrapping


def broadcastable(a: Array, b: Array) -> bool:
  try:
    return int(np.prod(np.broadcast_shapes(a.shape, b.shape))) <= MOST
  except ValueError:
    return False


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_programs_agree(data: st.DataObject) -> None:
  shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=3), label="shape"))
  dtype = data.draw(st.sampled_from(["float32", "int32"]), label="dtype")
  rng = np.random.default_rng(data.draw(st.integers(0, 100), label="seed"))
  arrays = [rng.integers(-6, 7, shape).astype(dtype) for _ in range(2)]
  devices = ("CPU", "REF")
  tensors: dict[str, list[Tensor]] = {}
  for device in devices:
    with Context(DEVICE=device):
      tensors[device] = [Tensor(a) for a in arrays]
  for _ in range(data.draw(st.integers(1, 6), label="steps")):
    which = data.draw(st.integers(0, len(arrays) - 1), label="operand")
    a = arrays[which]
    kinds = ["move", "unary", "binary"] + (["reduce"] if a.ndim else [])
    kind = data.draw(st.sampled_from(kinds), label="kind")
    if kind == "binary":
      others = [i for i, b in enumerate(arrays) if broadcastable(a, b) and b.dtype == a.dtype]
      other = data.draw(st.sampled_from(others), label="other")
      f, g = data.draw(st.sampled_from(BINARY), label="op")
      result, args = g(a, arrays[other]), [which, other]
    else:
      drawn = {"move": movements(a.shape), "reduce": reductions(a.shape) if a.ndim else st.nothing()}
      f, g = data.draw(drawn.get(kind, st.sampled_from(UNARY)), label=kind)
      result, args = g(a), [which]
    result = np.asarray(result)
    if result.size > MOST or (result.size and np.abs(result).max() > LIMIT):
      continue
    arrays.append(result)
    for device in devices:
      with Context(DEVICE=device):
        tensors[device].append(f(*[tensors[device][i] for i in args]))
  for device in devices:
    together = data.draw(st.booleans(), label="together")
    with Context(DEVICE=device):
      if together:
        tensors[device][0].realize(*tensors[device][1:])
      for t, expected in zip(tensors[device], arrays):
        assert t.shape == expected.shape and t.dtype.name == expected.dtype.name
        np.testing.assert_array_equal(t.numpy(), expected, err_msg=device)
