"""Digests of the bytes of tensors, by a kernel written by hand.

Keccak: Bertoni, Daemen, Peeters and Van Assche, "The Keccak reference", 2011; SHA-3 and SHAKE as in NIST's FIPS 202.
"""

from __future__ import annotations

from typing import Self

from tiny_tensor.base import TensorBase
from tiny_tensor.custom_kernel import Memory
from tiny_uop import AddrSpace, UOp, dtypes, prod

STATE = 200
"""Bytes of Keccak's state: 25 lanes of 64 bits."""
LANES = 25
ROUNDS = 24
SUFFIX_SHA3, SUFFIX_SHAKE = 0x06, 0x1F
"""What follows the message, with the first bit of the padding: bits from the lowest one on."""

# bytes that a block takes up, and what follows the message
VARIANTS: dict[str, tuple[int, int]] = {
  "sha3_224": (144, SUFFIX_SHA3), "sha3_256": (136, SUFFIX_SHA3), "sha3_384": (104, SUFFIX_SHA3),
  "sha3_512": (72, SUFFIX_SHA3), "shake_128": (168, SUFFIX_SHAKE), "shake_256": (136, SUFFIX_SHAKE),
}  # fmt: skip

PIECE, DIGEST = 1 << 12, 16
"""Bytes that `hash` takes at a time, and what it makes of them: PIECE / DIGEST digests are a piece again."""


def _rotations() -> list[int]:
  """By how many bits lane x + 5 y turns to the left (FIPS 202, algorithm 2)."""
  turns, x, y = [0] * LANES, 1, 0
  for t in range(ROUNDS):
    turns[x + 5 * y] = (t + 1) * (t + 2) // 2 % 64
    x, y = y, (2 * x + 3 * y) % 5
  return turns


def _round_constants() -> list[int]:
  """What is added to lane 0 in each round: bits 2^j - 1 from a shift register (FIPS 202, algorithms 5 and 6)."""
  register, constants = 1, []
  for _ in range(ROUNDS):
    value = 0
    for j in range(7):
      value |= (register & 1) << ((1 << j) - 1)
      register = register << 1 ^ (0x171 if register & 0x80 else 0)
    constants.append(value)
  return constants


ROTATIONS = _rotations()
ROUND_CONSTANTS = _round_constants()


def turned(lane: UOp, by: int) -> UOp:
  """A lane with its bits turned to the left."""
  return (lane << by) | (lane >> (64 - by)) if by else lane


def keccak_round(lanes: list[UOp], constant: UOp) -> list[UOp]:
  """One round of Keccak-f[1600] on the lanes x + 5 y: θ, ρ and π, χ, ι."""
  columns = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in range(5)]
  around = [columns[(x - 1) % 5] ^ turned(columns[(x + 1) % 5], 1) for x in range(5)]
  moved = {}
  for x in range(5):
    for y in range(5):
      moved[y, (2 * x + 3 * y) % 5] = turned(lanes[x + 5 * y] ^ around[x], ROTATIONS[x + 5 * y])
  ones = constant.const_like((1 << 64) - 1)
  out = [moved[x, y] ^ ((moved[(x + 1) % 5, y] ^ ones) & moved[(x + 2) % 5, y]) for y in range(5) for x in range(5)]
  return [out[0] ^ constant, *out[1:]]


