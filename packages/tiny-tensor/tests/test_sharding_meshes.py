"""Tensors in pieces of several axes, on devices in a mesh: any operations over any layouts, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, DeviceMesh, Tensor
from tiny_uop import Cut, Sharding

Array = npt.NDArray[Any]
FOUR = ("REF", "REF:1", "REF:2", "REF:3")
MESH = DeviceMesh({"data": 2, "model": 2}, FOUR)
SIX = DeviceMesh({"data": 3, "one": 1, "model": 2}, (*FOUR, "REF:4", "REF:5"))


@pytest.fixture(autouse=True, scope="module")
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def layout(t: Tensor) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
  s = t.uop.sharding
  assert s is not None
  return {cut.axis: (cut.along, cut.bounds) for cut in s.cuts}


def values(*shape: int, seed: int = 0) -> Array:
  return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def test_pieces_of_two_axes() -> None:
  a = values(6, 4)
  x = Tensor(a).shard(MESH, {"data": 0, "model": 1})
  assert x.device == FOUR and layout(x) == {0: ((0,), (0, 3, 6)), 1: ((1,), (0, 2, 4))}
  assert [piece.shape for piece in x.realize().uop.src] == [(3, 2)] * 4 and x.tolist() == a.tolist()
  assert "(in pieces of axis 0 and 1), realized" in repr(x)
  rows = Tensor(a).shard(MESH, {"data": 0}).realize()
  assert [piece.shape for piece in rows.uop.src] == [(3, 4)] * 4 and rows.tolist() == a.tolist()
  every = Tensor(a).shard(MESH, {"model": 0, "data": 0})  # both along one axis: as on four devices in a row
  assert every.uop.sharding == Tensor(a).shard(MESH, 0).uop.sharding == Sharding.of(FOUR, 0, (0, 2, 4, 5, 6))
  assert layout(Tensor(a).shard(SIX, {"model": 1, "one": 0})) == {1: ((1,), (0, 2, 4))}  # an axis of one cuts nothing


def test_what_a_mesh_cannot_be() -> None:
  x = Tensor(values(6, 4))
  with pytest.raises(ValueError, match="has 4 places for 3 devices"):
    DeviceMesh({"data": 2, "model": 2}, FOUR[:3])
  with pytest.raises(KeyError, match="no axis 'rows' in DeviceMesh"):
    x.shard(MESH, {"rows": 0})
  with pytest.raises(KeyError, match="expected one of a DeviceMesh"):
    x.shard(FOUR, {"data": 0})
  with pytest.raises(IndexError, match="axis 2 of a tensor of 2 axes"):
    x.shard(MESH, {"data": 2})
  with pytest.raises(ValueError, match=r"shape \(1, 4\) is shorter than the 2 devices"):
    x[:1].shard(MESH, {"data": 0})


def test_layouts_go_together() -> None:
  """A product of rows and columns is in pieces of both; of pieces of the sum, what is left is in pieces of the rest."""
  a, b = values(6, 8), values(8, 4)
  x, w = Tensor(a).shard(MESH, {"data": 0}), Tensor(b).shard(MESH, {"model": 1})
  assert layout(x @ w) == {0: ((0,), (0, 3, 6)), 1: ((1,), (0, 2, 4))} and (x @ w).tolist() == (a @ b).tolist()
  x, w = Tensor(a).shard(MESH, {"data": 0, "model": 1}), Tensor(b).shard(MESH, {"model": 0})
  assert layout(x @ w) == {0: ((0,), (0, 3, 6))} and (x @ w).tolist() == (a @ b).tolist()
  columns = x.shard(MESH, {"data": 1})
  assert layout(x + columns) == layout(x) and (x + columns).tolist() == (2 * a).tolist()
  assert layout(Tensor(a[:3]).shard_like(x)) == {0: ((0,), (0, 2, 3)), 1: ((1,), (0, 4, 8))}


def test_nothing_is_copied_that_is_there() -> None:
  """The sum of a product over "model" is over two devices each, not over all four."""
  x = Tensor(values(6, 8)).shard(MESH, {"data": 0, "model": 1}).realize()
  w = Tensor(values(8, 4)).shard(MESH, {"model": 0}).realize()

  def copies(t: Tensor) -> list[tuple[int, int]]:
    calls = [c for c in t.schedule_linear().src if len({a.device for a in c.src[1:]}) > 1]
    return sorted([(FOUR.index(str(c.src[2].device)), FOUR.index(str(c.src[1].device))) for c in calls])

  assert copies(x @ w) == [(0, 1), (1, 0), (2, 3), (3, 2)]
  assert copies(x * 2 + Tensor(values(6, 8)).shard(MESH).realize()) == []
  assert copies(x.shard(MESH, {"data": 0})) == [(0, 1), (1, 0), (2, 3), (3, 2)]  # along "model"
  assert copies(x.shard(MESH, {"model": 1})) == [(0, 2), (1, 3), (2, 0), (3, 1)]  # along "data"


def test_gradients_lie_as_their_tensors() -> None:
  a, b = values(6, 8), values(8, 4)
  x = Tensor(a).shard(MESH, {"data": 0})
  w = Tensor(b).shard(MESH, {"model": 1}).requires_grad_()
  (x @ w).square().sum().backward()
  assert w.grad is not None and layout(w.grad) == layout(w)
  assert w.grad.tolist() == (2 * a.T @ (a @ b)).tolist()


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> dict[str, int] | int | None:
  """Pieces of what is long enough for them."""
  mesh = {name: n for name, n in SIX.axes.items() if n > 1}
  found: dict[str, int] = {}
  for name, n in mesh.items():
    axis = draw(st.sampled_from([None, *range(len(shape))]))
    there = [m for other, m in mesh.items() if found.get(other) == axis]
    if axis is not None and shape[axis] >= n * int(np.prod(there)):
      found[name] = axis
  return found or None


@st.composite
def programs(draw: st.DrawFn) -> tuple[Tensor, Array, list[str]]:
  """A value after some operations, here and in NumPy."""
  shape = tuple(draw(st.lists(st.integers(1, 7), min_size=2, max_size=3)))
  expected = values(*shape, seed=draw(st.integers(0, 99)))
  where = draw(layouts(shape))
  x, steps = Tensor(expected).shard(SIX, where), [f"{shape} in pieces {where}"]
  for _ in range(draw(st.integers(1, 4))):
    x, expected, step = draw(st.sampled_from(STEPS))(draw, x, expected)
    steps.append(step)
  return x, expected, steps


def _add(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  other, where = values(*a.shape, seed=draw(st.integers(0, 99))), draw(layouts(a.shape))
  return x + Tensor(other).shard(SIX, where), a + other, f"plus {where}"


def _contract(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  other = values(a.shape[-1], draw(st.integers(1, 6)), seed=draw(st.integers(0, 99)))
  where = draw(layouts(other.shape))
  return x @ Tensor(other).shard(SIX, where), a @ other, f"@ {other.shape} in {where}"


def _shrink(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  starts = [draw(st.integers(0, n - 1)) for n in a.shape]
  cut = tuple([slice(i, draw(st.integers(i + 1, n))) for i, n in zip(starts, a.shape)])
  return x[cut], a[cut], f"{cut}"


def _pad(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  around = tuple([(draw(st.integers(0, 4)), draw(st.integers(0, 2))) for _ in a.shape])
  return x.pad(around), np.pad(a, around), f"pad {around}"


def _flip(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  axes = tuple(sorted(draw(st.sets(st.integers(0, a.ndim - 1), min_size=1))))
  return x.flip(axes), np.flip(a, axes), f"flip {axes}"


def _permute(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  order = tuple(draw(st.permutations(range(a.ndim))))
  return x.permute(order), a.transpose(order), f"permute {order}"


def _reshape(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  shape = draw(st.sampled_from([(a.shape[0], -1), (-1, a.shape[-1]), (1, -1), (a.size // a.shape[-1], 1, -1)]))
  return x.reshape(shape), a.reshape(shape), f"reshape {shape}"


def _reduce(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  axes = tuple(sorted(draw(st.sets(st.integers(0, a.ndim - 1), min_size=1))))
  if draw(st.booleans()):
    return x.sum(axes, keepdim=True), a.sum(axes, keepdims=True), f"sum {axes}"
  return x.max(axes, keepdim=True), a.max(axes, keepdims=True), f"max {axes}"


def _again(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  where = draw(layouts(a.shape))
  return x.shard(SIX, where), a, f"to {where}"


def _keep(draw: st.DrawFn, x: Tensor, a: Array) -> tuple[Tensor, Array, str]:
  return x.contiguous().realize(), a, "realize"


STEPS = (_add, _contract, _shrink, _pad, _flip, _permute, _reshape, _reduce, _again, _keep)


@settings(max_examples=40)
@given(programs())
def test_any_operations_over_any_layouts(program: tuple[Tensor, Array, list[str]]) -> None:
  x, expected, steps = program
  s = x.uop.sharding
  assert s is not None and s.with_cuts(s.cuts) == s, steps  # the one form of a layout
  for cut in s.cuts:
    assert isinstance(cut, Cut) and cut.bounds[0] == 0 and cut.bounds[-1] == expected.shape[cut.axis], steps
  with Context(SPEC=1):
    kept = x.contiguous().realize()
  pieces = kept.uop.src if kept.uop.sharding is not None and len(kept.uop.src) == len(s.devices) else ()
  np.testing.assert_array_equal(kept.numpy(), expected, err_msg=" · ".join(steps))
  for i, piece in enumerate(pieces):  # what several devices have is the same on each
    region = tuple([slice(int(a), int(b)) for a, b in s.region(i, expected.shape)])
    np.testing.assert_array_equal(Tensor(piece).numpy(), expected[region], err_msg=f"on {i}: {' · '.join(steps)}")
