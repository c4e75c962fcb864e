"""How many kernels come out, and that they compute what the graph says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sched_graphs import arange, gather, new, one_hot, stored, total

from tiny_sched import schedule
from tiny_uop import Ops, PtrDType, UOp, dtypes

Execute = Callable[[UOp, dict[UOp, Any]], None]
Evaluate = Callable[[UOp, dict[UOp, Any]], Any]
Run = Callable[..., list[str]]


def spread(x: UOp, shape: Sequence[int], axis: int) -> UOp:
  return x.reshape(tuple(1 if i == axis else s for i, s in enumerate(shape))).expand(tuple(shape))


def softmax(x: UOp) -> UOp:
  e = (x - x.reduce_axes(Ops.MAX, (1,)).expand(x.shape)).exp()
  return e / total(e, 1).expand(x.shape)


def layernorm(x: UOp) -> UOp:
  n = int(x.shape[1])
  d = x - (total(x, 1) * (1 / n)).expand(x.shape)
  return d / (total(d * d, 1) * (1 / n) + 1e-5).sqrt().expand(x.shape)


def matmul(a: UOp, b: UOp) -> UOp:
  (m, k), n = a.shape, b.shape[1]
  left = a.reshape((m, 1, k)).expand((m, n, k))
  return total(left * b.permute((1, 0)).reshape((1, n, k)).expand((m, n, k)), 2).reshape((m, n))


def windows(x: UOp, k: int) -> UOp:
  """(h, w) → (h-k+1, w-k+1, k, k)"""
  for axis in (0, 2):
    before, n, after = x.shape[:axis], int(x.shape[axis]), x.shape[axis + 1 :]
    x = x.reshape((*before, 1, n, *after)).expand((*before, k + 1, n, *after)).reshape((*before, (k + 1) * n, *after))
    x = x.shrink([(0, k * (n + 1)) if i == axis else (0, s) for i, s in enumerate(x.shape)]).reshape(
      (*before, k, n + 1, *after)
    )
    x = x.shrink([(0, n - k + 1) if i == axis + 1 else (0, s) for i, s in enumerate(x.shape)])
    x = x.permute([axis + 1 if i == axis else axis if i == axis + 1 else i for i in range(len(x.shape))])
  return x.permute((0, 2, 1, 3))


def conv(x: UOp, w: UOp) -> UOp:
  view = windows(x.pad(((1, 1), (1, 1))), 3)
  return total(view * w.reshape((1, 1, 3, 3)).expand(view.shape), 2, 3).reshape(view.shape[:2])


def loads(kernel: UOp) -> int:
  return sum(u.op is Ops.LOAD for u in kernel.toposort)


def test_elementwise_chain_is_one_kernel(run: Run) -> None:
  x = y = new(8, 16)
  for _ in range(50):
    y = (y * 1.01 + x).maximum(0)
  assert run(y) == ["elementwise_128"]


def test_reduction_takes_work_before_and_after_along(run: Run) -> None:
  assert run(total((new(8, 16) + 1).exp(), 1).sqrt()) == ["reduce_8_r16"]


def test_softmax_is_one_kernel(run: Run) -> None:
  assert run(softmax(new(64, 48))) == ["reduce_64x48_r48x48"]


def test_layernorm_is_one_kernel(run: Run) -> None:
  assert run(layernorm(new(64, 48))) == ["reduce_64x48_r48x48"]


@pytest.mark.parametrize(("rows", "large"), [(64, False), (256, True)])
def test_exponentials_of_large_values_are_made_again_rather_than_read(rows: int, large: bool) -> None:
  """Of a cross-entropy with its gradient: the sum of each row, and what the sum of all of them is divided by."""
  x = new(rows, 32768)
  e = (x - x.reduce_axes(Ops.MAX, (1,)).expand(x.shape)).exp()
  of_all = total(total(e, 1).log(), 0)
  linear = schedule(UOp.sink(stored(of_all), stored(e / total(e, 1).expand(x.shape) * of_all.expand(x.shape))))
  temporaries = [a.shape[0] for call in linear.src for a in call.src[1:] if a.op is Ops.BUFFER_VIEW]
  assert (max(temporaries) < rows * 32768) == large


def test_few_long_rows_are_not_fused(run: Run) -> None:
  assert len(run(softmax(new(2, 16384)))) > 1


def test_matmul_bias_relu_is_one_kernel(run: Run) -> None:
  h = (matmul(new(16, 24), new(24, 32)) + spread(new(32), (16, 32), 0)).maximum(0)
  assert run(h) == ["reduce_16x32_r24"]


def test_sum_of_two_matmuls_is_two_kernels(run: Run) -> None:
  a, b, c, d = (new(64, 64) for _ in range(4))
  assert len(run(stored((matmul(a, b) + matmul(c, d)).maximum(0.0)))) == 2


def test_products_with_vectors_are_added_in_one_kernel(run: Run) -> None:
  a, b, c, d = (new(*shape) for shape in ((1, 64), (64, 64), (1, 64), (64, 64)))
  assert len(run(stored(matmul(a, b) + matmul(c, d)))) == 1, "nothing is used twice, so there is nothing to tile"


def test_chained_matmuls_are_not_recomputed(run: Run) -> None:
  h = matmul(new(16, 24), new(24, 32)).maximum(0)
  assert run(matmul(h, new(32, 8))) == ["reduce_16x32_r24", "reduce_16x8_r32"]


def test_an_activation_is_computed_where_its_input_is() -> None:
  """It uses its input several times; the product after it reads what it gives, and computes nothing of it again."""
  y = matmul(new(16, 24), new(24, 32))
  h = ((y < 0) | y.alu(Ops.CMPEQ, y.const_like(0))).where(y.const_like(0), y)
  first, second = (call.src[0] for call in schedule(UOp.sink(stored(matmul(h, new(32, 8))))).src)
  compared = [sum(u.op is Ops.CMPLT for u in kernel.toposort) for kernel in (first, second)]
  assert compared == [1, 0]


def test_an_activation_of_a_sum_of_two_products_is_computed_once() -> None:
  """As at the end of a residual block whose skip is a product, too: what several kernels want is the activation."""
  a, b, c, d = (new(32, 32) for _ in range(4))
  y = (matmul(a, b) + c) + (matmul(b, a) + d)
  h = ((y < 0) | y.alu(Ops.CMPEQ, y.const_like(0))).where(y.const_like(0), y)
  kernels = [call.src[0] for call in schedule(UOp.sink(stored(matmul(h, new(32, 32)) + h))).src]
  assert [sum(u.op is Ops.CMPLT for u in kernel.toposort) for kernel in kernels] == [0, 1, 0]


def test_what_is_padded_gets_memory_rather_than_what_it_is_padded_to(run: Run) -> None:
  x = matmul(new(16, 24), new(24, 32)).maximum(0)
  padded = windows(x.pad(((1, 1), (1, 1))).maximum(-1.0), 3)
  assert run(padded.reduce_axes(Ops.MAX, (2, 3))) == ["reduce_16x32_r24", "reduce_16x32_r3x3"]


def test_expensive_operand_of_a_matmul_is_computed_once(run: Run) -> None:
  assert run(matmul(new(64, 64).exp(), new(64, 64))) == ["elementwise_4096", "reduce_64x64_r64"]
  assert run(matmul(new(64, 64) * 2, new(64, 64))) == ["reduce_64x64_r64"]


def test_normalised_operand_of_a_matmul_is_computed_once(run: Run) -> None:
  assert len(run(matmul(layernorm(new(64, 64)), new(64, 64)))) == 2


def test_what_is_widened_is_kept_narrow() -> None:
  """Weights that are rounded to float16 and widened again for a product take two bytes each in between."""
  x, w = new(64, 96), new(96, 64, dtype=dtypes.float16)
  weights = softmax(x).cast(dtypes.float16).cast(dtypes.float32)
  linear = schedule(UOp.sink(stored(matmul(weights, w.cast(dtypes.float32)))))
  last = linear.src[-1].src[0]
  read = {u.arg: u.dtype.base for u in last.toposort if u.op is Ops.PARAM and u.arg and isinstance(u.dtype, PtrDType)}
  assert len(linear.src) == 2 and set(read.values()) == {dtypes.float16}


def test_softmax_of_a_matmul(run: Run) -> None:
  assert len(run(softmax(matmul(new(64, 16), new(16, 64))))) == 2


def test_reduction_of_a_large_reduction_is_two_kernels(run: Run) -> None:
  assert len(run(total(matmul(new(64, 16), new(16, 64)).maximum(0), 0, 1))) == 2


def test_nested_sums_merge(run: Run) -> None:
  assert run(total(total(new(8, 4, 4), 2), 1)) == ["reduce_8_r16"]


def test_a_sum_of_sums_is_one_whatever_shape_is_between(run: Run) -> None:
  rows = total(new(64, 32, 48), 2)
  assert run(total(rows.reshape((64, 32)), 1)) == ["reduce_64_r1536"]
  assert run(total(rows.reshape((64, 32)).permute((1, 0)), 1)) == ["reduce_32_r64x48"]
  assert run(total(rows.reshape((32, 64)), 1)) == ["reduce_32_r3072"]


def test_a_sum_of_sums_keeps_rows_to_run_in_parallel(run: Run) -> None:
  rows = total(new(4, 512, 48), 2).reshape((4, 512))
  assert run(total(rows, 1)) == ["reduce_2048_r48", "reduce_4_r512"]


def test_a_sum_that_others_read_is_not_made_again_for_a_sum_of_it(run: Run) -> None:
  rows = total(new(64, 32, 48), 2).reshape((64, 32))
  assert run(stored(rows), total(rows, 1)) == ["reduce_2048_r48", "reduce_64_r32"]
  assert run(total(rows, 1), stored(rows * 2)) == ["reduce_2048_r48", "reduce_64_r32"]


@pytest.mark.parametrize("outer", [Ops.ADD, Ops.MAX])
def test_a_small_reduction_of_reductions_is_one_kernel(run: Run, outer: Ops) -> None:
  def of(*shape: int) -> UOp:
    return (new(*shape).reduce_axes(Ops.MAX, (1,)) * 2).reduce_axes(outer, (0,))

  assert run(of(64, 64)) == ["reduce_1_r64x64"]
  assert run(of(16, 1024)) == ["reduce_1_r16x1024"]
  assert run(of(64, 1024)) == ["reduce_64_r1024", "reduce_1_r64"]


def test_long_reduction_is_cut_into_rows(run: Run) -> None:
  assert run(total(new(512, 256), 0, 1)) == ["reduce_256_r512", "reduce_1_r256"]


def test_convolution_is_one_kernel_without_division(run: Run) -> None:
  out = stored(conv(new(9, 7), new(3, 3)).maximum(0))
  assert run(out) == ["reduce_9x7_r3x3"]
  (call,) = schedule(UOp.sink(out)).src
  assert not any(u.op in (Ops.FLOORDIV, Ops.FLOORMOD) for u in call.src[0].toposort)


def test_arange_has_no_loop_but_its_own(run: Run) -> None:
  assert run(arange(10)) == ["fill_10"]
  assert run(arange(10, dtypes.float32)) == ["fill_10"]


def test_triangular_mask_is_one_kernel(run: Run) -> None:
  n = 8
  below = spread(arange(n), (n, n), 0) < spread(arange(n), (n, n), 1)
  assert run(below.where(new(n, n), 0.0)) == ["elementwise_8x8"]


def test_one_hot_is_one_kernel(run: Run) -> None:
  assert run(one_hot(new(7, dtype=dtypes.int32), 5).cast(dtypes.float32)) == ["elementwise_7x5"]


@pytest.mark.parametrize("top", [5, 9])  # 9: some indices are outside the table and give zeros
def test_index_by_tensor_is_a_load(run: Run, top: int) -> None:
  out = stored(gather(new(5, 3), new(7, dtype=dtypes.int32)))
  assert run(out, top=top) == ["elementwise_7x3"]
  (call,) = schedule(UOp.sink(out)).src
  assert loads(call.src[0]) == 2 and not any(u.op is Ops.REDUCE for u in call.src[0].toposort)


@pytest.mark.parametrize("columns", [1, 3, 64])
def test_index_that_counts_from_the_end_is_a_load(run: Run, columns: int) -> None:
  idx = new(7, dtype=dtypes.int32) - 2
  out = stored(gather(new(5, columns), (idx < 0).where(idx + 5, idx)))
  run(out)
  (call,) = schedule(UOp.sink(out)).src
  assert loads(call.src[0]) == 2 and not any(u.op is Ops.REDUCE for u in call.src[0].toposort)


@pytest.mark.parametrize("columns", [1, 64])
@pytest.mark.parametrize("op", [Ops.MAX, Ops.ADD])
@pytest.mark.parametrize("both", [False, True])
def test_an_index_that_a_reduction_gives_is_a_load(op: Ops, columns: int, both: bool) -> None:
  rows, more = 211, 199  # primes that nothing else has

  def found() -> UOp:
    """The largest of a row, or its sum."""
    return new(7, 4, dtype=dtypes.int32).reduce_axes(op, (1,)).reshape((7,))

  if both:
    whole = (7, rows, more, columns)
    first, second = one_hot(found(), rows).reshape((7, rows, 1, 1)), one_hot(found(), more).reshape((7, 1, more, 1))
    hot = first.expand(whole) & second.expand(whole)
    out = total(hot.where(new(*whole[1:]).reshape((1, *whole[1:])).expand(whole), 0.0), 1, 2).reshape((7, columns))
  else:
    out = gather(new(rows, columns), found())
  kernels = [call.src[0] for call in schedule(UOp.sink(stored(out))).src]
  sizes = {u.src[0].arg for kernel in kernels for u in kernel.toposort if u.op is Ops.RANGE}
  assert sizes.isdisjoint({rows, more, rows * more}), "the table is read from one end to the other"


def test_gather_from_a_computed_table(run: Run) -> None:
  assert len(run(gather(new(5, 3) * 2 + 1, new(7, dtype=dtypes.int32)))) == 1


def test_sum_over_arange_is_closed(run: Run) -> None:
  assert run(total(arange(10), 0)) == ["fill_1"]


def test_sum_of_a_constant_is_folded(run: Run) -> None:
  assert run(total(UOp.const(dtypes.float32, 2.0, (4, 5)), 1)) == ["fill_4"]


@pytest.mark.parametrize("depth", [4, 16])
def test_residual_network_does_not_recompute(depth: int) -> None:
  def network(layers: int) -> int:
    x = new(32, 32)
    for _ in range(layers):
      x = x + matmul(matmul(layernorm(x), new(32, 32)).maximum(0), new(32, 32))
    return sum(len(call.src[0].toposort) for call in schedule(UOp.sink(stored(x))).src)

  base = network(depth)
  assert network(2 * depth) <= 2.1 * base


def test_shifted_sums_stay_linear() -> None:
  def pyramid(levels: int) -> int:
    x = new(200)
    for level in range(levels):
      n = 200 - level
      x = x.shrink(((1, n),)) + x.shrink(((0, n - 1),))
    return sum(len(call.src[0].toposort) for call in schedule(UOp.sink(stored(x))).src)

  assert pyramid(80) <= 2.5 * pyramid(40)


def test_deep_graph_needs_no_recursion(run: Run) -> None:
  x = new(4)
  for _ in range(5000):
    x = x + 1
  assert run(x) == ["elementwise_4"]


def test_stored_value_is_read_back_rather_than_recomputed(run: Run) -> None:
  y = stored(new(64, 64).exp())
  value = y.src[1].src[1]
  assert run(y, total(value, 1)) == ["elementwise_4096", "reduce_64_r64"]
  assert loads(schedule(UOp.sink(y, stored(total(value, 1)))).src[1].src[0]) == 1


def test_equal_layers_share_their_kernel() -> None:
  x = new(16, 16)
  for _ in range(3):
    x = matmul(x, new(16, 16)).maximum(0)
  bodies = [call.src[0] for call in schedule(UOp.sink(stored(x))).src]
  assert len(bodies) == 3 and len(set(bodies)) == 1 + (bodies[0] is not bodies[1])


def test_symbolic_size(execute: Execute) -> None:
  n = UOp.variable("n", 1, 8)
  x, out = new(8), new(1)
  value = total(x.shrink(((0, n.bind(5)),)), 0)
  (call,) = schedule(UOp.sink(out.assign(value))).src
  memory = {x.base: np.arange(8, dtype=np.float32), out.base: np.zeros(1, np.float32)}
  execute(UOp(Ops.LINEAR, dtypes.void, (call,)), memory)
  assert memory[out.base][0] == 10 and call.src[-1] is n.bind(5)


def test_symbolic_temporary(execute: Execute) -> None:
  n = UOp.variable("n", 1, 8).bind(5)
  x, out = new(8), new(1)
  part = x.shrink(((0, n),))
  value = total((part * 2).contiguous(), 0)
  linear = schedule(UOp.sink(out.assign(value)))
  memory = {x.base: np.arange(8, dtype=np.float32), out.base: np.zeros(1, np.float32)}
  execute(linear, memory)
  assert memory[out.base][0] == 20 and len(linear.src) == 2


def test_fields_of_words_are_taken_apart_where_they_are_used(run: Run) -> None:
  """A copy of quantised weights with a word for each number would be longer to read than they are to take apart."""
  words, x = new(32, 8, dtype=dtypes.uint32), new(64, 8)
  field = (((words >> 4) & 0x0F0F0F0F) >> 8).cast(dtypes.uint8).cast(dtypes.int32)
  wide = field.cast(dtypes.float32).reshape((1, 32, 8)).expand((64, 32, 8))
  y = total(wide * x.reshape((64, 1, 8)).expand((64, 32, 8)), 2)
  assert len(run(y)) == 1


def test_what_is_expanded_gets_memory_for_what_differs(run: Run) -> None:
  """A maximum per column with two users behind a WHERE: 96 elements, not 64 rows of them."""
  x, y = new(64, 96), new(64, 96)
  most = x.reduce_axes(Ops.MAX, (0,)).sqrt().expand((64, 96))
  chosen = (most < 1.0).where(most, 1.0)
  roots = (x + chosen, total(y * chosen, 0))
  run(*roots)
  linear = schedule(UOp.sink(*map(stored, roots)))
  held = [u.arg[1] for call in linear.src for u in call.src[1:] if u.op is Ops.BUFFER_VIEW]
  assert held and max(held) == 96


@pytest.mark.parametrize("wide", (64, 60))  # 256 and 240 bytes: memory begins at multiples of 256
def test_kernels_of_one_row_each_are_one_kernel(run: Run, wide: int) -> None:
  rows = (new(5, wide) + 1).contiguous()
  state = new(wide)
  for t in range(5):
    state = (state.flip((0,)) * 0.5 + rows.shrink(((t, t + 1), (0, wide))).reshape((wide,))).contiguous()
  names = run(state)  # which proves that accesses are in bounds, and compares values
  assert names == [f"elementwise_{5 * wide}"] + [f"elementwise_{wide}"] * 5
  kernels = {call.src[0] for call in schedule(UOp.sink(stored(state))).src[1:]}
  assert len(kernels) == (2 if wide == 64 else 5)


def test_memory_that_a_kernel_also_writes_begins_where_it_does(run: Run) -> None:
  x, row = new(4, 64), new(1, 64)
  later = x.shrink(((2, 4), (0, 64)))
  run(x.after(x.shrink(((1, 3), (0, 64))).store(later + row.expand((2, 64)))))


def test_gates_that_reach_before_and_behind_a_row_keep_all_of_the_memory(run: Run) -> None:
  x = new(4, 64)
  run(x.shrink(((2, 4), (0, 64))).pad(((3, 3), (0, 0))), x.shrink(((1, 4), (0, 64))).pad(((0, 2), (5, 5))) + 1)


def test_a_row_that_another_row_indexes(run: Run) -> None:
  """What an index is read from is moved, too: both memories begin elsewhere, one inside the access to the other."""
  table, rows = new(400, 64), new(5, 256, dtype=dtypes.uint8)
  index = rows.shrink(((3, 4), (0, 16))).reshape((16,)).cast(dtypes.int32)
  out = gather(table.shrink(((100, 356), (0, 64))), index)
  run(out)
  (call,) = schedule(UOp.sink(stored(out))).src
  assert sorted(u.arg for u in call.src[1:] if u.op is Ops.BUFFER_VIEW) == [(768, 16), (25600, 16384)]
