"""THREEFRY as 32-bit adds, rotations and exclusive ors (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy
as 1, 2, 3", SC'11).
"""

from __future__ import annotations

from tiny_codegen.decompose.arithmetic import to
from tiny_codegen.decompose.examples import MADE_OF_OTHERS
from tiny_uop import Ops, UOp, UPat, dtypes, rule

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(counter: UOp, key: UOp) -> UOp:
  """Threefry-2x32, 20 rounds; the low word of each uint64 is word 0."""
  x0, x1 = to(counter, dtypes.uint32), to(counter >> 32, dtypes.uint32)
  k0, k1 = to(key, dtypes.uint32), to(key >> 32, dtypes.uint32)
  keys = (k0, k1, k0 ^ k1 ^ _PARITY)
  x0, x1 = x0 + k0, x1 + k1
  for group in range(5):
    for rotation in _ROTATIONS[group % 2]:
      x0 = x0 + x1
      x1 = ((x1 << rotation) | (x1 >> (32 - rotation))) ^ x0
    x0 = x0 + keys[(group + 1) % 3]
    x1 = x1 + keys[(group + 2) % 3] + (group + 1)
  return (to(x1, dtypes.uint64) << 32) | to(x0, dtypes.uint64)


THREEFRY_RULES = (
  rule("threefry_rounds", UPat(Ops.THREEFRY, None, (UPat.var("counter"), UPat.var("key"))), threefry,
       grows=MADE_OF_OTHERS,
       example=lambda s: s.value(dtypes.uint64, 0).threefry(s.value(dtypes.uint64, 1)),
       near_miss=lambda s: s.value(dtypes.uint64, 0) ^ s.value(dtypes.uint64, 1)),
)  # fmt: skip
