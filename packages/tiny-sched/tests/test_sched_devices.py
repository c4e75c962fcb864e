"""Values on several devices: what is copied and computed where, and that the result is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tiny_sched import schedule, schedule_cache_info
from tiny_sched.devices import collectives
from tiny_uop import Context, Ops, Sharding, UOp, dtypes, even_bounds

Array = npt.NDArray[Any]
Memory = dict[UOp, Array]


def names(count: int) -> tuple[str, ...]:
  return tuple("CPU" if i == 0 else f"CPU:{i}" for i in range(count))


def value(shape: tuple[int, ...], count: int, axis: int | None, memory: Memory, contents: Array | None = None) -> UOp:
  """A value in pieces, or copied, with buffers whose contents are in `memory`."""
  bounds = () if axis is None else even_bounds(shape[axis], count)
  s = Sharding.of(names(count), axis, bounds)
  pieces = []
  for i, device in enumerate(s.devices):
    region = s.region(i, shape)
    buffer = UOp.new_buffer(device, int(np.prod([int(b) - int(a) for a, b in region])), dtypes.float32)
    if contents is None:
      memory[buffer] = np.full(buffer.arg[1], np.nan, np.float32)
    else:
      memory[buffer] = contents[tuple(slice(int(a), int(b)) for a, b in region)].astype(np.float32).ravel()
    pieces.append(buffer.reshape([int(b) - int(a) for a, b in region]))
  return UOp(Ops.MULTI, dtypes.float32, tuple(pieces), axis)


def looked_at(x: UOp, memory: Memory) -> list[Array]:
  """The pieces of a value."""
  return [memory[piece.base].reshape(piece.shape) for piece in x.src]


def work(linear: UOp) -> tuple[Counter[str], Counter[str]]:
  """(kernels per device, bytes that each device sends)."""
  kernels: Counter[str] = Counter()
  sent: Counter[str] = Counter()
  for call in linear.src:
    to, *others = call.src[1:]
    if call.src[0].op is Ops.COPY:
      sent[str(others[0].device)] += to.arg[1] * to.dtype.itemsize
    else:
      kernels[str(to.device)] += 1
  return kernels, sent


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX, Ops.MUL])
@pytest.mark.parametrize(("count", "width"), [(2, 5), (2, 20000), (3, 7), (3, 20001), (4, 17000)])
def test_reduction_over_the_pieces(op: Ops, count: int, width: int, execute: Callable[[UOp, Memory], None]) -> None:
  contents = np.random.default_rng(1).normal(size=(5, width)).astype(np.float32)
  memory: Memory = {}
  x, out = value((5, width), count, 0, memory, contents), value((1, width), count, None, memory)
  linear = schedule(UOp.sink(out.assign(x.reduce_axes(op, (0,)))))
  execute(linear, memory)
  first, *others = looked_at(out, memory)
  combine = {Ops.ADD: np.add, Ops.MAX: np.maximum, Ops.MUL: np.multiply}[op]
  np.testing.assert_allclose(first[0], combine.reduce(contents, axis=0), rtol=1e-5, atol=1e-6)
  for other in others:  # to the bit: what is replicated has to stay equal
    np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("count", [3, 4])
def test_a_ring_sends_as_little_as_can_be(count: int) -> None:
  width = count * 8192
  memory: Memory = {}
  x, out = value((count, width), count, 0, memory), value((1, width), count, None, memory)
  kernels, sent = work(schedule(UOp.sink(out.assign(x.reduce_axes(Ops.ADD, (0,))))))
  nbytes = width * 4
  assert nbytes >= collectives.RING
  assert sent == dict.fromkeys(names(count), 2 * (count - 1) * nbytes // count)
  assert kernels.keys() == set(names(count)) and len(set(kernels.values())) == 1


def test_a_small_sum_is_sent_directly() -> None:
  memory: Memory = {}
  x, out = value((8, 3), 4, 0, memory), value((1, 3), 4, None, memory)
  kernels, sent = work(schedule(UOp.sink(out.assign(x.reduce_axes(Ops.ADD, (0,))))))
  assert sent == dict.fromkeys(names(4), 3 * 12) and kernels == dict.fromkeys(names(4), 2)


def product(x: UOp, w: UOp) -> UOp:
  """A matrix product."""
  (m, k), n = x.shape, w.shape[1]
  left = x.reshape((m, 1, k)).expand((m, n, k))
  return (left * w.permute((1, 0)).reshape((1, n, k)).expand((m, n, k))).reduce_axes(Ops.ADD, (2,)).reshape((m, n))


@pytest.mark.parametrize(
  ("x_axis", "w_axis", "out_axis", "kernels", "sent"),
  [
    (0, None, 0, 1, 0),  # rows: data parallel
    (None, 1, 1, 1, 0),  # columns of the weight
    (1, 0, None, 2, 12 * 4 * 4),  # rows of the weight: partial products are added
    (None, None, None, 1, 0),  # each does the same
  ],
)
def test_matrix_products(
  x_axis: int | None, w_axis: int | None, out_axis: int | None, kernels: int, sent: int,
  execute: Callable[[UOp, Memory], None],
) -> None:  # fmt: skip
  rng = np.random.default_rng(0)
  a, b = rng.normal(size=(12, 6)), rng.normal(size=(6, 4))
  memory: Memory = {}
  x, w = value((12, 6), 2, x_axis, memory, a), value((6, 4), 2, w_axis, memory, b)
  out = value((12, 4), 2, out_axis, memory)
  linear = schedule(UOp.sink(out.assign(product(x, w))))
  found = work(linear)
  assert found == (dict.fromkeys(names(2), kernels), dict.fromkeys(names(2), sent) if sent else {})
  execute(linear, memory)
  pieces = looked_at(out, memory)
  whole = pieces[0] if out_axis is None else np.concatenate(pieces, out_axis)
  np.testing.assert_allclose(whole, a @ b, rtol=1e-5, atol=1e-5)


def test_columns_are_cut_before_they_are_sent() -> None:
  memory: Memory = {}
  x, out = value((8, 8), 4, 0, memory), value((8, 8), 4, 1, memory)
  layout = out.sharding
  assert layout is not None
  _, sent = work(schedule(UOp.sink(out.assign(x.laid_out(layout)))))
  assert sent == dict.fromkeys(names(4), 3 * 2 * 2 * 4)  # to each of the others 2 rows of 2 columns


def test_only_a_part_is_sent_where_a_part_is_needed() -> None:
  memory: Memory = {}
  x, target = value((8, 2), 4, 0, memory), UOp.new_buffer("CPU", 6, dtypes.float32)
  part = x.shrink(((3, 6), (0, 2))).copy_to("CPU")  # of devices 1, 2 and 2
  kernels, sent = work(schedule(UOp.sink(target.assign(part.reshape((6,))))))
  assert sent == {"CPU:1": 8, "CPU:2": 16} and kernels == {"CPU": 1}


def test_zero_keeps_its_sign_where_pieces_are_joined(execute: Callable[[UOp, Memory], None]) -> None:
  memory: Memory = {}
  x, target = value((4,), 2, 0, memory, np.array([-0.0, 1.0, -0.0, 0.0])), UOp.new_buffer("CPU", 4, dtypes.float32)
  memory[target] = np.zeros(4, np.float32)
  execute(schedule(UOp.sink(target.assign(x.copy_to("CPU")))), memory)
  assert np.signbit(memory[target]).tolist() == [True, False, True, False]


def test_a_number_needs_no_device(execute: Callable[[UOp, Memory], None]) -> None:
  memory: Memory = {}
  out = value((5, 2), 2, 0, memory)
  execute(schedule(UOp.sink(out.after(out.store(UOp.const(dtypes.float32, 3.0, (5, 2)))))), memory)
  assert all((piece == 3).all() for piece in looked_at(out, memory))


def test_writes_through_views_stay_where_they_are(execute: Callable[[UOp, Memory], None]) -> None:
  memory: Memory = {}
  x = value((4, 3), 2, 0, memory, np.zeros((4, 3)))
  view = x.shrink(((1, 4), (0, 2))).permute((1, 0))
  linear = schedule(UOp.sink(x.after(view.store(UOp.const(dtypes.float32, 1.0, (2, 3))))))
  assert work(linear) == ({"CPU": 1, "CPU:1": 1}, {})
  execute(linear, memory)
  np.testing.assert_array_equal(np.concatenate(looked_at(x, memory))[1:, :2], np.ones((3, 2)))
  assert np.concatenate(looked_at(x, memory)).sum() == 6
  with pytest.raises(ValueError, match="STORE through a view of a value on CPU, CPU:1 that moves elements"):
    schedule(UOp.sink(x.after(x.flip((0,)).store(x))))


def test_values_on_other_devices_are_refused() -> None:
  memory: Memory = {}
  x, here = value((4,), 2, 0, memory), UOp.new_buffer("CPU", 4, dtypes.float32)
  with pytest.raises(ValueError, match=r"on CPU and is used with values on CPU, CPU:1: copy one of them with COPY"):
    schedule(UOp.sink(x.assign(x + here)))
  three = value((4,), 3, 0, memory)
  with pytest.raises(ValueError, match=r"ADD of values on CPU, CPU:1 and on CPU, CPU:1, CPU:2: copy one of them first"):
    schedule(UOp.sink(x.assign(x + three)))


def test_other_buffers_of_the_same_layout_hit_the_cache() -> None:
  def step() -> None:
    x, out = value((4, 2), 2, 0, {}), value((1, 2), 2, None, {})
    with Context(SPEC=1):
      schedule(UOp.sink(out.assign(x.reduce_axes(Ops.ADD, (0,)))))

  step()
  before = schedule_cache_info()
  step()
  after = schedule_cache_info()
  assert (after.hits - before.hits, after.misses - before.misses) == (1, 0)
