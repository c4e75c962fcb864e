"""Discrete Fourier transforms, with NumPy's names and arguments. A complex array is a pair (real, imaginary).

A transform of n = a·b values is a small matrix product over one axis of the values as an `(a, b)` matrix, a product
with roots of unity, and a transform of b values over the other (Cooley & Tukey, 1965; four steps, Bailey, 1990): 4096 =
64·64 is two products with 64×64 matrices. A large prime length is a convolution of a smooth one (Bluestein, 1970). All
of it is made of products and sums, and so are gradients.
"""

from __future__ import annotations

import cmath
import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

Pair: TypeAlias = tuple[Tensor, Tensor]
LARGEST = 64  # of a matrix: its product is quick where it stays in a cache
DIRECT = 256  # up to here a prime length is one product


@lru_cache(64)
def _roots(n: int, rows: int, columns: int, squares: bool, double: bool) -> bytes:
  """Real and imaginary parts `(2, rows, columns)` of exp(-2πi·j·k / n), or of exp(-πi·k² / n) in one row."""
  table = [cmath.exp(-2j * math.pi * k / n) for k in range(n)] if not squares else []
  if squares:
    values = [cmath.exp(-1j * math.pi * (k * k % (2 * n)) / n) for k in range(columns)]
  else:
    values = [table[j * k % n] for j in range(rows) for k in range(columns)]
  parts = [v.real for v in values] + [v.imag for v in values]
  return struct.pack(f"={len(parts)}{'d' if double else 'f'}", *parts)


def _constant(z: Tensor, n: int, rows: int, columns: int, squares: bool = False) -> Tensor:
  raw = _roots(n, rows, columns, squares, z.dtype is dtypes.float64)
  return Tensor(raw, device=z.device, dtype=z.dtype).reshape(2, rows, columns)


def _times(z: Tensor, w: Tensor, conjugate: bool = False) -> Tensor:
  """The product of complex `z (2, …)` and `w (2, …)`, or its conjugate."""
  re, im = w[0], -w[1] if conjugate else w[1]
  return Tensor.stack(z[0] * re - z[1] * im, z[0] * im + z[1] * re)


def _factor(n: int) -> int:
  """A divisor of n, at most LARGEST and near a root of n, so that all products are of like sizes; n for one product."""
  if n <= LARGEST:
    return n
  wanted = n ** (1 / math.ceil(math.log(n, LARGEST)))
  found = [a for a in range(2, LARGEST + 1) if n % a == 0]
  return min(found, key=lambda a: abs(math.log(a / wanted))) if found else (n if n <= DIRECT else 0)


def _product(z: Tensor) -> Tensor:
  """The transform of the last axis as one matrix product. `z` is complex `(2, …, n)`, or real `(1, …, n)`."""
  n = int(z.shape[-1])
  w = _constant(z, n, n, n)
  out = z @ w.permute(1, 0, 2).reshape(n, 2 * n)  # with both parts of the roots at once
  re, im = out[..., :n], out[..., n:]
  return Tensor.stack(re[0] - im[1], im[0] + re[1]) if z.shape[0] == 2 else Tensor.stack(re[0], im[0])


def _transform(z: Tensor) -> Tensor:
  """The transform of the last axis, of `(2, m, n)` or, real, `(1, m, n)`: `(2, m, n)`, not scaled."""
  parts, m, n = (int(size) for size in z.shape)
  if (a := _factor(n)) == n:
    return _product(z)
  if a == 0:
    return _bluestein(z)
  b = n // a
  y = _product(z.reshape(parts, m, a, b).transpose(-1, -2).reshape(parts, m * b, a)).reshape(2, m, b, a)
  y = _times(y, _constant(z, n, b, a)).transpose(-1, -2).reshape(2, m * a, b).contiguous()
  return _transform(y).reshape(2, m, a, b).transpose(-1, -2).reshape(2, m, n)


def _bluestein(z: Tensor) -> Tensor:
  """A transform of any length as a convolution, of a power of two: j·k = (j² + k² - (k - j)²) / 2."""
  n = int(z.shape[-1])
  size = 1 << (2 * n - 2).bit_length()
  chirp = _constant(z, n, 1, n, squares=True)
  x = _times(z if z.shape[0] == 2 else z.cat(z * 0), chirp).pad(((0, 0), (0, 0), (0, size - n)))
  back = Tensor.stack(chirp[0], -chirp[1])
  kernel = back.pad(((0, 0), (0, 0), (0, size - n))) + back[:, :, 1:].flip(2).pad(((0, 0), (0, 0), (size - n + 1, 0)))
  product = _times(_transform(x).contiguous(), _transform(kernel).contiguous())
  # the inverse is the transform of the conjugate, conjugated
  found = _transform(Tensor.stack(product[0], -product[1]).contiguous()) / size
  return _times(Tensor.stack(found[0], -found[1])[:, :, :n], chirp)


