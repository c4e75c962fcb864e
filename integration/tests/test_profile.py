"""Profiles of tensor programs on the CPU device, in counts; nothing is timed."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tiny_runtime
from tiny_runtime import Profile, Record
from tiny_sched import schedule_cache_clear, schedule_cache_info
from tiny_tensor import Context, GlobalCounters, Tensor, TinyJit, nn
from tiny_tensor.origins import objects_below
from tiny_uop.origins import MARK, Origin, recording


def test_a_replay_has_the_name_of_its_function() -> None:
  class Model:
    def __init__(self) -> None:
      self.weight = Tensor.rand(8, 8).realize()

    @TinyJit
    def step(self, x: Tensor) -> Tensor:
      return ((x @ self.weight).relu() @ self.weight).realize()  # line: captured

  with Context(DEVICE="CPU"):
    model, x = Model(), Tensor.rand(8, 8).realize()
    for _ in range(3):
      model.step(x)
    GlobalCounters.reset()
    with tiny_runtime.profile() as p:
      for _ in range(5):
        model.step(x)
  calls = Counter((record.kind, record.name, record.kernels) for record in p.records if record.kind == "graph")
  assert calls == {("graph", "Model.step", 2): 5}
  kernels = [record for record in p.records if record.kind == "graph kernel"]
  for records in (kernels, [record for record in p.records if record.kind == "graph"]):
    assert sum(record.ops for record in records) == GlobalCounters.global_ops
    assert sum(record.kernels for record in records) == GlobalCounters.kernel_count == 10
  for graph in (record for record in p.records if record.kind == "graph"):
    inside = [record for record in kernels if graph.start <= record.start and record.end <= graph.end]
    assert len(inside) == 2 and sum(record.busy for record in inside) <= graph.busy
    assert inside[0].end <= inside[1].start and all(record.busy > 0 for record in inside)
  assert {named(record.origins)[0] for record in kernels} == {("captured", "model", "forward")}


def test_a_product_and_where_it_comes_from() -> None:
  with Context(DEVICE="CPU"), tiny_runtime.profile() as p:
    a, b = Tensor([[1.0] * 16] * 16), Tensor([[2.0] * 16] * 16)
    assert (a @ b).sum().item() == 16 * 16 * 32.0
  (launch,) = [record for record in p.records if record.kind == "kernel"]
  assert launch.ops >= 2 * 16**3 and launch.nbytes == 2 * 16 * 16 * 4 + 4
  written = [record for record in p.records if record.kind == "write"]
  assert [(record.device, record.nbytes) for record in written] == [("CPU", 16 * 16 * 4)] * 2


# *** where kernels come from ***


class Block:
  """A plain class, as models may be."""

  def __init__(self, n: int) -> None:
    self.first, self.second = nn.Linear(n, n), nn.Linear(n, n)

  def __call__(self, x: Tensor) -> Tensor:
    y = self.first(x).contiguous()  # line: first
    y = y.sigmoid().contiguous()  # line: sigmoid
    return self.second(y) + x  # line: second


class Head(nn.Module):
  """A Module with `forward`."""

  def __init__(self, n: int) -> None:
    self.norm, self.out = nn.BatchNorm(n), nn.Linear(n, 3)  # line: weights

  def forward(self, x: Tensor) -> Tensor:
    return self.out(self.norm(x).contiguous())  # line: out


class Model:
  """Layers in attributes and lists."""

  def __init__(self) -> None:
    self.blocks = nn.Sequential(Block(8), Block(8))
    self.heads = {"only": Head(8)}

  def __call__(self, x: Tensor) -> Tensor:
    scores: Tensor = self.heads["only"](self.blocks(x))  # line: heads
    return scores


LINES = {line.partition("  # line: ")[2]: n for n, line in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1)}


def named(origins: tuple[Origin, ...]) -> list[tuple[str, str, str]]:
  """(mark of the line, module, phase) of each origin, all of which are in this file."""
  marks = {n: mark for mark, n in LINES.items()}
  assert all(origin.file == __file__ for origin in origins)
  return [(marks.get(origin.line, str(origin.line)), origin.module, origin.phase) for origin in origins]


def launched(p: Profile) -> list[Record]:
  return [record for record in p.records if record.kind in ("kernel", "graph kernel")]


def trained() -> tuple[Model, nn.optim.SGD, Tensor]:
  model = Model()
  opt = nn.optim.SGD(nn.state.get_parameters(model), lr=0.1, momentum=0.9)
  x = Tensor.rand(16, 8).realize()
  x.realize(*nn.state.get_parameters(model), *nn.state.get_parameters(opt))
  return model, opt, x


def test_lines_modules_and_phases_of_a_step() -> None:
  with Context(DEVICE="CPU"), Tensor.train():
    model, opt, x = trained()
    for _ in range(2):  # the second time schedules are in the cache
      with tiny_runtime.profile() as p:
        opt.zero_grad()
        loss = (model(x) ** 2).mean()  # line: loss
        loss.backward()
        opt.step()  # line: step
        loss.realize()
      dominant = {named(record.origins)[0] for record in launched(p)}
      everything = {origin for record in launched(p) for origin in named(record.origins)}
      assert all(record.origins for record in launched(p))
      layers = [(line, f"model.blocks.{n}.{line}") for n in range(2) for line in ("first", "second")]
      layers += [("out", "model.heads.only.out")]
      for line, module in layers:
        assert (line, module, "forward") in dominant and (line, module, "backward") in dominant
      assert {("sigmoid", f"model.blocks.{n}", "forward") for n in range(2)} <= dominant
      assert {("sigmoid", f"model.blocks.{n}", "backward") for n in range(2)} <= everything
      assert ("out", "model.heads.only.norm", "forward") in dominant
      assert ("step", "", "optimiser") in dominant and ("loss", "", "forward") in everything
      assert {origin[2] for origin in everything} == {"forward", "backward", "optimiser"}


def test_a_convolution_that_has_a_gradient_of_its_own() -> None:
  with Context(DEVICE="CPU"), Tensor.train():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm(3), nn.Conv2d(3, 4, 3))
    opt = nn.optim.SGD(nn.state.get_parameters(model), lr=0.1)
    x = Tensor.rand(2, 2, 12, 12).realize(*nn.state.get_parameters(model))
    with tiny_runtime.profile() as p:
      model(x).square().mean().backward()
      opt.step()
  found = {origin[1:] for record in launched(p) for origin in named(record.origins)[:1]}
  assert {(f"model.{n}", phase) for n in (0, 2) for phase in ("forward", "backward")} <= found


def test_a_hit_of_the_schedule_cache_names_the_lines_of_its_caller() -> None:
  def here(x: Tensor) -> Tensor:
    return (x + 1).relu()  # line: here

  def there(x: Tensor) -> Tensor:
    return (x + 1).relu()  # line: there

  with Context(DEVICE="CPU"):
    x, y = Tensor.rand(16).realize(), Tensor.rand(16).realize()
    schedule_cache_clear()
    here(x).realize()  # nobody asks: what is kept does not know what its calls compute
    with tiny_runtime.profile() as p:
      here(x).realize()
    hits = schedule_cache_info().hits
    with tiny_runtime.profile() as q:
      there(y).realize()
    assert schedule_cache_info().hits == hits + 1
  assert [named(record.origins) for record in launched(p) + launched(q)] == [
    [("here", "", "forward")], [("there", "", "forward")]
  ]  # fmt: skip


def test_a_fused_kernel_lists_all_of_its_lines_by_their_work() -> None:
  with Context(DEVICE="CPU"), tiny_runtime.profile() as p:
    a, b = Tensor.rand(8, 32).realize(), Tensor.rand(32, 8).realize()
    y = a @ b  # line: product
    y = y + 1  # line: plus
    y.exp().realize()  # line: exp
  product, *others = named(launched(p)[-1].origins)
  assert product == ("product", "", "forward")
  assert set(others) == {("plus", "", "forward"), ("exp", "", "forward")}


def test_marks_change_no_node_and_are_made_for_profiles_only() -> None:
  with Context(DEVICE="CPU"):
    x = Tensor.rand(4).realize()
    assert recording.wanted == 0
    y = x * 3
    assert MARK not in y.uop.__dict__
    key = y.uop.key
    with tiny_runtime.profile():
      z = x * 3
      assert z.uop is y.uop and z.uop.key == key and MARK in z.uop.__dict__
    with Context(DEBUG=2):
      assert recording.wanted == 1
    assert recording.wanted == 0


def test_memory_names_the_lines_that_ask_for_it() -> None:
  with Context(DEVICE="CPU"), tiny_runtime.profile() as p:
    model = Head(8)
    model.out.weight.realize()
    x = Tensor([1.0] * 40)  # line: data
    y = (x + 1).realize()  # line: sum
    del y
  weights = [record for record in p.records if record.tensor == "24 × float32"]
  assert weights and {named(record.origins)[0][0] for record in weights} == {"weights"}
  data, total = [record for record in p.records if record.tensor == "40 × float32" and record.kind == "alloc"]
  assert [named(record.origins)[0][0] for record in (data, total)] == ["data", "sum"]
  freed = [record.memory for record in p.records if record.kind == "free"]
  assert total.memory in freed and {record.memory for record in weights} - {*freed}


def test_variables_that_the_program_deletes_are_gone() -> None:
  model = Model()
  gone = weakref.ref(model)
  with Context(DEVICE="CPU"), tiny_runtime.profile():
    model(Tensor.rand(2, 8)).realize()
    del model
    gc.collect()
    assert gone() is None


def test_what_cannot_be_looked_through_has_no_name_and_stops_nobody() -> None:
  class Closed(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
      raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
      raise RuntimeError("closed")

    def __len__(self) -> int:
      return 1

  class Growing(dict[str, object]):
    """As if another thread added to it."""

    def items(self) -> Any:
      for name in (*self, "more"):
        self[f"{name}, seen {len(self)} times"] = Model()
        yield name, self.get(name)

  class Holder:
    def __init__(self, held: object) -> None:
      self.held = held

    def compute(self) -> list[float]:
      return ((Tensor([1.0, 2.0]) * 3).realize() + 1).tolist()  # type: ignore[no-any-return]

  with Context(DEVICE="CPU"), tiny_runtime.profile():
    assert Holder(Closed()).compute() == Holder(Growing(a=1)).compute() == [4.0, 7.0]


def test_names_are_not_looked_for_in_what_belongs_to_the_program() -> None:
  class Library:
    def __init__(self) -> None:
      self.module, self.kind, self.function = tiny_runtime, Model, tiny_runtime.profile
      self.layers = [Model()]

  found = [path for path, _ in objects_below(Library(), "library")]
  assert found[:3] == ["library", "library.layers", "library.layers.0"]
  assert not any(path.startswith(("library.module", "library.kind", "library.function")) for path in found)


PROGRAM = """
from tiny_tensor import Tensor
print(Tensor.arange(10).sum().item())
"""


def test_a_whole_program(tmp_path: Path) -> None:
  environment = {**os.environ, "DEVICE": "CPU", "PROFILE": "1", "PROFILE_FILE": str(tmp_path / "trace.pftrace.gz")}
  done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
  assert done.stdout == "45\n" and "fill_1" in done.stderr and "launch overhead" in done.stderr
  assert os.listdir(tmp_path) == ["trace.pftrace.gz"]


def test_a_trace_leaves_nothing_beside_it(tmp_path: Path) -> None:
  """Not even where the device's peaks are measured for it, when the program is over."""
  environment = {**os.environ, "DEVICE": "CPU", "VIZ": "-1", "VIZ_FILE": str(tmp_path / "trace.jsonl")}
  program = """
from tiny_runtime.execution.peaks import measured
from tiny_runtime.profiling import recording
from tiny_tensor import Tensor
recording.WORTH_MEASURING = 1  # nanosecond: they are measured however fast or slow the machine is
recording.measurers[:] = [lambda device, ops_per_s, bytes_per_s: measured(device, 64, 4096)]
Tensor.rand(512, 512).realize()
"""
  subprocess.run([sys.executable, "-c", program], env=environment, check=True)
  assert os.listdir(tmp_path) == ["trace.jsonl"]
  lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
  (head,) = [line for line in lines if "profile" in line]
  assert head["peaks"]["CPU"]["ops_per_s"] > 0, "they were measured"


