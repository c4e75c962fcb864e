"""A model's logits against NumPy, however its tokens are cut into chunks and spread over slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import small_models as small

from tiny_llm import Chunk, Model, load_model, open_checkpoint
from tiny_tensor import Context

TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, small.SIZES["vocabulary"], 40)]


@pytest.fixture(params=["F32", "Q4_1"], scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Any]:
  """A small Llama with two slots, and its logits after each of TOKENS."""
  path = tmp_path_factory.mktemp("llama") / "a.gguf"
  kind = gguf.GGMLQuantizationType[request.param]
  held = small.write_llama(path, small.weights_of(np.random.default_rng(0)), kind)
  model = load_model(open_checkpoint(path), context=64, slots=2, cache_type="f32", exact=True)
  return model, small.llama_logits(held, TOKENS)


@pytest.mark.parametrize(
  "name", ["Q4_1", "Q5_0", *[pytest.param(name, marks=pytest.mark.nightly) for name in ("Q4_0", "Q5_1", "Q8_0")]]
)
def test_activations_of_8_bits_change_little(tmp_path: Path, name: str) -> None:
  kind = gguf.GGMLQuantizationType[name]
  held = small.write_llama(tmp_path / "a.gguf", small.weights_of(np.random.default_rng(0)), kind)
  model = load_model(open_checkpoint(tmp_path / "a.gguf"), context=64)
  expected, at, parts = small.llama_logits(held, TOKENS), 0, []
  for count in (5, 2, 16, 4, 9, 4):  # as many are computed as there are
    parts.append(np.asarray(model.step([Chunk(0, at, TOKENS[at : at + count])], all_logits=True)[0]))
    at += count
  found = np.concatenate(parts)
  whole = np.asarray(model.step([Chunk(0, 0, TOKENS)], all_logits=True)[0])  # in pieces of the same kind
  assert np.sqrt(((found - whole) ** 2).mean()) < 0.02 * expected.std()
  assert np.sqrt(((np.asarray(found) - expected) ** 2).mean()) < 0.04 * expected.std()


def test_a_cache_of_8_bits_changes_little(tmp_path: Path) -> None:
  held = small.write_llama(tmp_path / "a.gguf", small.weights_of(np.random.default_rng(0)))
  expected = small.llama_logits(held, TOKENS)
  model = load_model(open_checkpoint(tmp_path / "a.gguf"), context=64, slots=2, cache_type="q8", exact=True)
  (whole,) = model.step([Chunk(0, 0, TOKENS)], all_logits=True)
  one_by_one = [np.asarray(model.step([Chunk(1, n, [token])])[0]) for n, token in enumerate(TOKENS)]
  model.copy_prefix(0, 1, 30)
  copied = np.asarray(model.step([Chunk(1, 30, TOKENS[30:])])[0])
  for found, right in ((np.asarray(whole), expected), (np.stack(one_by_one), expected), (copied, expected[-1])):
    error = np.sqrt(((found - right) ** 2).mean()) / expected.std()
    assert 1e-5 < error < 0.01


def test_all_tokens_at_once(made: tuple[Model, Any]) -> None:
  model, expected = made
  (found,) = model.step([Chunk(0, 0, TOKENS)], all_logits=True)
  assert (found.format, found.shape) == ("f", expected.shape)
  np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-3, atol=1e-4)


def test_a_prompt_then_single_tokens(made: tuple[Model, Any]) -> None:
  model, expected = made
  for start, end in ((0, 17), *((n, n + 1) for n in range(17, 24))):
    (found,) = model.step([Chunk(1, start, TOKENS[start:end])])
    np.testing.assert_allclose(np.asarray(found), expected[end - 1], rtol=1e-3, atol=1e-4)


def test_slots_at_different_places(made: tuple[Model, Any]) -> None:
  model, expected = made
  model.step([Chunk(0, 0, TOKENS[:9]), Chunk(1, 0, TOKENS[:3])])
  found = model.step([Chunk(1, 3, TOKENS[3:4]), Chunk(0, 9, TOKENS[9:10])])
  np.testing.assert_allclose(np.asarray(found), expected[[3, 9]], rtol=1e-3, atol=1e-4)


def test_single_tokens_of_several_slots_are_one_step(made: tuple[Model, Any]) -> None:
  model, expected = made
  model.step([Chunk(0, 0, TOKENS[:9]), Chunk(1, 0, TOKENS[:3])])
  for n in range(4):
    found = model.step([Chunk(1, 3 + n, TOKENS[3 + n : 4 + n]), Chunk(0, 9 + n, TOKENS[9 + n : 10 + n])])
    np.testing.assert_allclose(np.asarray(found), expected[[3 + n, 9 + n]], rtol=1e-3, atol=1e-4)
  found = model.step([Chunk(1, 7, TOKENS[7:8]), Chunk(0, 13, TOKENS[13:14])], all_logits=True)
  np.testing.assert_allclose(np.asarray(found)[:, 0], expected[[7, 13]], rtol=1e-3, atol=1e-4)


def test_a_prefix_is_copied(made: tuple[Model, Any]) -> None:
  model, expected = made
  model.step([Chunk(0, 0, TOKENS[:20])])
  model.step([Chunk(1, 0, TOKENS[::-1])])
  model.copy_prefix(0, 1, 12)
  (found,) = model.step([Chunk(1, 12, TOKENS[12:15])])
  np.testing.assert_allclose(np.asarray(found), expected[14], rtol=1e-3, atol=1e-4)


def test_what_a_layer_does_for_each_head_is_one_kernel(
  tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
  """Each head by itself would be a kernel of its own: places within keys and queries would be constants in it."""
  counts = []
  for heads in (1, 4):
    monkeypatch.setitem(small.SIZES, "kv_heads", heads)
    small.write_llama(tmp_path / "a.gguf", small.weights_of(np.random.default_rng(0)))
    model = load_model(open_checkpoint(tmp_path / "a.gguf"), context=200)
    capsys.readouterr()
    with Context(DEBUG=1):
      model.step([Chunk(0, 0, [1] * 128)])
    counts.append(sum(line.startswith("kernel ") for line in capsys.readouterr().err.splitlines()))
  assert counts[0] == counts[1] > 5


def test_a_prefix_of_another_length_is_copied_without_a_new_kernel(
  made: tuple[Model, Any], capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
  model, _ = made
  model.copy_prefix(0, 1, 12)
  capsys.readouterr()
  with Context(DEBUG=1):
    for length in (12, 13, 30):
      model.copy_prefix(1, 0, length)
  assert "kernel " not in capsys.readouterr().err


@pytest.mark.parametrize(
  ("chunks", "message"),
  [
    ([Chunk(2, 0, [1])], "slot 2"),
    ([Chunk(0, 0, [])], "0 tokens"),
    ([Chunk(0, 60, [1] * 5)], "64 positions"),
    ([Chunk(0, 0, [80])], "vocabulary of 80"),
    ([Chunk(0, 0, [-1])], "vocabulary of 80"),
    ([Chunk(0, 0, [1]), Chunk(0, 1, [2])], "one slot"),
  ],
)
def test_chunks_that_do_not_fit(made: tuple[Model, Any], chunks: list[Chunk], message: str) -> None:
  with pytest.raises(ValueError, match=message):
    made[0].step(chunks)
