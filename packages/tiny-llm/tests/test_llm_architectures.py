"""Small models of each architecture against the logits that llama.cpp computes of the same files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from architecture_models import CONTEXT, MODELS, TOKENS

from tiny_llm import Chunk, load_model, open_checkpoint
from tiny_llm.architectures import ARCHITECTURES
from tiny_tensor import dtypes

RECORDED = json.loads(Path(__file__).with_name("llama_logits.json").read_text("utf-8"))


def test_there_is_a_model_of_each() -> None:
  assert ARCHITECTURES.keys() == {model.architecture for model in MODELS.values()}
  assert MODELS.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", sorted(MODELS))
def test_logits_are_those_of_llama_cpp(tmp_path: Path, name: str) -> None:
  checkpoint = open_checkpoint(MODELS[name].write(tmp_path / "a.gguf"))
  model = load_model(checkpoint, context=CONTEXT, cache_dtype=dtypes.float32, exact=True)
  (found,) = model.step([Chunk(0, 0, TOKENS)], all_logits=True)
  expected = np.array(RECORDED[name])
  assert np.abs(np.asarray(found) - expected).max() < 5e-3 * np.abs(expected).max()
  (found,) = model.step([Chunk(0, 7, TOKENS[7:])])
  assert np.abs(np.asarray(found) - expected[7]).max() < 5e-3 * np.abs(expected).max()


@pytest.mark.parametrize("exact", [True, False])
def test_experts_of_a_quantised_format(tmp_path: Path, exact: bool) -> None:
  small, found = MODELS["qwen3moe"], []
  for name, held, how in (("plain", "F32", True), ("packed", "Q5_1", exact)):
    checkpoint = open_checkpoint(small.write(tmp_path / f"{name}.gguf", "Q5_1", held))
    model = load_model(checkpoint, context=CONTEXT, cache_dtype=dtypes.float32, exact=how)
    (rows,) = model.step([Chunk(0, 0, TOKENS)], all_logits=True)
    (last,) = model.step([Chunk(0, 7, TOKENS[7:])])
    found.append(np.concatenate([np.asarray(rows), np.asarray(last)[None]]))
  plain, packed = found
  # rounding may choose another expert where two are nearly as likely, so all rows are compared at once
  assert np.sqrt(((plain - packed) ** 2).mean()) < (1e-3 if exact else 0.06) * plain.std()
