"""Sums weighted by a softmax as kernels of blocks, against the formula in float64.

REF compiles nothing and counts as a device of workgroups; here it takes these kernels as a processor does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_tensor.realize as realize
from tiny_sched import Room, schedule_cache_clear
from tiny_sched.softmax import blocks, candidates
from tiny_tensor import Tensor, Variable
from tiny_uop import AxisType, Ops, PtrDType, dtypes
from tiny_uop.context import Context

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def every_size() -> Iterator[None]:
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(candidates, "LEAST_SCORES", 0)
    patch.setattr(blocks, "LEAST_HEADS", 1)
    patch.setattr(realize, "room", lambda device: Room(0))
    schedule_cache_clear()
    yield
  schedule_cache_clear()


def kernels(t: Tensor) -> list[str]:
  """The names of the kernels that a Tensor would take."""
  return [call.src[0].arg.name for call in realize.plan_tensors([t])[0].src]


def is_one_kernel(t: Tensor) -> bool:
  names = kernels(t)
  return len(names) == 1 and names[0].startswith("softmax_")


def normal(seed: int, *shape: int) -> Array:
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention(scores: Array, values: Array) -> Array:
  """softmax(scores) · values in float64."""
  with np.errstate(invalid="ignore"):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray((weights / weights.sum(-1, keepdims=True)) @ values)


def close(got: Tensor, want: Array, error: float = 2e-6) -> None:
  np.testing.assert_allclose(got.numpy().astype(np.float64), want, rtol=error, atol=error)


@pytest.fixture
def workgroups(monkeypatch: pytest.MonkeyPatch) -> None:
  """Kernels are those of a device with workgroups, here as loops in order."""
  monkeypatch.setattr(realize, "room", lambda device: Room(1 << 16))


@pytest.mark.usefixtures("workgroups")
@pytest.mark.parametrize("mask", ["window", "bias", "random", "rows"])
def test_blocks_of_workgroups(mask: str) -> None:
  check((4, 2), 75, 141, 20, 24, 0.5, mask, mask == "window", 0)


@pytest.mark.usefixtures("workgroups")
@pytest.mark.parametrize("rounded", [True, False])
def test_what_workgroups_multiply_has_the_type_of_memory(rounded: bool) -> None:
  """Queries, keys and values; weights as well where the graph rounds them."""
  a, b, c = (normal(n, 2, 64, 16).astype(np.float16) for n in range(3))
  q, k, v = (Tensor(x).realize() for x in (a, b, c))
  weights = (q.float() @ k.float().transpose(-1, -2)).softmax(-1)
  got = weights.half() @ v if rounded else weights @ v.float()
  assert is_one_kernel(got)
  held = [u.dtype.base for u in realize.plan_tensors([got])[0].src[0].src[0].toposort if isinstance(u.dtype, PtrDType)
          and u.op is Ops.ALLOC]  # fmt: skip
  assert held.count(dtypes.float16) == (4 if rounded else 3)
  x, y, z = (x.astype(np.float64) for x in (a, b, c))
  close(got, attention(x @ y.swapaxes(-1, -2), z), 2e-3 if rounded else 2e-6)


def test_blocks_of_workgroups_fit_into_what_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
  """Two workgroups, or at least one; kernels stay as they were where there is room for none."""
  q, k, v = (Tensor(normal(n, 2, 64, 16)).realize() for n in range(3))
  taken: dict[int, int | None] = {}
  for room in (1 << 16, 1 << 15, 1 << 14, 1 << 13, 1 << 12):
    monkeypatch.setattr(realize, "room", lambda device, room=room: Room(room))
    calls = realize.plan_tensors([q.scaled_dot_product_attention(k, v)])[0].src
    shared = [u.dtype for u in calls[0].src[0].toposort if u.op is Ops.ALLOC]
    taken[room] = sum(t.size * t.base.itemsize for t in shared if isinstance(t, PtrDType)) if len(calls) == 1 else None
  assert taken == {1 << 16: 21248, 1 << 15: 12672, 1 << 14: 5312, 1 << 13: 5312, 1 << 12: None}


@pytest.mark.parametrize("device", ["CPU", "REF"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_one_kernel(device: str, causal: bool) -> None:
  heads, length, seen, size = 2, 70, 70 if causal else 53, 16
  q, k, v = (normal(n, 1, heads, t, size) for n, t in enumerate((length, seen, seen)))
  scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / math.sqrt(size)
  if causal:
    scores[..., ~np.tri(length, seen, dtype=bool)] = -np.inf
  with Context(DEVICE=device):
    got = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=causal)
    assert is_one_kernel(got)
    close(got, attention(scores, v.astype(np.float64)))


@pytest.mark.nightly
@given(
  heads=st.sampled_from([(1, 1), (2, 1), (4, 2)]),
  length=st.integers(32, 150),
  seen=st.integers(32, 150),
  size=st.sampled_from([16, 20, 32]),
  width=st.sampled_from([8, 16, 24]),
  scale=st.sampled_from([1.0, 0.25, 30.0]),
  mask=st.sampled_from(["none", "random", "window", "rows", "bias"]),
  cap=st.booleans(),
  seed=st.integers(0, 1000),
)
def test_any_attention(**case: Any) -> None:
  check(**case)


@pytest.mark.parametrize("mask", ["window", "bias", "random"])
def test_attention_with_a_mask(mask: str) -> None:
  check((4, 2), 75, 141, 20, 24, 0.5, mask, mask == "window", 0)


def check(
  heads: tuple[int, int], length: int, seen: int, size: int, width: int, scale: float, mask: str, cap: bool, seed: int
) -> None:  # fmt: skip
  many, groups = heads
  q, k, v = (
    normal(seed, many, length, size),
    normal(seed + 1, groups, seen, size),
    normal(seed + 2, groups, seen, width),
  )
  rows, columns = np.arange(length)[:, None], np.arange(seen)
  wide = [np.repeat(x.astype(np.float64), many // groups, 0) for x in (k, v)]
  scores = q.astype(np.float64) @ wide[0].swapaxes(-1, -2) * scale
  found = Tensor(q) @ Tensor(k).repeat_interleave(many // groups, 0).transpose(-1, -2) * scale
  if cap:
    scores, found = 5 * np.tanh(scores / 5), (found / 5).tanh() * 5
  if mask == "bias":
    bias = normal(seed + 3, length, seen)
    scores, found = scores + bias, found + Tensor(bias)
  elif mask != "none":
    at, of = Tensor.arange(length).unsqueeze(1), Tensor.arange(seen)
    random = np.random.default_rng(seed).random((length, seen)) < 0.3
    allowed, visible = {
      "random": (random, Tensor(random)),
      "window": ((columns <= rows) & (columns > rows - 40), (of <= at) & (of > at - 40)),
      "rows": ((rows % 3 > 0) & (columns >= 0), (at % 3 > 0) & (of >= 0)),
    }[mask]
    scores, found = np.where(allowed, scores, -np.inf), visible.where(found, -math.inf)
  got = found.softmax(-1) @ Tensor(v).repeat_interleave(many // groups, 0)
  if min(length, seen) >= 2 * size:
    assert any(name.startswith("softmax_") for name in kernels(got))
  close(got, attention(scores, wide[1]), 1e-5 * max(1.0, scale))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(dtype: str) -> None:
  q, k, v = (normal(n, 2, 64, 32).astype(dtype) for n in range(3))
  scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / math.sqrt(32)
  got = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))
  assert is_one_kernel(got) and got.dtype.name == dtype
  close(got, attention(scores, v.astype(np.float64)), 1e-3 if dtype == "float16" else 1e-14)


@pytest.mark.parametrize("device", ["CPU", "REF"])
def test_infinities_and_nans_are_as_in_the_formula(device: str) -> None:
  q, k, v = (normal(n, 1, 48, 16) for n in range(3))
  q[0, 3], k[0, 7], v[0, 9] = np.nan, np.inf, np.inf
  q[0, 5, 2] = -np.inf
  with np.errstate(invalid="ignore"):
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2)
    scores[0, 11] = -np.inf  # sees nothing
    scores[0, 12:, 7] = -np.inf
    hidden = np.zeros((48, 48), bool)
    hidden[11], hidden[12:, 7] = True, True
    with Context(DEVICE=device):
      found = Tensor(hidden).where(-math.inf, Tensor(q) @ Tensor(k).transpose(-1, -2))
      got = found.softmax(-1) @ Tensor(v)
      assert is_one_kernel(got)
      close(got, attention(scores, v.astype(np.float64)), 1e-5)


def test_large_scores_do_not_overflow() -> None:
  q, k, v = (normal(n, 1, 64, 16) for n in range(3))
  scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * 1000
  ramp = np.linspace(-1e4, 1e4, 64)
  got = (Tensor(q) @ Tensor(k).transpose(-1, -2) * 1000 + Tensor(ramp.astype(np.float32))).softmax(-1) @ Tensor(v)
  assert is_one_kernel(got)
  close(got, attention(scores + ramp.astype(np.float32), v.astype(np.float64)), 1e-2)


def test_attention_to_what_attention_has_made() -> None:
  x = Tensor(normal(0, 2, 64, 16)).realize()
  once = x.scaled_dot_product_attention(x, x)
  twice = once.scaled_dot_product_attention(x, once)
  assert kernels(twice) == ["softmax_2x64x16_r64"] * 2
  first = x.numpy().astype(np.float64)
  attended = attention(first @ first.swapaxes(-1, -2) / 4, first)
  close(twice, attention(attended @ first.swapaxes(-1, -2) / 4, attended))


def test_weights_that_are_wanted_are_not_made_twice() -> None:
  """Near misses: what else needs the weights has them in memory."""
  q, k, v = (Tensor(normal(n, 2, 64, 16)) for n in range(3))
  weights = (q @ k.transpose(-1, -2)).softmax(-1)
  names = [call.src[0].arg.name for call in realize.plan_tensors([weights, weights @ v])[0].src]
  assert len(names) > 2 and not any(name.startswith("softmax_") for name in names)


def test_no_maximum_of_something_else() -> None:
  """A near miss: what is subtracted is the maximum of other scores."""
  q, k, v = (Tensor(normal(n, 2, 64, 16)) for n in range(3))
  scores = q @ k.transpose(-1, -2)
  other = (q @ v.transpose(-1, -2)).max(-1, keepdim=True)
  weights = (scores - other).exp()
  assert not any(name.startswith("softmax_") for name in kernels(weights / weights.sum(-1, keepdim=True) @ v))


@pytest.mark.parametrize(
  ("rows", "heads", "threads", "block"),
  [(512, 8, 0, 64), (512, 8, 64, 64), (512, 8, 128, 32), (1024, 12, 128, 32), (1024, 12, 8, 64), (96, 1, 0, 48)],
)
def test_threads_get_equal_parts(rows: int, heads: int, threads: int, block: int) -> None:
  assert blocks.rows_of_block(rows, heads, threads) == block


@pytest.mark.parametrize("mask", ["causal", "none"])
def test_blocks_for_many_threads(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Smaller ones give each of them a part, and the same results."""
  monkeypatch.setattr(realize, "room", lambda device: Room(0, 16))
  q, k, v = (normal(n, 2, 256, 16) for n in range(3))
  got = attended(Tensor(q).realize(), Tensor(k).realize(), Tensor(v).realize(), 0.25, mask, False)
  kernel = realize.plan_tensors([got])[0].src[0].src[0]
  loops = [r.src[0].arg for r in kernel.toposort if r.op is Ops.RANGE and r.arg[1] is AxisType.LOOP]
  assert loops[:2] == [2, 8]  # heads, and blocks of 32 rows
  close(got, gradients_by_the_formula(q, k, v, v, 0.25, mask, False)[0], 2e-6)


