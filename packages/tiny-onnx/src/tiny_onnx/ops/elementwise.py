"""Operators on each element: arithmetic, comparisons, logic, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Host, Value, host_of, tensor_of
from tiny_tensor import Tensor, dtypes
from tiny_uop import DType

Array = np.ndarray[Any, Any]


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
  """A function of arrays as one that also takes the call."""
  return lambda call, *arrays: function(*arrays)


def unary(
  name: str, function: Callable[[Tensor], Tensor], since: int = 1, host: Callable[..., Any] | None = None
) -> None:
  """Registers an operator of one input without attributes."""
  op(name, since, host=on_host(host) if host else None)(lambda call, x: function(x))


def whole(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
  """A function of floats on numbers of any dtype: those of integers stay."""
  return lambda x: function(x) if x.is_floating_point() else x


def sign(x: Tensor) -> Tensor:
  return x.sign().cast(x.dtype)


unary("Abs", Tensor.abs, host=np.abs)
unary("Acos", Tensor.acos)
unary("Acosh", Tensor.acosh)
unary("Asin", Tensor.asin)
unary("Asinh", Tensor.asinh)
unary("Atan", Tensor.atan)
unary("Atanh", Tensor.atanh)
unary("Ceil", whole(Tensor.ceil), host=np.ceil)
unary("Cos", Tensor.cos)
unary("Cosh", Tensor.cosh)
unary("Erf", Tensor.erf)
unary("Exp", Tensor.exp, host=np.exp)
unary("Floor", whole(Tensor.floor), host=np.floor)
unary("IsNaN", Tensor.isnan)
unary("Log", Tensor.log, host=np.log)
unary("Mish", Tensor.mish)
unary("Neg", Tensor.neg, host=np.negative)
unary("Not", Tensor.logical_not, host=np.logical_not)
unary("BitwiseNot", Tensor.bitwise_not)
unary("Reciprocal", Tensor.reciprocal, host=np.reciprocal)
unary("Relu", lambda x: x.relu())
unary("Round", Tensor.round, host=np.rint)
unary("Sigmoid", Tensor.sigmoid)
unary("Sign", sign, host=np.sign)
unary("Sin", Tensor.sin)
unary("Sinh", Tensor.sinh)
unary("Softplus", lambda x: x.softplus())
unary("Softsign", lambda x: x.softsign())
unary("Sqrt", Tensor.sqrt, host=np.sqrt)
unary("Tan", Tensor.tan)
unary("Tanh", Tensor.tanh)
unary("HardSwish", lambda x: x * (x * (1 / 6) + 0.5).clamp(0, 1))


@op("IsInf")
def is_inf(call: Call, x: Tensor) -> Tensor:
  return x.isinf(bool(call["detect_positive"]), bool(call["detect_negative"]))


@op("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
  return (x >= 0).where(x, x * call["alpha"])


@op("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Tensor:
  return (x > call["alpha"]).where(x, 0)


@op("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
  return (x > 0).where(x, x.minimum(0).expm1() * call["alpha"])


@op("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
  return x.celu(call["alpha"])


@op("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
  return (x > 0).where(x * call["gamma"], x.minimum(0).expm1() * (call["alpha"] * call["gamma"]))


@op("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
  return (x * call["alpha"] + call["beta"]).clamp(0, 1)


@op("Shrink")
def shrink(call: Call, x: Tensor) -> Tensor:
  lambd, bias = call["lambd"], call["bias"]
  floats = x if x.is_floating_point() else x.cast(dtypes.float32)
  return (floats < -lambd).where(floats + bias, (floats > lambd).where(floats - bias, 0)).cast(x.dtype)


@op("Gelu", 20)
def gelu(call: Call, x: Tensor) -> Tensor:
  if call["approximate"] == "tanh":
    return x * 0.5 * ((x * math.sqrt(2 / math.pi) * (x * x * 0.044715 + 1)).tanh() + 1)
  return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)


@op("Swish", 24)
def swish(call: Call, x: Tensor) -> Tensor:
  return x * (x * call["alpha"]).sigmoid()


@op("PRelu", 7)
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
  return (x < 0).where(x * slope, x)


@op("PRelu", 1)
def prelu_by_channel(call: Call, x: Tensor, slope: Tensor) -> Tensor:
  if slope.ndim == 1 and x.ndim > 1:
    slope = slope.reshape(1, -1, *[1] * (x.ndim - 2))
  return prelu(call, x, slope)


# Operators of two inputs. Before version 7 they broadcast only where an attribute says so, along an axis.


def legacy(call: Call, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
  """Operands as broadcasting before version 7 has them: `axis` says where the axes of `y` begin."""
  axis = call["axis"]
  if call["broadcast"] and axis is not None and y.ndim:
    start = axis % x.ndim
    y = y.reshape(*y.shape, *[1] * (x.ndim - start - y.ndim))
  return x, y


def binary(name: str, function: Callable[[Tensor, Tensor], Tensor], host: Callable[..., Any] | None = None) -> None:
  """Registers an operator of two inputs, for all versions."""
  on_arrays = on_host(host) if host else None
  op(name, 7, host=on_arrays)(lambda call, x, y: function(x, y))
  op(name, 1)(lambda call, x, y: function(*legacy(call, x, y)))


def divide(x: Tensor, y: Tensor) -> Tensor:
  """Integers are divided toward zero."""
  return x / y if x.is_floating_point() else x.div(y, rounding_mode="trunc")


def divide_arrays(x: Array, y: Array) -> Array:
  if x.dtype.kind == "O" or y.dtype.kind == "O":
    return np.asarray(x // y, object)
  if x.dtype.kind in "iu":
    safe = np.where(y == 0, 1, y)
    found: Array = np.where(y == 0, 0, np.sign(x) * np.sign(safe) * (np.abs(x) // np.abs(safe))).astype(x.dtype)
    return found
  with np.errstate(all="ignore"):
    quotient: Array = np.divide(x, y)
    return quotient


def power(x: Tensor, y: Tensor) -> Tensor:
  """The result has the base's dtype."""
  if x.is_floating_point() or not y.is_floating_point():
    return x.pow(y.cast(x.dtype) if x.is_floating_point() or y.dtype != x.dtype else y).cast(x.dtype)
  return x.cast(y.dtype).pow(y).cast(x.dtype)


