"""Types and constants as LLVM IR spells them."""

from __future__ import annotations

import math
import struct

from tiny_uop import AddrSpace, DType, dtypes
from tiny_uop.truncate import to_bits

Spaces = tuple[int, int, int]

_FLOATS = {dtypes.float16: "half", dtypes.bfloat16: "bfloat", dtypes.float32: "float", dtypes.float64: "double"}
ZEROS = frozenset(("0", "false", "0xH0000", "0xR0000", f"0x{0:016X}"))
_SUFFIX = {dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.float32: "f32", dtypes.float64: "f64"}


def _vector(name: str, count: int) -> str:
  return name if count == 1 else f"<{count} x {name}>"


def pointer(space: AddrSpace, spaces: Spaces) -> str:
  """The pointer type of an address space, numbered as the target does (GLOBAL, LOCAL, REG)."""
  number = spaces[(AddrSpace.GLOBAL, AddrSpace.LOCAL, AddrSpace.REG).index(space)]
  return "ptr" if number == 0 else f"ptr addrspace({number})"


def scalar_type(dtype: DType) -> str:
  """The type of one lane in a register: a bool is one bit, an `index` has 64."""
  scalar = dtype.scalar()
  if scalar.kind == "bool":
    return "i1"
  if scalar.kind in ("int", "uint", "index"):
    return f"i{scalar.bits}"
  if (name := _FLOATS.get(scalar)) is not None:
    return name
  raise NotImplementedError(
    f"LLVM has no type for {dtype}: it must be emulated before rendering (tiny_codegen.decompose)"
  )


def value_type(dtype: DType) -> str:
  """The type of a value in a register."""
  return _vector(scalar_type(dtype), dtype.count)


def memory_type(dtype: DType) -> str:
  """The type of a value in memory: a bool takes a byte."""
  return _vector("i8" if dtype.kind == "bool" else scalar_type(dtype), dtype.count)


def suffix(dtype: DType, memory: bool = False) -> str:
  """The part of an overloaded intrinsic's name that tells the type: f32, v4f32, i8."""
  scalar = dtype.scalar()
  one = _SUFFIX.get(scalar) or ("i8" if memory and scalar.kind == "bool" else scalar_type(dtype))
  return one if dtype.count == 1 else f"v{dtype.count}{one}"


def _scalar_constant(dtype: DType, value: bool | int | float) -> str:
  if dtype.kind == "bool":
    return "true" if value else "false"
  if dtype.kind != "float":
    return str(int(value))
  if dtype is dtypes.float16:
    return f"0xH{to_bits(dtype, value):04X}"
  if dtype is dtypes.bfloat16:
    return f"0xR{to_bits(dtype, value):04X}"
  # a float is written as the double of the same value; any NaN is the quiet one
  bits = struct.unpack("<Q", struct.pack("<d", math.nan if value != value else float(value)))[0]
  return f"0x{bits:016X}"


def constant(dtype: DType, value: bool | float | tuple[bool | float, ...]) -> str:
  """A constant of a scalar or vector type, exact to the last bit."""
  scalar = dtype.scalar()
  if dtype.count == 1:
    assert not isinstance(value, tuple)
    return _scalar_constant(scalar, value)
  name = scalar_type(dtype)
  if not isinstance(value, tuple):
    lane = _scalar_constant(scalar, value)
    return "zeroinitializer" if lane in ZEROS else f"splat ({name} {lane})"
  return "<" + ", ".join(f"{name} {_scalar_constant(scalar, lane)}" for lane in value) + ">"
