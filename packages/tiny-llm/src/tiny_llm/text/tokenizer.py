"""Text to tokens and back, as the metadata of a file say: byte-level BPE, SentencePiece's BPE, WordPiece.

The merging itself is the `tokenizers` library's. Here is what a GGUF file says beyond it: which expressions cut the
text, which tokens are control tokens that no user's text may become, what stands in front of the text, and how bytes
become characters.
"""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Regex
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Steps

from tiny_llm.text.patterns import PRE_TOKENIZERS
from tiny_llm.text.tokenizer_json import BYTE, CONTROL, HUGGINGFACE, NORMAL, SPACE, UNKNOWN, USER_DEFINED, without_added
from tiny_llm.text.vocabulary import Vocabulary

MARK = "\ufdd0"
"""A character that is none (Unicode 16, section 23.7), and so in no text that comes from outside."""
LONG = 1 << 14
"""Characters of a text whose encoding takes so long, 10 ms and more, that other threads shall not wait for it."""
# Tokens that end an answer, by their text, as files often name only one of theirs.
ENDS_OF_ANSWERS = frozenset(
  [
    *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
    *("<EOT>", "<_EOT>", "<|return|>", "<|call|>", "<｜end▁of▁sentence｜>"),
  ]
)


class TokenizerError(ValueError):
  """Metadata from which no tokenizer can be made."""


