"""Which sums of products are found, and how they are tiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES, data, garbage, kernel, loop, over, param

from tiny_codegen import Limits, Target, cpu_target
from tiny_codegen.kernel.loops import kind, loops_of, next_loop_id, size_of
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.lower.peel import rows_left
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.neighbours import opts_of
from tiny_codegen.opt.tiles import TilingChooser
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.tiling.choose import _plans, best_tiling, dot_cycles, ranked_tilings
from tiny_codegen.tiling.tiles import Lanes, Rows, Tiling, sharings
from tiny_uop import AxisType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes, simplify

AVX512 = cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+avx512f", "+avx512vl", "+sse4.1")).target
AVX2 = cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1")).target
NEON = cpu_target("aarch64").target


def matmul(m: int, n: int, k: int, form: str = "nn") -> UOp:
  """out[m][n] = sum over k; `form` says of each operand whether it is stored transposed."""
  i, j = UOp.range(m, 0), UOp.range(n, 1)
  s = UOp.range(k, 2, AxisType.REDUCE)
  left = i * k + s if form[0] == "n" else s * m + i
  right = s * n + j if form[1] == "n" else j * k + s
  a = UOp.param(1, dtypes.float32.ptr(m * k)).index(left).load()
  b = UOp.param(2, dtypes.float32.ptr(k * n)).index(right).load()
  out = UOp.param(0, dtypes.float32.ptr(m * n)).index(i * n + j)
  return UOp.sink(out.store((a * b).reduce(Ops.ADD, s)).end(i, j), arg=KernelInfo("matmul"))


def tiled(root: UOp) -> Tiling:
  found = SumOfProducts.of(root)
  assert found is not None
  tiling = best_tiling(found, AVX512)
  assert tiling is not None
  return tiling


@pytest.mark.parametrize(
  "name", ["elementwise", "reduce_rows", "softmax", "layer_norm", "argmax", "transpose", "two_outputs"]
)
def test_what_is_no_sum_of_products(name: str) -> None:
  assert SumOfProducts.of(CASES[name]().kernel) is None


@pytest.mark.parametrize("name", ["matmul", "linear", "convolution"])
def test_what_is_one(name: str) -> None:
  found = SumOfProducts.of(CASES[name]().kernel)
  assert found is not None
  assert all(o.loads for o in found.operands)


@pytest.mark.parametrize(
  ("form", "lanes_of", "lanes_from", "rows_from"),
  [
    ("nn", 2, Lanes.SOME, Rows.DIRECT),
    ("nt", 2, Lanes.SOME, Rows.DIRECT),
    ("tn", 2, Lanes.PANEL, Rows.BLOCK),
    ("tt", 1, Lanes.SOME, Rows.DIRECT),
  ],
)
def test_layouts_of_large_matrices(form: str, lanes_of: int, lanes_from: Lanes, rows_from: Rows) -> None:
  tiling = tiled(matmul(1024, 1024, 1024, form))
  assert (tiling.lanes_of.slot, tiling.lanes_from, tiling.rows_from) == (lanes_of, lanes_from, rows_from)
  assert 16 <= tiling.rows * tiling.lanes // 16 < 32, "accumulators"


def test_small_matrices_are_read_where_they_are() -> None:
  tiling = tiled(matmul(64, 64, 64))
  assert (tiling.lanes_from, tiling.rows_from) == (Lanes.DIRECT, Rows.DIRECT)


def test_a_matrix_times_itself_is_read_where_it_is() -> None:
  """A STAGE names its operand by the buffer: it would pack both, or the product."""
  root = matmul(512, 512, 512)
  other = next(u for u in root.toposort if u.op is Ops.PARAM and u.arg == 2)
  squared = root.substitute({other: other.replace(arg=1)})
  assert OptOps.STAGE not in {o.op for o in choose_opts(squared, AVX512)}


def window(size: int) -> UOp:
  """out[o][y][x] = sum over c, i and j of image[c][y + i][x + j] * weights[o][c][i][j], 64 o, 8 c, 3 × 3 taps."""
  o, y, x, wide = loop(64, 0), loop(size, 1), loop(size, 2), size + 2
  c, i, j = over(8, 3), over(3, 4), over(3, 5)
  image = param(1, 8 * wide * wide).index((c * wide + y + i) * wide + x + j).load()
  weights = param(2, 64 * 8 * 9).index(((o * 8 + c) * 3 + i) * 3 + j).load()
  out = param(0, 64 * size * size).index((o * size + y) * size + x)
  kernel = UOp.sink(out.store((image * weights).reduce(Ops.ADD, c, i, j)).end(o, y, x), arg=KernelInfo("window"))
  return simplify(kernel)


def test_a_stem_reads_each_row_of_pixels_where_it_is_and_writes_whole_lines() -> None:
  """8 images of 3 channels and 226², 32 outputs, 3 × 3 taps, a step of 2: packing each tap's pixels costs more."""
  n, o, y, x, c, i, j = (
    *(loop(size, place) for place, size in enumerate((8, 32, 112, 112))),
    *map(over, (3,) * 3, (4, 5, 6)),
  )
  image = param(1, 8 * 3 * 226 * 226).index(((n * 3 + c) * 226 + 2 * y + i) * 226 + 2 * x + j).load()
  weights = param(2, 32 * 27).index(((o * 3 + c) * 3 + i) * 3 + j).load()
  end = param(0, 8 * 32 * 112 * 112).index(((n * 32 + o) * 112 + y) * 112 + x)
  tiling = tiled(simplify(UOp.sink(end.store((image * weights).reduce(Ops.ADD, c, i, j)).end(n, o, y, x))))
  assert (tiling.rows, tiling.lanes, tiling.row_loop.arg[0], tiling.rows_from) == (16, 16, 3, Rows.DIRECT)


