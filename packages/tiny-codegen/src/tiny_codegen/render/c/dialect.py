"""What C-like languages write differently, as data."""

from __future__ import annotations

import re
from dataclasses import replace

from tiny_codegen.instructions.tensor_core import TensorCore
from tiny_codegen.target import Limits, Target
from tiny_uop import AddrSpace, DType, Ops, dtypes
from tiny_uop.records import dataclass
from tiny_uop.updates import updates

_TYPES = (
  (dtypes.bool, "_Bool"), (dtypes.int8, "int8_t"), (dtypes.uint8, "uint8_t"),
  (dtypes.int16, "int16_t"), (dtypes.uint16, "uint16_t"), (dtypes.int32, "int32_t"), (dtypes.uint32, "uint32_t"),
  (dtypes.int64, "int64_t"), (dtypes.uint64, "uint64_t"),
  (dtypes.index, "int64_t"), (dtypes.float32, "float"), (dtypes.float64, "double"),
)  # fmt: skip

# SQRT and TRUNC are left to the compiler's builtins where they are one instruction; GCC and Clang may call libm for
# TRUNC, so it is emulated
C_OPS = frozenset({
  Ops.CAST, Ops.BITCAST, Ops.NEG, Ops.SQRT, Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MAX,
  Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.WHERE,
})  # fmt: skip

_ATOMIC = "__atomic_fetch_{}({{place}}, {{value}}, __ATOMIC_RELAXED)"


def function_name(kernel: str) -> str:
  """The name of the function that a C-like language has for a kernel. A kernel may be called `double`, `main` or
  `select`, which mean something there, or `a-b`, which is no name."""
  return "tiny_" + re.sub(r"[^A-Za-z0-9_]", "_", kernel)


@dataclass(frozen=True)
class CDialect:
  """A C-like language.

  `types` names the scalar types, `header` is put in front, `kernel` before the function. `spaces` qualifies memory
  GLOBAL, LOCAL and REG, `aligned` goes behind an array that is read in vectors. `functions` names the function of an
  op for float32, with "{}" for the type's suffix ("f" or nothing); with `through_float` narrower floats become
  float32 for it and its result is rounded, else it takes them too. `counters` gives the expression of a SPECIAL,
  `barrier` the statement of a BARRIER, `local_barrier` that of one behind which threads read nothing of each other but
  LOCAL memory (empty: the same). `tensor_cores` names the function of an MMA, which takes the addresses of the
  lanes of the result, then the lanes of a, b and c; `header` may define it. `exchanges` has an expression of a
  SHUFFLE for each type: of {value}, with the bits {mask}. `atomics` has an expression of an atomic STORE for each
  operation: of {value}, at the address {place}, of {type} in memory that is qualified by {space}. `infinity` and
  `nan` are expressions with "{}" for the suffix. `long_suffix` marks literals of 64 bits. `bitcast` is an expression
  with {value}, its type {old} and the type {new} that its bits are read as. Without `host`, the kernel's arguments
  are the buffers and the integers themselves, then `parameters`.
  """

  name: str
  target: Target
  types: tuple[tuple[DType, str], ...] = _TYPES
  header: tuple[str, ...] = ("#include <stdint.h>",)
  kernel: str = "void"
  host: bool = True
  restrict: str = "restrict"
  spaces: tuple[str, str, str] = ("", "", "")
  aligned: str = "__attribute__((aligned(64)))"
  functions: tuple[tuple[Ops, str], ...] = (
    (Ops.SQRT, "__builtin_sqrt{}"),
    (Ops.TRUNC, "__builtin_trunc{}"),
    (Ops.MULACC, "__builtin_fma{}"),
  )
  through_float: bool = False
  parameters: tuple[str, ...] = ()
  counters: tuple[tuple[str, str], ...] = ()
  barrier: str = ""
  local_barrier: str = ""
  tensor_cores: tuple[tuple[TensorCore, str], ...] = ()
  exchanges: tuple[tuple[DType, str], ...] = ()
  atomics: tuple[tuple[Ops, str], ...] = ()
  infinity: str = "__builtin_inf{}()"
  nan: str = '__builtin_nan{}("")'
  long_suffix: str = "LL"
  bitcast: str = "((union {{ {old} from; {new} to; }}){{ .from = {value} }}).to"

  def type_of(self, dtype: DType) -> str:
    """The name of a scalar type. Raises NotImplementedError for one that the language lacks."""
    for known, name in self.types:
      if known is dtype.scalar():
        return name
    raise NotImplementedError(
      f"{self.name} has no type for {dtype}: it must be emulated before rendering (tiny_codegen.decompose)"
    )

  def qualifier(self, space: AddrSpace) -> str:
    """What stands before the type of memory in this address space, with a space behind."""
    word = self.spaces[(AddrSpace.GLOBAL, AddrSpace.LOCAL, AddrSpace.REG).index(space)]
    return f"{word} " if word else ""

  def with_target(self, **changes: object) -> CDialect:
    """The same language for a machine that can do something else."""
    return replace(self, target=replace(self.target, **changes))  # type: ignore[arg-type]


C99 = CDialect(
  "c",
  Target(
    native_dtypes=frozenset({dtypes.bool, *dtypes.ints, dtypes.float32, dtypes.float64}),
    native_ops=C_OPS,
    atomics=updates("ADD AND OR XOR", [d.name for d in dtypes.ints], "GLOBAL"),
    vector_bits=128,
    max_vector_lanes=16,
    has_threads=True,
    limits=Limits(shared_memory=256 * 1024),
  ),
  atomics=tuple([(op, _ATOMIC.format(op.name.lower())) for op in (Ops.ADD, Ops.AND, Ops.OR, Ops.XOR)]),
)
"""C for a processor, as any compiler takes it."""
