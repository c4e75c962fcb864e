"""The Metal Shading Language: tiny-codegen's C with other words, vector accesses, and arguments that have numbers.

The source is "Metal Shading Language Specification", version 3.1. Chapters are named where a line follows from one.
"""

from __future__ import annotations

from tiny_codegen import C99, CDialect, CRenderer, Limits, Place, Target
from tiny_runtime_metal.arch import ATOMICS, Arch
from tiny_runtime_metal.matrices import definition, function_of, tensor_cores
from tiny_uop import AddrSpace, DType, Ops, ProgramInfo, UOp, dtypes

TYPES = (
  (dtypes.bool, "bool"), (dtypes.int8, "char"), (dtypes.uint8, "uchar"), (dtypes.int16, "short"),
  (dtypes.uint16, "ushort"), (dtypes.int32, "int"), (dtypes.uint32, "uint"), (dtypes.int64, "long"),
  (dtypes.uint64, "ulong"), (dtypes.index, "long"), (dtypes.float32, "float"), (dtypes.float16, "half"),
)  # fmt: skip
# rounded as the contract asks for, and right at infinity and NaN, where `fast::` is not (8.3, "Accuracy of …"); at most
# 4 units in the last place
FUNCTIONS = (
  (Ops.SQRT, "precise::sqrt"), (Ops.EXP2, "precise::exp2"), (Ops.EXP, "precise::exp"), (Ops.LOG2, "precise::log2"),
  (Ops.LOG, "precise::log"), (Ops.SIN, "precise::sin"), (Ops.COS, "precise::cos"), (Ops.TRUNC, "trunc"),
  (Ops.MULACC, "fma"),
)  # fmt: skip
SIMD = 32
"""Threads of a SIMD-group, on all of Apple's GPUs."""
# 6.9.2 has these for 8 to 32 bits, and vectors of them
EXCHANGED = (
  dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32, dtypes.float16, dtypes.float32
)  # fmt: skip
EXCHANGES = (
  *((dtype, "simd_shuffle_xor({value}, {mask})") for dtype in EXCHANGED),
  (dtypes.bool, "(simd_shuffle_xor(uint({value}), {mask}) != 0)"),
  (dtypes.bfloat16, "as_type<bfloat>(simd_shuffle_xor(as_type<ushort>({value}), {mask}))"),
  (dtypes.int64, "as_type<long>(simd_shuffle_xor(as_type<uint2>({value}), {mask}))"),
  (dtypes.uint64, "as_type<ulong>(simd_shuffle_xor(as_type<uint2>({value}), {mask}))"),
)  # fmt: skip
UPDATE = "atomic_fetch_{}_explicit(({{space}}atomic_{{type}}*){{place}}, {{value}}, memory_order_relaxed)"
FETCHES = tuple((op, UPDATE.format(op.name.lower())) for op in (Ops.ADD, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR))
HEADER = (
  "#include <metal_stdlib>",
  # what is written here is what is rounded; older compilers, which do not know the lines, get options that say the same
  "#pragma METAL fp math_mode(safe)",
  "#pragma METAL fp contract(off)",
  "using namespace metal;",
)
MATRICES = "#include <metal_simdgroup_matrix>"
BUFFERS = 31
"""Most buffers that a kernel takes by index ("Metal Feature Set Tables")."""
TABLE = 512
"""Most that it takes as addresses in one buffer of 4096 bytes, which is what `setBytes:length:atIndex:` takes."""
WIDEST = 4
"""Lanes of the largest vector."""
SPACES = {AddrSpace.GLOBAL: "device", AddrSpace.LOCAL: "threadgroup", AddrSpace.REG: "thread"}


def target(arch: Arch) -> Target:
  """The code generator's view of a family."""
  floats = {dtypes.float16, dtypes.float32} | ({dtypes.bfloat16} if arch.bfloat else set())
  family = arch.family
  return Target(
    native_dtypes=frozenset({dtypes.bool, *dtypes.ints, *floats}),
    native_ops=C99.target.native_ops | {op for op, _ in FUNCTIONS},
    atomics=ATOMICS,
    max_vector_lanes=WIDEST,
    has_fma=True,
    has_local=True,
    subgroup=SIMD,
    limits=Limits(
      max_local=(family.threads,) * 3, max_workgroup=family.threads, shared_memory=family.threadgroup_memory
    ),
    tensor_cores=tensor_cores(arch),
  )


