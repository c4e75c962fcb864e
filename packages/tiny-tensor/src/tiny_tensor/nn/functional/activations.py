"""Activation functions with PyTorch's arguments. `inplace` also assigns the result to the input."""

from tiny_tensor.base import DTypeLike
from tiny_tensor.tensor import Tensor

__all__ = [
  "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_softmax",
  "logsigmoid", "mish", "prelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu", "softmax", "softmin",
  "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
]  # fmt: skip


def _kept(input: Tensor, out: Tensor, inplace: bool) -> Tensor:
  return input.assign(out) if inplace else out


def relu(input: Tensor, inplace: bool = False) -> Tensor:
  """`max(x, 0)`."""
  return _kept(input, input.relu(), inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
  """relu limited to 6."""
  return _kept(input, input.relu6(), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
  """x where positive, else `negative_slope * x`."""
  return _kept(input, input.leaky_relu(negative_slope), inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
  """leaky_relu whose slope is `weight`: one number, or one for each channel (axis 1)."""
  if weight.ndim > 1 or (weight.numel() != 1 and (input.ndim < 2 or weight.numel() != input.shape[1])):
    raise ValueError(f"prelu: weight of shape {weight.shape} is not one number, nor one per channel of {input.shape}")
  slope = weight.reshape(()) if weight.numel() == 1 else weight.reshape((-1, *(1,) * (input.ndim - 2)))
  return (input > 0).where(input, input * slope)


def rrelu(
  input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
  """leaky_relu with slopes drawn from [lower, upper) for each element, or their mean unless `training`."""
  if lower > upper:
    raise ValueError(f"rrelu: lower={lower} must not be greater than upper={upper}")
  slope = (lower + upper) / 2
  out = input.leaky_relu(slope) if not training else (
    input > 0).where(input, input * (input.rand_like() * (upper - lower) + lower))  # fmt: skip
  return _kept(input, out, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
  """x where positive, else `alpha * (exp(x) - 1)`."""
  return _kept(input, input.elu(alpha), inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
  """`max(x, 0) + min(alpha * (exp(x/alpha) - 1), 0)`."""
  return _kept(input, input.celu(alpha), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
  """Scaled elu (Klambauer et al., 2017)."""
  return _kept(input, input.selu(), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
  """x times the share of the normal distribution below x; "tanh" takes the approximation that `Tensor.gelu` takes."""
  return input.gelu(approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
  """`x * sigmoid(x)`."""
  return _kept(input, input.silu(), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
  """`x * tanh(softplus(x))`."""
  return _kept(input, input.mish(), inplace)


def sigmoid(input: Tensor) -> Tensor:
  """`1 / (1 + exp(-x))`."""
  return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
  """Hyperbolic tangent."""
  return input.tanh()


def tanhshrink(input: Tensor) -> Tensor:
  """`x - tanh(x)`."""
  return input - input.tanh()


def logsigmoid(input: Tensor) -> Tensor:
  """`log(sigmoid(x))`."""
  return input.logsigmoid()


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
  """`x/6 + 1/2` limited to [0, 1]."""
  return _kept(input, input.hardsigmoid(), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
  """`x * relu6(x + 3) / 6`."""
  return _kept(input, input.hardswish(), inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
  """Limited to [min_val, max_val]; no gradient at the bounds. Raises ValueError where they cross."""
  if min_val > max_val:
    raise ValueError(f"hardtanh: min_val={min_val} must not be greater than max_val={max_val}")
  return _kept(input, input.hardtanh(min_val, max_val), inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
  """0 within [-lambd, lambd], else x."""
  return (input.abs() <= lambd).where(0, input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
  """0 within [-lambd, lambd], else x moved towards 0 by `lambd`. Raises ValueError for a negative one."""
  if lambd < 0:
    raise ValueError(f"softshrink: lambd must not be negative, got {lambd}")
  return (input > lambd).where(input - lambd, (input < -lambd).where(input + lambd, input * 0))


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
  """`log(1 + exp(beta x)) / beta`; x itself where `beta x > threshold`."""
  linear = input * beta > threshold
  return linear.where(input, linear.where(0, input).softplus(beta))


def softsign(input: Tensor) -> Tensor:
  """`x / (1 + |x|)`."""
  return input.softsign()


def softmax(input: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
  """Exponentials that sum to 1 along `dim`."""
  return input.softmax(dim, dtype)


def softmin(input: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
  """softmax of the negated values."""
  return input.softmin(dim, dtype)


def log_softmax(input: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
  """Logarithm of softmax."""
  return input.log_softmax(dim, dtype)


def glu(input: Tensor, dim: int = -1) -> Tensor:
  """The first half along `dim` times the sigmoid of the second (Dauphin et al., 2017). ValueError for an odd size."""
  size = int(input.shape[dim])
  if size % 2:
    raise ValueError(f"glu: axis {dim} of shape {input.shape} must have an even size, got {size}")
  first, second = input.split([size // 2, size // 2], dim)
  return first * second.sigmoid()


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
  """x where it is greater than `threshold`, else `value`."""
  return _kept(input, (input <= threshold).where(value, input), inplace)
