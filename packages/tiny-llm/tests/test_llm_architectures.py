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
