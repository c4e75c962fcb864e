"""Methods with PyTorch's names that write their result to the tensor itself: `add_`, `clamp_`, `copy_`, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar, cast, overload

from tiny_tensor.base import TensorBase, live_tensors
from tiny_tensor.capturing import note_write
from tiny_tensor.methods.assign import write_through
from tiny_tensor.realize import storage
from tiny_uop import DType, Ops, UOp, dtypes

T = TypeVar("T", bound=TensorBase)


class Method(Protocol):
  """A method that gives back the tensor that it belongs to."""

  @overload
  def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...

  @overload
  def __get__(self, instance: T, owner: type) -> Callable[..., T]: ...


def in_place(name: str) -> Method:
  """The method `name_`: what the method `name` gives is written to the tensor."""

  def method(self: T, *args: Any, **kwargs: Any) -> T:
    check_may_change(self, method.__name__)
    return become(self, getattr(self, name)(*args, **kwargs), method.__name__)

  method.__name__ = f"{name}_"
  method.__qualname__ = f"Tensor.{name}_"
  method.__doc__ = (
    f"`{name}`, whose result is written to this tensor, which is given back. Raises RuntimeError for a leaf that "
    "requires a gradient and a view of one, TypeError or ValueError where dtype or shape of the result do not fit."
  )
  return cast(Method, method)


def check_may_change(target: TensorBase, name: str) -> None:
  """Raises RuntimeError for a leaf that requires a gradient, or a view of one."""
  if not target.requires_grad:
    return
  own = not target._history
  if own or any(t._contents is target._contents and t.requires_grad and not t._history for t in live_tensors()):
    what = "a leaf that requires a gradient" if own else "a view of a leaf that requires a gradient"
    raise RuntimeError(
      f"{name} would change {what}: its gradient would be that of other values. Change w.detach(), or assign to it"
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
  elif not write_through(target, attached(target.uop), made.uop):
    raise RuntimeError(f"{name}: several elements of {target!r} are the same place in memory: clone() it first")
  if made.requires_grad and not target.requires_grad:
    target.requires_grad = target._history = True
  return target


def category(dtype: DType) -> int:
  """0 for bool, 1 for integers, 2 for floats: PyTorch writes no result to a lower one."""
  return 2 if dtypes.is_float(dtype) else int(not dtypes.is_bool(dtype))


def attached(view: UOp) -> UOp:
  """A view of memory without its DETACHs, which are no places in it."""
  base = storage(view)
  detached = [u for u in view.walk(lambda u: u is not base) if u.op is Ops.DETACH]
  for u in detached:
    view = view.substitute({u: u.src[0]})
  return view


class InPlaceMixin(TensorBase):
  """What is here is the table of methods that have such a form."""

  __slots__ = ()

  abs_ = in_place("abs")
  acos_ = in_place("acos")
  acosh_ = in_place("acosh")
  add_ = in_place("add")
  addbmm_ = in_place("addbmm")
  addcdiv_ = in_place("addcdiv")
  addcmul_ = in_place("addcmul")
  addmm_ = in_place("addmm")
  addmv_ = in_place("addmv")
  addr_ = in_place("addr")
  asin_ = in_place("asin")
  asinh_ = in_place("asinh")
  atan_ = in_place("atan")
  atan2_ = in_place("atan2")
  atanh_ = in_place("atanh")
  baddbmm_ = in_place("baddbmm")
  bitwise_and_ = in_place("bitwise_and")
  bitwise_not_ = in_place("bitwise_not")
  bitwise_or_ = in_place("bitwise_or")
  bitwise_xor_ = in_place("bitwise_xor")
  ceil_ = in_place("ceil")
  clamp_ = in_place("clamp")
  clamp_max_ = in_place("clamp_max")
  clamp_min_ = in_place("clamp_min")
  clip_ = in_place("clip")
  copysign_ = in_place("copysign")
  cos_ = in_place("cos")
  cosh_ = in_place("cosh")
  cumprod_ = in_place("cumprod")
  cumsum_ = in_place("cumsum")
  deg2rad_ = in_place("deg2rad")
  digamma_ = in_place("digamma")
  div_ = in_place("div")
  eq_ = in_place("eq")
  erf_ = in_place("erf")
  erfc_ = in_place("erfc")
  erfinv_ = in_place("erfinv")
  exp_ = in_place("exp")
  exp2_ = in_place("exp2")
  expm1_ = in_place("expm1")
  fill_ = in_place("fill")
  float_power_ = in_place("float_power")
  floor_ = in_place("floor")
  fmod_ = in_place("fmod")
  frac_ = in_place("frac")
  gcd_ = in_place("gcd")
  ge_ = in_place("ge")
  gt_ = in_place("gt")
  heaviside_ = in_place("heaviside")
  hypot_ = in_place("hypot")
  i0_ = in_place("i0")
  igamma_ = in_place("igamma")
  igammac_ = in_place("igammac")
  index_add_ = in_place("index_add")
  index_copy_ = in_place("index_copy")
  index_fill_ = in_place("index_fill")
  index_put_ = in_place("index_put")
  index_reduce_ = in_place("index_reduce")
  lcm_ = in_place("lcm")
  ldexp_ = in_place("ldexp")
  le_ = in_place("le")
  lerp_ = in_place("lerp")
  lgamma_ = in_place("lgamma")
  log_ = in_place("log")
  log10_ = in_place("log10")
  log1p_ = in_place("log1p")
  log2_ = in_place("log2")
  logical_and_ = in_place("logical_and")
  logical_not_ = in_place("logical_not")
  logical_or_ = in_place("logical_or")
  logical_xor_ = in_place("logical_xor")
  logit_ = in_place("logit")
  lt_ = in_place("lt")
  masked_fill_ = in_place("masked_fill")
  masked_scatter_ = in_place("masked_scatter")
  mul_ = in_place("mul")
  mvlgamma_ = in_place("mvlgamma")
  nan_to_num_ = in_place("nan_to_num")
  ne_ = in_place("ne")
  neg_ = in_place("neg")
  nextafter_ = in_place("nextafter")
  polygamma_ = in_place("polygamma")
  pow_ = in_place("pow")
  put_ = in_place("put")
  rad2deg_ = in_place("rad2deg")
  reciprocal_ = in_place("reciprocal")
  relu_ = in_place("relu")
  renorm_ = in_place("renorm")
  round_ = in_place("round")
  rsqrt_ = in_place("rsqrt")
  scatter_ = in_place("scatter")
  scatter_add_ = in_place("scatter_add")
  scatter_reduce_ = in_place("scatter_reduce")
  sgn_ = in_place("sgn")
  sigmoid_ = in_place("sigmoid")
  sign_ = in_place("sign")
  sin_ = in_place("sin")
  sinc_ = in_place("sinc")
  sinh_ = in_place("sinh")
  sqrt_ = in_place("sqrt")
  square_ = in_place("square")
  sub_ = in_place("sub")
  tan_ = in_place("tan")
  tanh_ = in_place("tanh")
  tril_ = in_place("tril")
  triu_ = in_place("triu")
  trunc_ = in_place("trunc")
  xlogy_ = in_place("xlogy")

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
