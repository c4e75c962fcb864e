"""Matrices that the 32 threads of a SIMD-group hold together (`simdgroup_matrix`), as tensor cores of tiny-codegen.

Apple says that "the mapping of matrix elements to threads is unspecified". The one below is what all families with the
instruction have had: it is that of MLX, Apple's own framework (`BaseMMAFrag` in its kernels/steel/gemm/mma.h).
"""

from __future__ import annotations

from tiny_codegen import Fragment, TensorCore
from tiny_runtime_metal.arch import Arch
from tiny_uop import DType, dtypes

SIDE, THREADS = 8, 32
# bit 0 of a thread's number counts pairs of columns, bits 1 and 2 rows, bit 3 the right half, bit 4 the lower half
HELD = Fragment(((2, 0, 2), (4, 1, 0), (2, 0, 4), (2, 4, 0)), ((2, 0, 1),))


def tensor_cores(arch: Arch) -> tuple[TensorCore, ...]:
  """The products that a family multiplies matrices for, best first."""
  if not arch.family.matrices:
    return ()
  narrow = [dtypes.float16, *([dtypes.bfloat16] if arch.bfloat else [])]
  types = [*((d, dtypes.float32) for d in (*narrow, dtypes.float32)), (dtypes.float16, dtypes.float16)]
  return tuple(TensorCore((SIDE,) * 3, THREADS, a, c, HELD, HELD, HELD) for a, c in types)


def function_of(core: TensorCore) -> str:
  """The name of the function for a product: `multiply_half_float`."""
  return f"multiply_{TYPES[core.dtype_in]}_{TYPES[core.dtype_out]}"


TYPES: dict[DType, str] = {dtypes.float16: "half", dtypes.bfloat16: "bfloat", dtypes.float32: "float"}


def definition(core: TensorCore) -> str:
  """The function: each thread gives its two elements of a, b and c and gets its two of a × b + c."""
  a, c = TYPES[core.dtype_in], TYPES[core.dtype_out]
  return f"""\
static void {function_of(core)}(thread {c}* d0, thread {c}* d1, {a} a0, {a} a1, {a} b0, {a} b1, {c} c0, {c} c1) {{
  simdgroup_matrix<{a}, {SIDE}, {SIDE}> a, b;
  simdgroup_matrix<{c}, {SIDE}, {SIDE}> c;
  a.thread_elements() = vec<{a}, 2>(a0, a1);
  b.thread_elements() = vec<{a}, 2>(b0, b1);
  c.thread_elements() = vec<{c}, 2>(c0, c1);
  simdgroup_multiply_accumulate(c, a, b, c);
  *d0 = c.thread_elements()[0];
  *d1 = c.thread_elements()[1];
}}"""
