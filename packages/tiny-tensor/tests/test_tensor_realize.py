"""Laziness: when values are computed, what in-place writes change and what they leave alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tiny_runtime import buffer_of, run
from tiny_sched import schedule, schedule_cache_info
from tiny_tensor import Context, Tensor, UOp, Variable, dtypes
from tiny_tensor.realize import is_realized
from tiny_uop import Ops


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def buffers(t: Tensor) -> set[UOp]:
  return {u for u in t.uop.toposort if u.op is Ops.BUFFER}


def test_nothing_runs_until_realize() -> None:
  a = Tensor([1, 2, 3])
  b = a + 1
  assert not is_realized(b.uop)
  assert b.realize() is b and is_realized(b.uop) and b.tolist() == [2, 3, 4]
  buffer = b.uop.base
  b.realize()
  assert b.uop.base is buffer


def test_others_go_on_from_the_buffer() -> None:
  a = Tensor([1.0, 2.0]).exp()
  b = a + 1
  a.realize()
  assert a.uop.base in buffers(b) and not any(u.op is Ops.EXP for u in b.uop.toposort)


def test_contiguous_is_computed_once_and_kept() -> None:
  a = (Tensor([1.0, 2.0]) * 3).contiguous()
  (a + 1).realize()
  assert is_realized(a.uop) and a.tolist() == [3, 6]
  assert a.contiguous() is a and a.clone() is not a


def test_a_value_and_what_is_contiguous_of_it_in_another_shape_are_computed_once() -> None:
  x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
  row = (x * 2).sum(0)
  kept = row.reshape(2, 1).contiguous()
  linear = row.schedule_linear(kept)
  assert len(linear.src) == 1
  run(linear)
  assert row.uop.base is kept.uop.base and row.tolist() == [8, 12] and kept.tolist() == [[8], [12]]
  row.assign(row + 1)
  assert row.tolist() == [9, 13] and kept.tolist() == [[8], [12]]


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_what_was_assigned_stays_in_its_buffer_beside_a_copy(shape: tuple[int, ...]) -> None:
  x = Tensor([1.0, 2.0, 3.0, 4.0]).reshape(shape).realize()
  buffer = x.uop.base
  x.assign(x + 1)
  copy = x.contiguous()
  x.realize(copy)
  assert x.uop.base is buffer and copy.flatten().tolist() == [2, 3, 4, 5]


def test_graph_is_what_is_scheduled_and_changes_nothing() -> None:
  a = Tensor([1.0, 2.0]).realize()
  b = (a + 1).contiguous() * 2
  before = b.uop
  sink = b.graph()
  assert sink.op is Ops.SINK and b.uop is before and len(schedule(sink).src) == 1
  assert b.tolist() == [4.0, 6.0]


def test_schedule_gives_the_kernels() -> None:
  a = (Tensor([1.0, 2.0]).realize() * 3).sum()
  linear = a.schedule_linear()
  assert linear.op is Ops.LINEAR and len(linear.src) == 1 and is_realized(a.uop)
  with pytest.raises(RuntimeError, match="written"):
    a.item()
  run(linear)
  assert a.item() == 9
  assert Tensor([1]).realize().schedule_linear().src == ()


def test_reads_of_old_contents_come_before_the_write() -> None:
  w = Tensor([1.0, 2.0]).realize()
  before = w * 10
  w.assign(w + 1)
  after = w * 10
  w.realize()
  assert before.tolist() == [10, 20] and after.tolist() == [20, 30]


def test_versions_of_one_buffer() -> None:
  w = Tensor([1.0]).realize()
  seen = [w * 1]
  for _ in range(3):
    w.assign(w * 2)
    seen.append(w * 1)
  w.realize()
  assert [t.item() for t in seen] == [1, 2, 4, 8]


def test_an_assignment_happens_once() -> None:
  w = Tensor([1.0]).realize()
  w += 1
  a, b = w * 10, w * 100
  assert a.item() == 20 and b.item() == 200 and w.item() == 2


def test_swap() -> None:
  a, b = Tensor([1.0]).realize(), Tensor([2.0]).realize()
  x, y = a * 1, b * 1
  a.assign(y)
  b.assign(x)
  a.realize(b)
  assert (a.item(), b.item()) == (2, 1)


def test_an_assignment_that_reads_another_old_buffer_is_not_lost() -> None:
  a, b = Tensor([1.0]).realize(), Tensor([2.0]).realize()
  b.assign(a + 5)
  a.assign(a + 100)
  a.realize()
  assert (a.item(), b.item()) == (101, 6)


def test_views_share_contents() -> None:
  a = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
  row, turned, copied = a[1], a.T, a.clone()
  a[1, 0] = 9
  assert row.tolist() == [9, 4] and turned.tolist() == [[1, 9], [2, 4]] and copied.tolist() == [[1, 2], [3, 4]]
  row.assign(Tensor([7.0, 8.0]))
  assert a.tolist() == [[1, 2], [7, 8]]


def test_writing_keeps_the_buffer() -> None:
  a = Tensor([1.0, 2.0]).realize()
  buffer = a.uop.base
  a[0] = 5
  a.realize()
  assert a.uop.base is buffer and a.tolist() == [5, 2]


def test_writing_to_what_is_not_computed() -> None:
  base = Tensor([1.0, 2.0])
  a = base + 1
  b = a * 1
  a[0] = 0
  assert a.tolist() == [0, 3] and b.tolist() == [2, 3] and base.tolist() == [1, 2]
  z = Tensor.zeros(2, 2)
  z[:, 1] = 1
  assert z.tolist() == [[0, 1], [0, 1]]
  wide = Tensor([[1.0], [2.0]]).realize().expand(2, 2).clone()  # of itself, elements share places
  wide[0, 0] = 9
  assert wide.tolist() == [[9, 1], [2, 2]]


def test_writes_that_overlap_reads() -> None:
  a = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
  a[1:] = a[:-1]
  assert a.tolist() == [1, 1, 2, 3]
  a.assign(a.flip(0))
  assert a.tolist() == [3, 2, 1, 1]


def test_write_errors_name_the_values() -> None:
  a = Tensor([1.0, 2.0]).realize()
  with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
    a.assign(Tensor([1.0, 2.0, 3.0]))
  with pytest.raises(IndexError, match="index 2.*size 2"):
    a[2] = 1
  with pytest.raises(TypeError, match="deleted"):
    del a[0]
  assert a.assign([5.0, 6.0]).tolist() == [5, 6]


def test_an_uninitialised_tensor_cannot_be_read() -> None:
  a = Tensor.empty(3)
  with pytest.raises(RuntimeError, match="written"):
    a.tolist()
  assert (a.assign(Tensor.ones(3)) + 1).tolist() == [2, 2, 2]


def test_a_freed_buffer_cannot_be_read() -> None:
  a = Tensor([1.0, 2.0]).realize()
  buffer_of(a.uop.base).free()
  with pytest.raises(RuntimeError, match="freed"):
    (a + 1).tolist()


def test_bound_variables_share_a_schedule() -> None:
  x = Tensor([[1.0, 2.0, 3.0, 4.0]] * 2).realize()
  v = Variable("n", 1, 4)
  expected = [2.0, 6.0, 12.0, 20.0]
  assert (x[:, : v.bind(1)] * 2).sum(1).tolist() == [2, 2]
  misses = schedule_cache_info().misses
  for n in range(1, 5):
    assert (x[:, : v.bind(n)] * 2).sum(1).tolist() == [expected[n - 1]] * 2
  assert schedule_cache_info().misses == misses
  part = x[:, : v.bind(3)] + 1
  assert part.tolist() == [[2, 3, 4]] * 2 and part.numpy().shape == (2, 3)
  assert x[Variable("row", 0, 1).bind(1)].tolist() == [1, 2, 3, 4]


def test_symbolic_indices_stay_in_range_for_all_values() -> None:
  x, n = Tensor.zeros(4, 8), Variable("n", 0, 4).bind(1)
  assert x[:n, n : n + 4].shape[1] == 4
  with pytest.raises(IndexError, match=r"n to n \+ 1 can reach from 0 to 5, .* axis 0 of size 4: give the variables"):
    x[n]
  with pytest.raises(IndexError, match=r"n to n \+ 5 can reach from 0 to 9, .* axis 1 of size 8"):
    x[:, n : n + 5]
  with pytest.raises(IndexError, match=r"n \+ -1 to 4 can reach from -1 to 4, .* axis 0 of size 4"):
    x[n - 1 :]


def test_a_cache_that_grows() -> None:
  cache, v = Tensor.zeros(4, 2).contiguous().realize(), Variable("position", 0, 3)
  for n in range(3):
    at = v.bind(n)
    cache[at : at + 1] = Tensor([[float(n + 1), 0.0]])
    cache.realize()
  assert cache.tolist() == [[1, 0], [2, 0], [3, 0], [0, 0]]


def test_devices() -> None:
  a = Tensor([1.0, 2.0])
  assert a.device == "REF" and a.to("ref") is a
  host = a.realize().to("HOST")
  assert host.device == "HOST" and host.tolist() == [1, 2]
  with pytest.raises(ValueError, match="HOST.*REF"):
    (a + host).realize()
  with pytest.raises(Exception, match="NOSUCH"):
    Tensor([1], device="NOSUCH").realize()
  assert (a + 1).tolist() == [2, 3]


def test_half_of_the_types_travel_as_float32() -> None:
  a = Tensor([1.0, 2.5, -3.0], dtype="bfloat16")
  assert a.dtype is dtypes.bfloat16 and a.tolist() == [1, 2.5, -3] and str(a.numpy().dtype) == "float32"
  assert Tensor([1.0, 448.0], dtype="fp8e4m3").tolist() == [1, 448]
  with pytest.raises(TypeError, match="bfloat16"):
    a.data()


def test_counters_that_are_equal_by_chance_keep_their_buffers() -> None:
  a, b = Tensor.zeros(1), Tensor.zeros(1)
  kept = []
  for n in range(3):
    a.assign(a + 1)
    b.assign(b + 1)
    a.realize(b)
    kept.append((a.uop.base, b.uop.base))
    assert (a.item(), b.item()) == (n + 1, n + 1)
  assert len(set(kept)) == 1 and kept[0][0] is not kept[0][1]


def test_what_only_tensors_without_elements_read_is_not_taken_for_computed() -> None:
  kept = (Tensor([3.0]) * 2).contiguous()
  nothing = kept[1:]
  assert (nothing.pad((0, 1)) + 1).tolist() == [1.0]
  assert (kept * 2).tolist() == [12.0]


def test_what_folds_away_is_not_taken_for_computed() -> None:
  kept = (Tensor([3.0]) * 2).contiguous()
  assert kept.argmax(0).item() == 0
  assert (kept + 1).tolist() == [7.0]