def absorb(out: Memory, data: Memory, constants: Memory) -> UOp:
  """The state (messages, 25) once all blocks of `data`, (messages, blocks, lanes), have gone through it."""
  messages, blocks, rate = data.shape
  message, step = UOp.range(messages, 0), UOp.range(blocks * ROUNDS, 1)
  state = UOp.alloc(0, dtypes.uint64.ptr(LANES, AddrSpace.REG)).after(message)
  zero = UOp.const(dtypes.uint64, 0)
  begun = UOp.group(*[state.index(i).store(zero) for i in range(LANES)])
  inside = state.after(begun, step)
  number, first = step % ROUNDS, (step % ROUNDS).eq(0)
  lanes = [inside.index(i).load() for i in range(LANES)]
  block = [data.at(message, step // ROUNDS, i, gate=first).load(zero) for i in range(rate)]
  lanes = [lane ^ block[i] if i < rate else lane for i, lane in enumerate(lanes)]
  made = keccak_round(lanes, constants[number].load())
  stored = UOp.group(*[inside.index(i).store(lane) for i, lane in enumerate(made)]).end(step)
  done = state.after(stored)
  return UOp.group(*[out[message, i].store(done.index(i).load()) for i in range(LANES)]).end(message)


class HashMixin(TensorBase):
  """keccak and hash."""

  __slots__ = ()

  def keccak(self, cfg: str | tuple[int, int] = "sha3_256") -> Self:
    """uint8 `(…, bytes)`: the digest of the bytes along the last axis, by "sha3_224", "sha3_256", "sha3_384",
    "sha3_512", "shake_128" (16 bytes) or "shake_256" (32 bytes); or by (bytes that a block takes up, a multiple of 8
    below 200; what follows the message, 1 to 127), whose digest is half as long as the rest of the 200 bytes.

    `Tensor(b"abc").keccak()` is `hashlib.sha3_256(b"abc")`. Raises ValueError for another `cfg`, and a tensor without
    axes.
    """
    if isinstance(cfg, str) and cfg not in VARIANTS:
      raise ValueError(f"keccak knows no {cfg!r}: expected one of {', '.join(VARIANTS)}, or (rate, suffix)")
    rate, suffix = VARIANTS[cfg] if isinstance(cfg, str) else cfg
    if not 0 < rate < STATE or rate % 8 or not 0 < suffix < 128:
      raise ValueError(f"keccak takes a rate that is a multiple of 8 below {STATE} and a suffix of 7 bits, got {cfg}")
    if not self.ndim:
      raise ValueError("keccak takes the bytes along the last axis, and this tensor has no axes")
    lead, size = self.shape[:-1], (STATE - rate) // 2
    messages, length = int(prod(lead)), int(self.shape[-1]) * self.dtype.itemsize
    if not messages:
      return self.full((*lead, size), 0, dtypes.uint8, self.device)
    end = bytearray(rate - length % rate)
    end[0] |= suffix
    end[-1] |= 0x80
    data = self._make_like(bytes(end)).expand(messages, len(end))
    if length:
      data = self.bitcast(dtypes.uint8).reshape(messages, length).cat(data, dim=1)
    blocks = data.contiguous().bitcast(dtypes.uint64).reshape(messages, (length + len(end)) // rate, rate // 8)
    constants = b"".join(c.to_bytes(8, "little") for c in ROUND_CONSTANTS)
    out = self.empty(messages, LANES, dtype=dtypes.uint64, device=self.device)
    state = out.custom_kernel(blocks, self._make_like(constants).bitcast(dtypes.uint64), fxn=absorb)[0]
    return state.contiguous().bitcast(dtypes.uint8).shrink(((0, messages), (0, size))).reshape(*lead, size)

  def hash(self) -> Self:
    """uint8 `(16,)`: a digest of all bytes: of each 4096 its shake_128, of 256 of these that again, and so on of
    2^20 bytes each until one digest is left. Zeros stand in for what is missing of 2^20 bytes, so bytes that end in
    zeros have the same digest without them."""
    data = self.bitcast(dtypes.uint8).flatten() if self.ndim else self.reshape(1).bitcast(dtypes.uint8)
    per_chunk = PIECE // DIGEST
    while True:
      length = int(data.shape[0])
      chunks = max(-(-length // (PIECE * per_chunk)), 1)
      pieces = -(-length // PIECE)
      found = data.pad(((0, pieces * PIECE - length),)).reshape(pieces, PIECE).keccak("shake_128")
      import hashlib  # late: it loads OpenSSL

      empty = hashlib.shake_128(bytes(PIECE)).digest(DIGEST) * (chunks * per_chunk - pieces)
      rest = self._make_like(empty).reshape(-1, DIGEST)
      data = found.cat(rest, dim=0).reshape(chunks, PIECE).keccak("shake_128").flatten()
      if chunks == 1:
        return data

  def _make_like(self, data: bytes) -> Self:
    """Bytes as a tensor on this one's device."""
    return type(self)(data, device=self.device)  # type: ignore[call-arg]
