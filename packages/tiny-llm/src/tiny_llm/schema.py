"""Answers that are JSON of a schema, by llguidance (extra `json`): it says which tokens may come next.

The Earley parser over a lexer of derivatives that it is made of is described at github.com/guidance-ai/llguidance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from tiny_llm.sampling import Array
from tiny_llm.tokenizer import Tokenizer

__all__ = ["SchemaError", "Schemas"]


WHITESPACE = r"( |\n[ \t]{0,24})?"
"""Between the parts of JSON. Without a bound, small models write spaces for ever."""


class SchemaError(ValueError):
  """A JSON schema that is none, or that says what cannot be promised."""


class Schemas:
  """Makes grammars for the tokens of one model, of which `vocabulary` is the number of logits."""

  def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
    self._vocabulary, self._ends = vocabulary, sorted(tokenizer.ends)
    if not self._ends:
      raise SchemaError("the model has no token that ends an answer")
    self._tokenizer = LLTokenizer(
      TokenizerWrapper(_Tokens(tokenizer, vocabulary)), n_vocab=vocabulary, eos_token=self._ends
    )

  def grammar(self, schema: Mapping[str, Any]) -> SchemaGrammar:
    """The grammar of the JSON texts that `schema` allows. Raises SchemaError, saying what of the schema is not
    supported; nothing is left out silently."""
    try:
      text = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_pattern": WHITESPACE})
    except (ValueError, RecursionError) as error:
      raise SchemaError(f"the JSON schema cannot be used: {error}") from None
    matcher = LLMatcher(self._tokenizer, text, log_level=0)
    if matcher.is_error():
      raise SchemaError(f"the JSON schema cannot be used: {matcher.get_error().splitlines()[0]:.500}")
    if warnings := matcher.get_grammar_warnings():
      raise SchemaError(f"the JSON schema cannot be used: {warnings[0]:.500}")
    return SchemaGrammar(matcher, self._vocabulary)


class SchemaGrammar:
  """What an answer may be made of; a `Grammar` of `tiny_llm.generate`, for one answer."""

  def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
    self._matcher, self._vocabulary = matcher, vocabulary

  def allowed(self) -> Array:
    """Booleans, (vocabulary,): the tokens that may come next."""
    bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
    if self._matcher.is_error():
      raise SchemaError(f"the grammar of the JSON schema failed: {self._matcher.get_error():.500}")
    return np.unpackbits(bits, bitorder="little")[: self._vocabulary].astype(bool)

  def accept(self, token: int) -> bool:
    """The answer goes on with `token`. Whether it is complete."""
    if not self._matcher.consume_token(token):
      raise SchemaError(f"token {token} does not fit the JSON schema")
    return bool(self._matcher.is_stopped())

  def copy(self) -> SchemaGrammar:
    """The same grammar for another answer."""
    return SchemaGrammar(self._matcher.deep_copy(), self._vocabulary)


class _Tokens:
  """A tokenizer as llguidance asks for one. A number without a token stands for bytes that no text has."""

  def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
    self._tokenizer = tokenizer
    self.eos_token_id, self.bos_token_id = min(tokenizer.ends), tokenizer.bos
    known = range(min(len(tokenizer), vocabulary))
    self.special_token_ids = [i for i in known if not tokenizer.piece(i)]
    self.tokens = [tokenizer.piece(i) or tokenizer.piece(i, special=True) for i in known]
    self.tokens += [b"\xff" + str(i).encode() for i in range(len(known), vocabulary)]
    self.special_token_ids += range(len(known), vocabulary)

  def __call__(self, text: str | bytes) -> list[int]:
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return self._tokenizer.encode(text, add_special=False)