@pytest.mark.parametrize(("size", "best", "chosen"), [(20, 12, 10), (22, 12, 12), (24, 12, 12)])
def test_rows_that_divide_a_loop_are_taken_where_they_are_as_good(size: int, best: int, chosen: int) -> None:
  """20 places are tiles of 12 and 8, or two of 10, which is half the code. 22 have no such divisor."""
  found = SumOfProducts.of(window(size))
  assert found is not None
  first, taken = ranked_tilings(found, AVX512)[0], tiled(window(size))
  assert (first.rows, taken.rows) == (best, chosen)
  assert taken.cycles <= first.cycles * 1.04


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON])
@pytest.mark.parametrize("root", [matmul(100, 200, 300), matmul(512, 512, 512, "tn"), window(20)])
def test_the_least_that_is_known_of_tilings_is_below_all_of_them(root: UOp, target: Target) -> None:
  found = SumOfProducts.of(root)
  assert found is not None
  least = [(plan.least, tiling.cycles) for plan in _plans(found, target) for tiling in plan.tilings()]
  assert least and all(bound <= cycles for bound, cycles in least)
  best, first = best_tiling(found, target), ranked_tilings(found, target)[0]
  assert best is not None and (best.cycles == first.cycles or best.row_loop.vmax % best.rows == best.rows - 1)


@pytest.mark.parametrize("size", [49, 98, 392, 512, 1000])
def test_few_rows_are_beyond_the_end(size: int) -> None:
  rows = tiled(matmul(size, 512, 512)).rows
  assert rows_left(size, rows) or -size % rows <= 0.05 * size


@pytest.mark.parametrize(("target", "registers"), [(AVX512, 32), (AVX2, 16), (NEON, 32)])
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
def test_a_register_tile_fits_the_registers(target: object, registers: int, form: str) -> None:
  found = SumOfProducts.of(matmul(512, 512, 512, form))
  assert found is not None
  tiling = best_tiling(found, target)  # type: ignore[arg-type]
  assert tiling is not None
  vectors = tiling.lanes // target.lanes(dtypes.float32)  # type: ignore[attr-defined]
  assert tiling.rows * vectors + vectors < registers
  assert tiling.rows * vectors >= 8, "too few accumulators to hide the latency of a multiply-add"


