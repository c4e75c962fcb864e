"""Rotary positions: by which angles the numbers of a head are rotated."""

from __future__ import annotations

import math

import numpy as np

from tiny_llm.architectures import Rope
from tiny_llm.sampling import Array

__all__ = ["rotations"]


def rotations(rope: Rope, positions: int, factors: Array | None = None) -> tuple[Array, Array]:
  """Cosines and sines, float32 `(positions, size / 2)`, of the angles at positions from 0 on. `factors`: what each
  frequency is divided by, `(size / 2,)`."""
  frequency = rope.base ** (-2 / rope.size * np.arange(rope.size // 2))
  if factors is not None:
    frequency = frequency / factors
  magnitude = rope.attention_factor
  if rope.scaling == "yarn" and rope.factor > 1:
    low, high = (_turning(rope, turns) for turns in (rope.fast, rope.slow))
    low, high = max(math.floor(low), 0), min(math.ceil(high), rope.size - 1)
    slow = ((np.arange(rope.size // 2) - low) / max(high - low, 0.001)).clip(0, 1)
    frequency = frequency * (1 - slow) + frequency / rope.factor * slow
    magnitude *= 1 + 0.1 * math.log(rope.factor)
  else:
    frequency = frequency / rope.factor
  angle = np.arange(positions)[:, None] * frequency
  return (np.cos(angle) * magnitude).astype(np.float32), (np.sin(angle) * magnitude).astype(np.float32)


def _turning(rope: Rope, turns: float) -> float:
  """Which pair of numbers, counted in fractions, turns so often in the trained context."""
  return rope.size * math.log(max(rope.trained, 1) / (turns * 2 * math.pi)) / (2 * math.log(rope.base))
