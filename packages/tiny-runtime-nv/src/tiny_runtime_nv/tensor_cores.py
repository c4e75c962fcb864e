"""The matrix instructions of tensor cores: which thread holds what, from the PTX ISA's "Matrix fragments for mma"."""

from __future__ import annotations

from dataclasses import replace

from tiny_codegen import Fragment, SharedOperand, TensorCore
from tiny_codegen.render.llvm.matrix import SHARED, MatrixInstruction, SharedMatrixInstruction
from tiny_runtime_nv.arch import Arch
from tiny_uop import DType, Ops, UOp, dtypes

THREADS = 32
# In the manual's words: groupID = lane / 4 counts rows of A and C and columns of B, threadID_in_group = lane % 4 the
# other way. An accumulator has pairs of neighbouring columns, the second pair eight rows below
C = Fragment(((4, 0, 2), (8, 1, 0)), ((2, 0, 1), (2, 8, 0)))
A16, B16 = (
  Fragment(((4, 0, 2), (8, 1, 0)), ((2, 0, 1), (2, 8, 0), (2, 0, 8))),
  Fragment(((4, 2, 0), (8, 0, 1)), ((2, 1, 0), (2, 8, 0))),
)
A16_SHORT, B16_SHORT = (
  Fragment(((4, 0, 2), (8, 1, 0)), ((2, 0, 1), (2, 8, 0))),
  Fragment(((4, 2, 0), (8, 0, 1)), ((2, 1, 0),)),
)
A8, B8 = (
  Fragment(((4, 0, 4), (8, 1, 0)), ((4, 0, 1), (2, 8, 0), (2, 0, 16))),
  Fragment(((4, 4, 0), (8, 0, 1)), ((4, 1, 0), (2, 16, 0))),
)
A8_SHORT, B8_SHORT = Fragment(((4, 0, 4), (8, 1, 0)), ((4, 0, 1),)), Fragment(((4, 4, 0), (8, 0, 1)), ((4, 1, 0),))
C8 = Fragment(((4, 0, 2), (8, 1, 0)), ((2, 0, 1),))
A64, B64 = Fragment(((4, 0, 1), (8, 1, 0)), ()), Fragment(((4, 1, 0), (8, 0, 1)), ())

HALVES, WORD, SINGLE, DOUBLE = ("<2 x half>", 32), ("i32", 32), ("float", 32), ("double", 64)


def _mma(
  dims: tuple[int, int, int], types: tuple[DType, DType], fragments: tuple[Fragment, Fragment, Fragment],
  kind: str, pieces: tuple[tuple[str, int], tuple[str, int]],
) -> MatrixInstruction:  # fmt: skip
  """`dims` are (M, N, K), as PTX writes them; `pieces` what the operands, and the accumulator, are passed as."""
  m, n, k = dims
  core = TensorCore((n, m, k), THREADS, *types, *fragments)
  name = f"llvm.nvvm.mma.m{m}n{n}k{k}.row.col.{kind}"
  return MatrixInstruction(core, name, (pieces[0], pieces[0], pieces[1]))


def _bytes(dtype: DType, kind: str, short: bool) -> MatrixInstruction:
  dims = (8, 8, 16) if short else (16, 8, 32)
  fragments = (A8_SHORT, B8_SHORT, C8) if short else (A8, B8, C)
  return _mma(dims, (dtype, dtypes.int32), fragments, kind, (WORD, WORD))


BFLOAT16 = _mma((16, 8, 16), (dtypes.bfloat16, dtypes.float32), (A16, B16, C), "bf16", (WORD, SINGLE))
FLOAT16 = _mma((16, 8, 16), (dtypes.float16, dtypes.float32), (A16, B16, C), "f32.f32", (HALVES, SINGLE))
FLOAT16_SHORT = _mma(
  (16, 8, 8), (dtypes.float16, dtypes.float32), (A16_SHORT, B16_SHORT, C), "f32.f32", (HALVES, SINGLE)
)
FLOAT64 = _mma((8, 8, 4), (dtypes.float64, dtypes.float64), (A64, B64, C8), "f64", (DOUBLE, DOUBLE))

WARPGROUP = 128
# "Register fragments for wgmma.mma_async.m64nNk16", matrix D: warp w of the warpgroup has rows 16·w …, and in those the
# layout of mma, of which N / 8 stand side by side
ROWS_OF_WARPS = ((4, 0, 2), (8, 1, 0), (4, 16, 0))
SWIZZLE_128 = 1 << 62
"""Bits 63-62 of a descriptor, "Matrix Descriptor Format": swizzling of 128 bytes."""