def test_short_rows_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(candidates, "LEAST_SCORES", 64 * 64 + 1)
  q, k, v = (Tensor(normal(n, 2, 64, 16)) for n in range(3))
  assert not is_one_kernel(q.scaled_dot_product_attention(k, v))


def test_memory_is_that_of_the_results() -> None:
  q, k, v = (Tensor(normal(n, 2, 512, 32)).realize() for n in range(3))
  linear = realize.plan_tensors([q.scaled_dot_product_attention(k, v, is_causal=True)])[0]
  sizes = [a.arg[1] for call in linear.src for a in call.src[1:]]
  assert max(sizes) == 2 * 512 * 32


def test_a_cache_of_symbolic_length() -> None:
  """Queries from a position on, over the keys up to theirs in another order: one kernel for all positions."""
  room, groups, shared, size, tokens = 256, 2, 3, 32, 64
  k, v = (Tensor(normal(n, groups, room, size)).cast(dtypes.float16).realize() for n in range(2))
  packed = k.reshape(groups, room // 16, 16, size).transpose(-1, -2).contiguous().realize()
  q = Tensor(normal(2, groups, shared, tokens, size)).realize()
  start = Variable("start", 0, room - tokens)
  seen = set()
  for at in (0, 5, 100, room - tokens):
    first = start.bind(at)
    end = first + tokens
    keys = packed.transpose(-1, -2).reshape(groups, room, size)[:, :end].float().unsqueeze(1)
    place, key = Tensor.arange(tokens).reshape(-1, 1) + first, Tensor.arange(end).reshape(1, -1)
    scores = (key <= place).where(q @ keys.transpose(-1, -2) * 0.2, -math.inf)
    got = scores.softmax(-1) @ v[:, :end].float().unsqueeze(1)
    assert is_one_kernel(got)
    seen.add(realize.plan_tensors([got])[0].src[0].src[0])
    known, values = (x.numpy()[:, None, : at + tokens].astype(np.float64) for x in (k, v))
    wanted = q.numpy().astype(np.float64) @ known.swapaxes(-1, -2) * 0.2
    wanted = np.where(np.arange(at + tokens) <= np.arange(tokens)[:, None] + at, wanted, -np.inf)
    close(got, attention(wanted, values), 1e-5)
  assert len(seen) == 1


def test_keys_that_are_dear_to_compute_have_memory() -> None:
  """Each block of queries would compute a rotary embedding of all keys again."""
  q, k, v = (Tensor(normal(n, 2, 64, 16)).realize() for n in range(3))
  angles = Tensor.arange(64).unsqueeze(1) * (Tensor.arange(8) * -0.5).exp()

  def turned(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return (a * angles.cos() - b * angles.sin()).cat(b * angles.cos() + a * angles.sin(), dim=-1)

  got = turned(q).scaled_dot_product_attention(turned(k), v, is_causal=True)
  assert kernels(got)[-1] == "softmax_2x64x16_r64"
  found = [turned(x).numpy().astype(np.float64) for x in (q, k)]
  scores = np.where(np.tri(64, dtype=bool), found[0] @ found[1].swapaxes(-1, -2) / 4, -np.inf)
  close(got, attention(scores, v.numpy().astype(np.float64)), 1e-5)


@pytest.mark.parametrize("which", ["weights", "results", "both"])
def test_rows_that_see_nothing_are_0_where_the_formula_says_so(which: str) -> None:
  q, k, v = (normal(n, 2, 64, 16) for n in range(3))
  allowed = np.broadcast_to((np.arange(64) % 3 > 0)[:, None] & (np.arange(64) < 50), (64, 64))
  rows, columns = Tensor.arange(64).unsqueeze(1), Tensor.arange(64)
  visible = (rows % 3 > 0) & (columns < 50)
  found = visible.where(Tensor(q) @ Tensor(k).transpose(-1, -2), -math.inf).softmax(-1)
  if which != "results":
    found = visible.where(found, 0.0)
  got = found @ Tensor(v)
  if which != "weights":
    got = (rows % 3 > 0).where(got, 0.0)
  scores = np.where(allowed, q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2), -np.inf)
  close(got, np.where(np.arange(64)[:, None] % 3 > 0, attention(scores, v.astype(np.float64)), 0), 1e-5)


def test_masks_whose_edge_is_no_line() -> None:
  """What is left out of a block is what none of its rows sees, in whatever order rows see more."""
  q, k, v = (normal(n, 2, 192, 16) for n in range(3))
  limits = np.random.default_rng(0).integers(1, 192, 192).astype(np.int32)
  columns, rows = Tensor.arange(192), Tensor.arange(192).unsqueeze(1)
  for visible, seen in (
    (columns < Tensor(limits).realize().unsqueeze(1), np.arange(192) < limits[:, None]),
    (columns <= rows % 50, np.arange(192) <= np.arange(192)[:, None] % 50),
    (columns <= 191 - rows, np.arange(192) <= 191 - np.arange(192)[:, None]),
  ):
    got = visible.where(Tensor(q) @ Tensor(k).transpose(-1, -2), -math.inf).softmax(-1) @ Tensor(v)
    assert is_one_kernel(got)
    scores = np.where(seen, q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2), -np.inf)
    close(got, attention(scores, v.astype(np.float64)), 1e-5)


