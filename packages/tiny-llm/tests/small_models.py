"""Small models with random weights as GGUF files, and what they compute, in NumPy and float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, Any]
SIZES = {"layers": 2, "dim": 64, "hidden": 96, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocabulary": 80}


def weights_of(rng: np.random.Generator, sizes: dict[str, int] = SIZES) -> dict[str, Array]:
  """The weights of a Llama, float32."""
  s = sizes
  q, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
  shapes = {
    "token_embd": (s["vocabulary"], s["dim"]),
    "output": (s["vocabulary"], s["dim"]),
    "output_norm": (s["dim"],),
  }
  for n in range(s["layers"]):
    shapes |= {
      f"blk.{n}.attn_norm": (s["dim"],), f"blk.{n}.ffn_norm": (s["dim"],), f"blk.{n}.attn_q": (q, s["dim"]),
      f"blk.{n}.attn_k": (kv, s["dim"]), f"blk.{n}.attn_v": (kv, s["dim"]), f"blk.{n}.attn_output": (s["dim"], q),
      f"blk.{n}.ffn_gate": (s["hidden"], s["dim"]), f"blk.{n}.ffn_up": (s["hidden"], s["dim"]),
      f"blk.{n}.ffn_down": (s["dim"], s["hidden"]),
    }  # fmt: skip
  made = {
    name: rng.normal(size=shape) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1) for name, shape in shapes.items()
  }
  return {f"{name}.weight": (a + (a.ndim == 1)).astype(np.float32) for name, a in made.items()}


def write_llama(
  path: Path,
  weights: dict[str, Array],
  kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
  metadata: Mapping[str, Any] | None = None,
) -> dict[str, Array]:
  """Writes a Llama, matrices in a format of ggml's, and more `metadata`; gives back the weights as the file holds
  them."""
  writer, s = gguf.GGUFWriter(path, "llama"), SIZES
  writer.add_block_count(s["layers"])
  writer.add_context_length(128)
  writer.add_embedding_length(s["dim"])
  writer.add_feed_forward_length(s["hidden"])
  writer.add_head_count(s["heads"])
  writer.add_head_count_kv(s["kv_heads"])
  writer.add_layer_norm_rms_eps(1e-5)
  writer.add_rope_dimension_count(s["head_dim"])
  writer.add_rope_freq_base(10000.0)
  for key, value in (metadata or {}).items():
    sort = gguf.GGUFValueType.get_type(value)
    writer.add_key_value(key, value, sort, sub_type=gguf.GGUFValueType.get_type(value[0]) if sort == 9 else None)
  held = {}
  for name, array in weights.items():
    how = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
    raw = gguf.quants.quantize(array, how)
    writer.add_tensor(name, raw, raw_dtype=how)
    held[name] = gguf.quants.dequantize(raw, how).astype(np.float64)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return held


def norm(x: Array, weight: Array) -> Array:
  normal: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight
  return normal


def rotated(x: Array) -> Array:
  """Rotary embedding of (tokens, heads, head_dim) from position 0 on: pairs of neighbours."""
  size = x.shape[-1]
  angle = np.arange(x.shape[0])[:, None, None] * 10000.0 ** (-2 * np.arange(size // 2) / size)
  a, b = x[..., ::2], x[..., 1::2]
  return np.stack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1).reshape(x.shape)


def llama_logits(w: dict[str, Array], tokens: Sequence[int]) -> Array:
  """The logits after each token, (tokens, vocabulary)."""
  s, x = SIZES, w["token_embd.weight"][list(tokens)]
  mask = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
  for n in range(s["layers"]):
    b = {name.split(".")[2]: array for name, array in w.items() if name.startswith(f"blk.{n}.")}
    y = norm(x, b["attn_norm"])
    q, k, v = ((y @ b[f"attn_{c}"].T).reshape(len(tokens), -1, s["head_dim"]) for c in "qkv")
    q, k = rotated(q), rotated(k)
    group = s["heads"] // s["kv_heads"]
    heads = []
    for h in range(s["heads"]):
      scores = q[:, h] @ k[:, h // group].T / np.sqrt(s["head_dim"]) + mask
      scores = np.exp(scores - scores.max(-1, keepdims=True))
      heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, h // group])
    x = x + np.concatenate(heads, -1) @ b["attn_output"].T
    y = norm(x, b["ffn_norm"])
    gate = y @ b["ffn_gate"].T
    x = x + (gate / (1 + np.exp(-gate)) * (y @ b["ffn_up"].T)) @ b["ffn_down"].T
  return np.asarray(norm(x, w["output_norm.weight"]) @ w["output.weight"].T)
