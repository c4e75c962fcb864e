"""Random programs around attention against PyTorch's in float64: masks, biases, caps, heads that share keys, operands
that are views or computed, several types, any of the gradients, and losses of many forms.

`python test_attention_programs_torch.py FIRST COUNT` runs so many, by their seeds, and says which differ and what their
kernels are. All sizes are taken for kernels of blocks here, on devices with and without workgroups.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import tiny_tensor.realize as realize
from tiny_sched import Room, schedule_cache_clear
from tiny_sched.softmax import blocks, candidates
from tiny_tensor import Tensor
from tiny_uop import Ops

torch: Any = pytest.importorskip("torch")

ERRORS = {"float32": 2e-5, "float16": 3e-2, "bfloat16": 2e-1}
MASKS = ("none", "causal", "window", "bool", "bias", "bias of heads", "slopes")
LOSSES = ("square", "sum", "mean", "dot", "of columns", "of rows", "of keys as well", "twice")
LAYOUTS = ("contiguous", "heads inside", "sliced", "computed")


class Program(NamedTuple):
  """What is drawn."""

  dtype: str
  batch: int
  heads: int
  groups: int
  sizes: tuple[int, int, int, int]
  """Queries, keys, numbers of a key, numbers of a value."""
  mask: str
  cap: bool
  scale: float
  loss: str
  layouts: tuple[str, str, str]
  wanted: tuple[int, ...]
  """Whose gradients: 0 queries, 1 keys, 2 values, 3 the bias."""
  result: bool
  """Whether the result is asked for as well."""
  room: Room
  seed: int


def program(seed: int) -> Program:
  rng = np.random.default_rng(seed)

  def one(*choices: Any) -> Any:
    return choices[rng.integers(len(choices))]

  groups = one(1, 2)
  mask = one(*MASKS)
  operands = [n for n in range(4) if rng.random() < 0.6 and (n < 3 or mask.startswith("bias"))] or [one(0, 1, 2)]
  lengths = [int(rng.integers(48, 110)) for _ in range(2)]
  if mask == "window":
    lengths[1] = max(lengths)  # no row sees nothing
  room = Room(1 << 16) if rng.random() < 0.3 else Room(0)
  return Program(
    one("float32", "float32", "float16", "bfloat16"), one(1, 2), groups * one(1, 2), groups,
    (lengths[0], lengths[1], one(16, 24), one(16, 20, 1)), mask, bool(rng.random() < 0.2), one(1.0, 0.25), one(*LOSSES),
    (one(*LAYOUTS), one(*LAYOUTS), one(*LAYOUTS)), tuple(operands), bool(rng.random() < 0.4), room, seed,
  )  # fmt: skip


def operands(p: Program) -> list[np.ndarray[Any, Any]]:
  """Queries, keys, values, a bias, and three arrays that losses have, as they lie in memory."""
  rng = np.random.default_rng(p.seed + 1)
  n, m, size, width = p.sizes
  shapes = [
    *[stored_shape(how, p.batch, h, *s) for how, h, s in zip(
      p.layouts, (p.heads, p.groups, p.groups), ((n, size), (m, size), (m, width)), strict=True)],
    (p.heads, n, m) if p.mask == "bias of heads" else (n, m), (p.batch, p.heads, n, width), (width,), (n, 1),
  ]  # fmt: skip
  return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def stored_shape(how: str, batch: int, heads: int, length: int, size: int) -> tuple[int, ...]:
  return {
    "heads inside": (batch, length, heads, size), "sliced": (batch, heads, length + 3, size + 2),
  }.get(how, (batch, heads, length, size))  # fmt: skip


def viewed(how: str, x: Any) -> Any:
  """An operand, of either library, from what is stored."""
  if how == "heads inside":
    return x.transpose(1, 2)
  if how == "sliced":
    return x[:, :, 2:-1, 1:-1]
  return x.tanh() * 1.5 if how == "computed" else x


def loss_of(p: Program, given: list[Any], where: Any, arange: Any) -> tuple[Any, Any]:
  """(the result, the loss)."""
  q, k, v = [viewed(how, x) for how, x in zip(p.layouts, given[:3], strict=True)]
  keys = k
  if p.heads != p.groups:
    k, v = (x.repeat_interleave(p.heads // p.groups, 1) for x in (k, v))
  scores = (q @ k.transpose(-1, -2)) * p.scale
  if p.cap:
    scores = (scores / 3).tanh() * 3
  i, j = arange(p.sizes[0]).reshape(-1, 1), arange(p.sizes[1]).reshape(1, -1)
  if p.mask.startswith("bias"):
    scores = scores + given[3]
  elif p.mask == "slopes":
    scores = scores - (i - j).abs() * 0.05
  elif p.mask != "none":
    seen = {"causal": j <= i, "window": (j <= i) & (j > i - 20)}
    scores = where(seen[p.mask] if p.mask in seen else (given[3] > -1) | (j == 0), scores, -math.inf)
  weights = scores.softmax(-1)
  out = weights @ v
  loss = {
    "square": lambda: (out * out).sum(), "sum": lambda: out.sum(), "mean": lambda: out.mean(),
    "dot": lambda: (out * given[4]).sum(), "of columns": lambda: (out * given[5]).sum(),
    "of rows": lambda: (out * given[6]).sum(), "of keys as well": lambda: (out * given[4]).sum() + (keys * keys).sum(),
    "twice": lambda: (out * given[4]).sum() + ((weights @ (v * 2 + 1)) ** 2).sum(),
  }[p.loss]()  # fmt: skip
  return out, loss


def check(seed: int) -> list[str]:
  """Results and gradients are PyTorch's. The names of the kernels of blocks."""
  p = program(seed)
  arrays = operands(p)
  kind = getattr(torch, p.dtype)
  theirs = [torch.from_numpy(x).to(kind).double().requires_grad_(n in p.wanted) for n, x in enumerate(arrays)]
  out, loss = loss_of(p, theirs, lambda c, a, b: torch.where(c, a, b), torch.arange)
  loss.backward()
  want = [out.detach()] * p.result + [theirs[n].grad for n in p.wanted]
  ours = [Tensor(x).cast(p.dtype).realize().requires_grad_(n in p.wanted) for n, x in enumerate(arrays)]
  got, ends = loss_of(p, ours, lambda c, a, b: c.where(a, b), Tensor.arange)
  ends.backward()
  found = [got] * p.result + [g for n in p.wanted if (g := ours[n].grad) is not None]
  names = [call.src[0].arg.name for call in realize.plan_tensors(found)[0].src if call.src[0].op is Ops.SINK]
  found[0].realize(*found[1:])
  for n, (a, b) in enumerate(zip(found, want, strict=True)):
    large = max(1e-3, float(b.abs().max()))
    error = float(np.abs(a.double().numpy() - b.numpy()).max()) / large
    assert error <= ERRORS[p.dtype] * (5 if p.cap else 1), f"{p}: value {n} is {error:.1e} off; {names}"
  return [name for name in names if name.startswith("softmax")]


@pytest.fixture(autouse=True)
def every_size(request: pytest.FixtureRequest) -> Iterator[None]:
  with pytest.MonkeyPatch.context() as patch:
    prepare(patch, request.node.callspec.params["seed"])
    yield
  schedule_cache_clear()


def prepare(patch: pytest.MonkeyPatch, seed: int) -> None:
  room = program(seed).room
  patch.setattr(candidates, "LEAST_SCORES", 0)
  patch.setattr(blocks, "LEAST_HEADS", 1 + seed % 8)
  patch.setattr(realize, "room", lambda device: room)
  schedule_cache_clear()


@pytest.mark.parametrize(
  "seed", [*range(4), *[pytest.param(n, marks=pytest.mark.nightly) for n in range(4, 100)]]
)  # fmt: skip
def test_any_program(seed: int) -> None:
  check(seed)


if __name__ == "__main__":
  first, count = map(int, sys.argv[1:])
  for one_seed in range(first, first + count):
    with pytest.MonkeyPatch.context() as monkeypatch:
      prepare(monkeypatch, one_seed)
      try:
        print(one_seed, check(one_seed), flush=True)
      except Exception as error:
        print(one_seed, "FAILED", type(error).__name__, str(error)[:600], flush=True)
