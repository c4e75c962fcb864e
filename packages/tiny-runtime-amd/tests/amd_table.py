"""Writes `registers.md`: what the standard kernels take of each architecture's hardware, as LLVM's metadata say.

`hatch run amd-code:table` writes it anew; `git diff` shows what a change of the code generator did.
"""

from __future__ import annotations

import re
from pathlib import Path

from amd_code import assembly, compiled

from tiny_runtime.conformance.standard import STANDARD
from tiny_runtime.llvm import llvm_version
from tiny_runtime_amd import ARCHS, Arch, CodeObject

TABLE = Path(__file__).parents[1] / "registers.md"
COUNTED = ("vgpr_count", "agpr_count", "sgpr_count")
SPILLED = ("vgpr_spill_count", "sgpr_spill_count")
PATTERNS = {
  "matrix": r"\bv_(?:s?w?mmac?|mfma|smfmac)_\w+",
  "wide loads": r"global_load_(?:b128|dwordx4)\b",
  "wide stores": r"global_store_(?:b128|dwordx4)\b",
  "wide shared": r"ds_(?:load|read|store|write)2?_(?:b128|b64)\b",
}
HEAD = """# What LLVM makes of the standard kernels

Vector, accumulator and scalar registers of a thread, registers spilled, bytes of shared memory, threads of a workgroup,
instructions in the code, and which matrix instructions there are. Kernels: `tiny_runtime.conformance.standard`.

Written by `hatch run amd-code:table`.
"""


def row(name: str, arch: Arch) -> str:
  """One kernel on one architecture."""
  binary = compiled(STANDARD[name](), arch.name)
  code, text = CodeObject.parse(binary.code), assembly(binary, arch.name)
  about = code.about(binary.entry)
  threads = "×".join(str(size.arg) for size in binary.local_size)
  spilled = sum(int(str(about.get(key, 0))) for key in SPILLED)
  found = [re.findall(pattern, text) for pattern in PATTERNS.values()]
  cells = [name, *[about.get(key, 0) for key in COUNTED], spilled, code.kernels[binary.entry].local_bytes, threads]
  cells += [*map(len, found), " ".join(sorted({str(m).removesuffix("_e64") for m in found[0]}))]
  return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
  """Write the table."""
  lines = [HEAD, f"LLVM {llvm_version()}\n"]
  columns = ["kernel", "vector", "accumulator", "scalar", "spilled", "shared", "threads", *PATTERNS, "which"]
  for arch in ARCHS:
    lines += [f"## {arch.name}\n", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += [row(name, arch) for name in STANDARD] + [""]
  TABLE.write_text("\n".join(lines))


if __name__ == "__main__":
  main()
