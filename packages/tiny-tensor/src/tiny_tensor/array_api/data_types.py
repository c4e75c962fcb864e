"""Data type functions: limits, kinds, promotion."""

from __future__ import annotations

import math

from tiny_tensor.base import Scalar, scalar_dtype
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes
from tiny_uop.dtype import FLOAT_LIMITS
from tiny_uop.records import dataclass

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

SIGNED, UNSIGNED = dtypes.sints, dtypes.uints
KINDS: dict[str, tuple[DType, ...]] = {
  "bool": (dtypes.bool,),
  "signed integer": SIGNED,
  "unsigned integer": UNSIGNED,
  "integral": (*SIGNED, *UNSIGNED),
  "real floating": dtypes.floats,
  "complex floating": (),
  "numeric": (*SIGNED, *UNSIGNED, *dtypes.floats),
}


@dataclass(frozen=True)
class finfo_object:
  """Limits of a float type: `eps` is the distance from 1.0 to the next number, the others are the extreme finite ones
  and the least that is not subnormal."""

  bits: int
  eps: float
  max: float
  min: float
  smallest_normal: float
  dtype: DType


@dataclass(frozen=True)
class iinfo_object:
  """Limits of an integer type."""

  bits: int
  max: int
  min: int
  dtype: DType


def dtype_of(value: DType | Tensor) -> DType:
  """A dtype, or that of an array. Raises TypeError for anything else."""
  if isinstance(value, Tensor):
    return value.dtype
  if isinstance(value, DType):
    return value
  raise TypeError(f"expected a data type or an array, got {value!r}")


def finfo(type: DType | Tensor, /) -> finfo_object:
  """Limits of a float type. Raises TypeError for others."""
  dtype = dtype_of(type)
  if not dtypes.is_float(dtype):
    raise TypeError(f"finfo takes a float type, got {dtype.name}: iinfo has the limits of integers")
  most, digits = FLOAT_LIMITS[dtype.name]
  # exponents of IEEE 754 lie evenly around 0; fp8e4m3 has one more at the top, where the others have infinity
  least = -6 if dtype is dtypes.fp8e4m3 else 2 - math.frexp(most)[1]
  return finfo_object(dtype.bits, 2.0 ** (1 - digits), most, -most, math.ldexp(1.0, least), dtype)


def iinfo(type: DType | Tensor, /) -> iinfo_object:
  """Limits of an integer type. Raises TypeError for others."""
  dtype = dtype_of(type)
  if not dtypes.is_int(dtype):
    raise TypeError(f"iinfo takes an integer type, got {dtype.name}: finfo has the limits of floats")
  return iinfo_object(dtype.bits, int(dtypes.max(dtype)), int(dtypes.min(dtype)), dtype)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
  """Whether a data type is, or is of, one of `kind`: types, or "bool", "signed integer", "unsigned integer",
  "integral", "real floating", "complex floating" (which none is) and "numeric". Raises ValueError for other names."""
  if isinstance(kind, tuple):
    return any(isdtype(dtype, k) for k in kind)
  if isinstance(kind, str):
    if kind not in KINDS:
      raise ValueError(f"unknown kind {kind!r}: expected one of {', '.join(KINDS)}")
    return dtype in KINDS[kind]
  return dtype is kind


def result_type(*arrays_and_dtypes: Tensor | DType | Scalar) -> DType:
  """The dtype that an operation on these has. Python numbers do not widen it."""
  known = [dtype_of(a) for a in arrays_and_dtypes if isinstance(a, (Tensor, DType))]
  if not known:
    raise ValueError("result_type needs at least one array or data type")
  out = dtypes.promote(*known)
  for value in arrays_and_dtypes:
    if not isinstance(value, (Tensor, DType)):
      out = dtypes.promote(out, scalar_dtype(value, out))
  return out


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
  """Whether promotion leads from one type to another: every integer type to every float type, too."""
  return dtypes.promote(dtype_of(from_), to) is to


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: str | None = None) -> Tensor:
  """The values converted; float → int truncates. Without `copy`, `x` itself where nothing changes."""
  moved = x if device is None else x.to(device)
  out = moved.cast(dtype)
  return out.clone() if copy and out is x else out
