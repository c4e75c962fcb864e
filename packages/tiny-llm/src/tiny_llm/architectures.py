"""Architectures as data: what a model file's metadata says, and what its architecture leaves unsaid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tiny_llm.files.checkpoint import Checkpoint
from tiny_uop.records import dataclass

__all__ = ["ARCHITECTURES", "Architecture", "Config", "Rope", "config_of"]


@dataclass(frozen=True)
class Architecture:
  """What all models of an architecture share, and their files do not say.

  `rope`: which numbers of a head are rotated together: "pairs" (2i, 2i+1), "halves" (i, i + half), or "none": each
  position has a learned vector, which is added to the embedding. `norm`: "rms", or "layer" (with a mean and biases).
  `activation`: "silu", "gelu" (with tanh) or "erf" (gelu without it), of a gate unless not `gated`. `after`: what is
  normalised after each part of a layer: nothing (""), what it gives ("branch"), or its sum with what went in ("sum",
  then nothing is before it). `causal`: tokens see those before them; all of the text if not.

  `window_every`: every n-th layer sees all tokens, the others a window of as many as the file says, or `window`; 1: all
  layers see the window. `local_base`: the base of rotations of layers with a window; 0: the same.

  `experts`: "" for none; else the weights of those chosen are "normalised" to a sum of 1, or left ("as they are").
  `shared`: what reads every token beside them: nothing (""), a feed-forward whose output is "gated" by the token, or
  one that is "added".
  `whole_norms`: norms of queries and keys are over all heads at once. `scaled_embedding`: embeddings are multiplied by
  the root of their size. `wide`: the number of layers of the one model whose scores are divided by the root of
  dim / heads, not of the size of a head.

  `norms_from_one`: norms multiply by 1 + weight. `transposed`: matrices of layers are `(columns, rows)`.

  Which tensors are joined, and which biases and norms of heads there are, the tensors of a file say.
  """

  rope: str
  norm: str = "rms"
  activation: str = "silu"
  gated: bool = True
  after: str = ""
  causal: bool = True
  window: int = 0
  window_every: int = 1
  local_base: float = 0.0
  experts: str = ""
  shared: str = ""
  whole_norms: bool = False
  scaled_embedding: bool = False
  wide: int = 0
  norms_from_one: bool = False
  transposed: bool = False


ARCHITECTURES: dict[str, Architecture] = {
  "llama": Architecture(rope="pairs", experts="normalised"),  # Mistral, Mixtral, SmolLM have this name in files, too
  "granite": Architecture(rope="pairs"),
  "qwen2": Architecture(rope="halves"),
  "qwen3": Architecture(rope="halves"),
  "qwen3moe": Architecture(rope="halves", experts="normalised"),
  "qwen2moe": Architecture(rope="halves", experts="as they are", shared="gated"),
  "deepseek": Architecture(rope="pairs", experts="as they are", shared="added"),
  "olmoe": Architecture(rope="halves", experts="as they are", whole_norms=True),
  "phi3": Architecture(rope="halves"),
  "gemma": Architecture(rope="halves", activation="gelu", scaled_embedding=True),
  "gemma2": Architecture(
    rope="halves", activation="gelu", after="branch", window=4096, window_every=2, scaled_embedding=True, wide=46
  ),
  "gemma3": Architecture(
    rope="halves", activation="gelu", after="branch", window_every=6, local_base=10000.0, scaled_embedding=True, wide=62
  ),
  "gpt2": Architecture(rope="none", norm="layer", activation="gelu", gated=False),
  "bert": Architecture(rope="none", norm="layer", activation="gelu", gated=False, after="sum", causal=False),
}


@dataclass(frozen=True)
class Rope:
  """Rotary positions: the first `size` numbers of a head are rotated, the last pair of them by nearly `base` times less
  than the first. `scaling`: "none"; "linear", positions are divided by `factor`; "yarn", as far as a rotation is slow
  (arXiv:2309.00071), with `fast` and `slow` turns in the `trained` context as bounds; "longrope", by factors of the
  file (arXiv:2402.13753), others up to the `trained` context and beyond. `attention_factor` scales what is rotated."""

  size: int
  base: float
  scaling: str = "none"
  factor: float = 1.0
  trained: int = 0
  attention_factor: float = 1.0
  fast: float = 32.0
  slow: float = 1.0


@dataclass(frozen=True)
class Config:
  """The sizes of a model. `context` is what it was trained for, in tokens; `windows` how many tokens the attention of
  each layer looks back, 0 for all. `rope` is None where positions are learned; `local_rope` that of layers with a
  window. The scales are factors of embeddings, of what layers add, and of logits; `attention_scale` is one of scores.
  Scores and logits are kept below caps (cap * tanh(x / cap)), 0 for none. `hidden` is the inner size of a feed-forward.
  From layer `leading` on, `used` of `experts` read each token, 0 for none; `expert_hidden` is the inner size of one,
  and `shared_hidden` that of what all tokens take beside them. `pooling`: which states are the embedding of a text,
  "mean", "first" or "last".
  """

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
  rope: Rope | None
  local_rope: Rope | None
  windows: tuple[int, ...]
  attention_scale: float
  attention_cap: float
  logit_cap: float
  embedding_scale: float
  residual_scale: float
  logit_scale: float
  experts: int
  used: int
  leading: int
  expert_hidden: int
  shared_hidden: int
  expert_scale: float
  pooling: str


POOLING = ("mean", "mean", "first", "last")
"""By llama.cpp's numbers; 0 is for no pooling, where states are asked for."""
SCALINGS = ("none", "linear", "yarn", "longrope")


