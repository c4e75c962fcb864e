"""Folders as transformers writes them: the same models as in `architecture_models.py`, and tokenizers as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from architecture_models import CONTEXT, DIM, HEADS, HIDDEN, MODELS, TOKENS, VOCABULARY, Small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from tiny_llm import Chunk, Session, Tokenizer, find_model, load_model, open_checkpoint
from tiny_llm.architectures import config_of
from tiny_llm.generate import Request
from tiny_llm.sampling import SamplingOptions
from tiny_llm.session import text_of
from tiny_tensor import Tensor, dtypes
from tiny_tensor.nn.state import safe_load, safe_save

RECORDED = json.loads(Path(__file__).with_name("llama_logits.json").read_text("utf-8"))
LAYER = {
  "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
  "attn_output": "self_attn.o_proj", "attn_qkv": "self_attn.qkv_proj", "attn_q_norm": "self_attn.q_norm",
  "attn_k_norm": "self_attn.k_norm", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
  "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
}  # fmt: skip
OTHERS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
GPT2 = {
  "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
  "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}  # fmt: skip
BERT = {
  "attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
  "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
  "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
}  # fmt: skip
GEMMA = {
  "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
  "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
EXPERTS = {
  "mixtral": {"gate": "w1", "down": "w2", "up": "w3"},
  "": {"gate": "gate_proj", "down": "down_proj", "up": "up_proj"},
}


def named(name: str, small: Small) -> dict[str, str]:
  """The names that transformers gives the tensors of a layer, and others."""
  if small.architecture == "gpt2":
    others = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "output": "lm_head"}
    return {**{f"blk.#.{a}": f"h.#.{b}" for a, b in GPT2.items()}, **others}
  if small.architecture == "bert":
    others = {"token_embd": "word_embeddings", "position_embd": "position_embeddings",
      "token_types": "token_type_embeddings", "token_embd_norm": "LayerNorm"}  # fmt: skip
    layers = {f"blk.#.{a}": f"bert.encoder.layer.#.{b}" for a, b in BERT.items()}
    return {**layers, **{a: f"bert.embeddings.{b}" for a, b in others.items()}}
  layer = LAYER | (GEMMA if small.architecture in ("gemma2", "gemma3") else {})
  shared = "shared_experts" if small.architecture == "deepseek" else "shared_expert"
  layer |= {f"ffn_{c}_shexp": f"mlp.{shared}.{c}_proj" for c in ("gate", "up", "down")}
  layer |= {"ffn_gate_inp_shexp": "mlp.shared_expert_gate"}
  layer |= {"ffn_gate_inp": "block_sparse_moe.gate"} if name == "mixtral" else {}
  layer |= {"ffn_up": "mlp.gate_up_proj"} if small.gate == "joined" else {}
  return {**{f"blk.#.{a}": f"model.layers.#.{b}" for a, b in layer.items()}, **OTHERS}


def of_transformers(name: str, small: Small) -> dict[str, np.ndarray[Any, Any]]:
  """The tensors of a model as transformers has them."""
  names, made = named(name, small), {}
  for tensor, array in small.arrays().items():
    stem, _, what = tensor.rpartition(".")
    number = re.search(r"\d+", stem)
    pattern = stem if number is None else stem.replace(number[0], "#")
    if stem.startswith("rope_"):
      continue
    if small.architecture in ("llama", "granite", "deepseek") and pattern in ("blk.#.attn_q", "blk.#.attn_k"):
      heads = array.shape[0] // small.size
      array = array.reshape(heads, small.size // 2, 2, -1).swapaxes(1, 2).reshape(array.shape)
    if small.architecture.startswith("gemma") and array.ndim == 1:
      array = array - 1
    if small.architecture == "gpt2" and number is not None and array.ndim == 2:
      array = array.T.copy()
    if stem.endswith("_inp_shexp"):
      array = array.reshape(1, -1)
    if stem.endswith("_exps"):
      assert number is not None
      kinds = EXPERTS.get(name, EXPERTS[""])
      folder = "block_sparse_moe" if name == "mixtral" else "mlp"
      part = kinds[stem.removesuffix("_exps").rpartition("_")[2]]
      for n, expert in enumerate(array):
        made[f"model.layers.{number[0]}.{folder}.experts.{n}.{part}.{what}"] = expert
      continue
    made[f"{names[pattern].replace('#', number[0] if number else '')}.{what}"] = array
  return made


SIZES: dict[str, Any] = {
  "hidden_size": DIM, "intermediate_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": 2,
  "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 1000.0, "vocab_size": VOCABULARY,
  "num_hidden_layers": 2, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
GEMMAS: dict[str, Any] = {"sliding_window": 3, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
CONFIGS: dict[str, dict[str, Any]] = {
  "llama, yarn": SIZES | {"architectures": ["LlamaForCausalLM"],
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
  "mixtral": SIZES | {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2,
    "sliding_window": None},
  "granite": SIZES | {"architectures": ["GraniteForCausalLM"], "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
    "attention_multiplier": 0.2, "logits_scaling": 4.0},
  "qwen2": SIZES | {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False, "sliding_window": 3},
  "qwen3": SIZES | {"architectures": ["Qwen3ForCausalLM"], "head_dim": 32, "tie_word_embeddings": True,
    "rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
  "qwen3moe": SIZES | {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": HIDDEN, "norm_topk_prob": True, "head_dim": 16, "decoder_sparse_step": 1},
  "qwen2moe": SIZES | {"architectures": ["Qwen2MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "norm_topk_prob": False,
    "decoder_sparse_step": 1, "use_sliding_window": False, "mlp_only_layers": []},
  "deepseek": SIZES | {"architectures": ["DeepseekForCausalLM"], "n_routed_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 32, "n_shared_experts": 2, "norm_topk_prob": False, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "scoring_func": "softmax", "routed_scaling_factor": 1.5, "num_hidden_layers": 3},
  "olmoe": SIZES | {"architectures": ["OlmoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2,
    "norm_topk_prob": False, "num_key_value_heads": HEADS, "clip_qkv": None},
  "phi3, long": SIZES | {"architectures": ["Phi3ForCausalLM"], "original_max_position_embeddings": 32,
    "rope_scaling": {"type": "longrope", "attention_factor": 1.25}},
  "gemma2": SIZES | GEMMAS | {"architectures": ["Gemma2ForCausalLM"], "attn_logit_softcapping": 1.5, "head_dim": 32,
    "final_logit_softcapping": 2.0, "query_pre_attn_scalar": 32},
  "gemma3": SIZES | GEMMAS | {"architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 6, "head_dim": 16,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "query_pre_attn_scalar": 16, "sliding_window_pattern": 6},
  "gpt2": {"architectures": ["GPT2LMHeadModel"], "n_embd": DIM, "n_head": HEADS, "n_layer": 2, "n_positions": CONTEXT,
    "n_inner": HIDDEN, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": False},
  "bert": SIZES | {"architectures": ["BertModel"], "num_key_value_heads": None, "layer_norm_eps": 1e-5,
    "hidden_act": "gelu_new"},
}  # fmt: skip
QUICK = ("mixtral", "phi3, long", "gemma3", "gpt2", "bert")


def write_folder(folder: Path, name: str, half: bool = False, **changed: Any) -> Path:
  """Writes the folder of a model of `architecture_models.py`."""
  small, config = MODELS[name], {**CONFIGS[name], **changed}
  if name == "phi3, long":
    factors = {f"{c}_factor": small.arrays()[f"rope_factors_{c}.weight"].tolist() for c in ("short", "long")}
    config["rope_scaling"] = {**config["rope_scaling"], **factors}
  folder.mkdir(exist_ok=True)
  (folder / "config.json").write_text(json.dumps(config), "utf-8")
  tensors = {key: Tensor(array) for key, array in of_transformers(name, small).items()}
  tensors = {key: t.cast(dtypes.float16) if half else t for key, t in tensors.items()}
  safe_save(tensors, folder / "model.safetensors", max_shard_size=30_000 if name == "gemma3" else None)
  return folder


@pytest.mark.parametrize(
  "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in CONFIGS]
)
def test_logits_are_those_of_the_same_model_as_gguf(tmp_path: Path, name: str) -> None:
  checkpoint = open_checkpoint(write_folder(tmp_path / name, name, half=name == "gpt2"))
  model = load_model(checkpoint, context=CONTEXT, cache_type="f32", exact=True)
  if model.config.architecture.causal:
    (found,) = model.step([Chunk(0, 0, TOKENS)], all_logits=True)
  else:
    (found,) = model.states([Chunk(0, 0, TOKENS)])
  expected = np.array(RECORDED[name])
  assert np.abs(np.asarray(found) - expected).max() < 5e-3 * np.abs(expected).max()


@pytest.mark.parametrize("layout", ["old", "new"])
@pytest.mark.parametrize(("name", "whole"), [("gemma3", "Gemma3"), ("llama, yarn", "Mistral3")])
def test_the_text_part_of_a_model_that_sees(tmp_path: Path, name: str, whole: str, layout: str) -> None:
  """Its tensors have other names, some of its configuration is left out, and the vision tower is not looked at."""
  plain, folder = write_folder(tmp_path / "plain", name), tmp_path / "whole"
  config = json.loads((plain / "config.json").read_text("utf-8"))
  config.pop("architectures")
  expected = open_checkpoint(plain)
  files = [*plain.glob("*.safetensors")]
  tensors = {key: t for file in files for key, t in safe_load(file).items()}
  given = {}
  for key, t in tensors.items():
    old, new = f"language_model.{key}", key.replace("model.", "model.language_model.", 1)
    given[old if layout == "old" else new] = t
  seeing = "" if layout == "old" else "model."
  given |= {f"{seeing}vision_tower.layer.0.weight": Tensor.ones(3), f"{seeing}multi_modal_projector.w": Tensor.ones(2)}
  folder.mkdir()
  safe_save(given, folder / "model.safetensors")
  tied = config.pop("tie_word_embeddings")
  text = {key: value for key, value in config.items() if key != "hidden_activation"}
  (folder / "config.json").write_text(
    json.dumps({"architectures": [f"{whole}ForConditionalGeneration"], "text_config": text, "vision_config": {},
      "tie_word_embeddings": tied}), "utf-8",
  )  # fmt: skip
  found = open_checkpoint(folder)
  assert config_of(found) == config_of(expected)
  assert found.tensors.keys() == expected.tensors.keys()
  for key, blocks in expected.tensors.items():
    np.testing.assert_array_equal(found.tensors[key].numbers().numpy(), blocks.numbers().numpy())
  (folder / "config.json").write_text(json.dumps({"architectures": [f"{whole}ForConditionalGeneration"]}), "utf-8")
  with pytest.raises(ValueError, match="text_config is None"):
    open_checkpoint(folder)


def test_factors_of_llama_3(tmp_path: Path) -> None:
  scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192}  # fmt: skip
  folder = write_folder(tmp_path / "a", "llama, yarn", rope_scaling=scaling, rope_theta=500000.0)
  factors = open_checkpoint(folder).tensors["rope_freqs.weight"].numbers().numpy()
  assert factors[:4].tolist() == [1, 1, 1, 1] and factors[-2:].tolist() == [8, 8]  # quick rotations stay
  wavelength = 2 * np.pi * 500000.0 ** (4 / 8)  # between the bounds of 2048 and 8192 tokens
  smooth = (8192 / wavelength - 1) / 3
  np.testing.assert_allclose(factors[4], 1 / ((1 - smooth) / 8 + smooth), rtol=1e-6)


TEXT = [
  "The quick brown fox jumps over the lazy dog, 1234 times!",
  "été à la plage 你好 ñandú",
  "def f(x):\n  return x",
]
SPECIAL = ["<|begin|>", "<|im_start|>", "<|im_end|>"]


def byte_level() -> Backend:
  backend = Backend(models.BPE())
  backend.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?\p{L}+|\s+|[^\s\p{L}\p{N}]+"), "isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
  ])  # fmt: skip
  backend.decoder = decoders.ByteLevel()
  alphabet = pre_tokenizers.ByteLevel.alphabet()
  backend.train_from_iterator(TEXT * 5, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
  backend.add_special_tokens(SPECIAL)
  backend.post_processor = processors.TemplateProcessing(
    single="<|begin|> $A", special_tokens=[("<|begin|>", backend.token_to_id("<|begin|>"))]
  )
  return backend


def with_spaces(scheme: str) -> Backend:
  """As SentencePiece does it: ▁ for spaces, one in front of the text, bytes for what is in no token."""
  letters = sorted({letter for text in TEXT[:1] for letter in text.replace(" ", "▁")} | {"▁"})
  vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"<0x{n:02X}>": n + 3 for n in range(256)}}
  for token in [*letters, "th", "he", "▁t", "▁q", "ui", "▁th", "▁the", "qui"]:
    vocabulary.setdefault(token, len(vocabulary))
  merges = [("t", "h"), ("h", "e"), ("▁", "t"), ("▁", "q"), ("u", "i"), ("▁t", "h"), ("▁t", "he"), ("q", "ui")]
  backend = Backend(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
  if scheme == "normalizer":
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
  else:
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
  backend.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
  backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
  return backend


def word_pieces() -> Backend:
  backend = Backend(models.WordPiece(unk_token="[UNK]"))
  backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
  backend.train_from_iterator(TEXT * 5, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special))
  backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
  return backend


KINDS: dict[str, tuple[Backend, dict[str, Any]]] = {
  "bytes": (byte_level(), {"eos_token": "<|im_end|>", "bos_token": {"content": "<|begin|>"}}),
  "normalizer": (with_spaces("normalizer"), {"bos_token": "<s>", "eos_token": "</s>"}),
  "first": (with_spaces("first"), {"bos_token": "<s>", "eos_token": "</s>"}),
  "words": (word_pieces(), {"cls_token": "[CLS]", "sep_token": "[SEP]"}),
}
SAID = st.text(alphabet="aehtqui Tfoxé你1!.\n<|>_[]", max_size=30)


def tokenizer_of(folder: Path, kind: str) -> Tokenizer:
  backend, config = KINDS[kind]
  write_folder(folder, "llama, yarn")
  backend.save(str(folder / "tokenizer.json"))
  (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
  return Tokenizer.from_metadata(open_checkpoint(folder).metadata)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_tokens_are_those_of_the_library(tmp_path: Path, kind: str) -> None:
  tokenizer, backend = tokenizer_of(tmp_path / "a", kind), KINDS[kind][0]
  assert len(tokenizer) == backend.get_vocab_size()
  control = {i for i in range(len(tokenizer)) if not tokenizer.piece(i)}

  @given(SAID)
  @settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
  def holds(text: str) -> None:
    ids = tokenizer.encode(text)
    if text and not any(special in text for special in (*SPECIAL, "<s>", "</s>", "<unk>")):
      assert ids == backend.encode(text).ids
      assert tokenizer.encode(text, add_special=False) == backend.encode(text, add_special_tokens=False).ids
    if kind == "bytes":
      assert tokenizer.decode(ids) == text
    elif kind != "words":
      assert tokenizer.decode(ids) == text or text.startswith(" ")

  holds()
  around = [special for special in (*SPECIAL, "<s>", "</s>") if backend.token_to_id(special) is not None]
  for special in around:
    assert not control.intersection(tokenizer.encode(f"the {special} end", add_special=False))
    text = f"the {special}the {special}"
    assert tokenizer.encode(text, parse_special=True) == backend.encode(text).ids


def test_a_folder_talks(tmp_path: Path) -> None:
  backend = byte_level()
  small = MODELS["qwen2"]
  (tmp_path / "models").mkdir()
  folder = write_folder(tmp_path / "models" / "Small-Qwen", "qwen2")
  arrays = of_transformers("qwen2", small)
  rows, rng = backend.get_vocab_size(), np.random.default_rng(3)
  for name in ("model.embed_tokens.weight", "lm_head.weight"):
    arrays[name] = rng.normal(size=(rows, DIM)).astype(np.float32)
  safe_save({key: Tensor(array) for key, array in arrays.items()}, folder / "model.safetensors")
  backend.save(str(folder / "tokenizer.json"))
  template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
  config = {"eos_token": "<|im_end|>", "chat_template": [{"name": "default", "template": template}]}
  (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
  answers = {"temperature": 0.6, "top_k": 20, "eos_token_id": [backend.token_to_id("<|begin|>"), 7]}
  (folder / "generation_config.json").write_text(json.dumps(answers), "utf-8")
  assert find_model("small qwen", tmp_path / "models") == folder
  session = Session(folder, quiet=True)
  try:
    assert (session.name, session.defaults) == ("Small-Qwen", {"temperature": 0.6, "top_k": 20})
    ends = {backend.token_to_id("<|im_end|>"), backend.token_to_id("<|begin|>"), 7}
    assert session.tokenizer.ends == ends
    tokens = session.prompt([{"role": "user", "content": "The fox"}])
    assert tokens[:2] == [backend.token_to_id("<|begin|>"), backend.token_to_id("<|im_start|>")]
    assert session.tokenizer.decode(tokens) == "user\nThe fox\n"
    request = Request(tokens, SamplingOptions(temperature=0), max_tokens=5, ignore_ends=True)
    assert len([n for piece in session.engine.answer(request) for n in piece.tokens]) == 5
  finally:
    session.close()


@pytest.mark.parametrize(
  ("changed", "message"),
  [
    ({"architectures": ["PerceptronForCausalLM"]}, "'PerceptronForCausalLM' is not known here; known are Llama"),
    ({"architectures": None}, "the architecture None is not known"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is {'quant_method': 'gptq'}"),
    ({"hidden_act": "relu"}, "the activation 'relu' is not known"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, "scaled by 'dynamic'"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": "many"}}, "factor is 'many'"),
    ({"rope_scaling": 3}, "rope_scaling is 3"),
    ({"num_hidden_layers": -1}, "num_hidden_layers or n_layer of config.json is -1"),
    ({"num_hidden_layers": 3}, "needs a tensor blk.2.attn_"),
    ({"num_hidden_layers": 1}, "no use for the tensor 'blk.1."),
    ({"hidden_size": 65}, "has shape"),
    ({"num_attention_heads": 0}, "num_attention_heads is 0"),
    ({"num_key_value_heads": 3}, "no multiple of 3"),
    ({"max_position_embeddings": "long"}, "max_position_embeddings is 'long'"),
    ({"rms_norm_eps": [1]}, "rms_norm_eps of config.json is [1], expected a finite number"),
    ({"rms_norm_eps": -1}, "rms_norm_eps of config.json is -1.0, expected a number from 0, and below 1"),
    ({"intermediate_size": 0}, "intermediate_size or n_inner of config.json is 0"),
  ],
)
def test_a_config_that_makes_no_sense(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
  folder = write_folder(tmp_path / "a", "llama, yarn", **changed)
  with pytest.raises(ValueError, match=re.escape(message)):
    load_model(open_checkpoint(folder), context=8)


def test_folders_that_lack_something(tmp_path: Path) -> None:
  folder = write_folder(tmp_path / "a", "llama, yarn")
  for text, message in (("[" * 100_000, "no JSON|too deeply"), ("[1]", "expected an object"), ("{", "no JSON")):
    (folder / "tokenizer.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=message):
      open_checkpoint(folder)
  (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": []}}), "utf-8")
  with pytest.raises(ValueError, match="of type 'Unigram'"):
    open_checkpoint(folder)
  (folder / "tokenizer.json").unlink()
  with pytest.raises(ValueError, match=r"tokenizer.json is missing, or empty"):
    text_of(open_checkpoint(folder))
  (folder / "model.safetensors").rename(folder / "other.safetensors")
  with pytest.raises(FileNotFoundError, match="neither model.safetensors nor"):
    open_checkpoint(folder)
  index = {"weight_map": {"model.norm.weight": "../secret.safetensors"}}
  (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
  with pytest.raises(ValueError, match="expected the name of a file next to it"):
    open_checkpoint(folder)


NAMES = ["type", "rope_type", "factor", "vocab", "merges", "id", "content", "model", "full_attention"]
ANY = st.recursive(
  st.none() | st.booleans() | st.integers(-2, 1 << 70) | st.floats() | st.text(max_size=4),
  lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
  max_leaves=6,
)
KEYS = sorted({key for config in CONFIGS.values() for key in config} - {"architectures"})


@given(
  st.dictionaries(st.sampled_from(KEYS), ANY),
  st.dictionaries(st.sampled_from(["model", "added_tokens", "pre_tokenizer", "decoder"]), ANY),
  ANY,
  st.dictionaries(st.sampled_from(["model.norm.weight", "lm_head.weight", "x"]), ANY),
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
def test_hostile_folders_only_raise_what_names_them(
  tmp_path: Path, config: dict[str, Any], tokenizer: dict[str, Any], more: Any, index: dict[str, Any]
) -> None:
  folder = tmp_path / "a"
  if not folder.exists():
    write_folder(folder, "llama, yarn")
  (folder / "config.json").write_text(json.dumps({**CONFIGS["llama, yarn"], **config}), "utf-8")
  (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
  (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": more, "chat_template": more}), "utf-8")
  listed = folder / "model.safetensors.index.json"
  if index:
    places = dict.fromkeys(safe_load(folder / "model.safetensors"), "model.safetensors")
    listed.write_text(json.dumps({"weight_map": {**places, **index}}), "utf-8")
  else:
    listed.unlink(missing_ok=True)
  try:
    checkpoint = open_checkpoint(folder)
    load_model(checkpoint, context=8)
    text_of(checkpoint)
  except (ValueError, FileNotFoundError) as error:
    assert str(folder) in str(error), error


@pytest.mark.parametrize(
  ("name", "left_out"),
  [
    ("qwen2", "model.layers.1.self_attn.v_proj.bias"),
    ("qwen2", "model.layers.0.self_attn.q_proj.bias"),
    ("qwen3", "model.layers.1.self_attn.k_norm.weight"),
    ("gpt2", "h.1.mlp.c_fc.bias"),
    ("bert", "bert.encoder.layer.0.attention.self.key.bias"),
  ],
)
def test_a_vector_of_one_layer_is_missing(tmp_path: Path, name: str, left_out: str) -> None:
  """Models without biases, or without norms of heads, do without them in all layers: one that is missing is damage,
  with which other numbers would be computed."""
  folder = write_folder(tmp_path / "a", name)
  tensors = dict(safe_load(folder / "model.safetensors"))
  safe_save({key: t for key, t in tensors.items() if key != left_out}, tmp_path / "less.safetensors")
  (tmp_path / "less.safetensors").rename(folder / "model.safetensors")
  with pytest.raises(ValueError, match="it has a tensor .*, but none "):
    load_model(open_checkpoint(folder), context=8)
