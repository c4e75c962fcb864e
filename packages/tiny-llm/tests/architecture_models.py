"""Small models with random weights for each architecture, as GGUF files that llama.cpp loads, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np

DIM, HIDDEN, HEADS, KEYS, VOCABULARY, CONTEXT = 64, 96, 4, 2, 48, 64
TOKENS = [3, 17, 42, 8, 8, 25, 1, 30]


@dataclass(frozen=True)
class Small:
  """A model: its architecture, keys of its metadata beside those that all have, and which tensors it has.

  `size` is that of a head, `keys` the number of those of keys and values. `biases` and `norms` name tensors of a layer
  that have a bias, and norms beside the two before its parts, with their sizes. `joined`: queries, keys and values are
  one tensor. `gate`: "own", "joined" or "". Layers from `leading` on have `experts`, whose inner size is `inner`, and
  what all tokens take beside them has `shared`.
  `more`: tensors beside the layers.
  """

  architecture: str
  metadata: dict[str, Any] = field(default_factory=dict)
  layers: int = 2
  size: int = 16
  keys: int = KEYS
  tied: bool = False
  joined: bool = False
  gate: str = "own"
  norms: dict[str, int] = field(default_factory=dict)
  biases: tuple[str, ...] = ()
  experts: int = 0
  inner: int = HIDDEN
  leading: int = 0
  shared: int = 0
  more: dict[str, tuple[int, ...]] = field(default_factory=dict)

  def shapes(self) -> dict[str, tuple[int, ...]]:
    """The tensors."""
    queries, keys = HEADS * self.size, self.keys * self.size
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, DIM), **self.more}
    shapes |= {} if self.architecture == "bert" else {"output_norm.weight": (DIM,)}
    shapes |= {} if self.tied else {"output.weight": (VOCABULARY, DIM)}
    parts: dict[str, tuple[int, ...]] = {"attn_output": (DIM, queries)}
    parts |= {"attn_norm": (DIM,), "ffn_norm": (DIM,)} if self.architecture != "bert" else {}
    parts |= {name: (size,) for name, size in self.norms.items()}
    if self.joined:
      parts |= {"attn_qkv": (queries + 2 * keys, DIM)}
    else:
      parts |= {f"attn_{c}": (queries if c == "q" else keys, DIM) for c in "qkv"}
    for n in range(self.layers):
      layer = parts | (self.mixture() if self.experts and n >= self.leading else self.feed())
      shapes |= {f"blk.{n}.{part}.weight": shape for part, shape in layer.items()}
      shapes |= {f"blk.{n}.{part}.bias": layer[part][:1] for part in self.biases}
    return shapes

  def feed(self, end: str = "", hidden: int = HIDDEN, lead: tuple[int, ...] = ()) -> dict[str, tuple[int, ...]]:
    """The tensors of a feed-forward."""
    rows = hidden * (1 + (self.gate == "joined"))
    parts = {f"ffn_down{end}": (*lead, DIM, hidden), f"ffn_up{end}": (*lead, rows, DIM)}
    return parts | ({f"ffn_gate{end}": (*lead, hidden, DIM)} if self.gate == "own" else {})

  def mixture(self) -> dict[str, tuple[int, ...]]:
    """The tensors of experts."""
    parts = {"ffn_gate_inp": (self.experts, DIM), **self.feed("_exps", self.inner, (self.experts,))}
    parts |= self.feed("_shexp", self.shared) if self.shared else {}
    return parts | ({"ffn_gate_inp_shexp": (DIM,)} if self.architecture == "qwen2moe" else {})

  def arrays(self) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """The tensors, random."""
    rng, made = np.random.default_rng(7), {}
    for tensor, shape in self.shapes().items():
      array = rng.normal(size=shape) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1)
      array = array if len(shape) > 1 or tensor.endswith("bias") else array + (2 if tensor.startswith("rope") else 1)
      made[tensor] = array.astype(np.float32)
    return made

  def write(self, path: Path, kind: str = "F32", held: str = "F32") -> Path:
    """Writes the file: matrices rounded to what a format of ggml's holds, and `held` in one."""
    writer = gguf.GGUFWriter(path, self.architecture)
    writer.add_block_count(self.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(DIM)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(self.keys)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_dimension_count(self.size)
    writer.add_rope_freq_base(1000.0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_key_length(self.size)
    writer.add_value_length(self.size)
    if self.experts:
      writer.add_expert_count(self.experts)
    writer.add_tokenizer_model("no_vocab")
    writer.add_token_type_count(2)
    for key, value in self.metadata.items():
      sort = gguf.GGUFValueType.UINT32 if type(value) is int else gguf.GGUFValueType.get_type(value)
      writer.add_key_value(f"{self.architecture}.{key}", value, sort)
    how = gguf.GGMLQuantizationType[held]
    for tensor, array in self.arrays().items():
      if array.ndim > 1 and kind != "F32":
        rounding = gguf.GGMLQuantizationType[kind]
        array = gguf.quants.dequantize(gguf.quants.quantize(array, rounding), rounding)
      if array.ndim > 1 and held != "F32":
        writer.add_tensor(tensor, gguf.quants.quantize(array, how), raw_dtype=how)
      else:
        writer.add_tensor(tensor, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


LONG: dict[str, tuple[int, ...]] = {f"rope_factors_{name}.weight": (8,) for name in ("long", "short")}
ALL = ("attn_output", "attn_norm", "ffn_norm", "ffn_up", "ffn_down")
MODELS = {
  "llama": Small(
    "llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}, more={"rope_freqs.weight": (8,)}
  ),
  "llama, yarn": Small("llama", {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32}),
  "mixtral": Small("llama", {"expert_used_count": 2}, experts=4),
  "granite": Small(
    "granite", {"embedding_scale": 3.0, "residual_scale": 0.5, "attention.scale": 0.2, "logit_scale": 4.0}
  ),
  "qwen2": Small("qwen2", biases=("attn_q", "attn_k", "attn_v")),
  "qwen3": Small("qwen3", size=32, tied=True, norms={"attn_q_norm": 32, "attn_k_norm": 32}),
  "qwen3moe": Small(
    "qwen3moe", {"expert_used_count": 3, "expert_feed_forward_length": HIDDEN}, experts=8,
    norms={"attn_q_norm": 16, "attn_k_norm": 16},
  ),
  "qwen2moe": Small(
    "qwen2moe", {"expert_used_count": 2, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64},
    experts=4, inner=32, shared=64, biases=("attn_q", "attn_k", "attn_v"),
  ),
  "deepseek": Small(
    "deepseek", {"expert_used_count": 3, "expert_feed_forward_length": 32, "expert_shared_count": 2,
      "leading_dense_block_count": 1, "expert_weights_scale": 1.5}, layers=3, experts=8, inner=32, shared=64, leading=1,
  ),
  "olmoe": Small(
    "olmoe", {"expert_used_count": 2}, keys=HEADS, experts=4, norms={"attn_q_norm": 64, "attn_k_norm": 64}
  ),
  "phi3": Small("phi3", joined=True, gate="joined"),
  "phi3, long": Small(
    "phi3", {"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.25}, joined=True, gate="joined",
    more=LONG,
  ),
  "phi3, short": Small(
    "phi3", {"rope.scaling.original_context_length": 1024, "rope.scaling.attn_factor": 1.25}, joined=True,
    gate="joined", more=LONG,
  ),
  "gemma": Small("gemma", size=32, tied=True),
  "gemma2": Small(
    "gemma2", {"attention.sliding_window": 3, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0}, size=32,
    tied=True, norms={"post_attention_norm": DIM, "post_ffw_norm": DIM},
  ),
  "gemma3": Small(
    "gemma3", {"attention.sliding_window": 3, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}, layers=6,
    tied=True, norms={"post_attention_norm": DIM, "post_ffw_norm": DIM, "attn_q_norm": 16, "attn_k_norm": 16},
  ),
  "gpt2": Small(
    "gpt2", keys=HEADS, joined=True, gate="", biases=("attn_qkv", *ALL),
    more={"output_norm.bias": (DIM,), "position_embd.weight": (CONTEXT, DIM)},
  ),
  "bert": Small(
    "bert", {"attention.causal": False}, keys=HEADS, tied=True, gate="",
    norms={"attn_output_norm": DIM, "layer_output_norm": DIM},
    biases=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down", "attn_output_norm", "layer_output_norm"),
    more={"position_embd.weight": (CONTEXT, DIM), "token_types.weight": (2, DIM), "token_embd_norm.weight": (DIM,),
      "token_embd_norm.bias": (DIM,)},
  ),
}  # fmt: skip
