"""A transformer that reads tokens into a cache of keys and values, and says how likely each next token is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tiny_llm.architectures import Config, Rope, config_of
from tiny_llm.attention import attend, has_workgroups
from tiny_llm.cache import Cache, new_cache
from tiny_llm.files.checkpoint import Checkpoint
from tiny_llm.quantised.packing import LANES
from tiny_llm.quantised.products import TILE, tiles
from tiny_llm.rope import rotations
from tiny_llm.sampling import Array
from tiny_llm.weights import Layer, Norm, Weights
from tiny_tensor import Device, Tensor, TinyJit, UOp, Variable, dtypes
from tiny_tensor.jit import Arena, Repeated
from tiny_uop.records import dataclass

__all__ = ["Chunk", "Model", "load_model"]

FEW = 16
"""Tokens of a chunk up to which as many are computed as there are, rounded up to a tile of 4."""

PIECES = (128, FEW, 1)
"""Tokens that are read at once: one graph each. What is left of a chunk is padded to the smallest that holds it."""

SHORT = 96
"""Tokens up to which pieces of a few take less time than one large piece, once they are captured."""

WHOLE = (16, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens of a text that is read as a whole, and padded to one of these or to the context: one graph each."""

TOGETHER = (8, 4, 2, 1)
"""Sequences of which one token each is read at once: one graph each."""


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of all positions, `(positions, half)`."""


@dataclass(frozen=True)
class Chunk:
  """Tokens of one sequence: `tokens[i]` stands at position `start + i` of the sequence that slot `slot` of the cache
  holds. What the cache held from `start` on is forgotten."""

  slot: int
  start: int
  tokens: Sequence[int]


class Model:
  """A model with its cache: `slots` sequences of `context` tokens each."""

  def __init__(self, config: Config, weights: Weights, context: int, slots: int, cache_type: str) -> None:
    self.config, self.context, self.slots = config, context, slots
    self._weights = weights
    # what pads a piece is written as well, and never read
    self._room = -(-(context + max(PIECES)) // LANES) * LANES
    kept = config.layers if config.architecture.causal else 0
    self._caches = [new_cache(cache_type, slots, config.kv_heads, self._room, config.head_dim) for _ in range(kept)]
    self._places = [(Variable(f"slot{n}", 0, slots - 1), Variable(f"start{n}", 0, context - 1)) for n in range(slots)]
    self._tokens = [Variable(f"token{n}", 0, config.vocabulary - 1) for n in range(slots)]
    self._windows = [window if window < context else 0 for window in config.windows]
    local = config.local_rope is not config.rope
    rotation = self._rotation(config.rope, weights.rope_factors)
    self._counts_tokens = not config.experts  # experts are chosen for what pads a chunk as well
    self._rotations = [rotation, self._rotation(config.local_rope, None) if local else rotation]
    if (table := weights.positions) is not None:
      if context > config.context:
        raise ValueError(f"the model has {config.context} positions, which are learned: a context of {context} is more")
      self._positions = table.pad(((0, self._room - config.context), None)).contiguous().realize()
    kinds, self._arena = ("last", "all", "states"), Arena()
    pieces = [(size, wanted) for size in PIECES for wanted in kinds if size > 1 or wanted == "states"]
    self._read = {piece: self._jit(self._graph(piece[1])) for piece in pieces}
    sizes = [*[s for s in WHOLE if s < context], context]
    # layers are alike: what Python makes of the first is run again for the others
    self._read_layer, self._encode_layer = Repeated(self._one_layer), Repeated(self._one_encoding_layer)
    self._read_whole = {} if config.architecture.causal else {size: self._jit(self._encode) for size in sizes}
    self._copy: TinyJit[..., None] = TinyJit(self._copy_layers, arena=self._arena)
    self._copy_layer = Repeated(Cache.copy_prefix)
    self._read_together = {size: self._jit(self._read_single) for size in TOGETHER}

  def step(self, chunks: Sequence[Chunk], *, all_logits: bool = False) -> list[memoryview[float]]:
    """Reads chunks of different slots, and gives for each the logits after its last token, as a memoryview of float32
    of shape (vocabulary,); with `all_logits` after each of its tokens, (tokens, vocabulary).

    Raises ValueError for a chunk that has no tokens or does not fit the cache, a token that is not in the vocabulary,
    two chunks of one slot, and an encoder, which has states only.
    """
    if not self.config.architecture.causal:
      raise ValueError(f"{self.config.name!r} is an encoder: it makes embeddings of texts, and no text")
    self._check(chunks)
    results: dict[int, memoryview[float]] = {}
    single = [chunk for chunk in chunks if len(chunk.tokens) == 1]
    for size in TOGETHER:
      while len(single) >= size:
        results |= self._single_tokens(single[:size], all_logits)
        single = single[size:]
    wanted = "all" if all_logits else "last"
    return [results[c.slot] if c.slot in results else self._chunk(c, wanted) for c in chunks]

  def states(self, chunks: Sequence[Chunk]) -> list[memoryview[float]]:
    """Reads chunks as `step` does, and gives for each the states of its tokens after the last norm, of which embeddings
    are made, as a memoryview of float32 of shape (tokens, dim). An encoder takes whole texts: chunks that start at 0.
    """
    self._check(chunks)
    if not self.config.architecture.causal:
      if any(chunk.start for chunk in chunks):
        raise ValueError("an encoder reads whole texts: expected chunks that start at 0")
      return [self._whole(chunk.tokens) for chunk in chunks]
    return [self._chunk(chunk, "states") for chunk in chunks]

  def copy_prefix(self, from_slot: int, to_slot: int, length: int) -> None:
    """The first `length` positions of a slot are what those of another are. Raises ValueError for a slot that is not
    there, or more than `context` positions."""
    if not (0 <= from_slot < self.slots and 0 <= to_slot < self.slots and 0 <= length <= self.context):
      raise ValueError(
        f"positions 0 to {length} of slot {from_slot} to {to_slot}: there are {self.slots} slots of {self.context}"
      )
    if from_slot == to_slot or not length:
      return
    slots = (Variable(name, 0, self.slots - 1) for name in ("from_slot", "to_slot"))
    places = [variable.bind(number) for variable, number in zip(slots, (from_slot, to_slot))]
    self._copy(*places, Variable("length", 1, self.context).bind(length))

  def free_intermediates(self) -> None:
    """Gives back what reading a prompt needs in between (scores over the whole context), until the next prompt."""
    with self._arena.lock:
      self._arena.release()
    Device.trim()

  def _check(self, chunks: Sequence[Chunk]) -> None:
    if len({chunk.slot for chunk in chunks}) != len(chunks):
      raise ValueError(f"two chunks are of one slot: {[chunk.slot for chunk in chunks]}")
    for chunk in chunks:
      if not 0 <= chunk.slot < self.slots:
        raise ValueError(f"slot {chunk.slot}: the model has slots 0 to {self.slots - 1}")
      if not chunk.tokens or chunk.start < 0 or chunk.start + len(chunk.tokens) > self.context:
        raise ValueError(
          f"{len(chunk.tokens)} tokens from position {chunk.start} on: the cache has {self.context} positions"
        )
      if min(chunk.tokens) < 0 or max(chunk.tokens) >= self.config.vocabulary:
        raise ValueError(f"a token is not in the vocabulary of {self.config.vocabulary}: {list(chunk.tokens)!r:.80}")

  def _chunk(self, chunk: Chunk, wanted: str) -> memoryview[float]:
    """The logits after a chunk, or after each of its tokens; or their states."""
    parts: list[memoryview[int]] = []
    at, (slot, start) = 0, self._places[0]
    while at < len(chunk.tokens):
      left = len(chunk.tokens) - at
      size = min((s for s in PIECES if s >= left), default=PIECES[0])
      if FEW < left <= SHORT and self._read[FEW, wanted].captured is not None:
        size = FEW
      count = min(size, left)
      if size == 1 and wanted != "states":
        parts.append(self._logits_of([Chunk(chunk.slot, chunk.start + at, chunk.tokens[at:])]))
        at += 1
        continue
      tokens = Tensor([*chunk.tokens[at : at + count], *[0] * (size - count)], dtype=dtypes.int32)
      last = Variable("last", 0, size - 1).bind(count - 1)
      places = slot.bind(chunk.slot), start.bind(chunk.start + at)
      out = self._run(self._read[size, wanted], tokens.realize(), last, *places)
      parts.append(out.data()[: 1 if wanted == "last" else count].cast("B"))
      at += count
    if wanted == "last":
      return parts[-1].cast("f")
    width = self.config.vocabulary if wanted == "all" else self.config.dim
    return memoryview(b"".join(parts)).cast("B").cast("f", (at, width))

  def _whole(self, tokens: Sequence[int]) -> memoryview[float]:
    """The states of a text of an encoder."""
    size = min(s for s in self._read_whole if s >= len(tokens))
    padded = Tensor([*tokens, *[0] * (size - len(tokens))], dtype=dtypes.int32).realize()
    states = self._read_whole[size](padded, Variable("last", 0, size - 1).bind(len(tokens) - 1))
    return states.data()[: len(tokens)].cast("B").cast("f", (len(tokens), self.config.dim))

  def _single_tokens(self, chunks: Sequence[Chunk], every: bool) -> dict[int, memoryview[float]]:
    """The logits after chunks of one token each, by slot. The weights are read once for all of them."""
    rows = self._logits_of(chunks)
    size, shape = self.config.vocabulary * 4, ([1, self.config.vocabulary] if every else [self.config.vocabulary])
    return {c.slot: rows[n * size : (n + 1) * size].cast("f", shape) for n, c in enumerate(chunks)}

  def _logits_of(self, chunks: Sequence[Chunk]) -> memoryview[int]:
    """The logits after the first token of each chunk, one after the other, as bytes."""
    given = [
      variable.bind(value)
      for token, places, chunk in zip(self._tokens, self._places, chunks)
      for variable, value in zip((token, *places), (chunk.tokens[0], chunk.slot, chunk.start))
    ]
    return self._run(self._read_together[len(chunks)], *given).data().cast("B")

  def _jit(self, read: Callable[..., Tensor]) -> TinyJit[..., Tensor]:
    """A function that is captured. Of all that read, one is called at a time: they share what they need in between."""
    return TinyJit(read, arena=self._arena)

  def _run(self, read: TinyJit[..., Tensor], *arguments: Tensor | UOp) -> Tensor:
    """Calls a function. Runs before it is captured need more memory than replays."""
    new = read.captured is None
    out = read(*arguments)
    if new:
      Device.trim()
    return out

  def _copy_layers(self, from_slot: UOp, to_slot: UOp, length: UOp) -> None:
    for cache in self._caches:
      self._copy_layer(cache, from_slot, to_slot, length)

  def _graph(self, wanted: str) -> Callable[..., Tensor]:
    def read_tokens(tokens: Tensor, last: UOp, *places: UOp) -> Tensor:
      """`places`: slot and start of each sequence, whose tokens follow one another."""
      w, few = self._weights, last if self._counts_tokens and int(tokens.shape[0]) == FEW else None
      x = w.embedding(tokens, self._positions_at(int(tokens.shape[0]), places)).contiguous()
      for number, layer in enumerate(w.layers):
        rotation = self._rotations[self.config.windows[number] > 0]
        x = self._read_layer(layer, x, self._caches[number], rotation, self._windows[number], places, few)
      if wanted == "states":
        return w.normalised(x, w.output_norm).exact.realize()
      if wanted != "all":
        x, few = x[last : last + 1].contiguous(), None
      elif few is not None:  # which is bound so
        x = (Tensor.arange(FEW).reshape(-1, 1) <= last).where(x, 0.0).contiguous()
      # a logit that is off by 0.1 makes its token a tenth likelier: two terms, which read the weights once
      (logits,) = w.output(w.normalised(x, w.output_norm, variable_of(few), terms=2))
      logits = logits if self.config.logit_scale == 1 else logits * self.config.logit_scale
      return capped(logits, self.config.logit_cap).realize()

    return read_tokens

  def _read_single(self, *given: UOp) -> Tensor:
    """The logits after one token each of sequences: its number, its slot and its position, which are variables, as to
    make a tensor of numbers takes longer."""
    tokens = Tensor.stack(*[Tensor(token, dtype=dtypes.int32) for token in given[::3]]).contiguous()
    places = [place for n, place in enumerate(given) if n % 3]
    return self._graph("all")(tokens, Variable("last", 0, 0).bind(0), *places)

  def _encode(self, tokens: Tensor, last: UOp) -> Tensor:
    """The states of a text, up to its `last` token."""
    w = self._weights
    x = w.embedding(tokens, self._positions[: int(tokens.shape[0])]).contiguous()
    for layer in w.layers:
      x = self._encode_layer(layer, x, last)
    return x

  def _one_layer(
    self, layer: Layer, x: Tensor, cache: Cache, rotation: Rotation | None, window: int, places: Sequence[UOp],
    last: UOp | None,
  ) -> Tensor:  # fmt: skip
    """A layer over tokens of sequences that follow one another; of one sequence, up to the `last` token."""
    attend = partial(self._attend_sequences, layer, cache, rotation, window, places, last)
    return self._layer(layer, x, attend, variable_of(last)).realize()

  def _one_encoding_layer(self, layer: Layer, x: Tensor, last: UOp) -> Tensor:
    """A layer over a text."""
    return self._layer(layer, x, partial(self._attend_all, last)).realize()

  def _rotation(self, rope: Rope | None, factors: Array | None) -> Rotation | None:
    """Cosines and sines at all positions, `(room, size / 2)`."""
    if rope is None:
      return None
    cos, sin = rotations(rope, self._room, factors)
    return Tensor(cos).realize(), Tensor(sin).realize()

  def _positions_at(self, tokens: int, places: Sequence[UOp]) -> Tensor | None:
    """The learned vectors of positions of tokens, `(tokens, dim)`."""
    if self._weights.positions is None:
      return None
    starts = places[1::2]
    parts = [self._positions[start : start + tokens // len(starts)] for start in starts]
    return parts[0] if len(parts) == 1 else Tensor.cat(*parts)

  def _layer(
    self, layer: Layer, x: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor], last: UOp | None = None
  ) -> Tensor:
    """Attention and feed-forward, (tokens, dim), of the tokens up to a variable `last`. `attend` makes of queries, keys
    and values what is looked up."""
    w, ready = self._weights, partial(self._weights.ready, last=last)
    y = w.normalised(x, layer.before[0], last)
    q, k, v = [part for linear in layer.qkv for part in linear(y)]
    if layer.qkv_bias is not None:
      q, k, v = (t + b for t, b in zip((q, k, v), layer.qkv_bias.split([int(t.shape[1]) for t in (q, k, v)])))
    if self.config.architecture.whole_norms:
      q, k = (t if norm is None else norm(t) for t, norm in ((q, layer.query_norm), (k, layer.key_norm)))
    y = ready(attend(q, k, v))
    x = self._added(x, lambda x: layer.attention_output(y, x)[0], layer.after[0])
    fed = w.normalised(x, layer.before[1], last)
    return self._added(x, lambda x: layer.feed(fed, ready, x), layer.after[1])

  def _added(self, x: Tensor, part: Callable[[Tensor | None], Tensor], after: Norm | None) -> Tensor:
    """`x` plus what a part of a layer gives. The part adds what it is asked to."""
    scale = self.config.residual_scale
    if after is not None and self.config.architecture.after == "sum":
      return after(part(x)).contiguous()
    if scale == 1 and after is None:
      return part(x).contiguous()
    branch = part(None)
    return (x + (branch if after is None else after(branch)) * scale).contiguous()

  def _attend_all(self, last: UOp, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of tokens that all see each other, up to the `last`, (tokens, heads * head_dim)."""
    tokens = int(q.shape[0])
    q, k, v = (t.reshape(tokens, -1, self.config.head_dim).transpose(0, 1) for t in (q, k, v))
    scores = (q @ k.transpose(1, 2)) * self.config.attention_scale
    mixed: Tensor = (Tensor.arange(tokens) <= last).where(scores, float("-inf")).softmax(-1) @ v
    return mixed.transpose(0, 1).reshape(tokens, -1)

  def _attend_sequences(
    self, layer: Layer, cache: Cache, rotation: Rotation | None, window: int, places: Sequence[UOp], last: UOp | None,
    q: Tensor, k: Tensor, v: Tensor,
  ) -> Tensor:  # fmt: skip
    """Attention of tokens of sequences that follow one another, (tokens, heads * head_dim)."""
    shared = has_workgroups(q)  # whose threads share a head, in kernels that the scheduler makes
    sequences = [*zip(places[::2], places[1::2])]
    each, queries = int(q.shape[0]) // len(sequences), []  # tokens of a sequence, and what they ask for
    written = each if last is None else tiles(last) * TILE
    for n, (slot, start) in enumerate(sequences):
      part = (t[n * each : (n + 1) * each].reshape(each, -1, self.config.head_dim).transpose(0, 1) for t in (q, k, v))
      heads_q, heads_k, heads_v = part
      if not self.config.architecture.whole_norms:
        heads_q = heads_q if layer.query_norm is None else layer.query_norm(heads_q)
        heads_k = heads_k if layer.key_norm is None else layer.key_norm(heads_k)
      if rotation is not None:
        heads_q, heads_k = (self._rotate(t, rotation, start) for t in (heads_q, heads_k))
      cache.write(slot, start, heads_k, heads_v, written)
      queries.append(heads_q)
    if shared or (each > 1 and last is None):
      found = [self._attend(asked, cache, window, *place, written) for asked, place in zip(queries, sequences)]
      return found[0] if len(found) == 1 else Tensor.cat(*found)
    asked = (queries[0] if len(queries) == 1 else Tensor.cat(*queries, dim=1)) * self.config.attention_scale
    return attend(asked, cache, sequences, window, self.config.attention_cap, variable_of(last))

  def _attend(self, q: Tensor, cache: Cache, window: int, slot: UOp, start: UOp, written: UOp | int) -> Tensor:
    """Attention of many tokens of a sequence, (tokens, heads * head_dim), of queries (heads, tokens, head_dim), over
    what is before them and those of them that are `written`."""
    config, tokens = self.config, int(q.shape[1])
    end = start + written
    shared = config.heads // config.kv_heads
    q = q.reshape(config.kv_heads, shared * tokens, config.head_dim)
    place, key = Tensor.arange(tokens).reshape(1, -1, 1) + start, Tensor.arange(end).reshape(1, 1, -1)
    seen = key <= place
    seen = seen & (key > place - window) if window else seen
    seen_keys, seen_values = cache.read(slot, end)
    scores = (q @ seen_keys.transpose(1, 2) * config.attention_scale).reshape(config.kv_heads, shared, tokens, end)
    scores = seen.where(capped(scores, config.attention_cap), float("-inf"))
    mixed: Tensor = scores.softmax(-1).reshape(config.kv_heads, shared * tokens, end) @ seen_values
    return mixed.reshape(config.heads, tokens, config.head_dim).transpose(0, 1).reshape(tokens, -1)

  def _rotate(self, x: Tensor, rotation: Rotation, start: UOp) -> Tensor:
    """Rotary embedding of (heads, tokens, head_dim), whose first token stands at `start`."""
    tokens = x.shape[1]
    cos, sin = (table[start : start + tokens] for table in rotation)
    size = 2 * int(cos.shape[1])
    part, rest = x[..., :size], x[..., size:]
    if self.config.architecture.rope == "halves":
      a, b = part[..., : size // 2], part[..., size // 2 :]
      turned = (a * cos - b * sin).cat(a * sin + b * cos, dim=-1)
    else:
      pairs = part.reshape(*part.shape[:-1], -1, 2)
      a, b = pairs[..., 0], pairs[..., 1]
      turned = Tensor.stack(a * cos - b * sin, a * sin + b * cos, dim=-1).flatten(-2)
    return turned.cat(rest, dim=-1) if rest.shape[-1] else turned


def variable_of(bound: UOp | None) -> UOp | None:
  """The variable that is bound."""
  return None if bound is None else bound.src[0]


def capped(x: Tensor, cap: float) -> Tensor:
  """`cap * tanh(x / cap)`; x where the cap is 0."""
  return (x * (1 / cap)).tanh() * cap if cap else x


def load_model(
  checkpoint: Checkpoint, *, context: int, slots: int = 1, cache_type: str = "f16", exact: bool = False,
  progress: Callable[[float], None] | None = None,
) -> Model:  # fmt: skip
  """The model of a file, with room for `slots` sequences of `context` tokens. Keys and values are kept as
  `cache_type`: "f16", "f32" or "q8", 8 bits with scales. Quantised weights stay quantised. Activations are rounded to 8
  bits for their products with them, as ggml does; with `exact` they are not. `progress` is told which share has been
  loaded, 0 to 1.

  Raises ValueError for a file without a tensor that the architecture needs, or with one of another shape.
  """
  config = config_of(checkpoint)
  return Model(config, Weights(checkpoint, config, exact, context, progress), context, slots, cache_type)