SLOW = """
from tiny_tensor import Tensor, TinyJit, nn

class Net:
  def __init__(self):
    self.layers = [nn.Linear(64, 64) for _ in range(4)]
    self.layers[2] = nn.Sequential(nn.Linear(64, 4096), nn.Linear(4096, 64))

  def __call__(self, x):
    for layer in self.layers:
      x = layer(x).relu()
    return x

net = Net()
step = TinyJit(lambda x: net(x).realize())
for _ in range(150):  # so that no kernel that the system interrupts is slower
  step(Tensor.ones(64, 64).contiguous().realize())
"""


@pytest.mark.parametrize("setting", ["PROFILE", "DEBUG"])
def test_the_slow_layer_stands_first(setting: str, tmp_path: Path) -> None:
  (tmp_path / "train.py").write_text(SLOW)
  environment = {**os.environ, "DEVICE": "CPU", setting: str(1 + (setting == "DEBUG"))}
  program = [sys.executable, str(tmp_path / "train.py")]
  done = subprocess.run(program, capture_output=True, text=True, env=environment, check=True)
  lines = done.stderr.splitlines()
  head = next(n for n, line in enumerate(lines) if line.split()[-2:] == ["layer", "line"])
  assert {lines[head + n].split()[-2] for n in (1, 2)} == {"net.layers.2.0", "net.layers.2.1"}
  assert lines[head + 1].split()[-1] == "train.py:11"
  assert any(line.startswith("launch overhead") for line in lines) and "not explained" in done.stderr
