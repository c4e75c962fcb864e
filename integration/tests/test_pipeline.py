"""The stages as filters on text: a graph from this process is scheduled and compiled by others."""

import subprocess
import sys

import pytest

from tiny_runtime import buffer_of, run
from tiny_tensor import Context, Tensor, Variable
from tiny_uop import Ops, UOp, parse_uop, print_uop


def filtered(module: str, text: str, *options: str) -> str:
  done = subprocess.run([sys.executable, "-m", module, *options], input=text, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return done.stdout


def captured(t: Tensor) -> tuple[UOp, UOp]:
  """The buffer that a lazy tensor will get, and the graph that fills it."""
  sink = t.graph()
  (after,) = sink.src
  return after.src[0], sink


def graph() -> tuple[UOp, UOp, list[float]]:
  """(output buffer, graph, expected values) of something with a product, a softmax and a slice in it."""
  a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
  b = Tensor([[0.5, -1.0], [1.5, 0.0], [-0.5, 2.0]]).realize()
  t = ((a @ b).softmax(1) * 10).relu()[:, 1:] + a.sum(1, keepdim=True)
  buffer, sink = captured(t)
  expected: list[float] = t.flatten().tolist()
  return buffer, sink, expected


@pytest.mark.parametrize("device", ["CPU", "REF"])
def test_another_process_schedules_what_this_one_runs(device: str) -> None:
  with Context(DEVICE=device):
    buffer, sink, expected = graph()
    linear = parse_uop(filtered("tiny_sched", print_uop(sink)))
    assert linear.op is Ops.LINEAR and linear.src
    run(linear)
    raw = memoryview(buffer_of(buffer).read()).cast("f")
    assert list(raw) == pytest.approx(expected, rel=1e-5)


def test_two_processes_make_code_from_a_graph() -> None:
  with Context(DEVICE="CPU"):
    _, sink, _ = graph()
    scheduled = filtered("tiny_sched", print_uop(sink))
    kernels = [call.src[0] for call in parse_uop(scheduled).src if call.src[0].op is Ops.SINK]
    assert kernels
    whole = filtered("tiny_codegen", scheduled, "--target", "llvm")
    for kernel in kernels:
      alone = filtered("tiny_codegen", print_uop(kernel), "--target", "llvm")
      name = kernel.arg.name
      assert f"@{name}(" in alone and "define" in alone
      assert f"@{name}(" in whole


def test_the_code_of_another_process_compiles() -> None:
  llvmlite = pytest.importorskip("llvmlite.binding")
  with Context(DEVICE="CPU"):
    _, sink, _ = graph()
    linear = parse_uop(filtered("tiny_sched", print_uop(sink)))
  for call in linear.src:
    if call.src[0].op is Ops.SINK:
      text = filtered("tiny_codegen", print_uop(call.src[0]), "--target", "llvm")
      llvmlite.parse_assembly(text).verify()


def test_c_is_another_target() -> None:
  with Context(DEVICE="CPU"):
    _, sink, _ = graph()
    linear = parse_uop(filtered("tiny_sched", print_uop(sink)))
  kernel = next(call.src[0] for call in linear.src if call.src[0].op is Ops.SINK)
  assert "void" in filtered("tiny_codegen", print_uop(kernel), "--target", "c")


def test_a_symbolic_graph_is_scheduled_with_its_variable() -> None:
  with Context(DEVICE="CPU"):
    data = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    total = data.shrink(((0, Variable("n", 1, 4).bind(3)),)).sum()
    buffer, sink = captured(total)
    linear = parse_uop(filtered("tiny_sched", print_uop(sink)))
    assert any(u.op is Ops.BIND for call in linear.src for u in call.src)
    run(linear)
    assert list(memoryview(buffer_of(buffer).read()).cast("f")) == [6.0]


@pytest.mark.parametrize("text", ["", "nonsense", "(", "SINK SINK SINK"])
@pytest.mark.parametrize("module", ["tiny_sched", "tiny_codegen"])
def test_text_that_is_no_graph_is_refused(module: str, text: str) -> None:
  done = subprocess.run([sys.executable, "-m", module], input=text, capture_output=True, text=True)
  assert done.returncode != 0
  assert module in done.stderr and "Traceback" not in done.stderr