def _parts(x: Tensor | Pair) -> Tensor:
  """A complex or real argument as `(2, …)` or `(1, …)`, of float32 or float64."""
  parts = x if isinstance(x, (tuple, list)) else (x,)
  if len(parts) not in (1, 2) or not all(isinstance(p, Tensor) for p in parts):
    raise TypeError(f"a transform takes a Tensor, or a pair of the real and the imaginary one, got {type(x).__name__}")
  z: Tensor = Tensor.stack(*parts)
  return z if z.dtype is dtypes.float64 else z.cast(dtypes.float32)


def _scale(norm: str, n: int, inverse: bool) -> float:
  if norm not in ("backward", "ortho", "forward"):
    raise ValueError(f"norm must be 'backward', 'ortho' or 'forward', got {norm!r}")
  return n**-0.5 if norm == "ortho" else 1 / n if (norm == "backward") == inverse else 1.0


def _sized(z: Tensor, axis: int, n: int) -> Tensor:
  """An axis cut, or filled up with zeros, to n values."""
  if n < 1:
    raise ValueError(f"a transform needs at least one value, got n={n}")
  have = int(z.shape[axis])
  z = z.shrink([(0, n) if i == axis else None for i in range(z.ndim)]) if have > n else z
  return z.pad([(0, n - have) if i == axis else (0, 0) for i in range(z.ndim)]) if have < n else z


def _along(z: Tensor, axis: int, n: int | None, norm: str, inverse: bool) -> Tensor:
  """The transform of `z (1 or 2, …)` along an axis of the argument."""
  if not -(z.ndim - 1) <= axis < z.ndim - 1:
    raise IndexError(f"axis {axis} of an argument with {z.ndim - 1} axes")
  axis = axis + 1 if axis >= 0 else axis + z.ndim
  z = _sized(z, axis, int(z.shape[axis]) if n is None else n)
  z = z.transpose(axis, -1)
  scale, shape = _scale(norm, int(z.shape[-1]), inverse), z.shape[1:]
  flat = z.reshape(z.shape[0], -1, shape[-1])
  if inverse and z.shape[0] == 2:
    flat = Tensor.stack(flat[0], -flat[1])
  out = _transform(flat) * scale
  if inverse:
    out = Tensor.stack(out[0], -out[1])
  return out.reshape(2, *shape).transpose(axis, -1)


def _pair(z: Tensor) -> Pair:
  return z[0], z[1]


def fft(x: Tensor | Pair, n: int | None = None, axis: int = -1, norm: str = "backward") -> Pair:
  """Σ x[j] exp(-2πi·j·k / n) for each k, along an axis cut or filled up to `n`. float64 stays, all else is float32.

  `norm` is what is divided by n: the inverse ("backward"), the transform ("forward"), or by √n both ("ortho").
  """
  return _pair(_along(_parts(x), axis, n, norm, False))


def ifft(x: Tensor | Pair, n: int | None = None, axis: int = -1, norm: str = "backward") -> Pair:
  """The inverse of `fft`."""
  return _pair(_along(_parts(x), axis, n, norm, True))


def rfft(x: Tensor, n: int | None = None, axis: int = -1, norm: str = "backward") -> Pair:
  """The first n // 2 + 1 values of `fft` of a real Tensor: the others are conjugate to them."""
  return rfftn(x, None if n is None else (n,), (axis,), norm)


