"""Answers that are JSON of a schema, by llguidance (extra `json`): it says which tokens may come next.

The Earley parser over a lexer of derivatives that it is made of is described at github.com/guidance-ai/llguidance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from tiny_llm.sampling import Array
from tiny_llm.text.tokenizer import Tokenizer

__all__ = ["SchemaError", "Schemas"]


WHITESPACE = r"( |\n[ \t]{0,24})?"
"""Between the parts of JSON. Without a bound, small models write spaces for ever."""


class SchemaError(ValueError):
  """A JSON schema that is none, or that says what cannot be promised."""


class Schemas:
  """Makes grammars for the tokens of one model, of which `vocabulary` is the number of logits."""

  def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
    self._vocabulary, self._text, ends = vocabulary, tokenizer, sorted(tokenizer.ends)
    if not ends:
      raise SchemaError("the model has no token that ends an answer")
    self._tokenizer = LLTokenizer(TokenizerWrapper(_Tokens(tokenizer, vocabulary)), n_vocab=vocabulary, eos_token=ends)

  def grammar(self, schema: Mapping[str, Any]) -> SchemaGrammar:
    """The grammar of the JSON texts that `schema` allows. Raises SchemaError, saying what of the schema is not
    supported; nothing is left out silently."""
    try:
      text = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_pattern": WHITESPACE})
    except (ValueError, RecursionError) as error:
      raise SchemaError(f"the JSON schema cannot be used: {error}") from None
    return self._made(text)

  def _made(self, text: str) -> SchemaGrammar:
    matcher = LLMatcher(self._tokenizer, text, log_level=0, limits=LLParserLimits(verbose_errors=False))
    if not matcher.is_error():
      matcher.compute_bitmask()  # where no answer can begin, it is found only now
    if matcher.is_error():
      raise SchemaError(f"the JSON schema cannot be used: {_in_a_line(matcher.get_error())}")
    if warnings := matcher.get_grammar_warnings():
      raise SchemaError(f"the JSON schema cannot be used: {warnings[0]:.500}")
    return SchemaGrammar(matcher, self._vocabulary)

  def calls(self, schema: Mapping[str, Any], begin: str, end: str, *, several: bool, line: bool = False) -> CallGrammar:
    """The grammar of an answer that may have JSON of `schema` between `begin` and `end`, on a `line` of its own or not;
    without an `end` nothing follows. Raises SchemaError."""
    grammar, tokenizer = self.grammar(schema), self._text
    return CallGrammar(grammar, tokenizer, begin, end, self._vocabulary, several, line)

  def named_calls(
    self, schemas: Mapping[str, Mapping[str, Any]], begin: str, mark: str, *, several: bool
  ) -> CallGrammar:
    """The grammar of an answer that may have calls after `begin`: the name of one of the `schemas`, `mark`, and JSON of
    that schema. With `several` another `begin` and call may follow, and nothing else. Raises SchemaError."""
    begins, marked = self._terminal(begin), self._terminal(mark)
    calls = []
    for name, schema in schemas.items():
      self.grammar(schema)  # says what of it is wrong, by itself
      guided = json.dumps({"type": "object", **schema, "x-guidance": {"whitespace_pattern": WHITESPACE}})
      calls.append(f"{json.dumps(name)} {marked} %json {guided}")
    more = f" ({begins} call)*" if several else ""
    grammar = self._made(LLMatcher.grammar_from_lark(f"start: call{more}\ncall: " + "\n  | ".join(calls)))
    return CallGrammar(grammar, self._text, begin, "", self._vocabulary, several, False)

  def _terminal(self, text: str) -> str:
    """A token by its number, in llguidance's form of Lark's grammars, or the text where there is no such token."""
    token = self._text.id_of(text)
    return json.dumps(text) if token is None else f"<[{token}]>"


def _in_a_line(error: str) -> str:
  """What llguidance says of an error, which may be many lines."""
  return f"{' '.join(error.split()):.500}"


class SchemaGrammar:
  """What an answer may be made of; a `Grammar` of `tiny_llm.generate`, for one answer."""

  def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
    self._matcher, self._vocabulary = matcher, vocabulary

  def allowed(self) -> Array:
    """Booleans, (vocabulary,): the tokens that may come next."""
    bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
    if self._matcher.is_error():
      raise SchemaError(f"the grammar of the JSON schema failed: {_in_a_line(self._matcher.get_error())}")
    return np.unpackbits(bits, bitorder="little")[: self._vocabulary].astype(bool)

  def accept(self, token: int) -> bool:
    """The answer goes on with `token`. Whether it is complete."""
    if not self._matcher.consume_token(token):
      why = _in_a_line(self._matcher.get_error())
      raise SchemaError(f"token {token} does not fit the JSON schema{why and ': '}{why}")
    return bool(self._matcher.is_stopped())

  def copy(self) -> SchemaGrammar:
    """The same grammar for another answer."""
    return SchemaGrammar(self._matcher.deep_copy(), self._vocabulary)


class CallGrammar:
  """An answer that is free until it writes `begin`; what follows is JSON of `schema`, then `end`, and it is free again,
  or complete unless `several`; without an `end` it is complete. So a model may call functions, and calls always parse.
  """

  def __init__(
    self, schema: SchemaGrammar, tokenizer: Tokenizer, begin: str, end: str, vocabulary: int, several: bool, line: bool
  ) -> None:
    self._schema, self._tokenizer, self._begin, self._end = schema, tokenizer, begin, end
    self._vocabulary, self._several, self._own_line = vocabulary, several, line
    self._text = b""  # the last of what was written freely
    self._call: SchemaGrammar | None = None
    self._forced: list[int] = []
    self._line = tokenizer.encode("\n", add_special=False) if line else []

  def allowed(self) -> Array | None:
    """Booleans, (vocabulary,): the tokens that may come next; None for all."""
    if self._forced:
      allowed = np.zeros(self._vocabulary, bool)
      allowed[self._forced[0]] = True
      return allowed
    return None if self._call is None else self._call.allowed()

  def accept(self, token: int) -> bool:
    """The answer goes on with `token`. Whether it is complete."""
    if self._forced:
      self._forced.pop(0)
      return not self._forced and self._call is None and not self._several
    if self._call is not None:
      if self._call.accept(token):
        self._call, self._text = None, b""
        line = "\n" if self._own_line else ""
        self._forced = self._tokenizer.encode(line + self._end, add_special=False, parse_special=True)
        return not self._end
      return False
    self._text = (self._text + self._tokenizer.piece(token, special=True))[-256:]
    _, tag, rest = self._text.partition(self._begin.encode())
    if tag and not rest.strip():
      self._call = self._schema.copy()
      # The line after the tag is the model's habit; it is written for it unless it has done so.
      self._forced = [] if rest else list(self._line)
    elif tag:  # the token went on behind the tag: what it began is no call unless it parses
      self._text = b""
    return False

  def copy(self) -> CallGrammar:
    """The same grammar for another answer."""
    return CallGrammar(
      self._schema, self._tokenizer, self._begin, self._end, self._vocabulary, self._several, self._own_line
    )


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
