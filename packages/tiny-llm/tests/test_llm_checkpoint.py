"""Model files that lie are refused by name before anything is computed."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import small_models as small

from tiny_llm import load_model, open_checkpoint


def test_tensors_are_as_they_lie_in_the_file(tmp_path: Path) -> None:
  weights = small.weights_of(np.random.default_rng(0))
  held = small.write_llama(tmp_path / "a.gguf", weights, gguf.GGMLQuantizationType.Q4_1)
  checkpoint = open_checkpoint(tmp_path / "a.gguf")
  blocks = checkpoint.tensors["blk.1.ffn_up.weight"]
  assert (blocks.format.name, blocks.shape, blocks.on().shape) == ("Q4_1", (96, 64), (96, 2, 20))
  assert str(blocks.data.device).startswith("DISK:")
  np.testing.assert_allclose(blocks.numbers().numpy(), held["blk.1.ffn_up.weight"], rtol=1e-6)
  assert checkpoint.metadata["llama.block_count"] == 2


def write(path: Path, architecture: str, **entries: int) -> Path:
  writer = gguf.GGUFWriter(path, architecture)
  for key, value in entries.items():
    writer.add_uint32(key.replace("__", "."), value)
  writer.add_tensor("token_embd.weight", np.zeros((8, 8), np.float32))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
  checkpoint = open_checkpoint(write(tmp_path / "a.gguf", "perceptron"))
  with pytest.raises(ValueError, match="'perceptron' is not known here; known are llama"):
    load_model(checkpoint, context=8)


def test_a_tensor_without_a_use_is_refused(tmp_path: Path) -> None:
  weights = small.weights_of(np.random.default_rng(0))
  small.write_llama(tmp_path / "a.gguf", weights | {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)})
  with pytest.raises(ValueError, match="no use for the tensor 'blk.0.attn_sinks.weight'"):
    load_model(open_checkpoint(tmp_path / "a.gguf"), context=8)


def test_a_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
  with pytest.raises(ValueError, match="split over 3 files"):
    open_checkpoint(write(tmp_path / "a.gguf", "llama", split__count=3))


@pytest.mark.parametrize(
  ("entries", "message"),
  [
    ({}, "llama.attention.head_count is None"),
    ({"llama__attention__head_count": 0}, "head_count is 0"),
    ({"llama__attention__head_count": 1 << 30}, "head_count is 1073741824"),
    (
      {"llama__attention__head_count": 3, "llama__attention__head_count_kv": 2, "llama__embedding_length": 9},
      "3 heads are no multiple of 2",
    ),
  ],
)
def test_sizes_that_make_no_sense(tmp_path: Path, entries: dict[str, int], message: str) -> None:
  checkpoint = open_checkpoint(write(tmp_path / "a.gguf", "llama", **entries))
  with pytest.raises(ValueError, match=message):
    load_model(checkpoint, context=8)