def config_of(checkpoint: Checkpoint) -> Config:
  """The sizes of the model in a file. Raises ValueError for an unknown architecture, and for sizes that are missing or
  make no sense."""
  path, name = checkpoint.path, checkpoint.text("general.architecture")
  if (architecture := ARCHITECTURES.get(name)) is None:
    raise ValueError(f"{path}: the architecture {name!r:.60} is not known here; known are {', '.join(ARCHITECTURES)}")
  architecture = replace(architecture, **checkpoint.changes)

  def size(key: str, default: int | None = None, most: int = 1 << 24) -> int:
    if (found := checkpoint.integer(f"{name}.{key}", default, most)) == 0:
      raise ValueError(f"{path}: {checkpoint.called(f'{name}.{key}')} is 0: expected 1 at least")
    return found

  def scale(key: str, default: float = 1.0) -> float:
    return checkpoint.number(f"{name}.{key}", 0.0) or default

  heads, dim = size("attention.head_count"), size("embedding_length")
  kv_heads, head_dim = _heads(checkpoint, size, heads, dim, architecture.causal)
  if "token_embd.weight" not in checkpoint.tensors:
    raise ValueError(f"{path}: it has no tensor token_embd.weight")
  layers = size("block_count", most=4096)
  context, hidden = size("context_length", most=1 << 31), size("feed_forward_length")
  experts = _experts(checkpoint, name, architecture)
  used = size("expert_used_count", most=experts) if experts else 0
  expert_hidden, shared_hidden = _expert_sizes(size, architecture.shared, hidden, used) if experts else (0, 0)
  rope = None if architecture.rope == "none" else _rope(checkpoint, name, head_dim, context)
  local = Rope(rope.size, architecture.local_base) if rope is not None and architecture.local_base else rope
  window = checkpoint.integer(f"{name}.attention.sliding_window", architecture.window)
  per_head = dim / heads if architecture.wide == layers else head_dim
  norm = f"{name}.attention.{'layer_norm_epsilon' if architecture.norm == 'layer' else 'layer_norm_rms_epsilon'}"
  if not 0 <= (epsilon := checkpoint.number(norm, 1e-5)) < 1:
    raise ValueError(f"{path}: {checkpoint.called(norm)} is {epsilon}, expected a number from 0, and below 1")
  return Config(
    name=name,
    architecture=architecture,
    layers=layers,
    dim=dim,
    hidden=hidden,
    heads=heads,
    kv_heads=kv_heads,
    head_dim=head_dim,
    vocabulary=checkpoint.tensors["token_embd.weight"].shape[0],
    context=context,
    epsilon=epsilon,
    rope=rope,
    local_rope=local,
    windows=_windows(window, layers, architecture.window_every),
    attention_scale=scale("attention.scale", per_head**-0.5),
    attention_cap=checkpoint.number(f"{name}.attn_logit_softcapping", 0.0),
    logit_cap=checkpoint.number(f"{name}.final_logit_softcapping", 0.0),
    embedding_scale=dim**0.5 if architecture.scaled_embedding else scale("embedding_scale"),
    residual_scale=scale("residual_scale"),
    logit_scale=1 / scale("logit_scale"),
    experts=experts,
    used=used,
    leading=checkpoint.integer(f"{name}.leading_dense_block_count", 0, layers) if experts else 0,
    expert_hidden=expert_hidden,
    shared_hidden=shared_hidden,
    expert_scale=scale("expert_weights_scale"),
    pooling=_pooling(checkpoint, name),
  )


