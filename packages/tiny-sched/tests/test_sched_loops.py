"""Loops and gates of kernels: what is taken apart gets loops of its own, padding is decided once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_sched import schedule
from tiny_uop import AxisType, Ops, UOp, dtypes

Execute = Callable[[UOp, dict[UOp, Any]], None]
Evaluate = Callable[[UOp, dict[UOp, Any]], Any]
Kernels = Callable[[UOp], list[UOp]]


def new(*shape: int) -> UOp:
  return UOp.new_buffer("CPU", int(np.prod(shape)), dtypes.float32).reshape(shape)


@pytest.fixture
def kernels(execute: Execute, evaluate: Evaluate) -> Kernels:
  """The kernels of a value, checked to compute it."""

  def check(value: UOp) -> list[UOp]:
    root = new(*[int(s) for s in value.shape]).assign(value)
    linear = schedule(UOp.sink(root))
    random = np.random.default_rng(0)
    memory = {u: random.standard_normal(u.arg[1]).astype("float32") for u in root.toposort if u.op is Ops.BUFFER}
    wanted = evaluate(root, memory)
    execute(linear, memory)
    np.testing.assert_allclose(memory[root.src[0].base], wanted.reshape(-1), rtol=1e-4, atol=1e-5)
    return [call.src[0] for call in linear.src]

  return check


def extents(kernel: UOp, kind: AxisType) -> list[int]:
  loops = [u for u in kernel.toposort if u.op is Ops.RANGE and u.arg[1] is kind]
  return [int(r.src[0].arg) for r in sorted(loops, key=lambda r: int(r.arg[0]))]


def count(kernel: UOp, *ops: Ops) -> int:
  return sum(u.op in ops for u in kernel.toposort)


def heads_merged() -> UOp:
  """The heads of attention, put back behind each other."""
  return new(4, 6, 8).permute((1, 0, 2)).reshape((6, 32))


def test_reduce_loops_are_split(kernels: Kernels) -> None:
  (kernel,) = kernels((heads_merged() * new(6, 32)).reduce_axes(Ops.ADD, (1,)))
  assert extents(kernel, AxisType.REDUCE) == [4, 8] and extents(kernel, AxisType.LOOP) == [6]
  assert count(kernel, Ops.FLOORDIV, Ops.FLOORMOD) == 0


def test_loops_that_need_no_division_are_not_split(kernels: Kernels) -> None:
  (kernel,) = kernels((new(4, 8, 6).reshape((32, 6)) * new(32, 6)).reduce_axes(Ops.ADD, (0,)))
  assert extents(kernel, AxisType.REDUCE) == [32]


@pytest.mark.parametrize(("row", "loops"), [(16, [6, 4, 16]), (8, [6, 32])])
def test_output_loops_are_split_where_rows_stay_long(row: int, loops: list[int], kernels: Kernels) -> None:
  merged = new(4, 6, row).permute((1, 0, 2)).reshape((6, 4 * row))
  (kernel,) = kernels(merged + new(6, 4 * row))
  assert extents(kernel, AxisType.LOOP) == loops


def test_a_padded_load_is_gated_once(kernels: Kernels) -> None:
  x = new(4, 8).pad(((0, 0), (1, 1))).pad(((1, 0), (0, 0))).pad(((0, 0), (2, 0)))
  (kernel,) = kernels(x)
  (address,) = [u for u in kernel.toposort if u.op is Ops.INDEX and len(u.src) == 3]
  assert count(kernel, Ops.WHERE) == 0
  assert address.src[2].render().count("<") == 3  # columns from both sides, rows from one


def test_paddings_of_a_value_make_one_choice(kernels: Kernels) -> None:
  x = (new(4, 8) + 1).pad(((0, 0), (1, 1))).pad(((0, 0), (1, 1)))
  (kernel,) = kernels(x)
  assert count(kernel, Ops.WHERE) == 1


def phased(before: int) -> UOp:
  """Each element of an image, repeated, times the filter of its phase: a transposed convolution from an offset on."""
  image = new(5, 1, 9, 1).expand((5, 4, 9, 2)).reshape((5, 4, 18)).shrink(((0, 5), (0, 4), (before, 16 + before)))
  filters = new(5, 4, 1, 2).expand((5, 4, 9, 2)).reshape((5, 4, 18)).shrink(((0, 5), (0, 4), (before, 16 + before)))
  return (image * filters).reduce_axes(Ops.ADD, (0,))


@pytest.mark.parametrize("before", [0, 1])
def test_phases_of_a_sum_of_products_are_a_loop(before: int, kernels: Kernels) -> None:
  (kernel,) = kernels(phased(before))
  assert extents(kernel, AxisType.LOOP) == [4, 8, 2]
  assert count(kernel, Ops.FLOORDIV) == 0


def test_an_image_that_is_repeated_keeps_its_rows(kernels: Kernels) -> None:
  image = new(5, 4, 8, 1).expand((5, 4, 8, 2)).reshape((5, 4, 16))
  (kernel,) = kernels((image * new(5, 1, 16).expand((5, 4, 16))).reduce_axes(Ops.ADD, (0,)))
  assert extents(kernel, AxisType.LOOP) == [4, 16]
