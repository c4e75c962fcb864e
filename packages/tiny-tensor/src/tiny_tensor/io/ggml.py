"""The number formats of ggml (github.com/ggml-org/ggml, ggml-common.h): blocks of small integers that share scales.

A function here takes blocks, uint8 of shape (blocks, bytes of one), and gives float32 of shape (blocks, elements of
one), as a graph: a product with such a weight can read the small integers themselves.
"""

import math
from collections.abc import Callable

from tiny_tensor.io import ggml_indexed as indexed
from tiny_tensor.io.files import in_memory, part_of, tensor_at
from tiny_tensor.io.ggml_fields import fields, float_at, halves, signed, table
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes
from tiny_uop.records import dataclass

_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice the values of the 4-bit float


def _q5(b: Tensor, at: int) -> Tensor:
  """Halves of bytes, and before them the fifth bits, one after another."""
  return halves(b[:, at + 4 :]) + fields(b[:, at : at + 4], 1).flatten(1) * 16


def _pairs(x: Tensor) -> Tensor:
  """2-bit numbers of 64 bytes: of each 32 bytes the lowest pairs of all, then the next. 16 groups of 16."""
  return fields(x.reshape(-1, 2, 32), 2, dim=2).reshape(-1, 16, 16)


def _q2_k(b: Tensor) -> Tensor:
  scales = fields(b[:, :16], 4)  # low half: the scale, high half: the minimum
  scale, least = float_at(b, 80).unsqueeze(2) * scales[:, :, :1], float_at(b, 82).unsqueeze(2) * scales[:, :, 1:]
  return (_pairs(b[:, 16:80]) * scale - least).flatten(1)


def _q3_k(b: Tensor) -> Tensor:
  third = fields(b[:, :32], 1, dim=1).reshape(-1, 16, 16)
  scales = halves(b[:, 96:104]) + fields(b[:, 104:108], 2, dim=1).flatten(1) * 16 - 32
  scale = float_at(b, 108).unsqueeze(2) * scales.unsqueeze(2)
  return ((_pairs(b[:, 32:96]) + third * 4 - 4) * scale).flatten(1)


def _scales_and_minima(b: Tensor) -> tuple[Tensor, Tensor]:
  """Scales and minima of Q4_K and Q5_K, (blocks, 8, 1): two floats, then twice 8 numbers of 6 bits in 12 bytes."""
  first, second, third = (b[:, at : at + 4].cast(dtypes.int32) for at in (4, 8, 12))
  scales = Tensor.cat(first & 63, (third & 15) | ((first >> 6) << 4), dim=1)
  minima = Tensor.cat(second & 63, (third >> 4) | ((second >> 6) << 4), dim=1)
  return (float_at(b, 0) * scales).unsqueeze(2), (float_at(b, 2) * minima).unsqueeze(2)


def _eighths(x: Tensor) -> Tensor:
  """4-bit numbers of 128 bytes: of each 32 bytes the low halves, then the high halves. 8 groups of 32."""
  return fields(x.reshape(-1, 4, 32), 4, dim=2).reshape(-1, 8, 32)


def _q4_k(b: Tensor) -> Tensor:
  scale, least = _scales_and_minima(b)
  return (_eighths(b[:, 16:]) * scale - least).flatten(1)


def _q5_k(b: Tensor) -> Tensor:
  scale, least = _scales_and_minima(b)
  return ((_eighths(b[:, 48:]) + fields(b[:, 16:48], 1, dim=1) * 16) * scale - least).flatten(1)


def _q6_k(b: Tensor) -> Tensor:
  low = fields(b[:, :128].reshape(-1, 2, 64), 4, dim=2).reshape(-1, 16, 16)
  high = fields(b[:, 128:192].reshape(-1, 2, 32), 2, dim=2).reshape(-1, 16, 16)
  scale = float_at(b, 208).unsqueeze(2) * signed(b[:, 192:208]).unsqueeze(2)
  return ((low + high * 16 - 32) * scale).flatten(1)


def _iq4_xs(b: Tensor) -> Tensor:
  scales = fields(b[:, 4:8], 4).flatten(1) + fields(b[:, 2:4], 2).flatten(1) * 16 - 32
  index = fields(b[:, 8:].reshape(-1, 8, 16), 4, dim=2).reshape(-1, 8, 32)
  return (table(_IQ4, index) * (float_at(b, 0) * scales).unsqueeze(2)).flatten(1)


