"""ggml's formats taken apart number by number, as its description has them: what the graphs are tested against.

Each function gives the numbers of one block.
"""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from tiny_tensor.io import ggml_codebooks as books

IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
F = np.float32


def half(block: bytes, at: int) -> Any:
  return F(struct.unpack_from("<e", block, at)[0])


def q4_0(block: bytes) -> list[Any]:
  d, q = half(block, 0), block[2:]
  return [((q[i] & 15) - 8) * d for i in range(16)] + [((q[i] >> 4) - 8) * d for i in range(16)]


def q4_1(block: bytes) -> list[Any]:
  d, m, q = half(block, 0), half(block, 2), block[4:]
  return [(q[i] & 15) * d + m for i in range(16)] + [(q[i] >> 4) * d + m for i in range(16)]


def fives(block: bytes, at: int) -> list[int]:
  (high,) = struct.unpack_from("<I", block, at)
  q = block[at + 4 :]
  return [(q[i % 16] >> (4 * (i // 16)) & 15) | (high >> i & 1) << 4 for i in range(32)]


def q5_0(block: bytes) -> list[Any]:
  return [(q - 16) * half(block, 0) for q in fives(block, 2)]


def q5_1(block: bytes) -> list[Any]:
  return [q * half(block, 0) + half(block, 2) for q in fives(block, 4)]


def q8_0(block: bytes) -> list[Any]:
  return [q * half(block, 0) for q in struct.unpack_from("<32b", block, 2)]


def q8_1(block: bytes) -> list[Any]:
  return [q * half(block, 0) for q in struct.unpack_from("<32b", block, 4)]


def q8_k(block: bytes) -> list[Any]:
  return [q * F(struct.unpack_from("<f", block)[0]) for q in struct.unpack_from("<256b", block, 4)]


def q2_k(block: bytes) -> list[Any]:
  scales, q, d, least = block[:16], block[16:80], half(block, 80), half(block, 82)
  out = []
  for i in range(256):
    part, pair, at = i // 128, i % 128 // 32, i % 32
    scale = scales[i // 16]
    out.append(d * (scale & 15) * (q[part * 32 + at] >> (2 * pair) & 3) - least * (scale >> 4))
  return out


def q3_k(block: bytes) -> list[Any]:
  mask, q, packed, d = block[:32], block[32:96], block[96:108], half(block, 108)
  scales = []
  for k in range(16):
    low = packed[k] & 15 if k < 8 else packed[k - 8] >> 4
    scales.append((low | (packed[8 + k % 4] >> (2 * (k // 4)) & 3) << 4) - 32)
  out = []
  for i in range(256):
    part, pair, at = i // 128, i % 128 // 32, i % 32
    bit = mask[at] >> (part * 4 + pair) & 1
    out.append(d * scales[i // 16] * ((q[part * 32 + at] >> (2 * pair) & 3) - (0 if bit else 4)))
  return out


def sixes(packed: bytes, j: int) -> tuple[int, int]:
  if j < 4:
    return packed[j] & 63, packed[j + 4] & 63
  return (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6) << 4


def q4_k(block: bytes) -> list[Any]:
  d, least, q = half(block, 0), half(block, 2), block[16:]
  out = []
  for i in range(256):
    scale, minimum = sixes(block[4:16], i // 32)
    number = q[i // 64 * 32 + i % 32] >> (4 * (i // 32 % 2)) & 15
    out.append(d * scale * number - least * minimum)
  return out


def q5_k(block: bytes) -> list[Any]:
  d, least, high, q = half(block, 0), half(block, 2), block[16:48], block[48:]
  out = []
  for i in range(256):
    scale, minimum = sixes(block[4:16], i // 32)
    number = q[i // 64 * 32 + i % 32] >> (4 * (i // 32 % 2)) & 15
    out.append(d * scale * (number + 16 * (high[i % 32] >> (i // 32) & 1)) - least * minimum)
  return out


def q6_k(block: bytes) -> list[Any]:
  low, high, scales, d = block[:128], block[128:192], struct.unpack_from("<16b", block, 192), half(block, 208)
  out = np.zeros(256, F)
  for part in range(2):
    for i in range(32):
      a, b, c = low[part * 64 + i], low[part * 64 + 32 + i], high[part * 32 + i]
      numbers = [a & 15 | (c & 3) << 4, b & 15 | (c >> 2 & 3) << 4, a >> 4 | (c >> 4 & 3) << 4, b >> 4 | (c >> 6) << 4]
      for j, number in enumerate(numbers):
        out[part * 128 + j * 32 + i] = d * scales[part * 8 + i // 16 + 2 * j] * (number - 32)
  return list(out)


def iq4_nl(block: bytes) -> list[Any]:
  d, q = half(block, 0), block[2:]
  return [IQ4[q[i] & 15] * d for i in range(16)] + [IQ4[q[i] >> 4] * d for i in range(16)]


def iq4_xs(block: bytes) -> list[Any]:
  d, (high,), low, q = half(block, 0), struct.unpack_from("<H", block, 2), block[4:8], block[8:]
  out: list[Any] = []
  for k in range(8):
    scale = (low[k // 2] >> (4 * (k % 2)) & 15 | (high >> (2 * k) & 3) << 4) - 32
    part = q[k * 16 : k * 16 + 16]
    out += [d * scale * IQ4[x & 15] for x in part] + [d * scale * IQ4[x >> 4] for x in part]
  return out


def tq1_0(block: bytes) -> list[Any]:
  d, out = half(block, 52), []
  for begin, end, digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
    for n in range(digits):
      for byte in block[begin:end]:
        shifted = byte * (1, 3, 9, 27, 81)[n] % 256
        out.append(((shifted * 3 >> 8) - 1) * d)
  return out


def tq2_0(block: bytes) -> list[Any]:
  d, out = half(block, 64), []
  for begin in (0, 32):
    for pair in range(4):
      out += [((byte >> (2 * pair) & 3) - 1) * d for byte in block[begin : begin + 32]]
  return out


def mxfp4(block: bytes) -> list[Any]:
  def number(q: int) -> Any:  # sign, 2 bits of exponent, 1 of fraction
    exponent, fraction = q >> 1 & 3, q & 1
    size = fraction * 0.5 if exponent == 0 else (1 + fraction * 0.5) * 2.0 ** (exponent - 1)
    return F((-size if q >> 3 else size) * 2.0 ** (block[0] - 127))

  return [number(q & 15) for q in block[1:]] + [number(q >> 4) for q in block[1:]]


def nvfp4(block: bytes) -> list[Any]:
  table, out = [0, 0.5, 1, 1.5, 2, 3, 4, 6], []
  for k in range(4):
    exponent, fraction = block[k] >> 3 & 15, block[k] & 7
    scale = fraction * 2.0**-9 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
    q = block[4 + 8 * k : 12 + 8 * k]
    numbers = [x & 15 for x in q] + [x >> 4 for x in q]
    out += [F((-table[n & 7] if n & 8 else table[n]) * scale * (block[k] != 127)) for n in numbers]
  return out


def group(book: books.Codebook, index: int) -> list[int]:
  return [x - 256 if x > 127 else x for x in book.numbers[index * book.width : (index + 1) * book.width]]


def evened(seven: int) -> int:
  return seven | (seven.bit_count() & 1) << 7


def negated(numbers: list[int], signs: int) -> list[int]:
  return [-x if signs >> i & 1 else x for i, x in enumerate(numbers)]


def iq2_xxs(block: bytes) -> list[Any]:
  out = []
  for k in range(8):
    *indices, word = struct.unpack_from("<4BI", block, 2 + 8 * k)
    for i, index in enumerate(indices):
      numbers = negated(group(books.IQ2_XXS, index), evened(word >> 7 * i & 127))
      out += [half(block, 0) * F(0.25 * (0.5 + (word >> 28))) * x for x in numbers]
  return out


def iq2_xs(block: bytes) -> list[Any]:
  out = []
  for i, word in enumerate(struct.unpack_from("<32H", block, 2)):
    scale = 0.25 * (0.5 + (block[66 + i // 4] >> 4 * (i // 2 % 2) & 15))
    out += [half(block, 0) * F(scale) * x for x in negated(group(books.IQ2_XS, word & 511), evened(word >> 9))]
  return out


def iq2_s(block: bytes) -> list[Any]:
  out = []
  for i in range(32):
    index = block[2 + i] | (block[66 + i // 4] >> 2 * (i % 4) & 3) << 8
    scale = 0.25 * (0.5 + (block[74 + i // 4] >> 4 * (i // 2 % 2) & 15))
    out += [half(block, 0) * F(scale) * x for x in negated(group(books.IQ2_S, index), block[34 + i])]
  return out


def iq3_xxs(block: bytes) -> list[Any]:
  out = []
  for i in range(32):
    (word,) = struct.unpack_from("<I", block, 66 + i // 4 * 4)
    numbers = group(books.IQ3_XXS, block[2 + 2 * i]) + group(books.IQ3_XXS, block[3 + 2 * i])
    scale = half(block, 0) * F(0.5 * (0.5 + (word >> 28)))
    out += [scale * x for x in negated(numbers, evened(word >> 7 * (i % 4) & 127))]
  return out


def iq3_s(block: bytes) -> list[Any]:
  out = []
  for i in range(32):
    indices = [block[2 + n] | (block[66 + n // 8] >> n % 8 & 1) << 8 for n in (2 * i, 2 * i + 1)]
    numbers = group(books.IQ3_S, indices[0]) + group(books.IQ3_S, indices[1])
    scale = half(block, 0) * (1 + 2 * (block[106 + i // 8] >> 4 * (i // 4 % 2) & 15))
    out += [scale * x for x in negated(numbers, block[74 + i])]
  return out


def iq1_s(block: bytes) -> list[Any]:
  out = []
  for i in range(32):
    (word,) = struct.unpack_from("<H", block, 34 + i // 4 * 2)
    shift = -0.125 if word >> 15 else 0.125
    scale = half(block, 0) * (2 * (word >> 12 & 7) + 1)
    out += [scale * F(x + shift) for x in group(books.IQ1, block[2 + i] | (word >> 3 * (i % 4) & 7) << 8)]
  return out


def iq1_m(block: bytes) -> list[Any]:
  out, scales = [], struct.unpack_from("<4H", block, 48)
  d = half(struct.pack("<H", sum(word >> 12 << 4 * k for k, word in enumerate(scales))), 0)
  for i in range(32):
    high = block[32 + i // 2] >> 4 * (i % 2) & 15
    scale = d * (2 * (scales[i // 8] >> 3 * (i // 2 % 4) & 7) + 1)
    numbers = group(books.IQ1, block[i] | (high & 7) << 8)
    out += [scale * F(x + (-0.125 if high & 8 else 0.125)) for x in numbers]
  return out


# number of the type: (name, elements, bytes, where its floats of 16 bits are, function)
BLOCKS: dict[int, tuple[str, int, int, tuple[int, ...], Callable[[bytes], list[Any]]]] = {
  2: ("Q4_0", 32, 18, (0,), q4_0),
  3: ("Q4_1", 32, 20, (0, 2), q4_1),
  6: ("Q5_0", 32, 22, (0,), q5_0),
  7: ("Q5_1", 32, 24, (0, 2), q5_1),
  8: ("Q8_0", 32, 34, (0,), q8_0),
  9: ("Q8_1", 32, 36, (0, 2), q8_1),
  10: ("Q2_K", 256, 84, (80, 82), q2_k),
  11: ("Q3_K", 256, 110, (108,), q3_k),
  12: ("Q4_K", 256, 144, (0, 2), q4_k),
  13: ("Q5_K", 256, 176, (0, 2), q5_k),
  14: ("Q6_K", 256, 210, (208,), q6_k),
  15: ("Q8_K", 256, 292, (), q8_k),
  16: ("IQ2_XXS", 256, 66, (0,), iq2_xxs),
  17: ("IQ2_XS", 256, 74, (0,), iq2_xs),
  18: ("IQ3_XXS", 256, 98, (0,), iq3_xxs),
  19: ("IQ1_S", 256, 50, (0,), iq1_s),
  20: ("IQ4_NL", 32, 18, (0,), iq4_nl),
  21: ("IQ3_S", 256, 110, (0,), iq3_s),
  22: ("IQ2_S", 256, 82, (0,), iq2_s),
  23: ("IQ4_XS", 256, 136, (0,), iq4_xs),
  29: ("IQ1_M", 256, 56, (), iq1_m),
  34: ("TQ1_0", 256, 54, (52,), tq1_0),
  35: ("TQ2_0", 256, 66, (64,), tq2_0),
  39: ("MXFP4", 32, 17, (), mxfp4),
  40: ("NVFP4", 64, 36, (), nvfp4),
}


def random_blocks(kind: int, count: int, seed: int = 0) -> tuple[bytes, Any]:
  """Blocks of random bits with reasonable scales, and the numbers in them."""
  _, _, nbytes, halves, function = BLOCKS[kind]
  rng = np.random.default_rng(kind + 100 * seed)
  blocks = rng.integers(0, 256, (count, nbytes), dtype=np.uint8)
  for at in halves:
    blocks[:, at : at + 2] = rng.uniform(-2, 2, (count, 1)).astype("<f2").view(np.uint8)
  if kind == 15:
    blocks[:, :4] = rng.uniform(-2, 2, (count, 1)).astype("<f4").view(np.uint8)
  if kind == 29:  # a quarter of the float in each highest half of a byte
    bits = rng.uniform(-2, 2, count).astype("<f2").view(np.uint16)
    for i in range(4):
      blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (bits >> 4 * i & 15) << 4
  if kind == 39:
    blocks[:, 0] = [0, 1, 2, 127, 250][:count]
  raw = blocks.tobytes()
  return raw, np.array([function(raw[i * nbytes : (i + 1) * nbytes]) for i in range(count)], F).reshape(-1)