def irfft(x: Tensor | Pair, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
  """The inverse of `rfft`: `n` real values, by default 2 (m - 1) of m."""
  return irfftn(x, None if n is None else (n,), (axis,), norm)


def _axes(z: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[tuple[int, int | None]]:
  """(axis, size or None for its own), in the order in which NumPy transforms: the last first."""
  if axes is None:
    axes = range(z.ndim - 1) if s is None else range(z.ndim - 1 - len(s), z.ndim - 1)
  sizes = [None] * len(axes) if s is None else list(s)
  if len(sizes) != len(axes):
    raise ValueError(f"s={s} has {len(sizes)} sizes for {len(axes)} axes")
  return list(zip(axes, sizes, strict=True))[::-1]


def fftn(
  x: Tensor | Pair, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Pair:
  """`fft` along several axes (all), cut or filled up to the sizes `s`."""
  z = _parts(x)
  for axis, n in _axes(z, s, axes):
    z = _along(z, axis, n, norm, False)
  return _pair(z)


def ifftn(
  x: Tensor | Pair, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Pair:
  """The inverse of `fftn`."""
  z = _parts(x)
  for axis, n in _axes(z, s, axes):
    z = _along(z, axis, n, norm, True)
  return _pair(z)


def rfftn(x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Pair:
  """`rfft` along the last of the axes, then `fft` along the others."""
  z = _parts(x)
  if z.shape[0] == 2:
    raise TypeError("rfft takes a real Tensor, got a pair: use fft")
  (last, n), *others = _axes(z, s, axes)
  length = int(x.shape[last]) if n is None else n
  z = _along(z, last, n, norm, False)
  z = _sized(z, (last + 1) if last >= 0 else last + z.ndim, length // 2 + 1)
  for axis, size in others:
    z = _along(z, axis, size, norm, False)
  return _pair(z)


def irfftn(
  x: Tensor | Pair, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
  """The inverse of `rfftn`."""
  z = _parts(x)
  (last, n), *others = _axes(z, s, axes)
  for axis, size in others[::-1]:
    z = _along(z, axis, size, norm, True)
  if z.shape[0] == 1:
    z = z.cat(z * 0)
  axis = (last + 1) if last >= 0 else last + z.ndim
  n = 2 * (int(z.shape[axis]) - 1) if n is None else n
  z = _sized(z, axis, n // 2 + 1)
  rest = z.shrink([(1, (n + 1) // 2) if i == axis else None for i in range(z.ndim)]).flip(axis)
  whole = z.cat(Tensor.stack(rest[0], -rest[1]), dim=axis) if n > 2 else z
  return _along(whole, last, n, norm, True)[0]


def fft2(
  x: Tensor | Pair, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str = "backward"
) -> Pair:
  """`fftn` along two axes."""
  return fftn(x, s, axes, norm)


def ifft2(
  x: Tensor | Pair, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str = "backward"
) -> Pair:
  """`ifftn` along two axes."""
  return ifftn(x, s, axes, norm)


def rfft2(x: Tensor, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Pair:
  """`rfftn` along two axes."""
  return rfftn(x, s, axes, norm)


def irfft2(
  x: Tensor | Pair, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str = "backward"
) -> Tensor:
  """`irfftn` along two axes."""
  return irfftn(x, s, axes, norm)


def fftfreq(n: int, d: float = 1.0, dtype: DType | None = None) -> Tensor:
  """The frequency of each value of `fft` in cycles per unit, `d` units between values: 0, 1, …, -1, over n d."""
  return Tensor([*range((n + 1) // 2), *range(-(n // 2), 0)], dtype=dtype or dtypes.default_float) / (n * d)


def rfftfreq(n: int, d: float = 1.0, dtype: DType | None = None) -> Tensor:
  """Those of `rfft`."""
  return Tensor.arange(n // 2 + 1, dtype=dtype or dtypes.default_float) / (n * d)


def _rolled(x: Tensor | Pair, axes: int | Sequence[int] | None, places: Callable[[int], int]) -> Tensor | Pair:
  if isinstance(x, (tuple, list)):
    return tuple(_rolled(part, axes, places) for part in x)  # type: ignore[return-value]
  which = list(range(x.ndim)) if axes is None else [axes] if isinstance(axes, int) else list(axes)
  return x.roll([places(int(x.shape[a])) for a in which], which)


def fftshift(x: Tensor | Pair, axes: int | Sequence[int] | None = None) -> Tensor | Pair:
  """Frequency 0 in the middle of the axes (all)."""
  return _rolled(x, axes, lambda n: n // 2)


def ifftshift(x: Tensor | Pair, axes: int | Sequence[int] | None = None) -> Tensor | Pair:
  """The inverse of `fftshift`."""
  return _rolled(x, axes, lambda n: -(n // 2))


__all__ = [
  "fft", "fft2", "fftfreq", "fftn", "fftshift", "ifft", "ifft2", "ifftn", "ifftshift", "irfft", "irfft2", "irfftn",
  "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip
