"""Answers from a model, several at once: each step of the model advances all that run.

An `Engine` holds a model's slots. What a slot has read stays, so that a request whose tokens begin as those of an
earlier one reads only the rest (continuous batching as in Orca, OSDI 2022; reuse of prefixes as in llama.cpp and
vLLM).

  engine = Engine(model, tokenizer)
  for piece in engine.answer(Request(tokens, max_tokens=100)):
    print(piece.text, end="")
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from tiny_llm.model import TOGETHER, Chunk, Model
from tiny_llm.sampling import Array, Sampler, SamplingOptions, TokenLogprob, logprob_of
from tiny_llm.text.tokenizer import StreamDecoder, Tokenizer
from tiny_uop.records import dataclass

__all__ = ["ContextExceeded", "Engine", "Generation", "Grammar", "Piece", "Request"]

PREFILL = 128
"""Tokens of prompts that are read in one step at most: others wait for their next token meanwhile."""
WORTH_COPYING = 16
"""Tokens that another slot must have in common with a prompt beyond what a free one has, so that they are copied."""
LONG = 512
"""Positions up to which what reading a prompt needs in between stays for the next: giving it back costs 8 ms, as graphs
are made ready anew. Scores over more positions take more memory than that is worth."""


class ContextExceeded(ValueError):
  """A prompt that leaves no room for an answer."""


class Grammar(Protocol):
  """What an answer may be made of, token by token; `tiny_llm.schema` makes them of JSON schemas."""

  def allowed(self) -> Array | None:
    """Booleans, (vocabulary,): the tokens that may come next; None for all."""

  def accept(self, token: int) -> bool:
    """The answer goes on with `token`. Whether it may end there and cannot go on."""


@dataclass(frozen=True)
class Request:
  """A prompt and how it is to be answered.

  `max_tokens`: None for as many as the context holds. The answer ends before any of the texts `stop`, and after a token
  that ends answers unless `ignore_ends`. `logprobs`: how many of the likeliest tokens are told beside each, None for no
  probabilities at all. `special`: control tokens, or which of them, are a part of the text. `embed`: no answer is
  wanted, but `Generation.embedding`.
  """

  tokens: Sequence[int]
  sampling: SamplingOptions = SamplingOptions()
  max_tokens: int | None = None
  stop: tuple[str, ...] = ()
  ignore_ends: bool = False
  logprobs: int | None = None
  grammar: Grammar | None = None
  special: bool | frozenset[int] = False
  embed: bool = False


@dataclass(frozen=True)
class Piece:
  """A part of an answer: text, the tokens behind it, and if asked for how likely these were. `finish` is in the last
  piece: "stop" (the model ended, or a stop text came), "length", "cancelled" or "error"."""

  text: str
  tokens: tuple[int, ...] = ()
  logprobs: tuple[TokenLogprob, ...] = ()
  finish: str | None = None


class Generation:
  """A request that waits, runs or is done. `pieces` are those that nobody has taken yet.

  `embedding` is made of the model's states after its last norm: their mean, the first or the last, as the model's
  `pooling` says; float32 of length 1, where a request wants that.
  `cached` tokens of the prompt were in a slot already. `generated` are the answer's. Times are those of
  `time.perf_counter`: `submitted`, `started`, `first_token`, `ended`.
  """

  def __init__(self, number: int, request: Request, tokenizer: Tokenizer, room: int, pooling: str = "mean") -> None:
    self.number, self.request, self.pooling = number, request, pooling
    self.pieces: deque[Piece] = deque()
    self.generated: list[int] = []
    self.cached = self.drafted = self.accepted = 0
    self.finish: str | None = None
    self.embedding: Array | None = None
    self.error: Exception | None = None
    self.submitted, self.started, self.first_token, self.ended = time.perf_counter(), 0.0, 0.0, 0.0
    self.slot: _Slot | None = None
    self._tokenizer, self._room = tokenizer, room
    self._sampler = Sampler(request.sampling, request.tokens)
    self._text = _StopTexts(request.stop)
    self._decoder = StreamDecoder(tokenizer, special=request.special)
    self._tokens: list[int] = []
    self._logprobs: list[TokenLogprob] = []

  @property
  def prompt(self) -> Sequence[int]:
    """The tokens that are answered."""
    return self.request.tokens

  def take(self) -> list[Piece]:
    """The pieces that came since it was asked last."""
    taken = list(self.pieces)
    self.pieces.clear()
    return taken

  def advance(self, logits: Array) -> int | None:
    """Draws the next token, and puts what is said by it into `pieces`. None when the answer is complete."""
    request, grammar = self.request, self.request.grammar
    token = self._sampler.sample(logits, None if grammar is None else grammar.allowed())
    if not self.generated:
      self.first_token = time.perf_counter()
    self.generated.append(token)
    if request.logprobs is not None:
      self._logprobs.append(logprob_of(logits, token, request.logprobs))
    ends = token in self._tokenizer.ends and not request.ignore_ends
    if ends and request.special is not True:
      self._done("stop")
      return None
    self._sampler.accept(token)
    self._tokens.append(token)
    text = self._text.push(self._decoder.push(token))
    complete = grammar is not None and grammar.accept(token)
    if ends or complete or self._text.found:
      self._done("stop", text)
    elif len(self.generated) >= self._room:
      self._done("length", text)
    elif text:
      self._give(text)
    return token if self.finish is None else None

  def _done(self, finish: str, text: str = "") -> None:
    if not self._text.found:  # a character that was cut off is none, but the model may end in the middle of one
      text += (self._text.push(self._decoder.end()) if finish == "stop" else "") + self._text.end()
    self.finish, self.ended = finish, time.perf_counter()
    self._give(text, finish)

  def read(self, states: Array) -> None:
    """Takes the states of the next tokens of a prompt, (tokens, dim)."""
    if self.pooling == "mean":
      total = states.astype(np.float64).sum(0)
      self.embedding = total if self.embedding is None else self.embedding + total
    elif self.pooling == "last":
      self.embedding = states[-1].astype(np.float64)
    elif self.embedding is None:
      self.embedding = states[0].astype(np.float64)

  def embedded(self) -> None:
    """All of the prompt has been read."""
    assert self.embedding is not None
    length = float(np.linalg.norm(self.embedding))
    if not 0 < length < float("inf"):
      raise ValueError("the model computed no embedding: its states are zero, or no numbers")
    self.embedding = (self.embedding / length).astype(np.float32)
    self._done("stop")

  def stopped(self, finish: str, error: Exception | None = None) -> None:
    """Ends it for a reason that is not its own."""
    if self.finish is None:
      self.error = error
      self._done(finish)

  def _give(self, text: str, finish: str | None = None) -> None:
    self.pieces.append(Piece(text, tuple(self._tokens), tuple(self._logprobs), finish))
    self._tokens, self._logprobs = [], []


class Engine:
  """Answers requests with the slots of `model`, as many at once. It belongs to one thread.

  `speculate`: so many tokens at most are guessed ahead from what stands in prompt and answer already, and read together
  with the last one (prompt look-up decoding); the answer is the same. 0 for none.
  """

  def __init__(self, model: Model, tokenizer: Tokenizer, *, speculate: int = 0) -> None:
    self.model, self.tokenizer, self.speculate = model, tokenizer, speculate
    self.waiting: deque[Generation] = deque()
    self._slots = [_Slot(number) for number in range(model.slots)]
    self._numbers = itertools.count()
    self._prompts = False
    """Whether long prompts were read of which the model may still have intermediates."""

  @property
  def running(self) -> list[Generation]:
    """Those that have a slot."""
    return [slot.generation for slot in self._slots if slot.generation is not None]

  def check(self, request: Request) -> None:
    """Whether a request can be answered; any thread may ask.

    Raises ContextExceeded for a prompt that leaves no room in the context, ValueError for one without tokens or with
    others than the model has, and for an answer of an encoder.
    """
    count, vocabulary = len(request.tokens), self.model.config.vocabulary
    if not request.embed and not self.model.config.architecture.causal:
      raise ValueError(
        f"a model of {self.model.config.name!r} is an encoder: it makes embeddings of texts, and no text"
      )
    if not count:
      raise ValueError("the prompt has no tokens: expected one at least")
    if not all(0 <= token < vocabulary for token in request.tokens):
      raise ValueError(f"the prompt has a token that is none of the model's {vocabulary}")
    if wrong := [token for token in request.sampling.logit_bias if not 0 <= token < vocabulary]:
      raise ValueError(f"logit_bias has token {wrong[0]}: the model has {vocabulary}")
    if count > self.model.context - (not request.embed):
      room = self.model.context - (not request.embed)
      raise ContextExceeded(
        f"the prompt has {count} tokens: expected {room} at most, as the context has {self.model.context}"
        + ("" if request.embed else " with the answer")
      )
    if request.max_tokens is not None and request.max_tokens < 1:
      raise ValueError(f"max_tokens is {request.max_tokens}: expected 1 at least")

  def submit(self, request: Request) -> Generation:
    """Takes a request; `step` works on it as soon as a slot is free.

    Raises what `check` raises.
    """
    self.check(request)
    room = self.model.context - len(request.tokens)
    room = room if request.max_tokens is None else min(room, request.max_tokens)
    generation = Generation(next(self._numbers), request, self.tokenizer, room, self.model.config.pooling)
    self.waiting.append(generation)
    return generation

  def cancel(self, generation: Generation) -> None:
    """Ends a generation, whether it waits or runs. Its slot is free at once."""
    generation.stopped("cancelled")
    if generation in self.waiting:
      self.waiting.remove(generation)
    self._release(generation)

  def step(self) -> bool:
    """Reads one token, or one part of a prompt, of every request that has a slot. False if there was nothing to do.

    What goes wrong in the model ends those that were read, with `finish` "error" and `error`; the engine stays usable.
    """
    self._admit()
    busy = [slot for slot in self._slots if slot.generation is not None]
    # by what is wanted of them: the logits after the last token, or after all, or states
    chunks: dict[str, list[tuple[_Slot, list[int]]]] = {"last": [], "all": [], "states": []}
    left = PREFILL
    for slot in sorted(busy, key=lambda slot: slot.since):
      tokens = slot.next_tokens(self.speculate)
      if not slot.decodes and self.model.config.architecture.causal:
        tokens = tokens[:left]
        left -= len(tokens)
      if tokens:
        chunks[slot.wants(tokens)].append((slot, tokens))
    for wanted, group in chunks.items():
      if group:
        self._read(group, wanted)
    read = [(slot, tokens) for group in chunks.values() for slot, tokens in group]
    self._prompts |= any(len(tokens) > WORTH_COPYING and slot.length > LONG for slot, tokens in read)
    if self._prompts and all(slot.generation is None or slot.decodes for slot in self._slots):
      self.model.free_intermediates()
      self._prompts = False
    return bool(busy)

  def rehearsals(self) -> list[Callable[[], None]]:
    """What makes ready for tokens of several slots at once, in parts of less than a second. Each is to be called while
    nothing runs, in this order; without them, the first such requests wait."""
    if not self.model.config.architecture.causal:
      return []
    counts = [count for count in sorted(TOGETHER) if 1 < count <= self.model.slots]
    return [partial(self._rehearse, count) for count in counts for _ in range(2)]  # the second call captures

  def _rehearse(self, count: int) -> None:
    chunks = [Chunk(slot.number, slot.length, [0]) for slot in self._slots[:count]]
    if all(chunk.start < self.model.context for chunk in chunks):  # behind what they hold
      self.model.step(chunks)

  def answer(self, request: Request) -> Iterator[Piece]:
    """The pieces of one answer as they come. Closing the iterator ends it. Raises what went wrong in the model."""
    generation = self.submit(request)
    try:
      while generation.finish is None:
        self.step()
        yield from generation.take()
      yield from generation.take()
      if generation.error is not None:
        raise generation.error
    finally:
      self.cancel(generation)

  def _read(self, group: list[tuple[_Slot, list[int]]], wanted: str) -> None:
    chunks = [Chunk(slot.number, slot.length, tokens) for slot, tokens in group]
    try:
      if wanted == "states":
        results = self.model.states(chunks)
      else:
        results = self.model.step(chunks, all_logits=wanted == "all")
    except Exception as error:
      for slot, _ in group:
        slot.written = []
        assert slot.generation is not None
        slot.generation.stopped("error", error)
        self._release(slot.generation)
      return
    for (slot, tokens), result in zip(group, results, strict=True):
      generation = slot.generation
      assert generation is not None
      slot.written += tokens
      if wanted == "states":
        generation.read(np.asarray(result).reshape(len(tokens), -1))
      if slot.length < len(generation.prompt):
        continue
      try:
        if wanted == "states":
          generation.embedded()
          continue
        slot.follow(np.asarray(result).reshape(-1, self.model.config.vocabulary), tokens)
      except Exception as error:
        generation.stopped("error", error)
      finally:
        if generation.finish is not None:
          self._release(generation)

  def _release(self, generation: Generation) -> None:
    if generation.slot is not None:
      generation.slot.generation, generation.slot = None, None

  def _admit(self) -> None:
    """Gives free slots to those that wait, in their order: the one that has the longest beginning of the prompt, or the
    one that was used longest ago with a copy of it."""
    while self.waiting and (free := [slot for slot in self._slots if slot.generation is None]):
      prompt = self.waiting[0].prompt
      if self.waiting[0].request.embed:  # the states of all tokens are wanted, and not just keys and values
        oldest = min(free, key=lambda slot: slot.since)
        oldest.begin(self.waiting.popleft(), 0, next(self._numbers))
        continue
      if self._is_read_by_another(prompt):
        break
      common = {slot.number: _common(slot.written, prompt) for slot in self._slots}
      donor = max(self._slots, key=lambda slot: common[slot.number])
      chosen = max(free, key=lambda slot: (common[slot.number], -slot.since))
      oldest = min(free, key=lambda slot: slot.since)
      spoils = len(chosen.written) > 2 * common[chosen.number]  # most of what it holds is another conversation
      if spoils and oldest is not chosen:
        chosen = oldest
      length = common[chosen.number]
      if donor is not chosen and common[donor.number] >= length + WORTH_COPYING:
        length = common[donor.number]
        self.model.copy_prefix(donor.number, chosen.number, length)
        chosen.written = list(prompt[:length])
      chosen.begin(self.waiting.popleft(), length, next(self._numbers))

  def _is_read_by_another(self, prompt: Sequence[int]) -> bool:
    """Whether a slot is about to read a beginning of `prompt`: waiting for it is cheaper than reading it twice."""
    for slot in self._slots:
      if slot.generation is not None and slot.length < len(slot.generation.prompt):
        shared = _common(slot.generation.prompt, prompt)
        if shared >= slot.length + WORTH_COPYING and shared > 2 * max(_common(s.written, prompt) for s in self._slots):
          return True
    return False


class _Slot:
  """A slot of the model: the tokens `written` there, and who uses it."""

  def __init__(self, number: int) -> None:
    self.number, self.since = number, -1
    self.written: list[int] = []
    self.generation: Generation | None = None
    self._lookup: _Lookup | None = None

  @property
  def length(self) -> int:
    return len(self.written)

  @property
  def decodes(self) -> bool:
    """Whether the prompt has been read."""
    return self.generation is not None and self.length >= len(self.generation.prompt)

  def wants(self, tokens: list[int]) -> str:
    """What is wanted of reading `tokens`: the logits after the last, or after all, or the states of all."""
    assert self.generation is not None
    if self.generation.request.embed:
      return "states"
    return "all" if self.decodes and len(tokens) > 1 else "last"

  def begin(self, generation: Generation, length: int, since: int) -> None:
    """`generation` has the slot, in which the first `length` tokens of its prompt are written already."""
    self.generation, self.since, self._lookup = generation, since, None
    generation.slot, generation.cached, generation.started = self, length, time.perf_counter()
    del self.written[length:]

  def next_tokens(self, speculate: int) -> list[int]:
    """What is to be read: the rest of the prompt, or the last token drawn, with guesses of what follows it."""
    generation = self.generation
    assert generation is not None
    if not self.decodes:
      return list(generation.prompt[self.length :])
    tokens = [generation.generated[-1]]
    room = generation._room - len(generation.generated) - 1
    if speculate and room > 0:
      if self._lookup is None:
        self._lookup = _Lookup(generation.prompt)
      self._lookup.extend(generation.generated[len(self._lookup) - len(generation.prompt) :])
      tokens += self._lookup.guess(min(speculate, room))
      generation.drafted += len(tokens) - 1
    return tokens

  def follow(self, logits: Array, tokens: list[int]) -> None:
    """Draws a token after the last one read; after guesses, as long as each was what is drawn."""
    generation = self.generation
    assert generation is not None
    for at, row in enumerate(logits):
      token = generation.advance(row)
      if token is None or at + 1 == len(logits):
        break
      if token != tokens[at + 1]:
        break
      generation.accepted += 1
    del self.written[self.length - len(logits) + at + 1 :]


class _StopTexts:
  """Text that is given out as far as none of `stops` can begin in it."""

  def __init__(self, stops: Sequence[str]) -> None:
    self.stops = [stop for stop in stops if stop]
    self.found = False
    self._held = ""

  def push(self, text: str) -> str:
    """What may be shown now; after `found`, nothing is."""
    if self.found:
      return ""
    if not self.stops:
      return text
    held = self._held + text
    places = [place for stop in self.stops if (place := held.find(stop)) >= 0]
    if places:
      self.found, self._held = True, ""
      return held[: min(places)]
    longest = max(
      (n for stop in self.stops for n in range(1, min(len(stop), len(held) + 1)) if held.endswith(stop[:n])), default=0
    )
    self._held = held[len(held) - longest :]
    return held[: len(held) - longest]

  def end(self) -> str:
    """What was held back."""
    held, self._held = self._held, ""
    return held


def _common(written: Sequence[int], prompt: Sequence[int]) -> int:
  """Tokens at the beginning of both, but not all of the prompt: the logits after it are still to be computed."""
  most = min(len(written), len(prompt) - 1)
  for at in range(most):
    if written[at] != prompt[at]:
      return at
  return most


class _Lookup:
  """Where pairs up to groups of four tokens stood last, and so what may follow the last ones."""

  LENGTHS = (4, 3, 2)

  def __init__(self, tokens: Sequence[int]) -> None:
    self._tokens: list[int] = []
    self._ends: dict[tuple[int, ...], int] = {}
    self.extend(tokens)

  def __len__(self) -> int:
    return len(self._tokens)

  def extend(self, tokens: Sequence[int]) -> None:
    for token in tokens:
      end = len(self._tokens)
      for length in self.LENGTHS:
        if end >= length:
          self._ends[tuple(self._tokens[end - length :])] = end
      self._tokens.append(token)

  def guess(self, most: int) -> list[int]:
    """At most so many tokens, those that followed the longest group that ends the text, where it stood last."""
    for length in self.LENGTHS:
      if len(self) > length and (end := self._ends.get(tuple(self._tokens[-length:]))) is not None:
        guess: list[int] = []
        while len(guess) < most:  # past the end of the text, what was guessed goes on
          place = end + len(guess)
          guess.append(self._tokens[place] if place < len(self) else guess[place - len(self)])
        return guess
    return []