# *** gradients ***


def some(rows: int, columns: int) -> Array:
  """Half of the pairs, and all of the first column."""
  found = np.random.default_rng(rows).random((rows, columns)) < 0.5
  found[:, 0] = True
  return found


def attended(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: str, cap: bool) -> Tensor:
  """softmax(scores) · values, written out."""
  scores = q @ k.transpose(-1, -2) * scale
  if cap:
    scores = (scores / 5).tanh() * 5
  rows, columns = Tensor.arange(q.shape[-2]).unsqueeze(1), Tensor.arange(k.shape[-2])
  if mask == "dropout":
    return scores.softmax(-1) * Tensor(some(int(q.shape[-2]), int(k.shape[-2]))).realize() * 2 @ v
  if mask == "random":
    scores = Tensor(some(int(q.shape[-2]), int(k.shape[-2]))).realize().where(scores, -math.inf)
  elif mask != "none":
    visible = columns <= rows if mask == "causal" else (columns <= rows) & (columns > rows - 40)
    scores = visible.where(scores, -math.inf)
  return scores.softmax(-1) @ v


def gradients_by_the_formula(
  q: Array, k: Array, v: Array, g: Array, scale: float, mask: str, cap: bool
) -> tuple[Array, ...]:
  """(results, gradients of q, k and v) in float64."""
  q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
  rows, columns = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
  given = some(q.shape[-2], k.shape[-2])
  seen = {"causal": columns <= rows, "window": (columns <= rows) & (columns > rows - 40), "random": given}.get(mask)
  kept = given * 2.0 if mask == "dropout" else 1.0
  scores = q @ k.swapaxes(-1, -2) * scale
  slope = np.full_like(scores, scale)
  if cap:
    scores = 5 * np.tanh(scores / 5)
    slope *= 1 - (scores / 5) ** 2
  if seen is not None:
    scores = np.where(seen, scores, -np.inf)
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  weights /= weights.sum(-1, keepdims=True)
  of_weights = g @ v.swapaxes(-1, -2) * kept
  of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True)) * slope
  return (weights * kept) @ v, of_scores @ k, of_scores.swapaxes(-1, -2) @ q, (weights * kept).swapaxes(-1, -2) @ g