def test_lanes_along_a_long_sum_of_few() -> None:
  """A product with next to no columns is left to lanes along the sum."""
  found = SumOfProducts.of(matmul(512, 3, 4096, "nt"))
  assert found is not None
  tiling = best_tiling(found, AVX512)
  assert tiling is None or tiling.cycles > dot_cycles(found, AVX512)
  assert SumOfProducts.of(matmul(512, 1, 512)) is None or OptOps.STAGE not in {
    o.op for o in choose_opts(matmul(512, 1, 512), AVX512)
  }


def of_weights(images: int, size: int) -> UOp:
  """The gradient of the weights of a 3×3 convolution of 64 channels, over so many images of `size`²."""
  out, into, dy, dx = loop(64, 0), loop(64, 1), loop(3, 2), loop(3, 3)
  n, y, x = over(images, 4), over(size, 5), over(size, 6)
  wide = size + 2
  image = param(1, images * 64 * wide**2).index(n * (64 * wide**2) + into * wide**2 + y * wide + x + dy * wide + dx)
  gradient = param(2, images * 64 * size**2).index(n * (64 * size**2) + out * size**2 + y * size + x)
  place = param(0, 64 * 64 * 9).index(out * 576 + into * 9 + dy * 3 + dx)
  return kernel(place.store((image.load() * gradient.load()).reduce(Ops.ADD, n, y, x)).end(out, into, dy, dx))


@pytest.mark.parametrize(("images", "along"), [(4, True), (16, False)])
def test_lanes_along_a_sum_whose_rows_stay_in_the_first_level(images: int, along: bool) -> None:
  """A tile of results would read its rows of both operands from the second level, for few products each."""
  size = 16
  assert (8 * 4 * size**2 * images <= AVX512.caches.first) == along
  found = SumOfProducts.of(of_weights(images, size))
  assert found is not None and (tiling := best_tiling(found, AVX512)) is not None
  each = (dot_cycles(found, AVX512) / found.outputs - 8) / (found.length / 16)
  assert (each < 1) == along, "cycles of a vector of products"
  if not along:
    assert tiling.cycles < dot_cycles(found, AVX512)
    assert OptOps.STAGE in {o.op for o in choose_opts(of_weights(images, size), AVX512)}


def test_threads_share_panels_where_there_are_many() -> None:
  root = matmul(1024, 1024, 1024)
  opts = choose_opts(root, AVX512)
  assert opts[-1].op is OptOps.THREAD
  assert opts[-1].axis == 1


def test_a_block_that_threads_share_stays_where_its_loop_was() -> None:
  """Images are packed around the loop over panels: once for a block of them, not for each."""
  root = places(8, 256, 1024, 196)
  found = SumOfProducts.of(root)
  assert found is not None
  tiling = next(t for t in ranked_tilings(found, AVX512) if t.images == 2 and t.lanes_of.slot == 2)
  chooser = TilingChooser(root, AVX512)
  assert chooser.take_tiling([], found, tiling)

  def loops() -> list[int]:
    return [r.arg[0] for r in chooser.root.src[0].src[1:] if r.arg[1] is AxisType.LOOP]

  before, panels, inside = loops(), tiling.lane_loop.arg[0], next_loop_id(chooser.root)
  chooser.share(tiling)
  assert chooser.opts[-1].op in (OptOps.THREAD, OptOps.SWAP)
  assert before.index(panels) == 1 and loops() == [inside if i == panels else i for i in before]


def test_wide_results_of_short_sums_are_written_along_their_rows() -> None:
  """Several panels are at hand: with one at a time, each row of the result would be written in short pieces."""
  tiling = tiled(matmul(4096, 1024, 64))
  assert tiling.lanes_from is Lanes.WHOLE or tiling.rows_from is Rows.BLOCK