def equal(x: Tensor, y: Tensor) -> Tensor:
  return x == y


binary("Add", Tensor.add, np.add)
binary("Sub", Tensor.sub, np.subtract)
binary("Mul", Tensor.mul, np.multiply)
binary("Div", divide, divide_arrays)
binary("And", lambda x, y: x & y, np.logical_and)
binary("Or", lambda x, y: x | y, np.logical_or)
binary("Xor", lambda x, y: x ^ y, np.logical_xor)
binary("Equal", equal, lambda x, y: np.asarray(np.equal(x, y), bool))
binary("Greater", lambda x, y: x > y, lambda x, y: np.asarray(np.greater(x, y), bool))
binary("Less", lambda x, y: x < y, lambda x, y: np.asarray(np.less(x, y), bool))
binary("GreaterOrEqual", lambda x, y: x >= y, lambda x, y: np.asarray(np.greater_equal(x, y), bool))
binary("LessOrEqual", lambda x, y: x <= y, lambda x, y: np.asarray(np.less_equal(x, y), bool))
binary("Pow", power)
binary("BitwiseAnd", lambda x, y: x & y)
binary("BitwiseOr", lambda x, y: x | y)
binary("BitwiseXor", lambda x, y: x ^ y)


@op("BitShift")
def bit_shift(call: Call, x: Tensor, y: Tensor) -> Tensor:
  bits = x.dtype.bits
  if call["direction"] not in ("LEFT", "RIGHT"):
    raise ModelError(f"direction is LEFT or RIGHT, found {call['direction']!r}")
  inside = y < bits
  near = inside.where(y, 0)
  if call["direction"] == "LEFT":
    return inside.where(x << near, 0)
  beyond = (x < 0).where(-1, 0).cast(x.dtype) if x.dtype.kind == "int" else 0
  return inside.where(x >> near, beyond)


def modulo(call: Call, x: Array, y: Array) -> Any:
  if x.dtype.kind == "O" or y.dtype.kind == "O":
    return x % y
  return np.fmod(x, y) if call["fmod"] else np.mod(x, y)


@op("Mod", 10, host=modulo)
def mod(call: Call, x: Tensor, y: Tensor) -> Tensor:
  return x.fmod(y) if call["fmod"] else x % y


def variadic(name: str, function: Callable[[Any, Any], Any], host: Callable[[Any, Any], Any]) -> None:
  """Registers an operator of any number of inputs."""
  op(name, 1, host=lambda call, *arrays: reduce(host, arrays))(lambda call, *tensors: reduce(function, tensors))


variadic("Sum", Tensor.add, np.add)
variadic("Max", Tensor.maximum, np.maximum)
variadic("Min", Tensor.minimum, np.minimum)


@op("Mean")
def mean(call: Call, *tensors: Tensor) -> Tensor:
  return reduce(Tensor.add, tensors) / len(tensors)


def lowest(dtype: DType) -> Any:
  return -math.inf if dtype.kind == "float" else dtype.min


def greatest(dtype: DType) -> Any:
  return math.inf if dtype.kind == "float" else dtype.max


@op("Clip", 11)
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
  if low is not None:
    x = x.maximum(low)
  return x if high is None else x.minimum(high)


@op("Clip", 1)
def clip_by_attributes(call: Call, x: Tensor) -> Tensor:
  low, high = call.get("min", lowest(x.dtype)), call.get("max", greatest(x.dtype))
  return x.maximum(low).minimum(high)


def where_arrays(call: Call, condition: Array, x: Array, y: Array) -> Array:
  return np.where(condition.astype(bool), x, y)


@op("Where", 9, host=where_arrays, raw=True)
def where(call: Call, condition: Value, x: Value, y: Value) -> Value:
  if isinstance(x, Host) and x.array.dtype.kind == "O" and not x.symbolic:
    return Host(np.where(host_of(condition), x.array, host_of(y)))
  return tensor_of(condition).where(tensor_of(x), tensor_of(y))
