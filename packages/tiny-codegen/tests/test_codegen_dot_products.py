"""Sums of products of narrow numbers, by the dot-product instructions of processors that have them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product as pairs
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tiny_codegen import DotProduct, KernelOptError, Limits, LLVMRenderer, Target, compile_kernel, cpu_target
from tiny_codegen.instructions.dot_product import SquareProduct
from tiny_codegen.matrix.dot_products import lower_offsets
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.beam import candidates
from tiny_codegen.opt.neighbours import other_tilings
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.render.c.renderer import CRenderer
from tiny_uop import AxisType, Context, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes, evaluate, print_uop

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

AVX2 = ("+avx", "+avx2", "+fma", "+sse4.1")
AVX512 = (*AVX2, "+avx512f", "+avx512vl", "+avx512bw", "+avx512dq")
TARGETS = {
  "vnni": cpu_target("x86_64-unknown-linux-gnu", "x86-64", (*AVX512, "+avx512vnni")),
  "avxvnni": cpu_target("x86_64-unknown-linux-gnu", "x86-64", (*AVX2, "+avxvnni")),
  "avx2": cpu_target("x86_64-unknown-linux-gnu", "x86-64", AVX2),
  "avx512": cpu_target("x86_64-unknown-linux-gnu", "x86-64", AVX512),
  "int8": cpu_target("x86_64-unknown-linux-gnu", "x86-64", (*AVX2, "+avxvnniint8")),
  "zen4": cpu_target("x86_64-unknown-linux-gnu", "znver4", (*AVX512, "+avx512vnni", "+avx512bf16")),
  "emerald": cpu_target("x86_64-unknown-linux-gnu", "emeraldrapids", (*AVX512, "+avx512vnni", "+avx512bf16")),
  "arm": cpu_target("aarch64-unknown-linux-gnu", "generic", ("+neon", "+dotprod", "+i8mm", "+bf16")),
}
U8S8 = DotProduct(dtypes.uint8, dtypes.int8, dtypes.int32)
NUMPY: dict[DType, Any] = {dtypes.int8: np.int8, dtypes.uint8: np.uint8}


BYTES = dtypes.int8, dtypes.int8


def product(
  m: int, n: int, k: int, types: tuple[DType, DType] = BYTES, form: str = "nn", wide: DType = dtypes.int32
) -> UOp:
  """out[m][n] = sum over k; `form` says of each operand whether it is stored transposed."""
  i, j = UOp.range(m, 0), UOp.range(n, 1)
  s = UOp.range(k, 2, AxisType.REDUCE)
  left = i * k + s if form[0] == "n" else s * m + i
  right = s * n + j if form[1] == "n" else j * k + s
  a = UOp.param(1, types[0].ptr(m * k)).index(left).load().cast(wide)
  b = UOp.param(2, types[1].ptr(k * n)).index(right).load().cast(wide)
  out = UOp.param(0, wide.ptr(m * n)).index(i * n + j)
  return UOp.sink(out.store((a * b).reduce(Ops.ADD, s)).end(i, j), arg=KernelInfo("product"))


def numbers(shape: tuple[int, int], dtype: DType, form: str) -> Any:
  rng = np.random.default_rng(3)
  low, high = (-128, 128) if dtype is dtypes.int8 else (0, 256)
  made = rng.integers(low, high, shape).astype(NUMPY[dtype])
  made[:2] = low if dtype is dtypes.int8 else 255  # sums as far from 0 as can be
  return made if form == "n" else np.ascontiguousarray(made.T)


def chosen(root: UOp, name: str) -> tuple[Opt, ...]:
  """What the heuristics choose for a target, threads left out."""
  return tuple([o for o in choose_opts(root, TARGETS[name].target) if o.op is not OptOps.THREAD])


def optimised(root: UOp, opts: tuple[Opt, ...], target: Target) -> UOp:
  """The kernel to be lowered for another target, which may lack the instruction."""
  return apply_opts(root, opts, target).replace(arg=KernelInfo("product", ()))


@pytest.mark.parametrize(
  ("m", "n", "k", "form", "target"),
  [
    *[(33, 65, 67, form, "vnni") for form in ("nn", "nt", "tn", "tt")],
    *[(64, 64, 64, form, target) for form, target in pairs(("nt", "tn"), ("vnni", "int8", "arm"))],
    (9, 40, 10, "nn", "avxvnni"),
    (64, 64, 64, "nn", "avx2"),
    (64, 64, 64, "nn", "avx512"),
  ],
)
def test_signed_bytes_are_exact(m: int, n: int, k: int, form: str, target: str, run_kernel: Any) -> None:
  a, b = numbers((m, k), dtypes.int8, form[0]), numbers((k, n), dtypes.int8, form[1])
  root = product(m, n, k, form=form)
  opts = chosen(root, target)
  assert OptOps.TC in {o.op for o in opts}
  with Context(SPEC=2 if m < 16 else 1):  # what SPEC=2 proves takes its time for padded blocks
    found = run_kernel(optimised(root, opts, TARGETS[target].target), [np.zeros((m, n), np.int32), a, b], ())
  exact = (a if form[0] == "n" else a.T).astype(np.int64) @ (b if form[1] == "n" else b.T).astype(np.int64)
  np.testing.assert_array_equal(found[0], exact)


@pytest.mark.parametrize(
  ("types", "target"),
  [((dtypes.uint8, dtypes.int8), "vnni"), ((dtypes.int8, dtypes.uint8), "vnni"), ((dtypes.int8, dtypes.uint8), "arm")],
)
def test_signs_that_differ(types: tuple[DType, DType], target: str, run_kernel: Any) -> None:
  """The operand without a sign goes where the instruction wants it: nothing has to be made up for."""
  root, a, b = product(32, 48, 36, types), numbers((32, 36), types[0], "n"), numbers((36, 48), types[1], "n")
  changed = optimised(root, chosen(root, target), TARGETS[target].target)
  assert {u.arg.plain == u.arg == U8S8 for u in changed.toposort if u.op is Ops.MMA} == {True}
  found = run_kernel(changed, [np.zeros((32, 48), np.int32), a, b], ())
  np.testing.assert_array_equal(found[0], a.astype(np.int64) @ b.astype(np.int64))


def test_numbers_of_16_bits(run_kernel: Any) -> None:
  types = dtypes.int16, dtypes.int16
  root, rng = product(33, 40, 35, types), np.random.default_rng(3)
  a, b = (rng.integers(-(2**15), 2**15, shape).astype(np.int16) for shape in ((33, 35), (35, 40)))
  a[0], b[:, 0] = -(2**15), -(2**15)  # sums beyond int32, which wrap
  opts = chosen(root, "vnni")
  assert OptOps.TC in {o.op for o in opts}
  found = run_kernel(optimised(root, opts, TARGETS["vnni"].target), [np.zeros((33, 40), np.int32), a, b], ())
  np.testing.assert_array_equal(found[0], (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32))


def test_no_signs_at_all(run_kernel: Any) -> None:
  types = dtypes.uint8, dtypes.uint8
  root = product(32, 48, 36, types, wide=dtypes.uint32)
  a, b = numbers((32, 36), types[0], "n"), numbers((36, 48), types[1], "n")
  used = {}
  for target in ("int8", "arm", "vnni", "avx2"):
    opts = chosen(root, target)
    changed = optimised(root, opts, TARGETS[target].target)
    used[target] = {u.arg.dtype_a for u in changed.toposort if u.op is Ops.MMA}
    arrays = [np.zeros((32, 48), np.uint32), a, b]
    found = run_kernel(changed, arrays, ())
    np.testing.assert_array_equal(found[0], a.astype(np.int64) @ b.astype(np.int64))
  bytes_only, words = {dtypes.uint8}, {dtypes.int16}
  assert used == {"int8": bytes_only, "arm": bytes_only, "vnni": words, "avx2": words}


# *** choices ***


@pytest.mark.parametrize("features", [("+sse4.1",), ("+avx", "+fma", "+sse4.1"), ("+sse4.1", "+avx512vnni")])
def test_targets_without_the_instruction_multiply_and_add(features: tuple[str, ...]) -> None:
  """So does one that has VNNI without what comes with it on all processors."""
  target = cpu_target("x86_64-unknown-linux-gnu", "x86-64", features)
  assert target.target.dot_products == ()
  assert OptOps.TC not in {o.op for o in choose_opts(product(256, 256, 256), target.target)}


def test_bfloat16_only_where_the_instruction_pays() -> None:
  """On Intel's processors VDPBF16PS does half as many products a second as multiply-adds do."""
  root = product(512, 512, 512, (dtypes.bfloat16, dtypes.bfloat16), wide=dtypes.float32)
  assert OptOps.TC in {o.op for o in chosen(root, "zen4")}
  assert OptOps.TC not in {o.op for o in chosen(root, "emerald")}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.uint16, dtypes.int32])
