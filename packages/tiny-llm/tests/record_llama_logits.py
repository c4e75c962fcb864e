"""Writes the logits (states, of an encoder) that llama.cpp computes of the models of `architecture_models.py` into
`llama_logits.json`, which `test_llm_architectures.py` compares with: `python record_llama_logits.py`, with
llama-cpp-python and gguf."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np
from architecture_models import CONTEXT, DIM, MODELS, TOKENS, VOCABULARY

FILE = Path(__file__).with_name("llama_logits.json")


def logits(path: Path, encoder: bool) -> list[list[float]]:
  """The logits after each of TOKENS, or their states."""
  model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
  settings = llama_cpp.llama_context_default_params()
  settings.n_ctx, settings.type_k, settings.type_v = CONTEXT, 0, 0  # float32
  settings.embeddings, settings.pooling_type = encoder, 0
  context = llama_cpp.llama_init_from_model(model, settings)
  batch = llama_cpp.llama_batch_init(len(TOKENS), 0, 1)
  batch.n_tokens = len(TOKENS)
  for n, token in enumerate(TOKENS):
    batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = token, n, 1, 1
    batch.seq_id[n][0] = 0
  assert llama_cpp.llama_decode(context, batch) == 0
  read, size = (llama_cpp.llama_get_embeddings_ith, DIM) if encoder else (llama_cpp.llama_get_logits_ith, VOCABULARY)
  rows = [np.ctypeslib.as_array(read(context, n), (size,)) for n in range(len(TOKENS))]
  return [[round(float(x), 5) for x in row] for row in rows]


if __name__ == "__main__":
  with tempfile.TemporaryDirectory() as folder:
    made = {
      name: logits(model.write(Path(folder) / f"{name}.gguf"), model.architecture == "bert")
      for name, model in MODELS.items()
    }
  FILE.write_text("{\n" + ",\n".join(f'"{name}": {json.dumps(rows)}' for name, rows in made.items()) + "\n}\n", "utf-8")
