"""The textual form of whole models at every stage: tensor graph, schedule, kernels after each pass, program."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from tiny_codegen import LLVMRenderer, PassContext, compile_kernel, cpu_target, run_passes
from tiny_sched import PASSES, schedule
from tiny_sched.normalise import normalise
from tiny_tensor import Tensor, Variable, nn
from tiny_uop import Ops, UOp, parse_uop, print_uop
from tiny_uop.passes import Pass
from tiny_uop.passes import run_passes as run_schedule_passes
from tiny_uop.text.readable import readable

RENDERER = LLVMRenderer(cpu_target("x86_64-linux", "", ("+avx", "+avx2", "+fma")))


def convolution_step() -> UOp:
  """A training step: forward, backward, update."""
  convolution, norm, linear = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(64, 3)
  optimiser = nn.optim.Adam(nn.state.get_parameters([convolution, norm, linear]))
  image = Tensor.rand(2, 2, 8, 8)
  with Tensor.train():
    hidden = norm(convolution(image)).relu().max_pool2d(2)
    loss = linear(hidden.flatten(1)).sparse_categorical_crossentropy(Tensor([0, 2]))
    loss.backward()
    return loss.graph(*optimiser.schedule_step())


def attention_with_a_cache() -> UOp:
  """A step of a decoder: the cache is written at a symbolic position and read up to there."""
  position = Variable("position", 1, 15).bind(4)
  cache = Tensor.zeros(16, 8).contiguous().realize()
  query, entry = Tensor.rand(1, 8), Tensor.rand(1, 8)
  cache[position : position + 1, :] = entry
  keys = cache[: position + 1, :]
  return ((query @ keys.transpose(0, 1)).softmax(1) @ keys).graph()


def odds_and_ends() -> UOp:
  """Random numbers, sorting, indexing by tensors, padding, other types."""
  x = Tensor.rand(6, 5)
  y = x.sort(1)[0] + x.pad(((1, 0), (0, 0)))[:6] + x[Tensor([3, 1, 0, 5, 2, 4])].half().float()
  return (y.cumsum(0).sin().argmax(1) % 3).graph()


MODELS: list[Callable[[], UOp]] = [convolution_step, attention_with_a_cache, odds_and_ends]


def same(graph: UOp, what: str) -> UOp:
  text = print_uop(graph)
  assert parse_uop(text) is graph, what
  assert print_uop(parse_uop(text)) == text and text.isascii(), what
  assert len(readable(graph)) > 10, what
  return graph


@pytest.mark.parametrize("model", MODELS, ids=lambda f: f.__name__)
def test_every_stage_of_a_model_parses_back(model: Callable[[], UOp]) -> None:
  graph = same(model(), "tensor graph")
  assert pickle.loads(pickle.dumps(graph)) is graph

  def after(step: Pass, root: UOp) -> None:
    same(root, step.name)

  run_schedule_passes(normalise(graph).sink, PASSES, after)
  linear = same(schedule(graph), "schedule")
  kernels = list(dict.fromkeys(call.src[0] for call in linear.src if call.src[0].op is Ops.SINK))
  assert kernels
  for kernel in kernels:
    run_passes(kernel, PassContext(RENDERER.target), observe=after)
    same(compile_kernel(kernel, RENDERER), "program")
