"""The matrix instructions of tensor cores: which thread holds what, from the PTX ISA's "Matrix fragments for mma"."""

from __future__ import annotations

from tiny_codegen import Fragment, TensorCore
from tiny_codegen.render.llvm_matrix import MatrixInstruction
from tiny_runtime_nv.arch import Arch
from tiny_uop import DType, dtypes

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

AMPERE = (BFLOAT16, FLOAT16, _bytes(dtypes.int8, "s8", False), _bytes(dtypes.uint8, "u8", False), FLOAT64)
TURING = (FLOAT16_SHORT, _bytes(dtypes.int8, "s8", True), _bytes(dtypes.uint8, "u8", True))


def matrix_instructions(arch: Arch) -> tuple[MatrixInstruction, ...]:
  """Those of an architecture. All of them are exact but for the order of sums, which is the hardware's."""
  return AMPERE if arch.capability >= (8, 0) else TURING
