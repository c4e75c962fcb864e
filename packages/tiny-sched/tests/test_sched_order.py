"""Reads and writes of the same memory: versions, views, copies, devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiny_sched import schedule
from tiny_uop import DType, Ops, UOp, dtypes
from tiny_uop.context import Context

Array = np.ndarray[Any, np.dtype[Any]]
Memory = dict[UOp, Array]
Run = Callable[..., list[UOp]]


def buffer(size: int, dtype: DType = dtypes.int32, device: str = "CPU") -> UOp:
  return UOp.new_buffer(device, size, dtype)


def memory_of(root: UOp) -> UOp:
  while root.op is not Ops.BUFFER:
    root = root.src[0]
  return root


def names(calls: list[UOp]) -> list[str]:
  return [call.src[0].op.name if call.src[0].op is Ops.COPY else call.src[0].arg.name for call in calls]


def targets(calls: list[UOp]) -> list[UOp]:
  return [call.src[1] if call.src[1].op is Ops.BUFFER else call.src[1].src[0] for call in calls]


@pytest.fixture
def run(execute: Callable[[UOp, Memory], None], evaluate: Callable[[UOp, Memory], Array]) -> Run:
  def check(*roots: UOp) -> list[UOp]:
    sink = UOp.sink(*roots)
    memory: Memory = {}
    for u in sink.toposort:
      if u.op is Ops.BUFFER:
        memory[u] = (np.arange(u.arg[1]) * 3 % 11 + len(memory)).astype(u.dtype.name)
    wanted = [(root, evaluate(root, memory)) for root in roots]
    with Context(SPEC=2):
      linear = schedule(sink)
    execute(linear, memory)
    for root, want in wanted:
      np.testing.assert_array_equal(memory[memory_of(root)], want.reshape(-1))
    return list(linear.src)

  return check


def test_update_in_place_needs_no_temporary(run: Run) -> None:
  x = buffer(8)
  calls = run(x.assign(x + 1))
  assert names(calls) == ["elementwise_8"] and calls[0].src[1:] == (x,)


def test_update_from_other_elements_goes_through_a_temporary(run: Run) -> None:
  x = buffer(8)
  assert names(run(x.assign(x.flip((0,)) + 1))) == ["elementwise_8", "move_8"]
  y = buffer(9).reshape((3, 3))
  assert len(run(y.after(y.store(y.permute((1, 0)))))) == 2


def test_update_by_its_own_sum_goes_through_a_temporary(run: Run) -> None:
  x = buffer(8)
  assert len(run(x.assign(x + x.reduce_axes(Ops.ADD, (0,)).expand((8,))))) == 2


def test_old_contents_are_read_before_they_are_overwritten(run: Run) -> None:
  x, y, z = buffer(8), buffer(8), buffer(8)
  calls = run(x.assign(y * 2), z.assign(x + 1))  # z from the old x, although it comes last
  assert targets(calls) == [z, x]


def test_new_contents_are_read_after_the_store(run: Run) -> None:
  x, y, z = buffer(8), buffer(8), buffer(8)
  new = x.assign(y * 2)
  calls = run(z.assign(new.flip((0,)) + 1), new)
  assert targets(calls) == [x, z]


def test_swap_keeps_a_copy_of_one(run: Run) -> None:
  x, y = buffer(8), buffer(8)
  calls = run(x.assign(y + 0), y.assign(x + 0))
  assert len(calls) == 3 and names(calls).count("COPY") == 1


def test_old_and_new_contents_in_one_kernel(run: Run) -> None:
  x, y, z = buffer(8), buffer(8), buffer(8)
  new = x.assign(y * 2)
  assert len(run(z.assign(new * x))) == 2  # what was in x is copied, then both are written at once


def test_store_to_a_slice(run: Run) -> None:
  x, v = buffer(12).reshape((4, 3)), buffer(4)
  rows = x.shrink(((1, 3), (0, 2)))
  (call,) = run(x.base.after(rows.store(v.reshape((2, 2)))))
  assert call.src[0].arg.name == "move_2x2"


def test_store_through_every_kind_of_view(run: Run) -> None:
  x, v = buffer(12), buffer(6)
  view = x.reshape((3, 4)).permute((1, 0)).flip((0,)).shrink(((1, 4), (0, 2)))
  run(x.after(view.store(v.reshape((3, 2)))))


def test_chain_of_slices_is_done_in_order(run: Run) -> None:
  x, v = buffer(8), buffer(4)
  first = x.after(x.shrink(((0, 4),)).store(v))
  second = first.after(first.shrink(((2, 6),)).store(first.shrink(((0, 4),)) + 10))
  third = second.after(second.shrink(((4, 8),)).store(v * x.shrink(((4, 8),))))
  run(third)


def test_reader_of_a_middle_version(run: Run) -> None:
  x, v, out = buffer(8), buffer(8), buffer(8)
  first = x.after(x.store(v + 1))
  second = first.after(first.store(first * 3))
  run(out.assign(first + 5), second)


def test_store_of_nothing(run: Run) -> None:
  x, v = buffer(8), buffer(8)
  assert run(x.after(x.shrink(((3, 3),)).store((v + 1).shrink(((3, 3),))))) == []


def test_two_outputs_from_one_value(run: Run) -> None:
  x, a, b = buffer(8), buffer(8), buffer(8)
  run(a.assign(x * 3 + 1), b.assign(x * 3 + 1))


# *** copies ***


def test_copy_from_a_buffer_is_direct(run: Run) -> None:
  host, x = buffer(8, device="HOST"), buffer(8)
  (call,) = run(x.assign(host.copy_to("CPU")))
  assert call.src[0].op is Ops.COPY and call.src[1:] == (x, host)


def test_copy_of_a_slice_moves_only_its_bytes(run: Run) -> None:
  disk, x = buffer(64, dtypes.uint8, "DISK:/data"), buffer(4)
  part = disk.shrink(((16, 32),)).bitcast(dtypes.int32).copy_to("CPU")
  (call,) = run(x.assign(part))
  assert call.src[1] is x and call.src[2].arg == (16, 4) and call.src[2].dtype is dtypes.int32


def test_copy_into_a_slice_is_direct(run: Run) -> None:
  disk, x = buffer(64, device="DISK:/data"), buffer(8)
  (call,) = run(disk.after(disk.shrink(((8, 16),)).store(x.copy_to("DISK:/data"))))
  assert call.src[1].arg == (32, 8) and call.src[2] is x


@pytest.mark.parametrize("move", [
  lambda x: x.permute((1, 0)).reshape((24,)),
  lambda x: x.flip((1,)).reshape((24,)),
  lambda x: x.shrink(((1, 3), (0, 5))).reshape((10,)),
  lambda x: x.pad(((0, 0), (1, 1))).reshape((32,)),
  lambda x: x.reshape((1, 4, 6)).expand((2, 4, 6)).reshape((48,)),
])  # fmt: skip
def test_storage_never_computes(run: Run, move: Callable[[UOp], UOp]) -> None:
  value = move(buffer(24, device="DISK:/data").reshape((4, 6)).copy_to("CPU"))
  below = move(buffer(24, device="DISK:/data").reshape((4, 6))).copy_to("CPU")
  for v in (value, below):
    out = buffer(int(v.shape[0]))
    for call in run(out.assign(v + 1)):
      if call.src[0].op is not Ops.COPY:
        assert all(str(a.device) == "CPU" for a in call.src[1:])


def test_partial_rows_copy_only_their_range(run: Run) -> None:
  disk, out = buffer(60, device="DISK:/data").reshape((10, 6)), buffer(8)
  calls = run(out.assign(disk.shrink(((4, 6), (1, 5))).copy_to("CPU").reshape((8,)) + 0))
  assert calls[0].src[2].arg == (24 * 4, 12)


def test_computed_source_is_materialised_where_it_is(run: Run) -> None:
  x, out = buffer(8, device="GPU"), buffer(8)
  calls = run(out.assign((x + 1).copy_to("CPU") * 2))
  assert [str(t.device) for t in targets(calls)] == ["GPU", "CPU", "CPU"]


def test_constant_is_not_copied(run: Run) -> None:
  const = UOp(Ops.CONST, dtypes.int32, (UOp(Ops.DEVICE, arg="GPU"),), 3).reshape((1,)).expand((8,))
  assert names(run(buffer(8).assign(const.copy_to("CPU") + 1))) == ["fill_8"]


def test_constant_stored_on_disk_is_made_elsewhere(run: Run) -> None:
  const = UOp(Ops.CONST, dtypes.int32, (UOp(Ops.DEVICE, arg="CPU"),), 3).reshape((1,)).expand((8,))
  disk = buffer(8, device="DISK:/out")
  assert names(run(disk.assign(const.copy_to("DISK:/out")))) == ["fill_8", "COPY"]


def test_bitcast_to_another_size(run: Run) -> None:
  x, out = buffer(8, dtypes.uint8), buffer(2)
  (call,) = run(out.assign(x.bitcast(dtypes.int32) + 1))
  assert call.src[2].arg == (0, 2)
  y, wide = buffer(4, dtypes.int16), buffer(2)
  assert len(run(wide.assign((y + y.const_like(1)).bitcast(dtypes.int32) + 1))) == 2
  z, bytes_out = buffer(2), buffer(8, dtypes.uint8)
  assert len(run(bytes_out.assign((z + 1).bitcast(dtypes.uint8)))) == 2


def test_contiguous_view_is_not_copied(run: Run) -> None:
  x, out = buffer(8), buffer(4)
  assert len(run(out.assign(x.shrink(((4, 8),)).contiguous() + 1))) == 1
  assert len(run(out.assign(x.flip((0,)).contiguous().shrink(((4, 8),)) + 1))) == 2
