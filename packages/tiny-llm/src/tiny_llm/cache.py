"""Keys and values of the tokens that a model has read, of one layer, as they are or in 8 bits.

Keys of 16 positions lie side by side: they are multiplied with one number of a query at a time. In 8 bits, 32 numbers
of a head have a scale in float16, as in ggml's `Q8_0`: 8.5 bits each.
"""

from __future__ import annotations

from tiny_llm.quantised.packing import LANES
from tiny_tensor import Tensor, UOp, dtypes
from tiny_uop.records import dataclass

__all__ = ["CACHE_TYPES", "Cache", "in_rows", "new_cache"]

CACHE_TYPES = {"f16": 16.0, "f32": 32.0, "q8": 8.5}
"""Names of how keys and values are kept, and the bits of each number; of q8 where heads are of a multiple of 32."""
GROUP = 32
"""Numbers in 8 bits with one scale."""


@dataclass(frozen=True)
class Cache:
  """`keys` `(slots, kv_heads, room / 16, head_dim, 16)` and `values` `(slots, kv_heads, room, head_dim)`, float16,
  float32 or int8. `key_scales` `(slots, kv_heads, room / 16, groups, 16)` and `value_scales`
  `(slots, kv_heads, room, groups)`, float16, what int8 is multiplied by, else None."""

  keys: Tensor
  values: Tensor
  key_scales: Tensor | None
  value_scales: Tensor | None

  @property
  def groups(self) -> int:
    """How many scales a head has at a position."""
    return 1 if self.value_scales is None else int(self.value_scales.shape[-1])

  def write(self, slot: UOp, start: UOp, k: Tensor, v: Tensor, count: UOp | int) -> None:
    """Keys and values `(kv_heads, tokens, head_dim)` of a slot's positions from `start` on, those of the first `count`
    tokens."""
    end = start + count
    for numbers, scales, new in ((in_rows(self.keys), self.key_scales, k), (self.values, self.value_scales, v)):
      if scales is None:
        numbers[slot, :, start:end] = new[:, :count].cast(numbers.dtype)
        continue
      scales = in_rows(scales) if scales.ndim == 5 else scales
      grouped = new.contiguous().reshape(*new.shape[:-1], self.groups, -1)
      most = grouped.abs().max(-1, keepdim=True)
      rounded = (grouped * (most > 0).where(127 / most, 0.0)).round().cast(dtypes.int8)
      numbers[slot, :, start:end] = rounded.reshape(*new.shape)[:, :count]
      scales[slot, :, start:end] = (most * (1 / 127)).squeeze(-1)[:, :count].cast(scales.dtype)

  def read(self, slot: UOp, end: UOp) -> tuple[Tensor, Tensor]:
    """Keys and values up to a position, float32 `(kv_heads, end, head_dim)`."""
    found = []
    heads, size = int(self.values.shape[1]), int(self.values.shape[-1])
    for numbers, scales in ((in_rows(self.keys), self.key_scales), (self.values, self.value_scales)):
      part = numbers[slot, :, :end].float()
      if scales is not None:
        scales = in_rows(scales) if scales.ndim == 5 else scales
        grouped = part.reshape(heads, end, self.groups, size // self.groups)
        part = (grouped * scales[slot, :, :end].float().unsqueeze(-1)).reshape(heads, end, size)
      found.append(part)
    return found[0], found[1]

  def copy_prefix(self, from_slot: UOp, to_slot: UOp, length: UOp) -> None:
    """The first positions of a slot become those of another one."""
    tensors = [t for t in (self.keys, self.values, self.key_scales, self.value_scales) if t is not None]
    for t in tensors:
      rows = in_rows(t) if t.ndim == 5 else t
      rows[to_slot, :, :length] = rows[from_slot, :, :length]
    Tensor.realize(*tensors)


def new_cache(kind: str, slots: int, heads: int, room: int, size: int) -> Cache:
  """A cache of one of `CACHE_TYPES` for `room` positions of each slot, a multiple of 16. Memory of the host is taken as
  it is written. Raises ValueError for another type."""
  if kind not in CACHE_TYPES:
    raise ValueError(f"a cache of type {kind!r} is not known: expected one of {', '.join(CACHE_TYPES)}")

  def empty(*shape: int) -> Tensor:
    made = Tensor.empty(slots, heads, *shape, dtype=dtype).realize()
    made[(0,) * made.ndim] = 0  # now it may be read; nobody reads positions that were not written
    return made.realize()

  dtype = {"f16": dtypes.float16, "f32": dtypes.float32, "q8": dtypes.int8}[kind]
  keys, values = empty(room // LANES, size, LANES), empty(room, size)
  if kind != "q8":
    return Cache(keys, values, None, None)
  dtype, groups = dtypes.float16, size // GROUP if size % GROUP == 0 else 1
  return Cache(keys, values, empty(room // LANES, groups, LANES), empty(room, groups))


def in_rows(keys: Tensor) -> Tensor:
  """`(slots, kv_heads, room / 16, size, 16)` as `(slots, kv_heads, room, size)`."""
  slots, heads, blocks, size, lanes = keys.shape
  return keys.permute(0, 1, 2, 4, 3).reshape(slots, heads, blocks * lanes, size)