class Tokenizer:
  """The tokenizer of a model, made by `Tokenizer.from_metadata`.

  `bos`, `eos`, `sep` are ids or None, `ends` the ids after which an answer is complete. `add_bos` and `add_eos` say
  what `encode` adds. `len(tokenizer)` is the size of the vocabulary.
  """

  def __init__(self, metadata: Mapping[str, object]) -> None:
    keys = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    tokens, kind = keys.get("tokens"), keys.get("model")
    if not isinstance(tokens, Sequence) or not tokens or not all(isinstance(token, str) for token in tokens):
      raise TokenizerError("tokenizer.ggml.tokens: expected a list of strings, found none. The file has no vocabulary")
    if not isinstance(kind, str) or kind not in KINDS:
      raise TokenizerError(f"tokenizer.ggml.model is {kind!r}: expected one of {', '.join(KINDS)}")
    self.kind = kind
    self._tokens = Vocabulary(tokens)
    self._types = array("i", _numbers(keys, "token_type", len(tokens)) or [NORMAL] * len(tokens))
    defaults = KINDS[kind]
    self.bos, self.eos, self.sep, unknown = (
      self._id(keys, names, default) for names, default in zip(_NAMES_OF_IDS, defaults.ids, strict=True)
    )
    self.add_bos, self.add_eos = defaults.add_bos, False
    self.add_sep = kind == "bert"
    self._prefix = " " if kind == "llama" and keys.get("add_space_prefix", True) else ""
    self._inner: Backend | None = None  # for what stands within a text, if that is another
    self._own_spaces = isinstance(text := metadata.get(HUGGINGFACE), str) and "pre" not in keys and "scores" not in keys
    if self._own_spaces and isinstance(text, str):
      self._backend = self._given(text)
    else:
      self._backend = defaults.build(self, keys, unknown)
    if isinstance(add := keys.get("add_bos_token"), bool):
      self.add_bos = add
    if isinstance(add := keys.get("add_eos_token"), bool):
      self.add_eos = add
    # Longest first, as a shorter one may be a part of a longer one.
    marked = (i for i, kind in enumerate(self._types) if kind in (CONTROL, USER_DEFINED, UNKNOWN))
    special = {text: i for i in marked if (text := self._tokens[i])}
    self._special = sorted(special.items(), key=lambda item: -len(item[0].encode()))
    first = self._merged("a") if self._own_spaces else []
    written = bool(first) and self._bytes_of(first[0]).startswith(b" ")  # a space is put in front of a text
    self._strips = written or bool(self._prefix) or kind == "bert"
    ends = {self.eos, self._id(keys, ("eot_token_id",), None), self._id(keys, ("eom_token_id",), None)}
    named = {i for text, i in special.items() if text in ENDS_OF_ANSWERS}
    self.ends: frozenset[int] = frozenset({i for i in ends if i is not None} | named)

  @classmethod
  def from_metadata(cls, metadata: Mapping[str, object]) -> Tokenizer:
    """The tokenizer that the keys `tokenizer.ggml.*` of a GGUF file describe, or a `tokenizer.json`. Raises
    TokenizerError where they describe none, among it where the pre-tokenizer is not known: other words than the model's
    give other tokens, and so nonsense."""
    try:
      return cls(metadata)
    except TokenizerError:
      raise
    except Exception as error:  # the library's own are plain Exceptions
      of = "it" if HUGGINGFACE in metadata else "tokenizer.ggml.*"
      raise TokenizerError(f"no tokenizer can be made of {of}: {error}") from error

  def __len__(self) -> int:
    return len(self._tokens)

  def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
    """The tokens of `text`. `add_special`: with the tokens that the model wants around a text. `parse_special`:
    control tokens that are written out in the text, such as `<|im_end|>`, become tokens, but not what `as_text` gave;
    so for a rendered template, and never for a user's text."""
    ids = [self.bos] if add_special and self.add_bos and self.bos is not None else []
    begins = True  # whether a token, or nothing, stands in front of the fragment
    for at, fragment in enumerate(self._fragments(text.encode("utf-8", "replace").decode("utf-8"), parse_special)):
      if isinstance(fragment, int):
        ids.append(fragment)
      else:
        fragment = fragment.replace(MARK, "") if parse_special else fragment
        ids += self._merged(self._prefix * begins + fragment, not at)
      begins = isinstance(fragment, int)
    if add_special and self.add_sep and self.sep is not None:
      ids.append(self.sep)
    if add_special and self.add_eos and self.eos is not None:
      ids.append(self.eos)
    return ids

  def as_text(self, text: str) -> str:
    """`text` with marks in all that reads as a control token: `encode` takes that for text, wherever a template puts
    it, and leaves the marks out. So nobody ends his own message, or begins another's, by writing `<|im_end|>`."""
    text = text.replace(MARK, "\ufffd")
    for special, token in self._special:
      if len(special) > 1 and self._types[token] != USER_DEFINED:
        text = text.replace(special, special[0] + MARK + special[1:])
    return text

  def decode(self, tokens: Iterable[int], *, special: bool = False) -> str:
    """The text of `tokens`, the inverse of `encode`; bytes that are no UTF-8 become U+FFFD. `special`: with control
    tokens."""
    text = b"".join(self.piece(token, special=special) for token in tokens).decode("utf-8", "replace")
    return text.removeprefix(" ") if self._strips else text

  def piece(self, token: int, *, special: bool = False) -> bytes:
    """The bytes that `token` stands for, which may be a part of a character. Those of control tokens are empty without
    `special`. Raises IndexError for a number that is no token."""
    if not 0 <= token < len(self._tokens):
      raise IndexError(f"token {token}: expected 0 to {len(self._tokens) - 1}")
    if self._types[token] in (CONTROL, UNKNOWN) or token in self.ends:
      return self._tokens[token].encode("utf-8", "replace") if special else b""
    return self._bytes_of(token)

  def _bytes_of(self, token: int) -> bytes:
    return _piece(self.kind, self._tokens[token], self._types[token])

  def text_of(self, token: int | None) -> str:
    """What the vocabulary calls `token`: '' for None. Templates want it as `bos_token` and `eos_token`."""
    return "" if token is None else self._tokens[token]

  def id_of(self, text: str) -> int | None:
    """The token whose name in the vocabulary is `text`, such as `<|im_end|>`."""
    return next((i for i, token in enumerate(self._tokens) if token == text), None)

  def _fragments(self, text: str, parse_special: bool) -> Iterator[str | int]:
    """`text` cut at the special tokens in it, longest tokens first, as llama.cpp cuts it."""
    fragments: list[str | int] = [text]
    for special, token in self._special:
      if special not in text or not (parse_special or self._types[token] == USER_DEFINED):
        continue
      cut: list[str | int] = []
      for fragment in fragments:
        if isinstance(fragment, int):
          cut.append(fragment)
          continue
        first, *others = fragment.split(special)
        cut.append(first)
        for other in others:
          cut += [token, other]
      fragments = cut
    return (fragment for fragment in fragments if fragment != "")

  def _merged(self, text: str, begins: bool = True) -> list[int]:
    if self.kind == "llama" and not self._own_spaces:
      text = text.replace(" ", SPACE)
    backend = self._backend if begins or self._inner is None else self._inner
    if len(text) > LONG:  # the library lets other threads run only while it encodes several texts
      made = backend.encode_batch([text], add_special_tokens=False)[0]
    else:
      made = backend.encode(text, add_special_tokens=False)
    ids: list[int] = made.ids
    return ids

  def _given(self, text: str) -> Backend:
    """The tokenizer that is written out in a `tokenizer.json`. What it puts around a text is asked of it."""
    backend = Backend.from_str(text)
    backend.no_truncation()
    backend.no_padding()
    inside = backend.encode("a", add_special_tokens=False).ids
    around = backend.encode("a").ids
    self._prefix, before = "", around[: next((n for n in range(len(around)) if around[n:][: len(inside)] == inside), 0)]
    after = around[len(before) + len(inside) :]
    self.bos = before[0] if before else self.bos
    self.add_bos, self.add_sep = bool(before), False
    self.add_eos, self.eos = bool(after), after[-1] if after and self.kind != "bert" else self.eos
    if self.kind == "bert" and after:
      self.add_eos, self.add_sep, self.sep = False, True, after[-1]
    first, within = without_added(text)
    self._inner = None if first == within else Backend.from_str(within)
    return Backend.from_str(first)

  def _id(self, keys: Mapping[str, object], names: Sequence[str], default: int | None) -> int | None:
    """The first of the ids `names` that the file gives."""
    for name in names:
      token = keys.get(name)
      if token is None:
        continue
      if not isinstance(token, int) or not 0 <= token < len(self._tokens):
        raise TokenizerError(f"tokenizer.ggml.{name} is {token!r}: expected one of {len(self._tokens)} tokens")
      return token
    return default if default is not None and default < len(self._tokens) else None

  def _vocabulary(self, keys: Mapping[str, object]) -> dict[str, int]:
    """Token to id, without what is no text: a control token is never merged from a user's characters."""
    tokens = keys["tokens"]
    assert isinstance(tokens, Sequence)
    return {text: i for i, (text, kind) in enumerate(zip(tokens, self._types)) if kind not in (CONTROL, UNKNOWN)}

  def _byte_level(self, keys: Mapping[str, object], unknown: int | None) -> Backend:
    name = keys.get("pre", "default")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
      known = ", ".join(PRE_TOKENIZERS)
      raise TokenizerError(f"tokenizer.ggml.pre is {name!r}, which says how words are cut: expected one of {known}")
    pre = PRE_TOKENIZERS[name]
    self.add_bos = pre.add_bos
    merges = keys.get("merges")
    if not isinstance(merges, Sequence):
      raise TokenizerError("tokenizer.ggml.merges: expected a list of strings, found none")
    # A part may begin with a space.
    pairs = [(merge[:cut], merge[cut + 1 :]) for merge in merges if (cut := merge.find(" ", 1)) > 0]
    backend = Backend(BPE(self._vocabulary(keys), pairs, ignore_merges=pre.whole_words))
    steps: list[Any] = [Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    backend.pre_tokenizer = Steps([*steps, ByteLevel(add_prefix_space=False, use_regex=False)])
    return backend

  def _sentence_piece(self, keys: Mapping[str, object], unknown: int | None) -> Backend:
    scores = _numbers(keys, "scores", len(self._tokens))
    if scores is None:
      raise TokenizerError("tokenizer.ggml.scores: expected a number for each token, found none")
    texts = {text: i for text, i in self._vocabulary(keys).items() if self._types[i] != BYTE}
    merges = [
      (-scores[i], len(text[:cut]), text[:cut], text[cut:])
      for text, i in texts.items()
      for cut in range(1, len(text))
      if text[:cut] in texts and text[cut:] in texts
    ]
    pairs = [(left, right) for *_, left, right in sorted(merges)]
    name = None if unknown is None else self._tokens[unknown]
    vocabulary = self._vocabulary(keys) | ({} if name is None or unknown is None else {name: unknown})
    return Backend(BPE(vocabulary, pairs, byte_fallback=True, unk_token=name))

  def _word_piece(self, keys: Mapping[str, object], unknown: int | None) -> Backend:
    if unknown is None:
      raise TokenizerError("tokenizer.ggml.unknown_token_id: a WordPiece vocabulary needs one, found none")
    # GGUF marks the beginnings of words, the library what continues one.
    vocabulary = {
      text if self._types[i] in (CONTROL, UNKNOWN) else text[1:] if text.startswith(SPACE) else f"##{text}": i
      for i, text in enumerate(self._tokens)
    }
    backend = Backend(WordPiece(vocabulary, unk_token=self._tokens[unknown]))
    backend.normalizer = BertNormalizer(lowercase=True)
    backend.pre_tokenizer = BertPreTokenizer()
    return backend


class _Kind:
  """What llama.cpp takes for a `tokenizer.ggml.model` where the file does not say: ids of bos, eos, sep, unknown."""

  def __init__(self, build: Callable[..., Backend], ids: tuple[int | None, ...], add_bos: bool) -> None:
    self.build, self.ids, self.add_bos = build, ids, add_bos


_NAMES_OF_IDS = (
  ("bos_token_id", "cls_token_id"),
  ("eos_token_id",),
  ("seperator_token_id", "separator_token_id"),  # the first is how llama.cpp spells it
  ("unknown_token_id",),
)
KINDS = {
  "gpt2": _Kind(Tokenizer._byte_level, (None, None, None, None), False),
  "llama": _Kind(Tokenizer._sentence_piece, (1, 2, None, 0), True),
  "bert": _Kind(Tokenizer._word_piece, (101, None, 102, 100), True),
}


class StreamDecoder:
  """Text of tokens that come one by one: a character is given when its last byte is there, and never before. `special`:
  with control tokens, or with which of them.

  >>> decoder = StreamDecoder(tokenizer)
  >>> [decoder.push(token) for token in tokens], decoder.end()
  """

  def __init__(self, tokenizer: Tokenizer, *, special: bool | Container[int] = False) -> None:
    self._tokenizer, self._special = tokenizer, special
    self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

  def push(self, token: int) -> str:
    """The characters that are complete with `token`; often one word, and '' where it ends within a character."""
    special = self._special if isinstance(self._special, bool) else token in self._special
    return self._bytes.decode(self._tokenizer.piece(token, special=special))

  def end(self) -> str:
    """U+FFFD if the last character was never completed."""
    return self._bytes.decode(b"", final=True)


def _numbers(keys: Mapping[str, object], name: str, count: int) -> list[Any] | None:
  values: Any = keys.get(name)
  if values is None:
    return None
  numbers: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
  if len(numbers) != count:
    raise TokenizerError(f"tokenizer.ggml.{name} has {len(numbers)} entries for {count} tokens")
  return numbers


def _byte_of_letter() -> dict[str, int]:
  """GPT-2's letters for bytes: printable ones stand for themselves, the others follow from U+0100."""
  printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
  others = [byte for byte in range(256) if byte not in printable]
  return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_of_letter()


def _piece(kind: str, text: str, type_of: int) -> bytes:
  if type_of == BYTE and len(text) == 6 and text.startswith("<0x"):
    return bytes([int(text[3:5], 16)])
  if kind == "gpt2" and type_of != USER_DEFINED:
    try:
      return bytes([_BYTES[letter] for letter in text])
    except KeyError:
      return text.encode("utf-8", "replace")
  return text.replace(SPACE, " ").encode("utf-8", "replace") if kind != "gpt2" else text.encode("utf-8", "replace")
