"""Attention with PyTorch's arguments."""

from tiny_tensor.nn.shared import added_mask
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


def scaled_dot_product_attention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  attn_mask: Tensor | None = None,
  dropout_p: float = 0.0,
  is_causal: bool = False,
  scale: float | None = None,
  enable_gqa: bool = False,
) -> Tensor:
  """softmax(q·kᵀ·scale + mask)·v, `scale` 1/√d unless given. As in PyTorch, dropout acts whether training or not."""
  if scale is not None:
    query = query * (scale * int(query.shape[-1]) ** 0.5)
  with Tensor.train():
    return query.scaled_dot_product_attention(key, value, attn_mask, dropout_p, is_causal, enable_gqa)


def _in_heads(
  heads: int, x: Tensor, weight: Tensor | None, bias: Tensor | None, more: Tensor | None, static: Tensor | None
) -> Tensor:
  """Queries, keys or values `(length, n, embed)` as `(n, heads, length, embed / heads)`: projected, with one `more`; or
  those that are `static`."""
  if weight is None:
    raise ValueError("attention needs in_proj_weight, or with use_separate_proj_weight all three weights")
  n, embed = x.shape[1:]
  if static is not None:
    return static.reshape((n, heads, *static.shape[-2:]))
  x = x.transpose(0, 1).linear(weight.transpose(0, 1), bias)
  if more is not None:
    x = x.cat(more.reshape((1, 1, embed)).expand((n, 1, embed)), dim=1)
  return x.reshape((n, x.shape[1], heads, -1)).transpose(1, 2)


def _check_operands(query: Tensor, key: Tensor, value: Tensor, size: int, heads: int) -> None:
  """Raises ValueError unless they are `(length, n, embed)`, with keys and values of one length."""
  if query.ndim != 3 or key.ndim != 3 or value.ndim != 3:
    raise ValueError(f"attention takes (length, n, embed) or (length, embed), got {query.shape} and {key.shape}")
  embed = query.shape[2]
  if embed != size or heads < 1 or size % heads:
    raise ValueError(f"queries of size {embed} should have {size}, and {heads} heads should divide it")
  if key.shape[:2] != value.shape[:2]:
    raise ValueError(f"keys of shape {key.shape} and values of shape {value.shape} differ in length or number")


def _masked(
  scores: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool, further: int
) -> Tensor:
  """Scores `(n, heads, length, seen)` with masks added, none of which is for the `further` keys at the end."""
  n, heads, length, seen = scores.shape
  if attn_mask is None and is_causal:
    attn_mask = scores._filled((length, seen - further), True, dtypes.bool).triu(1)
  if attn_mask is not None:
    each = attn_mask if attn_mask.ndim == 2 else attn_mask.reshape((n, heads, *attn_mask.shape[-2:]))
    scores = scores + added_mask(each._pad_zeros([*[(0, 0)] * (each.ndim - 1), (0, further)]))
  if key_padding_mask is not None:
    scores = scores + added_mask(key_padding_mask._pad_zeros([(0, 0), (0, further)])).reshape((n, 1, 1, seen))
  return scores


def _thirds(joined: Tensor | None) -> list[Tensor | None]:
  """Those of queries, keys and values, of a weight or a bias that has all three."""
  return [None] * 3 if joined is None else list(joined.chunk(3, 0))


def multi_head_attention_forward(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  embed_dim_to_check: int,
  num_heads: int,
  in_proj_weight: Tensor | None,
  in_proj_bias: Tensor | None,
  bias_k: Tensor | None,
  bias_v: Tensor | None,
  add_zero_attn: bool,
  dropout_p: float,
  out_proj_weight: Tensor,
  out_proj_bias: Tensor | None,
  training: bool = True,
  key_padding_mask: Tensor | None = None,
  need_weights: bool = True,
  attn_mask: Tensor | None = None,
  use_separate_proj_weight: bool = False,
  q_proj_weight: Tensor | None = None,
  k_proj_weight: Tensor | None = None,
  v_proj_weight: Tensor | None = None,
  static_k: Tensor | None = None,
  static_v: Tensor | None = None,
  average_attn_weights: bool = True,
  is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
  """Attention of several heads, as `nn.MultiheadAttention` computes it: (output `(length, n, embed)`, weights `(n,
  length, seen)` or None), or both without the axis n for one sequence `(length, embed)`.

  Queries, keys and values are projected by the thirds of `in_proj_weight (3 embed, embed)`, or by weights of their own.
  `bias_k`, `bias_v (embed)` are a further key and value, `add_zero_attn` one of zeros; `static_k`, `static_v (n heads,
  seen, embed / heads)` take the place of what is projected. Masks are added to scores, or, if bool, are True at what
  must not be seen: `attn_mask (length, seen)` or `(n heads, length, seen)`, `key_padding_mask (n, seen)`. With
  `is_causal` and no `attn_mask` no query sees a key behind it.
  """
  single = query.ndim == 2
  if single:
    query, key, value = (t.unsqueeze(1) for t in (query, key, value))
    key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
  _check_operands(query, key, value, embed_dim_to_check, num_heads)
  weights = [q_proj_weight, k_proj_weight, v_proj_weight] if use_separate_proj_weight else _thirds(in_proj_weight)
  more = (None, bias_k, bias_v) if bias_k is not None and bias_v is not None else (None,) * 3
  operands = zip((query, key, value), weights, _thirds(in_proj_bias), more, (None, static_k, static_v), strict=True)
  q, k, v = [_in_heads(num_heads, *operand) for operand in operands]
  further = int(more[1] is not None) + add_zero_attn
  if add_zero_attn:
    k, v = (x._pad_zeros([(0, 0), (0, 0), (0, 1), (0, 0)]) for x in (k, v))
  scores = q.matmul(k.transpose(-2, -1)) / (embed_dim_to_check // num_heads) ** 0.5
  scores = _masked(scores, attn_mask, key_padding_mask, is_causal, further)
  shares = scores.softmax(-1)
  if training and dropout_p:
    with Tensor.train():
      shares = shares.dropout(dropout_p)
  out = shares.matmul(v).transpose(1, 2).flatten(2).linear(out_proj_weight.transpose(0, 1), out_proj_bias)
  out = out.transpose(0, 1)
  given = (shares.mean(1) if average_attn_weights else shares) if need_weights else None
  if single:
    return out.squeeze(1), None if given is None else given.squeeze(0)
  return out, given
