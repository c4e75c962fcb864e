"""Instructions that some processors have for an op and that LLVM gives intrinsics of their own, as data."""

from __future__ import annotations

from typing import NamedTuple

from tiny_codegen.render.llvm.text import value_type
from tiny_uop import DType, Ops, dtypes


class Instruction(NamedTuple):
  """An intrinsic for an op on vectors of one type. `extra` are the (type, operand) arguments behind the op's own."""

  op: Ops
  dtype: DType
  name: str
  extra: tuple[tuple[str, str], ...] = ()


def _scale(kind: str, dtype: DType, bits: int) -> Instruction:
  """x·2ⁿ on AVX-512: all lanes, rounded as usual."""
  vector = dtype.vec(bits // dtype.bits)
  always = (f"i{max(8, vector.count)}", "-1")
  rounding = (("i32", "4"),) if bits == 512 else ()
  extra = ((value_type(vector), "zeroinitializer"), always, *rounding)
  return Instruction(Ops.LDEXP, vector, f"llvm.x86.avx512.mask.scalef.{kind}.{bits}", extra)


AVX512 = tuple(
  _scale(kind, dtype, bits)
  for kind, dtype in (("ps", dtypes.float32), ("pd", dtypes.float64))
  for bits in (512, 256, 128)
)
"""For processors with AVX512F and AVX512VL."""


def fitting(instructions: tuple[Instruction, ...], op: Ops, dtype: DType) -> Instruction | None:
  """The one for the fewest pieces of a value, and of these for the fewest lanes; None if there is none for its type."""
  usable = [i for i in instructions if i.op is op and i.dtype.scalar() is dtype.scalar()]
  return min(usable, key=lambda i: (-(-dtype.count // i.dtype.count), i.dtype.count), default=None)
