"""Methods with PyTorch's names that write their result to the tensor itself: `add_`, `clamp_`, `copy_`, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from tiny_tensor.base import TensorBase
from tiny_tensor.capturing import note_write
from tiny_tensor.methods.assign import check_places, sharing, write_through
from tiny_tensor.realize import storage
from tiny_uop import DType, dtypes

T = TypeVar("T", bound=TensorBase)


class InPlace:
  """Stands for the method `name_` in the body of a class: what the method `name` gives is written to the tensor."""

  def __set_name__(self, owner: type, own_name: str) -> None:
    name = own_name.removesuffix("_")

    def method(self: T, *args: Any, **kwargs: Any) -> T:
      check_may_change(self, own_name)
      return become(self, getattr(self, name)(*args, **kwargs), own_name)

    method.__name__, method.__qualname__ = own_name, f"Tensor.{own_name}"
    method.__doc__ = (
      f"`{name}`, whose result is written to this tensor, which is given back. Raises RuntimeError for a leaf that "
      "requires a gradient and a view of one, TypeError or ValueError where dtype or shape of the result do not fit."
    )
    setattr(owner, own_name, method)

  if TYPE_CHECKING:

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: T, owner: type) -> Callable[..., T]: ...
    def __get__(self, instance: Any, owner: type) -> Any: ...


def check_may_change(target: TensorBase, name: str) -> None:
  """Raises RuntimeError for a leaf that requires a gradient, or a view of one."""
  if not target.requires_grad or not TensorBase._recording:
    return
  own = not target._history
  if own or any(t._contents is target._contents and t.requires_grad and not t._history for t in sharing(target.uop)):
    what = "a leaf that requires a gradient" if own else "a view of a leaf that requires a gradient"
    raise RuntimeError(
      f"{name} would change {what}: its gradient would be that of other values. Do so in `with Tensor.no_grad():`, or "
      "assign to it"
    )


def become(target: T, value: TensorBase, name: str) -> T:
  """Write a value to a tensor; gives back the tensor."""
  if value.shape != target.shape:
    raise ValueError(f"{name} gives shape {value.shape}, which does not fit in this tensor, of shape {target.shape}")
  if category(value.dtype) > category(target.dtype):
    raise TypeError(f"{name} gives {value.dtype.name}, which this tensor, of {target.dtype.name}, cannot hold: cast it")
  made = value._as_dtype(target.dtype)
  if storage(target.uop) is None:
    note_write()
    target.uop = made.uop
  elif not write_through(target, target.uop, made.uop):
    check_places(target, name)
  if made.requires_grad and not target.requires_grad:
    target.requires_grad = target._history = True
  return target


def category(dtype: DType) -> int:
  """0 for bool, 1 for integers, 2 for floats: PyTorch writes no result to a lower one."""
  return 2 if dtypes.is_float(dtype) else int(not dtypes.is_bool(dtype))


class InPlaceMixin(TensorBase):
  """The methods that have such a form, by name, and those that are only there in place."""

  __slots__ = ()

  abs_ = acos_ = acosh_ = add_ = addbmm_ = addcdiv_ = addcmul_ = addmm_ = addmv_ = addr_ = asin_ = asinh_ = InPlace()
  atan_ = atan2_ = atanh_ = baddbmm_ = bitwise_and_ = bitwise_not_ = bitwise_or_ = bitwise_xor_ = ceil_ = InPlace()
  clamp_ = clamp_max_ = clamp_min_ = clip_ = copysign_ = cos_ = cosh_ = cumprod_ = cumsum_ = deg2rad_ = InPlace()
  digamma_ = div_ = eq_ = erf_ = erfc_ = erfinv_ = exp_ = exp2_ = expm1_ = fill_ = float_power_ = floor_ = InPlace()
  fmod_ = frac_ = gcd_ = ge_ = gt_ = heaviside_ = hypot_ = i0_ = igamma_ = igammac_ = index_add_ = InPlace()
  index_copy_ = index_fill_ = index_put_ = index_reduce_ = lcm_ = ldexp_ = le_ = lerp_ = lgamma_ = log_ = InPlace()
  log10_ = log1p_ = log2_ = logical_and_ = logical_not_ = logical_or_ = logical_xor_ = logit_ = lt_ = InPlace()
  masked_fill_ = masked_scatter_ = mul_ = mvlgamma_ = nan_to_num_ = ne_ = neg_ = nextafter_ = polygamma_ = InPlace()
  pow_ = put_ = rad2deg_ = reciprocal_ = relu_ = renorm_ = round_ = rsqrt_ = scatter_ = InPlace()
  scatter_add_ = scatter_reduce_ = sgn_ = sigmoid_ = sign_ = sin_ = sinc_ = sinh_ = sqrt_ = square_ = sub_ = InPlace()
  tan_ = tanh_ = tril_ = triu_ = trunc_ = xlogy_ = InPlace()

  def copy_(self, src: Self | Any) -> Self:
    """Write the values of `src`, on whatever device and of whatever dtype, repeated along axes of size 1."""
    check_may_change(self, "copy_")
    value: Self = src if isinstance(src, type(self)) else type(self)(src, device=self.device)  # type: ignore[call-arg]
    moved = value.shard_like(self) if value.shape == self.shape else value.to(self.device)
    return become(self, moved._as_dtype(self.dtype).broadcast_to(self.shape), "copy_")

  def zero_(self) -> Self:
    """Write zeros."""
    self.fill_(0)
    return self

  def uniform_(self, low: float = 0.0, high: float = 1.0) -> Self:
    """Write random numbers, uniform in [low, high)."""
    check_may_change(self, "uniform_")
    return become(self, self.rand_like() * (high - low) + low, "uniform_")

  def normal_(self, mean: float = 0.0, std: float = 1.0) -> Self:
    """Write random numbers, normal with a mean and a standard deviation."""
    check_may_change(self, "normal_")
    return become(self, self.randn_like() * std + mean, "normal_")

  def bernoulli_(self, p: float = 0.5) -> Self:
    """Write ones with probability `p`, and zeros."""
    check_may_change(self, "bernoulli_")
    return become(self, (self.rand_like(dtype=dtypes.float32) < p)._as_dtype(self.dtype), "bernoulli_")