@pytest.mark.usefixtures("workgroups")
@pytest.mark.parametrize("mask", ["window", pytest.param("random", marks=pytest.mark.nightly)])
def test_gradients_of_workgroups(mask: str) -> None:
  """Two kernels, each of whose blocks is by itself: of queries, and of keys; also where blocks divide neither."""
  names = ["softmax_3x75x24_r70", "softmax_gradients_3x70x75", "softmax_gradients_3x75x70"]
  check_gradients(3, 75, 70, 16, 24, 0.5, mask, mask == "window", names=names)


def check_gradients(
  heads: int, length: int, seen: int, size: int, width: int, scale: float, mask: str, cap: bool, dtype: str = "float32",
  names: Sequence[str] = (),
) -> None:  # fmt: skip
  shapes = ((heads, length, size), (heads, seen, size), (heads, seen, width), (heads, length, width))
  a, b, c, g = (normal(n, *shape).astype(dtype) for n, shape in enumerate(shapes))
  q, k, v = (Tensor(x).realize().requires_grad_() for x in (a, b, c))
  got = attended(q, k, v, scale, mask, cap)
  (got * Tensor(g).realize()).sum().backward()
  assert q.grad is not None and k.grad is not None and v.grad is not None
  results = [got, q.grad, k.grad, v.grad]
  if min(length, seen) >= 2 * max(size, width):
    usual = [f"softmax_{heads}x{length}x{width}_r{seen}", f"softmax_gradients_{heads}x{length}x{seen}"]
    assert sorted(blocks_of(results)) == sorted(names or usual)
  got.realize(*results[1:])
  for found, wanted in zip(results, gradients_by_the_formula(a, b, c, g, scale, mask, cap)):
    # scores that are computed again are not those of the maximum to the bit: errors are in proportion to the largest
    close(found, wanted, (1e-14 if dtype == "float64" else 5e-6) * max(1.0, float(np.abs(wanted).max())))


