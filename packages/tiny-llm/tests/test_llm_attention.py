"""Keys and values as they are kept, and attention of a token or a few over them, against NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tiny_llm import attention
from tiny_llm.attention import attend
from tiny_llm.cache import CACHE_TYPES, new_cache
from tiny_llm.quantised.products import TILE, tiles
from tiny_tensor import Tensor, TinyJit, UOp, Variable

Array = np.ndarray[Any, Any]
ROOM = 48


@pytest.fixture(params=[1, 3], ids=["whole", "in 3 parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
  """The cache of this test is divided so for threads."""
  monkeypatch.setattr(attention, "_parts", lambda *_: request.param)


@pytest.mark.parametrize(
  "heads, groups, size, slots, window, cap, kind",
  [
    (6, 2, 16, 1, 0, 0.0, "f16"),
    (4, 4, 8, 2, 0, 0.0, "f32"),  # no group, less than a vector
    (7, 1, 32, 3, 5, 0.0, "f16"),  # a window
    (2, 1, 48, 1, 17, 30.0, "f32"),  # scores that are capped
    (3, 3, 20, 1, 0, 2.0, "f16"),  # sizes that nothing divides
    (6, 2, 64, 2, 0, 0.0, "q8"),  # two scales
    (3, 3, 96, 1, 9, 5.0, "q8"),  # three
    (4, 1, 48, 1, 0, 0.0, "q8"),  # one
    (3, 1, 20, 3, 0, 0.0, "q8"),
  ],
)
@pytest.mark.usefixtures("parts")
def test_it_is_attention(heads: int, groups: int, size: int, slots: int, window: int, cap: float, kind: str) -> None:
  rng = np.random.default_rng(heads)
  queries = rng.standard_normal((heads, size)).astype(np.float32)
  k, v = (rng.standard_normal((slots, groups, ROOM, size)).astype(np.float32) for _ in range(2))
  cache = new_cache(kind, slots, groups, ROOM, size)
  variables = Variable("slot", 0, slots - 1), Variable("start", 0, ROOM - 1)
  for slot in range(slots):
    place = variables[0].bind(slot), Variable("start", 0, 0).bind(0)
    cache.write(*place, Tensor(k[slot]), Tensor(v[slot]), ROOM)
    parts = [t.realize() for t in (cache.keys, cache.values, cache.key_scales, cache.value_scales) if t is not None]
    assert sum(t.nbytes() for t in parts) == pytest.approx(CACHE_TYPES[kind] / 8 * 2 * k.size, rel=0.1)
    kept = [t.numpy() for t in cache.read(variables[0].bind(slot), Variable("end", 1, ROOM).bind(ROOM))]
    for found, given in zip(kept, (k[slot], v[slot])):
      blocks = np.abs(given).reshape(groups, ROOM, -1, 32 if size % 32 == 0 else size).max(-1)
      error = {"f32": 0.0, "f16": 1e-3, "q8": 0.51 / 127 + 1e-3}[kind] * blocks
      assert (np.abs(found - given).reshape(*blocks.shape, -1) <= error[..., None] + 1e-4 * (kind != "f32")).all()

  @TinyJit
  def look_up(q: Tensor, slot: UOp, start: UOp) -> Tensor:
    cache.values[slot, :, start : start + 1] = cache.values[slot, :, start : start + 1] * 1  # binds the variables
    return attend(q.reshape(heads, 1, size), cache, [(slot, start)], window, cap).realize()

  def numbers(slot: int, start: int) -> tuple[Array, Array]:
    """What is kept of all heads, from the first position that is seen."""
    first, end = max(0, start + 1 - window) if window else 0, Variable("end", 1, ROOM).bind(start + 1)
    keys, values = (t.numpy()[:, first:].astype(np.float64) for t in cache.read(variables[0].bind(slot), end))
    return keys, values

  for start in (7, 7, 7, 0, 15, 16, 31, ROOM - 1):
    for slot in range(slots):
      found = look_up(Tensor(queries).realize(), variables[0].bind(slot), variables[1].bind(start)).numpy()
      mine, theirs = numbers(slot, start)
      scores = np.einsum("gnd,gpd->gnp", queries.reshape(groups, -1, size), mine)
      scores = np.tanh(scores / cap) * cap if cap else scores
      weights = np.exp(scores - scores.max(-1, keepdims=True))
      expected = np.einsum("gnp,gpd->gnd", weights / weights.sum(-1, keepdims=True), theirs)
      np.testing.assert_allclose(found, expected.reshape(1, -1), rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(
  "heads, groups, size, window, kind",
  [(6, 2, 16, 0, "f16"), (6, 1, 32, 5, "q8"), (14, 1, 16, 9, "f32")],
  ids=["tiles of 4", "of 2", "of 1"],
)
@pytest.mark.usefixtures("parts")
def test_tokens_up_to_the_last_see_what_is_before_them(
  heads: int, groups: int, size: int, window: int, kind: str
) -> None:
  """As each token by itself does. Keys of tiles behind the last are not written."""
  tokens, rng = 8, np.random.default_rng(heads)
  caches = [new_cache(kind, 2, groups, ROOM, size) for _ in range(2)]
  variables = Variable("slot", 0, 1), Variable("start", 0, ROOM - tokens), Variable("last", 0, tokens - 1)

  def look_up(n: int, q: Tensor, k: Tensor, v: Tensor, slot: UOp, start: UOp, last: UOp | None) -> Tensor:
    caches[n].write(slot, start, k, v, int(k.shape[1]) if last is None else tiles(last) * TILE)
    variable = None if last is None else last.src[0]
    return attend(q, caches[n], [(slot, start)], window, 0.0, variable).realize()

  few, one = TinyJit(partial(look_up, 0)), TinyJit(partial(look_up, 1))
  start, slot = 0, variables[0].bind(1)
  for count in (5, 8, 1, 4):
    shapes = (heads, groups, groups)
    q, k, v = (rng.standard_normal((n, tokens, size)).astype(np.float32) for n in shapes)
    places = slot, variables[1].bind(start), variables[2].bind(count - 1)
    behind = start + count + -count % TILE
    before = caches[0].values.numpy()[1, :, behind:]
    found = few(*[Tensor(t).realize() for t in (q, k, v)], *places).numpy()
    np.testing.assert_array_equal(caches[0].values.numpy()[1, :, behind:], before)
    assert found.shape == (tokens, heads * size)
    for n in range(count):
      single = [Tensor(np.ascontiguousarray(t[:, n : n + 1])).realize() for t in (q, k, v)]
      alone = one(*single, slot, variables[1].bind(start + n), None).numpy()
      np.testing.assert_allclose(found[n], alone[0], rtol=2e-5, atol=2e-5)
    start += count


@pytest.mark.parametrize(
  "heads, groups, size, slots, window, kind",
  [(6, 2, 16, 2, 0, "f16"), (3, 3, 20, 4, 5, "f32"), (4, 1, 48, 3, 0, "q8")],
)
@pytest.mark.usefixtures("parts")
def test_tokens_of_several_slots_see_their_own(
  heads: int, groups: int, size: int, slots: int, window: int, kind: str
) -> None:
  """As each does by itself, in any order of slots."""
  rng = np.random.default_rng(heads)
  cache = new_cache(kind, slots, groups, ROOM, size)
  first = Variable("slot", 0, slots - 1)
  for slot in range(slots):
    keys, values = (Tensor(rng.standard_normal((groups, ROOM, size)).astype(np.float32)) for _ in range(2))
    cache.write(first.bind(slot), Variable("start", 0, 0).bind(0), keys, values, ROOM)
    Tensor.realize(*[t for t in (cache.keys, cache.values, cache.key_scales, cache.value_scales) if t is not None])
  variables = [(Variable(f"slot{n}", 0, slots - 1), Variable(f"start{n}", 0, ROOM - 1)) for n in range(slots)]

  def look_up(q: Tensor, *places: UOp) -> Tensor:
    for slot, start in zip(places[::2], places[1::2]):
      cache.values[slot, :, start : start + 1] = cache.values[slot, :, start : start + 1] * 1  # binds the variables
    return attend(q, cache, [*zip(places[::2], places[1::2])], window, 0.0).realize()

  together, alone = TinyJit(look_up), TinyJit(look_up)
  for starts in ((7, 30, 1, 47), (0, 16, 15, 31), (47, 47, 46, 0), (9, 2, 33, 20)):
    order = rng.permutation(slots)
    queries = rng.standard_normal((heads, slots, size)).astype(np.float32)
    given = [(slot.bind(int(n)), start.bind(at)) for (slot, start), n, at in zip(variables, order, starts)]
    found = together(Tensor(queries).realize(), *[place for pair in given for place in pair]).numpy()
    for row, (n, at) in enumerate(zip(order, starts)):
      place = variables[0][0].bind(int(n)), variables[0][1].bind(at)
      expected = alone(Tensor(np.ascontiguousarray(queries[:, row : row + 1])).realize(), *place).numpy()
      np.testing.assert_allclose(found[row], expected[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
  "threads, heads, room, expected",
  [
    (0, 3, 4096, 1),  # few threads
    (8, 8, 4096, 1),
    (8, 3, 4096, 8),
    (16, 24, 4096, 2),
    (64, 8, 4096, 8),
    (64, 8, 300, 2),  # a part has 128 positions at least
    (64, 8, 64, 1),
  ],
)
def test_threads_have_equally_many_parts(threads: int, heads: int, room: int, expected: int) -> None:
  assert attention._parts(threads, heads, room) == expected


def test_another_type_is_refused() -> None:
  with pytest.raises(ValueError, match="'q3' is not known: expected one of f16, f32, q8"):
    new_cache("q3", 1, 1, 16, 8)