def test_other_numbers_are_left_alone(dtype: DType) -> None:
  wide = dtypes.float32 if dtype.kind == "float" else dtypes.int32
  assert OptOps.TC not in {o.op for o in chosen(product(256, 256, 256, (dtype, dtype), wide=wide), "zen4")}


def test_searches_start_from_dot_products_as_well() -> None:
  """On Emerald Rapids that of bfloat16 is not thought well of, but may be tried."""
  target = TARGETS["emerald"].target
  root = product(128, 128, 128, (dtypes.bfloat16, dtypes.bfloat16), wide=dtypes.float32)
  starts = other_tilings(root, target, 40)
  assert len({any(o.op is OptOps.TC for o in opts) for opts in starts}) == 2
  assert Opt(OptOps.TC, 2, 2) in list(candidates(root, target))


def test_c_has_them_written_out() -> None:
  """A kernel that was optimised for a target with the instruction can be lowered for one without."""
  changed = optimised(product(8, 16, 16), (Opt(OptOps.TC, 2, (0, 0, 1)),), TARGETS["vnni"].target)
  program = compile_kernel(changed, CRenderer(), ())
  assert not [u for u in program.src[1].src if u.op is Ops.MMA]
  assert ">> 8" in program.src[2].arg or ">>8" in program.src[2].arg


