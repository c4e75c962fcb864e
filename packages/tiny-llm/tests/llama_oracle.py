"""Requantises a model with llama.cpp, and computes its logits in float32: `llama_oracle.py MODEL TYPE FILE PROMPTS`.

A process of its own: the interpreter needs llama-cpp-python and NumPy only, and may be another one (LLAMA_PYTHON).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np


def requantise(model: Path, kind: str, file: Path) -> None:
  """Writes the model with matrices of `kind`, or of the next best where rows are too short for its blocks."""
  settings = llama_cpp.llama_model_quantize_default_params()
  settings.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_{'ALL' if kind == 'F32' else 'MOSTLY'}_{kind}")
  settings.allow_requantize, settings.pure, settings.nthread = True, True, 2
  assert llama_cpp.llama_model_quantize(str(model).encode(), str(file).encode(), settings) == 0


def logits(file: Path, prompts: list[str]) -> tuple[list[list[int]], np.ndarray[Any, Any]]:
  """The tokens of each prompt, and the logits after its last one, (prompts, vocabulary)."""
  model = llama_cpp.Llama(str(file), n_ctx=256, n_threads=2, verbose=False, type_k=0, type_v=0)  # cache in float32
  tokens, rows = [], []
  for prompt in prompts:
    tokens.append(model.tokenize(prompt.encode(), add_bos=False, special=True))
    model.reset()
    model.eval(tokens[-1])
    found = llama_cpp.llama_get_logits_ith(model.ctx, -1)
    rows.append(np.ctypeslib.as_array(found, (model.n_vocab(),)).copy())
  return tokens, np.stack(rows)


if __name__ == "__main__":
  source, kind, target, prompts = sys.argv[1:]
  requantise(Path(source), kind, Path(target))
  wide = Path(target).with_suffix(".f32")
  requantise(Path(target), "F32", wide)
  tokens, rows = logits(wide, json.loads(prompts))
  wide.unlink()
  np.save(Path(target).with_suffix(".npy"), rows)
  Path(target).with_suffix(".json").write_text(json.dumps(tokens), "utf-8")
