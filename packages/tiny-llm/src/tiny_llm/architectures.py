"""Architectures as data: what a model file's metadata says, and what its architecture leaves unsaid."""

from __future__ import annotations

from tiny_llm.checkpoint import Checkpoint
from tiny_uop.records import dataclass

__all__ = ["ARCHITECTURES", "Architecture", "Config", "config_of"]


@dataclass(frozen=True)
class Architecture:
  """What all models of an architecture share, and their files do not say.

  `rope`: which numbers of a head are rotated together: "pairs" (2i, 2i+1) or "halves" (i, i + half). `joined`: queries,
  keys and values are one tensor, and so are the gate and what it gates. Biases of queries, keys and values, and norms
  of the heads of queries and keys, are there where the file has them.
  """

  rope: str
  joined: bool = False


ARCHITECTURES: dict[str, Architecture] = {
  "llama": Architecture(rope="pairs"),  # Mistral, SmolLM and others have this name in files, too
  "granite": Architecture(rope="pairs"),
  "qwen2": Architecture(rope="halves"),
  "qwen3": Architecture(rope="halves"),
  "phi3": Architecture(rope="halves", joined=True),
}


@dataclass(frozen=True)
class Config:
  """The sizes of a model. `context` is what it was trained for, in tokens; `window` how many tokens attention looks
  back, 0 for all. The scales are factors of embeddings, of what layers add, and of logits; `attention_scale` is one of
  scores."""

  name: str
  architecture: Architecture
  layers: int
  dim: int
  hidden: int
  heads: int
  kv_heads: int
  head_dim: int
  vocabulary: int
  context: int
  epsilon: float
  rope_dim: int
  rope_base: float
  rope_factor: float
  window: int
  attention_scale: float
  embedding_scale: float
  residual_scale: float
  logit_scale: float


def config_of(checkpoint: Checkpoint) -> Config:
  """The sizes of the model in a file. Raises ValueError for an unknown architecture, and for sizes that are missing or
  make no sense."""
  name = checkpoint.text("general.architecture")
  if name not in ARCHITECTURES:
    raise ValueError(
      f"{checkpoint.path}: the architecture {name!r:.60} is not known here; known are {', '.join(ARCHITECTURES)}"
    )

  def size(key: str, default: int | None = None, most: int = 1 << 24) -> int:
    if (found := checkpoint.integer(f"{name}.{key}", default, most)) == 0:
      raise ValueError(f"{checkpoint.path}: {name}.{key} is 0")
    return found

  heads, dim = size("attention.head_count"), size("embedding_length")
  kv_heads, head_dim = size("attention.head_count_kv", heads), size("attention.key_length", max(dim // heads, 1))
  if heads % kv_heads:
    raise ValueError(f"{checkpoint.path}: {heads} heads are no multiple of {kv_heads} heads of keys and values")
  if "token_embd.weight" not in checkpoint.tensors:
    raise ValueError(f"{checkpoint.path}: it has no tensor token_embd.weight")

  def scale(key: str) -> float:
    return checkpoint.number(f"{name}.{key}", 0.0) or 1.0

  scaling = checkpoint.text(f"{name}.rope.scaling.type", "none")
  if scaling not in ("none", "linear") or any("rope_factors" in tensor for tensor in checkpoint.tensors):
    raise ValueError(f"{checkpoint.path}: positions are scaled by {scaling!r:.40}, known here are 'none' and 'linear'")
  if f"{name}.expert_count" in checkpoint.metadata and checkpoint.integer(f"{name}.expert_count") > 0:
    raise ValueError(f"{checkpoint.path}: models of {name!r} with experts are not known here")
  return Config(
    name=name,
    architecture=ARCHITECTURES[name],
    layers=size("block_count", most=4096),
    dim=dim,
    hidden=size("feed_forward_length"),
    heads=heads,
    kv_heads=kv_heads,
    head_dim=head_dim,
    vocabulary=checkpoint.tensors["token_embd.weight"].shape[0],
    context=size("context_length", most=1 << 31),
    epsilon=checkpoint.number(f"{name}.attention.layer_norm_rms_epsilon", 1e-5),
    rope_dim=size("rope.dimension_count", head_dim),
    rope_base=checkpoint.number(f"{name}.rope.freq_base", 10000.0),
    rope_factor=scale("rope.scaling.factor") if scaling == "linear" else 1.0,
    window=checkpoint.integer(f"{name}.attention.sliding_window", 0),
    attention_scale=checkpoint.number(f"{name}.attention.scale", 0.0) or head_dim**-0.5,
    embedding_scale=scale("embedding_scale"),
    residual_scale=scale("residual_scale"),
    logit_scale=1 / scale("logit_scale"),
  )