def blocks_of(results: list[Tensor]) -> list[str]:
  """The names of the kernels of blocks; none of the others has an element for each pair."""
  linear = realize.plan_tensors(results)[0]
  names = [call.src[0].arg.name for call in linear.src]
  assert not any(name.startswith("reduce") for name in names)
  return [name for name in names if name.startswith("softmax")]


@pytest.mark.parametrize("device", ["CPU", pytest.param("REF", marks=pytest.mark.nightly)])
def test_gradients_are_one_kernel(device: str) -> None:
  with Context(DEVICE=device):
    check_gradients(2, 64, 64, 16, 16, 0.25, "causal", False)


@pytest.mark.parametrize(
  "mask", ["window", *[pytest.param(m, marks=pytest.mark.nightly) for m in ("random", "dropout")]]
)
def test_gradients_of_other_lengths_and_widths(mask: str) -> None:
  check_gradients(3, 145, 131, 16, 24, 0.5, mask, mask == "window")


@pytest.mark.nightly
def test_gradients_in_float64() -> None:
  check_gradients(2, 128, 64, 16, 16, 0.25, "none", False, "float64")


@pytest.mark.nightly
@given(
  heads=st.integers(1, 4),
  length=st.integers(32, 200),
  seen=st.integers(32, 200),
  size=st.sampled_from([16, 20, 32]),
  width=st.sampled_from([16, 24, 40]),
  scale=st.sampled_from([1.0, 0.25]),
  mask=st.sampled_from(["none", "causal", "window", "random", "dropout"]),
  cap=st.booleans(),
)
def test_any_gradients(**case: Any) -> None:
  if case["mask"] == "window" and case["length"] > case["seen"] + 39:
    case["mask"] = "causal"  # no row sees nothing
  check_gradients(**case)


