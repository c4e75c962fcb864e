"""`compile_kernel`: what a program consists of, errors, settings, the beam search and the command line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_kernels import CASES, check, data, garbage, kernel, loop, param

from tiny_codegen import KernelError, KernelOptError, PassContext, build_program, compile_kernel, run_passes
from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.beam import beam_search
from tiny_codegen.staging.stage import is_roomy, lower_stage
from tiny_codegen.target import Limits
from tiny_uop import (
  AddrSpace,
  Context,
  KernelInfo,
  Ops,
  Opt,
  OptOps,
  ParamInfo,
  UOp,
  dtypes,
  parse_uop,
  print_uop,
  simplify,
  spec,
)


def test_program(renderer: Any) -> None:
  program = compile_kernel(CASES["matmul"](8, 32, 12).kernel, renderer, [])
  assert [s.op for s in program.src] == [Ops.SINK, Ops.LINEAR, Ops.SOURCE, Ops.GROUP, Ops.GROUP, Ops.GROUP]
  assert program.arg.name == "matmul"
  assert program.arg.params == (
    ParamInfo(0, dtypes.float32, 8 * 32, written=True, read=False),
    ParamInfo(1, dtypes.float32, 8 * 12, written=False, read=True),
    ParamInfo(2, dtypes.float32, 12 * 32, written=False, read=True),
  )
  operations, nbytes = program.src[5].src
  assert operations.arg == 2 * 8 * 32 * 12
  assert nbytes.arg == 4 * (8 * 32 + 8 * 12 + 12 * 32)
  spec.check(program, "program")
  assert parse_uop(print_uop(program)) is program


@pytest.mark.parametrize("opts", [[], None])
def test_estimates_do_not_depend_on_vectors(opts: list[Opt] | None, renderer: Any) -> None:
  operations, nbytes = compile_kernel(CASES["elementwise"](8, 64).kernel, renderer, opts).src[5].src
  assert (operations.arg, nbytes.arg) == (2 * 8 * 64, 3 * 4 * 8 * 64)


def test_a_buffer_read_twice_counts_once(renderer: Any) -> None:
  i = loop(8, 0)
  x = param(1, 8).index(i).load() + param(1, 8).index(i * -1 + 7).load()
  program = compile_kernel(kernel(param(0, 8).index(i).store(x).end(i)), renderer, [])
  assert program.src[5].src[1].arg == 4 * 8 * 2


def test_kernel_keeps_its_own_opts(renderer: Any) -> None:
  given = (Opt(OptOps.UPCAST, 1, 2),)
  case = CASES["matmul"]()
  program = compile_kernel(case.kernel.replace(arg=KernelInfo("mine", given)), renderer)
  assert program.src[1].arg == KernelInfo("mine", given)


def test_noopt(renderer: Any) -> None:
  with Context(NOOPT=1):
    program = compile_kernel(CASES["matmul"](64, 64, 64).kernel, renderer)
  assert program.src[1].arg.opts == ()
  assert all(u.dtype.count == 1 for u in program.src[1].src)


def test_matrix_products_get_a_register_tile(renderer: Any) -> None:
  opts = {o.op for o in compile_kernel(CASES["matmul"](64, 64, 64).kernel, renderer).src[1].arg.opts}
  assert opts >= {OptOps.VECTOR, OptOps.UPCAST, OptOps.THREAD}


def test_deterministic() -> None:
  code = """
import sys
sys.path.insert(0, sys.argv[1])
from codegen_kernels import CASES
from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import print_uop
for name in CASES:
  renderer = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma")))
  print(print_uop(compile_kernel(CASES[name]().kernel, renderer)))
