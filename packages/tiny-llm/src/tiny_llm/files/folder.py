"""Checkpoints as transformers writes them: a folder with `config.json`, safetensors and `tokenizer.json`, told in
GGUF's keys and names of tensors. Nothing of the tensors is read, and nothing of the folder is a program that runs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiny_llm.text.tokenizer_json import tokenizer_metadata
from tiny_tensor import Tensor
from tiny_tensor.nn.state import GGMLBlocks, safe_load
from tiny_uop.records import dataclass

__all__ = ["FAMILIES", "is_folder", "read_folder"]

LONGEST = 256 << 20
"""Bytes of a file of JSON."""


@dataclass(frozen=True)
class Family:
  """What transformers calls a class of models: GGUF's architecture, how names of tensors are GGUF's, and what is
  otherwise than in GGUF files (fields of `Architecture`)."""

  architecture: str
  names: Mapping[str, str]
  changes: Mapping[str, object]


LAYERS = {
  "model.embed_tokens": "token_embd",
  "model.norm": "output_norm",
  "lm_head": "output",
  **{f"model.layers.#.self_attn.{c}_proj": f"blk.#.attn_{c}" for c in "qkv"},
  "model.layers.#.self_attn.qkv_proj": "blk.#.attn_qkv",
  "model.layers.#.self_attn.o_proj": "blk.#.attn_output",
  "model.layers.#.self_attn.q_norm": "blk.#.attn_q_norm",
  "model.layers.#.self_attn.k_norm": "blk.#.attn_k_norm",
  "model.layers.#.input_layernorm": "blk.#.attn_norm",
  "model.layers.#.post_attention_layernorm": "blk.#.ffn_norm",
  **{f"model.layers.#.mlp.{c}_proj": f"blk.#.ffn_{c}" for c in ("gate", "up", "down")},
  "model.layers.#.mlp.gate_up_proj": "blk.#.ffn_up",
  "model.layers.#.mlp.gate": "blk.#.ffn_gate_inp",
  **{f"model.layers.#.mlp.experts.#.{c}_proj": f"blk.#.ffn_{c}.#" for c in ("gate", "up", "down")},
  **{f"model.layers.#.mlp.{shared}.{c}_proj": f"blk.#.ffn_{c}_shexp"
     for shared in ("shared_expert", "shared_experts") for c in ("gate", "up", "down")},
  "model.layers.#.mlp.shared_expert_gate": "blk.#.ffn_gate_inp_shexp",
  "model.layers.#.block_sparse_moe.gate": "blk.#.ffn_gate_inp",
  **{f"model.layers.#.block_sparse_moe.experts.#.{w}": f"blk.#.ffn_{c}.#"
     for w, c in (("w1", "gate"), ("w2", "down"), ("w3", "up"))},
}  # fmt: skip
"""Names of tensors without `.weight` or `.bias`; # is a number."""
GEMMA = LAYERS | {
  "model.layers.#.post_attention_layernorm": "blk.#.post_attention_norm",
  "model.layers.#.pre_feedforward_layernorm": "blk.#.ffn_norm",
  "model.layers.#.post_feedforward_layernorm": "blk.#.post_ffw_norm",
}
GPT2 = {
  "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
  "lm_head": "output", "transformer.h.#.ln_1": "blk.#.attn_norm", "transformer.h.#.attn.c_attn": "blk.#.attn_qkv",
  "transformer.h.#.attn.c_proj": "blk.#.attn_output", "transformer.h.#.ln_2": "blk.#.ffn_norm",
  "transformer.h.#.mlp.c_fc": "blk.#.ffn_up", "transformer.h.#.mlp.c_proj": "blk.#.ffn_down",
}  # fmt: skip
BERT = {
  "bert.embeddings.word_embeddings": "token_embd", "bert.embeddings.position_embeddings": "position_embd",
  "bert.embeddings.token_type_embeddings": "token_types", "bert.embeddings.LayerNorm": "token_embd_norm",
  **{f"bert.encoder.layer.#.attention.self.{c}": f"blk.#.attn_{c[0]}" for c in ("query", "key", "value")},
  "bert.encoder.layer.#.attention.output.dense": "blk.#.attn_output",
  "bert.encoder.layer.#.attention.output.LayerNorm": "blk.#.attn_output_norm",
  "bert.encoder.layer.#.intermediate.dense": "blk.#.ffn_up",
  "bert.encoder.layer.#.output.dense": "blk.#.ffn_down",
  "bert.encoder.layer.#.output.LayerNorm": "blk.#.layer_output_norm",
}  # fmt: skip
UNUSED = re.compile(
  r".*(rotary_emb\.inv_freq|\.attn\.(bias|masked_bias)|embeddings\.position_ids)|(bert\.)?(pooler|cls)\..*"
)
"""Tensors that files have without a use: tables that follow from the sizes, and heads for other tasks."""
HALVES = {"rope": "halves"}
FROM_ONE = {"norms_from_one": True}

