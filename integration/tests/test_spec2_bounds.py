"""With SPEC=2 every memory access of the kernels of models, operations and random programs is proved to be in bounds:
as scheduled, after every pass of code generation for a processor, a GPU and a target that has next to nothing, and in
the program.

`SPEC=2 hatch run test` does so for every kernel that any test compiles.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import CASES

import tiny_tensor
from tiny_codegen import Limits, LLVMRenderer, PassContext, cpu_target, run_passes
from tiny_codegen.target import Target
from tiny_sched import schedule, schedule_cache_clear
from tiny_tensor import Context, Tensor, Variable, dtypes, nn
from tiny_uop import Ops
from tiny_uop.proof.bounds import BoundsError, check_bounds, proof_info

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from engine_models import MODELS, Library, builder

_CPU = LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma"))).target
TARGETS = {
  "cpu": _CPU,
  "gpu": Target(
    _CPU.native_dtypes,
    _CPU.native_ops,
    has_local=True,
    limits=Limits(max_local=(64, 64, 64), max_workgroup=256, shared_memory=65536),
  ),
  # float64 cannot be rounded without either of int64 and TRUNC
  "bare": Target(
    frozenset({dtypes.bool, dtypes.int32, dtypes.uint32, dtypes.float32, dtypes.float64}), frozenset({Ops.TRUNC})
  ),
}


@pytest.fixture(autouse=True)
def proving() -> Iterator[None]:
  """SPEC=2, and no schedule from a test that ran without it."""
  schedule_cache_clear()
  with Context(SPEC=2, CACHELEVEL=0, DEVICE="CPU"):
    yield


def prove(*tensors: Tensor, target: str | None = None, in_turn: bool = False) -> int:
  """How many accesses were proved in the kernels that compute these tensors, for all targets or the one named;
  `in_turn`: of each kernel for one of them, the first for the first."""
  before = proof_info()
  linear = schedule(tensors[0].graph(*tensors[1:]))
  for place, body in enumerate(dict.fromkeys(call.src[0] for call in linear.src if call.src[0].op is Ops.SINK)):
    for number, (name, record) in enumerate(TARGETS.items()):
      if target in (None, name) and (not in_turn or place % len(TARGETS) == number):
        run_passes(body, PassContext(record))
  return sum(proof_info()) - sum(before)


# *** models ***


@pytest.mark.parametrize("in_turn", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=("in turn", "all"))
@pytest.mark.parametrize("name", MODELS)
def test_training_steps(name: str, in_turn: bool) -> None:
  """Of kernels of one kind a model has several, so each target gets some when they take turns."""
  library = Library(Tensor, nn, dtypes)
  with Tensor.train():  # which the builder leaves on
    assert prove(*builder(name, True, library)(), in_turn=in_turn) > 500


def attention_with_a_cache() -> list[Tensor]:
  """One step of decoding: keys and values go into a cache at a symbolic position, and what is there is attended to."""
  position = Variable("position", 0, 15).bind(5)
  keys, values = (Tensor.empty(2, 16, 8) for _ in range(2))
  query, key, value = (Tensor.empty(2, 1, 8) for _ in range(3))
  keys[:, position : position + 1] = key
  values[:, position : position + 1] = value
  known = keys[:, : position + 1], values[:, : position + 1]
  weights = (query @ known[0].transpose(1, 2) / 8**0.5).softmax(-1)
  return [weights @ known[1]]


# *** operations ***


def data(*shape: int) -> Tensor:
  return Tensor.empty(*shape)


def positions(*shape: int) -> Tensor:
  return Tensor.empty(*shape, dtype=dtypes.int32)


def written(target: Tensor, at: Tensor, values: Tensor) -> Tensor:
  target[at] = values
  return target


OPERATIONS: dict[str, Callable[[], Tensor | list[Tensor]]] = {
  "attention_with_a_cache": attention_with_a_cache,
  "product_of_odd_sizes": lambda: data(37, 53) @ data(53, 29),
  "batched_product": lambda: data(3, 17, 33) @ data(3, 33, 65),
  "vector_product": lambda: data(1, 129) @ data(129, 77),
  "conv": lambda: data(2, 3, 13, 13).conv2d(data(8, 3, 3, 3), padding=1),
  "conv_strided": lambda: data(1, 3, 31, 31).conv2d(data(16, 3, 7, 7), padding=3, stride=2),
  "conv_dilated_grouped": lambda: data(1, 4, 12, 15).conv2d(data(8, 2, 3, 3), groups=2, dilation=2, padding=2),
  "conv_transposed": lambda: data(2, 8, 9, 9).conv_transpose2d(data(8, 4, 3, 3), stride=2, padding=1),
  "max_pool": lambda: data(2, 3, 15, 15).max_pool2d(3, 2, padding=1),
  "pool_of_conv": lambda: data(2, 3, 15, 15).conv2d(data(4, 3, 3, 3), padding=1).relu().max_pool2d(2, ceil_mode=True),
  "interpolate": lambda: data(1, 2, 5, 7).interpolate((11, 4), mode="linear"),
  "softmax": lambda: data(5, 1000).softmax(),
  "normalise": lambda: data(4, 6, 10).layernorm(),
  "long_sum": lambda: data(100_003).sum(),
  "sum_of_middle": lambda: data(7, 300, 9).sum(1),
  "cumsum": lambda: data(3, 1000).cumsum(1),
  "sort": lambda: [*data(4, 37).sort()],
  "sort_long": lambda: [*data(300).sort()],
  "topk": lambda: [*data(5, 20).topk(3)],
  "argmax": lambda: data(6, 35).argmax(1),
  "roll_and_pad": lambda: data(10, 7).roll(3, 1).pad(((1, 2), (3, 4))),
  "pad_reflect": lambda: data(2, 3, 8, 9).pad((2, 3, 1, 4), mode="reflect"),
  "reshape_of_padded": lambda: data(5, 7).pad(((0, 1), (0, 1))).reshape(6, 2, 4).permute(2, 0, 1).reshape(-1) * 2,
  "flip_and_step": lambda: data(9, 11)[::-2, 1::3] * 2,
  "concatenate": lambda: Tensor.cat(data(3, 5), data(4, 5), data(1, 5)),
  "triangle": lambda: data(9, 9).tril() + data(9, 9).triu(1),
  "embedding": lambda: data(50, 8)[positions(4, 6)],
  "pairs_of_positions": lambda: data(9, 10, 11)[positions(6), :, positions(6)],
  "gather": lambda: data(5, 9).gather(1, positions(5, 4)),
  "position_of_position": lambda: data(12)[positions(20)[positions(7)]],
  "mask_of_positions": lambda: (positions(30) > 3).where(data(40)[positions(30)], 0),
  "scatter": lambda: data(5, 9).scatter(1, positions(5, 4), data(5, 4)),
  "write_at_positions": lambda: written(data(12, 5), positions(4), data(4, 5)),
  "labels": lambda: data(6, 10).sparse_categorical_crossentropy(positions(6)),
  "one_hot_product": lambda: positions(6).one_hot(10).cast(dtypes.float32) @ data(10, 3),
  "random": lambda: Tensor.randn(7, 11),
  "cast_of_bits": lambda: Tensor.empty(12, dtype=dtypes.uint8).bitcast(dtypes.float32) + 1,
  "half": lambda: data(33, 35).half() @ data(35, 31).half(),
}


def on_targets(names: Iterable[str]) -> list[Any]:
  """Each name with one of the targets, which take turns; in `nightly` with all."""
  turns = [pytest.param(name, target, id=f"{name}-{target}") for name, target in zip(names, cycle(TARGETS))]
  return [*turns, *(pytest.param(name, None, marks=pytest.mark.nightly, id=f"{name}-all") for name in names)]


@pytest.mark.parametrize(("name", "target"), on_targets(OPERATIONS))
def test_operations(name: str, target: str | None) -> None:
  made = OPERATIONS[name]()
  assert prove(*(made if isinstance(made, list) else [made]), target=target) > 0


@pytest.mark.parametrize(("name", "target"), on_targets(CASES))
def test_operations_of_models(name: str, target: str | None) -> None:
  assert prove(*CASES[name].make(), target=target) > 0


def test_gradients() -> None:
  x, w = data(2, 3, 10, 10).requires_grad_(), data(4, 3, 3, 3).requires_grad_()
  table = data(20, 6).requires_grad_()
  loss = x.conv2d(w, padding=1, stride=2).relu().max_pool2d(2).sum() + table[positions(7)].square().mean()
  assert prove(*loss.gradient(x, w, table)) > 0


# *** random programs ***


def random_views(rng: random.Random) -> Tensor:
  """Movement operations, gathers and reductions, one on another."""
  x = data(*[rng.randint(1, 9) for _ in range(rng.randint(1, 4))])
  for _ in range(rng.randint(2, 7)):
    axis = rng.randrange(x.ndim)
    size = int(x.shape[axis])
    kind = rng.choice(["permute", "flip", "pad", "shrink", "step", "reshape", "roll", "expand", "gather", "sum", "add"])
    if kind == "permute":
      x = x.permute(*rng.sample(range(x.ndim), x.ndim))
    elif kind == "flip":
      x = x.flip(axis)
    elif kind == "pad":
      x = x.pad([(rng.randint(0, 3), rng.randint(0, 3)) if a == axis else (0, 0) for a in range(x.ndim)])
    elif kind == "shrink" and size > 1:
      start = rng.randrange(size - 1)
      x = x.shrink([(start, rng.randint(start + 1, size)) if a == axis else None for a in range(x.ndim)])
    elif kind == "step":
      x = x[(slice(None),) * axis + (slice(None, None, rng.choice([-3, -2, 2, 3])),)]
    elif kind == "reshape":
      sizes = [d for d in range(1, int(x.numel()) + 1) if int(x.numel()) % d == 0]
      x = x.reshape(rng.choice(sizes), -1)
    elif kind == "roll":
      x = x.roll(rng.randint(-5, 5), axis)
    elif kind == "expand" and x.numel() < 300:
      x = x.unsqueeze(axis).expand(*x.shape[:axis], rng.randint(2, 4), *x.shape[axis:])
    elif kind == "gather":
      x = x[(slice(None),) * axis + (positions(rng.randint(1, 5)),)]
    elif kind == "sum" and x.ndim > 1:
      x = x.sum(axis)
    elif kind == "add":
      x = x + x.flip(axis)
  return x + 1


@pytest.mark.parametrize("seed", range(60))
def test_random_views(seed: int) -> None:
  assert prove(random_views(random.Random(seed)), target=list(TARGETS)[seed % 3]) > 0


# *** what runs is what was proved, and what is wrong is found ***


def test_what_is_run_is_proved() -> None:
  before = proof_info()
  indices = [3, -1, 40, 0]
  table = np.arange(20, dtype=np.float32).reshape(10, 2)
  expected = np.stack([table[i] if -10 <= i < 10 else np.zeros(2, np.float32) for i in indices])
  assert (Tensor(table)[Tensor(indices)].numpy() == expected).all()
  after = proof_info()
  assert after.bounds > before.bounds and after.z3 + after.cache > before.z3 + before.cache


def test_a_kernel_that_lost_its_gates_is_refused() -> None:
  linear = schedule(data(2, 3, 13, 13).conv2d(data(8, 3, 3, 3), padding=1).graph())
  body = linear.src[0].src[0]
  gated = [u for u in body.toposort if u.op is Ops.INDEX and len(u.src) == 3]
  assert gated
  for index in gated:
    with pytest.raises(BoundsError, match=r"kernel '.*': LOAD at PARAM \d\[.*\] is out of bounds\n.*\n  gate: none\n"):
      check_bounds(body.substitute({index: index.replace(src=index.src[:2])}))


def test_the_package_in_use_is_checked() -> None:
  with pytest.raises(IndexError, match="can reach from 0 to 20"):
    tiny_tensor.Tensor.empty(10)[: Variable("n", 0, 20).bind(3)]
