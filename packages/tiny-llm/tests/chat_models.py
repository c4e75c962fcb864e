"""A small model that talks: random weights, the vocabulary and the chat template of `llm_vocabularies`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from llm_vocabularies import byte_level
from small_models import SIZES, weights_of, write_llama

from tiny_llm.files.checkpoint import open_checkpoint
from tiny_llm.model import Model, load_model
from tiny_llm.text.tokenizer import Tokenizer

CHATML = (
  "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_talker(path: Path, *, template: str | None = CHATML) -> Path:
  """Writes the model file."""
  metadata = {key: value for key, value in byte_level("smollm").items() if value}
  if template is not None:
    metadata["tokenizer.chat_template"] = template
  sizes = SIZES | {"vocabulary": len(metadata["tokenizer.ggml.tokens"])}
  weights = weights_of(np.random.default_rng(5), sizes)
  weights["output.weight"] = weights["output.weight"] * 2  # so that greedy answers have no near ties
  write_llama(path, weights, metadata=metadata)
  return path


def talker(path: Path, *, context: int = 128, slots: int = 1) -> tuple[Model, Tokenizer]:
  checkpoint = open_checkpoint(path)
  return load_model(checkpoint, context=context, slots=slots), Tokenizer.from_metadata(checkpoint.metadata)