def _trits(x: Tensor, count: int) -> Tensor:
  """The first `count` base-3 digits of bytes, which hold them as a fraction of 256: all first ones, all second ones…"""
  x = x.cast(dtypes.int32)
  digits = [((x * int(3**n) & 255) * 3) >> 8 for n in range(count)]
  return Tensor.stack(*digits, dim=1).flatten(1) - 1


def _tq1_0(b: Tensor) -> Tensor:
  return Tensor.cat(_trits(b[:, :32], 5), _trits(b[:, 32:48], 5), _trits(b[:, 48:52], 4), dim=1) * float_at(b, 52)


def _mxfp4(b: Tensor) -> Tensor:
  power = b[:, :1].cast(dtypes.int32)  # 2 ** (power - 127), and half of that for the doubled table
  half = (power < 2).where(power * 0x200000 + 0x200000, (power - 1) << 23).bitcast(dtypes.float32)
  return table(_E2M1, halves(b[:, 1:])) * half


def _nvfp4(b: Tensor) -> Tensor:
  bits = b[:, :4].cast(dtypes.int32)  # scales of 16 numbers: floats of 4 bits of exponent and 3 of fraction, no sign
  exponent, fraction = (bits >> 3) & 15, bits & 7
  power = ((exponent.maximum(1) + (127 - 11)) << 23).bitcast(dtypes.float32)  # half, for the doubled table
  scale = (bits & 255).eq(127).where(0, exponent.eq(0).where(fraction, fraction + 8)) * power
  index = fields(b[:, 4:].reshape(-1, 4, 8), 4, dim=2).reshape(-1, 4, 16)
  return (table(_E2M1, index) * scale.unsqueeze(2)).flatten(1)


@dataclass(frozen=True)
class Format:
  """A number format: blocks of `elements` numbers in `nbytes` bytes. Without a function they are plain numbers."""

  name: str
  elements: int
  nbytes: int
  dtype: DType = dtypes.float32
  decode: Callable[[Tensor], Tensor] | None = None


def _plain(name: str, dtype: DType) -> Format:
  return Format(name, 1, dtype.itemsize, dtype)


FORMATS: dict[int, Format] = {
  0: _plain("F32", dtypes.float32),
  1: _plain("F16", dtypes.float16),
  2: Format("Q4_0", 32, 18, decode=lambda b: (halves(b[:, 2:]) - 8) * float_at(b, 0)),
  3: Format("Q4_1", 32, 20, decode=lambda b: halves(b[:, 4:]) * float_at(b, 0) + float_at(b, 2)),
  6: Format("Q5_0", 32, 22, decode=lambda b: (_q5(b, 2) - 16) * float_at(b, 0)),
  7: Format("Q5_1", 32, 24, decode=lambda b: _q5(b, 4) * float_at(b, 0) + float_at(b, 2)),
  8: Format("Q8_0", 32, 34, decode=lambda b: signed(b[:, 2:]) * float_at(b, 0)),
  9: Format("Q8_1", 32, 36, decode=lambda b: signed(b[:, 4:]) * float_at(b, 0)),
  10: Format("Q2_K", 256, 84, decode=_q2_k),
  11: Format("Q3_K", 256, 110, decode=_q3_k),
  12: Format("Q4_K", 256, 144, decode=_q4_k),
  13: Format("Q5_K", 256, 176, decode=_q5_k),
  14: Format("Q6_K", 256, 210, decode=_q6_k),
  15: Format("Q8_K", 256, 292, decode=lambda b: signed(b[:, 4:260]) * float_at(b, 0, dtypes.float32)),
  16: Format("IQ2_XXS", 256, 66, decode=indexed.iq2_xxs),
  17: Format("IQ2_XS", 256, 74, decode=indexed.iq2_xs),
  18: Format("IQ3_XXS", 256, 98, decode=indexed.iq3_xxs),
  19: Format("IQ1_S", 256, 50, decode=indexed.iq1_s),
  20: Format("IQ4_NL", 32, 18, decode=lambda b: table(_IQ4, halves(b[:, 2:])) * float_at(b, 0)),
  21: Format("IQ3_S", 256, 110, decode=indexed.iq3_s),
  22: Format("IQ2_S", 256, 82, decode=indexed.iq2_s),
  23: Format("IQ4_XS", 256, 136, decode=_iq4_xs),
  24: _plain("I8", dtypes.int8),
  25: _plain("I16", dtypes.int16),
  26: _plain("I32", dtypes.int32),
  27: _plain("I64", dtypes.int64),
  28: _plain("F64", dtypes.float64),
  29: Format("IQ1_M", 256, 56, decode=indexed.iq1_m),
  30: _plain("BF16", dtypes.bfloat16),
  34: Format("TQ1_0", 256, 54, decode=_tq1_0),
  35: Format("TQ2_0", 256, 66, decode=lambda b: (_pairs(b[:, :64]).flatten(1) - 1) * float_at(b, 64)),
  39: Format("MXFP4", 32, 17, decode=_mxfp4),
  40: Format("NVFP4", 64, 36, decode=_nvfp4),
}
# Q1_0 is new; the others are formats that ggml has given up
NOT_READ = {
  4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
  38: "IQ4_NL_8_8", 41: "Q1_0",
}  # fmt: skip


