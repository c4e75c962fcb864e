"""What llama.cpp makes of a model: `llama_oracle.py logits MODEL FORMAT FILE PROMPTS` requantises it for its logits,
`llama_oracle.py margins MODEL FILE` says of texts in a file how near they are to the likeliest.

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


def opened(file: Path, **options: Any) -> llama_cpp.Llama:
  """A model with keys and values in float32."""
  return llama_cpp.Llama(
    str(file), n_ctx=512, n_threads=2, n_threads_batch=2, verbose=False, type_k=0, type_v=0, **options
  )


def logits(file: Path, prompts: list[str]) -> tuple[list[list[int]], np.ndarray[Any, Any]]:
  """The tokens of each prompt, and the logits after each of them all, (tokens, vocabulary)."""
  model = opened(file, logits_all=True)
  tokens, rows = [], []
  for prompt in prompts:
    tokens.append(model.tokenize(prompt.encode(), add_bos=False, special=True))
    model.reset()
    model.eval(tokens[-1])
    rows.append(np.array(model.scores[: model.n_tokens], np.float32))
  return tokens, np.concatenate(rows)


def margins(file: Path, prompts: list[list[int]], texts: list[list[int]]) -> list[list[float]]:
  """For each token of the texts that go on with prompts, how much likelier the likeliest one is, in spreads of the
  logits: 0 where the text is what the model says at temperature 0."""
  model, found = opened(file, logits_all=True), []
  for prompt, text in zip(prompts, texts, strict=True):
    model.reset()
    model.eval([*prompt, *text])
    rows = np.array(model.scores[len(prompt) - 1 : model.n_tokens - 1], np.float64)
    found.append([float((row.max() - row[token]) / row.std()) for row, token in zip(rows, text, strict=True)])
  return found


def in_float32(model: Path, beside: Path) -> Path:
  """A file with the model's weights in float32: llama.cpp rounds activations where weights are quantised."""
  wide = beside.with_suffix(".f32")
  requantise(model, "F32", wide)
  return wide


if __name__ == "__main__":
  if sys.argv[1] == "logits":
    source, kind, target, prompts = sys.argv[2:]
    file = Path(target)
    requantise(Path(source), kind, file)
    wide = in_float32(file, file)
    tokens, exact = logits(wide, json.loads(prompts))
    wide.unlink()
    np.savez(file.with_suffix(".npz"), exact=exact, rounded=logits(file, json.loads(prompts))[1])
    file.with_suffix(".json").write_text(json.dumps(tokens), "utf-8")
  else:
    source, target = sys.argv[2:]
    prompts, texts = json.loads(Path(target).read_text("utf-8"))
    wide = in_float32(Path(source), Path(target))
    made = {how: margins(file, prompts, texts[how]) for how, file in (("exact", wide), ("rounded", Path(source)))}
    wide.unlink()
    Path(target).write_text(json.dumps(made), "utf-8")