def test_factors_that_are_padded_with_zeros() -> None:
  """A convolution of what was converted before it was padded."""
  root = product(64, 64, 64)
  factor = next(u for u in root.toposort if u.op is Ops.CAST and u.src[0].src[0].src[0].arg == 1)
  row = next(u for u in root.toposort if u.op is Ops.RANGE and u.arg[0] == 0)
  padded = root.substitute({factor: (row < 60).where(factor, factor.const_like(0))})
  assert OptOps.TC in {o.op for o in chosen(padded, "vnni")}


def test_words_along_what_is_adjacent_are_read_as_words() -> None:
  root = apply_opts(product(64, 64, 64), (Opt(OptOps.TC, 2, (0, 0, 1)),), TARGETS["vnni"].target)
  params = {u.arg: u.dtype.base for u in root.toposort if u.op is Ops.PARAM}  # type: ignore[attr-defined]
  assert params == {0: dtypes.int32, 1: dtypes.uint32, 2: dtypes.int8}
  assert sum(u.op is Ops.LOAD for u in root.toposort) == 1 + 4


@pytest.mark.parametrize(
  ("opt", "message"),
  [
    (Opt(OptOps.TC, 2, 0), "extent 30, expected a multiple of 4: PADTO first"),
    (Opt(OptOps.TC, 2, 2), "expected the place of an instruction"),
    (Opt(OptOps.TC, 0, 0), "loop 0 is a LOOP loop, expected a REDUCE loop"),
  ],
)
def test_what_does_not_fit(opt: Opt, message: str) -> None:
  with pytest.raises(KernelOptError, match=message):
    apply_opts(product(8, 8, 30), (opt,), TARGETS["vnni"].target)


def test_types_that_do_not_fit() -> None:
  with pytest.raises(KernelOptError, match="it takes neither uint16, uint16"):
    types = dtypes.uint16, dtypes.uint16
    apply_opts(product(8, 8, 32, types), (Opt(OptOps.TC, 2, 0),), TARGETS["vnni"].target)
  with pytest.raises(ValueError, match="expected two types of 8 bits, or of 16"):
    DotProduct(dtypes.int8, dtypes.int16, dtypes.int32)


def test_the_offset_is_made_up_for_outside_of_the_rows() -> None:
  target = TARGETS["vnni"].target
  lowered = lower_offsets(apply_opts(product(16, 16, 64), (Opt(OptOps.TC, 2, (0, 0, 1)),), target), target)
  reduces = [u for u in lowered.toposort if u.op is Ops.REDUCE]
  assert sorted([{r.arg[0] for r in u.ranges} for u in reduces], key=len) == [{1}, {0, 1}]
  assert {u.arg for u in lowered.toposort if u.op is Ops.MMA} == {U8S8}