def test_several_panels_leave_something_to_share() -> None:
  for size in (512, 1024, 2048):
    tiling = tiled(matmul(size, size, size))
    assert tiling.panels * tiling.lanes <= size // 8
    assert tiling.panels * tiling.lanes * size * 4 <= AVX512.caches.second


def test_few_panels_are_not_packed_again_for_every_row() -> None:
  root = matmul(4096, 64, 1024)
  tiling = tiled(root)
  chosen = choose_opts(root, AVX512)
  opts = chosen[: [o.op for o in chosen].index(OptOps.THREAD)]
  sharing = sharings(apply_opts(root, opts, AVX512), tiling, AVX512)[0]
  assert tiling.lanes_from is Lanes.WHOLE or sharing.loop == 1 or sharing.block > 1


def test_a_loop_with_a_partial_panel_is_not_shared_if_another_can_be() -> None:
  """The partial panel of a loop of threads would be computed as a whole one: a sixth of all lanes for nothing."""
  shared = {}
  for columns in (320, 333):
    (thread,) = [o for o in choose_opts(matmul(1000, columns, 777), AVX512) if o.op is OptOps.THREAD]
    shared[columns] = thread.axis
  assert shared == {320: 1, 333: 0}


def places(images: int, inputs: int, outputs: int, size: int) -> UOp:
  """A 1×1 convolution: `out[n, o, p] = sum over c of w[o, c] * x[n, c, p]`."""
  n, o, p, c = loop(images, 0), loop(outputs, 1), loop(size, 2), over(inputs, 3)
  image = param(1, images * inputs * size).index((n * inputs + c) * size + p).load()
  weight = param(2, outputs * inputs).index(o * inputs + c).load()
  out = param(0, images * outputs * size).index((n * outputs + o) * size + p)
  return simplify(kernel(out.store((image * weight).reduce(Ops.ADD, c)).end(n, o, p)))


def test_pixels_are_read_where_they_are() -> None:
  """If they stay in the first cache level, and unless those of all channels are in the same sets of it. Threads share
  images: their panels are neighbours."""
  assert tiled(places(8, 128, 32, 28 * 28)).lanes_from is Lanes.DIRECT
  assert tiled(places(8, 128, 32, 32 * 32)).lanes_from is not Lanes.DIRECT
  assert tiled(places(8, 512, 256, 28 * 28)).lanes_from is Lanes.PANEL
  for images, shared in ((8, 0), (1, 2)):
    root = places(images, 512, 256, 28 * 28)
    (thread,) = [o for o in choose_opts(root, AVX512) if o.op is OptOps.THREAD]
    assert thread.axis == shared


