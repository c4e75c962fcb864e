"""Tensors from nothing: constants, ranges, identities, uninitialised memory, memory of others."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Self

from tiny_runtime import Device, adopted_buffer, host_buffer
from tiny_tensor import capturing
from tiny_tensor.base import DTypeLike, Scalar, TensorBase, const_uop, to_dtype
from tiny_tensor.capturing import note_write
from tiny_tensor.host import plain
from tiny_tensor.naming import known_as
from tiny_tensor.placement import DeviceLike, canonical
from tiny_tensor.realize import buffer_for
from tiny_tensor.shapes import greatest, shape_of, upper
from tiny_uop import DType, UOp, dtypes, sint
from tiny_uop.shape import simple_size


def named(**kwargs: Any) -> dict[str, Any]:
  """The arguments that are not None."""
  return {name: value for name, value in kwargs.items() if value is not None}


class CreationMixin(TensorBase):
  """Class methods that make tensors. All take `dtype`, `device` and `requires_grad`."""

  __slots__ = ()

  @classmethod
  def _make(cls, uop: UOp, requires_grad: bool | None = None) -> Self:
    """A tensor for a graph, checked to be able to require a gradient if asked to."""
    return cls._wrap(uop).requires_grad_(requires_grad)

  def requires_grad_(self, requires_grad: bool | None = True) -> Self:
    """Set whether `backward` gives this tensor a gradient. Only floats can have one: TypeError."""
    if requires_grad:
      if not dtypes.is_float(self.dtype):
        raise TypeError(f"only float tensors can require a gradient, got {self.dtype.name}")
      if not self._history:
        self._own_storage()
    if requires_grad is not self.requires_grad:
      note_write()
    self.requires_grad = requires_grad
    return self

  @classmethod
  def full(
    cls, shape: Sequence[sint] | sint, fill_value: Scalar | UOp, dtype: DTypeLike | None = None,
    device: DeviceLike = None, requires_grad: bool | None = None,
  ) -> Self:  # fmt: skip
    """All elements `fill_value`; the dtype is that of the value unless given. Sizes and the value may be symbolic."""
    if isinstance(fill_value, UOp):
      kind = dtypes.default_int if dtype is None else to_dtype(dtype)
      zeros = cls.full(shape, 0, kind, device)
      return cls._make((zeros + fill_value)._as_dtype(kind).uop, requires_grad)
    fill_value = plain(fill_value)
    kind = dtypes.from_py(fill_value) if dtype is None else to_dtype(dtype)
    return cls._make(const_uop(fill_value, kind, shape_of((shape,)), canonical(device)), requires_grad)

  @classmethod
  def zeros(cls, *shape: Any, **kwargs: Any) -> Self:
    """Zeros of the default float unless `dtype` is given."""
    return cls.full(shape_of(shape), 0.0, **kwargs)

  @classmethod
  def ones(cls, *shape: Any, **kwargs: Any) -> Self:
    """Ones of the default float unless `dtype` is given."""
    return cls.full(shape_of(shape), 1.0, **kwargs)

  @classmethod
  def _invalid_size(cls, what: str, value: Any) -> ValueError:
    """The error for a negative size or count, to raise. `what` names it."""
    return ValueError(f"{what} must not be negative, got {value}")

  @classmethod
  @known_as(end="stop")
  def arange(
    cls, start: Scalar | UOp, stop: Scalar | UOp | None = None, step: Scalar = 1, dtype: DTypeLike | None = None,
    device: DeviceLike = None, requires_grad: bool | None = None,
  ) -> Self:  # fmt: skip
    """`start`, `start + step`, … before `stop`; `arange(n)` is 0 to n-1. An integer dtype if all three are integers.
    `start` and `stop` may be symbolic integers, next to integers.
    """
    if isinstance(start, UOp) or isinstance(stop, UOp):
      first, last = (0, start) if stop is None else (start, stop)
      return cls._make(cls._symbolic_range(first, last, step, dtype, device).uop, requires_grad)
    start, stop, step = plain(start), stop if stop is None else plain(stop), plain(step)
    if stop is None:
      start, stop = 0, start
    if step == 0:
      raise ValueError(f"arange step cannot be 0: arange({start}, {stop}, {step})")
    if not all(map(math.isfinite, (start, stop, step))):
      raise ValueError(f"arange counts between finite numbers, got arange({start}, {stop}, {step})")
    kind = dtypes.from_py([start, stop, step]) if dtype is None else to_dtype(dtype)
    count = max(math.ceil((stop - start) / step), 0)
    return cls._make((cls._counting(count, kind, device) * step + start)._as_dtype(kind).uop, requires_grad)

  @classmethod
  def _symbolic_range(cls, start: Any, stop: Any, step: Any, dtype: DTypeLike | None, device: DeviceLike) -> Self:
    """`arange` between integers of which one is an expression."""
    if isinstance(step, UOp) or not all(hasattr(end, "__index__") for end in (start, stop, step)) or step == 0:
      raise TypeError(
        f"arange with a symbolic end counts between integers, in steps that are a number: got {(start, stop, step)}"
      )
    kind = dtypes.default_int if dtype is None else to_dtype(dtype)
    count = greatest(0, (stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step)
    values: Self = cls._counting(simple_size(count), kind, device) * step + start
    return values._as_dtype(kind)

  @classmethod
  def _counting(cls, count: sint, dtype: DType, device: DeviceLike) -> Self:
    """0 to count-1, in a dtype in which arithmetic with steps of `dtype` is exact enough."""
    seed = cls.full((), 0, dtypes.int32, device)
    wide = dtypes.int64 if dtype in (dtypes.int64, dtypes.uint64) or upper(count) >= 1 << 31 else dtypes.int32
    exact = dtypes.float64 if dtype == dtypes.float64 else dtypes.float32
    index = seed._count_up(count, wide)
    return index._as_dtype(exact) if dtypes.is_float(dtype) else index

  @classmethod
  def linspace(
    cls, start: Scalar, stop: Scalar, steps: int, dtype: DTypeLike | None = None, device: DeviceLike = None,
    requires_grad: bool | None = None,
  ) -> Self:  # fmt: skip
    """`steps` values from `start` to `stop`, both included: the first half counts from `start`, the other one back from
    `stop`, so that rounding grows toward the middle. Values of an integer dtype are truncated at the end.
    """
    start, stop, steps = plain(start), plain(stop), operator.index(steps)
    if steps < 0:
      raise cls._invalid_size("steps", steps)
    kind = dtypes.default_float if dtype is None else to_dtype(dtype)
    if kind == dtypes.bool:
      raise ValueError("linspace of bool makes no sense")
    if steps < 2:
      return cls.full((steps,), start, kind, device, requires_grad)
    wide = dtypes.float32 if dtypes.is_float(kind) and kind != dtypes.float64 else dtypes.float64
    index, step = cls._counting(steps, wide, device), (stop - start) / (steps - 1)
    values = (index < steps // 2).where(index * step + start, (index * -1 + (steps - 1)) * -step + stop)
    return cls._make(values._as_dtype(kind).uop, requires_grad)

  @classmethod
  def logspace(cls, start: Scalar, stop: Scalar, steps: int, base: float = 10.0, **kwargs: Any) -> Self:
    """`base` to the powers that `linspace` gives; of an integer dtype, truncated at the end."""
    kind = to_dtype(kwargs.pop("dtype", None) or dtypes.default_float)
    wide = dtypes.float64 if not dtypes.is_float(kind) or kind == dtypes.float64 else dtypes.float32
    grad = kwargs.pop("requires_grad", None)
    powers = cls.linspace(start, stop, steps, dtype=wide, **kwargs)
    values = powers.const_like(base).pow(powers)
    if dtypes.is_int(kind):  # what rounding has left just below a whole number is one
      values = values * (1 + 2.0**-40)
    return cls._make(values._as_dtype(kind).uop, grad)

  @classmethod
  def tril_indices(
    cls, row: int, col: int, offset: int = 0, dtype: DTypeLike = dtypes.int32, device: DeviceLike = None
  ) -> Self:
    """`(2, n)`: rows and columns of the lower triangle of a matrix, on and below a diagonal."""
    return cls._triangle([(i, j) for i in range(row) for j in range(min(i + offset + 1, col))], dtype, device)

  @classmethod
  def triu_indices(
    cls, row: int, col: int, offset: int = 0, dtype: DTypeLike = dtypes.int32, device: DeviceLike = None
  ) -> Self:
    """`(2, n)`: rows and columns of the upper triangle of a matrix, on and above a diagonal."""
    return cls._triangle([(i, j) for i in range(row) for j in range(max(i + offset, 0), col)], dtype, device)

  @classmethod
  def _triangle(cls, places: list[tuple[int, int]], dtype: DTypeLike, device: DeviceLike) -> Self:
    """Pairs as a matrix of two rows."""
    if not places:
      return cls.full((2, 0), 0, dtype, device)
    return cls([[p[0] for p in places], [p[1] for p in places]], dtype=dtype, device=device)  # type: ignore[call-arg]

  @classmethod
  def eye(
    cls, n: sint, m: sint | None = None, dtype: DTypeLike | None = None, device: DeviceLike = None,
    requires_grad: bool | None = None,
  ) -> Self:  # fmt: skip
    """`(n, m)` with ones on the diagonal."""
    rows, columns = (s if isinstance(s, UOp) else operator.index(s) for s in (n, n if m is None else m))
    if any(isinstance(s, int) and s < 0 for s in (rows, columns)):
      raise cls._invalid_size("the sizes of eye", (rows, columns))
    kind = dtypes.default_float if dtype is None else to_dtype(dtype)
    seed = cls.full((), 0, dtypes.int32, device)
    hot = seed._count_up(rows).unsqueeze(-1) == seed._count_up(columns)
    return cls._make(hot._as_dtype(kind).uop, requires_grad)

  @classmethod
  def empty(cls, *shape: Any, dtype: DTypeLike | None = None, device: DeviceLike = None, requires_grad: bool | None =
  None) -> Self:  # fmt: skip
    """Memory that nothing has been written to; reading it before that is an error."""
    size = shape_of(shape)
    kind = dtypes.default_float if dtype is None else to_dtype(dtype)
    return cls._make(buffer_for(const_uop(0, kind, size, canonical(device)))[1], requires_grad)

  @classmethod
  def from_blob(cls, ptr: int, shape: Sequence[int], dtype: DTypeLike | None = None, device: DeviceLike = None) -> Self:
    """A tensor over the memory at address `ptr` of this process, in order: what is written to the one is seen in the
    other. The caller keeps the memory for as long as the tensor and its views live. A copy where the device cannot work
    on memory of the host, for an address that is no multiple of an element's size, and while a TinyJit captures.
    """
    import ctypes

    kind, sizes = dtypes.default_float if dtype is None else to_dtype(dtype), shape_of((tuple(shape),))
    name = canonical(device)
    if 0 in sizes:
      return cls._wrap(const_uop(0, kind, sizes, name))
    array = (ctypes.c_ubyte * (math.prod(shape) * kind.itemsize)).from_address(ptr)
    data = memoryview(array).cast("B")
    aligned = isinstance(name, str) and ptr % kind.itemsize == 0 and capturing.current() is None
    if isinstance(name, str) and aligned and Device.opened(name).capabilities.host_import:
      return cls._wrap(adopted_buffer(name, data, kind).reshape(sizes))
    return cls._wrap(host_buffer(data, kind).copy_to(name).reshape(sizes))

  def _like(self, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments with this tensor's dtype and device as defaults."""
    return {"dtype": self.dtype, "device": self.device, **kwargs}

  def _alike(self, made: Self, kwargs: dict[str, Any]) -> Self:
    """A tensor made for this one's device, in its pieces where it has pieces and `kwargs` name no other device."""
    return (made if "device" in kwargs else made._in_pieces_of(self)).requires_grad_(kwargs.get("requires_grad"))

  def full_like(
    self, fill_value: Scalar, dtype: DTypeLike | None = None, device: DeviceLike = None, **kwargs: Any
  ) -> Self:
    """`full` of this shape, dtype and device."""
    kwargs |= named(dtype=dtype, device=device)
    return self._alike(self.full(self.shape, fill_value, **self._like({**kwargs, "requires_grad": None})), kwargs)

  def zeros_like(self, **kwargs: Any) -> Self:
    """Zeros of this shape, dtype and device."""
    return self.full_like(0, **kwargs)

  def ones_like(self, **kwargs: Any) -> Self:
    """Ones of this shape, dtype and device."""
    return self.full_like(1, **kwargs)

  def empty_like(self, dtype: DTypeLike | None = None, device: DeviceLike = None, **kwargs: Any) -> Self:
    """`empty` of this shape, dtype and device."""
    kwargs |= named(dtype=dtype, device=device)
    if self.uop.sharding is None or "device" in kwargs:
      return self.empty(*self.shape, **self._like(kwargs))
    kind = self.dtype if kwargs.get("dtype") is None else to_dtype(kwargs["dtype"])
    return self._make(buffer_for(self.uop.cast(kind))[1], kwargs.get("requires_grad"))

  # *** of this dtype and device, of another shape ***

  def new_full(self, size: Sequence[sint] | sint, fill_value: Scalar, **kwargs: Any) -> Self:
    """`full` of this dtype and device."""
    return self.full(size, fill_value, **self._like(kwargs))

  def new_zeros(self, *size: Any, **kwargs: Any) -> Self:
    """Zeros of this dtype and device."""
    return self.full(shape_of(size), 0, **self._like(kwargs))

  def new_ones(self, *size: Any, **kwargs: Any) -> Self:
    """Ones of this dtype and device."""
    return self.full(shape_of(size), 1, **self._like(kwargs))

  def new_empty(self, *size: Any, **kwargs: Any) -> Self:
    """`empty` of this dtype and device."""
    return self.empty(*shape_of(size), **self._like(kwargs))
