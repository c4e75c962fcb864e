"""Architectures as data: what a model file's metadata says, and what its architecture leaves unsaid."""

from __future__ import annotations

from tiny_llm.checkpoint import Checkpoint
from tiny_uop.records import dataclass

__all__ = ["ARCHITECTURES", "Architecture", "Config", "config_of"]


@dataclass(frozen=True)
class Architecture:
  """What all models of an architecture share.

  `rope`: which numbers of a head are rotated together: "pairs" (2i, 2i+1) or "halves" (i, i + half).
  """

  rope: str


ARCHITECTURES: dict[str, Architecture] = {"llama": Architecture(rope="pairs")}


@dataclass(frozen=True)
class Config:
  """The sizes of a model. `context` is what it was trained for, in tokens."""

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
  )
