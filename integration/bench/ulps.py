"""The largest errors of the elementary functions on the CPU, in units in the last place.

`python integration/bench/ulps.py [--stride N] [--float64] [NAME…]`: each float32 bit pattern (with a stride, every
N-th), or as many random float64 ones. What is found at most stands in the READMEs of tiny-codegen and tiny-tensor and
in `BOUNDS`; `integration/tests/test_function_errors.py` holds a sample to it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tiny_tensor import Context, Tensor

Array = np.ndarray[Any, Any]
CHUNK = 1 << 20


class Function(NamedTuple):
  """A method of Tensor, what it is compared with (in a wider type), and the bounds for float32 and float64."""

  compute: Callable[[Tensor], Tensor]
  reference: Callable[[Array], Array]
  single: float
  double: float
  low: float = -math.inf  # the range that the bounds are for
  high: float = math.inf


def _sigmoid(x: Array) -> Array:
  e = np.exp(-np.abs(x))
  return np.asarray(np.where(x >= 0, 1, e) / (1 + e))


def _softplus(x: Array) -> Array:
  return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


_erf = np.vectorize(math.erf, otypes=[np.float64])  # there is no wider one

BOUNDS: dict[str, Function] = {
  "exp": Function(Tensor.exp, np.exp, 1.0, 1.0),
  "exp2": Function(Tensor.exp2, np.exp2, 1.0, 1.0),
  "log": Function(Tensor.log, np.log, 1.0, 1.0),
  "log2": Function(Tensor.log2, np.log2, 1.0, 1.0),
  # beyond, the processor's sine of long doubles, the reference of float64, is not exact
  "sin": Function(Tensor.sin, np.sin, 1.0, 1.0),
  "cos": Function(Tensor.cos, np.cos, 1.0, 1.0),
  "tan": Function(Tensor.tan, np.tan, 2.5, 2.5),
  "asin": Function(Tensor.asin, np.arcsin, 2.5, 3.5),
  "acos": Function(Tensor.acos, np.arccos, 2.5, 3.5),
  "atan": Function(Tensor.atan, np.arctan, 3.0, 3.5),
  "sinh": Function(Tensor.sinh, np.sinh, 3.5, 3.5),
  "cosh": Function(Tensor.cosh, np.cosh, 3.0, 3.0),
  "tanh": Function(Tensor.tanh, np.tanh, 3.0, 3.0),
  "asinh": Function(Tensor.asinh, np.arcsinh, 2.5, 3.5),
  "acosh": Function(Tensor.acosh, np.arccosh, 2.5, 3.5),
  "atanh": Function(Tensor.atanh, np.arctanh, 2.5, 3.5),
  "expm1": Function(Tensor.expm1, np.expm1, 2.0, 3.5),
  "erf": Function(Tensor.erf, _erf, 1.5, 3.5),
  "sigmoid": Function(Tensor.sigmoid, _sigmoid, 2.5, 2.5),
  "silu": Function(Tensor.silu, lambda x: x * _sigmoid(x), 3.0, 3.0, -87.0, 1e38),
  "softplus": Function(Tensor.softplus, _softplus, 2.5, 3.5),
  "rsqrt": Function(Tensor.rsqrt, lambda x: 1 / np.sqrt(x), 1.5, 1.5),
}


def errors(got: Array, wanted: Array) -> Array:
  """In units in the last place of the rounded reference; infinite where one is infinite or NaN and the other is not."""
  with np.errstate(all="ignore"):
    rounded = wanted.astype(got.dtype)
    finite = np.isfinite(rounded) & np.isfinite(got)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    far = np.abs(got.astype(wanted.dtype) - wanted) / np.spacing(np.abs(rounded)).astype(wanted.dtype)
  return np.asarray(np.where(finite, far, np.where(same, 0, np.inf)), np.float64)


def worst(function: Function, x: Array) -> tuple[float, float]:
  """(largest error, where) over an array of float32 or float64."""
  x = x[~((x < function.low) | (x > function.high))]
  if x.dtype == np.float64 and function.reference in (np.sin, np.cos, np.tan):
    x = x[~(np.abs(x) > 1e6)]  # the processor's functions of long doubles, the reference, are not exact beyond
  wide = np.float64 if x.dtype == np.float32 or function.reference is _erf else np.longdouble
  with np.errstate(all="ignore"):
    wanted = function.reference(x.astype(wide))
  with Context(DEVICE="CPU"):
    error = errors(function.compute(Tensor(x)).numpy(), wanted)
  place = int(error.argmax())
  return float(error[place]), float(x[place])


def patterns(begin: int, count: int, stride: int) -> Array:
  """float32 numbers by their bits, from `begin` strides on."""
  bits = (np.arange(begin, begin + count, dtype=np.uint64) * np.uint64(stride)).astype(np.uint32)
  return bits.view(np.float32)


def doubles(count: int, seed: int) -> Array:
  """Random float64 numbers: half of them any bit pattern, half of ordinary size."""
  random = np.random.default_rng(seed)
  bits = random.integers(0, 1 << 64, count // 2, dtype=np.uint64, endpoint=False)
  size = 2.0 ** random.uniform(-20, 10, count - count // 2)
  return np.concatenate([bits.view(np.float64), size * random.choice([-1, 1], size.shape)])


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("names", nargs="*", help=", ".join(BOUNDS))
  parser.add_argument("--stride", type=int, default=1, help="of bit patterns; default 1: all")
  parser.add_argument("--float64", action="store_true")
  options = parser.parse_args()
  missed = 0
  for name in options.names or BOUNDS:
    function, start = BOUNDS[name], time.perf_counter()
    bound, found = function.double if options.float64 else function.single, (0.0, 0.0)
    total = (1 << 32) // options.stride
    for begin in range(0, total, CHUNK):
      count = min(CHUNK, total - begin)
      x = doubles(count, begin) if options.float64 else patterns(begin, count, options.stride)
      found = max(found, worst(function, x))
    missed += found[0] > bound
    took = f"{total} numbers, {time.perf_counter() - start:.0f} s"
    mark = "" if found[0] <= bound else "  MISSED"
    print(f"{name:9} {found[0]:8.3f} ulp at {found[1]!r}, bound {bound}; {took}{mark}", flush=True)
  return 1 if missed else 0


if __name__ == "__main__":
  sys.exit(main())
