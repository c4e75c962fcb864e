"""Profiles of tensor programs on the CPU device, in counts; nothing is timed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import tiny_runtime
from tiny_tensor import Context, GlobalCounters, Tensor, TinyJit


def test_a_replay_has_the_name_of_its_function() -> None:
  class Model:
    def __init__(self) -> None:
      self.weight = Tensor.rand(8, 8).realize()

    @TinyJit
    def step(self, x: Tensor) -> Tensor:
      return ((x @ self.weight).relu() @ self.weight).realize()

  with Context(DEVICE="CPU"):
    model, x = Model(), Tensor.rand(8, 8).realize()
    for _ in range(3):
      model.step(x)
    GlobalCounters.reset()
    with tiny_runtime.profile() as p:
      for _ in range(5):
        model.step(x)
  calls = Counter((record.kind, record.name, record.kernels) for record in p.records if record.kernels)
  assert calls == {("graph", "Model.step", 2): 5}
  assert sum(record.ops for record in p.records) == GlobalCounters.global_ops
  assert sum(record.kernels for record in p.records) == GlobalCounters.kernel_count == 10
  assert "Model.step (graph of 2) on CPU" in p.table()


def test_a_product_and_where_it_comes_from() -> None:
  with Context(DEVICE="CPU"), tiny_runtime.profile() as p:
    a, b = Tensor([[1.0] * 16] * 16), Tensor([[2.0] * 16] * 16)
    assert (a @ b).sum().item() == 16 * 16 * 32.0
  (launch,) = [record for record in p.records if record.kind == "kernel"]
  assert launch.ops >= 2 * 16**3 and launch.nbytes == 2 * 16 * 16 * 4 + 4
  written = [record for record in p.records if record.kind == "write"]
  assert [(record.device, record.nbytes) for record in written] == [("CPU", 16 * 16 * 4)] * 2


PROGRAM = """
from tiny_tensor import Tensor
print(Tensor.arange(10).sum().item())
"""


def test_a_whole_program(tmp_path: Path) -> None:
  environment = {**os.environ, "DEVICE": "CPU", "PROFILE": "1", "PROFILE_FILE": str(tmp_path / "trace.pftrace.gz")}
  done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
  assert done.stdout == "45\n" and "fill_1 on CPU" in done.stderr and "launch overhead" in done.stderr
  assert os.listdir(tmp_path) == ["trace.pftrace.gz"]
