"""What the LLVM renderer knows about a processor, as data."""

from __future__ import annotations

from collections.abc import Iterable

from tiny_codegen.processors import ARM, X86, core, packed_bytes, processor, usual_caches
from tiny_codegen.render.llvm.copies import AsyncCopy
from tiny_codegen.render.llvm.dot import DotInstruction, arm_dot_products, x86_dot_products
from tiny_codegen.render.llvm.instructions import AVX512, Instruction
from tiny_codegen.render.llvm.matrix import MatrixInstruction, SharedMatrixInstruction
from tiny_codegen.render.llvm.memory import Memory
from tiny_codegen.render.llvm.shuffle import Exchange
from tiny_codegen.render.llvm.tiles import TileInstruction, x86_matrix_products
from tiny_codegen.target import CacheSizes, Limits, Target
from tiny_uop import Ops, dtypes
from tiny_uop.records import dataclass
from tiny_uop.updates import HOST_UPDATES

# Elementwise ops that every LLVM target has instructions for.
LLVM_OPS = frozenset({
  Ops.CAST, Ops.BITCAST, Ops.NEG, Ops.SQRT, Ops.TRUNC, Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.TRUNCDIV,
  Ops.TRUNCMOD, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.WHERE,
})  # fmt: skip
LLVM_DTYPES = frozenset({dtypes.bool, *dtypes.ints, dtypes.float32, dtypes.float64})

# of Arm's; without bfloat16: LLVM 22 does not take BFDOT's second factor from a lane of a vector that was loaded
BY_LANE = frozenset({dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint32, dtypes.int8, dtypes.uint8})


@dataclass(frozen=True)
class LLVMTarget:
  """A processor. Empty strings leave the choice to whoever compiles the text.

  `convention` is the calling convention of a kernel on a device ("amdgpu_kernel"); without one the program gets the
  host entry point `void NAME(void** buffers, int64_t* integers, int64_t begin, int64_t end)`; with
  `dynamic_scheduling`, it has two more arguments, by which it gets more of the loop that workers share (see
  `function.py`). `spaces` numbers the address spaces GLOBAL, LOCAL and REG. `counters` maps SPECIAL names to
  intrinsics that return i32; `barrier` lists the instructions of a BARRIER, `local_barrier` those of one behind which
  threads read nothing of each other but LOCAL memory (none: the same). `dots` and `tiles` say how the dot
  products of the target are written, `instructions` are intrinsics for native ops that few processors have.

  Of kernels on a device: `group_size` is the attribute that promises the size of a workgroup ({x}, {y}, {z} and
  {threads} stand for it), `attributes` are others that all have, `metadata` is what instructions of barriers refer
  to. `matrices` says how the tensor cores of the target are written, `exchanges` how threads of a wave exchange
  values, a row for each bit of their numbers, `copies` asynchronous STOREs, `matrix_load` the LOADs of a warp (an
  intrinsic's name, {matrices} and {transposed} in it). `aligned`: global memory is accessed in vectors of up to so
  many bytes only where these are aligned (0: anywhere); a program with such accesses has two kernels, of which
  NAME_aligned is for buffers at multiples of so many bytes. `static_local`: of shared memory a program may have so many
  bytes as arrays of its own (0: any number); of a program with more it is one array, `NAME_shared`, whose size the
  launch gives (`shared_memory.places_at_launch` says how large it is). `shared_matrices` are the tensor cores that
  read shared memory themselves; where a program has one, `proxy_fence` comes before each barrier. `scopes` are those
  of atomic updates of GLOBAL and of LOCAL memory, as `syncscope` names them. `fence_halves`: LLVM must not make one
  instruction of a float32 product and its rounding to float16, since the one that it chooses adds +0.0.
  """

  name: str
  target: Target
  triple: str = ""
  datalayout: str = ""
  cpu: str = ""
  features: str = ""
  convention: str = ""
  spaces: tuple[int, int, int] = (0, 0, 0)
  counters: tuple[tuple[str, str], ...] = ()
  barrier: tuple[str, ...] = ()
  local_barrier: tuple[str, ...] = ()
  dots: tuple[DotInstruction, ...] = ()
  tiles: tuple[TileInstruction, ...] = ()
  instructions: tuple[Instruction, ...] = ()
  dynamic_scheduling: bool = False
  group_size: str = ""
  attributes: tuple[str, ...] = ()
  metadata: tuple[str, ...] = ()
  matrices: tuple[MatrixInstruction, ...] = ()
  exchanges: tuple[Exchange, ...] = ()
  aligned: int = 0
  static_local: int = 0
  copies: AsyncCopy | None = None
  matrix_load: str = ""
  shared_matrices: tuple[SharedMatrixInstruction, ...] = ()
  proxy_fence: tuple[str, ...] = ()
  scopes: tuple[str, str] = ("", "")
  fence_halves: bool = False

  @property
  def memory(self) -> Memory:
    """What addresses and accesses look like."""
    return Memory(self.spaces, bool(self.convention), self.aligned)


