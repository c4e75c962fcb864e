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
  """The weights of a layer. `qkv` are one product, or three."""

  attention_norm: Tensor
  qkv: tuple[Linear, ...]
  attention_output: Linear
  feed_norm: Tensor
  gate: Linear
  up: Linear
  down: Linear


class Weights:
  """The weights of a model, and how activations are made ready for products with them."""

  def __init__(self, checkpoint: Checkpoint, config: Config, exact: bool) -> None:
    self._checkpoint, self._config, self._exact = checkpoint, config, exact
    dim, hidden = config.dim, config.hidden
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    self.token_table = self._linear(("token_embd", (config.vocabulary, dim)))
    self.rope_factors = (
      self._vector("rope_freqs", config.rope_dim // 2) if "rope_freqs.weight" in checkpoint.tensors else None
    )
    self.layers = []
    for n in range(config.layers):
      b = f"blk.{n}."
      self.layers.append(
        Layer(
          attention_norm=self._vector(f"{b}attn_norm", dim),
          qkv=self._together((f"{b}attn_q", (queries, dim)), (f"{b}attn_k", (keys, dim)), (f"{b}attn_v", (keys, dim))),
          attention_output=self._linear((f"{b}attn_output", (dim, queries))),
          feed_norm=self._vector(f"{b}ffn_norm", dim),
          gate=self._linear((f"{b}ffn_gate", (hidden, dim))),
          up=self._linear((f"{b}ffn_up", (hidden, dim))),
          down=self._linear((f"{b}ffn_down", (dim, hidden))),
        )
      )
    self.output_norm = self._vector("output_norm", dim)
    untied = "output.weight" in checkpoint.tensors
    self.output = self._linear(("output", (config.vocabulary, dim))) if untied else self.token_table

  def embedding(self, tokens: Tensor) -> Tensor:
    """The rows of the table of tokens, float32 `(tokens, dim)`."""
    return self.token_table.matrix.numbers_of(tokens)

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

  def _together(self, *named: tuple[str, tuple[int, int]]) -> tuple[Linear, ...]:
    """One product where all matrices have one format that is packed, else one each."""
    blocks = [self._tensor(*n) for n in named]
    if all(packs(b) and b.format is blocks[0].format for b in blocks):
      return (self._linear(*named),)
    return tuple([self._linear(n) for n in named])

  def _linear(self, *named: tuple[str, tuple[int, int]]) -> Linear:
    blocks = [self._tensor(*n) for n in named]
    sizes = tuple([b.shape[0] for b in blocks])
    if packs(blocks[0]):
      return Linear(pack(blocks), sizes)
    (only,) = blocks
    plain = only.format.decode is None
    return Linear(Plain((only.numbers().to(None) if plain else only.on()).contiguous().realize(), only), sizes)

  def _vector(self, name: str, size: int) -> Tensor:
    return self._tensor(name, (size,)).numbers().to(None).cast(dtypes.float32).contiguous().realize()

  def _tensor(self, name: str, shape: tuple[int, ...]) -> GGMLBlocks:
    """A tensor of the file. Raises ValueError where there is none, or one of another shape."""
    path, tensors = self._checkpoint.path, self._checkpoint.tensors
    if (found := tensors.get(f"{name}.weight")) is None:
      raise ValueError(f"{path}: the architecture {self._config.name!r} needs a tensor {name}.weight, there is none")
    if found.shape != shape:
      raise ValueError(f"{path}: {name}.weight has shape {found.shape}, expected {shape}")
    return found
