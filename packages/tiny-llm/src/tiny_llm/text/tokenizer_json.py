"""What `tokenizer.json` and the files beside it say of tokens, in the keys of GGUF."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = [
  "BYTE", "CONTROL", "HUGGINGFACE", "NORMAL", "SPACE", "UNKNOWN", "USER_DEFINED", "tokenizer_metadata", "without_added",
]  # fmt: skip

HUGGINGFACE = "tokenizer.huggingface.json"
"""GGUF's key for the text of `tokenizer.json`."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # values of tokenizer.ggml.token_type; 5 is unused
MOST = 1 << 22  # tokens
SPACE = "▁"  # what SentencePiece writes for a space
SAMPLING = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


def tokenizer_metadata(folder: Path, read: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
  """Keys `tokenizer.*` and `general.sampling.*` of a folder, of which `read` gives a file of JSON, `{}` where there is
  none. Raises ValueError for what makes no sense."""
  metadata: dict[str, Any] = {}
  given, config, answers = read("tokenizer.json"), read("tokenizer_config.json"), read("generation_config.json")
  for key, name in SAMPLING.items():
    if answers.get("do_sample") is not False and type(answers.get(key)) in (int, float):
      metadata[f"general.sampling.{name}"] = answers[key]
  if isinstance(template := _template(folder, config), str):
    metadata["tokenizer.chat_template"] = template
  if not given:
    return metadata
  kind, vocabulary = _kind(folder, given), _vocabulary(folder, given)
  tokens, types = (
    [""] * (max(vocabulary.values(), default=-1) + 1),
    [NORMAL] * (max(vocabulary.values(), default=-1) + 1),
  )
  for text, number in vocabulary.items():
    tokens[number] = text
    if kind == "bert":  # GGUF marks the beginnings of words, here what continues one is marked
      tokens[number] = text.removeprefix("##") if text.startswith("##") else SPACE + text
    if kind == "llama" and len(text) == 6 and text.startswith("<0x"):
      types[number] = BYTE
  for item in _added(given):
    tokens[item["id"]], types[item["id"]] = item["content"], CONTROL if item.get("special") else USER_DEFINED
  unknown = given["model"].get("unk_token")
  ids = {text: number for number, text in enumerate(tokens)}
  if isinstance(unknown, str) and unknown in ids:
    types[ids[unknown]] = UNKNOWN
  ends = _ids(answers.get("eos_token_id"), read("config.json").get("eos_token_id"))
  named = {name: ids.get(_content(config.get(f"{name}_token"))) for name in ("bos", "eos", "cls", "sep", "unk")}
  eos = [n for n in (named["eos"], *ends) if n is not None and n < len(tokens)]
  keys = {
    "model": kind, "tokens": tokens, "token_type": types,
    "bos_token_id": named["cls"] if kind == "bert" else named["bos"],
    "unknown_token_id": ids.get(unknown) if isinstance(unknown, str) else named["unk"],
    "seperator_token_id": named["sep"],
    **dict(zip(("eos_token_id", "eot_token_id", "eom_token_id"), dict.fromkeys(eos))),
  }  # fmt: skip
  for name in ("add_bos_token", "add_eos_token"):
    if isinstance(config.get(name), bool):
      keys[name] = config[name]
  metadata |= {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}
  metadata[HUGGINGFACE] = json.dumps(given)
  return metadata


def without_added(text: str) -> tuple[str, str]:
  """The text of a `tokenizer.json` without tokens that it would find in any text and put around it; and the same for
  what stands within a text, where none of them puts a space in front."""
  given = json.loads(text)
  given |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
  first = json.dumps(given)
  for step in _steps(given.get("pre_tokenizer")):
    if step.get("prepend_scheme") == "first":
      step["prepend_scheme"] = "never"
  return first, json.dumps(given)


def _kind(folder: Path, given: Mapping[str, Any]) -> str:
  """GGUF's name of a kind of tokenizer."""
  model = given.get("model")
  name = model.get("type") if isinstance(model, dict) else None
  if isinstance(model, dict) and name is None and "merges" in model:
    name = "BPE"
  if name == "WordPiece":
    return "bert"
  steps = [*_steps(given.get("pre_tokenizer")), *_steps(given.get("decoder"))]
  if name == "BPE" and any(step.get("type") == "ByteLevel" for step in steps):
    return "gpt2"
  if name == "BPE" and isinstance(model, dict) and model.get("byte_fallback") is True:
    return "llama"
  raise ValueError(
    f"{folder}: tokenizer.json is of type {name!r:.40}, known here are BPE of bytes or with bytes as a last "
    "resort, and WordPiece"
  )


def _vocabulary(folder: Path, given: Mapping[str, Any]) -> dict[str, int]:
  """Tokens and their numbers, with those that were added."""
  found = given["model"].get("vocab")
  if not isinstance(found, dict) or not all(type(n) is int and 0 <= n < MOST for n in found.values()):
    raise ValueError(f"{folder}: tokenizer.json has no vocabulary of texts and numbers below {MOST}")
  added = given.get("added_tokens") or []
  fine = isinstance(added, list) and all(
    isinstance(item, dict) and isinstance(item.get("content"), str) and type(item.get("id")) is int
    and 0 <= item["id"] < MOST for item in added
  )  # fmt: skip
  if not fine:
    raise ValueError(f"{folder}: added_tokens of tokenizer.json: expected a list of objects with id and content")
  return {**found, **{item["content"]: item["id"] for item in _added(given)}}


def _added(given: Mapping[str, Any]) -> list[dict[str, Any]]:
  return list(given.get("added_tokens") or [])


def _steps(part: Any) -> Iterator[dict[str, Any]]:
  """The steps of a part of a tokenizer, which may be a sequence of them."""
  if isinstance(part, dict):
    yield part
    for name in ("pretokenizers", "decoders", "normalizers"):
      inner = part.get(name)
      for step in inner if isinstance(inner, list) else ():
        yield from _steps(step)


def _content(token: Any) -> str:
  """The text of a token, which files write as such or as an object."""
  token = token.get("content") if isinstance(token, dict) else token
  return token if isinstance(token, str) else ""


def _ids(*values: Any) -> list[int]:
  """Numbers of tokens: a number or a list of them."""
  flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
  return [item for item in flat if type(item) is int and item >= 0]


def _template(folder: Path, config: Mapping[str, Any]) -> Any:
  """The chat template: a file of its own, or in `tokenizer_config.json`, where there may be several by name."""
  file = folder / "chat_template.jinja"
  if file.is_file() and file.stat().st_size < 1 << 20:
    return file.read_text("utf-8")
  found = config.get("chat_template")
  if isinstance(found, list):
    found = next((i.get("template") for i in found if isinstance(i, dict) and i.get("name") == "default"), None)
  return found
