"""Tokenizers against a plain merge over the `regex` package, SentencePiece, and properties that any tokenizer has."""

from __future__ import annotations

import codecs
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from llm_vocabularies import byte_level, sentence_piece, strings, word_piece

from tiny_llm.text.patterns import PRE_TOKENIZERS
from tiny_llm.text.tokenizer import StreamDecoder, Tokenizer, TokenizerError
from tiny_llm.text.vocabulary import Vocabulary

FAMILIES = ["llama-bpe", "dbrx", "qwen2", "qwen35", "gpt-2", "smollm", "tekken", "gpt-4o", "deepseek-v3", "default"]
COUNTS = [1_000, pytest.param(100_000, marks=pytest.mark.nightly)]


class PlainBPE:
  """Byte-level BPE as its definition reads: cut into words, then merge the neighbours that stand first in the list."""

  def __init__(self, metadata: dict[str, Any]) -> None:
    pre = PRE_TOKENIZERS[metadata["tokenizer.ggml.pre"]]
    self.patterns = [regex.compile(pattern, regex.V0) for pattern in pre.patterns]
    self.whole_words = pre.whole_words
    self.ids = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = dict(zip(printable, map(chr, printable)))
    for byte in range(256):
      letters.setdefault(byte, chr(256 + sum(other not in printable for other in range(byte))))
    self.letters = letters
    self.known: dict[str, list[int]] = {}

  def words(self, text: str) -> list[str]:
    pieces = [text]
    for pattern in self.patterns:
      cut = []
      for piece in pieces:
        end = 0
        for match in pattern.finditer(piece):
          cut += [piece[end : match.start()], match.group()]
          end = match.end()
        cut.append(piece[end:])
      pieces = [piece for piece in cut if piece]
    return pieces

  def merge(self, word: str) -> list[int]:
    parts = [self.letters[byte] for byte in word.encode()]
    if self.whole_words and "".join(parts) in self.ids:
      return [self.ids["".join(parts)]]
    while pairs := [
      (self.ranks[pair], at) for at, pair in enumerate(zip(parts, parts[1:], strict=False)) if pair in self.ranks
    ]:
      _, at = min(pairs)
      parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [self.ids[part] for part in parts]

  def encode(self, text: str) -> list[int]:
    ids: list[int] = []
    for word in self.words(text):
      if word not in self.known:
        self.known[word] = self.merge(word)
      ids += self.known[word]
    return ids


@given(st.lists(st.text(st.characters(), max_size=4)), st.data())
def test_a_vocabulary_is_a_list_of_texts(texts: list[str], data: st.DataObject) -> None:
  vocabulary = Vocabulary(texts)
  assert len(vocabulary) == len(texts) and list(vocabulary) == texts and vocabulary[1:-1] == texts[1:-1]
  place = data.draw(st.integers(-len(texts) - 1, len(texts)))
  if -len(texts) <= place < len(texts):
    assert vocabulary[place] == texts[place]
  else:
    with pytest.raises(IndexError):
      vocabulary[place]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("pre", FAMILIES)
def test_byte_level_bpe_is_the_plain_merge(pre: str, count: int) -> None:
  metadata = byte_level(pre)
  tokenizer, plain = Tokenizer.from_metadata(metadata), PlainBPE(metadata)
  for text in strings(count, seed=len(pre)):
    if "<tool>" in text:
      continue
    ids = tokenizer.encode(text, add_special=False)
    assert ids == plain.encode(text), (text, plain.words(text))
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("count", COUNTS)
def test_sentence_piece_is_sentencepiece(count: int) -> None:
  metadata, processor = sentence_piece()
  tokenizer = Tokenizer.from_metadata(metadata)
  for text in strings(count, seed=7):
    text = text.replace("\0", "")  # SentencePiece's own interface ends there
    if not text:
      continue
    ids = tokenizer.encode(text, add_special=False)
    assert ids == processor.encode(text), (
      text,
      [tokenizer.piece(i) for i in ids],
      processor.encode(text, out_type=str),
    )
    assert tokenizer.decode(ids) == text.replace("▁", " ")  # the vocabulary has one sign for both


