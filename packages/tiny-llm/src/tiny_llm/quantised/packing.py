"""Quantised weights as they are computed with: ggml's blocks of 16 rows side by side.

A file has the blocks of one row after another. Here the same words of 16 rows lie next to each other, which a vector
reads at once: `(rows / 16, blocks of a row, words of a block, 16)`. Nothing is widened: the numbers keep their bits, so
the bytes that a product reads are those of the file.

A code is an integer of 8 bits or fewer; the number that it stands for is `scale * code + offset`, where scale and
offset belong to a group of 32 or 16 neighbours along a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tiny_tensor import Tensor, Variable, dtypes
from tiny_tensor.nn.state import GGMLBlocks
from tiny_uop.records import dataclass

__all__ = ["LANES", "Packed", "Plan", "pack", "packs", "read_in"]

LANES = 16
"""Rows side by side."""
BLOCK = 32
"""Codes of a block here, whatever the format's own are."""
WORDS = BLOCK // 4
PIECE = 4 << 20
"""Bytes of a large matrix that are packed at a time."""


@dataclass(frozen=True)
class Codes:
  """Integers without a sign of a block, and what they stand for: Tensors `(rows / 16, blocks, 16)`, or UOps of a lane.

  `words`: 4 codes each, the first in the lowest byte, uint32. `groups`: (scale, offset) of each group of codes,
  float32. An offset that is a number is one in units of the scale.
  """

  words: list[Any]
  groups: list[tuple[Any, Any]]


@dataclass(frozen=True)
class Plan:
  """How a format of ggml's is packed: `pack` makes parts `(rows / 16, blocks, words, 16)` of blocks
  `(rows / 16, 16, blocks of a row, bytes)`, `codes` takes the words of each part apart. A part of fewer blocks has one
  for several."""

  pack: Callable[[Tensor], tuple[Tensor, ...]]
  codes: Callable[[Sequence[Sequence[Any]]], Codes]
  groups: int = 1


