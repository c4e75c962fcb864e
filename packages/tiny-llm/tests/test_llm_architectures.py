"""Small models of each architecture against the logits that llama.cpp computes of the same files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from architecture_models import CONTEXT, HIDDEN, MODELS, TOKENS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llm_vocabularies import byte_level

from tiny_llm import Chunk, Engine, Request, Tokenizer, load_model, open_checkpoint
from tiny_llm.architectures import ARCHITECTURES, config_of
from tiny_llm.rope import rotations

RARE = ("mixtral", "qwen2", "qwen3", "gemma", "olmoe", "phi3, short")
"""What other models cover: the folder of mixtral, qwen2moe, qwen3moe, gemma3, and phi3 with long factors."""
RECORDED = json.loads(Path(__file__).with_name("llama_logits.json").read_text("utf-8"))


def test_there_is_a_model_of_each() -> None:
  assert ARCHITECTURES.keys() == {model.architecture for model in MODELS.values()}
  assert MODELS.keys() == RECORDED.keys()


@pytest.mark.parametrize(
  "name", [pytest.param(name, marks=pytest.mark.nightly) if name in RARE else name for name in sorted(MODELS)]
)
def test_logits_are_those_of_llama_cpp(tmp_path: Path, name: str) -> None:
  checkpoint = open_checkpoint(MODELS[name].write(tmp_path / "a.gguf"))
  model = load_model(checkpoint, context=CONTEXT, cache_type="f32", exact=True)
  expected = np.array(RECORDED[name])
  if not model.config.architecture.causal:
    (found,) = model.states([Chunk(0, 0, TOKENS)])
    assert np.abs(np.asarray(found) - expected).max() < 5e-3 * np.abs(expected).max()
    return
  (found,) = model.step([Chunk(0, 0, TOKENS)], all_logits=True)
  assert np.abs(np.asarray(found) - expected).max() < 5e-3 * np.abs(expected).max()
  (found,) = model.step([Chunk(0, 7, TOKENS[7:])])
  assert np.abs(np.asarray(found) - expected[7]).max() < 5e-3 * np.abs(expected).max()


ANY = st.one_of(
  st.integers(-1, 1 << 40), st.floats(), st.booleans(), st.text(max_size=3), st.lists(st.integers(0, 3), max_size=2),
  st.sampled_from(["yarn", "longrope", 0, 1, 1e-320, 1e308]),
)  # fmt: skip
KEYS = sorted({key for small in MODELS.values() for key in small.metadata} | {
  "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "expert_count",
  "attention.head_count_kv", "attention.key_length", "attention.layer_norm_rms_epsilon", "rope.dimension_count",
  "rope.freq_base", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "pooling_type", "expert_gating_func",
})  # fmt: skip


@given(st.sampled_from(["llama, yarn", "qwen3moe", "gemma3", "phi3, long", "bert"]), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_hostile_metadata_only_raise(tmp_path: Path, name: str, data: st.DataObject) -> None:
  path = tmp_path / f"{name}.gguf"
  checkpoint = open_checkpoint(path if path.exists() else MODELS[name].write(path))
  hostile = data.draw(st.dictionaries(st.sampled_from(KEYS), ANY, max_size=4))
  metadata = {**checkpoint.metadata, **{f"{MODELS[name].architecture}.{key}": value for key, value in hostile.items()}}
  try:
    config = config_of(replace(checkpoint, metadata=metadata))
    if config.rope is not None:
      cos, _ = rotations(config.rope, 8)
      assert np.isfinite(cos).all()
  except ValueError:
    pass


def test_sizes_of_experts_that_old_files_do_not_say(tmp_path: Path) -> None:
  checkpoint = open_checkpoint(MODELS["qwen2moe"].write(tmp_path / "a.gguf"))
  metadata = {key: value for key, value in checkpoint.metadata.items() if "expert_" not in key or "count" in key}
  config = config_of(replace(checkpoint, metadata=metadata))
  assert (config.expert_hidden, config.shared_hidden) == (HIDDEN // config.used, HIDDEN)


def test_experts_that_make_no_sense(tmp_path: Path) -> None:
  checkpoint = open_checkpoint(MODELS["deepseek"].write(tmp_path / "a.gguf"))
  for key, value, message in (
    ("expert_shared_count", 0, "expert_shared_count is 0"),
    ("leading_dense_block_count", 4, "expected an integer from 0 to 3"),
    ("leading_dense_block_count", 2, "needs a tensor blk.1.ffn_"),
    ("leading_dense_block_count", 0, "needs a tensor blk.0.ffn_"),
    ("expert_gating_func", 2, "expert_gating_func is 2"),
  ):
    with pytest.raises(ValueError, match=message):
      load_model(replace(checkpoint, metadata={**checkpoint.metadata, f"deepseek.{key}": value}), context=8)


@pytest.mark.parametrize("exact", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_experts_of_a_quantised_format(tmp_path: Path, exact: bool) -> None:
  small, found = MODELS["qwen3moe"], []
  for name, held, how in (("plain", "F32", True), ("packed", "Q5_1", exact)):
    checkpoint = open_checkpoint(small.write(tmp_path / f"{name}.gguf", "Q5_1", held))
    model = load_model(checkpoint, context=CONTEXT, cache_type="f32", exact=how)
    (rows,) = model.step([Chunk(0, 0, TOKENS)], all_logits=True)
    (last,) = model.step([Chunk(0, 7, TOKENS[7:])])
    found.append(np.concatenate([np.asarray(rows), np.asarray(last)[None]]))
  plain, packed = found
  # rounding may choose another expert where two are nearly as likely, so all rows are compared at once
  assert np.sqrt(((plain - packed) ** 2).mean()) < (1e-3 if exact else 0.06) * plain.std()


@pytest.mark.parametrize(("pooling", "of"), [(1, "mean"), (2, "first"), (3, "last")])
def test_an_encoder_makes_embeddings(tmp_path: Path, pooling: int, of: str) -> None:
  small = replace(MODELS["bert"], metadata={"pooling_type": pooling})
  model = load_model(open_checkpoint(small.write(tmp_path / "a.gguf")), context=CONTEXT, exact=True)
  engine = Engine(model, Tokenizer.from_metadata(byte_level("smollm")))
  generation = engine.submit(Request(TOKENS, embed=True))
  assert any(not engine.step() for _ in range(1000))
  states = np.array(RECORDED["bert"])
  expected = {"mean": states.mean(0), "first": states[0], "last": states[-1]}[of]
  assert generation.embedding is not None
  np.testing.assert_allclose(generation.embedding, expected / np.linalg.norm(expected), atol=1e-3)
  with pytest.raises(ValueError, match="is an encoder"):
    engine.submit(Request(TOKENS))
  with pytest.raises(ValueError, match="is an encoder"):
    model.step([Chunk(0, 0, TOKENS)])