WITH_VISION = {
  "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
  "Mistral3ForConditionalGeneration": "MistralForCausalLM",
}
"""Classes of models that see pictures, and those of their text parts."""
VISION = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..*")
"""Tensors of the part that sees."""
TEXT_PART = re.compile(r"(?<=^model\.)language_model\.|^language_model\.")
"""What the names of the others have besides: `language_model.model.norm` of old files, `model.language_model.norm`."""
TEXT_DEFAULTS: dict[str, dict[str, Any]] = {
  "Gemma3ForConditionalGeneration": {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
    "rope_theta": 1e6, "query_pre_attn_scalar": 256, "sliding_window": 4096, "num_hidden_layers": 26,
    "hidden_size": 2304, "intermediate_size": 9216, "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
  },
  "Mistral3ForConditionalGeneration": {"num_key_value_heads": 8, "tie_word_embeddings": False},
}  # fmt: skip
"""What transformers takes where the configuration of the text part does not say: files leave it out."""

FAMILIES = {
  "LlamaForCausalLM": Family("llama", LAYERS, HALVES),
  "MistralForCausalLM": Family("llama", LAYERS, HALVES),
  "MixtralForCausalLM": Family("llama", LAYERS, HALVES),
  "GraniteForCausalLM": Family("granite", LAYERS, HALVES),
  "Qwen2ForCausalLM": Family("qwen2", LAYERS, {}),
  "Qwen3ForCausalLM": Family("qwen3", LAYERS, {}),
  "Qwen3MoeForCausalLM": Family("qwen3moe", LAYERS, {}),
  "Qwen2MoeForCausalLM": Family("qwen2moe", LAYERS, {}),
  "DeepseekForCausalLM": Family("deepseek", LAYERS, HALVES),
  "OlmoeForCausalLM": Family("olmoe", LAYERS, {}),
  "Phi3ForCausalLM": Family("phi3", LAYERS, {}),
  "GemmaForCausalLM": Family("gemma", LAYERS, FROM_ONE),
  "Gemma2ForCausalLM": Family("gemma2", GEMMA, FROM_ONE),
  "Gemma3ForCausalLM": Family("gemma3", GEMMA, FROM_ONE),
  "GPT2LMHeadModel": Family("gpt2", GPT2, {"transposed": True}),
  "BertModel": Family("bert", BERT, {}),
  "BertForMaskedLM": Family("bert", BERT, {}),
}
KEYS = {
  "block_count": ("num_hidden_layers", "n_layer"),
  "embedding_length": ("hidden_size", "n_embd"),
  "feed_forward_length": ("intermediate_size", "n_inner"),
  "context_length": ("max_position_embeddings", "n_positions"),
  "attention.head_count": ("num_attention_heads", "n_head"),
  "attention.head_count_kv": ("num_key_value_heads",),
  "attention.key_length": ("head_dim",),
  "attention.value_length": ("head_dim",),
  "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
  "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon"),
  "attention.sliding_window": ("sliding_window",),
  "attention.scale": ("attention_multiplier",),
  "attn_logit_softcapping": ("attn_logit_softcapping",),
  "final_logit_softcapping": ("final_logit_softcapping",),
  "embedding_scale": ("embedding_multiplier",),
  "residual_scale": ("residual_multiplier",),
  "logit_scale": ("logits_scaling",),
  "expert_count": ("num_local_experts", "num_experts", "n_routed_experts"),
  "expert_used_count": ("num_experts_per_tok",),
  "expert_feed_forward_length": ("moe_intermediate_size",),
  "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
  "expert_shared_count": ("n_shared_experts",),
  "expert_weights_scale": ("routed_scaling_factor",),
  "leading_dense_block_count": ("first_k_dense_replace",),
}
"""GGUF's keys, and what `config.json` calls them."""
ACTIVATIONS = {
  "silu": "silu", "swish": "silu", "gelu": "erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu",
}  # fmt: skip
EXPECTED: dict[str, tuple[object, ...]] = {
  "quantization_config": (None,), "clip_qkv": (None,), "use_sliding_window": (None, False),
  "mlp_only_layers": (None, []), "decoder_sparse_step": (None, 1), "moe_layer_freq": (None, 1),
  "scoring_func": (None, "softmax"), "position_embedding_type": (None, "absolute"),
  "is_decoder": (None, False), "scale_attn_by_inverse_layer_idx": (None, False), "add_cross_attention": (None, False),
}  # fmt: skip
"""Keys of `config.json` that change what is computed, and which of their values are known here."""
POOLING = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}