def shared_descriptor(operand: SharedOperand) -> int:
  """A matrix descriptor without its address ("Matrix Descriptor Format": offsets in bytes >> 4).

  Bits 16-29, the leading dimension's offset: from one block of 128 bytes by all rows to the next, which matters only
  where what is adjacent does not go along the sum; along the sum an instruction takes 32 bytes. Bits 32-45, the stride
  dimension's: from 8 rows of 128 bytes to the next 8. Bits 49-51, the base's offset, are 0: 8 rows begin at multiples
  of 1024 bytes.
  """
  leading = 1 if operand.along_sum else operand.block >> 4
  return leading << 16 | (8 * 128 >> 4) << 32 | SWIZZLE_128


def _wgmma(dtype: DType, kind: str, n: int) -> SharedMatrixInstruction:
  layout = Fragment(ROWS_OF_WARPS, ((2, 0, 1), (2, 8, 0), (n // 8, 0, 8)))
  nothing = Fragment((), ())
  core = TensorCore((n, 64, 16), WARPGROUP, dtype, dtypes.float32, nothing, nothing, layout, SHARED)
  # behind the descriptors: add to what is there, multiply neither by -1
  operands = "{c}, {a}, {b}, 1, 1, 1, {a_transposed}, {b_transposed};"
  product = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {operands}"
  wait = "wgmma.wait_group.sync.aligned {pending};"
  after = f"wgmma.commit_group.sync.aligned; {wait}"
  return SharedMatrixInstruction(core, product, "wgmma.fence.sync.aligned;", after, wait, 4, 0x3FFF, shared_descriptor)


HOPPER = tuple([
  _wgmma(dtype, kind, n)
  for n in (256, 128, 64) for dtype, kind in ((dtypes.bfloat16, "bf16"), (dtypes.float16, "f16"))
])  # fmt: skip
"""wgmma, which sm_90a has and nobody else: with both operands in shared memory."""

A32 = Fragment(((4, 0, 1), (8, 1, 0)), ((2, 8, 0), (2, 0, 4)))
B32 = Fragment(((4, 1, 0), (8, 0, 1)), ((2, 4, 0),))
TF32 = replace(
  _mma((16, 8, 8), (dtypes.float32, dtypes.float32), (A32, B32, C), "tf32", (WORD, SINGLE)),
  convert="llvm.nvvm.f2tf32.rna",
)
"""Of numbers that are rounded to nearest first, ties away from zero: the instruction itself ignores 13 bits of them."""
FLOAT8 = tuple([
  _mma((16, 8, 32), (dtype, dtypes.float32), (A8, B8, C), f"f32.{kind}.{kind}.f32", (WORD, SINGLE))
  for dtype, kind in ((dtypes.fp8e4m3, "e4m3"), (dtypes.fp8e5m2, "e5m2"))
])  # fmt: skip
PTX_OF_FLOAT8 = 84
"""The first version of PTX with these, ×10: later than the first one that knows their architectures."""

AMPERE = (BFLOAT16, FLOAT16, _bytes(dtypes.int8, "s8", False), _bytes(dtypes.uint8, "u8", False), FLOAT64)
TURING = (FLOAT16_SHORT, _bytes(dtypes.int8, "s8", True), _bytes(dtypes.uint8, "u8", True))


def shared_matrix_instructions(arch: Arch) -> tuple[SharedMatrixInstruction, ...]:
  """Those of an architecture that read shared memory themselves."""
  return HOPPER if arch.name == "sm_90a" else ()


def matrix_instructions(arch: Arch, tf32: bool = False) -> tuple[MatrixInstruction, ...]:
  """Those of an architecture. All of them are exact but for the order of sums, and how precise they are, which is the
  hardware's; `tf32`: and one that rounds float32."""
  if arch.capability < (8, 0):
    return TURING
  return (*AMPERE, *(FLOAT8 if arch.capability >= (8, 9) else ()), *((TF32,) if tf32 else ()))


def version_needed(linear: UOp) -> int:
  """The version of PTX that the tensor cores of a program need, ×10; 0: any."""
  used = {u.arg for u in linear.src if u.op is Ops.MMA}
  return PTX_OF_FLOAT8 if any(m.core in used for m in FLOAT8) else 0
