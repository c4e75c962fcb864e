"""ggml's formats that index code books: IQ1, IQ2 and IQ3, all of 256 numbers a block.

An index stands for a group of 4 or 8 numbers of `ggml_codebooks`. IQ2 and IQ3 add a sign to each number: those of eight
numbers are a byte, or 7 bits, of which the eighth makes the count of minus signs even. IQ1 adds 1/8 to all numbers of a
group, or subtracts it. Groups share scales.
"""

from tiny_tensor.io import ggml_codebooks as books
from tiny_tensor.io.ggml_codebooks import Codebook
from tiny_tensor.io.ggml_fields import entries, fields, float_at, runs, words
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

_SEVENS = (0, 7, 14, 21)  # where the signs of four groups begin in 32 bits, before a scale of 4


def _even(sevens: Tensor) -> Tensor:
  """Seven bits with the eighth that makes the number of ones even."""
  folded = sevens ^ (sevens >> 4)
  folded = folded ^ (folded >> 2)
  return sevens | (((folded ^ (folded >> 1)) & 1) << 7)


def _numbers(book: Codebook, index: Tensor, signs: Tensor, scale: Tensor) -> Tensor:
  """Numbers of a book with signs and scales.

  `index` (blocks, indices), `signs` (blocks, 32) bytes for eight numbers each, `scale` (blocks, how many there are).
  """
  minus = runs(signs, 1, *range(8)).reshape(-1, 256)
  numbers = entries(book, index).reshape(-1, 256)
  signed = minus.ne(0).where(-numbers, numbers)
  return (signed.reshape(-1, scale.shape[1], 256 // int(scale.shape[1])) * scale.unsqueeze(2)).flatten(1)


def iq2_xxs(b: Tensor) -> Tensor:
  """8 times: 4 indices, and signs and scale of 32 numbers."""
  parts = b[:, 2:].reshape(-1, 8, 8)
  word = parts[:, :, 4:].bitcast(dtypes.uint32).flatten(1)
  scale = float_at(b, 0) * ((word >> 28).cast(dtypes.float32) + 0.5) * 0.25
  return _numbers(books.IQ2_XXS, parts[:, :, :4].flatten(1), _even(runs(word, 7, *_SEVENS).flatten(1)), scale)


def iq2_xs(b: Tensor) -> Tensor:
  """32 times an index of 9 bits and signs; scales of 16 numbers."""
  word = words(b, 2, 32, dtypes.uint16)
  scale = float_at(b, 0) * (fields(b[:, 66:], 4).flatten(1) + 0.5) * 0.25
  return _numbers(books.IQ2_XS, word & 511, _even((word >> 9).cast(dtypes.int32)), scale)


def iq2_s(b: Tensor) -> Tensor:
  """Low bytes of 32 indices, signs, high pairs of bits; scales of 16 numbers."""
  index = b[:, 2:34].cast(dtypes.int32) | (fields(b[:, 66:74], 2).flatten(1) << 8)
  scale = float_at(b, 0) * (fields(b[:, 74:], 4).flatten(1) + 0.5) * 0.25
  return _numbers(books.IQ2_S, index, b[:, 34:66], scale)


def iq3_xxs(b: Tensor) -> Tensor:
  """64 indices; 8 times signs and scale of 32 numbers."""
  word = words(b, 66, 8, dtypes.uint32)
  scale = float_at(b, 0) * ((word >> 28).cast(dtypes.float32) + 0.5) * 0.5
  return _numbers(books.IQ3_XXS, b[:, 2:66], _even(runs(word, 7, *_SEVENS).flatten(1)), scale)


def iq3_s(b: Tensor) -> Tensor:
  """Low bytes of 64 indices, high bits, signs; scales of 32 numbers."""
  index = b[:, 2:66].cast(dtypes.int32) | (fields(b[:, 66:74], 1).flatten(1) << 8)
  scale = float_at(b, 0) * (fields(b[:, 106:], 4).flatten(1) * 2 + 1)
  return _numbers(books.IQ3_S, index, b[:, 74:106], scale)


def _shifted(low: Tensor, high: Tensor, minus: Tensor, scale: Tensor) -> Tensor:
  """Numbers of IQ1: index by low byte and 3 high bits, and the sign of the shift, of 32 groups; scales of groups."""
  numbers = entries(books.IQ1, low.cast(dtypes.int32) | (high << 8))
  return ((numbers + minus.ne(0).where(-0.125, 0.125).unsqueeze(2)) * scale.unsqueeze(2)).flatten(1)


def iq1_s(b: Tensor) -> Tensor:
  """Low bytes of 32 indices; 8 times their high bits, a scale, and the sign of the shift, for 32 numbers."""
  word = words(b, 34, 8, dtypes.uint16)
  scale = float_at(b, 0) * (runs(word, 3, 12).flatten(1) * 2 + 1)
  minus = (word >> 15).cast(dtypes.int32)
  of_four = (t.unsqueeze(2).expand(-1, 8, 4).flatten(1) for t in (minus, scale))
  return _shifted(b[:, 2:34], runs(word, 3, 0, 3, 6, 9).flatten(1), *of_four)


def iq1_m(b: Tensor) -> Tensor:
  """Low bytes of 32 indices; their high bits and signs of shifts; 4 times the scales of four times 16 numbers, and a
  quarter of a float."""
  word = words(b, 48, 4, dtypes.uint16)
  quarters = runs(word, 4, 12)
  float_bits = sum((quarters[:, i] << (4 * i) for i in range(1, 4)), start=quarters[:, 0])
  scale = float_bits.cast(dtypes.uint16).bitcast(dtypes.float16).cast(dtypes.float32)
  scale = scale * (runs(word, 3, 0, 3, 6, 9).flatten(1) * 2 + 1)
  high = fields(b[:, 32:48], 4).flatten(1)
  return _shifted(b[:, :32], high & 7, high >> 3, scale.unsqueeze(2).expand(-1, 16, 2).flatten(1))
