"""A language model on the models of GPUs: prompts and single tokens of several slots, as on the processor.

The models find races, and reads of what nobody has written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "packages" / "tiny-llm" / "tests"))

import gguf
from gpu_model_devices import on
from small_models import weights_of, write_llama

from gpu_model import cuda, kfd_backend, metal
from gpu_model.toolchain import compiler
from tiny_llm.files.checkpoint import open_checkpoint
from tiny_llm.model import Chunk, load_model

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

Array = np.ndarray[Any, Any]
BACKENDS: dict[str, Any] = {
  "METAL": metal.BACKEND, "CUDA": cuda.BACKEND, "GFX1100": kfd_backend.GFX1100, "CODE942": kfd_backend.CODE942,
}  # fmt: skip
OTHERS = [("METAL", "Q8_0", "f32"), ("METAL", "F32", "f16"), *[(name, "Q4_1", "q8") for name in BACKENDS]]
NIGHTLY = [pytest.param(*case, 5, marks=pytest.mark.nightly) for case in OTHERS]


def logits(path: Path, cache_type: str, count: int) -> list[Array]:
  """After the first of some steps: a prompt, of which two tiles are written, single tokens, one of each of two slots,
  and a prompt that is padded."""
  model = load_model(open_checkpoint(path), context=48, slots=2, cache_type=cache_type)
  steps = [[Chunk(0, 0, [1, 2, 3, 4, 5])], [Chunk(0, 5, [4])], [Chunk(1, 0, range(5, 25))], [Chunk(0, 6, [5] * 9)]]
  steps += [[Chunk(0, 15, [7]), Chunk(1, 20, [8])]]
  return [np.array(row) for step in steps[:count] for row in model.step(step)]


@pytest.mark.parametrize("gpu, kind, cache_type, steps", [("METAL", "Q4_0", "f16", 2), *NIGHTLY])
def test_logits_are_those_of_the_processor(gpu: str, kind: str, cache_type: str, steps: int, tmp_path: Path) -> None:
  path = tmp_path / "small.gguf"
  write_llama(path, weights_of(np.random.default_rng(0)), gguf.GGMLQuantizationType[kind])
  expected = logits(path, cache_type, steps)
  with on(BACKENDS[gpu], gpu, 1):
    found = logits(path, cache_type, steps)
  for mine, theirs in zip(found, expected, strict=True):
    np.testing.assert_allclose(mine, theirs, atol=2e-3)
