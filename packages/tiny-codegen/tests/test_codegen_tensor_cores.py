"""TC: products on tensor cores, run by an interpreter that puts the matrices together from the threads' fragments."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES, Array, data, garbage, kernel, loop, over, param
from codegen_opts import before_optimising, opts_for
from hypothesis import given, settings
from hypothesis import strategies as st
from workgroup_machine import run_workgroups

from tiny_codegen import (
  Fragment,
  KernelOptError,
  Limits,
  MatrixLoad,
  Renderer,
  SharedOperand,
  Target,
  TensorCore,
  compile_kernel,
)
from tiny_codegen.opt import tensor_cores
from tiny_codegen.opt.beam import before_opts, candidates
from tiny_codegen.opt.vectors import choose_opts
from tiny_codegen.render import C99, CRenderer, function_name
from tiny_codegen.render.llvm.target import LLVM_DTYPES, LLVM_OPS
from tiny_uop import (
  AddrSpace,
  Context,
  Ops,
  Opt,
  OptOps,
  ProgramInfo,
  PtrDType,
  UOp,
  dtypes,
  parse_uop,
  print_uop,
  spec,
)

# PTX ISA, "Matrix fragments for mma.m16n8k8" and "… mma.m16n8k16", .f16 operands
C_LAYOUT = Fragment(((4, 0, 2), (8, 1, 0)), ((2, 0, 1), (2, 8, 0)))
M16N8K8 = TensorCore(
  (8, 16, 8), 32, dtypes.float16, dtypes.float32,
  a=Fragment(((4, 0, 2), (8, 1, 0)), ((2, 0, 1), (2, 8, 0))),
  b=Fragment(((4, 2, 0), (8, 0, 1)), ((2, 1, 0),)),
  c=C_LAYOUT,
)  # fmt: skip
M16N8K16 = TensorCore(
  (8, 16, 16), 32, dtypes.float16, dtypes.float32,
  a=Fragment(((4, 0, 2), (8, 1, 0)), ((2, 0, 1), (2, 8, 0), (2, 0, 8))),
  b=Fragment(((4, 2, 0), (8, 0, 1)), ((2, 1, 0), (2, 8, 0))),
  c=C_LAYOUT,
)  # fmt: skip
FLOATS = replace(M16N8K8, dtype_in=dtypes.float32)
# made up: sizes that are no powers of two, B held twice, one element of C per thread
ODD = TensorCore(
  (2, 3, 2), 6, dtypes.float32, dtypes.float32,
  a=Fragment(((2, 0, 1), (3, 1, 0)), ((1, 0, 0),)),
  b=Fragment(((2, 0, 1), (3, 0, 0)), ((2, 1, 0),)),
  c=Fragment(((3, 1, 0), (2, 0, 1)), ()),
)  # fmt: skip
WHOLE = Fragment((), ((2, 1, 0), (2, 0, 1)))
ALONE = TensorCore((2, 2, 2), 1, dtypes.float32, dtypes.float32, WHOLE, WHOLE, WHOLE)


class Tensors(Renderer):
  """A device with workgroups and tensor cores; its programs are interpreted."""

  name = "tensors"

  def __init__(self, *cores: TensorCore, matrix_loads: bool = False) -> None:
    self.target = Target(
      LLVM_DTYPES | {dtypes.float16}, LLVM_OPS, has_local=True,
      limits=Limits(max_local=(64, 64, 64), max_workgroup=256, shared_memory=65536),
      tensor_cores=cores, vector_bits=128, max_vector_lanes=8, matrix_loads=matrix_loads,
    )  # fmt: skip

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return ""


def half_matmul(
  m: int, n: int, k: int, transposed: bool = False, epilogue: bool = False, cast_product: bool = False
) -> tuple[UOp, list[Array], Array]:
  """float16 operands, float32 sum; B may be given as (n, k); an epilogue adds a bias, clips and adds another matrix."""
  i, j, r = loop(m, 0), loop(n, 1), over(k, 2)
  x = param(1, m * k, dtypes.float16).index(i * k + r).load()
  y = param(2, n * k, dtypes.float16).index(j * k + r if transposed else r * n + j).load()
  product = (x * y).cast(dtypes.float32) if cast_product else x.cast(dtypes.float32) * y.cast(dtypes.float32)
  value = product.reduce(Ops.ADD, r)
  rng = np.random.default_rng(m * n + k)
  a, b = (rng.integers(-8, 9, shape).astype(np.float16) / 4 for shape in ((m, k), (n, k) if transposed else (k, n)))
  arrays: list[Array] = [garbage(m, n), a, b]
  expected = a.astype(np.float32) @ (b.T if transposed else b).astype(np.float32)
  if epilogue:
    value = value + param(3, n).index(j).load()
    value = value.maximum(value.const_like(0.0)) + param(4, m * n).index(j * m + i).load()
    arrays += [data(n, seed=2), data(n, m, seed=3)]
    expected = np.maximum(expected + arrays[3], 0) + arrays[4].T
  return kernel(param(0, m * n).index(i * n + j).store(value).end(i, j)), arrays, expected


def run(given: tuple[UOp, list[Array], Array], opts: Sequence[Opt], *cores: TensorCore) -> UOp:
  body, arrays, expected = given
  with Context(SPEC=2):
    program = compile_kernel(body, Tensors(*cores), opts)
  flat: list[Any] = [a.ravel().astype(float) for a in arrays]
  run_workgroups(program, flat)
  np.testing.assert_allclose(flat[0].reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
  assert any(u.op is Ops.MMA for u in program.src[1].src)
  return program


def case(name: str, *sizes: int) -> tuple[UOp, list[Array], Array]:
  made = CASES[name](*sizes)
  return made.kernel, list(made.arrays), made.expected


def tc(*arg: int, axis: int = 2) -> Opt:
  return Opt(OptOps.TC, axis, arg[0] if len(arg) == 1 else arg or None)


def stage(*loops: int, slot: int = 1) -> Opt:
  return Opt(OptOps.STAGE, slot, loops)


# *** descriptors ***


@pytest.mark.parametrize("core", [M16N8K8, M16N8K16], ids=str)
def test_layouts_are_those_of_the_ptx_manual(core: TensorCore) -> None:
  assert core.elements == ((4, 2, 4) if core is M16N8K8 else (8, 4, 4))
  for lane in range(32):
    group, in_group = lane >> 2, lane % 4
    for i in range(core.a.count):
      row = group if i in (0, 1, 4, 5) else group + 8
      assert core.a.place(lane, i) == (row, in_group * 2 + (i & 1) + (8 if i >= 4 else 0))
    for i in range(core.b.count):
      assert core.b.place(lane, i) == (in_group * 2 + (i & 1) + (8 if i >= 2 else 0), group)
    for i in range(core.c.count):
      assert core.c.place(lane, i) == (group if i < 2 else group + 8, in_group * 2 + (i & 1))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"threads": 16}, "fragment a is spread over 32 threads, expected 16"),
    ({"dims": (8, 16, 16)}, "fragment a does not cover the places of a matrix of 16 × 16"),
    ({"c": replace(C_LAYOUT, elements=((4, 0, 0), (2, 0, 1), (2, 8, 0)))}, "512 elements hold the 128 places"),
  ],
)
def test_descriptors_that_are_wrong(changes: dict[str, Any], message: str) -> None:
  with pytest.raises(ValueError, match=message):
    replace(M16N8K8, **changes)


def test_text_of_a_program() -> None:
  linear = compile_kernel(half_matmul(16, 8, 16)[0], Tensors(M16N8K8), [tc()]).src[1]
  spec.check(linear, "program")
  assert parse_uop(print_uop(linear)) is linear


# *** results ***


@pytest.mark.parametrize("core", [M16N8K8, M16N8K16], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(16, 8, 16), (32, 16, 48), (16, 24, 32)])
def test_matmul(core: TensorCore, m: int, n: int, k: int) -> None:
  program = run(half_matmul(m, n, k), [tc()], core)
  assert [int(s.arg) for s in program.src[4].src] == [32, 1, 1]
  assert int(program.src[5].src[0].arg) == 2 * m * n * k


@pytest.mark.parametrize("core", [M16N8K8, M16N8K16], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_epilogue_and_transposed_operand(core: TensorCore, transposed: bool) -> None:
  run(half_matmul(32, 16, 32, transposed, epilogue=True), [tc()], core)


def test_product_in_the_narrow_type() -> None:
  run(half_matmul(16, 8, 16, cast_product=True), [tc()], M16N8K16)


@pytest.mark.parametrize(("m", "n", "k"), [(3, 2, 2), (6, 4, 10), (9, 8, 6)])
@pytest.mark.parametrize("name", ["matmul", "linear"])
def test_made_up_core(name: str, m: int, n: int, k: int) -> None:
  run(case(name, m, n, k), [tc()], ODD)


def test_rows_and_columns_change_places() -> None:
  # the output is 8 × 16: only its transpose fits
  run(half_matmul(8, 16, 8), [tc(0, 1, 0)], M16N8K8)
  with pytest.raises(KernelOptError, match=r"loop 0 \(rows\) has extent 8, expected a multiple of 16: PADTO first"):
    run(half_matmul(8, 16, 8), [tc()], M16N8K8)


def test_first_core_that_fits() -> None:
  program = run(half_matmul(16, 8, 24), [tc()], M16N8K16, M16N8K8)
  assert {u.arg for u in program.src[1].src if u.op is Ops.MMA} == {M16N8K8}


def test_batch_and_second_reduce_loop() -> None:
  batch, i, j, s, r = loop(2, 0), loop(6, 1), loop(4, 2), over(3, 3), over(4, 4)
  a = param(1, 2 * 3 * 6 * 4).index(((batch * 3 + s) * 6 + i) * 4 + r).load()
  b = param(2, 2 * 3 * 4 * 4).index(((batch * 3 + s) * 4 + r) * 4 + j).load()
  store = param(0, 48).index((batch * 6 + i) * 4 + j).store((a * b).reduce(Ops.ADD, s, r)).end(batch, i, j)
  x, y = data(2, 3, 6, 4), data(2, 3, 4, 4, seed=1)
  run((kernel(store), [garbage(2, 6, 4), x, y], np.einsum("bsir,bsrj->bij", x, y)), [tc(axis=4)], ODD)


def test_two_outputs_of_one_product() -> None:
  i, j, r = loop(6, 0), loop(4, 1), over(4, 2)
  value = (param(2, 24).index(i * 4 + r).load() * param(3, 16).index(r * 4 + j).load()).reduce(Ops.ADD, r)
  ends = [param(slot, 24).index(i * 4 + j).store(value * scale).end(i, j) for slot, scale in ((0, 1.0), (1, 2.0))]
  x, y = data(6, 4), data(4, 4, seed=1)
  run((kernel(*ends), [garbage(6, 4), garbage(6, 4), x, y], x @ y), [tc()], ODD)


@pytest.mark.parametrize(
  "opts",
  [
    [Opt(OptOps.UPCAST, 0, 2), Opt(OptOps.UPCAST, 1, 2)],
    [Opt(OptOps.UNROLL, 2, 2)],
    [Opt(OptOps.UNROLL, 2, 0)],
    [Opt(OptOps.LOCAL, 0, 2), Opt(OptOps.LOCAL, 1, 2)],
    [Opt(OptOps.LOCAL, 1, 2), Opt(OptOps.UPCAST, 0, 2), Opt(OptOps.UNROLL, 2, 2)],
    [Opt(OptOps.GROUP, 2, 2)],
    [Opt(OptOps.SWAP, 0, 1)],
  ],
)
@pytest.mark.parametrize("core", [M16N8K8, ODD], ids=str)
def test_other_opts_afterwards(core: TensorCore, opts: list[Opt]) -> None:
  n, m, k = core.dims
  given = half_matmul(4 * m, 4 * n, 4 * k) if core is M16N8K8 else case("linear", 4 * m, 4 * n, 4 * k)
  program = run(given, [tc(), *opts], core)
  if opts[0].op is OptOps.UPCAST:  # a register tile: 2 × 2 accumulators in one loop, fragments shared
    assert sum(u.op is Ops.MMA for u in program.src[1].src) == 4
    assert sum(u.op is Ops.VECTORIZE for u in program.src[1].src) <= 4


def test_additions_are_left_to_the_instruction() -> None:
  for opts in ([], [Opt(OptOps.UNROLL, 2, 2)], [Opt(OptOps.UNROLL, 2, 0)]):
    program = run(case("matmul", 3, 2, 8), [tc(), *opts], ODD)
    floats = [u for u in program.src[1].src if u.op is Ops.ADD and u.dtype.kind == "float"]
    assert floats == []


@pytest.mark.parametrize(("m", "n", "k"), [(17, 8, 16), (16, 11, 16), (16, 8, 13), (21, 13, 35)])
def test_padded(m: int, n: int, k: int) -> None:
  given = half_matmul(m, n, k, epilogue=True)
  opts = [Opt(OptOps.PADTO, axis, size) for axis, size in ((0, 16), (1, 8), (2, 16))]
  run(given, [*opts, tc()], M16N8K16)


def test_padding_is_no_part_of_the_sum() -> None:
  """Both factors are expressions that are not 0 where their loads are gated off."""
  i, j, r = loop(5, 0), loop(3, 1), over(3, 2)
  a, b = param(1, 15).index(i * 3 + r).load() + 1.0, param(2, 9).index(r * 3 + j).load() + 2.0
  x, y = data(5, 3), data(3, 3, seed=1)
  body = kernel(param(0, 15).index(i * 3 + j).store((a * b).reduce(Ops.ADD, r)).end(i, j))
  opts = [Opt(OptOps.PADTO, axis, size) for axis, size in ((0, 3), (1, 2), (2, 2))]
  run((body, [garbage(5, 3), x, y], (x + 1) @ (y + 2)), [*opts, tc()], ODD)


# *** local memory ***


def shared_arrays(program: UOp) -> list[PtrDType]:
  """The types of arrays in local memory."""
  types = [u.dtype for u in program.src[1].src if u.op is Ops.ALLOC]
  return [d for d in types if isinstance(d, PtrDType) and d.space is AddrSpace.LOCAL]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("waves", [(1, 1), (2, 1), (2, 2)])
def test_operands_in_near_memory(transposed: bool, waves: tuple[int, int]) -> None:
  """Kept before the tensor core takes the loops apart, filled by all threads together, read by fragments."""
  order = (4, 5) if transposed else (5, 4)
  opts = [Opt(OptOps.SPLIT, 0, 32), Opt(OptOps.SPLIT, 1, 16), Opt(OptOps.SPLIT, 2, 16), Opt(OptOps.STAGE, 1, (3, 5))]
  opts += [Opt(OptOps.STAGE, 2, order), Opt(OptOps.TC, 5, (0, 3, 4))]
  opts += [Opt(OptOps.LOCAL, loop, n) for loop, n in zip((3, 4), waves) if n > 1]
  program = run(half_matmul(64, 32, 48, transposed, epilogue=True), opts, M16N8K16)
  assert len(shared_arrays(program)) == 2


def scaled_square(m: int, n: int, k: int) -> tuple[UOp, list[Array], Array]:
  """(x * s) xᵀ, of which each operand reads the same memory."""
  i, j, r = loop(m, 0), loop(n, 1), over(k, 2)
  x, y = (param(1, max(m, n) * k).index(row * k + r).load() for row in (i, j))
  value = (x * param(2, k).index(r).load() * y).reduce(Ops.ADD, r)
  a, s = data(max(m, n), k), data(k, seed=1)
  return kernel(param(0, m * n).index(i * n + j).store(value).end(i, j)), [garbage(m, n), a, s], (a[:m] * s) @ a[:n].T


def batched(size: int, m: int, n: int, k: int) -> tuple[UOp, list[Array], Array]:
  b, i, j, r = loop(size, 0), loop(m, 1), loop(n, 2), over(k, 3)
  x, y = (
    param(1, size * m * k).index((b * m + i) * k + r).load(),
    param(2, size * n * k).index((b * k + r) * n + j).load(),
  )
  body = kernel(param(0, size * m * n).index((b * m + i) * n + j).store((x * y).reduce(Ops.ADD, r)).end(b, i, j))
  left, right = data(size, m, k), data(size, k, n, seed=1)
  return body, [garbage(size, m, n), left, right], left @ right


@pytest.mark.parametrize("size", [32, 36])
def test_operands_that_read_the_same_memory(size: int) -> None:
  product = scaled_square(size, size, size)
  opts = choose_opts(before_opts(product[0]), Tensors(FLOATS).target)
  assert [(o.op, o.axis) for o in opts].count((OptOps.STAGE, 1)) == 2
  run(product, opts, FLOATS)


ANY = [case("matmul", 4, 6, 4), case("matmul", 6, 6, 8), case("reduce_rows", 4, 12), case("softmax", 4, 6),
       scaled_square(6, 6, 4), scaled_square(4, 6, 8), batched(2, 4, 6, 4), batched(3, 2, 2, 4)]  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(which=st.sampled_from(ANY), choices=st.data(), backwards=st.booleans())
def test_any_opts(which: tuple[UOp, list[Array], Array], choices: st.DataObject, backwards: bool) -> None:
  """Opts of tiles, of threads and of what they share give the right result, or are refused."""
  (body, arrays, expected), renderer = which, Tensors(ODD, ALONE)
  with Context(SPEC=2):
    opts = choices.draw(opts_for(before_optimising(body, renderer.target), renderer.target))
    program = compile_kernel(body, renderer, opts)
  flat: list[Any] = [a.ravel().astype(float) for a in arrays]
  run_workgroups(program, flat, backwards=backwards)
  np.testing.assert_allclose(flat[0].reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)


def test_what_is_widened_is_kept_narrow() -> None:
  opts = [Opt(OptOps.SPLIT, 2, 16), Opt(OptOps.STAGE, 1, (0, 3)), Opt(OptOps.TC, 3, 0)]
  program = run(half_matmul(16, 8, 32), opts, M16N8K16)
  near = shared_arrays(program)
  # 16 rows of 16 numbers, 32 bytes, and 16 bytes between them: eight rows that are read at once meet in no bank
  assert [d.base for d in near] == [dtypes.float16] and near[0].size == 2 * 16 * 24  # and there are two copies


@pytest.mark.parametrize(("m", "n", "k", "transposed"), [(32, 64, 32, True), (64, 64, 64, False), (33, 20, 40, False)])
def test_heuristics_choose_them(m: int, n: int, k: int, transposed: bool) -> None:
  given = half_matmul(m, n, k, transposed, epilogue=True)
  opts = choose_opts(before_opts(given[0]), Tensors(M16N8K8, M16N8K16).target)
  assert [o.op for o in opts].count(OptOps.STAGE) == 2 and OptOps.TC in [o.op for o in opts]
  run(given, opts, M16N8K8, M16N8K16)


def test_large_products_get_large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
  target = Tensors(M16N8K16).target
  large = choose_opts(before_opts(half_matmul(4096, 4096, 4096)[0]), target)
  assert [o.arg for o in large if o.op is OptOps.SPLIT] == [128, 128, 32]
  assert [o.arg for o in large if o.op is OptOps.LOCAL] == [2, 2]
  monkeypatch.setattr(tensor_cores, "ENOUGH", 1)
  given = half_matmul(64, 64, 32)
  opts = choose_opts(before_opts(given[0]), target)
  assert [o.arg for o in opts if o.op is OptOps.LOCAL] == [2, 2]
  run(given, opts, M16N8K16)


def test_beam_search_tries_tensor_cores() -> None:
  root = CASES["matmul"](6, 4, 4).kernel
  assert [o for o in candidates(root, Tensors(ODD, ALONE).target) if o.op is OptOps.TC] == [tc(0), tc(1)]


# *** errors ***


@pytest.mark.parametrize(
  ("name", "sizes", "opts", "message"),
  [
    ("matmul", (4, 4, 4), [tc()], r"TC\(axis=2, arg=None\): .*loop 0 \(rows\) has extent 4, expected a multiple of 3"),
    ("matmul", (3, 5, 4), [tc()], r"loop 1 \(columns\) has extent 5, expected a multiple of 2: PADTO first"),
    ("matmul", (3, 4, 5), [tc()], r"loop 2 \(sum\) has extent 5, expected a multiple of 2: PADTO first"),
    ("matmul", (3, 4, 4), [tc(1)], r"no tensor core 1: it lists m3n2k2 float32 → float32"),
    ("matmul", (3, 4, 4), [tc(0, 1)], r"expected a tensor core, or \(tensor core, loop of the rows"),
    ("matmul", (3, 4, 4), [tc(0, 0, 0)], r"expected an output loop among loops \(0, 0\) for each factor"),
    ("matmul", (3, 4, 4), [tc(axis=9)], r"the kernel has no loop 9; its loops are \[0, 1, 2\]"),
    ("matmul", (3, 4, 4), [tc(axis=1)], r"loop 1 is a LOOP loop, expected a REDUCE loop"),
    ("matmul", (3, 4, 4), [tc(), tc()], r"the kernel uses tensor cores already"),
    ("matmul", (3, 4, 4), [Opt(OptOps.LOCAL, 1, 2), tc()], r"loops \[3\] are shared by the threads .*: TC comes first"),
    ("matmul", (3, 4, 4), [tc(), Opt(OptOps.VECTOR, 1, 2)], r"loop 1 is around a tensor-core instruction"),
    (
      "matmul",
      (3, 4, 4),
      [stage(2), tc()],
      r"iteration of loop 0 fills the same local memory: STAGE has to be over that",
    ),
    (
      "matmul",
      (3, 4, 4),
      [stage(0), tc()],
      r"iteration of loop 2 fills the same local memory: STAGE has to be over that",
    ),
    ("matmul", (3, 4, 4), [stage(2), stage(0, 2)], r"filled from local memory, .*: expected one STAGE of each"),
    (
      "matmul",
      (3, 4, 4),
      [stage(0, 2), stage(1, slot=2), Opt(OptOps.LOCAL, 0, 3), Opt(OptOps.GROUP, 2, 2)],
      r"loop 2 fills the same .*: GROUP comes first",
    ),
    ("reduce_rows", (3, 4), [tc(axis=1)], r"expected the sum of a product, got REDUCE\(ADD, LOAD\)"),
    ("reduce_all", (3, 5), [tc(axis=0)], r"expected an output loop for each factor that the other does not depend on"),
    ("softmax", (3, 4), [tc()], r"got REDUCE\(MAX, LOAD\)"),
  ],
)
def test_what_does_not_fit(name: str, sizes: tuple[int, ...], opts: list[Opt], message: str) -> None:
  renderer = Tensors(ODD)
  renderer.target = replace(renderer.target, max_vector_lanes=4)
  with pytest.raises(KernelOptError, match=message):
    compile_kernel(CASES[name](*sizes).kernel, renderer, opts)


def test_types_that_do_not_fit() -> None:
  with pytest.raises(KernelOptError, match=r"m16n8k8 .*: a factor is a float32, expected float16"):
    compile_kernel(CASES["matmul"](16, 8, 8).kernel, Tensors(M16N8K8), [tc()])
  with pytest.raises(KernelOptError, match=r"the sum is a float32, expected float16; .*the sum is a float32, expected"):
    cores = [replace(core, dtype_out=dtypes.float16) for core in (M16N8K8, M16N8K16)]
    compile_kernel(half_matmul(16, 8, 16)[0], Tensors(*cores), [tc()])


def test_targets_that_do_not_fit() -> None:
  renderer = Tensors(M16N8K8)
  given, target = half_matmul(16, 8, 8)[0], renderer.target
  for changes, message in (
    ({"has_local": False}, "the target has no workgroups"),
    ({"limits": replace(target.limits, max_workgroup=16)}, "32 threads, the target has workgroups of up to 16"),
    ({"native_dtypes": LLVM_DTYPES}, "the target has no registers of float16"),
  ):
    renderer.target = replace(target, **changes)
    with pytest.raises(KernelOptError, match=message):
      compile_kernel(given, renderer, [tc()])


# *** renderers ***


def test_renderers_without_the_instruction(renderer: Renderer) -> None:
  program = compile_kernel(CASES["matmul"](4, 4, 4).kernel, Tensors(ALONE), [tc()])
  for other in (renderer, CRenderer()):
    with pytest.raises(NotImplementedError, match="has no tensor-core instruction m2n2k2 float32 → float32"):
      other.render(program.src[1], program.arg)


FUNCTION = """
static inline void multiply(float* d0, float* d1, float* d2, float* d3, float a0, float a1, float a2, float a3,
                            float b0, float b1, float b2, float b3, float c0, float c1, float c2, float c3) {
  *d0 = a0 * b0 + a2 * b1 + c0; *d1 = a1 * b0 + a3 * b1 + c1;
  *d2 = a0 * b2 + a2 * b3 + c2; *d3 = a1 * b2 + a3 * b3 + c3;
}
"""


def test_dialect_with_the_instruction(tmp_path: Any) -> None:
  dialect = replace(C99, header=(*C99.header, FUNCTION), tensor_cores=((ALONE, "multiply"),))
  dialect = dialect.with_target(
    has_local=True, limits=Limits(max_local=(8, 1, 1), max_workgroup=8), tensor_cores=(ALONE,)
  )
  made = CASES["matmul"](4, 6, 8)
  program = compile_kernel(made.kernel, CRenderer(dialect), [tc()])
  assert "multiply(&v" in program.src[2].arg
  if (compiler := shutil.which("cc")) is None:
    pytest.skip("no C compiler to run the program with")
  (tmp_path / "k.c").write_text(program.src[2].arg)
  subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", tmp_path / "k.so", tmp_path / "k.c"], check=True)
  arrays = [np.ascontiguousarray(a).copy() for a in made.arrays]
  buffers = (ctypes.c_void_p * 3)(*[a.ctypes.data for a in arrays])
  zero = ctypes.c_int64(0)
  getattr(ctypes.CDLL(str(tmp_path / "k.so")), function_name(program.arg.name))(buffers, None, zero, ctypes.c_int64(1))
  np.testing.assert_allclose(arrays[0], made.expected, rtol=1e-4, atol=1e-4)


# *** fragments that a warp loads together ***


def staged(m: int, n: int, k: int, *orders: tuple[int, int]) -> list[Opt]:
  """Tiles of 16 × 16 with both operands in local memory, for 16 steps of the sum at a time."""
  sizes = (m, n, k)
  padding = [Opt(OptOps.PADTO, axis, 16) for axis in range(3) if sizes[axis] % 16]
  split = [Opt(OptOps.SPLIT, axis, 16) for axis in range(3)]
  return [*padding, *split, Opt(OptOps.STAGE, 1, orders[0]), Opt(OptOps.STAGE, 2, orders[1])]


def loads(program: UOp) -> set[tuple[int, bool]]:
  found = [u.arg for u in program.src[1].src if u.op is Ops.LOAD]
  return {(arg.matrices, arg.transposed) for arg in found if isinstance(arg, MatrixLoad)}


@pytest.mark.parametrize(
  ("core", "orders", "expected"),
  [
    (M16N8K16, ((3, 5), (4, 5)), {(4, False), (2, False)}),
    (M16N8K16, ((5, 3), (5, 4)), {(4, True), (2, True)}),
    (M16N8K8, ((3, 5), (5, 4)), {(2, False), (1, True)}),
  ],
)
def test_fragments_are_loaded_as_matrices(
  core: TensorCore, orders: tuple[tuple[int, int], ...], expected: set[tuple[int, bool]]
) -> None:
  for sizes in ((32, 32, 48), (24, 40, 40)):  # edges are zeros in local memory, and no gates
    body, arrays, result = half_matmul(*sizes)
    with Context(SPEC=2):
      program = compile_kernel(
        body, Tensors(core, matrix_loads=True), [*staged(*sizes, *orders), Opt(OptOps.TC, 5, (0, 3, 4))]
      )
    assert loads(program) == expected
    flat: list[Any] = [a.ravel().astype(float) for a in arrays]
    run_workgroups(program, flat)
    np.testing.assert_allclose(flat[0].reshape(result.shape), result, rtol=1e-4, atol=1e-4)


def test_what_is_no_matrix_is_loaded_by_each_thread() -> None:
  """Without local memory, or with a computation that comes after it, or without the instruction."""
  body = half_matmul(32, 32, 48)[0]
  opts = [*staged(32, 32, 48, (3, 5), (4, 5)), Opt(OptOps.TC, 5, (0, 3, 4))]
  assert not loads(compile_kernel(body, Tensors(M16N8K16), opts))
  assert not loads(compile_kernel(body, Tensors(M16N8K16, matrix_loads=True), [tc()]))


# *** tensor cores that read local memory themselves ***

# PTX ISA, "Register fragments for wgmma.mma_async.m64nNk16", matrix D, of one warp
SHARED = TensorCore(
  (64, 16, 16), 32, dtypes.float16, dtypes.float32, Fragment((), ()), Fragment((), ()),
  c=Fragment(((4, 0, 2), (8, 1, 0)), ((2, 0, 1), (2, 8, 0), (8, 0, 8))), shared=(SharedOperand(), SharedOperand()),
)  # fmt: skip


def shared_tiles(turned: bool, columns: int = 64) -> list[Opt]:
  """Tiles of 16 (turned: 64) rows, and columns, of which 64 steps of the sum are in local memory."""
  sizes = (64 if turned else 16, columns, 64)
  split = [Opt(OptOps.SPLIT, axis, size) for axis, size in enumerate(sizes)]
  return [
    *split,
    Opt(OptOps.STAGE, 1, (5, 3) if turned else (3, 5)),
    Opt(OptOps.STAGE, 2, (5, 4) if turned else (4, 5)),
  ]


@pytest.mark.parametrize("turned", [False, True])
def test_operands_that_the_core_reads_itself(turned: bool) -> None:
  """Along the sum, or along rows and columns, several blocks of them."""
  body, arrays, result = half_matmul(64, 128, 128, transposed=not turned)
  opts = [*shared_tiles(turned, columns=128), Opt(OptOps.TC, 5, (0, 3, 4)), Opt(OptOps.UPCAST, 4, 0)]
  with Context(SPEC=2):
    program = compile_kernel(body, Tensors(SHARED), [*opts, Opt(OptOps.UNROLL, 5, 0)])
  found = {u.arg.shared for u in program.src[1].src if u.op is Ops.MMA}
  assert found == {
    (
      SharedOperand(not turned, 64 * 128 if turned else 16 * 128),
      SharedOperand(not turned, (64 if turned else 128) * 128),
    )
  }
  flat: list[Any] = [a.ravel().astype(float) for a in arrays]
  run_workgroups(program, flat)
  np.testing.assert_allclose(flat[0].reshape(result.shape), result, rtol=1e-4, atol=1e-4)


def test_operands_that_are_not_in_near_memory() -> None:
  body = half_matmul(64, 128, 128)[0]
  short = [Opt(OptOps.SPLIT, 2, 16), Opt(OptOps.STAGE, 1, (3,)), Opt(OptOps.STAGE, 2, (3,)), tc(0, 0, 1, axis=3)]
  for opts in ([tc(0, 0, 1)], short):
    with pytest.raises(KernelOptError, match="a factor is not in local memory in rows of a multiple of 128 bytes"):
      compile_kernel(body, Tensors(SHARED), opts)