def format_of(ggml_type: int) -> Format:
  """The format of a type number. Raises ValueError, with its name, for one that is not read here."""
  if ggml_type not in FORMATS:
    name = NOT_READ.get(ggml_type)
    known = ", ".join(f.name for f in FORMATS.values())
    raise ValueError(f"ggml type {ggml_type} ({name or 'unknown'}) is not read here; known are {known}")
  return FORMATS[ggml_type]


def data_size(name: str, shape: tuple[int, ...], ggml_type: int) -> int:
  """The bytes that a tensor takes. Raises ValueError where its rows are no whole number of blocks."""
  how = format_of(ggml_type)
  if (shape[-1] if shape else 1) % how.elements:
    raise ValueError(
      f"tensor {name!r} of {how.name} has shape {shape}: its rows are no whole number of blocks of {how.elements}"
    )
  return math.prod(shape) // how.elements * how.nbytes


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
  """The first `n` numbers, of a type of ggml, in the bytes `t` (1-d, uint8): 1-d, float32 where they are quantised.

  Raises ValueError for a type that is not read here, for too few bytes, and for `n` that ends within a block.
  """
  return decoded(t, 0, (n,), ggml_type)


def decoded(t: Tensor, offset: int, shape: tuple[int, ...], ggml_type: int) -> Tensor:
  """A tensor that lies in the bytes `t` from `offset` on."""
  how, size = format_of(ggml_type), data_size("data", shape, ggml_type)
  if offset + size > t.numel():
    raise ValueError(f"{how.name} of shape {shape} at byte {offset} takes {size} bytes, there are {t.numel() - offset}")
  if how.decode is None or not size:
    return tensor_at(t, offset, how.dtype, shape)
  return GGMLBlocks(part_of(t, offset, size, (size,)), shape, how).numbers()


@dataclass(frozen=True)
class GGMLBlocks:
  """A tensor as it lies in a file: its bytes (1-d, uint8, a view of the mapped file), shape and number format.

  A row, along the last axis, is a whole number of blocks.
  """

  data: Tensor
  shape: tuple[int, ...]
  format: Format

  @classmethod
  def plain(cls, t: Tensor) -> "GGMLBlocks":
    """A tensor of float32, float16 or bfloat16 as blocks, a view of it. Raises ValueError for another dtype."""
    formats = [
      how for how in FORMATS.values() if how.decode is None and how.dtype is t.dtype and dtypes.is_float(t.dtype)
    ]
    if not formats or t.dtype is dtypes.float64:
      raise ValueError(f"it is of {t.dtype.name}, expected float32, float16 or bfloat16")
    return cls(t.flatten().bitcast(dtypes.uint8), tuple(int(n) for n in t.shape), formats[0])

  def on(self, device: str | None = None) -> Tensor:
    """The blocks, uint8 of shape (*shape[:-1], blocks of a row, bytes of a block), copied to a device that computes."""
    row = self.shape[-1] // self.format.elements if self.shape else 1
    data = in_memory(self.data) if device is None else self.data.to(device)
    return data.reshape(*self.shape[:-1], row, self.format.nbytes)

  def numbers(self) -> Tensor:
    """The numbers, of the shape: float32 of a quantised format, else those of the file."""
    if self.format.decode is None or 0 in self.shape:
      return tensor_at(self.data, 0, self.format.dtype, self.shape)
    return self.format.decode(in_memory(self.data).reshape(-1, self.format.nbytes)).reshape(self.shape)