def _heads(checkpoint: Checkpoint, size: Callable[..., int], heads: int, dim: int, causal: bool) -> tuple[int, int]:
  """Heads of keys and values, and the numbers of each."""
  path = checkpoint.path
  kv_heads, head_dim = size("attention.head_count_kv", heads), size("attention.key_length", max(dim // heads, 1))
  if heads % kv_heads:
    raise ValueError(f"{path}: {heads} heads are no multiple of {kv_heads} heads of keys and values")
  if not causal and heads != kv_heads:
    raise ValueError(f"{path}: an encoder with {heads} heads of queries and {kv_heads} of keys is not known here")
  if (values := size("attention.value_length", head_dim)) != head_dim:
    raise ValueError(f"{path}: heads of keys have {head_dim} numbers and those of values {values}: expected as many")
  return kv_heads, head_dim


def _windows(window: int, layers: int, every: int) -> tuple[int, ...]:
  """How far each layer looks back."""
  return tuple([0 if every > 1 and n % every == every - 1 else window for n in range(layers)])


def _experts(checkpoint: Checkpoint, name: str, architecture: Architecture) -> int:
  """How many experts a layer has; 0 for one feed-forward that all tokens take."""
  experts = checkpoint.integer(f"{name}.expert_count", 0, 1 << 14)
  if experts and not architecture.experts:
    raise ValueError(f"{checkpoint.path}: models of {name!r} with experts are not known here")
  unknown = {"expert_gating_func": 1} | ({} if architecture.shared == "added" else {"expert_shared_count": 0})
  for key, only in unknown.items():
    if (found := checkpoint.integer(f"{name}.{key}", only)) not in (0, only):
      raise ValueError(f"{checkpoint.path}: {name}.{key} is {found}, known here is {only}")
  return experts


def _expert_sizes(size: Callable[..., int], shared: str, hidden: int, used: int) -> tuple[int, int]:
  """The inner sizes of an expert, and of what all tokens take beside them."""
  if shared == "gated":  # old files do not say
    return size("expert_feed_forward_length", hidden // used), size("expert_shared_feed_forward_length", hidden)
  expert = size("expert_feed_forward_length", hidden)
  return expert, size("expert_shared_count", most=1 << 14) * expert if shared else 0


def _pooling(checkpoint: Checkpoint, name: str) -> str:
  """Which states are the embedding of a text."""
  pooling = checkpoint.integer(f"{name}.pooling_type", 1)
  if pooling >= len(POOLING):
    raise ValueError(f"{checkpoint.path}: pooling of type {pooling} is not known here, known are mean, first and last")
  return POOLING[pooling]


def _rope(checkpoint: Checkpoint, name: str, head_dim: int, context: int) -> Rope:
  """The rotary positions of a file."""

  def number(key: str, default: float) -> float:
    found = checkpoint.number(f"{name}.rope.{key}", 0.0) or default
    if not 1e-9 < found < 1e18:
      raise ValueError(f"{checkpoint.path}: {name}.rope.{key} is {found}, expected a number above 0, and below 1e18")
    return found

  size = checkpoint.integer(f"{name}.rope.dimension_count", head_dim)
  if not 0 < size <= head_dim or size % 2:
    raise ValueError(
      f"{checkpoint.path}: {name}.rope.dimension_count is {size}, expected an even number up to {head_dim}, the "
      "size of a head"
    )
  scaling = checkpoint.text(f"{name}.rope.scaling.type", "linear")
  if scaling not in SCALINGS:
    raise ValueError(
      f"{checkpoint.path}: positions are scaled by {scaling!r:.40}, known here are {', '.join(SCALINGS)}"
    )
  if (base := number("freq_base", 10000.0)) <= 1:
    raise ValueError(f"{checkpoint.path}: {name}.rope.freq_base is {base}, expected more than 1")
  return Rope(
    size=size,
    base=base,
    scaling=scaling,
    factor=number("scaling.factor", 1.0) if scaling in ("linear", "yarn") else 1.0,
    trained=checkpoint.integer(f"{name}.rope.scaling.original_context_length", context),
    attention_factor=number("scaling.attn_factor", 1.0),
    fast=number("scaling.yarn_beta_fast", 32.0),
    slow=number("scaling.yarn_beta_slow", 1.0),
  )
