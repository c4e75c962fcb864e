"""Matrix instructions: WMMA of RDNA 3 and 4, MFMA of CDNA 2 to 4.

Which thread holds what is in AMD's manuals of the instruction sets ("RDNA3 ISA", 7.9, "RDNA4 ISA", 7.12, "CDNA3 ISA",
7.1; CDNA 2 has a part of the latter). In all of them a lane has a row of A, or a column of B, and some of its elements
along the sum; and some rows of a column of C.
"""

from __future__ import annotations

from tiny_codegen import Fragment, TensorCore
from tiny_codegen.render.llvm.matrix import MatrixInstruction
from tiny_runtime_amd.arch import Arch
from tiny_uop import DType, dtypes

Piece = tuple[str, int]
MODES = ("a", "b", "c", "i32 0", "i32 0", "i32 0")
"""MFMA: no broadcast, no permutation."""
SIGNED = ("i1 true", "a", "i1 true", "b", "c", "i1 false")
"""Integer WMMA: both operands have a sign, and sums wrap."""
UNSIGNED = ("i1 false", "a", "i1 false", "b", "c", "i1 false")


def _core(
  threads: int, side: int, depth: int, types: tuple[DType, DType], own: int, rows: tuple[tuple[int, int, int], ...],
  elements: tuple[tuple[int, int, int], ...],
) -> TensorCore:  # fmt: skip
  """`side` × `side` results of sums of `depth`: a lane has `own` terms of the sum. Groups of `side` lanes are the digit
  `rows` of C and `elements` its elements."""
  groups = threads // side
  apart = own if own * groups == depth else 0  # else all groups hold the same
  a = Fragment(((side, 1, 0), (groups, 0, apart)), ((own, 0, 1),))
  b = Fragment(((side, 0, 1), (groups, apart, 0)), ((own, 1, 0),))
  return TensorCore((side, side, depth), threads, *types, a, b, Fragment(((side, 0, 1), *rows), elements))


def _mfma(side: int, depth: int, types: tuple[DType, DType], name: str, own: Piece, c: Piece) -> MatrixInstruction:
  groups, terms = 64 // side, depth * side // 64
  blocks = side * side // 64 // 4  # C has four neighbouring rows for each group of lanes, and this `blocks` times
  elements: tuple[tuple[int, int, int], ...] = ((4, 1, 0),) if blocks == 1 else ((4, 1, 0), (blocks, 4 * groups, 0))
  core = _core(64, side, depth, types, terms, ((groups, 4, 0),), elements)
  return MatrixInstruction(core, f"llvm.amdgcn.mfma.{name}", (own, own, c), MODES)


def _wmma(own: int, types: tuple[DType, DType], name: str, a: Piece, c: Piece, *order: str) -> MatrixInstruction:
  """RDNA 3 has all 16 terms in each half of a wave, and every second row of C; RDNA 4 eight and eight neighbours. LLVM
  22 takes RDNA 3's instructions for such as any lane may carry out, and moves them behind a branch on who stores."""
  rows, elements = (((2, 1, 0),), ((8, 2, 0),)) if own == 16 else (((2, 8, 0),), ((8, 1, 0),))
  core = _core(32, 16, 16, types, own, rows, elements)
  return MatrixInstruction(
    core, f"llvm.amdgcn.wmma.{name}", (a, a, c), order or ("a", "b", "c"), held="v" if own == 16 else ""
  )


HALF, BFLOAT = (dtypes.float16, dtypes.float32), (dtypes.bfloat16, dtypes.float32)
BYTES, UBYTES, DOUBLE = (dtypes.int8, dtypes.int32), (dtypes.uint8, dtypes.int32), (dtypes.float64, dtypes.float64)
F4, F8, F16, I4, I8 = ("<4 x float>", 128), ("<8 x float>", 256), ("<16 x float>", 512), ("<4 x i32>", 128), (
  "<8 x i32>", 256)  # fmt: skip

RDNA3 = (
  _wmma(16, HALF, "f32.16x16x16.f16.v8f32.v16f16", ("<16 x half>", 256), F8),
  _wmma(16, BFLOAT, "f32.16x16x16.bf16.v8f32.v16i16", ("<16 x i16>", 256), F8),
  _wmma(16, BYTES, "i32.16x16x16.iu8.v8i32.v4i32", I4, I8, *SIGNED),
  _wmma(16, UBYTES, "i32.16x16x16.iu8.v8i32.v4i32", I4, I8, *UNSIGNED),
)
RDNA4 = (
  _wmma(8, HALF, "f32.16x16x16.f16.v8f32.v8f16", ("<8 x half>", 128), F8),
  _wmma(8, BFLOAT, "f32.16x16x16.bf16.v8f32.v8i16", ("<8 x i16>", 128), F8),
  _wmma(8, BYTES, "i32.16x16x16.iu8.v8i32.v2i32", ("<2 x i32>", 64), I8, *SIGNED),
  _wmma(8, UBYTES, "i32.16x16x16.iu8.v8i32.v2i32", ("<2 x i32>", 64), I8, *UNSIGNED),
)
# of 16 × 16 results and not of 32 × 32, which take as long and leave a wave less to choose from
DOUBLES = MatrixInstruction(
  _core(64, 16, 4, DOUBLE, 1, ((4, 1, 0),), ((4, 4, 0),)), "llvm.amdgcn.mfma.f64.16x16x4f64",
  (("double", 64), ("double", 64), ("<4 x double>", 256)), MODES,
)  # fmt: skip
CDNA2 = (
  _mfma(16, 16, HALF, "f32.16x16x16f16", ("<4 x half>", 64), F4),
  _mfma(16, 16, BFLOAT, "f32.16x16x16bf16.1k", ("<4 x i16>", 64), F4),
  _mfma(16, 16, BYTES, "i32.16x16x16i8", ("i32", 32), I4),
  DOUBLES,
)
CDNA3 = (
  _mfma(16, 16, HALF, "f32.16x16x16f16", ("<4 x half>", 64), F4),
  _mfma(16, 16, BFLOAT, "f32.16x16x16bf16.1k", ("<4 x i16>", 64), F4),
  _mfma(16, 32, BYTES, "i32.16x16x32.i8", ("i64", 64), I4),
  DOUBLES,
)
CDNA4 = (
  _mfma(16, 32, HALF, "f32.16x16x32.f16", ("<8 x half>", 128), F4),
  _mfma(16, 32, BFLOAT, "f32.16x16x32.bf16", ("<8 x bfloat>", 128), F4),
  _mfma(16, 64, BYTES, "i32.16x16x64.i8", I4, I4),
  DOUBLES,
)
CDNA = {"gfx90a": CDNA2, "gfx942": CDNA3, "gfx950": CDNA4}


def matrix_instructions(arch: Arch) -> tuple[MatrixInstruction, ...]:
  """Those of an architecture."""
  return RDNA3 if arch.major == 11 else RDNA4 if arch.major == 12 else CDNA[arch.name]
