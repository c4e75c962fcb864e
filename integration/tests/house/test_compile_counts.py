"""What it takes to compile a model, as counts: kernels lowered, nodes built, tables of rules tried on a node.

Time follows them, and they are the same on every machine. Each model is a process of its own: what others left would be
shared.

A change that lowers a count lowers its figure here; one that has to raise it says in its commit what for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SLACK = 1.03
"""Sets of nodes have another order in every process, and with it what is met first."""
BUDGETS = {
  "resnet18": {"kernels": 21, "nodes": 111_969, "tried": 51_063},
  "convnet": {"kernels": 51, "nodes": 70_111, "tried": 32_775},
  "minilm": {"kernels": 11, "nodes": 28_357, "tried": 12_980},
}
FEATURES = ("+avx", "+avx2", "+fma", "+sse4.1", "+f16c", "+avx512f", "+avx512vl", "+avx512bw", "+avx512dq")


def counts(model: str) -> dict[str, int]:
  """Those of a model, from its tensors to source text for a processor with AVX-512; the weights have no values."""
  sys.path.insert(0, str(BENCH))
  from first_calls import FIRST
  from suite.tinygrad_like import Ours

  from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
  from tiny_tensor import Device, Tensor
  from tiny_uop import Ops, UOp
  from tiny_uop.node import _nodes
  from tiny_uop.pattern import PatternMatcher

  found = {"kernels": 0, "nodes": 0, "tried": 0}
  build, rewrite = UOp.__new__, PatternMatcher.rewrite

  def counted_build(cls: type, *arguments: Any, **named: Any) -> Any:
    before = len(_nodes)
    node: Any = build(cls, *arguments, **named)
    found["nodes"] += len(_nodes) > before
    return node

  def counted_rewrite(self: PatternMatcher, uop: UOp, ctx: Any = None) -> UOp | None:
    found["tried"] += 1
    return rewrite(self, uop, ctx)

  Device.DEFAULT = "CPU"
  row = FIRST[model].workload
  library = Ours()
  arrays, inputs = row.arrays()
  weights = {name: Tensor.empty(*array.shape) for name, array in arrays.items()}
  outputs = [row.program(library, weights, *map(library.tensor, inputs))]
  if row.kind == "train":
    optimiser = library.module.nn.optim.Adam(list(weights.values()))
    with library.training():
      outputs[0].backward()
      outputs += optimiser.schedule_step()
  renderer = LLVMRenderer(cpu_target("x86_64-unknown-linux-gnu", "znver4", FEATURES))
  UOp.__new__, PatternMatcher.rewrite = counted_build, counted_rewrite  # type: ignore[method-assign]
  calls = Tensor.schedule_linear(*outputs).src
  for kernel in dict.fromkeys(call.src[0] for call in calls if call.src[0].op is Ops.SINK):
    compile_kernel(kernel, renderer)
    found["kernels"] += 1
  return found


@pytest.mark.parametrize("model", ("resnet18", "convnet", "minilm"))
def test_compiling_a_model_takes_no_more_than_it_did(model: str) -> None:
  done = subprocess.run([sys.executable, __file__, model], capture_output=True, text=True, timeout=600)
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  for name, most in BUDGETS[model].items():
    assert found[name] <= most * SLACK, f"{model}: {found[name]:,} {name}, the budget is {most:,}: {found}"
    assert found[name] >= most / SLACK**2, f"{model}: {found[name]:,} {name} are fewer than {most:,}: lower the budget"


if __name__ == "__main__":
  print(json.dumps(counts(sys.argv[1])))