def cpu_target(
  triple: str = "",
  cpu: str = "",
  features: Iterable[str] = (),
  name: str = "llvm",
  caches: CacheSizes | None = None,
  dynamic_scheduling: bool = False,
  threads: int = Target.threads,
  scalable_bits: int = 0,
) -> LLVMTarget:
  """A host processor from its LLVM triple, CPU name, features ("+avx2", "-avx512f", …), cache sizes (None:
  `usual_caches`) and how many threads there may be. `dynamic_scheduling`: as in LLVMTarget. `scalable_bits`: of a
  register of SVE; programs run only where it has as many.

  What it can do follows from these alone, so the result is the same on every machine. An unknown architecture
  gets the portable minimum: 128-bit vectors, no fused multiply-add, emulated half precision.
  """
  listed = tuple(features)
  on = frozenset(f[1:] for f in listed if f.startswith("+"))
  arch = triple.split("-")[0]
  has = processor(arch, on, scalable_bits)
  scalable = arch in ARM and has.vector_bits > 128
  ops = LLVM_OPS if has.rounding else LLVM_OPS - {Ops.TRUNC}  # LLVM would call libm
  its = core(arch, cpu, has.vector_bits)
  dots = (
    x86_dot_products(on, its.bfloat16) if arch in X86 else arm_dot_products(on) if arch in ARM and not scalable else ()
  )
  tiles = x86_matrix_products(on) if arch == "x86_64" else ()
  instructions = AVX512 if has.masks else ()
  caches = caches or usual_caches(has.vector_bits)
  target = Target(
    native_dtypes=LLVM_DTYPES | ({dtypes.float16} if has.halves else set()),
    native_ops=(ops | {Ops.MULACC} if has.fma else ops) | {i.op for i in instructions},
    atomics=HOST_UPDATES,
    vector_bits=has.vector_bits,
    vector_registers=has.vector_registers,
    max_vector_lanes=64,
    has_fma=has.fma,
    masked_loads=has.vector_bits > 128,
    multiplies_by_lane=BY_LANE if arch in ARM and not scalable else frozenset(),
    has_threads=True,
    threads=threads,
    has_prefetch=True,
    wide_offsets=arch in ("x86_64", "amd64", "aarch64", "arm64"),
    has_streaming=arch in ("x86_64", "amd64"),
    limits=Limits(shared_memory=packed_bytes(caches)),
    caches=caches,
    cost=its.cost,
    dot_products=(*[(d.product, d.rate) for d in dots], *[(t.product, t.rate) for t in tiles]),
  )
  return LLVMTarget(
    name, target, triple, cpu=cpu, features=",".join(listed), dots=dots, tiles=tiles, instructions=instructions,
    dynamic_scheduling=dynamic_scheduling,
    attributes=(f"vscale_range({has.vector_bits // 128},{has.vector_bits // 128})",) if scalable else (),
  )  # fmt: skip


GENERIC = cpu_target()