@dataclass(frozen=True)
class Packed:
  """A matrix of `rows` × `columns` in packed parts. There may be more rows in them, of zeros, or of other matrices."""

  rows: int
  columns: int
  plan: Plan
  parts: tuple[Tensor, ...]

  @property
  def groups(self) -> int:
    """How many groups of codes with a scale each a block of 32 has."""
    return self.plan.groups

  def codes(self) -> Codes:
    """The integers and what they stand for."""
    return self._codes(self.parts)

  def chosen(self, which: Tensor) -> Codes:
    """The codes of those matrices of `rows` that an index `(n,)` names, `(n, rows / 16, blocks, 16)`."""
    return self._codes([part.reshape(-1, self.rows // LANES, *part.shape[1:])[which] for part in self.parts])

  def _codes(self, packed: Sequence[Tensor]) -> Codes:
    blocks, parts = self.columns // BLOCK, []
    for part in packed:
      *rows, own, words, lanes = (int(n) for n in part.shape)
      whole = part.reshape(*rows, own, 1, words, lanes).expand(*rows, own, blocks // own, words, lanes)
      parts.append([whole[..., n, :].reshape(*rows, blocks, lanes) for n in range(words)])
    return self.plan.codes(parts)

  def numbers(self) -> Tensor:
    """The matrix in float32."""
    codes, parts = self.codes(), []
    size = WORDS // len(codes.groups)
    for group, (scale, offset) in enumerate(codes.groups):
      words = Tensor.stack(*codes.words[group * size : (group + 1) * size], dim=-1).unsqueeze(-1)
      code = byte(words, Tensor.arange(4, dtype=words.dtype)).cast(dtypes.float32).flatten(-2)
      scale = scale.unsqueeze(-1)
      parts.append(scale * (code + offset) if isinstance(offset, float) else scale * code + offset.unsqueeze(-1))
    whole: Tensor = parts[0] if len(parts) == 1 else Tensor.cat(*parts, dim=-1)  # (rows / 16, blocks, 16, 32)
    return whole.permute(0, 2, 1, 3).reshape(-1, self.columns)[: self.rows]

  def numbers_of(self, rows: Tensor) -> Tensor:
    """The rows of the matrix that an index `(n,)` names, in float32, `(n, columns)`."""
    parts = tuple([part[rows // LANES, ..., rows % LANES].unsqueeze(-1) for part in self.parts])
    return Packed(int(rows.shape[0]), self.columns, self.plan, parts).numbers()


def byte(word: Any, place: Any) -> Any:
  """A byte of words, uint8."""
  return (word >> (8 * place)).cast(dtypes.uint8)


def half(word: Any, place: int = 0) -> Any:
  """The float16 in the lower (0) or upper (1) half of words, or in words of 16 bits, as float32."""
  return (word >> (16 * place) if place else word).cast(dtypes.uint16).bitcast(dtypes.float16).cast(dtypes.float32)


def side_by_side(blocks: Tensor) -> Tensor:
  """`(rows / 16, 16, blocks, words)` with the 16 rows last."""
  return blocks.permute(0, 2, 3, 1).contiguous()


def shorts(blocks: Tensor) -> Tensor:
  """Blocks of an even number of bytes as uint16."""
  return blocks.flatten(2).bitcast(dtypes.uint16).reshape(*blocks.shape[:-1], -1)


def as_words(data: Tensor) -> Tensor:
  """Bytes along the last axis as words."""
  return data.contiguous().bitcast(dtypes.uint32)


def _nibbles(words: Sequence[Any]) -> list[Any]:
  """Words of codes from words of pairs of them: the lower halves are a block's first codes, the upper ones its last."""
  return [w & 0x0F0F0F0F for w in words] + [(w >> 4) & 0x0F0F0F0F for w in words]


def _pack_q4_1(blocks: Tensor) -> tuple[Tensor, ...]:
  words = blocks.flatten(2).bitcast(dtypes.uint32).reshape(*blocks.shape[:-1], 5)
  return (side_by_side(words),)


def _codes_q4_1(parts: Sequence[Sequence[Any]]) -> Codes:
  first, *rest = parts[0]
  return Codes(_nibbles(rest), [(half(first), half(first, 1))])


def _pack_scale_and_words(blocks: Tensor) -> tuple[Tensor, ...]:
  """float16, then words."""
  scale = side_by_side(shorts(blocks)[..., :1])
  return scale, side_by_side(as_words(blocks[..., 2:]))


def _codes_q4_0(parts: Sequence[Sequence[Any]]) -> Codes:
  return Codes(_nibbles(parts[1]), [(half(parts[0][0]), -8.0)])


def _pack_q8_0(blocks: Tensor) -> tuple[Tensor, ...]:
  scale, words = _pack_scale_and_words(blocks)
  return scale, (words ^ 0x80808080).contiguous()  # int8 + 128


def _codes_q8_0(parts: Sequence[Sequence[Any]]) -> Codes:
  return Codes(list(parts[1]), [(half(parts[0][0]), -128.0)])


def _halves_of_bytes(codes: Tensor) -> Tensor:
  """Bytes of pairs of 4-bit codes `(…, 32)`, as `_nibbles` takes them apart."""
  return (codes[..., :16] & 15) | ((codes[..., 16:] & 15) << 4)


def _with_fifth_bits(words: Sequence[Any]) -> list[Any]:
  """Words of 5-bit codes from a word of fifth bits, bit j of byte t that of code 4 * j + t, and words of pairs."""
  return [w | ((words[0] >> n if n else words[0]) & 0x01010101) << 4 for n, w in enumerate(_nibbles(words[1:]))]


def _fifth_bits(bits: Tensor) -> Tensor:
  """4 bytes of fifth bits from 32 bits `(…, 32)`."""
  spread = bits.reshape(*bits.shape[:-1], WORDS, 4)
  return _joined([spread[..., n, :] << n for n in range(WORDS)])


def _joined(parts: list[Tensor]) -> Tensor:
  whole = parts[0]
  for part in parts[1:]:
    whole = whole | part
  return whole


def _bits(data: Tensor, width: int) -> list[Tensor]:
  """The fields of `width` bits of bytes, lowest first."""
  return [(data >> n if n else data) & ((1 << width) - 1) for n in range(0, 8, width)]


def _pack_q5(blocks: Tensor) -> tuple[Tensor, ...]:
  """float16, one or two, then 32 fifth bits and 16 bytes."""
  start = int(blocks.shape[-1]) - 20
  scales = side_by_side(shorts(blocks)[..., : start // 2])
  bits = Tensor.stack(*_bits(blocks[..., start : start + 4], 1), dim=-1).flatten(-2)
  return scales, side_by_side(as_words(Tensor.cat(_fifth_bits(bits), blocks[..., start + 4 :], dim=-1)))


def _codes_q5_0(parts: Sequence[Sequence[Any]]) -> Codes:
  return Codes(_with_fifth_bits(parts[1]), [(half(parts[0][0]), -16.0)])


def _codes_q5_1(parts: Sequence[Sequence[Any]]) -> Codes:
  return Codes(_with_fifth_bits(parts[1]), [(half(parts[0][0]), half(parts[0][1]))])


def _large_parts(blocks: Tensor, at: int, fifth: int | None) -> tuple[Tensor, ...]:
  """Q4_K and Q5_K: two float16 for 256 codes, scale and minimum in 6 bits for 32, codes from byte `at` on."""
  floats = side_by_side(shorts(blocks)[..., :2])
  first, second, third = (blocks[..., n : n + 4] for n in (4, 8, 12))
  scales = Tensor.cat(first & 63, (third & 15) | ((first >> 6) << 4), dim=-1)
  minima = Tensor.cat(second & 63, (third >> 4) | ((second >> 6) << 4), dim=-1)
  low, high = _bits(blocks[..., at:].reshape(*blocks.shape[:-1], 4, BLOCK), 4)
  codes = _halves_of_bytes(Tensor.stack(low, high, dim=-2).flatten(-3, -2))  # (…, 8, 16)
  if fifth is not None:
    codes = Tensor.cat(_fifth_bits(Tensor.stack(*_bits(blocks[..., fifth : fifth + 32], 1), dim=-2)), codes, dim=-1)
  pairs = Tensor.stack(scales, minima, dim=-1).contiguous().bitcast(dtypes.uint16)
  return floats, side_by_side(pairs.flatten(-3, -2)), side_by_side(as_words(codes).flatten(-3, -2))


def _large_scales(parts: Sequence[Sequence[Any]]) -> list[tuple[Any, Any]]:
  scale, least = (byte(parts[1][0], n).cast(dtypes.float32) for n in (0, 1))
  return [(half(parts[0][0]) * scale, half(parts[0][1]) * least * -1.0)]


def _codes_q4_k(parts: Sequence[Sequence[Any]]) -> Codes:
  return Codes(_nibbles(parts[2]), _large_scales(parts))


def _codes_q5_k(parts: Sequence[Sequence[Any]]) -> Codes:
  return Codes(_with_fifth_bits(parts[2]), _large_scales(parts))


def _pack_q6_k(blocks: Tensor) -> tuple[Tensor, ...]:
  """128 bytes of lower halves, 64 of 2 bits, 16 scales of int8, float16."""
  shape = blocks.shape[:-1]
  low = Tensor.stack(*_bits(blocks[..., :128].reshape(*shape, 2, 64), 4), dim=-2).reshape(*shape, 8, BLOCK)
  high = Tensor.stack(*_bits(blocks[..., 128:192].reshape(*shape, 2, 32), 2), dim=-2).reshape(*shape, 8, 4, 8)
  pairs = _joined([high[..., n, :] << (2 * n) for n in range(4)])
  words = as_words(Tensor.cat(_halves_of_bytes(low), pairs, dim=-1)).flatten(-3, -2)
  scales = blocks[..., 192:208].contiguous().bitcast(dtypes.uint16).reshape(*shape[:-1], -1, 1)
  return side_by_side(shorts(blocks)[..., 104:]), side_by_side(scales), side_by_side(words)


def _codes_q6_k(parts: Sequence[Sequence[Any]]) -> Codes:
  pairs = parts[2][4:]
  high = [(pairs[n % 2] >> 2 * (n // 2) if n > 1 else pairs[n]) & 0x03030303 for n in range(WORDS)]
  words = [w | h << 4 for w, h in zip(_nibbles(parts[2][:4]), high)]
  scales = [byte(parts[1][0], n).bitcast(dtypes.int8).cast(dtypes.float32) for n in (0, 1)]
  return Codes(words, [(half(parts[0][0]) * scale, -32.0) for scale in scales])


PLANS: dict[str, Plan] = {
  "Q4_0": Plan(_pack_scale_and_words, _codes_q4_0),
  "Q4_1": Plan(_pack_q4_1, _codes_q4_1),
  "Q5_0": Plan(_pack_q5, _codes_q5_0),
  "Q5_1": Plan(_pack_q5, _codes_q5_1),
  "Q8_0": Plan(_pack_q8_0, _codes_q8_0),
  "Q4_K": Plan(lambda blocks: _large_parts(blocks, 16, None), _codes_q4_k),
  "Q5_K": Plan(lambda blocks: _large_parts(blocks, 48, 16), _codes_q5_k),
  "Q6_K": Plan(_pack_q6_k, _codes_q6_k, 2),
}


def packs(blocks: GGMLBlocks) -> bool:
  """Whether there is a plan for the format of a matrix."""
  return len(blocks.shape) == 2 and blocks.format.name in PLANS


def pack(matrices: list[GGMLBlocks]) -> Packed:
  """Matrices of one format with as many columns, one below the other."""
  plan, columns = PLANS[matrices[0].format.name], matrices[0].shape[1]
  rows = sum(m.shape[0] for m in matrices)
  if len(matrices) == 1 and rows % LANES == 0 and int(matrices[0].data.nbytes()) > 2 * PIECE:
    return Packed(rows, columns, plan, _in_pieces(matrices[0], plan))
  return Packed(rows, columns, plan, _parts(matrices, plan))


def read_in(blocks: GGMLBlocks) -> GGMLBlocks:
  """The same, read from the file, as nothing is scheduled for: what is done with it is scheduled once for all blocks of
  a shape, wherever they are in the file."""
  return GGMLBlocks(Tensor(blocks.data.data()), blocks.shape, blocks.format)


def _in_pieces(matrix: GGMLBlocks, plan: Plan) -> tuple[Tensor, ...]:
  """The parts of a large matrix, some rows at a time: packing takes several times the memory of what is packed."""
  rows, size = matrix.shape[0], int(matrix.data.nbytes()) // matrix.shape[0]
  each, made = max(PIECE // size // LANES, 1) * LANES, list[Tensor]()
  for start in range(0, rows, each):
    count = min(each, rows - start)
    shape = (count, *matrix.shape[1:])
    parts = _parts([GGMLBlocks(matrix.data[start * size : (start + count) * size], shape, matrix.format)], plan)
    if not made:
      made = [Tensor.empty(rows // LANES, *part.shape[1:], dtype=part.dtype) for part in parts]
    at = Variable("place", 0, (rows - count) // LANES).bind(start // LANES)
    for whole, part in zip(made, parts):
      whole[at : at + count // LANES] = part
    Tensor.realize(*made)
  return tuple(made)


def _parts(matrices: list[GGMLBlocks], plan: Plan) -> tuple[Tensor, ...]:
  """The parts of matrices, one below the other."""
  rows = sum(m.shape[0] for m in matrices)
  read = [read_in(m).on() for m in matrices]
  blocks = read[0] if len(read) == 1 else Tensor.cat(*read, dim=0)
  blocks = blocks.pad(((0, -rows % LANES), None, None)) if rows % LANES else blocks
  parts = plan.pack(blocks.contiguous().reshape(-1, LANES, *blocks.shape[1:]))
  Tensor.realize(*parts)
  return parts
