"""A small model with random weights for each architecture, as a GGUF file that llama.cpp loads, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYERS, DIM, HIDDEN, HEADS, KEYS, SIZE, VOCABULARY = 2, 64, 96, 4, 2, 16, 48
TOKENS = [3, 17, 42, 8, 8, 25, 1, 30]
METADATA: dict[str, dict[str, Any]] = {
  "llama": {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0},
  "granite": {"embedding_scale": 3.0, "residual_scale": 0.5, "attention.scale": 0.2, "logit_scale": 4.0},
  "qwen2": {},
  "qwen3": {"attention.key_length": 32, "attention.value_length": 32},
  "phi3": {},
}
"""Keys of an architecture beside those that all have; of `llama`, with `rope_freqs`."""


def shapes_of(name: str) -> dict[str, tuple[int, ...]]:
  """The tensors of an architecture."""
  size = METADATA[name].get("attention.key_length", SIZE)
  queries, keys = HEADS * size, KEYS * size
  shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, DIM), "output_norm.weight": (DIM,)}
  shapes |= {} if name == "qwen3" else {"output.weight": (VOCABULARY, DIM)}  # tied
  shapes |= {"rope_freqs.weight": (size // 2,)} if name == "llama" else {}
  for n in range(LAYERS):
    parts: dict[str, tuple[int, ...]] = {
      "attn_norm.weight": (DIM,), "ffn_norm.weight": (DIM,), "attn_output.weight": (DIM, queries),
      "ffn_down.weight": (DIM, HIDDEN),
    }  # fmt: skip
    if name == "phi3":
      parts |= {"attn_qkv.weight": (queries + 2 * keys, DIM), "ffn_up.weight": (2 * HIDDEN, DIM)}
    else:
      parts |= {f"attn_{c}.weight": (queries if c == "q" else keys, DIM) for c in "qkv"}
      parts |= {"ffn_gate.weight": (HIDDEN, DIM), "ffn_up.weight": (HIDDEN, DIM)}
    if name == "qwen2":
      parts |= {f"attn_{c}.bias": (queries if c == "q" else keys,) for c in "qkv"}
    if name == "qwen3":
      parts |= {"attn_q_norm.weight": (size,), "attn_k_norm.weight": (size,)}
    shapes |= {f"blk.{n}.{part}": shape for part, shape in parts.items()}
  return shapes


def write(path: Path, name: str) -> Path:
  """Writes the model of an architecture."""
  writer, rng = gguf.GGUFWriter(path, name), np.random.default_rng(7)
  size = METADATA[name].get("attention.key_length", SIZE)
  writer.add_block_count(LAYERS)
  writer.add_context_length(64)
  writer.add_embedding_length(DIM)
  writer.add_feed_forward_length(HIDDEN)
  writer.add_head_count(HEADS)
  writer.add_head_count_kv(KEYS)
  writer.add_layer_norm_rms_eps(1e-5)
  writer.add_rope_dimension_count(size)
  writer.add_rope_freq_base(1000.0)
  writer.add_vocab_size(VOCABULARY)
  writer.add_tokenizer_model("no_vocab")
  for key, value in METADATA[name].items():
    kind = gguf.GGUFValueType.UINT32 if isinstance(value, int) else gguf.GGUFValueType.get_type(value)
    writer.add_key_value(f"{name}.{key}", value, kind)
  for tensor, shape in shapes_of(name).items():
    array = rng.normal(size=shape) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1)
    array = array if len(shape) > 1 or tensor.endswith("bias") else array + (2 if tensor.startswith("rope") else 1)
    writer.add_tensor(tensor, array.astype(np.float32))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path
