"""Writes what llama.cpp makes of the strings in `llama_tokens.json`, which `test_llm_tokenizer.py` compares with.

`python record_llama_tokens.py new` (with the package's test dependencies) draws vocabularies and strings anew;
`python record_llama_tokens.py record` (with llama-cpp-python and gguf) fills in the tokens.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("llama_tokens.json")
COUNT = 120  # strings


def new() -> None:
  from llm_vocabularies import byte_level, sentence_piece, strings

  from tiny_llm.text.patterns import PRE_TOKENIZERS

  made = {
    "strings": strings(COUNT, seed=2026),
    "byte-level": {
      key: value for key, value in byte_level("llama-bpe", across=True).items() if not key.endswith(".pre")
    },
    "sentencepiece": sentence_piece()[0],
    "tokens": dict.fromkeys([*PRE_TOKENIZERS, "sentencepiece"], []),
  }
  write(made)


def write(made: dict[str, Any]) -> None:
  lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in made.items())
  FILE.write_text(f"{{\n{lines}\n}}\n", "utf-8")


def record() -> None:
  made = json.loads(FILE.read_text("utf-8"))
  groups: dict[str, list[str]] = {}
  for name in " ".join(made["tokens"]).split():
    metadata = made["sentencepiece"] if name == "sentencepiece" else made["byte-level"] | {"tokenizer.ggml.pre": name}
    groups.setdefault(json.dumps(tokens_of(metadata, made["strings"])), []).append(name)
  made["tokens"] = {" ".join(names): json.loads(tokens) for tokens, names in groups.items()}
  write(made)


def tokens_of(metadata: dict[str, Any], strings: list[str]) -> list[list[int]]:
  """What llama.cpp makes of strings, with the tokens that it puts around them."""
  import gguf
  from llama_cpp import Llama

  with tempfile.TemporaryDirectory() as folder:
    path = str(Path(folder) / "vocabulary.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(metadata["tokenizer.ggml.tokens"]))
    for key, value in metadata.items():
      kind = gguf.GGUFValueType.UINT32 if type(value) is int else gguf.GGUFValueType.get_type(value)
      writer.add_key_value(key, value, kind, sub_type=gguf.GGUFValueType.get_type(value[0]) if kind == 9 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = Llama(path, vocab_only=True, verbose=False)
    return [model.tokenize(text.encode(), add_bos=True, special=True) for text in strings]


if __name__ == "__main__":
  {"new": new, "record": record}[sys.argv[1]]()
