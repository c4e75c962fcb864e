"""Products of activations with quantised weights.

The sum over a row is one over its blocks, and within a block one of products of integers: activations are rounded to 8
bits, 32 neighbours with one scale (as ggml's `Q8_1`). With `w = s * c + o` for a code `c`, and `x ≈ d * q`:

    Σ w x  ≈  Σ over blocks of  s * d * Σ c q  +  o * d * Σ q

`Σ c q` is what dot-product instructions of bytes do; `d * Σ q` belongs to the activations.
"""

from __future__ import annotations

from tiny_llm.packing import BLOCK, WORDS, Packed, byte
from tiny_tensor import Tensor, dtypes
from tiny_tensor.custom_kernel import Memory
from tiny_uop import AxisType, Ops, UOp
from tiny_uop.records import dataclass

__all__ = ["Rounded", "exact_product", "product", "rounded"]

_ROUND = 12582912.0  # 1.5 * 2**23: what is added to it is rounded to an integer, the low bits of the sum
_ROUND_BITS = 0x4B400000


@dataclass(frozen=True)
class Rounded:
  """Activations `(tokens, columns)` in 8 bits: `words` uint32 `(tokens, blocks, 8)`, `scales` and `totals` (scale times
  sum of the integers) float32 `(tokens, blocks, groups)`."""

  words: Tensor
  scales: Tensor
  totals: Tensor


def rounded(x: Tensor, weight: Tensor | None = None, epsilon: float = 0.0, groups: int = 1) -> Rounded:
  """Activations in 8 bits, in one kernel. With a `weight` they are normalised by their root mean square first.

  `groups`: for how many parts of a block of 32 sums are wanted.
  """
  tokens, columns = (int(n) for n in x.shape)
  blocks, size = columns // BLOCK, BLOCK // groups

  def round_kernel(words: Memory, scales: Memory, totals: Memory, x: Memory, *weights: Memory) -> UOp:
    row, block = UOp.range(tokens, 0), UOp.range(blocks, 1)
    inner, group = UOp.range(BLOCK, 2, AxisType.REDUCE), UOp.range(groups, 3)
    term, word = UOp.range(size, 4, AxisType.REDUCE), UOp.range(WORDS, 5)

    def value(place: UOp) -> UOp:
      column = block * BLOCK + place
      plain = x[row, column].load()
      return plain * weights[0][column].load() if weights else plain

    first = value(inner)
    most = first.alu(Ops.MAX, first * -1.0).reduce(Ops.MAX, inner)
    factor = (most > 0).where(most.reciprocal() * 127.0, 0.0)
    scale = most * (1 / 127)
    if weights:
      column = UOp.range(columns, 6, AxisType.REDUCE)
      square = (x[row, column].load() * x[row, column].load()).reduce(Ops.ADD, column)
      scale = scale * (square * (1 / columns) + epsilon).sqrt().reciprocal()

    def bits(place: UOp) -> UOp:
      return (value(place) * factor + _ROUND).bitcast(dtypes.int32)

    total = (bits(group * size + term) - _ROUND_BITS).reduce(Ops.ADD, term).cast(dtypes.float32) * scale
    packed = UOp.const(dtypes.uint32, 0)
    for place in range(4):
      packed = packed | (bits(word * 4 + place).bitcast(dtypes.uint32) & 255) << (8 * place)
    stores = (
      words[row, block, word].store(packed).end(word),
      scales[row, block].store(scale),
      totals[row, block, group].store(total).end(group),
    )
    return UOp.group(*stores).end(block).end(row)

  made = [
    Tensor.empty(tokens, blocks, WORDS, dtype=dtypes.uint32, device=x.device),
    Tensor.empty(tokens, blocks, dtype=dtypes.float32, device=x.device),
    Tensor.empty(tokens, blocks, groups, dtype=dtypes.float32, device=x.device),
  ]
  given = [x.contiguous()] if weight is None else [x.contiguous(), weight]
  words, scales, totals = made[0].custom_kernel(*made[1:], *given, fxn=round_kernel)[:3]
  return Rounded(words, scales, totals)


def product(x: Rounded, w: Packed) -> Tensor:
  """`x @ w.T` for rounded activations, float32 `(tokens, rows)`, by products of integers."""
  tokens, blocks = (int(n) for n in x.scales.shape)
  codes = w.codes()
  size = len(codes.words) // len(codes.groups)
  result: Tensor | None = None
  for group, (scale, offset) in enumerate(codes.groups):
    total: Tensor | None = None
    for place in range(group * size, (group + 1) * size):
      activations = x.words[:, :, place].reshape(tokens, 1, blocks, 1)
      for n in range(4):  # a dot product of four bytes: the code generator sees it in this form
        signed = byte(activations, n).bitcast(dtypes.int8).cast(dtypes.int32)
        term = byte(codes.words[place], n).cast(dtypes.int32) * signed
        total = term if total is None else total + term
    assert total is not None
    scaled = total.cast(dtypes.float32) * x.scales.reshape(tokens, 1, blocks, 1)
    sums = x.totals[:, :, group].reshape(tokens, 1, blocks, 1)
    part = scale * (scaled + sums * offset) if isinstance(offset, float) else scale * scaled + offset * sums
    result = part if result is None else result + part
  assert result is not None
  return result.sum(2).reshape(tokens, -1)[:, : w.rows]


def exact_product(x: Tensor, w: Packed) -> Tensor:
  """`x @ w.T` for activations `(tokens, columns)`, in float32."""
  if int(x.shape[0]) > FEW:
    return x @ w.numbers().contiguous().T  # a panel: each number is made once for all tokens
  tokens, blocks = int(x.shape[0]), w.columns // BLOCK
  x = x.reshape(tokens, 1, blocks, BLOCK, 1)
  codes = w.codes()
  size = len(codes.words) // len(codes.groups)
  result: Tensor | None = None
  for group, (scale, offset) in enumerate(codes.groups):
    total: Tensor | None = None
    for place in range(group * size, (group + 1) * size):
      for n in range(4):
        code = byte(codes.words[place], n).cast(dtypes.float32)
        code = code + offset if isinstance(offset, float) else scale * code + offset
        term = code * x[:, :, :, place * 4 + n]
        total = term if total is None else total + term
    assert total is not None
    part = scale * total if isinstance(offset, float) else total
    result = part if result is None else result + part
  assert result is not None
  return result.sum(2).reshape(tokens, -1)[:, : w.rows]


FEW = 4
"""Tokens up to which numbers are made anew for each product."""
