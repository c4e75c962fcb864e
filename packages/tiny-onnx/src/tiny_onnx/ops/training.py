"""Gradients, and steps of optimisers, as ai.onnx.preview.training has them."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_onnx.errors import ModelError
from tiny_onnx.registry import TRAINING, Call, op
from tiny_onnx.values import Value, tensor_of
from tiny_tensor import Tensor


def groups(tensors: tuple[Tensor, ...], kinds: int) -> list[tuple[Tensor, ...]]:
  """For each tensor that is trained, itself and what goes with it."""
  if len(tensors) % kinds:
    raise ModelError(f"{kinds} inputs were expected for each tensor, found {len(tensors)}")
  count = len(tensors) // kinds
  return [tuple(tensors[k * count + i] for k in range(kinds)) for i in range(count)]


def joined(rows: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
  return tuple(row[k] for k in range(len(rows[0])) for row in rows)


@op("Gradient", domain=TRAINING, raw=True, scoped=True)
def gradient(call: Call, *inputs: Value) -> tuple[Tensor, ...]:
  """The derivatives of a value of the graph, by its name, with respect to others."""
  scope = call.scope
  assert scope is not None
  targets = [tensor_of(scope[name]) for name in call["xs"]]
  return tuple(tensor_of(scope[call["y"]]).sum().gradient(*targets, materialize_grads=True))


@op("Momentum", domain=TRAINING)
def momentum(call: Call, rate: Tensor, step: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
  alpha, beta, decay = call["alpha"], call["beta"], call["norm_coefficient"]
  rows = []
  for x, gradient, v in groups(tensors, 3):
    gradient = gradient + x * decay
    share = (step > 0).where(beta, 1.0)
    v = v * alpha + gradient * share
    rows.append((x - rate * (gradient + v * alpha if call["mode"] == "nesterov" else v), v))
  return joined(rows)


@op("Adagrad", domain=TRAINING)
def adagrad(call: Call, rate: Tensor, step: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
  rows = []
  for x, gradient, h in groups(tensors, 3):
    gradient = gradient + x * call["norm_coefficient"]
    h = h + gradient * gradient
    rows.append((x - rate / (step * call["decay_factor"] + 1) * gradient / (h.sqrt() + call["epsilon"]), h))
  return joined(rows)


@op("Adam", domain=TRAINING)
def adam(call: Call, rate: Tensor, step: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
  alpha, beta = call["alpha"], call["beta"]
  rows = []
  for x, gradient, v, h in groups(tensors, 4):
    gradient = gradient + x * call["norm_coefficient"]
    v = v * alpha + gradient * (1 - alpha)
    h = h * beta + gradient * gradient * (1 - beta)
    t = step.cast(x.dtype)
    corrected = (step > 0).where(rate * (1 - t.const_like(beta).pow(t)).sqrt() / (1 - t.const_like(alpha).pow(t)), rate)
    new = x - corrected * v / (h.sqrt() + call["epsilon"])
    rows.append((new * (1 - call["norm_coefficient_post"]), v, h))
  return joined(rows)