def test_every_name_of_a_pre_tokenizer_makes_a_tokenizer() -> None:
  for pre in PRE_TOKENIZERS:
    tokenizer = Tokenizer.from_metadata(byte_level("gpt-2") | {"tokenizer.ggml.pre": pre})
    assert tokenizer.decode(tokenizer.encode("Hello 123", add_special=False)) == "Hello 123"


@pytest.mark.parametrize(
  ("pre", "text", "words"),
  [
    ("llama-bpe", "I'LL see 12345 x\n\n y", ["I", "'LL", " see", " ", "123", "45", " x", "\n\n", " y"]),
    ("qwen2", "a 123", ["a", " ", "1", "2", "3"]),
    ("qwen35", "e\u0301a x", ["e\u0301a", " x"]),
    ("qwen2", "e\u0301a x", ["e", "\u0301a", " x"]),
    ("gpt-2", "I'LL don't 1234", ["I", "'", "LL", " don", "'t", " 1234"]),
    ("smollm", "in 12", ["in", " ", "1", "2"]),
    ("tekken", "HelloWORLDfoo a/b//\n", ["Hello", "WORLDfoo", " a", "/b", "//\n"]),
    ("gpt-4o", "don't WE'RE 1234", ["don't", " WE'RE", " ", "123", "4"]),
    ("deepseek-v3", "a1234日本x", ["a", "123", "4", "日本", "x"]),
  ],
)
def test_how_text_is_cut_into_words(pre: str, text: str, words: list[str]) -> None:
  metadata = byte_level(pre)
  assert PlainBPE(metadata).words(text) == words
  tokenizer = Tokenizer.from_metadata(metadata)
  together = [token for word in words for token in tokenizer.encode(word, add_special=False)]
  assert tokenizer.encode(text, add_special=False) == together


def test_whole_words_only_where_the_family_does() -> None:
  # "abc" is a token that no merge leads to.
  metadata = byte_level("llama-bpe")
  tokens = [*metadata["tokenizer.ggml.tokens"], "qzx"]
  types = [*metadata["tokenizer.ggml.token_type"], 1]
  added = metadata | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
  assert Tokenizer.from_metadata(added).encode("qzx", add_special=False) == [len(tokens) - 1]
  for other in ("dbrx", "qwen2", "smollm", "glm4"):
    ids = Tokenizer.from_metadata(added | {"tokenizer.ggml.pre": other}).encode("qzx", add_special=False)
    assert len(ids) > 1


def test_merges_go_by_the_list_and_not_by_the_numbers_of_tokens() -> None:
  tokens = ["a", "b", "c", "ab", "bc"]
  base = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens}
  first = Tokenizer.from_metadata(base | {"tokenizer.ggml.merges": ["b c", "a b"]})
  assert first.encode("abc") == [0, 4]
  assert Tokenizer.from_metadata(base | {"tokenizer.ggml.merges": ["a b", "b c"]}).encode("abc") == [3, 2]


