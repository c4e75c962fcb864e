"""How byte-level BPE vocabularies cut text into words before they merge: a table by the name in `tokenizer.ggml.pre`.

The names and expressions are those that GGUF converters write and llama.cpp reads. The expressions of an entry apply
one after another: each cuts the pieces that the one before it made, and text that no expression matches is a piece,
too.
"""

from __future__ import annotations

from dataclasses import dataclass

CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
QWEN2 = rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
QWEN35 = rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
TITLE = r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+"  # a word that may begin with capitals
CAPITALS = r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*"
TEKKEN = rf"{TITLE}|{CAPITALS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
GPT4O = rf"{TITLE}{CONTRACTION}?|{CAPITALS}{CONTRACTION}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
DEEPSEEK = (
  r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
  rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}"
)
CASED = (  # letters with a case, but for some alphabets and those of mathematics, of which it has none
  "(?![\u0560-\u0588\u10c7-\u10ff\u1c80-\u1c8f\u2d00-\u2d2d\ua790-\ua7ff\uab30-\uab68\U00010570-\U000105bc"
  "\U00010d50-\U00010d85\U00016e40-\U00016e7f\U0001d400-\U0001d7cb\U0001df00-\U0001dfff])"
  r"[\p{Lu}\p{Ll}\p{Lt}]"
)
DEEPSEEK_LLM = (
  r"[\r\n]", rf"\s?(?:{CASED})+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
  "[\u0800-\u9fa5\uac00-\ud7ff]+", r"\p{N}+",
)  # fmt: skip
DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")


@dataclass(frozen=True)
class PreTokenizer:
  """`patterns` cut text into words. `whole_words`: a word that is a token is not merged (llama.cpp: ignore_merges).
  `add_bos`: whether text begins with the beginning-of-text token where the file does not say."""

  patterns: tuple[str, ...]
  whole_words: bool = False
  add_bos: bool = False


def _table() -> dict[str, PreTokenizer]:
  families = [
    ("llama-bpe llama3 llama-v3 falcon3", PreTokenizer((LLAMA3,), whole_words=True, add_bos=True)),
    ("smaug-bpe dbrx glm4 chatglm-bpe", PreTokenizer((LLAMA3,))),
    ("qwen2 stablelm2 hunyuan megrez deepseek-r1-qwen", PreTokenizer((QWEN2,))),
    ("qwen35", PreTokenizer((QWEN35,))),
    ("gpt-2 phi-2 olmo mpt exaone4", PreTokenizer((GPT2,))),
    ("smollm starcoder refact command-r codeshell", PreTokenizer((r"\p{N}", GPT2))),
    ("tekken", PreTokenizer((TEKKEN,), whole_words=True, add_bos=True)),
    ("gpt-4o llama4", PreTokenizer((GPT4O,))),
    ("deepseek-v3", PreTokenizer((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK))),
    ("deepseek-llm", PreTokenizer(DEEPSEEK_LLM)),
    ("default", PreTokenizer(DEFAULT)),
  ]
  return {name: entry for names, entry in families for name in names.split()}


PRE_TOKENIZERS = _table()
