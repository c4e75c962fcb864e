"""Writes `ptxas.md`: what the standard kernels take of each architecture's hardware, as ptxas says.

`hatch run ptxas:table` writes it anew; `git diff` shows what a change of the code generator did.
"""

from __future__ import annotations

import re
from pathlib import Path

from nv_assembler import assemble

from tiny_codegen import compile_kernel
from tiny_runtime.conformance.standard import STANDARD
from tiny_runtime_nv import Arch, NVCompiler, ptxas
from tiny_runtime_nv.target import PTXRenderer

TABLE = Path(__file__).parents[1] / "ptxas.md"
SHOWN = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
PATTERNS = {
  "mma": r"\bmma\.sync",
  "wgmma": r"wgmma\.mma_async",
  "cp.async": r"cp\.async\.cg",
  "ldmatrix": r"ldmatrix",
  "wide loads": r"ld\.global[.a-z0-9]*\.v[24]",
  "wide stores": r"st\.global\.v[24]",
}
HEAD = """# What ptxas makes of the standard kernels

Registers of a thread, bytes of shared memory, bytes spilled, threads of a workgroup, and instructions in the PTX (in
both bodies, for aligned buffers and for others). Kernels: `tiny_runtime.conformance.standard`.

Written by `hatch run ptxas:table`.
"""


def row(name: str, arch: Arch) -> str:
  """One kernel on one architecture."""
  program = compile_kernel(STANDARD[name](), PTXRenderer(arch))
  binary = NVCompiler(arch).assemble(program)
  report, text = assemble(binary.code, arch.name), binary.code.decode()
  threads = "×".join(str(size.arg) for size in binary.local_size)
  counts = [len(re.findall(pattern, text)) for pattern in PATTERNS.values()]
  cells = [name, report.registers, report.shared, report.spilled, threads, *counts]
  return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
  """Write the table."""
  lines = [HEAD, f"{ptxas.version()}\n"]
  for arch in SHOWN:
    columns = ["kernel", "registers", "shared", "spilled", "threads", *PATTERNS]
    lines += [f"## {arch}\n", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += [row(name, Arch.parse(arch)) for name in STANDARD] + [""]
  TABLE.write_text("\n".join(lines))


if __name__ == "__main__":
  main()