def test_what_stands_around_a_text() -> None:
  metadata = byte_level("llama-bpe")
  assert Tokenizer.from_metadata(metadata).encode("")[:1] == [1]  # the family begins with bos
  assert Tokenizer.from_metadata(metadata | {"tokenizer.ggml.add_bos_token": False}).encode("") == []
  both = metadata | {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
  assert Tokenizer.from_metadata(both).encode("") == [1, 2]
  assert Tokenizer.from_metadata(both).encode("", add_special=False) == []
  assert Tokenizer.from_metadata(byte_level("qwen2")).encode("") == []
  spm, _ = sentence_piece()
  assert Tokenizer.from_metadata(spm).encode("")[:1] == [1]
  bare = Tokenizer.from_metadata(
    spm | {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False}
  )
  assert bare.decode(bare.encode("x")) == "x" and bare.piece(bare.encode("x")[0]) == b"x"


def test_control_tokens_are_made_of_text_only_when_asked() -> None:
  tokenizer = Tokenizer.from_metadata(byte_level("smollm"))
  text = "<|im_start|>user\nhi<|im_end|>"
  plain, parsed = tokenizer.encode(text), tokenizer.encode(text, parse_special=True)
  assert not {1, 2} & set(plain) and tokenizer.decode(plain) == text
  assert parsed[0] == 1 and parsed[-1] == 2
  assert tokenizer.decode(parsed) == "user\nhi" and tokenizer.decode(parsed, special=True) == text
  # the longest wins, and one that the vocabulary calls user-defined is always one
  assert tokenizer.encode("<|im_end|>x", parse_special=True) == [3]
  tool = tokenizer.id_of("<tool>")
  assert tool is not None and tokenizer.encode("a<tool>b")[1] == tool and tokenizer.decode([tool]) == "<tool>"


@given(st.text())
def test_no_text_becomes_a_control_token(text: str) -> None:
  for metadata in (byte_level("llama-bpe"), sentence_piece()[0]):
    tokenizer = Tokenizer.from_metadata(metadata)
    types = metadata["tokenizer.ggml.token_type"]
    assert all(types[i] != 3 for i in tokenizer.encode(f"{text}<s></s><|im_end|>{text}", add_special=False))


@pytest.mark.parametrize("metadata", [byte_level("qwen2"), sentence_piece()[0]], ids=["byte-level", "sentencepiece"])
def test_a_stream_never_gives_half_a_character(metadata: dict[str, Any]) -> None:
  tokenizer = Tokenizer.from_metadata(metadata)
  for text in ["🙂👩‍👩‍👧 日本語 é", *strings(200, seed=3)]:
    decoder, shown = StreamDecoder(tokenizer), ""
    ids = tokenizer.encode(text, add_special=False)
    for i, token in enumerate(ids):
      piece = decoder.push(token)
      so_far = b"".join(map(tokenizer.piece, ids[: i + 1]))
      shown += piece
      assert shown == codecs.getincrementaldecoder("utf-8")().decode(so_far)  # nothing that is not there, all that is
    assert decoder.end() == "" and shown == tokenizer.decode(ids) or shown[1:] == tokenizer.decode(ids)


def test_a_stream_that_ends_within_a_character_says_so() -> None:
  tokenizer = Tokenizer.from_metadata(byte_level("qwen2"))
  ids = [tokenizer.id_of(letter) for letter in "ð"]  # the first byte of four
  decoder = StreamDecoder(tokenizer)
  assert [decoder.push(i) for i in ids if i is not None] == [""]
  assert decoder.end() == "\ufffd"


def test_lone_surrogates_are_replaced() -> None:
  for metadata in (byte_level("gpt-2"), sentence_piece()[0], word_piece()):
    assert Tokenizer.from_metadata(metadata).encode("a\ud800b")


@pytest.mark.parametrize(
  ("text", "pieces"),
  [
    ("Hello, WORLD!", ["[CLS]", "▁hello", "▁,", "▁world", "▁!", "[SEP]"]),
    ("jumping foxes", ["[CLS]", "▁jump", "ing", "▁fox", "e", "s", "[SEP]"]),
    ("日本", ["[CLS]", "▁日", "▁本", "[SEP]"]),
    ("\u0394 the", ["[CLS]", "[UNK]", "▁the", "[SEP]"]),
    ("", ["[CLS]", "[SEP]"]),
  ],
)
def test_word_piece(text: str, pieces: list[str]) -> None:
  tokenizer = Tokenizer.from_metadata(word_piece())
  assert [tokenizer.text_of(i) for i in tokenizer.encode(text)] == pieces


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
  tokenizer, text = Tokenizer.from_metadata(byte_level("smollm")), "ab" * (1 << 18)
  ticks, done = [0], threading.Event()

  def count() -> None:
    while not done.wait(0.001):
      ticks[0] += 1

  thread = threading.Thread(target=count)
  thread.start()
  try:
    before = ticks[0]
    tokens = tokenizer.encode(text)
    during = ticks[0] - before
  finally:
    done.set()
    thread.join()
  assert during > 2 and tokenizer.decode(tokens) == text


def test_word_piece_gives_the_text_back() -> None:
  tokenizer = Tokenizer.from_metadata(word_piece())
  assert tokenizer.decode(tokenizer.encode("hello jumping foxes")) == "hello jumping foxes"


def test_ends_of_answers() -> None:
  metadata = byte_level("smollm")
  assert Tokenizer.from_metadata(metadata).ends == {0, 2}  # <|endoftext|>, <|im_end|>
  assert Tokenizer.from_metadata(metadata | {"tokenizer.ggml.eot_token_id": 1}).ends == {0, 1, 2}


@pytest.mark.parametrize(
  ("change", "says"),
  [
    ({"tokenizer.ggml.pre": "viking"}, "tokenizer.ggml.pre is 'viking'"),
    ({"tokenizer.ggml.pre": 3}, "tokenizer.ggml.pre is 3"),
    ({"tokenizer.ggml.model": "rwkv"}, "tokenizer.ggml.model is 'rwkv'"),
    ({"tokenizer.ggml.tokens": []}, "no vocabulary"),
    ({"tokenizer.ggml.tokens": [1, 2]}, "no vocabulary"),
    ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges"),
    ({"tokenizer.ggml.merges": ["zz yy"]}, "no tokenizer can be made"),
    ({"tokenizer.ggml.token_type": [1]}, "token_type has 1 entries"),
    ({"tokenizer.ggml.bos_token_id": 10**9}, "bos_token_id is 1000000000"),
    ({"tokenizer.ggml.eos_token_id": -1}, "eos_token_id is -1"),
    ({"tokenizer.ggml.eos_token_id": "2"}, "eos_token_id is '2'"),
    ({"tokenizer.ggml.model": "llama"}, "scores"),
  ],
)
def test_metadata_that_make_no_tokenizer_are_refused_by_name(change: dict[str, Any], says: str) -> None:
  with pytest.raises(TokenizerError, match=says):
    Tokenizer.from_metadata(byte_level("gpt-2") | change)


def test_a_word_piece_vocabulary_needs_a_token_for_unknown_words() -> None:
  metadata = {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["▁a"]}
  with pytest.raises(TokenizerError, match="unknown_token_id"):
    Tokenizer.from_metadata(metadata)


def test_a_number_that_is_no_token() -> None:
  tokenizer = Tokenizer.from_metadata(byte_level("gpt-2"))
  with pytest.raises(IndexError, match="token -1"):
    tokenizer.piece(-1)
  with pytest.raises(IndexError, match="expected 0 to"):
    tokenizer.decode([len(tokenizer)])


LLAMA: dict[str, Any] = json.loads(Path(__file__).with_name("llama_tokens.json").read_text("utf-8"))


@pytest.mark.parametrize("name", [*PRE_TOKENIZERS, "sentencepiece"])
def test_tokens_are_those_of_llama_cpp(name: str) -> None:
  metadata = LLAMA["sentencepiece"] if name == "sentencepiece" else LLAMA["byte-level"] | {"tokenizer.ggml.pre": name}
  tokenizer = Tokenizer.from_metadata(metadata)
  recorded = next(tokens for names, tokens in LLAMA["tokens"].items() if name in names.split())
  for text, tokens in zip(LLAMA["strings"], recorded, strict=True):
    assert tokenizer.encode(text, parse_special=True) == tokens, text
