"""The files that examples of stages begin with: comments `first:` in READMEs run this. See `documents.examples`.

A product with a ReLU, 64 times 64: `train.py` is the program, `graph.uop` its graph as tiny-tensor makes it,
`schedule.uop`, `kernel.uop`, and `half.uop`, the kernel after the pass `optimise`.
"""

from __future__ import annotations

from pathlib import Path

from tiny_codegen import LLVMRenderer, PassContext, cpu_target, run_passes
from tiny_sched import schedule
from tiny_tensor import Tensor
from tiny_uop import UOp, print_uop

PROGRAM = """\
from tiny_tensor import Tensor

a, b = Tensor.ones(64, 64).realize(), Tensor.ones(64, 64).realize()
(a @ b).relu().realize()
"""


def main() -> None:
  """Write them into the current folder."""
  Path("train.py").write_text(PROGRAM, encoding="utf-8")
  a, b = Tensor.ones(64, 64).realize(), Tensor.ones(64, 64).realize()
  graph = (a @ b).relu().graph()
  linear = schedule(graph)
  kernel = linear.src[0].src[0]
  stages: dict[str, UOp] = {}
  context = PassContext(LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma"))).target)
  run_passes(kernel, context, observe=lambda step, root: stages.update({step.name: root}))
  files = {"graph": graph, "schedule": linear, "kernel": kernel, "half": stages["optimise"]}
  for name, uop in files.items():
    Path(f"{name}.uop").write_text(print_uop(uop), encoding="utf-8")


if __name__ == "__main__":
  main()
