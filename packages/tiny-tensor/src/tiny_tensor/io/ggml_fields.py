"""Parts of ggml's blocks: floats, fields of bits, entries of tables. Blocks are uint8, (blocks, bytes of one)."""

from collections.abc import Sequence

from tiny_tensor.io.ggml_codebooks import Codebook
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes


def float_at(blocks: Tensor, at: int, dtype: DType = dtypes.float16) -> Tensor:
  """The float at byte `at` of each block: shape (blocks, 1).

  Where it can be, the blocks as a whole are seen as floats, which is a view of memory: bytes of a part of each block
  would be gathered into a buffer first.
  """
  size = dtype.itemsize
  if at % size or int(blocks.shape[1]) % size:
    return blocks[:, at : at + size].bitcast(dtype).cast(dtypes.float32)
  return blocks.bitcast(dtype)[:, at // size : at // size + 1].cast(dtypes.float32)


def words(blocks: Tensor, at: int, count: int, dtype: DType) -> Tensor:
  """`count` unsigned integers from byte `at` of each block on: shape (blocks, count)."""
  return blocks[:, at : at + count * dtype.itemsize].bitcast(dtype)


def runs(word: Tensor, width: int, *begin: int) -> Tensor:
  """The runs of `width` bits that begin at these bits of integers, along a new last axis, as int32."""
  return Tensor.stack(*((word >> at) & ((1 << width) - 1) for at in begin), dim=-1).cast(dtypes.int32)


def fields(x: Tensor, width: int, dim: int = -1) -> Tensor:
  """The fields of `width` bits of each byte, lowest first, along a new axis `dim`."""
  return Tensor.stack(*((x >> at) & ((1 << width) - 1) for at in range(0, 8, width)), dim=dim).cast(dtypes.int32)


def halves(x: Tensor) -> Tensor:
  """Of (blocks, n) bytes the low halves, then the high halves: (blocks, 2 * n)."""
  return fields(x, 4, dim=1).flatten(1)


def signed(x: Tensor) -> Tensor:
  """Bytes as int8."""
  return x.bitcast(dtypes.int8).cast(dtypes.int32)


def table(values: Sequence[int], index: Tensor) -> Tensor:
  """Entries of a short table."""
  return Tensor(list(values), dtype=dtypes.float32, device=index.device)[index]


def entries(book: Codebook, index: Tensor) -> Tensor:
  """Entries of a code book: float32 of the shape of the index and an axis for the numbers of an entry."""
  numbers = Tensor(book.numbers, device=index.device).bitcast(dtypes.int8).reshape(-1, book.width)
  return numbers[index].cast(dtypes.float32)
