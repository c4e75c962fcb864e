"""Attention of several heads, and the layers of transformers (Vaswani et al., 2017)."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar

from tiny_tensor.naming import known_as
from tiny_tensor.nn.functional.activations import gelu, relu
from tiny_tensor.nn.functional.attention import multi_head_attention_forward
from tiny_tensor.nn.linear import Linear
from tiny_tensor.nn.module import Module
from tiny_tensor.nn.norm import LayerNorm
from tiny_tensor.nn.sequential import Dropout
from tiny_tensor.nn.shared import added_mask
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

Activation = Callable[[Tensor], Tensor]


class MultiheadAttention(Module):
  """Queries `(length, batch, embed_dim)` look at keys and values `(seen, batch, embed_dim)`; with `batch_first` the
  batch is the first axis. Gives the output, of the queries' shape, and the weights `(batch, length, seen)`, the mean of
  those of the heads (None unless `need_weights`).

  Masks are added to the scores, or, if bool, are True at what must not be seen: `attn_mask (length, seen)` or
  `(batch · num_heads, length, seen)`, `key_padding_mask (batch, seen)`. `is_causal` hides the keys behind a query.
  """

  def __init__(
    self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, batch_first: bool = False
  ) -> None:
    if num_heads < 1 or embed_dim % num_heads:
      raise ValueError(f"num_heads={num_heads} must divide embed_dim={embed_dim}")
    self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
    self.in_proj_weight = Tensor.glorot_uniform(3 * embed_dim, embed_dim).contiguous()
    self.in_proj_bias: Tensor | None = Tensor.zeros(3 * embed_dim).contiguous() if bias else None
    self.out_proj = Linear(embed_dim, embed_dim, bias)
    if bias:
      self.out_proj.bias = Tensor.zeros(embed_dim).contiguous()

  def __call__(
    self,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
  ) -> tuple[Tensor, Tensor | None]:
    for x in (query, key, value):
      if x.ndim != 3 or x.shape[-1] != self.embed_dim:
        raise ValueError(f"MultiheadAttention expects three axes, the last of {self.embed_dim}, got shape {x.shape}")
    if self.batch_first:
      query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    if is_causal and attn_mask is not None:
      attn_mask = added_mask(attn_mask) + added_mask(attn_mask._filled(attn_mask.shape, True, dtypes.bool).triu(1))
    out, weights = multi_head_attention_forward(
      query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, None, None, False,
      self.dropout, self.out_proj.weight, self.out_proj.bias, Tensor.training, key_padding_mask, need_weights,
      attn_mask, is_causal=is_causal,
    )  # fmt: skip
    return out.transpose(0, 1) if self.batch_first else out, weights


ACTIVATIONS: dict[str, Activation] = {"relu": relu, "gelu": gelu}


class _TransformerLayer(Module):
  """Attention to the sequence itself, with `reads_memory` also to another one, and a network of two layers at each
  position."""

  reads_memory: ClassVar[bool] = False

  def __init__(
    self,
    d_model: int,
    nhead: int,
    dim_feedforward: int = 2048,
    dropout: float = 0.1,
    activation: str | Activation = "relu",
    layer_norm_eps: float = 1e-5,
    batch_first: bool = False,
    norm_first: bool = False,
  ) -> None:
    if isinstance(activation, str) and activation not in ACTIVATIONS:
      raise ValueError(f"activation must be a function, or one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
    self.linear1, self.linear2 = Linear(d_model, dim_feedforward), Linear(dim_feedforward, d_model)
    self.norm1, self.norm2 = LayerNorm(d_model, layer_norm_eps), LayerNorm(d_model, layer_norm_eps)
    self.dropout, self.norm_first = Dropout(dropout), norm_first
    self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation
    if self.reads_memory:
      self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
      self.norm3 = LayerNorm(d_model, layer_norm_eps)

  def around(self, x: Tensor, norm: LayerNorm, part: Callable[[Tensor], Tensor]) -> Tensor:
    """`part` with dropout, added to what goes in, and the norm before or after it."""
    return x + self.dropout(part(norm(x))) if self.norm_first else norm(x + self.dropout(part(x)))

  def feed_forward(self, x: Tensor) -> Tensor:
    """The network of two layers."""
    return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_TransformerLayer):
  """Attention to the sequence itself, then a network of two layers, each added to its input and normalised (before it
  with `norm_first`). src as for `MultiheadAttention`, whose masks it takes; the same shape comes out.
  """

  def __call__(
    self,
    src: Tensor,
    src_mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
  ) -> Tensor:
    def attend(x: Tensor) -> Tensor:
      return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal)[0]

    return self.around(self.around(src, self.norm1, attend), self.norm2, self.feed_forward)


class TransformerDecoderLayer(_TransformerLayer):
  """An encoder layer with attention to `memory`, the encoder's output, between its two parts."""

  reads_memory = True

  def __call__(
    self,
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool = False,
  ) -> Tensor:
    def attend(x: Tensor) -> Tensor:
      return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, tgt_is_causal)[0]

    def look(x: Tensor) -> Tensor:
      return self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask)[0]

    x = self.around(self.around(tgt, self.norm1, attend), self.norm2, look)
    return self.around(x, self.norm3, self.feed_forward)


class _TransformerStack(Module):
  """Copies of a layer one after the other, and a norm behind them. As in PyTorch, all begin with the same weights."""

  @known_as(encoder_layer="layer", decoder_layer="layer")
  def __init__(self, layer: _TransformerLayer, num_layers: int, norm: Activation | None = None) -> None:
    if num_layers < 1:
      raise ValueError(f"num_layers must be at least 1, got {num_layers}")
    self.layers = [copy.deepcopy(layer) for _ in range(num_layers)]
    self.norm = norm

  def through(self, x: Tensor, step: Callable[[Any, Tensor], Tensor]) -> Tensor:
    """`x` through all layers, by `step(layer, x)`, and the norm."""
    for layer in self.layers:
      x = step(layer, x)
    return x if self.norm is None else self.norm(x)


class TransformerEncoder(_TransformerStack):
  """`num_layers` copies of a TransformerEncoderLayer, and `norm` behind them. The arguments of a call are a layer's."""

  def __call__(
    self,
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
  ) -> Tensor:
    return self.through(src, lambda layer, x: layer(x, mask, src_key_padding_mask, is_causal))


class TransformerDecoder(_TransformerStack):
  """`num_layers` copies of a TransformerDecoderLayer, and `norm` behind them. The arguments of a call are a layer's."""

  def __call__(
    self,
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool = False,
  ) -> Tensor:
    masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal)
    return self.through(tgt, lambda layer, x: layer(x, memory, *masks))
