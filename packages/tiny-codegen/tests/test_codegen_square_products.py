"""Products of 2 × 2 sums (Arm: SMMLA, UMMLA, USMMLA, BFMMLA): that they are right, and what the loop is made of."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen_machine import Machine, host_renderer

from tiny_codegen import LLVMRenderer, PassContext, compile_kernel, cpu_target
from tiny_codegen.compile import program_of, run_passes
from tiny_codegen.instructions.dot_product import SquareProduct
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.pipeline import PASSES
from tiny_uop import AxisType, DType, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

OLD = cpu_target("aarch64-unknown-linux-gnu", "neoverse-n1", ("+neon", "+dotprod"))
ARM = cpu_target("aarch64-unknown-linux-gnu", "neoverse-v1", ("+neon", "+dotprod", "+i8mm", "+bf16"))
SQUARES = replace(
  ARM.target, dot_products=tuple([d for d in ARM.target.dot_products if isinstance(d[0], SquareProduct)])
)
"""The same without other dot products, which small sums are left to."""
SPLIT = 1 + [p.name for p in PASSES].index("square_products")
TYPES: dict[str, tuple[DType, DType, DType]] = {
  "smmla": (dtypes.int8, dtypes.int8, dtypes.int32), "ummla": (dtypes.uint8, dtypes.uint8, dtypes.uint32),
  "usmmla": (dtypes.uint8, dtypes.int8, dtypes.int32), "bfmmla": (dtypes.bfloat16, dtypes.bfloat16, dtypes.float32),
}  # fmt: skip
NUMPY: dict[DType, Any] = {
  dtypes.int8: np.int8, dtypes.uint8: np.uint8, dtypes.bfloat16: np.uint16, dtypes.int32: np.int32,
  dtypes.uint32: np.uint32, dtypes.float32: np.float32,
}  # fmt: skip


def product(m: int, n: int, k: int, types: tuple[DType, DType, DType], form: str = "nn") -> UOp:
  """out[m][n] = sum over k; `form` says of each operand whether it is stored transposed."""
  i, j, s = UOp.range(m, 0), UOp.range(n, 1), UOp.range(k, 2, AxisType.REDUCE)
  left, right = i * k + s if form[0] == "n" else s * m + i, s * n + j if form[1] == "n" else j * k + s
  a = UOp.param(1, types[0].ptr(m * k)).index(left).load().cast(types[2])
  b = UOp.param(2, types[1].ptr(k * n)).index(right).load().cast(types[2])
  out = UOp.param(0, types[2].ptr(m * n)).index(i * n + j)
  return UOp.sink(out.store((a * b).reduce(Ops.ADD, s)).end(i, j), arg=KernelInfo("product"))


def drawn(shape: tuple[int, int], dtype: DType, seed: int) -> Any:
  """Whole numbers, the first row as far from 0 as can be; of bfloat16 such whose sums are exact in any order."""
  rng, wide = np.random.default_rng(seed), dtype is dtypes.bfloat16
  low, high = (-16, 17) if wide else (-128, 128) if dtype is dtypes.int8 else (0, 256)
  made = rng.integers(low, high, shape)
  made[:1] = high - 1 if dtype is dtypes.uint8 else low
  return (made.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) if wide else made.astype(NUMPY[dtype])


def numbers(array: Any) -> Any:
  """What an array holds, as integers."""
  return (
    (array.astype(np.uint32) << 16).view(np.float32).astype(np.int64)
    if array.dtype == np.uint16
    else array.astype(np.int64)
  )


def on_host(kernel: UOp, opts: tuple[Opt, ...] | None, arrays: list[Any]) -> tuple[Any, int]:
  """What a kernel computes that was lowered for Arm as far as squares, and for this processor, which has none, from
  there on; and how many squares there were."""
  made = run_passes(kernel, PassContext(SQUARES, opts), passes=PASSES[:SPLIT])
  squares = sum(u.op is Ops.MMA and isinstance(u.arg, SquareProduct) for u in made.toposort)
  renderer = host_renderer()
  linear = run_passes(made, PassContext(renderer.target), passes=PASSES[SPLIT:])
  Machine().call(program_of(kernel, linear, renderer), arrays, {}, 1)
  return arrays[0], squares


@pytest.mark.parametrize(
  ("name", "form", "m", "n", "k"),
  [
    *[("smmla", form, 48, 40, 64) for form in ("nn", "tt")],
    *[(name, "nn", 48, 40, 64) for name in ("ummla", "usmmla", "bfmmla")],
    ("smmla", "nn", 33, 41, 52), ("usmmla", "nt", 13, 30, 20), ("bfmmla", "tn", 27, 36, 44),
  ],
)  # fmt: skip
def test_products_are_exact(name: str, form: str, m: int, n: int, k: int) -> None:
  """Sizes that 2 × 2 × 8 divides, and such that leave rows, lanes and steps over."""
  types = TYPES[name]
  kernel = product(m, n, k, types, form)
  a, b = (drawn(shape, dtype, n) for n, (shape, dtype) in enumerate((((m, k), types[0]), ((k, n), types[1]))))
  stored = [x if f == "n" else np.ascontiguousarray(x.T) for x, f in zip((a, b), form)]
  found, squares = on_host(kernel, None, [np.zeros((m, n), NUMPY[types[2]]), *stored])
  assert squares > 0
  np.testing.assert_array_equal(found, (numbers(a) @ numbers(b)).astype(found.dtype))


@pytest.mark.parametrize("rows", [2, 3, 5])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_rows_that_are_left_alone(rows: int, axes: tuple[int, int]) -> None:
  """An odd row goes with itself; what is unsigned may be the rows' operand or the lanes'."""
  place = next(n for n, (how, _) in enumerate(SQUARES.dot_products) if str(how).startswith("dot8 uint8 · int8"))
  opts = (Opt(OptOps.TC, 2, (place, *axes)), Opt(OptOps.VECTOR, axes[1], 6), Opt(OptOps.UPCAST, axes[0], rows))
  sizes = {axes[0]: 2 * rows, axes[1]: 12}
  kernel = product(sizes[0], sizes[1], 24, TYPES["usmmla"])
  a, b = drawn((sizes[0], 24), dtypes.uint8, 1), drawn((24, sizes[1]), dtypes.int8, 2)
  found, squares = on_host(kernel, opts, [np.zeros((sizes[0], sizes[1]), np.int32), a, b])
  assert squares == -(-rows // 2) * 3
  np.testing.assert_array_equal(found, numbers(a) @ numbers(b))


@pytest.mark.parametrize("vector", [False, True])
def test_lanes_without_a_pair_are_products_of_halves(vector: bool) -> None:
  lanes = 3
  opts = [Opt(OptOps.TC, 2, (0, 0, 1)), *([Opt(OptOps.VECTOR, 1, lanes)] if vector else [])]
  a, b = drawn((4, 16), dtypes.int8, 1), drawn((16, lanes), dtypes.int8, 2)
  found, squares = on_host(product(4, lanes, 16, TYPES["smmla"]), tuple(opts), [np.zeros((4, lanes), np.int32), a, b])
  assert squares == 0
  np.testing.assert_array_equal(found, numbers(a) @ numbers(b))


def hot_loop(kernel: UOp, target: Any = ARM) -> list[str]:
  """Names of the instructions of the block of a kernel that has most products."""
  machine = llvm.Target.from_triple(target.triple).create_target_machine(target.cpu, target.features, opt=2)
  module = llvm.parse_assembly(str(compile_kernel(kernel, LLVMRenderer(target)).src[2].arg))
  options = llvm.create_pipeline_tuning_options(speed_level=2)
  llvm.create_pass_builder(machine, options).getModulePassManager().run(
    module, llvm.create_pass_builder(machine, options)
  )
  blocks = re.split(r"\n\.LBB\S+:|\tb\.\w+\t", machine.emit_assembly(module))
  loop = max(blocks, key=lambda text: len(re.findall(r"\t\w*(?:mmla|dot)\t", text)))
  return re.findall(r"^\t(\w[\w.]*)\t", loop, re.M)


@pytest.mark.parametrize(("name", "form"), [*[(name, "nn") for name in TYPES], ("smmla", "nt"), ("bfmmla", "tn")])
def test_the_loop_has_nothing_but_loads_and_products(name: str, form: str) -> None:
  """Packed panels have pairs of rows and of lanes as registers: nothing is rearranged in the loop."""
  found = hot_loop(product(128, 128, 128, TYPES[name], form))
  products = found.count(name)
  loads = sum(word in ("ldr", "ldp", "ldur") for word in found)
  assert products >= 16 and loads <= products / 2
  assert not {"ld1", "ld1r", "ins", "ext", "zip1", "zip2", "uzp1", "uzp2", "trn1", "trn2", "dup"} & set(found)


def test_processors_without_them_use_what_they_have() -> None:
  assert "sdot" in hot_loop(product(128, 128, 128, TYPES["smmla"]), OLD)
  assert not any(isinstance(how, SquareProduct) for how, _ in OLD.target.dot_products)


def test_one_row_has_no_pair() -> None:
  """A product with a vector gains nothing from rows in pairs."""
  opts = choose_opts(product(1, 512, 512, TYPES["smmla"]), ARM.target)
  places = [o.arg[0] for o in opts if o.op is OptOps.TC and isinstance(o.arg, tuple)]
  assert not any(isinstance(ARM.target.dot_products[place][0], SquareProduct) for place in places)
