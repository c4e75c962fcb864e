"""What depends on constants only is taken out of a graph that runs again and again."""

from __future__ import annotations

from sched_graphs import new, stored, total

from tiny_sched import constants_first
from tiny_uop import Ops, UOp, dtypes


def product(x: UOp, w: UOp) -> UOp:
  (m, k), n = x.shape, w.shape[0]
  left = x.reshape((m, 1, k)).expand((m, n, k))
  return total(left * w.reshape((1, n, k)).expand((m, n, k)), 2).reshape((m, n))


def first(value: UOp, *changing: UOp) -> tuple[UOp, list[UOp]]:
  """What `constants_first` makes of a value where all memory but `changing` stays as it is."""
  return constants_first(UOp.sink(stored(value)), lambda buffer: all(x.base is not buffer for x in changing))


def test_weights_are_scaled_once() -> None:
  x, w, c = new(8, 16), new(4, 16), new(4)
  sink, (weights,) = first(product(x, w) * c.reshape((1, 4)).expand((8, 4)), x)
  assert weights.op is Ops.CONTIGUOUS and weights.shape == (1, 4, 16), "not one for each row of x"
  assert sum(u.op is Ops.MUL for u in sink.toposort if u not in weights.toposort) == 1


def test_a_product_that_others_use_is_not_made_twice() -> None:
  x, w, c = new(8, 16), new(4, 16), new(4)
  y = product(x, w)
  _, constants = first(y * c.reshape((1, 4)).expand((8, 4)) + y, x)
  assert not constants


def test_a_factor_of_rows_is_none_of_weights() -> None:
  x, w, c = new(8, 16), new(4, 16), new(8)
  assert first(product(x, w) * c.reshape((8, 1)).expand((8, 4)), x)[1] == []


def test_weights_that_are_unpacked_stay_packed() -> None:
  x, w = new(8, 16), new(4, 16, dtype=dtypes.int8)
  assert first(product(x, w.cast(dtypes.float32)), x)[1] == []
  (kept,) = first(product(x, (w + 1).cast(dtypes.float32)), x)[1]
  assert kept.dtype is dtypes.int8


def test_what_the_graph_writes_is_not_constant() -> None:
  x, w = new(8, 16), new(4, 16)
  memory = w.base
  updated = UOp(Ops.AFTER, memory.dtype, (memory, UOp(Ops.STORE, dtypes.void, (w, w + 1)))).reshape((4, 16))
  assert first(product(x, updated * 2), x)[1] == []


def test_what_the_host_has_made_is_copied_once() -> None:
  x, table, other = new(8, 16), new(8, 1), new(8, 16)
  sink, (kept,) = first(x + table.copy_to("CPU").expand((8, 16)), x)
  assert kept.src[0].op is Ops.COPY and kept.shape == (8, 1)
  assert first(x + other.copy_to("CPU"), x, other)[1] == []


def test_weights_are_laid_out_for_the_rows_that_meet_them() -> None:
  w = new(128, 32)
  for rows, shape in ((4, None), (8, (2, 32, 64)), (24, (32, 128)), (300, None)):
    x = new(rows, 32)
    kept = first(product(x, w), x)[1]
    assert [k.shape for k in kept] == ([] if shape is None else [shape])


def test_weights_that_were_scaled_are_laid_out_in_one_kernel() -> None:
  x, w, c = new(24, 16), new(32, 16), new(32)
  _, (kept,) = first(product(x, w) * c.reshape((1, 32)).expand((24, 32)), x)
  assert kept.op is Ops.CONTIGUOUS and kept.shape == (16, 32) and any(u.op is Ops.MUL for u in kept.toposort)


def test_weights_of_windows_with_few_places_are_laid_out_in_panels() -> None:
  w = new(64, 4, 3, 3)
  for places, shape in ((49, (2, 3 * 4 * 3, 32)), (196, None)):
    x = new(places, 4, 3, 3)
    left = x.reshape((places, 1, 4, 3, 3)).expand((places, 64, 4, 3, 3))
    value = (left * w.reshape((1, 64, 4, 3, 3)).expand(left.shape)).reduce_axes(Ops.ADD, (2, 3, 4))
    kept = first(value, x)[1]
    assert [k.shape for k in kept] == ([] if shape is None else [shape])
