"""The weights of a model, in memory as they are computed with."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tiny_llm.architectures import Config
from tiny_llm.files.checkpoint import Checkpoint
from tiny_llm.quantised.packing import LANES, Packed, pack, packs, read_in
from tiny_llm.quantised.products import FEW, Rounded, exact_product, product, repeated, rounded
from tiny_llm.sampling import Array
from tiny_tensor import Device, Tensor, UOp, dtypes
from tiny_tensor.nn.state import GGMLBlocks, Slab
from tiny_uop.records import dataclass

__all__ = ["Layer", "Linear", "Weights"]

UNUSED = {"output.weight"}
"""Tensors that a file may have without a use."""
AFTER = {
  "": None,
  "branch": ("post_attention_norm", "post_ffw_norm"),
  "sum": ("attn_output_norm", "layer_output_norm"),
}
"""The names of norms after attention and feed-forward."""
FACTORS = ("rope_freqs", "rope_factors_short", "rope_factors_long")
"""Tensors of factors of frequencies: for any context, up to the one that a model was first trained for, and beyond."""


@dataclass(frozen=True)
class Activations:
  """What products take, `(tokens, columns)`: numbers, and the same in 8 bits, with sums of blocks of 32 and of halves
  of them. What no product takes is not computed; what several take is computed once."""

  exact: Tensor
  rounded: Callable[[int], Rounded] | None


@dataclass(frozen=True)
class Plain:
  """A matrix that is not packed: numbers of a plain format, or blocks, of which a product makes numbers."""

  blocks: Tensor
  shape: tuple[int, ...]
  decode: Callable[[Tensor], Tensor] | None

  def product(self, x: Tensor) -> Tensor:
    """`x @ w.T` in float32."""
    numbers = self.numbers()
    many = int(x.shape[0]) > FEW and self.decode is not None
    return x @ (numbers.contiguous() if many else numbers).T

  def numbers(self) -> Tensor:
    """The matrix in float32."""
    return self.blocks.float() if self.decode is None else self.decode(self.blocks.flatten(0, 1)).reshape(self.shape)

  def numbers_of(self, rows: Tensor) -> Tensor:
    """The rows of the matrix that an index `(n,)` names, in float32."""
    decode, chosen = self.decode, self.blocks[rows]
    return chosen.float() if decode is None else decode(chosen.contiguous().flatten(0, 1)).reshape(len(rows), -1)

  def chosen(self, which: Tensor, rows: int) -> Tensor:
    """Those matrices of so many rows that an index `(n,)` names, in float32, `(n, rows, columns)`."""
    decode, chosen = self.decode, self.blocks.reshape(-1, rows, *self.blocks.shape[1:])[which]
    return chosen.float() if decode is None else decode(chosen.flatten(0, 2)).reshape(len(which), rows, -1)


@dataclass(frozen=True)
class Linear:
  """A matrix, or several of one format, one below the other, that take the same activations."""

  matrix: Packed | Plain
  sizes: tuple[int, ...]
  bias: Tensor | None = None

  def __call__(self, x: Activations, added: Tensor | None = None) -> list[Tensor]:
    """`x @ w.T + bias` for each of the matrices, float32 `(tokens, rows)`; plus what is `added`."""
    w = self.matrix
    if self.bias is not None:
      added = self.bias if added is None else added + self.bias
    if isinstance(w, Packed) and x.rounded is not None:
      fits = added is None or added.ndim == 2
      whole = product(x.rounded(w.groups), w, added=added if fits else None)
      whole = whole if fits or added is None else whole + added
    else:
      whole = w.product(x.exact) if isinstance(w, Plain) else exact_product(x.exact, w)
      whole = whole if added is None else added + whole
    return [whole] if len(self.sizes) == 1 else list(whole.split(list(self.sizes), dim=1))

  def activated(self, gate: Linear | None, x: Activations, activation: str) -> Tensor:
    """`f(x @ gate.T) * (x @ w.T)` for an activation function f of `Architecture`; `f(x @ w.T)` without a gate."""
    w, other = self.matrix, None if gate is None else gate.matrix
    packed = isinstance(w, Packed) and isinstance(other, Packed) and w.plan is other.plan
    if packed and activation == "silu" and x.rounded is not None:
      assert isinstance(w, Packed) and isinstance(other, Packed)
      return product(x.rounded(w.groups), w, gate=other)
    inner = (self if gate is None else gate)(x)[0]
    active = inner.silu() if activation == "silu" else inner.gelu("tanh" if activation == "gelu" else "none")
    return active if gate is None else active * self(x)[0]


@dataclass(frozen=True)
class Matrices:
  """As many matrices of `rows` as there are experts, of which each token takes some."""

  matrix: Packed | Plain
  rows: int

  def __call__(self, x: Activations, chosen: Tensor) -> Tensor:
    """The products of activations with the matrices that are `chosen`, int32 `(tokens * n,)`: float32
    `(tokens * n, rows)`."""
    w = self.matrix
    if isinstance(w, Plain):
      numbers = w.chosen(chosen, self.rows)
      return (repeated(x.exact, chosen).unsqueeze(1) * numbers).sum(-1)
    return exact_product(x.exact, w, chosen) if x.rounded is None else product(x.rounded(w.groups), w, chosen=chosen)

  def gated(self, gate: Matrices, x: Activations, chosen: Tensor) -> Tensor:
    """`silu(x @ gate.T) * (x @ w.T)`."""
    w, other = self.matrix, gate.matrix
    if isinstance(w, Packed) and isinstance(other, Packed) and w.plan is other.plan and x.rounded is not None:
      return product(x.rounded(w.groups), w, gate=other, chosen=chosen)
    return gate(x, chosen).silu() * self(x, chosen)


@dataclass(frozen=True)
class FeedForward:
  """`down(f(gate(x)) * up(x))` with an activation function f of `Architecture`; `down(f(up(x)))` without a gate."""

  gate: Linear | None
  up: Linear
  down: Linear
  activation: str

  def __call__(self, x: Activations, ready: Callable[[Tensor], Activations], added: Tensor | None = None) -> Tensor:
    """What it gives, `(tokens, dim)`, plus what is `added`."""
    return self.down(ready(self.up.activated(self.gate, x, self.activation)), added)[0]


@dataclass(frozen=True)
class Experts:
  """A feed-forward of which each token takes `used` parts, those of which the router thinks most. Only these are
  computed. Their weights are the router's, `normalised` to a sum of 1 or not, times `scale`. All tokens take what is
  `shared` besides, times the sigmoid of a `shared_gate` where there is one."""

  router: Linear
  gate: Matrices
  up: Matrices
  down: Matrices
  used: int
  normalised: bool
  scale: float
  shared: FeedForward | None
  shared_gate: Linear | None

  def __call__(self, x: Activations, ready: Callable[[Tensor], Activations], added: Tensor | None = None) -> Tensor:
    """What the chosen experts and the shared one give, `(tokens, dim)`, plus what is `added`."""
    mixed = self._mixed(x, ready)
    mixed = mixed if added is None else added + mixed
    if self.shared is None:
      return mixed
    if self.shared_gate is None:
      return self.shared(x, ready, mixed)
    return mixed + self.shared(x, ready) * self.shared_gate(x)[0].sigmoid()

  def _mixed(self, x: Activations, ready: Callable[[Tensor], Activations]) -> Tensor:
    """What the chosen experts give."""
    likely = self.router(x)[0].softmax(-1)
    tokens, count = (int(n) for n in likely.shape)
    number, one, other = Tensor.arange(count), likely.unsqueeze(-1), likely.unsqueeze(-2)
    before = (other > one) | ((other == one) & (number < number.unsqueeze(-1)))
    rank = before.cast(dtypes.int32).sum(-1).unsqueeze(1)  # how many are before it: as many kernels as there are used
    mine = rank == Tensor.arange(self.used).reshape(1, -1, 1)
    chosen = mine.where(number, 0).sum(-1).cast(dtypes.int32).flatten().contiguous()
    weight = mine.where(likely.unsqueeze(1), 0.0).sum(-1)
    if self.normalised:
      weight = weight / weight.sum(-1, keepdim=True)
    y = self.down(ready(self.up.gated(self.gate, x, chosen)), chosen).reshape(tokens, self.used, -1)
    return (y * (weight * self.scale).unsqueeze(-1)).sum(1)


@dataclass(frozen=True)
class Norm:
  """A norm by the root mean square; with a bias, of what a mean was taken from before."""

  weight: Tensor
  bias: Tensor | None
  epsilon: float

  def __call__(self, x: Tensor) -> Tensor:
    """`x` along its last axis, normalised."""
    centred = x if self.bias is None else x - x.mean(-1, keepdim=True)
    scaled = centred * (centred.square().mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.weight
    return scaled if self.bias is None else scaled + self.bias


@dataclass(frozen=True)
class Layer:
  """The weights of a layer. `qkv` are one product, or three; biases are of all three, `(queries + 2 * keys,)`. Norms of
  queries and keys are of each head, `(head_dim,)`, or of all. `before` and `after`: the norms of what goes into
  attention and feed-forward and of what comes out, where there are such."""

  before: tuple[Norm | None, Norm | None]
  after: tuple[Norm | None, Norm | None]
  qkv: tuple[Linear, ...]
  qkv_bias: Tensor | None
  query_norm: Norm | None
  key_norm: Norm | None
  attention_output: Linear
  feed: FeedForward | Experts


class Weights:
  """The weights of a model for `context` tokens, and how activations are made ready for products with them."""

  def __init__(
    self, checkpoint: Checkpoint, config: Config, exact: bool, context: int,
    progress: Callable[[float], None] | None = None,
  ) -> None:  # fmt: skip
    self._checkpoint, self._config, self._exact, self._context = checkpoint, config, exact, context
    self._known: set[str] = set()
    self._optional: dict[str, dict[bool, str]] = {}  # by a name without its layer: one that is there, one that is not
    self._slab = Slab()
    self._progress, self._taken, self._whole = progress, 0, max(checkpoint.nbytes(), 1)
    dim, architecture = config.dim, config.architecture
    self.token_table = self._linear(self._tensor("token_embd", (config.vocabulary, dim)))
    Device.trim()  # packing needs several times as much memory, and the file's pages need not stay beside the result
    self.positions, self.rope_factors, self.added = self._positions(), None, None
    if config.rope is not None:
      self.rope_factors = self._factors()
    if not architecture.causal and "token_types.weight" in checkpoint.tensors:
      kinds = checkpoint.tensors["token_types.weight"].shape[0]
      self.added = self._numbers("token_types", (kinds, dim))[:1].contiguous().realize()  # all is of the first kind
    self.embedding_norm = self._norm("token_embd_norm") if architecture.after == "sum" else None
    self.layers = []
    for n in range(config.layers):
      self.layers.append(self._layer(f"blk.{n}.", config.experts > 0 and n >= config.leading))
      Device.trim()
    self.output_norm = None if architecture.after == "sum" else self._norm("output_norm")
    untied = "output.weight" in checkpoint.tensors
    self.output = self._linear(self._tensor("output", (config.vocabulary, dim))) if untied else self.token_table
    Device.trim()
    known = self._known
    if unknown := [name for name in checkpoint.tensors if name not in known and name not in UNUSED]:
      raise ValueError(f"{checkpoint.path}: {config.name!r} has no use for the tensor {unknown[0]!r:.80}")
    self._check_optional()
    del self._checkpoint, self._known, self._optional, self._progress, self._slab  # nothing is read any more

  def _check_optional(self) -> None:
    """Refuses a file that has a vector of one layer, and not that of another: it would compute something else."""
    for found in self._optional.values():
      if len(found) == 2:
        raise ValueError(f"{self._checkpoint.path}: it has a tensor {found[True]}, but none {found[False]}")

  def _layer(self, b: str, experts: bool) -> Layer:
    """The layer whose tensors have names that begin with `b`, with experts or without."""
    config, tensors = self._config, self._checkpoint.tensors
    dim, architecture = config.dim, config.architecture
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    if f"{b}attn_qkv.weight" in tensors:
      qkv = parts_of(self._tensor(f"{b}attn_qkv", (queries + 2 * keys, dim)), queries, keys, keys)
      bias = self._vector(f"{b}attn_qkv.bias", queries + 2 * keys)
    else:
      sizes = (("q", queries), ("k", keys), ("v", keys))
      qkv = [self._tensor(f"{b}attn_{c}", (size, dim)) for c, size in sizes]
      biases = [self._vector(f"{b}attn_{c}.bias", size, f"{b}attn_#.bias") for c, size in sizes]
      given = [bias for bias in biases if bias is not None]
      bias = Tensor.cat(*given).realize() if given else None
    whole = architecture.whole_norms
    names = AFTER[architecture.after]
    return Layer(
      before=(None, None) if architecture.after == "sum" else (self._norm(f"{b}attn_norm"), self._norm(f"{b}ffn_norm")),
      after=(None, None) if names is None else (self._norm(b + names[0]), self._norm(b + names[1])),
      qkv=self._together(qkv),
      qkv_bias=bias,
      query_norm=self._head_norm(f"{b}attn_q_norm", queries if whole else config.head_dim),
      key_norm=self._head_norm(f"{b}attn_k_norm", keys if whole else config.head_dim),
      attention_output=self._biased(f"{b}attn_output", dim, queries),
      feed=self._experts(b) if experts else self._feed(b, config.hidden),
    )

  def _feed(self, b: str, hidden: int, end: str = "") -> FeedForward:
    dim, architecture, gate = self._config.dim, self._config.architecture, None
    if not architecture.gated:
      up = self._tensor(f"{b}ffn_up{end}", (hidden, dim))
    elif f"{b}ffn_gate{end}.weight" in self._checkpoint.tensors:
      gate, up = (self._tensor(f"{b}ffn_{c}{end}", (hidden, dim)) for c in ("gate", "up"))
    else:
      gate, up = parts_of(self._tensor(f"{b}ffn_up{end}", (2 * hidden, dim)), hidden, hidden)
    return FeedForward(
      gate=None if gate is None else self._linear(gate),
      up=self._linear(up, bias=self._vector(f"{b}ffn_up{end}.bias", hidden)),
      down=self._biased(f"{b}ffn_down{end}", dim, hidden),
      activation=architecture.activation,
    )

  def _experts(self, b: str) -> Experts:
    config = self._config
    dim, hidden, count = config.dim, config.expert_hidden, config.experts
    sizes = {"gate": (count, hidden, dim), "up": (count, hidden, dim), "down": (count, dim, hidden)}
    gate, up, down = (self._matrices(self._expert_tensor(f"{b}ffn_{c}", shape)) for c, shape in sizes.items())
    normalised = config.architecture.experts == "normalised"
    router = self._linear(self._tensor(f"{b}ffn_gate_inp", (count, dim)))
    shared = self._feed(b, config.shared_hidden, "_shexp") if config.shared_hidden else None
    shared_gate = self._row(f"{b}ffn_gate_inp_shexp", dim) if config.architecture.shared == "gated" else None
    return Experts(router, gate, up, down, config.used, normalised, config.expert_scale, shared, shared_gate)

  def embedding(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """The rows of the table of tokens, float32 `(tokens, dim)`, with those of `positions` where these are learned."""
    rows, scale = self.token_table.matrix.numbers_of(tokens), self._config.embedding_scale
    rows = rows if scale == 1 else rows * scale
    for more in (positions, self.added):
      rows = rows if more is None else rows + more
    return rows if self.embedding_norm is None else self.embedding_norm(rows)

  def normalised(self, x: Tensor, norm: Norm | None, last: UOp | None = None, terms: int = 1) -> Activations:
    """Activations, normalised if there is a norm. With a variable `last`, products are made of the tokens up to it.
    They are rounded to so many `terms` of 8 bits, 1 or 2."""
    if norm is None or norm.bias is not None:
      return self.ready(x if norm is None else norm(x), last, terms)
    made = lru_cache(lambda groups: rounded(x, norm.weight, norm.epsilon, groups, last, terms=terms))
    return Activations(norm(x).contiguous(), None if self._exact else made)

  def ready(self, x: Tensor, last: UOp | None = None, terms: int = 1) -> Activations:
    """Activations as they are; `last` and `terms` as for `normalised`."""
    x = x.contiguous()
    made = lru_cache(lambda groups: rounded(x, groups=groups, last=last, terms=terms))
    return Activations(x, None if self._exact else made)

  def _positions(self) -> Tensor | None:
    """The vectors of positions `(positions, dim)`, where they are learned."""
    if self._config.rope is not None:
      return None
    return self._numbers("position_embd", (self._config.context, self._config.dim))

  def _factors(self) -> Array | None:
    """What the frequencies of rotations are divided by, for models with such factors; `(half,)`."""
    rope = self._config.rope
    assert rope is not None
    found = {name: self._vector(f"{name}.weight", rope.size // 2) for name in FACTORS}
    name = FACTORS[0]
    if found[FACTORS[1]] is not None or found[FACTORS[2]] is not None:
      name = FACTORS[2] if self._context > rope.trained else FACTORS[1]
      if found[name] is None:
        raise ValueError(f"{self._checkpoint.path}: it has factors of positions, but not {name}.weight")
    elif rope.scaling == "longrope":
      raise ValueError(f"{self._checkpoint.path}: positions are scaled by longrope, but {FACTORS[1]}.weight is missing")
    factors = found[name]
    if factors is None:
      return None
    if not (array := factors.numpy().astype(np.float64)).all():
      raise ValueError(f"{self._checkpoint.path}: {name}.weight has zeros")
    return array

  def _together(self, matrices: list[GGMLBlocks]) -> tuple[Linear, ...]:
    """One product where all matrices have one format that is packed, else one each."""
    if all(packs(b) and b.format is matrices[0].format for b in matrices):
      return (self._linear(*matrices),)
    return tuple([self._linear(b) for b in matrices])

  def _linear(self, *matrices: GGMLBlocks, bias: Tensor | None = None) -> Linear:
    sizes = tuple([b.shape[0] for b in matrices])
    if packs(matrices[0]):
      return Linear(self._pack(list(matrices)), sizes, bias)
    return Linear(self._plain(matrices[0]), sizes, bias)

  def _plain(self, blocks: GGMLBlocks) -> Plain:
    numbers = blocks.numbers().to(None) if blocks.format.decode is None else blocks.on()
    return Plain(self._slab.put(numbers.contiguous().realize()), blocks.shape, blocks.format.decode)

  def _pack(self, matrices: list[GGMLBlocks]) -> Packed:
    packed = pack(matrices)
    return replace(packed, parts=tuple([self._slab.put(part) for part in packed.parts]))

  def _expert_tensor(self, name: str, shape: tuple[int, ...]) -> GGMLBlocks:
    """The matrices of all experts, which files have as one tensor, or each as one."""
    if f"{name}.0.weight" not in self._checkpoint.tensors:
      return self._tensor(f"{name}_exps", shape)
    each = [self._tensor(f"{name}.{n}", shape[1:]) for n in range(shape[0])]
    if any(blocks.format is not each[0].format for blocks in each):
      raise ValueError(f"{self._checkpoint.path}: the experts {name}.# are of several formats: expected one")
    data = np.concatenate([np.frombuffer(blocks.data.data(), np.uint8) for blocks in each])
    return GGMLBlocks(Tensor(data), shape, each[0].format)

  def _matrices(self, blocks: GGMLBlocks) -> Matrices:
    count, rows, columns = blocks.shape
    below = GGMLBlocks(blocks.data, (count * rows, columns), blocks.format)  # one below the other
    if packs(below) and rows % LANES == 0:
      return Matrices(replace(self._pack([below]), rows=rows), rows)
    return Matrices(self._plain(below), rows)

  def _biased(self, name: str, rows: int, columns: int) -> Linear:
    return self._linear(self._tensor(name, (rows, columns)), bias=self._vector(f"{name}.bias", rows))

  def _row(self, name: str, columns: int) -> Linear:
    """A matrix of one row, which files have as a vector, too."""
    found = self._checkpoint.tensors.get(f"{name}.weight")
    blocks = self._tensor(name, (columns,) if found is not None and len(found.shape) == 1 else (1, columns))
    return self._linear(GGMLBlocks(blocks.data, (1, columns), blocks.format))

  def _norm(self, name: str) -> Norm:
    """A norm of the states; with a bias where the architecture's are such."""
    size, with_bias = (self._config.dim,), self._config.architecture.norm == "layer"
    bias = _vector_of(self._tensor(name, size, "bias")) if with_bias else None
    return self._norm_of(_vector_of(self._tensor(name, size)), bias)

  def _head_norm(self, name: str, size: int) -> Norm | None:
    """A norm of heads, which may be there, of queries and keys."""
    weight = self._vector(f"{name}.weight", size, re.sub(r"[qk]_norm$", "#_norm.weight", name))
    return None if weight is None else self._norm_of(weight, None)

  def _norm_of(self, weight: Tensor, bias: Tensor | None) -> Norm:
    weight = (weight + 1).realize() if self._config.architecture.norms_from_one else weight
    return Norm(weight, bias, self._config.epsilon)

  def _numbers(self, name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor in float32."""
    return _vector_of(self._tensor(name, shape))

  def _vector(self, name: str, size: int, kind: str | None = None) -> Tensor | None:
    """A vector that may be there: all of its `kind` are, in all layers, or none."""
    there = name in self._checkpoint.tensors
    self._optional.setdefault(re.sub(r"^blk\.[0-9]+", "blk.#", kind or name), {}).setdefault(there, name)
    if not there:
      return None
    return _vector_of(self._tensor(name.rpartition(".")[0], (size,), name.rpartition(".")[2]))

  def _tensor(self, name: str, shape: tuple[int, ...], what: str = "weight") -> GGMLBlocks:
    """A tensor of the file. Raises ValueError where there is none, or one of another shape."""
    path, tensors, whole = self._checkpoint.path, self._checkpoint.tensors, f"{name}.{what}"
    if (found := tensors.get(whole)) is None:
      raise ValueError(f"{path}: the architecture {self._config.name!r} needs a tensor {whole}, there is none")
    if self._config.architecture.transposed and len(shape) == 2 and name.startswith("blk."):
      found = transposed(found)
    if found.shape != shape:
      raise ValueError(f"{path}: {whole} has shape {found.shape}, expected {shape}")
    self._known.add(whole)
    if self._progress is not None:  # what was asked for before is loaded
      self._progress(min(self._taken / self._whole, 1.0))
      self._taken += int(found.data.nbytes())
    return found


def _vector_of(blocks: GGMLBlocks) -> Tensor:
  return read_in(blocks).numbers().to(None).cast(dtypes.float32).contiguous().realize()


def transposed(matrix: GGMLBlocks) -> GGMLBlocks:
  """A matrix of plain numbers, turned around in memory; as it is where it is no such one."""
  if len(matrix.shape) != 2 or matrix.format.decode is not None:
    return matrix
  numbers = np.frombuffer(matrix.data.data(), f"V{matrix.format.nbytes}").reshape(matrix.shape)
  return GGMLBlocks(Tensor(np.ascontiguousarray(numbers.T).view(np.uint8).ravel()), matrix.shape[::-1], matrix.format)


def parts_of(matrix: GGMLBlocks, *rows: int) -> list[GGMLBlocks]:
  """A matrix, cut into runs of rows."""
  size, start, parts = int(matrix.data.shape[0]) // matrix.shape[0], 0, []
  for count in rows:
    data = matrix.data[start * size : (start + count) * size]
    parts.append(GGMLBlocks(data, (count, *matrix.shape[1:]), matrix.format))
    start += count
  return parts
