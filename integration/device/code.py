"""What the kernels of the workloads become: what ptxas says of them, and which instructions of the GPU they have.

Needs no GPU, only ptxas and cuobjdump or nvdisasm, of CUDA. PTX and machine code go to the folder named.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from measure import WORKLOADS, Ours

from tiny_runtime_nv import CUDA
from tiny_sched import schedule
from tiny_uop import Context, Ops

SHOWN = 12
"""So many of the instructions that a kernel has most of."""


def tool(name: str) -> str | None:
  """A program of CUDA."""
  return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin:/usr/local/bin")


def assembled(ptx: Path, arch: str) -> str:
  """What ptxas reports, and the instructions, each with how often it stands there."""
  ptxas, disassembler = tool("ptxas"), tool("nvdisasm")
  if ptxas is None:
    return "there is no ptxas"
  cubin = ptx.with_suffix(".cubin")
  done = subprocess.run([ptxas, "-v", f"-arch={arch}", "-o", str(cubin), str(ptx)], capture_output=True, text=True)
  facts = " ".join(
    line.split(":")[-1].strip() for line in done.stderr.splitlines() if "Used" in line or "spill" in line
  )
  if done.returncode or disassembler is None:
    return done.stderr if done.returncode else facts
  text = subprocess.run([disassembler, "-c", str(cubin)], capture_output=True, text=True).stdout
  ptx.with_suffix(".sass").write_text(text)
  found = Counter(re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]+)", text, re.MULTILINE))
  return f"{facts}\n    " + ", ".join(f"{count} {name}" for name, count in found.most_common(SHOWN))


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("folder", type=Path)
  parser.add_argument("workloads", nargs="*", default=[name for name in WORKLOADS if "graph" not in name])
  parser.add_argument("--arch", default="sm_90a")
  given = parser.parse_args()
  given.folder.mkdir(parents=True, exist_ok=True)
  ours = Ours()
  for name in given.workloads:
    with Context(TF32=int("tf32" in name)):
      compiler = CUDA.compiler(given.arch)
    workload = WORKLOADS[name]
    kind = getattr(ours.dtypes, workload.kind)
    inputs = [ours.made.empty(*shape, dtype=kind) for shape in workload.shapes]
    linear = schedule(workload.run(ours, *inputs).graph())
    kernels = list(dict.fromkeys(call.src[0] for call in linear.src if call.src[0].op is Ops.SINK))
    print(f"{name}: {len(linear.src)} calls, {len(kernels)} kernels", flush=True)
    for number, kernel in enumerate(kernels):
      binary = compiler.compile(kernel)
      path = given.folder / f"{''.join(c if c.isalnum() else '_' for c in name)}_{number}.ptx"
      path.write_bytes(binary.code)
      sizes = [tuple(u.render() for u in group) for group in (binary.global_size, binary.local_size)]
      print(f"  {binary.entry} {sizes[0]} × {sizes[1]}: {assembled(path, given.arch)}", flush=True)
  return 0


if __name__ == "__main__":
  sys.exit(main())
