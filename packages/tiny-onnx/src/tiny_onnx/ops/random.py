"""Random numbers. With an attribute `seed` they are those of NumPy's RandomState, as in the standard's own examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tiny_onnx.registry import Call, op
from tiny_onnx.values import DTYPES, Value, elem_of, shape_of, tensor_of
from tiny_tensor import Tensor, dtypes


def generator(call: Call) -> np.random.RandomState | None:
  seed = call["seed"]
  return None if seed is None else np.random.RandomState(np.array(seed).astype(np.int64) % (1 << 32))


def seeded_uniform(call: Call, shape: Sequence[Any]) -> Tensor:
  """Numbers in [0, 1): float32."""
  source = generator(call)
  return Tensor.rand(*shape) if source is None else Tensor(source.uniform(0, 1, tuple(shape)).astype(np.float32))


def uniform(call: Call, shape: Sequence[Any], elem: int) -> Tensor:
  low, high = call["low"], call["high"]
  return (seeded_uniform(call, shape) * (high - low) + low).cast(DTYPES[elem])


def normal(call: Call, shape: Sequence[Any], elem: int) -> Tensor:
  source = generator(call)
  made = Tensor.randn(*shape) if source is None else Tensor(source.normal(0, 1, tuple(shape)).astype(np.float32))
  return (made * call["scale"] + call["mean"]).cast(DTYPES[elem])


@op("RandomUniform", raw=True, random=True)
def random_uniform(call: Call) -> Tensor:
  return uniform(call, call["shape"], call["dtype"])


@op("RandomUniformLike", raw=True, random=True)
def random_uniform_like(call: Call, x: Value) -> Tensor:
  return uniform(call, shape_of(x), call.get("dtype", elem_of(x)))


@op("RandomNormal", raw=True, random=True)
def random_normal(call: Call) -> Tensor:
  return normal(call, call["shape"], call["dtype"])


@op("RandomNormalLike", raw=True, random=True)
def random_normal_like(call: Call, x: Value) -> Tensor:
  return normal(call, shape_of(x), call.get("dtype", elem_of(x)))


@op("Bernoulli", 15, raw=True, random=True)
def bernoulli(call: Call, x: Value) -> Tensor:
  chance = tensor_of(x)
  drawn = seeded_uniform(call, chance.shape)
  return (drawn < chance).cast(DTYPES[call.get("dtype", elem_of(x))])


@op("Multinomial", 7, random=True)
def multinomial(call: Call, x: Tensor) -> Tensor:
  """Draws of classes by their unnormalised log-probabilities: where uniform numbers fall in the cumulative ones."""
  chances = x.cast(dtypes.float32).softmax(-1).cumsum(-1)
  drawn = seeded_uniform(call, (x.shape[0], call["sample_size"]))
  found = (drawn.unsqueeze(-1) >= chances.unsqueeze(1)).cast(dtypes.int32).sum(-1)
  return found.minimum(x.shape[1] - 1).cast(DTYPES[call.get("dtype", 6)])
