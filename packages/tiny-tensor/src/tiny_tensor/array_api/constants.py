"""The constants and data types of the standard. `float16` and `bfloat16` are more than it asks for; complex types are
missing."""

from __future__ import annotations

import math

from tiny_uop import dtypes

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi

bool = dtypes.bool
int8 = dtypes.int8
int16 = dtypes.int16
int32 = dtypes.int32
int64 = dtypes.int64
uint8 = dtypes.uint8
uint16 = dtypes.uint16
uint32 = dtypes.uint32
uint64 = dtypes.uint64
float16 = dtypes.float16
bfloat16 = dtypes.bfloat16
float32 = dtypes.float32
float64 = dtypes.float64