@pytest.mark.parametrize("threads", [16, 64])
@pytest.mark.parametrize(
  "root",
  [matmul(1024, 1024, 1024), places(8, 256, 1024, 14 * 14), places(8, 1024, 256, 14 * 14), places(8, 64, 256, 56 * 56)],
)
def test_many_threads_share_as_many_parts(root: UOp, threads: int) -> None:
  """By blocks of a loop, or by two loops as one; a machine with few threads has the larger parts, which pack less."""
  shares = []
  for target in (AVX512, replace(AVX512, threads=threads)):
    made = apply_opts(root, choose_opts(root, target), target)
    (shared,) = [r for r in loops_of(made).values() if kind(r) is AxisType.THREAD]
    shares.append(size_of(shared))
  assert shares[1] >= max(threads // 2, shares[0])


@pytest.mark.parametrize("threads", [8, 16, 32, 64, 128])
@pytest.mark.parametrize(
  "root",
  [matmul(1024, 1024, 1024), matmul(512, 512, 512, "tt"), places(8, 512, 128, 28 * 28), places(8, 64, 256, 56 * 56)],
)
def test_shares_of_many_threads_are_even(root: UOp, threads: int) -> None:
  """The one with most has at most 7 % more than an equal share; tilings that do not divide so are left."""
  target = replace(AVX512, threads=threads)
  made = apply_opts(root, choose_opts(root, target), target)
  (shared,) = [r for r in loops_of(made).values() if kind(r) is AxisType.THREAD]
  shares = size_of(shared)
  assert -(-shares // threads) * threads <= 1.07 * shares


def test_threads_share_pieces_of_rows_that_are_packed_together(run_kernel: Any) -> None:
  """1×1 with a step of two: of 8 × 28 lines 64 threads would have three or four, of halves seven each."""
  images, channels, filters, places = 8, 256, 512, 28
  n, o, y, x = (loop(count, id) for id, count in enumerate((images, filters, places, places)))
  c = over(channels, 4)
  given = param(1, images * channels * 4 * places**2).index(
    ((n * channels + c) * 2 * places + y * 2) * 2 * places + x * 2
  )
  weights = param(2, filters * channels).index(o * channels + c)
  out = param(0, images * filters * places**2).index(((n * filters + o) * places + y) * places + x)
  root = kernel(out.store((given.load() * weights.load()).reduce(Ops.ADD, c)).end(n, o, y, x))
  opts = choose_opts(root, replace(AVX512, threads=64))
  (shared,) = [r for r in loops_of(apply_opts(root, opts, AVX512)).values() if kind(r) is AxisType.THREAD]
  assert size_of(shared) == 2 * images * places
  rng = np.random.default_rng(1)
  a = rng.standard_normal((images, channels, 2 * places, 2 * places), dtype=np.float32)
  w = rng.standard_normal((filters, channels), dtype=np.float32)
  found = run_kernel(root, [np.zeros((images, filters, places, places), np.float32), a, w], opts, pieces=7)[0]
  expected = np.einsum("nchw,oc->nohw", a[:, :, ::2, ::2], w, optimize=True)
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("form", "rows"), [("nn", 6), ("tt", 8)])
def test_turned_tiles_are_stored_in_few_pieces(form: str, rows: int) -> None:
  """To lines that are a power of two apart: six rows are two pieces of each."""
  assert tiled(matmul(512, 512, 512, form)).rows == rows


def convolution(images: int, channels: int, size: int, stride: int = 1) -> UOp:
  """3×3 with a border of zeros, and as many channels as there were."""
  places = -(-size // stride)
  n, o, y, x = (loop(count, id) for id, count in enumerate((images, channels, places, places)))
  c, ky, kx = over(channels, 4), over(3, 5), over(3, 6)
  row, column = y * stride + ky, x * stride + kx
  inside = [gate for at in (row, column) for gate in (UOp.const(dtypes.index, 0) < at, at < size + 1)]
  place = ((n * channels + c) * size + row - 1) * size + column - 1
  given = param(1, images * channels * size**2).index(place, inside[0] & inside[1] & inside[2] & inside[3]).load()
  weights = param(2, channels * channels * 9).index(((o * channels + c) * 3 + ky) * 3 + kx).load()
  out = param(0, images * channels * places**2).index(((n * channels + o) * places + y) * places + x)
  return kernel(out.store((given * weights).reduce(Ops.ADD, c, ky, kx)).end(n, o, y, x))


@pytest.mark.parametrize("rows_from", [Rows.DIRECT, Rows.WINDOW])
@pytest.mark.parametrize(("images", "shared"), [(16, 0), (8, 0), (3, 2), (1, 2)])
def test_threads_have_images_of_their_own_where_there_are_enough(images: int, shared: int, rows_from: Rows) -> None:
  """Else each has rows of all."""
  root = convolution(images, 64, 56)
  found = SumOfProducts.of(root)
  assert found is not None
  fit = (t for t in ranked_tilings(found, AVX512) if t.lanes_from is Lanes.WHOLE and t.rows_from is rows_from)
  opts = next(opts for t in fit if (opts := opts_of(root, AVX512, ([], found, t))))
  assert [opt.axis for opt in opts if opt.op is OptOps.THREAD] == [shared]


def test_threads_do_not_share_short_pieces_of_the_rows_of_results() -> None:
  """Of 160 places of a row 8 for each of 4 images and 160 rows, and then the next 8 of all of them."""
  root = convolution(4, 32, 160)
  found = SumOfProducts.of(root)
  assert found is not None
  along = [t for t in ranked_tilings(found, AVX512) if t.row_loop.arg[0] == 3 and t.rows_from is Rows.DIRECT]
  chosen = [(t.rows, opts) for t in along[:4] if (opts := opts_of(root, AVX512, ([], found, t)))]
  threads = [(rows, opt) for rows, opts in chosen for opt in opts if opt.op is OptOps.THREAD]
  pieces = [rows * opt.arg for rows, opt in threads if opt.axis == 3 and isinstance(opt.arg, int)]
  assert threads and all(piece >= 64 for piece in pieces)


def check_convolution(
  run_kernel: Any, root: UOp, opts: Any, images: int, channels: int, size: int, stride: int
) -> None:
  """Run it, and compare with NumPy."""
  places = -(-size // stride)
  given, w = data(images, channels, size, size), data(channels, channels, 3, 3, seed=1)
  padded = np.pad(given.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
  windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::stride, ::stride]
  expected = np.einsum("ncyxij,ocij->noyx", windows, w.astype(np.float64))
  (result, *_) = run_kernel(root, [garbage(images, channels, places, places), given, w], opts)
  np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_panels_are_packed_for_several_images(run_kernel: Any) -> None:
  """Small images of many channels have large weights: packed for each image, these would cost as much as all else."""
  images, channels, size = 8, 32, 7
  root = convolution(images, channels, size)
  found = SumOfProducts.of(root)
  assert found is not None
  ranked = [t for t in ranked_tilings(found, AVX512) if t.rows_from is Rows.IMAGE and t.lanes == 16]
  together = {t.images: t for t in reversed(ranked)}
  assert sorted(together) == [1, 2], "threads have four times as many to share"
  assert together[2].cycles < together[1].cycles
  for count, tiling in together.items():
    chooser = TilingChooser(root, AVX512)
    assert chooser.take_tiling([], found, tiling)
    assert (Opt(OptOps.SPLIT, 0, 2) in chooser.opts) is (count == 2)
    check_convolution(run_kernel, root, chooser.opts, images, channels, size, 1)


@pytest.mark.parametrize(("channels", "size", "most"), [(512, 14, 2), (128, 56, 1)])
def test_two_images_are_packed_for_a_panel_that_is_larger(channels: int, size: int, most: int) -> None:
  """Of 2 MiB, two images of 392 KiB and a panel of 576 take two thirds. One of 1.5 MiB is larger than its panel."""
  found = SumOfProducts.of(convolution(8, channels, size, 2))
  assert found is not None
  target = replace(AVX512, caches=replace(AVX512.caches, second=2 << 20), limits=Limits(shared_memory=2 << 20))
  tilings = [t for t in ranked_tilings(found, target) if t.rows_from is Rows.IMAGE and t.lanes == 32]
  assert max(t.images for t in tilings) == most


@pytest.mark.parametrize(
  ("rows", "lanes", "loop", "steps"),
  [(7, 16, 6, 3), (14, 16, 6, 3), (14, 32, 5, 3), (6, 64, 5, 3), (9, 32, 6, 3), (12, 32, 6, 3)],
)
def test_what_is_written_out_of_a_window(run_kernel: Any, rows: int, lanes: int, loop: int, steps: int) -> None:
  """The taps that rows share elements of, if registers have room for their vectors; or the rows of the window."""
  images, channels, size, stride = 2, 64, 28, 2
  root = convolution(images, channels, size, stride)
  found = SumOfProducts.of(root)
  assert found is not None
  tiling = next(
    t
    for t in ranked_tilings(found, AVX512)
    if (t.rows, t.lanes, t.rows_from, t.row_loop.arg[0]) == (rows, lanes, Rows.WINDOW, 3)
  )
  assert tiling.written is not None
  assert (tiling.written.arg[0], tiling.steps) == (loop, steps)
  chooser = TilingChooser(root, AVX512)
  assert chooser.take_tiling([], found, tiling)
  assert Opt(OptOps.UNROLL, loop, steps) in chooser.opts
  check_convolution(run_kernel, root, chooser.opts, images, channels, size, stride)


@pytest.mark.parametrize(("columns", "cheapest"), [(128, Lanes.PANEL), (192, Lanes.DIRECT)])
def test_panels_in_a_part_of_the_sets_of_a_cache_are_packed(columns: int, cheapest: Lanes) -> None:
  """Pieces of 256 bytes, 512 bytes apart, find room in half of the first level's sets; 768 bytes apart, in all."""
  found = SumOfProducts.of(matmul(128, columns, 128))
  assert found is not None
  costs = {
    t.lanes_from: t.cycles
    for t in ranked_tilings(found, AVX512)
    if (t.lanes, t.rows, t.rows_from, t.lanes_of.slot) == (64, 4, Rows.DIRECT, 2) and t.panels == 1
  }
  assert min(costs, key=lambda lanes_from: costs[lanes_from]) is cheapest


def phases(size: int, channels: int, taps: int) -> UOp:
  """A transposed convolution with a step of two: `out[o, 2 * x + p] = sum(x[c, x + p + t] * w[c, o, p, t])`."""
  o, x, p = UOp.range(32, 0), UOp.range(size, 1), UOp.range(2, 2)
  c, t = UOp.range(channels, 3, AxisType.REDUCE), UOp.range(taps, 4, AxisType.REDUCE)
  row = size + taps
  image = UOp.param(1, dtypes.float32.ptr(channels * row)).index(c * row + x + p + t).load()
  filters = UOp.param(2, dtypes.float32.ptr(channels * 64 * taps)).index(((c * 32 + o) * 2 + p) * taps + t).load()
  out = UOp.param(0, dtypes.float32.ptr(64 * size)).index(o * (2 * size) + x * 2 + p)
  return UOp.sink(out.store((image * filters).reduce(Ops.ADD, c, t)).end(o, x, p), arg=KernelInfo("phases"))


@pytest.mark.parametrize(("size", "channels", "taps"), [(28, 16, 2), (15, 8, 1), (32, 24, 2)])
def test_phases_of_a_transposed_convolution_share_a_tile(size: int, channels: int, taps: int, run_kernel: Any) -> None:
  root = phases(size, channels, taps)
  for target in (AVX512, AVX2, NEON):
    opts = choose_opts(root, target)
    assert opts[0] == Opt(OptOps.UPCAST, 2, 0) or target is not AVX512  # where registers are few it may not pay
    image, filters = data(channels, size + taps), data(channels, 32, 2, taps)
    (got, *_) = run_kernel(root.replace(arg=KernelInfo("phases", opts)), (np.zeros(64 * size, "f4"), image, filters))
    wanted = sum(
      np.einsum("cxp,cop->oxp", np.stack([image[:, p + t :][:, :size] for p in (0, 1)], -1), filters[..., t])
      for t in range(taps)
    )
    np.testing.assert_allclose(got.reshape(32, size, 2), wanted, rtol=1e-4, atol=1e-4)


def test_taps_of_a_gradient_are_no_phases() -> None:
  """`out[o, 3 * y + x] = sum(image[y + s, x] * g[o, s])`: both loops of the window move the image alone."""
  o, y, x, s = UOp.range(32, 0), UOp.range(3, 1), UOp.range(3, 2), UOp.range(64, 3, AxisType.REDUCE)
  image = UOp.param(1, dtypes.float32.ptr(66 * 3)).index((y + s) * 3 + x).load()
  g = UOp.param(2, dtypes.float32.ptr(32 * 64)).index(o * 64 + s).load()
  out = UOp.param(0, dtypes.float32.ptr(32 * 9)).index(o * 9 + y * 3 + x)
  root = UOp.sink(out.store((image * g).reduce(Ops.ADD, s)).end(o, y, x), arg=KernelInfo("taps"))
  assert Opt(OptOps.UPCAST, 2, 0) not in choose_opts(root, AVX512)[:1]