"""
  import pathlib

  here = str(pathlib.Path(__file__).parent)
  outputs = set()
  for seed in ("1", "2"):
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "PATH": ""}
    outputs.add(
      subprocess.run(
        [sys.executable, "-c", code, here], env=environment, capture_output=True, check=True, text=True
      ).stdout
    )
  assert len(outputs) == 1 and len(outputs.pop()) > 10000


# *** memory order ***


def test_reads_come_before_overwriting(run_kernel: Any) -> None:
  x = data(40)
  for opts in (None, [], [Opt(OptOps.UPCAST, 0, 4)], [Opt(OptOps.VECTOR, 0, 8)]):
    results = run_kernel(CASES["two_outputs"]().kernel, [x, garbage(40)], opts)
    np.testing.assert_array_equal(results[0], x * 2)
    np.testing.assert_array_equal(results[1], x + 1)


def test_effects_in_order(run_kernel: Any) -> None:
  """A loop that reads what an earlier loop of the kernel has written, over the same RANGE."""
  i = loop(16, 0)
  first = param(0, 16).index(i).store(param(1, 16).index(i).load() * 2.0).end(i)
  second = param(2, 16).index(i).store(param(0, 16).after(first).index(i * -1 + 15).load()).end(i)
  x = data(16)
  for opts in (None, [], [Opt(OptOps.VECTOR, 0, 8)]):
    results = run_kernel(kernel(second), [garbage(16), x, garbage(16)], opts)
    np.testing.assert_array_equal(results[2], (x * 2)[::-1])


def test_a_loop_that_goes_on_with_what_it_left(run_kernel: Any, renderer: Any) -> None:
  """A running sum in a register of the kernel's own: no lanes, threads or copies of the loop's body are chosen."""
  i, total = loop(64, 0), UOp.alloc(0, dtypes.float32.ptr(1, AddrSpace.REG))
  kept = total.after(total.index(0).store(0.0), i)
  added = kept.index(0).store(kept.index(0).load() + param(1, 64).index(i).load())
  running = kernel(param(0, 64).index(i).store(total.after(added).index(0).load()).end(i))
  x = data(64)
  np.testing.assert_allclose(run_kernel(running, [garbage(64), x])[0], np.cumsum(x), rtol=1e-5)

  def measure(program: UOp) -> float:
    raise AssertionError("nothing to search for")

  with Context(BEAM=2):
    assert compile_kernel(running, renderer, measure=measure).src[1].arg.opts == ()


def test_same_loop_in_a_reduction_and_around_it(run_kernel: Any) -> None:
  i = loop(12, 0)
  x = param(1, 12).index(i).load()
  k = i
  out = param(0, 12).index(i).store(x - x.reduce(Ops.MAX, k)).end(i)
  values = data(12)
  np.testing.assert_allclose(run_kernel(kernel(out), [garbage(12), values])[0], values - values.max())


# *** errors ***


@pytest.mark.parametrize(
  ("opt", "message"),
  [
    (Opt(OptOps.UPCAST, 9, 2), r"UPCAST\(axis=9, arg=2\): the kernel has no loop 9; its loops are \[0, 1, 2\]"),
    (Opt(OptOps.UPCAST, 0, 3), r"UPCAST\(axis=0, arg=3\): the extent 8 of loop 0 is not a multiple of 3: PADTO first"),
    (Opt(OptOps.UPCAST, 2, 2), r"loop 2 is a REDUCE loop, expected a LOOP loop"),
    (Opt(OptOps.UNROLL, 0, 2), r"loop 0 is a LOOP loop, expected a REDUCE loop"),
    (Opt(OptOps.VECTOR, 1, 1024), r"1024 lanes, the target has vectors of up to 64"),
    (Opt(OptOps.GROUP, 2, 2), r"the target has no workgroups"),
    (Opt(OptOps.TC, 0), r"the target lists no tensor cores|loop 0 is a LOOP loop, expected a REDUCE loop"),
    (Opt(OptOps.SWAP, 0, 2), r"no END or REDUCE closes both loop 0 and loop 2"),
    (Opt(OptOps.SWAP, 0), r"expected the id of the other loop"),
    (Opt(OptOps.MERGE, 0), r"expected the id of the other loop"),
    (Opt(OptOps.MERGE, 0, 2), r"are no two LOOP or REDUCE loops"),
    (Opt(OptOps.PADTO, 0, 0), r"expected a multiple of 1 or more"),
    (Opt(OptOps.STAGE, 7, (0,)), r"nothing that the kernel reads from PARAM 7 depends on loops \(0,\)"),
    (Opt(OptOps.UPCAST, 0, -2), r"expected an amount that is an int of 0 or more, got -2"),
  ],
)
def test_opts_that_do_not_fit(opt: Opt, message: str, renderer: Any) -> None:
  with pytest.raises(KernelOptError, match=message):
    compile_kernel(CASES["matmul"]().kernel, renderer, [opt])


def test_two_thread_loops(renderer: Any) -> None:
  with pytest.raises(KernelOptError, match="has a THREAD loop already"):
    compile_kernel(CASES["matmul"]().kernel, renderer, [Opt(OptOps.THREAD, 0), Opt(OptOps.THREAD, 1)])


def test_thread_needs_a_loop_around_everything(renderer: Any) -> None:
  i, j = loop(8, 0), loop(8, 1)
  effects = [param(slot, 8).index(r).store(param(2, 8).index(r).load()).end(r) for slot, r in ((0, i), (1, j))]
  with pytest.raises(KernelOptError, match="loop 0 is not around all effects"):
    compile_kernel(kernel(*effects), renderer, [Opt(OptOps.THREAD, 0)])


def test_staged_tile_that_is_too_large(renderer: Any) -> None:
  with pytest.raises(KernelError, match=r"a STAGE of 1048576 × float32 does not fit into \d+ bytes"):
    compile_kernel(CASES["matmul"](4, 1024, 1024).kernel, renderer, [Opt(OptOps.STAGE, 2, (1, 2))])


@pytest.mark.parametrize(
  ("name", "sizes", "opts"),
  (
    ("matmul", (4, 24, 7), (Opt(OptOps.STAGE, 2, (1, 2)),)),
    ("matmul", (4, 9, 3), (Opt(OptOps.STAGE, 2, (2, 1)),)),  # lanes that the last vector has not all of
    ("matmul", (4, 64, 3), (Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.STAGE, 2, (2,)))),
    ("convolution", (2, 5, 1), (Opt(OptOps.STAGE, 1, (1, 2, 4, 5)),)),  # windows
    ("convolution", (2, 18, 4), (Opt(OptOps.UPCAST, 1, 2), Opt(OptOps.STAGE, 1, (2, 3, 4, 5)))),
  ),
)
def test_what_clearly_has_room_fits(name: str, sizes: tuple[int, ...], opts: tuple[Opt, ...], renderer: Any) -> None:
  root = apply_opts(CASES[name](*sizes).kernel, opts, renderer.target)
  targets = [replace(renderer.target, limits=Limits(shared_memory=room)) for room in range(4, 1 << 15, 4)]
  fitting = [is_roomy(root, target) for target in targets]
  least = fitting.index(True)
  assert least > 0 and all(fitting[least:])
  assert Ops.ALLOC in {u.op for u in lower_stage(simplify(root), targets[least]).toposort}
  with pytest.raises(KernelError, match="does not fit"):
    lower_stage(simplify(root), targets[0])


def test_a_loop_that_is_never_closed(renderer: Any) -> None:
  i = loop(4, 0)
  with Context(SPEC=0), pytest.raises(KernelError, match="loop 0 is never closed: no END or REDUCE names it"):
    compile_kernel(kernel(param(0, 4).index(i).store(1.0)), renderer, [])


def test_loops_nested_both_ways_become_two(run_kernel: Any) -> None:
  i, j = loop(4, 0), loop(5, 1)
  stores = [param(slot, 20).index(i * 5 + j).store((i * 10 + j).cast(dtypes.float32)) for slot in (0, 1)]
  results = run_kernel(kernel(stores[0].end(i, j), stores[1].end(j, i)), [garbage(20), garbage(20)], [])
  for result in results:
    np.testing.assert_array_equal(result.reshape(4, 5), np.arange(4)[:, None] * 10 + np.arange(5))


def test_what_is_no_kernel(renderer: Any) -> None:
  with pytest.raises(KernelError, match="expected a kernel, a SINK, got STORE"):
    compile_kernel(param(0, 1).index(0).store(1.0), renderer)
  with pytest.raises(
    KernelError, match="linearise: only clamp_rows, cut_edges, double_buffer, merge_loops, .* are optional"
  ):
    run_passes(CASES["matmul"]().kernel, PassContext(renderer.target), ("linearise",))


@pytest.mark.parametrize("skip", ["merge_loops", "clamp_rows", "peel"])
def test_optional_passes(skip: str, renderer: Any) -> None:
  program = compile_kernel(
    CASES["elementwise"](3, 21).kernel,
    renderer,
    [Opt(OptOps.PADTO, 1, 4)] if skip == "merge_loops" else None,
    skip=[skip],
  )
  spec.check(program, "program")


# *** beam ***


def test_beam_takes_what_is_measured_to_be_fastest(renderer: Any) -> None:
  """A clock that likes one particular optimisation: two steps from nothing."""
  wanted = {Opt(OptOps.UPCAST, 0, 4), Opt(OptOps.VECTOR, 1, 16)}

  def measure(program: UOp) -> float:
    return 1.0 / (1 + len(wanted & set(program.src[1].arg.opts))) + 0.01 * len(program.src[1].arg.opts)

  found, _ = beam_search(CASES["matmul"](8, 32, 12).kernel, renderer, measure, 2, build_program)
  assert wanted == set(found)


def test_beam_survives_candidates_that_fail(renderer: Any, run_kernel: Any) -> None:
  def measure(program: UOp) -> float:
    if any(o.op is OptOps.VECTOR for o in program.src[1].arg.opts):
      raise RuntimeError("does not run")
    return float(len(program.src[1].src))

  case = CASES["matmul"](8, 32, 12)
  with Context(BEAM=1):
    program = compile_kernel(case.kernel, renderer, measure=measure)
  assert all(o.op is not OptOps.VECTOR for o in program.src[1].arg.opts)
  check(case, run_kernel(case.kernel, case.arrays, program.src[1].arg.opts))
