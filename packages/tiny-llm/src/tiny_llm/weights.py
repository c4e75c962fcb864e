"""The weights of a model, in memory as they are computed with."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tiny_llm.architectures import Config
from tiny_llm.checkpoint import Checkpoint
from tiny_llm.packing import Packed, pack, packs
from tiny_llm.products import FEW, Rounded, exact_product, product, rounded
from tiny_tensor import Tensor, dtypes
from tiny_tensor.nn.state import GGMLBlocks
from tiny_uop.records import dataclass

__all__ = ["Layer", "Linear", "Weights"]

UNUSED = {"output.weight"}
"""Tensors that a file may have without a use."""


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
  source: GGMLBlocks

  def product(self, x: Tensor) -> Tensor:
    """`x @ w.T` in float32."""
    numbers = self.numbers()
    many = int(x.shape[0]) > FEW and self.source.format.decode is not None
    return x @ (numbers.contiguous() if many else numbers).T

  def numbers(self) -> Tensor:
    """The matrix in float32."""
    decode = self.source.format.decode
    return self.blocks.float() if decode is None else decode(self.blocks.flatten(0, 1)).reshape(self.source.shape)

  def numbers_of(self, rows: Tensor) -> Tensor:
    """The rows of the matrix that an index `(n,)` names, in float32."""
    decode, chosen = self.source.format.decode, self.blocks[rows]
    return chosen.float() if decode is None else decode(chosen.contiguous().flatten(0, 1)).reshape(len(rows), -1)


@dataclass(frozen=True)
class Linear:
  """A matrix, or several of one format, one below the other, that take the same activations."""

  matrix: Packed | Plain
  sizes: tuple[int, ...]

  def __call__(self, x: Activations, added: Tensor | None = None) -> list[Tensor]:
    """`x @ w.T` for each of the matrices, float32 `(tokens, rows)`; plus what is `added`."""
    w = self.matrix
    if isinstance(w, Packed) and x.rounded is not None:
      whole = product(x.rounded(w.groups), w, added=added)
    else:
      whole = w.product(x.exact) if isinstance(w, Plain) else exact_product(x.exact, w)
      whole = whole if added is None else added + whole
    return [whole] if len(self.sizes) == 1 else list(whole.split(list(self.sizes), dim=1))

  def gated(self, gate: Linear, x: Activations) -> Tensor:
    """`silu(x @ gate.T) * (x @ w.T)`."""
    w, other = self.matrix, gate.matrix
    if isinstance(w, Packed) and isinstance(other, Packed) and w.plan is other.plan and x.rounded is not None:
      return product(x.rounded(w.groups), w, gate=other)
    return gate(x)[0].silu() * self(x)[0]


@dataclass(frozen=True)
class Layer:
  """The weights of a layer. `qkv` are one product, or three; biases are of all three, `(queries + 2 * keys,)`, norms of
  each head, `(head_dim,)`."""

  attention_norm: Tensor
  qkv: tuple[Linear, ...]
  qkv_bias: Tensor | None
  query_norm: Tensor | None
  key_norm: Tensor | None
  attention_output: Linear
  feed_norm: Tensor
  gate: Linear
  up: Linear
  down: Linear


class Weights:
  """The weights of a model, and how activations are made ready for products with them."""

  def __init__(self, checkpoint: Checkpoint, config: Config, exact: bool) -> None:
    self._checkpoint, self._config, self._exact = checkpoint, config, exact
    self._known: set[str] = set()
    dim, hidden = config.dim, config.hidden
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    joined = config.architecture.joined
    self.token_table = self._linear(self._tensor("token_embd", (config.vocabulary, dim)))
    self.rope_factors = self._vector("rope_freqs.weight", config.rope_dim // 2)
    self.layers = []
    for n in range(config.layers):
      b = f"blk.{n}."
      if joined:
        qkv = parts_of(self._tensor(f"{b}attn_qkv", (queries + 2 * keys, dim)), queries, keys, keys)
        gate, up = parts_of(self._tensor(f"{b}ffn_up", (2 * hidden, dim)), hidden, hidden)
      else:
        qkv = [self._tensor(f"{b}attn_{c}", (size, dim)) for c, size in (("q", queries), ("k", keys), ("v", keys))]
        gate, up = (self._tensor(f"{b}ffn_{c}", (hidden, dim)) for c in ("gate", "up"))
      biases = [self._vector(f"{b}attn_{c}.bias", size) for c, size in (("q", queries), ("k", keys), ("v", keys))]
      given = [bias for bias in biases if bias is not None]
      self.layers.append(
        Layer(
          attention_norm=self._norm(f"{b}attn_norm"),
          qkv=self._together(qkv),
          qkv_bias=Tensor.cat(*given).realize() if len(given) == 3 else None,
          query_norm=self._vector(f"{b}attn_q_norm.weight", config.head_dim),
          key_norm=self._vector(f"{b}attn_k_norm.weight", config.head_dim),
          attention_output=self._linear(self._tensor(f"{b}attn_output", (dim, queries))),
          feed_norm=self._norm(f"{b}ffn_norm"),
          gate=self._linear(gate),
          up=self._linear(up),
          down=self._linear(self._tensor(f"{b}ffn_down", (dim, hidden))),
        )
      )
    self.output_norm = self._norm("output_norm")
    untied = "output.weight" in checkpoint.tensors
    self.output = self._linear(self._tensor("output", (config.vocabulary, dim))) if untied else self.token_table
    known = self._known
    if unknown := [name for name in checkpoint.tensors if name not in known and name not in UNUSED]:
      raise ValueError(f"{checkpoint.path}: {config.name!r} has no use for the tensor {unknown[0]!r:.80}")

  def embedding(self, tokens: Tensor) -> Tensor:
    """The rows of the table of tokens, float32 `(tokens, dim)`."""
    rows = self.token_table.matrix.numbers_of(tokens)
    return rows if self._config.embedding_scale == 1 else rows * self._config.embedding_scale

  def normalised(self, x: Tensor, weight: Tensor) -> Activations:
    """Activations over their root mean square, times a weight."""
    epsilon = self._config.epsilon
    exact = (x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight).contiguous()
    made = lru_cache(lambda groups: rounded(x, weight, epsilon, groups))
    return Activations(exact, None if self._exact else made)

  def ready(self, x: Tensor) -> Activations:
    """Activations as they are."""
    x = x.contiguous()
    return Activations(x, None if self._exact else lru_cache(lambda groups: rounded(x, groups=groups)))

  def _together(self, matrices: list[GGMLBlocks]) -> tuple[Linear, ...]:
    """One product where all matrices have one format that is packed, else one each."""
    if all(packs(b) and b.format is matrices[0].format for b in matrices):
      return (self._linear(*matrices),)
    return tuple([self._linear(b) for b in matrices])

  def _linear(self, *matrices: GGMLBlocks) -> Linear:
    sizes = tuple([b.shape[0] for b in matrices])
    if packs(matrices[0]):
      return Linear(pack(list(matrices)), sizes)
    (only,) = matrices
    plain = only.format.decode is None
    return Linear(Plain((only.numbers().to(None) if plain else only.on()).contiguous().realize(), only), sizes)

  def _norm(self, name: str) -> Tensor:
    return _vector_of(self._tensor(name, (self._config.dim,)))

  def _vector(self, name: str, size: int) -> Tensor | None:
    """A vector that may be there."""
    if name not in self._checkpoint.tensors:
      return None
    return _vector_of(self._tensor(name.rpartition(".")[0], (size,), name.rpartition(".")[2]))

  def _tensor(self, name: str, shape: tuple[int, ...], what: str = "weight") -> GGMLBlocks:
    """A tensor of the file. Raises ValueError where there is none, or one of another shape."""
    path, tensors, whole = self._checkpoint.path, self._checkpoint.tensors, f"{name}.{what}"
    if (found := tensors.get(whole)) is None:
      raise ValueError(f"{path}: the architecture {self._config.name!r} needs a tensor {whole}, there is none")
    if found.shape != shape:
      raise ValueError(f"{path}: {whole} has shape {found.shape}, expected {shape}")
    self._known.add(whole)
    return found


def _vector_of(blocks: GGMLBlocks) -> Tensor:
  return blocks.numbers().to(None).cast(dtypes.float32).contiguous().realize()


def parts_of(matrix: GGMLBlocks, *rows: int) -> list[GGMLBlocks]:
  """A matrix, cut into runs of rows."""
  size, start, parts = int(matrix.data.shape[0]) // matrix.shape[0], 0, []
  for count in rows:
    data = matrix.data[start * size : (start + count) * size]
    parts.append(GGMLBlocks(data, (count, *matrix.shape[1:]), matrix.format))
    start += count
  return parts
