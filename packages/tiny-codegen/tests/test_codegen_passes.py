"""Every pass as text in, text out: the files in `golden/`, which `UPDATE_GOLDEN=1` writes anew.

Options of a file: `pass`, `shows` (what to look at), `target` (one of TARGETS) and `opts` (optimisations, which only
the pass `optimise` needs).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_codegen import PASSES, Fragment, Limits, PassContext, Target, TensorCore, cpu_target
from tiny_codegen.__main__ import parse_opt
from tiny_codegen.render.llvm.target import LLVM_DTYPES, LLVM_OPS
from tiny_uop import Ops, dtypes, parse_uop, print_uop, spec
from tiny_uop.text.golden import GoldenCase, golden_cases

CASES = golden_cases(Path(__file__).parent / "golden")
TARGETS = {
  "avx2": cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+sse4.1")).target,
  "sse2": cpu_target("x86_64-linux").target,
  "vnni": cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+sse4.1", "+avxvnni")).target,
  "arm": cpu_target("aarch64-linux", "", ("+neon",)).target,
  "i8mm": cpu_target("aarch64-linux", "", ("+neon", "+dotprod", "+i8mm")).target,
  "amx": cpu_target(
    "x86_64-linux",
    "",
    ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl", "+amx-tile", "+amx-bf16", "+amx-int8"),
  ).target,
  "gpu": Target(
    LLVM_DTYPES, LLVM_OPS, has_local=True, limits=Limits(max_local=(64, 64, 64), max_workgroup=256, shared_memory=65536)
  ),
}
# 2 × 2 × 2, two threads with a row of A, a column of B and a row of C each
SMALL_CORE = TensorCore(
  (2, 2, 2), 2, dtypes.float32, dtypes.float32,
  a=Fragment(((2, 1, 0),), ((2, 0, 1),)),
  b=Fragment(((2, 0, 1),), ((2, 1, 0),)),
  c=Fragment(((2, 1, 0),), ((2, 0, 1),)),
)  # fmt: skip
TARGETS["waves"] = replace(TARGETS["gpu"], subgroup=4)
TARGETS["tensor"] = replace(TARGETS["gpu"], tensor_cores=(SMALL_CORE,))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: GoldenCase) -> None:
  step = next(p for p in PASSES if p.name == case.options["pass"])
  opts = tuple(parse_opt(o) for o in case.options["opts"].split()) if "opts" in case.options else None
  given = parse_uop(case.given)
  spec.check(given, "program" if given.op is Ops.LINEAR else "kernel")
  result = step.run(given, PassContext(TARGETS[case.options["target"]], opts))
  spec.check(result, step.gives or "kernel")
  case.check(print_uop(result))


def test_every_pass_has_a_typical_case_and_another() -> None:
  counts = Counter(case.options["pass"] for case in CASES)
  assert counts.keys() == {p.name for p in PASSES}
  assert {name: count for name, count in counts.items() if count < 2} == {}


def test_cases_say_what_they_show() -> None:
  assert [case.path.name for case in CASES if not case.options.get("shows")] == []
  assert [case.path.name for case in CASES if not case.path.name.startswith(case.options["pass"] + "-")] == []
