"""com.microsoft: attention, and turned positions."""

from __future__ import annotations

import math

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.ops.contrib import MICROSOFT
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Value, checked_rank, host_of, ints_of, shape_of
from tiny_tensor import Tensor, dtypes


def heads_of(x: Tensor, heads: int) -> Tensor:
  """(batch, tokens, heads · size) as (batch, heads, tokens, size)."""
  batch, tokens, width = checked_rank(x, 3, "queries, keys or values")
  if heads < 1 or width % heads:
    raise ModelError(f"{width} numbers of a token are not those of {heads} heads")
  return x.reshape(batch, tokens, heads, width // heads).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
  batch, heads, tokens, size = shape_of(x)
  return x.transpose(1, 2).reshape(batch, tokens, heads * size)


def attended(
  q: Tensor, k: Tensor, v: Tensor, scale: float | None, kept: Tensor | None, bias: Tensor | None, cap: float = 0.0
) -> Tensor:
  """softmax(q kᵀ · scale + bias) v, over (batch, heads, tokens, size), with places that are not kept left out."""
  size = shape_of(q)[-1]
  scores = q.matmul(k.transpose(-2, -1)) * (scale or 1 / math.sqrt(size))
  if cap:
    scores = (scores * (1 / cap)).tanh() * cap
  if bias is not None:
    scores = scores + bias
  if kept is not None:
    scores = kept.where(scores, float(np.finfo(np.float16).min) if scores.dtype.bits == 16 else -1e38)
  return scores.softmax(-1).cast(v.dtype).matmul(v)


def mask_of(mask: Tensor | None, batch: int, queries: int, keys: int) -> Tensor | None:
  """A mask of onnxruntime as (batch, 1, queries, keys) of bool: lengths, or 1 for what is kept."""
  if mask is None:
    return None
  sizes = shape_of(mask)
  if sizes == (batch,):
    return (Tensor.arange(keys) < mask.reshape(-1, 1)).reshape(batch, 1, 1, keys)
  if sizes == (batch, keys):
    return (mask != 0).reshape(batch, 1, 1, keys)
  if sizes == (batch, queries, keys):
    return (mask != 0).reshape(batch, 1, queries, keys)
  raise ModelError(f"a mask of shape {sizes} for {batch} sequences of {queries} queries and {keys} keys")


def causal(queries: int, keys: int) -> Tensor:
  return (Tensor.arange(keys).reshape(1, -1) <= Tensor.arange(queries).reshape(-1, 1) + (keys - queries)).reshape(
    1, 1, queries, keys
  )


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
  return a & b if a is not None and b is not None else b if a is None else a


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
  call: Call,
  q: Tensor,
  k: Tensor | None = None,
  v: Tensor | None = None,
  bias: Tensor | None = None,
  mask: Tensor | None = None,
  added: Tensor | None = None,
  past_k: Tensor | None = None,
  past_v: Tensor | None = None,
) -> tuple[Value, ...]:
  heads = call.need("num_heads", int)
  if q.ndim == 5:  # (batch, tokens, heads, 3, size)
    q, k, v = (q[:, :, :, i].reshape(shape_of(q)[0], shape_of(q)[1], -1) for i in range(3))
  if k is None or v is None:
    raise ModelError(
      "MultiHeadAttention without keys or values takes queries of 5 axes, (batch, tokens, heads, 3, size)"
    )
  if k.ndim == 5:
    k, v = (k[:, :, :, i].reshape(shape_of(k)[0], shape_of(k)[1], -1) for i in range(2))
  if bias is not None:
    width, of_v = shape_of(q)[-1], shape_of(bias)[0] - 2 * shape_of(q)[-1]
    q, k, v = (
      q + bias[:width],
      k + bias[width : 2 * width] if k.ndim == 3 else k,
      v + bias[2 * width : 2 * width + of_v] if v.ndim == 3 else v,
    )
  query = heads_of(q, heads)
  keys, values = (heads_of(t, heads) if t.ndim == 3 else t for t in (k, v))
  if past_k is not None and past_v is not None:
    keys, values = past_k.cat(keys, dim=2), past_v.cat(values, dim=2)
  batch, _, queries, _ = shape_of(query)
  count = shape_of(keys)[2]
  kept = mask_of(mask, batch, queries, count)
  if call.get("unidirectional", 0):
    kept = both(kept, causal(queries, count))
  return joined(attended(query, keys, values, call.given("scale", float), kept, added)), keys, values