def is_folder(path: Path) -> bool:
  """Whether a path is a folder with a model, or its `config.json`."""
  return (path / "config.json").is_file() or (path.name == "config.json" and path.is_file())


def read_folder(path: Path) -> tuple[dict[str, Any], dict[str, GGMLBlocks], dict[str, Any]]:
  """Metadata in GGUF's keys, tensors by GGUF's names as they lie in the mapped files, and what of the architecture is
  otherwise than in GGUF files: fields of `Architecture`.

  Raises FileNotFoundError; ValueError for a class of models that is not known, and for files that lie.
  """
  folder = path if path.is_dir() else path.parent
  config = _json(folder / "config.json")
  names = config.get("architectures")
  name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
  if vision := name in WITH_VISION:
    name, config = _text_part(folder, str(name), config)
  if name not in FAMILIES:
    there = ", ".join([*FAMILIES, *WITH_VISION])
    raise ValueError(f"{folder}: the architecture {name!r:.60} is not known here; known are {there}")
  family, arch = FAMILIES[name], FAMILIES[name].architecture
  for key, known in EXPECTED.items():
    if config.get(key) not in known:
      raise ValueError(f"{folder}: {key} is {config[key]!r:.60} in config.json, known here is {known[-1]}")
  metadata: dict[str, Any] = {"general.architecture": arch, "general.name": folder.resolve().name}
  for key, others in KEYS.items():
    value = next((config[other] for other in others if config.get(other) is not None), None)
    if value is not None:
      metadata[f"{arch}.{key}"] = value
  if arch.startswith("qwen"):  # its window is not used
    metadata.pop(f"{arch}.attention.sliding_window", None)
  _defaults(folder, config, metadata, arch)
  changes = dict(family.changes) | _changes(folder, config, arch)
  tensors = _tensors(folder, family, vision, tied=config.get("tie_word_embeddings", arch in TIED) is True)
  if arch not in ("gpt2", "bert"):
    tensors |= _rope(folder, config, metadata, arch)
  if (folder / "1_Pooling" / "config.json").is_file():
    pooling = _json(folder / "1_Pooling" / "config.json")
    metadata[f"{arch}.pooling_type"] = next((n for key, n in POOLING.items() if pooling.get(key) is True), 1)
  metadata |= tokenizer_metadata(folder, lambda file: _json(folder / file) if (folder / file).is_file() else {})
  return metadata, tensors, changes


TIED = ("gemma", "gemma2", "gemma3", "gpt2")
"""Whose embeddings are the output's weights where `config.json` does not say."""