def dialect(arch: Arch) -> CDialect:
  """The language of one version for one family."""
  return CDialect(
    name=f"Metal for {arch}",
    target=target(arch),
    types=(*TYPES, *(((dtypes.bfloat16, "bfloat"),) if arch.bfloat else ())),
    header=HEADER,
    kernel="kernel void",
    host=False,
    restrict="",
    spaces=("device", "threadgroup", "thread"),
    aligned="",
    functions=FUNCTIONS,
    through_float=True,
    parameters=("uint3 gid [[threadgroup_position_in_grid]]", "uint3 lid [[thread_position_in_threadgroup]]"),
    counters=tuple((f"{kind}idx{n}", f"{kind}id.{axis}") for kind in "gl" for n, axis in enumerate("xyz")),
    barrier="threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
    local_barrier="threadgroup_barrier(mem_flags::mem_threadgroup);",
    tensor_cores=tuple((core, function_of(core)) for core in tensor_cores(arch)),
    exchanges=EXCHANGES,
    atomics=FETCHES,
    infinity="INFINITY",
    nan="NAN",
    long_suffix="L",
    bitcast="as_type<{new}>({value})",
  )


def in_table(buffers: int, integers: int) -> bool:
  """Whether a program with so many of both takes its buffers as addresses in a table, at index 0, and its integers at
  index 1. Others take buffer n at index n, and the integers behind them."""
  return buffers + bool(integers) > BUFFERS


class MetalRenderer(CRenderer):
  """Programs in the Metal Shading Language. `in_table` says how one takes its buffers; integers are in one buffer."""

  def __init__(self, arch: Arch) -> None:
    self.arch = arch
    super().__init__(dialect(arch))

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    if in_table(len(info.params), len(info.variables)):
      return TableRenderer(self.arch, len(info.params)).render(linear, info)
    return super().render(linear, info)

  def header(self, linear: UOp) -> list[str]:
    used = {u.arg for u in linear.src if u.op is Ops.MMA}
    functions = [definition(core) for core in self.target.tensor_cores if core in used]
    first, *others = super().header(linear)
    return [first, *([MATRICES] if functions else []), *others, *functions]

  def declaration(self, linear: UOp) -> str:
    """With the size of the threadgroup where it is known: without it the compiler may take so many registers that
    threadgroups of this size cannot be launched (5.1.3)."""
    threads = 1
    for u in linear.src:
      if u.op is Ops.SPECIAL and u.arg.startswith("lidx"):
        if u.src[0].op is not Ops.CONST:
          return super().declaration(linear)
        threads *= int(u.src[0].arg)
    return f"[[max_total_threads_per_threadgroup({threads})]] {super().declaration(linear)}"

  def buffer(self, pointer: str, name: str, place: int) -> tuple[list[str], list[str]]:
    return [f"{pointer} {name} [[buffer({place})]]"], []

  def integers(self, names: list[str], place: int) -> tuple[list[str], list[str]]:
    if not names:
      return [], []
    return (
      [f"constant long* integers [[buffer({place})]]"],
      [f"const long {name} = integers[{number}];" for number, name in enumerate(names)],
    )

  def load(self, place: Place, name: str) -> tuple[list[str], list[str]]:
    if (vector := _packed(self.dialect, place)) is None:
      return super().load(place, name)
    const = "" if place.written else "const "
    pointer = f"{SPACES[place.space]} {const}{vector}*"
    read = f"const {vector} {name} = *({pointer})({place.pointer} + {place.offset});"
    lanes = [f"{name}[{lane}]" for lane in range(place.lanes)]
    return [read], [f"({lane} != 0)" for lane in lanes] if place.element.kind == "bool" else lanes

  def store(self, place: Place, values: list[str]) -> list[str]:
    if (vector := _packed(self.dialect, place)) is None:
      return super().store(place, values)
    pointer = f"{SPACES[place.space]} {vector}*"
    return [f"*({pointer})({place.pointer} + {place.offset}) = {vector}({', '.join(values)});"]


class TableRenderer(MetalRenderer):
  """Programs with so many buffers that they are addresses in a table ("argument buffers", 2.13)."""

  def __init__(self, arch: Arch, count: int) -> None:
    super().__init__(arch)
    if count > TABLE:
      raise NotImplementedError(f"{self.dialect.name}: a kernel has {TABLE} buffers at most, this one has {count}")
    self.count = count

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return CRenderer.render(self, linear, info)

  def header(self, linear: UOp) -> list[str]:
    return [*super().header(linear), f"struct Buffers {{ device uchar* at[{self.count}]; }};"]

  def buffer(self, pointer: str, name: str, place: int) -> tuple[list[str], list[str]]:
    parameters = [] if place else ["constant Buffers& buffers [[buffer(0)]]"]
    return parameters, [f"{pointer} {name} = ({pointer})buffers.at[{place}];"]

  def integers(self, names: list[str], place: int) -> tuple[list[str], list[str]]:
    return super().integers(names, 1)


def _packed(language: CDialect, place: Place) -> str | None:
  """The vector for an access; None where elements are read one by one. A packed one is aligned as its elements are
  (2.2.3), which is all that is known of a place."""
  if not 2 <= place.lanes <= WIDEST or place.element.bits == 64:
    return None
  element: DType = dtypes.uint8 if place.element.kind == "bool" else place.element
  return f"packed_{language.type_of(element)}{place.lanes}"
