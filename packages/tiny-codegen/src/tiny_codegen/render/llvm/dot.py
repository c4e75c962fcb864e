"""Dot-product instructions of processors, as data, and how they are written in LLVM IR."""

from __future__ import annotations

from tiny_codegen.instructions.dot_product import WORD, DotProduct, SquareProduct
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.text import value_type
from tiny_uop import DType, UOp, dtypes
from tiny_uop.records import dataclass

S8, U8, S16, S32, U32 = dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.uint32
BFLOAT16_TYPES = dtypes.bfloat16, dtypes.bfloat16, dtypes.float32
BFLOAT16 = DotProduct(*BFLOAT16_TYPES)


@dataclass(frozen=True)
class DotInstruction:
  """`names` are LLVM's intrinsics by how many lanes they have, largest first. `rate` is how many the processor starts
  in the time of one multiply-add of float32 vectors of the same size. `words`: the intrinsics take words, not terms.
  `adds`: they take the accumulator and add to it, what others need a second instruction for."""

  product: DotProduct
  names: tuple[tuple[int, str], ...]
  rate: float
  words: bool
  adds: bool = True


def _x86(product: DotProduct, name: str, sizes: tuple[int, ...], rate: float = 1.0) -> DotInstruction:
  # LLVM 17 and 22 changed words to terms; all versions read words
  return DotInstruction(product, tuple([(bits // 32, f"llvm.x86.{name}.{bits}") for bits in sizes]), rate, True)


def x86_dot_products(on: frozenset[str], bfloat16: float) -> tuple[DotInstruction, ...]:
  """Those of an x86 processor with these features; `bfloat16` is the rate of that one. All of them are exact, or round
  as IEEE 754 asks, but for it, which takes and gives numbers below 2**-126 as 0 (Intel's manual, volume 2, VDPBF16PS).
  """
  found = []
  if "avxvnniint8" in on:
    found += [
      _x86(DotProduct(S8, S8, S32), "avx2.vpdpbssd", (256, 128)),
      _x86(DotProduct(U8, U8, U32), "avx2.vpdpbuud", (256, 128)),
    ]
  if "avx512vnni" in on and "avx512vl" in on:
    sizes: tuple[int, ...] = (512, 256, 128)
  else:
    sizes = (256, 128) if "avxvnni" in on else ()
  if sizes:
    found.append(_x86(DotProduct(U8, S8, S32), "avx512.vpdpbusd", sizes))
    found.append(_x86(DotProduct(S16, S16, S32), "avx512.vpdpwssd", sizes))
  elif "avx2" in on:
    wide = ((16, "llvm.x86.avx512.pmaddw.d.512"),) if "avx512bw" in on and "avx512vl" in on else ()
    names = (*wide, (8, "llvm.x86.avx2.pmadd.wd"), (4, "llvm.x86.sse2.pmadd.wd"))
    found.append(DotInstruction(DotProduct(S16, S16, S32), names, 0.5, words=False, adds=False))
  if "avx512bf16" in on and "avx512vl" in on:
    found.append(_x86(BFLOAT16, "avx512bf16.dpbf16ps", (512, 256, 128), bfloat16))
  return tuple(found)


def arm_dot_products(on: frozenset[str]) -> tuple[DotInstruction, ...]:
  """Those of an arm64 processor with these features (Arm's manual: SDOT, UDOT, USDOT, SMMLA, UMMLA, USMMLA; BFDOT and
  BFMMLA).

  Those of bfloat16 round to odd between the two products of a pair, and take and give numbers below 2**-126 as 0.
  """
  found = []
  if "i8mm" in on:
    signs = ((S8, S8, S32, "smmla"), (U8, U8, U32, "ummla"), (U8, S8, S32, "usmmla"))
    found += [_arm_square(SquareProduct(a, b, c), f"{name}.v4i32.v16i8") for a, b, c, name in signs]
  if "bf16" in on:
    found.append(_arm_square(SquareProduct(*BFLOAT16_TYPES), "bfmmla"))
  if "dotprod" in on:
    found += [_arm(DotProduct(S8, S8, S32), "sdot", "v16i8"), _arm(DotProduct(U8, U8, U32), "udot", "v16i8")]
  if "i8mm" in on:
    found.append(_arm(DotProduct(U8, S8, S32), "usdot", "v16i8"))
  if "bf16" in on:
    # half the speed of a multiply-add on some cores, as fast on others
    found.append(_arm(BFLOAT16, "bfdot", "v8bf16", 0.5))
  return tuple(found)


def _arm(product: DotProduct, name: str, terms: str, rate: float = 1.0) -> DotInstruction:
  result = "v4f32" if product.dtype_out.kind == "float" else "v4i32"
  return DotInstruction(product, ((4, f"llvm.aarch64.neon.{name}.{result}.{terms}"),), rate, False)


def _arm_square(product: SquareProduct, name: str) -> DotInstruction:
  # one row and two lanes, which its rate is for, are half of it
  return DotInstruction(product, ((4, f"llvm.aarch64.neon.{name}"),), 2.0, False)


def dot_product(body: Function, u: UOp, instruction: DotInstruction) -> str:
  """The operand that holds the result of an MMA, in as many instructions as its lanes need."""
  operands, lanes, parts, start = [body.operand(s) for s in u.src], u.dtype.count, [], 0
  if lanes != u.src[0].dtype.count:  # a square
    count, name = instruction.names[0]
    *words, c = [(value_type(s.dtype), x) for x, s in zip(operands, u.src)]
    a, b = (_terms(body, x, d, count) for x, d in zip(words, (u.arg.dtype_a, u.arg.dtype_b)))
    return body.call(name, c[0], c, a, b)
  while start < lanes:
    # the largest that is filled, or else the smallest, which is then partly empty
    count, name = next((n for n in instruction.names if n[0] <= lanes - start), instruction.names[-1])
    a, b, c = (body.part(x, s.dtype, start, count) for x, s in zip(operands, u.src, strict=True))
    if not instruction.words:
      a, b = (_terms(body, x, d, count) for x, d in ((a, u.arg.dtype_a), (b, u.arg.dtype_b)))
    if instruction.adds:
      parts.append((body.call(name, c[0], c, a, b), count))
    else:
      parts.append((body.let(f"add {c[0]} {c[1]}, {body.call(name, c[0], a, b)}"), count))
    start += count
  return _joined(body, parts, u.dtype)


def _terms(body: Function, words: tuple[str, str], dtype: DType, count: int) -> tuple[str, str]:
  """Words as vectors of what they hold."""
  kind = value_type(dtype.vec(count * WORD.bits // dtype.bits))
  return kind, body.cast_bits(*words, kind)


def _joined(body: Function, parts: list[tuple[str, int]], dtype: DType) -> str:
  scalar, (made, count) = dtype.scalar(), parts[0]
  for part, added in parts[1:]:
    # both have to be of one size to be put side by side
    kind, other = body.part(part, scalar.vec(added), 0, count)
    made, count = body.shuffle(kind, made, range(count + added), other), count + added
  return body.first(made, scalar.vec(count), dtype.count)
