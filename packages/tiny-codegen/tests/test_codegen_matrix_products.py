"""Sums of products by the matrix instructions of a processor, Intel's AMX.

On a processor without them kernels that are tiled for them are multiplied word by word, with the same results.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from test_codegen_dot_products import BYTES, NUMPY, numbers, optimised, product

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_codegen.instructions.dot_product import MatrixProduct
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.matrix.processor_tiles import in_tiles, lower_matrices
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.dot_products import best_ways
from tiny_codegen.opt.vectors import Chooser, choose_opts
from tiny_codegen.staging.stage import lower_stage
from tiny_uop import AxisType, Context, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes, simplify

AVX512 = ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl", "+avx512bw", "+avx512vnni")
AMX = ("+amx-tile", "+amx-bf16", "+amx-int8")
TARGET = cpu_target("x86_64-unknown-linux-gnu", "sapphirerapids", (*AVX512, *AMX))
HALVES = dtypes.bfloat16, dtypes.bfloat16
SIGNED = MatrixProduct(dtypes.int8, dtypes.int8, dtypes.int32)
TILES = Opt(OptOps.TC, 2, ([product for product, _ in TARGET.target.dot_products].index(SIGNED), 0, 1))


def chosen(root: UOp) -> tuple[Opt, ...]:
  return choose_opts(root, TARGET.target)


def tiled(root: UOp) -> tuple[Opt, ...]:
  """The best that can be chosen with matrix instructions, even where others are better."""
  chooser, found = Chooser(root, TARGET.target), SumOfProducts.of(root)
  assert found is not None
  for first, changed, tiling in best_ways(root, found, TARGET.target):
    if isinstance(changed.instruction, MatrixProduct) and chooser.take_tiling(first, changed, tiling):
      return tuple(chooser.opts)
  raise AssertionError("no tiling for matrix instructions")


def instructions(root: UOp, opts: tuple[Opt, ...]) -> set[str]:
  """What multiplies in a kernel with these choices."""
  changed = apply_opts(root, opts, TARGET.target)
  return {str(u.arg) for u in changed.toposort if u.op is Ops.MMA}


def halves(shape: tuple[int, int]) -> Any:
  """bfloat16 numbers as their bits."""
  rng = np.random.default_rng(3)
  return (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def as_float64(bits: Any) -> Any:
  return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


# *** results ***


@pytest.fixture(params=["with tiles", "word by word"])
def run(request: pytest.FixtureRequest, run_kernel: Any, renderer: LLVMRenderer) -> Any:
  """run(kernel, arrays): tiled for matrix instructions, by those of this processor or by what else it has."""
  by_tiles = request.param == "with tiles"
  if by_tiles and not renderer.llvm.tiles:
    pytest.skip("this processor has no AMX, or the system does not allow it")

  def in_tiles_or_not(root: UOp, arrays: list[Any]) -> Any:
    changed = optimised(root, tiled(root), TARGET.target)
    if not by_tiles:
      changed = lower_matrices(simplify(lower_stage(changed, TARGET.target)), WITHOUT.target)
    return run_kernel(changed, arrays, ())[0]

  return in_tiles_or_not


WITHOUT = cpu_target("x86_64-unknown-linux-gnu", "sapphirerapids", AVX512)


@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 96, 128), (65, 50, 70), (16, 17, 256)])
def test_bytes_are_exact(m: int, n: int, k: int, form: str, run: Any) -> None:
  a, b = numbers((m, k), dtypes.int8, form[0]), numbers((k, n), dtypes.int8, form[1])
  with Context(SPEC=2 if m == 64 else 1):
    found = run(product(m, n, k, form=form), [np.zeros((m, n), np.int32), a, b])
  exact = (a if form[0] == "n" else a.T).astype(np.int64) @ (b if form[1] == "n" else b.T).astype(np.int64)
  np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("left", NUMPY)
@pytest.mark.parametrize("right", NUMPY)
def test_signs(left: DType, right: DType, run: Any) -> None:
  wide = dtypes.uint32 if left is right is dtypes.uint8 else dtypes.int32
  a, b = numbers((32, 128), left, "n"), numbers((128, 48), right, "n")
  kind = np.uint32 if wide is dtypes.uint32 else np.int32
  found = run(product(32, 48, 128, (left, right), wide=wide), [np.zeros((32, 48), kind), a, b])
  np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 96, 128), (65, 50, 70), (48, 32, 32)])
def test_bfloat16(m: int, n: int, k: int, form: str, run: Any) -> None:
  """Products are exact in float32; sums of n terms are off by n roundings at most, whatever their order."""
  a = halves((m, k) if form[0] == "n" else (k, m))
  b = halves((k, n) if form[1] == "n" else (n, k))
  found = run(product(m, n, k, HALVES, form, dtypes.float32), [np.zeros((m, n), np.float32), a, b])
  left = as_float64(a) if form[0] == "n" else as_float64(a).T
  right = as_float64(b) if form[1] == "n" else as_float64(b).T
  assert (np.abs(found - left @ right) <= np.abs(left) @ np.abs(right) * k * 2.0**-24).all()


def test_infinity_and_nan_stay_in_their_rows_and_columns(run: Any) -> None:
  a, b = halves((33, 40)), halves((40, 33))
  a[0, 0], a[1, 0], b[0, 1] = 0x7F80, 0x7FC0, 0
  found = run(product(33, 33, 40, HALVES, wide=dtypes.float32), [np.zeros((33, 33), np.float32), a, b])
  with np.errstate(invalid="ignore"):
    expected = as_float64(a) @ as_float64(b)
  assert (np.isfinite(found) == np.isfinite(expected)).all() and not np.isfinite(found[:2]).all()


def test_what_follows_a_sum_is_computed_from_tiles(run: Any) -> None:
  """A bias of the columns, a maximum, and the sum of another operand."""
  root = product(40, 48, 64, HALVES, wide=dtypes.float32)
  store = root.src[0].src[0]
  rows, columns = root.src[0].src[1:]
  bias = UOp.param(3, dtypes.float32.ptr(48)).index(columns).load()
  other = UOp.param(4, dtypes.float32.ptr(40 * 48)).index(rows * 48 + columns).load()
  value = (store.src[1] + bias).maximum(UOp.const(dtypes.float32, 0)) + other
  root = root.substitute({store: store.src[0].store(value)})
  rng = np.random.default_rng(3)
  a, b, c = halves((40, 64)), halves((64, 48)), rng.standard_normal(48).astype(np.float32)
  d = rng.standard_normal((40, 48)).astype(np.float32)
  found = run(root, [np.zeros((40, 48), np.float32), a, b, c, d])
  np.testing.assert_allclose(found, np.maximum(as_float64(a) @ as_float64(b) + c, 0) + d, rtol=1e-4, atol=1e-4)


# *** choices ***


@pytest.mark.parametrize("size", [64, 256, 1000, 1024])
def test_large_products_are_done_in_tiles(size: int) -> None:
  for types, wide, name in (
    (BYTES, dtypes.int32, "m16n16k64 int8 · int8 → int32"),
    (HALVES, dtypes.float32, "m16n16k32 bfloat16 · bfloat16 → float32"),
  ):
    root = product(size, size, size, types, wide=wide)
    assert instructions(root, chosen(root)) == {name}


def test_a_row_is_not() -> None:
  root = product(1, 512, 512)
  assert not any(name.startswith("m16n16") for name in instructions(root, chosen(root)))


def test_a_few_columns_beside_many_rows_are_a_tile_that_is_mostly_empty() -> None:
  """The rows are read as they are, which is what takes the time."""
  root = product(1024, 3, 1024)
  assert instructions(root, chosen(root)) == {"m16n16k64 int8 · int8 → int32"}
  assert [o.axis for o in chosen(root) if o.op is OptOps.STAGE] == [2]


def test_small_products_are_not_worth_setting_up_tiles() -> None:
  root = product(48, 48, 48)
  assert not any(name.startswith("m16n16") for name in instructions(root, chosen(root)))


def test_targets_without_the_registers_have_no_such_instructions() -> None:
  for features in (AVX512, (*AVX512, "+amx-bf16", "+amx-int8")):
    listed = cpu_target("x86_64-unknown-linux-gnu", "", features).target.dot_products
    assert not any(isinstance(instruction, MatrixProduct) for instruction, _ in listed)


def test_rows_that_are_as_tiles_want_them_are_not_packed() -> None:
  opts = chosen(product(512, 512, 512))
  assert [o.axis for o in opts if o.op is OptOps.STAGE] == [2]


# *** form and text ***


def test_what_is_no_tile() -> None:
  """Too few rows, and rows whose words are not neighbours."""
  for opts, form in (((TILES, Opt(OptOps.UPCAST, 0, 8)), "nn"), ((TILES, Opt(OptOps.UPCAST, 0, 16)), "tn")):
    all_opts = (*opts, Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.STAGE, 2, (2,)))
    root = apply_opts(product(32, 32, 64, form=form), all_opts, TARGET.target)
    assert not in_tiles(lower_stage(simplify(root), TARGET.target))


def text_of(root: UOp, opts: tuple[Opt, ...] | None = None) -> str:
  return str(compile_kernel(root, LLVMRenderer(TARGET), opts).src[2].arg)


def test_accumulators_and_operands_have_registers_of_their_own() -> None:
  text = text_of(product(64, 64, 256))
  assert re.findall(r"tilezero\(i8 (\d)\)", text) == ["0", "1", "2", "3"]
  products = re.findall(r"call void @llvm.x86.tdpbssd\(i8 (\d), i8 (\d), i8 (\d)\)", text)
  assert [p[0] for p in products] == ["0", "1", "2", "3"]
  a, b = ({p[place] for p in products} for place in (1, 2))
  assert len(a) == len(b) == 2 and a | b == {"4", "5", "6", "7"}
  assert len(re.findall("call void @llvm.x86.tileloadd64", text)) == 4


def test_a_sum_of_one_step_has_an_accumulator() -> None:
  text = text_of(product(64, 64, 64))
  assert (
    len(re.findall(r"call void @llvm.x86.tilezero", text)) == len(re.findall("call void @llvm.x86.tdpb", text)) == 4
  )


def test_registers_are_given_back() -> None:
  """A thread that waits has none that would have to be saved."""
  text = text_of(product(64, 64, 128))
  assert text.count("call void @llvm.x86.ldtilecfg") == text.count("call void @llvm.x86.tilerelease") == 1
  assert text.index("call void @llvm.x86.tilestored64") < text.index("call void @llvm.x86.tilerelease")


def test_kernels_without_tiles_do_not_set_them_up() -> None:
  assert "@llvm.x86.ldtilecfg" not in text_of(product(1, 64, 64))


@pytest.mark.parametrize(("types", "mnemonic"), [(BYTES, "tdpbssd"), (HALVES, "tdpbf16ps")])
def test_assembly(types: tuple[DType, DType], mnemonic: str) -> None:
  text = text_of(product(64, 64, 256, types, wide=dtypes.int32 if types == BYTES else dtypes.float32))
  machine = llvm.Target.from_triple(TARGET.triple).create_target_machine(
    cpu=TARGET.cpu, features=TARGET.features, opt=2
  )
  module = llvm.parse_assembly(text)
  module.verify()
  assembly = machine.emit_assembly(module)
  assert assembly.count(f"\t{mnemonic}\t") == 4 and "%tmm7" in assembly
  assert set(re.findall(r"\tcallq?\t([\w.]+)", assembly)) <= {"product.body"}


def test_estimates_count_all_of_a_tile() -> None:
  root = product(64, 64, 128)
  operations = compile_kernel(root, LLVMRenderer(TARGET)).src[5].src[0]
  assert 1 <= operations.arg / (2 * 64 * 64 * 128) < 1.1  # words are put together, too


def test_loops_of_words_stay_what_they_are() -> None:
  """Only the pass makes tiles of them: until then a product is one of words."""
  root = apply_opts(product(32, 32, 64), (TILES,), TARGET.target)
  (total,) = [u for u in root.toposort if u.op is Ops.REDUCE]
  assert total.dtype is dtypes.int32 and [r.arg for r in total.src[1:]] == [(2, AxisType.REDUCE)]


# *** words that are put together ***


@pytest.mark.parametrize(("dtype", "k"), [(dtypes.int8, 65), (dtypes.bfloat16, 33), (dtypes.int8, 66)])
def test_rows_that_begin_anywhere_are_packed_from_what_is_loaded_at_once(dtype: DType, k: int) -> None:
  """Words of a row of odd length are nowhere in memory. Its last numbers have a mask."""
  root = product(64, 64, k, (dtype, dtype), wide=dtypes.int32 if dtype is dtypes.int8 else dtypes.float32)
  linear = compile_kernel(root, LLVMRenderer(TARGET), tiled(root)).src[1]
  words = [u for u in linear.toposort if u.op is Ops.BITCAST and u.dtype is dtypes.uint32.vec(16)]
  assert {u.src[0].dtype.count for u in words if u.src[0].op is Ops.LOAD} == {16 * 32 // dtype.bits}


def test_rows_that_are_columns_in_memory_are_turned_in_registers() -> None:
  """Both operands are adjacent across the sum: one of them has to be turned, and no number is loaded on its own."""
  root = product(64, 64, 128, form="tn")
  linear = compile_kernel(root, LLVMRenderer(TARGET), tiled(root)).src[1]
  assert {u.dtype.count for u in linear.toposort if u.op is Ops.LOAD and u.dtype.scalar() is dtypes.int8} == {16, 32}


def convolution(size: int, channels: int, outputs: int, taps: int) -> UOp:
  """out[o][y][x] = sum of in[c][y + i][x + j] · weights[o][c][i][j], of bytes."""
  o, y, x = UOp.range(outputs, 0), UOp.range(size, 1), UOp.range(size, 2)
  c, i, j = (UOp.range(n, 3 + place, AxisType.REDUCE) for place, n in enumerate((channels, taps, taps)))
  whole = size + taps - 1
  image = UOp.param(1, dtypes.int8.ptr(channels * whole**2)).index((c * whole + y + i) * whole + x + j).load()
  weights = UOp.param(2, dtypes.int8.ptr(outputs * channels * taps**2))
  weight = weights.index(((o * channels + c) * taps + i) * taps + j).load()
  total = (image.cast(dtypes.int32) * weight.cast(dtypes.int32)).reduce(Ops.ADD, c, i, j)
  out = UOp.param(0, dtypes.int32.ptr(outputs * size**2)).index((o * size + y) * size + x)
  return UOp.sink(out.store(total).end(o, y, x), arg=KernelInfo("convolution"))


@pytest.mark.parametrize(("size", "taps"), [(16, 1), (18, 3)])
def test_convolutions(size: int, taps: int, run: Any) -> None:
  channels, outputs = 64, 33
  rng = np.random.default_rng(3)
  image = rng.integers(-128, 128, (channels, size + taps - 1, size + taps - 1)).astype(np.int8)
  weights = rng.integers(-128, 128, (outputs, channels, taps, taps)).astype(np.int8)
  zeros = np.zeros((outputs, size, size), np.int32)
  found = run(convolution(size, channels, outputs, taps), [zeros, image, weights])
  windows = np.lib.stride_tricks.sliding_window_view(image, (taps, taps), (1, 2))
  expected = np.einsum("cyxij,ocij->oyx", windows.astype(np.int64), weights.astype(np.int64), optimize=True)
  np.testing.assert_array_equal(found.reshape(expected.shape), expected)
