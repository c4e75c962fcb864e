"""Gradients of attention hold nothing of each pair of a query and a key: of any of its operands, with results or
without, of losses whose own gradient is a number, in memory, or the same for all rows or all columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from test_online_softmax import Array, attended, gradients_by_the_formula, normal

import tiny_tensor.realize as realize
from tiny_sched import Room, schedule_cache_clear
from tiny_sched.softmax import blocks, candidates
from tiny_tensor import Tensor
from tiny_uop import Ops

HEADS, ROWS, KEYS, SIZE, WIDTH = 2, 101, 90, 16, 20
LOSSES = ("number", "columns", "rows", "memory")


@pytest.fixture(autouse=True)
def every_size() -> Iterator[None]:
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(candidates, "LEAST_SCORES", 0)
    patch.setattr(blocks, "LEAST_HEADS", 1)
    schedule_cache_clear()
    yield
  schedule_cache_clear()


def gradient_of(loss: str) -> Array:
  """What comes back to the results."""
  if loss == "number":
    return np.full((1, 1, 1), 0.5, np.float32)
  return normal(3, *{"columns": (1, 1, WIDTH), "rows": (HEADS, ROWS, 1), "memory": (HEADS, ROWS, WIDTH)}[loss])


def largest(results: list[Tensor]) -> int:
  """Elements of the largest memory of a schedule."""
  calls = realize.plan_tensors(results)[0].src
  held = {b for call in calls for a in call.src[1:] for b in a.toposort if b.op is Ops.BUFFER}
  return max(int(b.arg[1]) * b.dtype.itemsize // 4 for b in held)


def check(wanted: str, loss: str, mask: str, room: int, computed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(realize, "room", lambda device: Room(room))
  a, b, c = normal(0, HEADS, ROWS, SIZE), normal(1, HEADS, KEYS, SIZE), normal(2, HEADS, KEYS, WIDTH)
  grad = gradient_of(loss)
  q, k, v = (Tensor(x).realize().requires_grad_(name in wanted) for name, x in zip("qkv", (a, b, c)))
  got = attended(q, k, v, 0.25, mask, False)
  factor = Tensor(grad).realize() if loss != "number" else Tensor.full((1, 1, 1), 0.5)
  (got * factor).sum().backward()
  of = {"q": q, "k": k, "v": v}
  results = [got] * computed + [x for name in wanted if (x := of[name].grad) is not None]
  assert len(results) == computed + len(wanted)
  assert largest(results) < HEADS * ROWS * KEYS
  results[0].realize(*results[1:])
  formula = gradients_by_the_formula(a, b, c, np.broadcast_to(grad, (HEADS, ROWS, WIDTH)), 0.25, mask, False)
  named = dict(zip("oqkv", formula, strict=True))
  for found, name in zip(results, "o" * computed + wanted, strict=True):
    error = 1e-5 * max(1.0, float(np.abs(named[name]).max()))
    np.testing.assert_allclose(found.numpy(), named[name], rtol=0, atol=error)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("wanted", ["v", "qkv"])
def test_no_memory_for_pairs(wanted: str, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
  check(wanted, loss, "causal", 0, False, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("room", [0, 1 << 16])
@pytest.mark.parametrize("mask", ["none", "window", "random"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("wanted", ["q", "k", "v", "qk", "kv", "qkv"])
def test_no_memory_for_pairs_in_any_case(
  wanted: str, loss: str, mask: str, room: int, computed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
  check(wanted, loss, mask, room, computed, monkeypatch)
