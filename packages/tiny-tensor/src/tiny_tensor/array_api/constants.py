"""The constants and data types of the standard. `float16` and `bfloat16` are more than it asks for; complex types are
missing."""

from __future__ import annotations

import math

from tiny_uop import dtypes

__all__ = [
  "bfloat16", "bool", "e", "float16", "float32", "float64", "inf", "int16", "int32", "int64", "int8", "nan",
  "newaxis", "pi", "uint16", "uint32", "uint64", "uint8",
]  # fmt: skip

e = math.e
"""Euler's number."""
inf = math.inf
"""Infinity."""
nan = math.nan
"""Not a number."""
newaxis = None
"""Makes an axis of size 1 in an index."""
pi = math.pi
"""π."""

bool = dtypes.bool
"""True or False, in a byte."""
int8 = dtypes.int8
"""Signed integers of 8 bits."""
int16 = dtypes.int16
"""Signed integers of 16 bits."""
int32 = dtypes.int32
"""Signed integers of 32 bits: the default."""
int64 = dtypes.int64
"""Signed integers of 64 bits."""
uint8 = dtypes.uint8
"""Unsigned integers of 8 bits."""
uint16 = dtypes.uint16
"""Unsigned integers of 16 bits."""
uint32 = dtypes.uint32
"""Unsigned integers of 32 bits."""
uint64 = dtypes.uint64
"""Unsigned integers of 64 bits."""
float16 = dtypes.float16
"""Binary floats of 16 bits; more than the standard asks for."""
bfloat16 = dtypes.bfloat16
"""float32 without its lower 16 bits; more than the standard asks for."""
float32 = dtypes.float32
"""Binary floats of 32 bits: the default."""
float64 = dtypes.float64
"""Binary floats of 64 bits."""