def test_the_offset_is_kept_for_columns_inside_of_rows() -> None:
  """Blocks of columns inside of blocks of rows: what all columns need is computed before the rows."""
  target = TARGETS["vnni"].target
  opts = (Opt(OptOps.TC, 2, (0, 0, 1)), Opt(OptOps.SPLIT, 1, 8), Opt(OptOps.VECTOR, 3, 4), Opt(OptOps.SWAP, 0, 1))
  root = apply_opts(product(16, 64, 64), opts, target)
  assert [r.arg[0] for r in root.src[0].src[1:]] == [1, 0, 3, 4]
  kept = [u for u in lower_offsets(root, target).toposort if u.op is Ops.STAGE]
  assert [[r.arg[0] for r in u.src[1:]] for u in kept] == [[3]]
  cramped = replace(target, limits=Limits(shared_memory=64))
  assert not [u for u in lower_offsets(root, cramped).toposort if u.op is Ops.STAGE]


def test_rows_are_converted_once_for_several_panels_of_any_size() -> None:
  """Where blocks do not divide a matrix, local memory holds what one tile of rows needs."""
  types = dtypes.bfloat16, dtypes.bfloat16
  for n, panels in ((1152, True), (1500, False)):
    opts = chosen(product(1000, n, 1024, types, wide=dtypes.float32), "emerald")
    assert {o.axis for o in opts if o.op is OptOps.STAGE} == {1, 2}
    assert (OptOps.SPLIT in {o.op for o in opts}) is panels


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_rows_are_packed_in_the_order_of_memory(form: str, run_kernel: Any) -> None:
  """Blocks of rows that are converted once for several panels, not for each."""
  m, n, k = 128, 256, 256
  types = dtypes.bfloat16, dtypes.bfloat16
  root = product(m, n, k, types, form, dtypes.float32)
  opts = chosen(root, "emerald")
  rows = next(o.arg for o in opts if o.op is OptOps.STAGE and o.axis == 1)
  steps = next((o.arg for o in opts if o.op is OptOps.UNROLL and o.axis == 2), 1)
  assert isinstance(rows, tuple)
  last = rows[-1] if steps == 1 else rows[-2]  # the steps that are written out are behind it
  assert last == 2, "the steps of the sum are next to each other, as they are in memory"
  rng = np.random.default_rng(3)
  shapes = (m, k), ((k, n) if form[1] == "n" else (n, k))
  a, b = ((rng.standard_normal(s).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for s in shapes)
  found = run_kernel(optimised(root, opts, TARGETS["emerald"].target), [np.zeros((m, n), np.float32), a, b], ())
  left, right = ((x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for x in (a, b))
  right = right if form[1] == "n" else right.T
  bound = np.abs(left) @ np.abs(right) * k * 2.0**-24
  assert (np.abs(found[0] - left @ right) <= bound).all()


# *** meaning and text ***


def test_meaning() -> None:
  a, b, c = UOp.variable("a", 0, 2**32 - 1, dtypes.uint32), UOp.variable("b", 0, 2**32 - 1, dtypes.uint32), 7
  extremes = U8S8.meaning(a, b, UOp.const(dtypes.int32, c))
  assert evaluate(extremes, {a: 0xFF_00_80_01, b: 0x80_7F_FF_02}) == c + 255 * -128 + 0 + 128 * -1 + 1 * 2
  signed = DotProduct(dtypes.uint8, dtypes.int8, dtypes.int32, 128).meaning(a, b, UOp.const(dtypes.int32, c))
  assert evaluate(signed, {a: 0, b: 0x80808080}) == c + 4 * 128 * 128


@pytest.mark.parametrize(
  ("target", "types", "wide", "mnemonic"),
  [
    ("vnni", BYTES, dtypes.int32, "vpdpbusd\t%zmm"),
    ("avxvnni", BYTES, dtypes.int32, "vpdpbusd\t%ymm"),
    ("vnni", (dtypes.int16, dtypes.int16), dtypes.int32, "vpdpwssd\t"),
    ("avx2", BYTES, dtypes.int32, "vpmaddwd\t%ymm"),
    ("avx512", BYTES, dtypes.int32, "vpmaddwd\t%zmm"),
    ("int8", BYTES, dtypes.int32, "vpdpbssd\t"),
    ("int8", (dtypes.uint8, dtypes.uint8), dtypes.uint32, "vpdpbuud\t"),
    ("zen4", (dtypes.bfloat16, dtypes.bfloat16), dtypes.float32, "vdpbf16ps\t"),
    ("arm", BYTES, dtypes.int32, "sdot\t"),
    ("arm", (dtypes.uint8, dtypes.uint8), dtypes.uint32, "udot\t"),
    ("arm", (dtypes.uint8, dtypes.int8), dtypes.int32, "usdot\t"),
    ("arm", (dtypes.bfloat16, dtypes.bfloat16), dtypes.float32, "bfdot\t"),
  ],
)
def test_instructions(target: str, types: tuple[DType, DType], wide: DType, mnemonic: str) -> None:
  root, processor = product(64, 64, 64, types, wide=wide), TARGETS[target]
  # the place of the instruction, behind those of squares, which take the same types
  squares = sum(isinstance(how, SquareProduct) for how, _ in processor.target.dot_products)
  listed = [(how.dtype_a, how.dtype_b) for how, _ in processor.target.dot_products]
  place = listed.index(types, squares) if squares else None
  opts = (Opt(OptOps.TC, 2, place), Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.UPCAST, 0, 4))
  program = compile_kernel(root, LLVMRenderer(processor), opts)
  machine = llvm.Target.from_triple(processor.triple).create_target_machine(
    cpu=processor.cpu, features=processor.features, opt=2
  )
  module = llvm.parse_assembly(program.src[2].arg)
  module.verify()
  assembly = machine.emit_assembly(module)
  assert mnemonic in assembly
  assert set(re.findall(r"\t(?:callq?|bl)\t([\w.]+)", assembly)) <= {"product.body"}


@pytest.mark.parametrize("lanes", [1, 2, 8, 20, 64])
def test_any_number_of_lanes(lanes: int, run_kernel: Any, renderer: LLVMRenderer) -> None:
  """Instructions take 4, 8 or 16 lanes: the last one may be partly empty."""
  root, opts = product(4, lanes, 16), [Opt(OptOps.TC, 2, (0, 0, 1))]
  opts += [Opt(OptOps.VECTOR, 1, lanes)] if lanes > 1 else []
  a, b = numbers((4, 16), dtypes.int8, "n"), numbers((16, lanes), dtypes.int8, "n")
  own = renderer.target.dot_products and renderer.target.dot_products[0][0] == U8S8
  target = renderer.target if own else TARGETS["vnni"].target
  found = run_kernel(optimised(root, tuple(opts), target), [np.zeros((4, lanes), np.int32), a, b], ())
  np.testing.assert_array_equal(found[0], a.astype(np.int64) @ b.astype(np.int64))


def test_bfloat16(run_kernel: Any) -> None:
  """Products are exact in float32; sums of n terms are off by n roundings at most, whatever their order."""
  m, n, k = 40, 48, 512
  types = dtypes.bfloat16, dtypes.bfloat16
  root = product(m, n, k, types, wide=dtypes.float32)
  opts = chosen(root, "zen4")
  assert OptOps.TC in {o.op for o in opts}
  rng = np.random.default_rng(3)
  a, b = (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16 for shape in ((m, k), (k, n)))
  a[0, 0], a[1, 0], b[0, 1] = 0x7F80, 0x7FC0, 0  # inf and NaN come through; inf · 0 is NaN
  arrays = [np.zeros((m, n), np.float32), a.astype(np.uint16), b.astype(np.uint16)]
  found = run_kernel(optimised(root, opts, TARGETS["zen4"].target), arrays, ())[0]
  exact_a, exact_b = ((x << 16).astype(np.uint32).view(np.float32).astype(np.float64) for x in (a, b))
  with np.errstate(invalid="ignore"):
    exact, bound = exact_a @ exact_b, np.abs(exact_a) @ np.abs(exact_b) * k * 2.0**-24
  assert np.isnan(found[1]).all() and np.isnan(found[0, 1])
  assert (np.isinf(found[0]) == np.isinf(exact[0])).all()
  assert (np.abs(found[2:] - exact[2:]) <= bound[2:]).all()


def test_printed_form_names_the_instruction() -> None:
  root = apply_opts(product(8, 8, 8), (Opt(OptOps.TC, 2, 0),), TARGETS["vnni"].target)
  assert "arg=DotProduct(dtype_a=" in print_uop(root)