@pytest.mark.parametrize("heads", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_weights_that_are_dropped_are_drawn_again(heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
  """Kernels of blocks leave out what kernels with memory for all pairs do, and no mask has memory."""
  monkeypatch.setattr(blocks, "LEAST_HEADS", 2)

  def computed(in_blocks: bool) -> list[Array]:
    Tensor.manual_seed(7)
    q, k, v = (Tensor(normal(n, heads, 67, 16)).realize().requires_grad_() for n in range(3))
    with Tensor.train():
      got = q.scaled_dot_product_attention(k, v, dropout_p=0.3)
    got.square().sum().backward()
    results = [got, *[x.grad for x in (q, k, v) if x.grad is not None]]
    made = [call.src[0] for call in realize.plan_tensors(results)[0].src if call.src[0].op is Ops.SINK]
    names = [kernel.arg.name for kernel in made]
    assert in_blocks == any(name.startswith("softmax_gradients") for name in names)
    assert not in_blocks or f"elementwise_{heads * 67 * 67}" not in names
    got.realize(*results[1:])
    return [x.numpy() for x in results]

  found = computed(True)
  monkeypatch.setattr(realize, "room", lambda device: Room())
  schedule_cache_clear()
  for a, b in zip(found, computed(False), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_gradients_of_keys_that_heads_share() -> None:
  """What each head has of a key's gradient is added up behind the kernel."""
  a, g = normal(0, 4, 64, 16), normal(3, 4, 64, 16)
  b, c = normal(1, 2, 64, 16), normal(2, 2, 64, 16)
  q, k, v = (Tensor(x).realize().requires_grad_() for x in (a, b, c))
  keys, values = (x.unsqueeze(1).expand(2, 2, 64, 16).reshape(4, 64, 16) for x in (k, v))
  got = attended(q, keys, values, 0.25, "causal", False)
  (got * Tensor(g).realize()).sum().backward()
  assert q.grad is not None and k.grad is not None and v.grad is not None
  results = [got, q.grad, k.grad, v.grad]
  names = [call.src[0].arg.name for call in realize.plan_tensors(results)[0].src]
  assert {"softmax_4x64x16_r64", "softmax_gradients_4x64x64"} <= {*names}
  got.realize(*results[1:])
  out, of_q, *of_shared = gradients_by_the_formula(
    a, b.repeat(2, axis=0), c.repeat(2, axis=0), g, 0.25, "causal", False
  )
  for found, wanted in zip(results, (out, of_q, *(x.reshape(2, 2, 64, 16).sum(1) for x in of_shared))):
    close(found, wanted, 5e-6 * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize("room", [0, pytest.param(1 << 16, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(
  ("wanted", "mask"),
  [
    ("qkv", "causal"),
    ("q", "none"),
    *[pytest.param(*c, marks=pytest.mark.nightly) for c in (("k", "window"), ("qv", "dropout"), ("kv", "random"))],
  ],
)
def test_gradients_that_are_wanted(
  wanted: str, mask: str, computed: bool, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Any of them, with the results or, as of a loss whose value nobody asks for, without."""
  monkeypatch.setattr(realize, "room", lambda device: Room(room))
  rows, keys, values, grad = normal(0, 2, 75, 16), normal(1, 2, 70, 16), normal(2, 2, 70, 24), normal(3, 2, 75, 24)
  q, k, v, g = (Tensor(x).realize() for x in (rows, keys, values, grad))
  got = attended(q, k, v, 0.25, mask, False)
  results = [got] * computed + list(got.gradient(*[{"q": q, "k": k, "v": v}[x] for x in wanted], gradient=g))
  assert set(blocks_of(results)) == {
    "softmax_2x75x24_r70",
    *["softmax_gradients_2x75x70"] * (wanted != "q"),
    *["softmax_gradients_2x70x75"] * (wanted == "q" or ("q" in wanted and room > 0)),
  }
  results[0].realize(*results[1:])
  formula = gradients_by_the_formula(rows, keys, values, grad, 0.25, mask, False)
  of = dict(zip(["", "q", "k", "v"], formula))
  for found, name in zip(results, [""] * computed + list(wanted), strict=True):
    close(found, of[name], 5e-6 * max(1.0, float(np.abs(of[name]).max())))


def test_gradients_take_memory_of_rows_only() -> None:
  q, k, v = (Tensor(normal(n, 2, 512, 16)).realize().requires_grad_() for n in range(3))
  got = q.scaled_dot_product_attention(k, v, is_causal=True)
  got.square().sum().backward()
  assert q.grad is not None and k.grad is not None and v.grad is not None
  results = [q.grad, k.grad, v.grad]
  assert blocks_of(results) == ["softmax_2x512x16_r512", "softmax_gradients_2x512x512"]
  held = {b for call in realize.plan_tensors(results)[0].src for a in call.src[1:] for b in a.toposort}
  assert sum(b.arg[1] * b.dtype.itemsize for b in held if b.op is Ops.BUFFER) < 512 * 512 * 4


@pytest.mark.parametrize("computed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_two_layers_of_attention(computed: bool) -> None:
  """What the second layer attends to is made of the first one's results, and so are its gradients."""
  x = normal(0, 2, 64, 16)
  mixed = [normal(n, 16, 16) / 4 for n in range(1, 5)]

  def of(start: Tensor) -> Tensor:
    for a, b in (mixed[:2], mixed[2:]):
      h = start.tanh()
      start = start + h.scaled_dot_product_attention(h @ Tensor(a), h @ Tensor(b), is_causal=True)
    return start.square().sum()

  start = Tensor(x).realize().requires_grad_()
  of(start).backward()
  assert start.grad is not None
  names = [name for name in kernels(start.grad) if name.startswith("softmax")]
  assert names == ["softmax_2x64x16_r64"] * 2 + ["softmax_gradients_2x64x64"] * 2
  if not computed:
    return
  way, step = normal(9, 2, 64, 16).astype(np.float64), 1e-6
  ends = [of(Tensor(x.astype(np.float64) + sign * step * way)).item() for sign in (1, -1)]
  found = float((start.grad.numpy() * way).sum())
  assert math.isclose(found, (ends[0] - ends[1]) / (2 * step), rel_tol=1e-4)


def test_gradients_with_weights_that_are_wanted() -> None:
  """Near misses: what else needs the weights, or a gradient of the scores."""
  q, k, v = (Tensor(normal(n, 2, 64, 16)).realize().requires_grad_() for n in range(3))
  bias = Tensor(normal(3, 64, 64)).realize().requires_grad_()
  weights = (q @ k.transpose(-1, -2) + bias).softmax(-1)
  (weights @ v).square().sum().backward()
  assert q.grad is not None and bias.grad is not None
  assert not any(name.startswith("softmax") for name in kernels(bias.grad))
  names = [call.src[0].arg.name for call in realize.plan_tensors([q.grad, weights])[0].src]
  assert not any(name.startswith("softmax") for name in names)


def test_gradients_of_weights_that_are_divided_by_more_than_their_sum() -> None:
  """A near miss: what a row has of gradients is no sum over its results where the divisor is a pair's."""
  q, k, v = (Tensor(normal(n, 2, 64, 16)).realize().requires_grad_() for n in range(3))
  scores = q @ k.transpose(-1, -2)
  weights = (scores - scores.detach().max(-1, keepdim=True)).exp()
  total = weights.sum(-1, keepdim=True)
  for divisor, taken in ((total, True), (total + 1, True), (total + Tensor.arange(64), False)):
    got = weights * divisor.reciprocal() @ v
    grads = got.gradient(q, k, v, gradient=Tensor(normal(3, 2, 64, 16)).realize())
    names = [call.src[0].arg.name for call in realize.plan_tensors([got, *grads])[0].src]
    assert any(name.startswith("softmax_gradients") for name in names) == taken


@pytest.mark.parametrize("mask", ["causal", pytest.param("random", marks=pytest.mark.nightly)])
def test_gradients_of_few_heads_are_two_kernels(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
  """Whose threads share blocks of keys, and of queries."""
  monkeypatch.setattr(blocks, "LEAST_HEADS", 3)
  names = ["softmax_2x141x24_r130", "softmax_gradients_2x141x130", "softmax_gradients_2x130x141"]
  check_gradients(2, 141, 130, 16, 24, 0.5, mask, False, names=names)