def _text_part(folder: Path, name: str, config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
  """The class and the configuration of the text part of a model that sees pictures."""
  text = config.get("text_config")
  if not isinstance(text, dict):
    raise ValueError(f"{folder}: text_config is {text!r:.60} in config.json, expected an object")
  whole = {key: config[key] for key in ("tie_word_embeddings", "quantization_config") if key in config}
  return WITH_VISION[name], TEXT_DEFAULTS[name] | text | whole


def _json(file: Path) -> dict[str, Any]:
  """An object in a file."""
  if file.stat().st_size > LONGEST:
    raise ValueError(f"{file} has {file.stat().st_size} bytes, expected {LONGEST} at most")
  try:
    found = json.loads(file.read_bytes())
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{file} is no JSON: {error}") from None
  if not isinstance(found, dict):
    raise ValueError(f"{file} holds {found!r:.40}, expected an object")
  return found


def _number(folder: Path, found: Mapping[str, Any], key: str, default: float | None = None) -> float:
  """A positive number of `config.json`."""
  value = default if found.get(key) is None else found[key]
  if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e18:
    return float(value)
  raise ValueError(f"{folder}: {key} is {value!r:.60} in config.json, expected a number above 0")


def _defaults(folder: Path, config: Mapping[str, Any], metadata: dict[str, Any], arch: str) -> None:
  """What transformers takes where `config.json` does not say, and keys that are not GGUF's."""
  if arch == "gpt2":
    metadata.setdefault("gpt2.feed_forward_length", int(4 * _number(folder, config, "n_embd")))
  elif arch == "bert":
    metadata.setdefault("bert.attention.layer_norm_epsilon", 1e-12)
  else:
    metadata.setdefault(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6)
  if arch.startswith("gemma"):
    metadata.setdefault(f"{arch}.attention.key_length", 256)
    metadata.setdefault(f"{arch}.attention.value_length", 256)
  if config.get("query_pre_attn_scalar") is not None:
    metadata[f"{arch}.attention.scale"] = _number(folder, config, "query_pre_attn_scalar") ** -0.5


def _changes(folder: Path, config: Mapping[str, Any], arch: str) -> dict[str, Any]:
  """What `config.json` says of what an architecture leaves unsaid."""
  changes: dict[str, Any] = {}
  keys = ("hidden_activation", "hidden_act", "activation_function")
  activation = next((config[key] for key in keys if config.get(key) is not None), None)
  if arch.startswith("gemma"):  # which say "gelu" and mean it with tanh
    activation = "gelu_new" if activation == "gelu" else activation
  if activation is not None:
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
      raise ValueError(f"{folder}: the activation {activation!r:.40} is not known; known are {', '.join(ACTIVATIONS)}")
    changes["activation"] = ACTIVATIONS[activation]
  if isinstance(every := config.get("sliding_window_pattern"), int) and every > 0:
    changes["window_every"] = every
  if arch in ("qwen2moe", "qwen3moe", "olmoe", "deepseek") and config.get("norm_topk_prob") in (True, False):
    changes["experts"] = "normalised" if config["norm_topk_prob"] else "as they are"
  if arch == "gemma3":
    parameters = config.get("rope_parameters")
    local = parameters.get("sliding_attention") if isinstance(parameters, dict) else None
    local = local if isinstance(local, dict) else {}
    changes["local_base"] = _number(
      folder, {**config, **local}, "rope_theta" if local else "rope_local_base_freq", 10000.0
    )
  return changes


def _rope(folder: Path, config: Mapping[str, Any], metadata: dict[str, Any], arch: str) -> dict[str, GGMLBlocks]:
  """Puts what is said of rotary positions into the metadata, and gives tensors of factors of frequencies."""
  given = config.get("rope_parameters") or config.get("rope_scaling") or {}
  given = given.get("full_attention", given) if isinstance(given, dict) else None
  if not isinstance(given, dict):
    raise ValueError(f"{folder}: rope_scaling is {config.get('rope_scaling')!r:.60} in config.json, expected an object")
  found = {**config, **given}
  base, kind = _number(folder, found, "rope_theta", 10000.0), given.get("rope_type", given.get("type", "default"))
  heads, dim = _number(folder, config, "num_attention_heads"), _number(folder, config, "hidden_size")
  head = int(_number(folder, metadata, f"{arch}.attention.key_length", dim // heads))
  size = int(head * _number(folder, found, "partial_rotary_factor", 1.0))
  context = _number(folder, config, "max_position_embeddings", 4096)
  trained = _number(folder, found, "original_max_position_embeddings", context)
  metadata |= {f"{arch}.rope.freq_base": base, f"{arch}.rope.dimension_count": size}
  metadata[f"{arch}.rope.scaling.original_context_length"] = int(trained)
  if kind in ("linear", "yarn"):
    factor = _number(folder, found, "factor")
    metadata |= {f"{arch}.rope.scaling.type": kind, f"{arch}.rope.scaling.factor": factor}
  if kind == "yarn":
    usual = 1 + 0.1 * math.log(max(factor, 1))
    metadata[f"{arch}.rope.scaling.attn_factor"] = _number(folder, found, "attention_factor", usual) / usual
    metadata[f"{arch}.rope.scaling.yarn_beta_fast"] = _number(folder, found, "beta_fast", 32.0)
    metadata[f"{arch}.rope.scaling.yarn_beta_slow"] = _number(folder, found, "beta_slow", 1.0)
    if found.get("mscale") is not None or found.get("truncate") is False:
      raise ValueError(f"{folder}: yarn with mscale or without truncate is not known here")
  elif kind in ("longrope", "su"):
    stretch = context / trained
    usual = 1.0 if stretch <= 1 else math.sqrt(1 + math.log(stretch) / math.log(max(trained, 2)))
    metadata[f"{arch}.rope.scaling.attn_factor"] = _number(folder, found, "attention_factor", usual)
    return {f"rope_factors_{c}.weight": _vector(folder, given.get(f"{c}_factor"), size // 2) for c in ("short", "long")}
  elif kind == "llama3":
    factor, low, high = (_number(folder, found, f"{c}factor") for c in ("", "low_freq_", "high_freq_"))
    turns = trained * base ** (-2 * np.arange(size // 2) / size) / (2 * math.pi)
    share = ((turns - low) / max(high - low, 1e-9)).clip(0, 1)  # of the frequency that stays
    return {"rope_freqs.weight": _vector(folder, (1 / ((1 - share) / factor + share)).tolist(), size // 2)}
  elif kind not in ("default", "linear"):
    raise ValueError(f"{folder}: positions are scaled by {kind!r:.40}, known here are linear, yarn, longrope, llama3")
  return {}


def _vector(folder: Path, values: object, size: int) -> GGMLBlocks:
  if not isinstance(values, list) or len(values) != size or not all(type(v) in (int, float) for v in values):
    raise ValueError(f"{folder}: factors of positions are {values!r:.60} in config.json, expected {size} numbers")
  return GGMLBlocks.plain(Tensor(np.array(values, np.float32)))


def _tensors(folder: Path, family: Family, vision: bool, tied: bool) -> dict[str, GGMLBlocks]:
  """The tensors of all files, by GGUF's names; of a model with `vision` those of its text part."""
  index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
  if not index.is_file() and not single.is_file():
    raise FileNotFoundError(f"{folder} has neither model.safetensors nor model.safetensors.index.json")
  rename, made = _renaming(family), {}
  for name, tensor in safe_load(index if index.is_file() else single).items():
    if UNUSED.fullmatch(name) or (vision and VISION.fullmatch(name)):
      continue
    new = rename(TEXT_PART.sub("", name, count=1) if vision else name)
    if tied and new == "output.weight":
      continue
    if new in made:
      raise ValueError(f"{folder}: the tensor {name!r:.100} is there twice")
    try:
      made[new] = GGMLBlocks.plain(tensor)
    except ValueError as error:
      raise ValueError(f"{folder}: the tensor {name!r:.100}: {error}") from None
  return made


def _renaming(family: Family) -> Callable[[str], str]:
  """Makes GGUF's names of transformers'; names that are not known stay, and are refused by whoever has no use for
  them."""
  prefix = next(iter(family.names)).partition(".")[0]  # files may leave it out: `h.0.ln_1.weight` of GPT-2

  def rename(name: str) -> str:
    stem, _, what = name.rpartition(".")
    what = {"gamma": "weight", "beta": "bias"}.get(what, what)  # of old files
    for whole in (stem, f"{prefix}.{stem}"):
      numbers = re.findall(r"(?<=\.)[0-9]{1,4}(?=\.|$)", whole)
      pattern = re.sub(r"(?<=\.)[0-9]{1,4}(?=\.|$)", "#", whole)
      if (found := family.names.get(pattern)) is not None:
        for number in numbers:
          found = found.replace("#", number, 1)
        return f"{found}.{what}"
    return name

  return rename
