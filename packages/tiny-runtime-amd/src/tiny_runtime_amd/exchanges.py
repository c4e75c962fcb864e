"""How threads of a wave get each other's words, without shared memory: the instructions of the ISA manuals' sections on
data-parallel processing (DPP), lane permutation and "LDS: data sharing without memory".
"""

from __future__ import annotations

from tiny_codegen.render.llvm.shuffle import Exchange

DPP = "call i32 @llvm.amdgcn.update.dpp.i32(i32 {{x}}, i32 {{x}}, i32 {control}, i32 15, i32 15, i1 true)"
"""A word that the next instruction reads from another lane of the same row of 16, at no cost of its own."""
QUAD_1, QUAD_2 = 0b10_11_00_01, 0b01_00_11_10
"""Each lane of four takes from the place that its two bits say: 1, 0, 3, 2 and 2, 3, 0, 1."""
ROW_ROTATED_BY_8 = 0x128
ROW_XMASK = 0x160
"""RDNA: from the lane whose number in the row differs by the bits added to this."""
SWIZZLE = "call i32 @llvm.amdgcn.ds.swizzle(i32 {{x}}, i32 {control})"
"""A word by way of the crossbar of shared memory, from a lane among 32: its control has the bits to flip at bit 10."""
ALL_BITS = 0x1F
OTHER_ROW = (
  "call i32 @llvm.amdgcn.permlanex16(i32 {x}, i32 {x}, i32 1985229328, i32 -19088744, i1 false, i1 false)"  # 0 to 15
)
"""RDNA: from the same place in the other row of 16."""
OTHER_HALF = (
  "call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 32)",
  "call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 {0})",
  "shl i32 {1}, 2",
  "call i32 @llvm.amdgcn.ds.bpermute(i32 {2}, i32 {x})",
)
"""From the lane whose number is 32 more; behind the last of 64 comes the first."""


def exchanges(subgroup_size: int) -> tuple[Exchange, ...]:
  """Those of a wave of 32 threads (RDNA) or of 64 (CDNA)."""
  if subgroup_size == 32:
    rows = [Exchange(1 << bit, (DPP.format(control=ROW_XMASK + (1 << bit)),)) for bit in range(4)]
    return (*rows, Exchange(16, (OTHER_ROW,)))
  return (
    Exchange(1, (DPP.format(control=QUAD_1),)),
    Exchange(2, (DPP.format(control=QUAD_2),)),
    Exchange(4, (SWIZZLE.format(control=(4 << 10) + ALL_BITS),)),
    Exchange(8, (DPP.format(control=ROW_ROTATED_BY_8),)),
    Exchange(16, (SWIZZLE.format(control=(16 << 10) + ALL_BITS),)),
    Exchange(32, OTHER_HALF),
  )
