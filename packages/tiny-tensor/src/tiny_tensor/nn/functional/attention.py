"""Attention with PyTorch's arguments."""

from tiny_tensor.tensor import Tensor


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
