"""Every pass as text in, text out. `UPDATE_GOLDEN=1 pytest packages/tiny-codegen/tests/test_codegen_passes.py` writes
the expectations anew.

A file in `golden/` is: lines `# pass:`, `# target:` and `# opts:`, the kernel, a line `# expected`, and what the pass
makes of it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_codegen import PASSES, Capabilities, Fragment, PassContext, TensorCore, cpu_target
from tiny_codegen.__main__ import parse_opt
from tiny_codegen.render.llvm_target import LLVM_DTYPES, LLVM_OPS
from tiny_uop import dtypes, parse_uop, print_uop, spec

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.uop"))
TARGETS = {
  "avx2": cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma", "+sse4.1")).capabilities,
  "sse2": cpu_target("x86_64-linux").capabilities,
  "gpu": Capabilities(
    LLVM_DTYPES, LLVM_OPS, has_local=True, max_local=(64, 64, 64), max_workgroup=256, shared_memory_bytes=65536
  ),
}
# 2 × 2 × 2, two threads with a row of A, a column of B and a row of C each
SMALL_CORE = TensorCore(
  (2, 2, 2), 2, dtypes.float32, dtypes.float32,
  a=Fragment(((2, 1, 0),), ((2, 0, 1),)),
  b=Fragment(((2, 0, 1),), ((2, 1, 0),)),
  c=Fragment(((2, 1, 0),), ((2, 0, 1),)),
)  # fmt: skip
TARGETS["tensor"] = replace(TARGETS["gpu"], tensor_cores=(SMALL_CORE,))
EXPECTED = "# expected\n"


def header(text: str) -> dict[str, str]:
  lines = [line[2:].split(": ", 1) for line in text.split("tiny-uop", 1)[0].splitlines()]
  return {line[0]: line[1] for line in lines if len(line) == 2}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_pass(file: Path) -> None:
  given, _, expected = file.read_text().partition(EXPECTED)
  about = header(given)
  step = next(p for p in PASSES if p.name == about["pass"])
  opts = tuple(parse_opt(o) for o in about["opts"].split()) if "opts" in about else None
  result = step.run(parse_uop(given), PassContext(TARGETS[about["target"]], opts))
  spec.check(result, "program" if step.program else "kernel")
  if os.environ.get("UPDATE_GOLDEN"):
    file.write_text(given + EXPECTED + print_uop(result))
  else:
    assert print_uop(result) == expected


def test_every_pass_has_a_golden_test() -> None:
  assert {header(f.read_text())["pass"] for f in FILES} == {p.name for p in PASSES}
