"""OpenCL C: tiny-codegen's C with other words, vector accesses, and buffers that begin at an offset."""

from __future__ import annotations

from tiny_codegen import C99, CDialect, CRenderer, Limits, Place, Target
from tiny_runtime_opencl.arch import ATOMICS, Arch
from tiny_uop import Ops, UOp, dtypes

TYPES = (
  (dtypes.bool, "bool"), (dtypes.int8, "char"), (dtypes.uint8, "uchar"), (dtypes.int16, "short"),
  (dtypes.uint16, "ushort"), (dtypes.int32, "int"), (dtypes.uint32, "uint"), (dtypes.int64, "long"),
  (dtypes.uint64, "ulong"), (dtypes.index, "long"), (dtypes.float32, "float"), (dtypes.float64, "double"),
  (dtypes.float16, "half"),
)  # fmt: skip
FETCHES = tuple(
  (op, f"atomic_{op.name.lower()}((volatile {{space}}{{type}}*){{place}}, {{value}})")
  for op in (Ops.ADD, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR)
)
WIDE = (16, 8, 4, 2)
"""Lanes of the vectors that OpenCL C loads and stores."""
LARGEST_GRID = 2**31 - 1


def target(arch: Arch) -> Target:
  """The code generator's view of a device."""
  floats = {dtypes.float32} | ({dtypes.float16} if arch.fp16 else set()) | ({dtypes.float64} if arch.fp64 else set())
  return Target(
    native_dtypes=frozenset({dtypes.bool, *dtypes.ints, *floats}),
    native_ops=C99.target.native_ops | ({Ops.MULACC} if arch.fma else frozenset()),
    atomics=ATOMICS,
    max_vector_lanes=16,
    has_fma=arch.fma,
    has_local=arch.local > 0,
    limits=Limits((LARGEST_GRID,) * 3, arch.sizes, arch.group, arch.local),
  )


def dialect(arch: Arch) -> CDialect:
  """OpenCL C 1.2, with the extensions that a device has."""
  extensions = [name for name in ("fp16", "fp64") if getattr(arch, name)]
  absent = {d for d, there in ((dtypes.float16, arch.fp16), (dtypes.float64, arch.fp64)) if not there}
  return CDialect(
    name=f"OpenCL C for {arch.kind}",
    target=target(arch),
    types=tuple(row for row in TYPES if row[0] not in absent),
    header=(
      *(f"#pragma OPENCL EXTENSION cl_khr_{name} : enable" for name in extensions),
      "#pragma OPENCL FP_CONTRACT OFF",
    ),
    kernel="__kernel void",
    host=False,
    spaces=("__global", "__local", ""),
    functions=((Ops.SQRT, "sqrt"), (Ops.TRUNC, "trunc"), (Ops.MULACC, "fma")),
    counters=tuple(
      (f"{prefix}idx{axis}", f"{function}({axis})")
      for prefix, function in (("g", "get_group_id"), ("l", "get_local_id"))
      for axis in range(3)
    ),
    barrier="barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);",
    local_barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    atomics=FETCHES,
    infinity="INFINITY",
    nan="NAN",
    long_suffix="L",
    bitcast="as_{new}({value})",
  )


class OpenCLRenderer(CRenderer):
  """Programs as OpenCL C.

  A buffer is passed as where its memory begins and how many bytes further it begins itself: OpenCL has no pointers
  into memory on the host, and a sub-buffer may begin at multiples of 128 bytes or so only.
  """

  def __init__(self, arch: Arch) -> None:
    super().__init__(dialect(arch))

  def declaration(self, linear: UOp) -> str:
    """With the size of the workgroup where it is known, which lets drivers plan registers."""
    sizes = [1, 1, 1]
    for u in linear.src:
      if u.op is Ops.SPECIAL and u.arg.startswith("lidx"):
        if u.src[0].op is not Ops.CONST:
          return super().declaration(linear)
        sizes[int(u.arg[4:])] = int(u.src[0].arg)
    return f"__kernel __attribute__((reqd_work_group_size({', '.join(map(str, sizes))}))) void"

  def buffer(self, pointer: str, name: str, place: int) -> tuple[list[str], list[str]]:
    return (
      [f"__global uchar* {name}_memory", f"long {name}_offset"],
      [f"{pointer} {name} = ({pointer})({name}_memory + {name}_offset);"],
    )

  def load(self, place: Place, name: str) -> tuple[list[str], list[str]]:
    if place.element.kind == "bool" or place.lanes not in WIDE:
      return super().load(place, name)
    vector = f"{self.dialect.type_of(place.element)}{place.lanes}"
    read = f"const {vector} {name} = vload{place.lanes}(0, {place.pointer} + {place.offset});"
    return [read], [f"{name}.s{lane:x}" for lane in range(place.lanes)]

  def store(self, place: Place, values: list[str]) -> list[str]:
    if place.lanes not in WIDE:
      return super().store(place, values)
    vector = f"{self.dialect.type_of(dtypes.uint8 if place.element.kind == 'bool' else place.element)}{place.lanes}"
    return [f"vstore{place.lanes}(({vector})({', '.join(values)}), 0, {place.pointer} + {place.offset});"]
