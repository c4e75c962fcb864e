"""Data types: scalars, vectors of them and pointers to them, and the lattice along which they promote."""

from __future__ import annotations

import builtins
import math
from typing import ClassVar, Literal
from weakref import WeakValueDictionary

from tiny_uop.ops import Named, members

Kind = Literal["bool", "int", "uint", "float", "void", "index"]


@members
class AddrSpace(Named):
  """Where a pointer points: device memory, memory that a workgroup shares (a packed buffer on a CPU), or registers."""

  GLOBAL = "global"
  LOCAL = "local"
  REG = "reg"


class DType:
  """A scalar type, or a vector of `count` lanes of one. Interned: equal types are the same object.

  `bits` is the width of one lane; `itemsize` is the size of the whole value in bytes.
  """

  __slots__ = ("__weakref__", "_one", "bits", "count", "itemsize", "kind", "name")
  _interned: ClassVar[dict[tuple[object, ...], DType]] = {}
  name: str
  kind: Kind
  bits: int
  count: int
  itemsize: int
  _one: DType

  def __new__(cls, name: str, kind: Kind, bits: int, count: int = 1) -> DType:
    key = (cls, name, kind, bits, count)
    if (found := cls._interned.get(key)) is not None:
      return found
    self = object.__new__(cls)
    for field, value in (("name", name), ("kind", kind), ("bits", bits), ("count", count)):
      object.__setattr__(self, field, value)
    object.__setattr__(self, "itemsize", (bits + 7) // 8 * count)
    if count > 1:
      object.__setattr__(self, "_one", DType(name.rpartition("x")[0], kind, bits))
    return cls._interned.setdefault(key, self)

  def __setattr__(self, field: str, value: object) -> None:
    raise AttributeError(f"DType is immutable: cannot set {field!r} of {self!r}")

  def __repr__(self) -> str:
    return f"dtypes.{self.name}" if self.count == 1 else f"dtypes.{self.scalar().name}.vec({self.count})"

  def __str__(self) -> str:
    return self.name

  def __reduce__(self) -> tuple[object, ...]:
    return (type(self), (self.name, self.kind, self.bits, self.count))

  @property
  def min(self) -> int | float | bool:
    """The least value: `dtypes.min`."""
    return dtypes.min(self)

  @property
  def max(self) -> int | float | bool:
    """The greatest value: `dtypes.max`."""
    return dtypes.max(self)

  @property
  def fmt(self) -> str | None:
    """The format of one lane in Python's `struct` and `memoryview`; None where these have none (bfloat16, fp8, …)."""
    return _FORMATS.get(self.scalar().name)

  @property
  def bitsize(self) -> int:
    """Bits of information in all lanes: 1 for a bool, whose `bits` in memory are 8."""
    return (1 if self.kind == "bool" else self.bits) * self.count

  def scalar(self) -> DType:
    """The type of one lane."""
    return self if self.count == 1 else self._one

  def vec(self, count: int) -> DType:
    """A vector of `count` lanes of this scalar type; 1 lane is the scalar itself."""
    if self.count != 1:
      raise ValueError(f"vec() needs a scalar type, got {self!r}: take .scalar() first")
    if count < 1:
      raise ValueError(f"a vector has at least 1 lane, got {count}")
    return self if count == 1 else DType(f"{self.name}x{count}", self.kind, self.bits, count)

  def ptr(self, size: int, space: AddrSpace = AddrSpace.GLOBAL) -> PtrDType:
    """A pointer to `size` elements of this type."""
    return PtrDType.of(self, size, space)


class PtrDType(DType):
  """A pointer to `size` elements of type `base` in an address space."""

  __slots__ = ("base", "size", "space")
  # there is one for every size of a buffer, so these are forgotten when nothing has them
  _pointers: ClassVar[WeakValueDictionary[tuple[object, ...], PtrDType]] = WeakValueDictionary()
  base: DType
  size: int
  space: AddrSpace

  @classmethod
  def of(cls, base: DType, size: int, space: AddrSpace) -> PtrDType:
    """The one pointer type to `size` elements of `base`. Raises ValueError for a base that memory cannot have."""
    if isinstance(base, PtrDType) or base.kind in ("void", "index"):
      raise ValueError(f"no pointer to {base!r}: use a concrete scalar or vector type")
    key = (base, size, space)
    if (found := cls._pointers.get(key)) is not None:
      return found
    self: PtrDType = object.__new__(cls)
    name = f"ptr<{base.name}, {size}, {space.value}>"
    fields = (("name", name), ("kind", base.kind), ("bits", base.bits), ("count", 1), ("itemsize", 8))
    for field, value in (*fields, ("base", base), ("size", size), ("space", space)):
      object.__setattr__(self, field, value)
    return cls._pointers.setdefault(key, self)

  def __repr__(self) -> str:
    return f"{self.base!r}.ptr({self.size}, {self.space!r})"

  def __reduce__(self) -> tuple[object, ...]:
    return (PtrDType.of, (self.base, self.size, self.space))

  def scalar(self) -> DType:
    return self

  def vec(self, count: int) -> DType:
    raise ValueError(f"no vector of pointers: {self!r}")


# Each type's direct successors in the promotion lattice (the one of NEP 50 and JAX, without weak types).
_SUCCESSORS: dict[str, tuple[str, ...]] = {
  "bool": ("int8", "uint8"), "int8": ("int16",), "uint8": ("int16", "uint16"), "int16": ("int32",),
  "uint16": ("int32", "uint32"), "int32": ("int64",), "uint32": ("int64", "uint64"), "int64": ("fp8e4m3", "fp8e5m2"),
  "uint64": ("fp8e4m3", "fp8e5m2"), "fp8e4m3": ("float16", "bfloat16"), "fp8e5m2": ("float16", "bfloat16"),
  "float16": ("float32",), "bfloat16": ("float32",), "float32": ("float64",), "float64": (),
}  # fmt: skip


def _reachable(name: str) -> frozenset[str]:
  return frozenset({name}.union(*(_reachable(successor) for successor in _SUCCESSORS[name])))


_ABOVE: dict[str, frozenset[str]] = {name: _reachable(name) for name in _SUCCESSORS}

# names in Python's `struct`
_FORMATS: dict[str, str] = {
  "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
  "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip

# number of significand bits (the hidden one included) and largest exponent of the float types with infinities
_FLOATS = {"fp8e5m2": (3, 15), "float16": (11, 15), "bfloat16": (8, 127), "float32": (24, 127), "float64": (53, 1023)}
# largest finite value and number of significand bits of each float type
FLOAT_LIMITS = {"fp8e4m3": (448.0, 4)} | {
  n: ((2 - 2.0 ** (1 - bits)) * 2.0**e, bits) for n, (bits, e) in _FLOATS.items()
}


def _ends(dtype: DType) -> tuple[int | float | bool, int | float | bool]:
  """The least and the greatest value of a type."""
  kind, bits = dtype.kind, dtype.bits
  if kind == "float":
    most = FLOAT_LIMITS["fp8e4m3"][0] if dtype.scalar() is dtypes.fp8e4m3 else math.inf
    return -most, most
  if kind == "bool":
    return False, True
  if kind == "uint":
    return 0, (1 << bits) - 1
  if kind == "void":
    raise TypeError(f"{dtype!r} has no least and no greatest value")
  return -(1 << bits - 1), (1 << bits - 1) - 1


class dtypes:
  """The scalar types, in promotion order, and questions about types."""

  void = DType("void", "void", 0)
  bool = DType("bool", "bool", 8)
  index = DType("index", "index", 64)
  int8 = DType("int8", "int", 8)
  uint8 = DType("uint8", "uint", 8)
  int16 = DType("int16", "int", 16)
  uint16 = DType("uint16", "uint", 16)
  int32 = DType("int32", "int", 32)
  uint32 = DType("uint32", "uint", 32)
  int64 = DType("int64", "int", 64)
  uint64 = DType("uint64", "uint", 64)
  fp8e4m3 = DType("fp8e4m3", "float", 8)
  fp8e5m2 = DType("fp8e5m2", "float", 8)
  float16 = DType("float16", "float", 16)
  bfloat16 = DType("bfloat16", "float", 16)
  float32 = DType("float32", "float", 32)
  float64 = DType("float64", "float", 64)

  half, float, double = float16, float32, float64
  char, uchar, short, ushort = int8, uint8, int16, uint16
  int, uint, long, ulong = int32, uint32, int64, uint64

  default_float: ClassVar[DType] = float32
  default_int: ClassVar[DType] = int32

  fp8s: ClassVar[tuple[DType, ...]] = (fp8e4m3, fp8e5m2)
  floats: ClassVar[tuple[DType, ...]] = (fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64)
  sints: ClassVar[tuple[DType, ...]] = (int8, int16, int32, int64)
  uints: ClassVar[tuple[DType, ...]] = (uint8, uint16, uint32, uint64)
  ints: ClassVar[tuple[DType, ...]] = (int8, uint8, int16, uint16, int32, uint32, int64, uint64)
  int8s: ClassVar[tuple[DType, ...]] = (uint8, int8)
  int16s: ClassVar[tuple[DType, ...]] = (uint16, int16)
  int32s: ClassVar[tuple[DType, ...]] = (uint32, int32)
  int64s: ClassVar[tuple[DType, ...]] = (uint64, int64)
  all: ClassVar[tuple[DType, ...]] = (bool, *ints, *floats)

  @staticmethod
  def fields() -> dict[str, DType]:
    """Every scalar type by each of its names, `half` and `float16`: what `dtypes.NAME` gives."""
    return {name: value for name, value in vars(dtypes).items() if isinstance(value, DType) and "default" not in name}

  @staticmethod
  def finfo(dtype: DType) -> tuple[builtins.int, builtins.int]:
    """(bits of the exponent, bits of the significand that are stored) of a float type. Raises TypeError for others."""
    if dtype.kind != "float":
      raise TypeError(f"finfo takes a float type, got {dtype!r}")
    stored = FLOAT_LIMITS[dtype.scalar().name][1] - 1
    return dtype.bits - 1 - stored, stored

  @staticmethod
  def is_float(x: DType) -> builtins.bool:
    """True for every floating-point type, scalar or vector."""
    return x.kind == "float"

  @staticmethod
  def is_int(x: DType) -> builtins.bool:
    """True for signed and unsigned integers and `index`; False for bool."""
    return x.kind in ("int", "uint", "index")

  @staticmethod
  def is_unsigned(x: DType) -> builtins.bool:
    """True for unsigned integers; False for bool and `index`."""
    return x.kind == "uint"

  @staticmethod
  def is_bool(x: DType) -> builtins.bool:
    """True for bool, scalar or vector."""
    return x.kind == "bool"

  @staticmethod
  def min(dtype: DType) -> builtins.int | builtins.float | builtins.bool:
    """The least value of a type: -inf for floats (the least finite value for fp8e4m3, which has no infinity)."""
    return _ends(dtype)[0]

  @staticmethod
  def max(dtype: DType) -> builtins.int | builtins.float | builtins.bool:
    """The greatest value of a type: inf for floats (448 for fp8e4m3)."""
    return _ends(dtype)[1]

  @staticmethod
  def from_py(x: object) -> DType:
    """The type a Python value gets: bool, `default_int` or `default_float`; for a sequence, of its elements."""
    if isinstance(x, builtins.bool):
      return dtypes.bool
    if isinstance(x, builtins.int):
      return dtypes.default_int
    if isinstance(x, builtins.float):
      return dtypes.default_float
    if isinstance(x, (list, tuple)):
      return dtypes.promote(*{dtypes.from_py(v) for v in x}) if x else dtypes.default_float
    raise TypeError(f"no dtype for {x!r} of type {type(x).__name__}: expected bool, int, float or a list of them")

  @staticmethod
  def promote(*args: DType) -> DType:
    """The least type of the lattice that is above all arguments (scalar types).

    Integers that no integer type holds together (uint64 with a signed type) give `default_float`, as in JAX.
    """
    first = args[0]
    if all(d is first for d in args):
      return first
    if any(d.name not in _ABOVE for d in args):
      raise TypeError(f"no promotion between {', '.join(map(repr, args))}")
    common = frozenset.intersection(*(_ABOVE[d.name] for d in args))
    if all(d.kind != "float" for d in args) and all(_scalars[name].kind == "float" for name in common):
      return dtypes.default_float
    return _scalars[min(common, key=lambda name: (-len(_ABOVE[name]), _ORDER[name]))]

  @staticmethod
  def can_lossless_cast(source: DType, target: DType) -> builtins.bool:
    """Whether every value of `source` is a value of `target` (scalar types)."""
    if source is target or source.kind == "bool":
      return source is target or target.kind != "void"
    if source.kind == "float" or target.kind == "float":
      if target.kind != "float":
        return False
      limit, digits = FLOAT_LIMITS[target.name]
      if source.kind != "float":
        bits = source.bits - (source.kind == "int")
        return bits <= digits and limit >= 2.0**bits
      largest, needed = FLOAT_LIMITS[source.name]
      # fp8e4m3 is the one type without infinities, so nothing else fits in it
      return target is not dtypes.fp8e4m3 and largest <= limit and needed <= digits
    if target.kind in ("bool", "void"):
      return False
    return int(dtypes.min(source)) >= int(dtypes.min(target)) and int(dtypes.max(source)) <= int(dtypes.max(target))

  @staticmethod
  def parse(name: str) -> DType:
    """The type of a printed name: `float32`, `int8x4`, `ptr<float32, 16, global>`."""
    if name.startswith("ptr<") and name.endswith(">"):
      base, _, rest = name[4:-1].partition(", ")
      size, _, space = rest.partition(", ")
      try:
        return dtypes.parse(base).ptr(builtins.int(size), AddrSpace(space))
      except ValueError as error:
        raise ValueError(f"unknown dtype {name!r}: expected ptr<element, size, global|local|reg>") from error
    if (found := _scalars.get(name)) is not None:
      return found
    scalar, _, lanes = name.rpartition("x")
    if scalar in _scalars and lanes.isdecimal() and lanes.isascii() and 1 < builtins.int(lanes) <= 65536:
      return _scalars[scalar].vec(builtins.int(lanes))
    known = ", ".join(_scalars)
    raise ValueError(f"unknown dtype {name!r}: expected one of {known}, a vector as float32x4, or a pointer")


_scalars: dict[str, DType] = {t.name: t for t in vars(dtypes).values() if type(t) is DType}
_ORDER: dict[str, int] = {name: number for number, name in enumerate(_scalars)}
