"""Small vocabularies as GGUF metadata, trained on text of many scripts, and random strings to tokenise."""

from __future__ import annotations

import random
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Regex, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Steps

import tiny_llm
from tiny_llm.text.patterns import PRE_TOKENIZERS

SCRIPTS = [
  "Der Fuß läuft über die Straße, don't you'LL see I'm here; WE'RE there, it's 1984 or 12,345,678.90!",
  "Ça déjà vu, où l'été; El niño comió piñas. Ångström — naïve “quotes” … 50 % of £3",
  "Съешь же ещё этих мягких французских булок, да выпей чаю. Привет мир",
  "私は日本語を少し話します。東京タワー、カタカナ。今天天气很好，我们去公园吧。一二三龥",
  "नमस्ते दुनिया, यह हिन्दी है। مرحبا بالعالم ١٢٣ שלום עולם สวัสดีชาวโลก 안녕하세요 세계",
  "🙂🙂 👩‍👩‍👧‍👦 é (e\u0301) a\u0300\u0301 ½ ² Ⅷ ٣ €$+<=>^`|~ \t\ttabs\r\n\r\n   spaces\u00a0nbsp\u2003em\u200bzero",
  "def f(x):\n    return {'a': x ** 2}  # comment\n\n\nif __name__ == \"__main__\":\n\tprint(f(10) // 3)\n",
  "12 123 1234 12345 2024 1999 100 1000 x12 345678 ۱۲۳ ١٢٣ é\u0301a e\u0301e\u0301 नमस्ते " * 9,
  "HTTPServer XMLHttpRequest getElementById DON'T I'LL we're they'Ve WE'RE you'd a/b//c/\n// x!\n?!\n " * 9,
]
LETTERS = "abcXYZéßñжЖ日本かなカ한글ﬁǅʰ"
OTHERS = (
  "  \n\r\t'’.,;!?-_/\\()[]{}<>@#$%^&*+=|~`\"0123456789½٣Ⅷ\u0301\u0940\u00a0\u2003\u200b\u0085\u3000€🙂👩\u200d—…\0\x7f"
)


@cache
def corpus() -> tuple[str, ...]:
  sources = sorted(Path(tiny_llm.__file__).parent.glob("*.py"))
  return tuple(SCRIPTS * 3 + [path.read_text("utf-8") for path in sources])


def strings(count: int, seed: int = 0) -> list[str]:
  """Random strings: pieces of real text in several scripts, runs of one character, and characters at random."""
  rng, text = random.Random(seed), "\n".join(corpus())

  def part() -> str:
    kind = rng.randrange(6)
    if kind == 0:
      return rng.choice([" ", "  ", "\n", "\n\n", "\r\n", "\t", "'s", "'LL", "'Re", " 's", "…", "x"])
    if kind == 1:
      return rng.choice(LETTERS + OTHERS) * rng.randrange(1, 9)
    if kind == 2:
      return "".join(rng.choice(OTHERS) for _ in range(rng.randrange(1, 6)))
    if kind == 3:
      return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(1, 8)))
    if kind == 4:
      while True:  # characters that are younger than some library's tables are letters here and none there
        letter = chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x30000)]))
        if unicodedata.ucd_3_2_0.category(letter) != "Cn":
          return letter
    start = rng.randrange(len(text))
    return text[start : start + rng.randrange(1, 30)]

  return ["", " ", "  a", "a ", *("".join(part() for _ in range(rng.randrange(1, 9))) for _ in range(count - 4))]


@cache
def byte_level(pre: str, across: bool = False) -> dict[str, Any]:
  """Metadata of a byte-level BPE of 900 merges; control tokens stand first. `across`: with merges across the ends of
  words, which show where words end."""
  backend = Backend(BPE())
  steps = [Split(Regex(pattern), "isolated") for pattern in PRE_TOKENIZERS[pre].patterns if not across]
  backend.pre_tokenizer = Steps([*steps, ByteLevel(add_prefix_space=False, use_regex=False)])
  trainer = trainers.BpeTrainer(
    vocab_size=1156, initial_alphabet=ByteLevel.alphabet(), show_progress=False, max_token_length=12
  )
  backend.train_from_iterator(corpus(), trainer)
  state: dict[str, Any] = __import__("json").loads(backend.to_str())["model"]
  control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>x"]
  tokens = control + sorted(state["vocab"], key=state["vocab"].__getitem__)
  tokens.append("<tool>")
  merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in state["merges"]]
  return {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": pre,
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": [3] * len(control) + [1] * (len(tokens) - len(control) - 1) + [4],
    "tokenizer.ggml.merges": merges,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
  }


@cache
def sentence_piece() -> tuple[dict[str, Any], Any]:
  """Metadata of a SentencePiece BPE with byte fallback, and SentencePiece's own processor of it."""
  import io

  import sentencepiece

  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([line for text in corpus() for line in text.splitlines() if line.strip()]),
    model_writer=model,
    vocab_size=1500,
    model_type="bpe",
    byte_fallback=True,
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
    add_dummy_prefix=True,
    allow_whitespace_only_pieces=True,
    split_digits=True,
    max_sentence_length=1 << 20,
    minloglevel=2,
    user_defined_symbols=["<tool>"],
  )
  processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
  ids = range(processor.get_piece_size())

  def type_of(i: int) -> int:
    if processor.is_unknown(i):
      return 2
    if processor.is_control(i):
      return 3
    if processor.id_to_piece(i) == "<tool>":
      return 4
    return 6 if processor.is_byte(i) else 1

  return {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in ids],
    "tokenizer.ggml.scores": [processor.get_score(i) for i in ids],
    "tokenizer.ggml.token_type": [type_of(i) for i in ids],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
  }, processor


def word_piece() -> dict[str, Any]:
  words = "the quick brown fox jump over lazy dog hello world un".split()
  parts = ["ing", "ed", "s", "able", "x", *"abcdefghijklmnopqrstuvwxyz"]
  letters = [f"▁{letter}" for letter in "abcdefghijklmnopqrstuvwxyz.,!?-日本"]
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  tokens = special + [f"▁{word}" for word in words] + letters + parts
  return {
    "tokenizer.ggml.model": "bert",
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": [3, 2, 3, 3, 3] + [1] * (len(tokens) - 5),
    "tokenizer.ggml.cls_token_id": 2,
    "tokenizer.ggml.seperator_token_id": 3,
    "tokenizer.ggml.unknown_token_id": 1,
  }
