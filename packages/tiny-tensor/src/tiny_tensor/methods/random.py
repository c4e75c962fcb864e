"""Random numbers from a counter: element i of the n-th draw depends on the seed, n and i alone.

Threefry (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11) turns a counter and a key into 64 random
bits. The key is the seed; a draw of n elements takes the next n counters. So results depend neither on the device nor
on when a tensor is computed. Key and first counter come from a small buffer on HOST and not from the graph, so that
every draw of a shape is the same graph.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from typing import Any, Self

from tiny_runtime import host_buffer
from tiny_tensor.autograd import tracing
from tiny_tensor.base import DTypeLike, TensorBase, to_dtype
from tiny_tensor.capturing import record_draw
from tiny_tensor.methods.creation import named
from tiny_tensor.naming import known_as
from tiny_tensor.placement import DeviceLike, canonical
from tiny_tensor.shapes import shape_of, upper
from tiny_uop import DType, Ops, dtypes, sint
from tiny_uop.locks import shared_lock

MASK = (1 << 64) - 1


class Stream:
  """The key, and the counter of the next draw."""

  def __init__(self) -> None:
    self.key = int.from_bytes(os.urandom(8), "little")
    self.counter = 0
    self.lock = shared_lock()

  def seed(self, seed: int) -> None:
    """Start again; the same seed gives the same numbers."""
    # the golden ratio spreads small seeds over both words
    with self.lock:
      self.key, self.counter = (seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & MASK, 0

  def draw(self, count: int) -> bytes:
    """(key, first counter) of the next `count` numbers."""
    with self.lock:  # no two threads get the same numbers, nor does what comes in between in one
      key, start, self.counter = self.key, self.counter, (self.counter + count) & MASK
    return struct.pack("=2Q", key, start)


STREAM = Stream()


def _over_fan(variance: float, sizes: Sequence[sint]) -> float:
  """√(variance/n) of n elements; 0 of none."""
  fan = math.prod(map(upper, sizes))
  return math.sqrt(variance / fan) if fan else 0.0


class RandomMixin(TensorBase):
  """Distributions. Class methods take `dtype`, `device` and `requires_grad`."""

  __slots__ = ()

  @staticmethod
  def manual_seed(seed: int = 0) -> None:
    """Start the stream of random numbers that belongs to `seed`."""
    STREAM.seed(seed)

  @classmethod
  def _random_words(cls, shape: Sequence[int], device: DeviceLike = None) -> Self:
    """64 random bits per element, uint64."""
    if tracing.active() and (words := tracing.drawn(cls, tuple(shape), device)) is not None:
      return words  # type: ignore[no-any-return]  # of this class
    name, count = canonical(device), math.prod(shape)
    if count == 0:
      return cls.full(shape, 0, dtypes.uint64, name)
    state = host_buffer(STREAM.draw(count), dtypes.uint64)
    record_draw(state, lambda: STREAM.draw(count))
    pair = cls._wrap(state.copy_to(name), False)
    key, start = pair._select_axis(0, 0, 1), pair._select_axis(0, 1, 2)
    counter = start + pair._count_up(count, dtypes.uint64)
    return counter.alu(Ops.THREEFRY, key.expand(count)).reshape(shape)

  def _low_word(self) -> Self:
    """The lower 32 bits."""
    return self._as_dtype(dtypes.uint32)

  def _high_word(self) -> Self:
    """The upper 32 bits."""
    return (self.alu(Ops.SHR, self.const_like(32)))._as_dtype(dtypes.uint32)

  def _fraction_of(self, span: int) -> Self:
    """Words as integers in [0, span): the upper word of the 128-bit product, which favours no range (Lemire, "Fast
    random integer generation in an interval", 2019, without its rejections: a bias of span/2^64 at most)."""
    half = self.const_like(32)
    high = self.alu(Ops.SHR, half)
    if span < 1 << 32:
      return (high * span).alu(Ops.SHR, half)
    low, mask = self & 0xFFFFFFFF, 0xFFFFFFFF
    middle = high * (span & mask) + (low * (span & mask)).alu(Ops.SHR, half)
    carry = low * (span >> 32) + (middle & mask)
    return high * (span >> 32) + middle.alu(Ops.SHR, half) + carry.alu(Ops.SHR, half)

  def _unit(self, dtype: DType) -> Self:
    """Words as floats in [0, 1): as many leading bits as the dtype's significand holds, so that every value is
    exact.
    """
    digits = {dtypes.float64: 53, dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8}.get(dtype, 3)
    wide = dtypes.float64 if dtype == dtypes.float64 else dtypes.float32
    top = self.alu(Ops.SHR, self.const_like(self.dtype.bits - digits))
    return (top._as_dtype(wide) * 2.0**-digits)._as_dtype(dtype)

  @classmethod
  def rand(
    cls, *shape: Any, dtype: DTypeLike | None = None, device: DeviceLike = None, requires_grad: bool | None = None,
    contiguous: bool = True,
  ) -> Self:  # fmt: skip
    """Uniform in [0, 1). Drawn once: unless `contiguous` is False the numbers are kept, not computed at each use."""
    kind = dtypes.default_float if dtype is None else to_dtype(dtype)
    if not dtypes.is_float(kind):
      raise TypeError(f"rand gives floats, got dtype {kind.name}: use randint")
    size = tuple(int(s) if isinstance(s, int) else upper(s) for s in shape_of(shape))
    words = cls._random_words(size, device)
    out = (words if kind == dtypes.float64 else words._low_word())._unit(kind)
    return cls._make((out.contiguous() if contiguous else out).uop, requires_grad)

  @classmethod
  def randn(
    cls, *shape: Any, dtype: DTypeLike | None = None, device: DeviceLike = None, requires_grad: bool | None = None
  ) -> Self:
    """Normal, mean 0 and standard deviation 1 (Box and Muller, 1958)."""
    kind = dtypes.default_float if dtype is None else to_dtype(dtype)
    size = tuple(int(s) for s in shape_of(shape))
    words = cls._random_words(size, device)
    if kind == dtypes.float64:
      a, b = words._unit(kind), cls._random_words(size, device)._unit(kind)
    else:
      a, b = words._low_word()._unit(dtypes.float32), words._high_word()._unit(dtypes.float32)
    # 1 - b is in (0, 1], so that the logarithm is finite
    out = (a * (2 * math.pi)).cos() * ((b * -1 + 1).log() * -2).sqrt()
    return cls._make(out._as_dtype(kind).contiguous().uop, requires_grad)

  @classmethod
  def randint(cls, *shape: Any, low: int = 0, high: int = 10, dtype: DTypeLike = dtypes.int32, **kwargs: Any) -> Self:
    """Integers in [low, high). Raises ValueError for bounds that the dtype cannot hold."""
    kind = to_dtype(dtype)
    if not dtypes.is_int(kind):
      raise TypeError(f"randint gives integers, got dtype {kind.name}")
    if not isinstance(low, int) or not isinstance(high, int):
      raise TypeError(f"randint takes integer bounds, got low={low!r} and high={high!r}")
    if low >= high:
      raise ValueError(f"randint needs low < high, got {low} and {high}")
    if low < dtypes.min(kind) or high - 1 > dtypes.max(kind):
      raise ValueError(
        f"randint of {kind.name} needs bounds within [{dtypes.min(kind)}, {dtypes.max(kind)}], got low={low} and "
        f"high={high}"
      )
    words = cls._random_words(tuple(int(s) for s in shape_of(shape)), kwargs.pop("device", None))
    value = words if high - low > MASK else words._fraction_of(high - low)
    return cls._make((value + (low & MASK))._as_dtype(kind).contiguous().uop, **kwargs)

  @classmethod
  def uniform(
    cls, *shape: Any, low: float = 0.0, high: float = 1.0, dtype: DTypeLike | None = None, **kwargs: Any
  ) -> Self:
    """Uniform in [low, high)."""
    grad = kwargs.pop("requires_grad", None)
    kind = dtypes.default_float if dtype is None else to_dtype(dtype)
    if dtypes.is_int(kind):
      return cls.randint(*shape, low=int(low), high=int(high), dtype=kind, **kwargs)
    return cls._make((cls.rand(*shape, dtype=kind, **kwargs) * (high - low) + low).uop, grad)

  @classmethod
  def normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, **kwargs: Any) -> Self:
    """Normal with a mean and a standard deviation."""
    grad = kwargs.pop("requires_grad", None)
    return cls._make((cls.randn(*shape, **kwargs) * std + mean).uop, grad)

  @classmethod
  def scaled_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
    """Uniform in ±1/√n, n elements in all."""
    size = shape_of(shape)
    bound = _over_fan(1, size)
    return cls.uniform(*size, low=-bound, high=bound, **kwargs)

  @classmethod
  def glorot_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
    """Uniform in ±√(6 / (shape[0] + product of the rest)) (Glorot & Bengio, 2010)."""
    size = shape_of(shape)
    fan = upper(size[0]) + math.prod(map(upper, size[1:]))
    bound = math.sqrt(6 / fan) if fan else 0.0
    return cls.uniform(*size, low=-bound, high=bound, **kwargs)

  @classmethod
  def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
    """Uniform in ±√3·√(2/(1+a²))/√fan_in, fan_in the product of all sizes but the first (He et al., 2015)."""
    size = shape_of(shape)
    bound = _over_fan(6 / (1 + a * a), size[1:])
    return cls.uniform(*size, low=-bound, high=bound, **kwargs)

  @classmethod
  def kaiming_normal(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
    """Normal with standard deviation √(2/(1+a²))/√fan_in (He et al., 2015)."""
    size = shape_of(shape)
    return cls.normal(*size, mean=0.0, std=_over_fan(2 / (1 + a * a), size[1:]), **kwargs)

  @classmethod
  def randperm(cls, n: int, device: DeviceLike = None, dtype: DTypeLike = dtypes.int32, **kwargs: Any) -> Self:
    """A permutation of 0 to n-1."""
    if n < 0:
      raise cls._invalid_size("n", n)
    words = cls._random_words((n,), device).contiguous()
    return (
      cls._make(words.argsort()._as_dtype(to_dtype(dtype)).uop, **kwargs) if n else cls.full((0,), 0, dtype, device)
    )

  def rand_like(self, **kwargs: Any) -> Self:
    """`rand` of this shape, dtype and device."""
    return self._alike(self.rand(*self.shape, **self._like({**kwargs, "requires_grad": None})), kwargs)

  def randn_like(self, dtype: DTypeLike | None = None, **kwargs: Any) -> Self:
    """`randn` of this shape, dtype and device."""
    kwargs |= named(dtype=dtype)
    return self._alike(self.randn(*self.shape, **self._like({**kwargs, "requires_grad": None})), kwargs)

  def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
    """int32 positions drawn with the weights `(n,)` or `(rows, n)`; without replacement all differ.

    Raises ValueError for more samples than weights without replacement.
    """
    if not 1 <= self.ndim <= 2:
      raise ValueError(f"multinomial takes weights of shape (n,) or (rows, n), got {self.shape}")
    n = int(self.shape[-1])
    if num_samples <= 0 or (not replacement and num_samples > n):
      raise ValueError(
        f"cannot draw {num_samples} samples of {n} weights{'' if replacement else ' without replacement'}"
      )
    weights = self._as_float().detach().unsqueeze(0) if self.ndim == 1 else self._as_float().detach()
    rows = int(weights.shape[0])
    if replacement or num_samples == 1:
      edges = weights.cumsum(1)
      draws = self.rand(rows, num_samples, device=self.device, dtype=weights.dtype) * edges._select_axis(1, n - 1, n)
      out = (edges.unsqueeze(1) <= draws.unsqueeze(-1)).sum(-1).clamp(None, n - 1)
    else:
      # the smallest of exponential times with these rates are a sample without replacement (Efraimidis & Spirakis,
      # 2006)
      times = -(self.rand(rows, n, device=self.device).neg() + 1).log() / weights
      out = times.topk(num_samples, largest=False)[1]
    return out.squeeze(0) if self.ndim == 1 else out

  def dropout(self, p: float = 0.5) -> Self:
    """Zeros with probability `p`, the rest scaled by 1/(1-p), while `Tensor.training`; otherwise itself."""
    return self._dropout(p, kept=True)

  def _dropout(self, p: float, kept: bool) -> Self:
    """`dropout`. What is left out is `kept` in memory, or drawn again from its counters wherever it is used."""
    if not 0.0 <= p <= 1.0:
      raise ValueError(f"dropout probability must be between 0 and 1, got {p}")
    if not type(self).training or p == 0:
      return self
    if p == 1:
      return self.mul(0)
    keep = self.rand(*self.shape, device=self.device, dtype=dtypes.float32, contiguous=False) >= p
    keep = keep._in_pieces_of(self)
    return (keep.contiguous() if kept else keep).where(self / (1 - p), 0)

  @known_as(seed="key")
  def threefry(self, key: Self) -> Self:
    """Threefry-2x32 of these counters under `key`; both uint64."""
    if self.dtype != dtypes.uint64 or key.dtype != dtypes.uint64:
      raise TypeError(f"threefry takes uint64, got {self.dtype.name} and {key.dtype.name}")
    a, b = self._broadcasted(key)
    return a.alu(Ops.THREEFRY, b)