@op("Attention", domain=MICROSOFT)
def attention(
  call: Call,
  x: Tensor,
  weights: Tensor,
  bias: Tensor | None = None,
  mask: Tensor | None = None,
  past: Tensor | None = None,
  added: Tensor | None = None,
) -> tuple[Value, ...]:
  heads = call.need("num_heads", int)
  whole = x.matmul(weights)
  if bias is not None:
    whole = whole + bias
  sizes = call.given("qkv_hidden_sizes", list) or [checked_rank(weights, 2, "weights")[1] // 3] * 3
  query, keys, values = (heads_of(t, heads) for t in whole.split(sizes, -1))
  if past is not None:
    keys, values = past[0].cat(keys, dim=2), past[1].cat(values, dim=2)
  batch, _, queries, _ = shape_of(query)
  count = shape_of(keys)[2]
  kept = mask_of(mask, batch, queries, count)
  if call.get("unidirectional", 0):
    kept = both(kept, causal(queries, count))
  present = keys.stack(values) if call.wants(1) else None
  return joined(attended(query, keys, values, call.given("scale", float), kept, added)), present


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
  """Pairs of `x` (…, size) turned by angles: cos and sin are (…, half); what is beyond the pairs stays."""
  half = shape_of(cos)[-1]
  turned, rest = x[..., : 2 * half], x[..., 2 * half :]
  if interleaved:
    a, b = turned[..., 0::2], turned[..., 1::2]
    made = (a * cos - b * sin).stack(a * sin + b * cos, dim=-1).reshape(turned.shape)
  else:
    a, b = turned[..., :half], turned[..., half:]
    made = (a * cos - b * sin).cat(a * sin + b * cos, dim=-1)
  return made.cat(rest, dim=-1) if shape_of(rest)[-1] else made


@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(call: Call, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
  interleaved, heads = bool(call.get("interleaved", 0)), call.get("num_heads", 0)
  flat = x.ndim == 3
  size = 2 * shape_of(cos)[1] if not heads else shape_of(x)[-1] // heads
  t = heads_of(x, shape_of(x)[-1] // size) if flat else x
  places = positions
  if shape_of(positions) == (1,):
    places = (positions + Tensor.arange(shape_of(t)[2], dtype=dtypes.int64)).reshape(1, -1)
  made = rotated(t, cos[places].unsqueeze(1), sin[places].unsqueeze(1), interleaved)
  return joined(made) if flat else made


@op("GroupQueryAttention", domain=MICROSOFT, needs=(5, 6))
def group_query_attention(
  call: Call,
  q: Tensor,
  k: Tensor | None,
  v: Tensor | None,
  past_k: Tensor | None,
  past_v: Tensor | None,
  lengths: Tensor,
  total: Tensor,
  cos: Tensor | None = None,
  sin: Tensor | None = None,
  *more: Tensor | None,
) -> tuple[Value, ...]:
  """Heads of keys shared by several of queries, with a cache: `lengths` are positions of the last tokens."""
  if any(t is not None for t in more):
    raise ModelError("position ids, a bias, or a sink of GroupQueryAttention are not there yet")
  heads, shared = call.need("num_heads", int), call.need("kv_num_heads", int)
  if k is None or v is None:
    size = shape_of(q)[-1] // (heads + 2 * shared)
    q, k, v = q.split([heads * size, shared * size, shared * size], -1)
  query, keys, values = heads_of(q, heads), heads_of(k, shared), heads_of(v, shared)
  batch, _, tokens, _ = shape_of(query)
  ends = [int(n) for n in host_of(lengths).reshape(-1)]
  whole = ints_of(total)[0]
  past = 0 if past_k is None else shape_of(past_k)[2]
  starts = [end + 1 - tokens for end in ends]
  if cos is not None and sin is not None and call.get("do_rotary", 0):
    places = Tensor(np.array([np.maximum(np.arange(tokens) + s, 0) for s in starts], np.int64))
    turn = cos[places].unsqueeze(1), sin[places].unsqueeze(1)
    query, keys = (rotated(t, *turn, bool(call.get("rotary_interleaved", 0))) for t in (query, keys))
  room = max(past, whole)
  rows: list[tuple[Tensor, Tensor]] = []
  for b, start in enumerate(starts):
    first = max(start, 0)
    row = []
    for old, new in ((past_k, keys), (past_v, values)):
      before = new[b][:, :0] if old is None or not first else old[b][:, :first]
      made = before.cat(new[b], dim=1)
      row.append(
        made.pad(((0, 0), (0, room - shape_of(made)[1]), (0, 0))) if room > shape_of(made)[1] else made[:, :room]
      )
    rows.append((row[0], row[1]))
  present = [rows[0][i].stack(*[r[i] for r in rows[1:]]) if batch > 1 else rows[0][i].unsqueeze(0) for i in (0, 1)]
  at = Tensor(np.array([[max(s, 0) + t for t in range(tokens)] for s in starts], np.int64)).reshape(batch, 1, tokens, 1)
  column = Tensor.arange(room, dtype=dtypes.int64).reshape(1, 1, 1, room)
  kept = column <= at
  window = call.get("local_window_size", -1)
  if window > 0:
    kept = kept & (column > at - window)
  repeated = [p.repeat_interleave(heads // shared, 1) for p in present]
  made = attended(query, repeated[0], repeated[1], call.given("scale", float), kept, None, call.get("softcap", 0.0))
  return joined(made), present[0], present[1]
