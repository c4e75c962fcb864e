"""Convolutions and their gradients as one product: MERGE, and when the heuristics choose it for tensor cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_kernels import Array
from test_codegen_tensor_cores import M16N8K8, Tensors
from workgroup_machine import run_workgroups

from tiny_codegen import compile_kernel
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.opt.vectors import choose_opts
from tiny_uop import AxisType, Context, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

H, F = dtypes.float16, dtypes.float32
Sizes = tuple[int, int, int, int]  # images, channels, pixels of a side, filters


def axis(size: int, number: int, kind: AxisType = AxisType.LOOP) -> UOp:
  return UOp.range(size, number, kind)


def image(sizes: Sizes, b: UOp, c: UOp, y: UOp, x: UOp, stride: int = 1) -> UOp:
  """A pixel of NCHW images that are 0 around them; places count from one outside."""
  n, channels, side, _ = sizes
  down, right = y * stride - 1, x * stride - 1
  inside = (down < side) & (down < 0).logical_not() & (right < side) & (right < 0).logical_not()
  place = ((b * channels + c) * side + down) * side + right
  return UOp.param(1, H.ptr(n * channels * side * side)).index(place, inside).load().cast(F)


def forward(sizes: Sizes, stride: int = 1) -> UOp:
  """3 × 3, with a border of one."""
  n, channels, side, filters = sizes
  out = -(-side // stride)
  b, o, y, x = axis(n, 0), axis(filters, 1), axis(out, 2), axis(out, 3)
  c, dy, dx = (axis(size, 4 + k, AxisType.REDUCE) for k, size in enumerate((channels, 3, 3)))
  value = image(sizes, b, c, y * stride + dy, x * stride + dx)
  weight = UOp.param(2, H.ptr(filters * channels * 9)).index(((o * channels + c) * 3 + dy) * 3 + dx).load().cast(F)
  place = UOp.param(0, F.ptr(n * filters * out * out)).index(((b * filters + o) * out + y) * out + x)
  return UOp.sink(place.store((value * weight).reduce(Ops.ADD, c, dy, dx)).end(b, o, y, x), arg=KernelInfo("forward"))


def of_weights(sizes: Sizes) -> UOp:
  """The gradient of the weights."""
  n, channels, side, filters = sizes
  o, c, dy, dx = axis(filters, 0), axis(channels, 1), axis(3, 2), axis(3, 3)
  b, y, x = (axis(size, 4 + k, AxisType.REDUCE) for k, size in enumerate((n, side, side)))
  value = image(sizes, b, c, y + dy, x + dx)
  given = UOp.param(2, H.ptr(n * filters * side * side)).index(((b * filters + o) * side + y) * side + x).load().cast(F)
  place = UOp.param(0, F.ptr(filters * channels * 9)).index(((o * channels + c) * 3 + dy) * 3 + dx)
  return UOp.sink(place.store((value * given).reduce(Ops.ADD, b, y, x)).end(o, c, dy, dx), arg=KernelInfo("weights"))


def windows(x: Array) -> Array:
  """(images, channels, side, side, 3, 3)."""
  return np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))


def opts_of(kernel: UOp) -> list[Opt]:
  return list(choose_opts(before_opts(kernel), Tensors(M16N8K8).target))


def merges(kernel: UOp) -> list[tuple[int | None, Any]]:
  return [(o.axis, o.arg) for o in opts_of(kernel) if o.op is OptOps.MERGE]


def run(kernel: UOp, x: Array, other: Array, expected: Array) -> None:
  with Context(SPEC=1):
    program = compile_kernel(kernel, Tensors(M16N8K8))
  assert any(u.op is Ops.MMA for u in program.src[1].src)
  out = np.full(expected.size, np.nan)
  run_workgroups(program, [out, x.ravel().astype(float), other.ravel().astype(float)])
  assert np.array_equal(out.reshape(expected.shape), expected)


def small(*shape: int) -> Array:
  return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(float)


@pytest.mark.parametrize("stride", (1, 2))
def test_forward(stride: int) -> None:
  """25 places of two images, 50 rows of a product; or 9 of each. Sums over 16 channels are one step each."""
  sizes = (2, 16, 5, 16)
  x, w = small(2, 16, 5, 5), small(16, 16, 3, 3)
  expected = np.einsum("bcyxij,ocij->boyx", windows(x)[:, :, ::stride, ::stride], w)
  run(forward(sizes, stride), x, w, expected)


def test_gradient_of_the_weights() -> None:
  """Rows are filters, columns channels and windows, and the sum goes over all places of both images."""
  x, g = small(2, 4, 6, 6), small(2, 16, 6, 6)
  run(of_weights((2, 4, 6, 16)), x, g, np.einsum("bcyxij,boyx->ocij", windows(x), g))


def test_loops_become_one_where_a_tile_gains_by_it() -> None:
  summed = [(5, 6), (4, 5)]  # weights lie in rows of all terms of a sum, not along channels or filters
  assert merges(forward((32, 64, 56, 64))) == [(2, 3), *summed]  # 3136 places of an image are 49 tiles
  assert merges(forward((32, 512, 7, 512))) == [(2, 3), (0, 2), *summed]  # 49 are not, but those of 32 images are
  assert merges(forward((32, 64, 64, 64))) == summed
  assert merges(forward((8, 3, 64, 64))) == summed  # 27 terms, not three


def test_sums_over_places_are_read_in_rows() -> None:
  assert merges(of_weights((32, 512, 7, 512))) == [(5, 6), (4, 5)]


def test_merge() -> None:
  root = before_opts(forward((2, 16, 5, 16)))
  merged = apply_opts(root, (Opt(OptOps.MERGE, 2, 3), Opt(OptOps.MERGE, 4, 6)), Tensors(M16N8K8).target)
  loops = {u.arg[0]: int(u.src[0].arg) for u in merged.toposort if u.op is Ops.RANGE}
  assert loops == {0: 2, 1: 16, 2: 25, 4: 48, 5: 3}
