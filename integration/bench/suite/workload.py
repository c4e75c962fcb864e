"""What a row of the benchmark is made of."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from suite.library import Array, Library, Program, Tensor

Weights = dict[str, Array]
Random = np.random.Generator


@dataclass(frozen=True)
class Roof:
  """The limit that the machine sets: "fma" (multiply-adds of float32), "dot int8" or "dot bf16" (its instructions for
  products of narrow numbers), or a stream ("read", "copy", "triad") over so many bytes in all."""

  kind: str
  nbytes: int = 0

  @property
  def unit(self) -> str:
    """Of work per nanosecond."""
    return "GB/s" if self.nbytes else "GFLOPS"

  def __str__(self) -> str:
    return f"{self.kind} over {self.nbytes >> 20} MB" if self.nbytes else self.kind


@dataclass(frozen=True)
class Goal:
  """What is to be reached.

  "roof": this fraction of the roof. "peers": this many times the rate of the best of `lanes`; () are all others.
  "seconds": at most so many per call.
  """

  kind: str
  value: float
  lanes: tuple[str, ...] = ()

  def __str__(self) -> str:
    if self.kind == "roof":
      return f"≥ {self.value:.2f} of roof"
    if self.kind == "seconds":
      return f"≤ {self.value * 1e6:.0f} µs" if self.value < 1e-3 else f"≤ {self.value:.2f} s"
    name = self.lanes[0] if self.lanes else "best peer"
    return f"≥ {self.value:.1f} × {name}" if self.value != 1 else f"≥ {name}"


@dataclass(frozen=True)
class Workload:
  """A program, what it is given, how much work it is, where it runs (lanes), and what is to be reached."""

  name: str
  group: str
  program: Program
  """`(library, weights, *inputs)` → result; of a training step, the loss."""
  inputs: Callable[[Random], tuple[Array, ...]]
  goal: Goal
  work: float
  """Bytes per call where the roof is a stream, else operations."""
  roof: Roof | None
  lanes: tuple[str, ...] = ("ours", "numpy", "torch", "tinygrad")
  weights: Callable[[Random], Weights] = field(default=lambda rng: {})
  tolerance: float = 1e-5
  """Largest error allowed, as a share of the largest value of the float64 result."""
  kind: str = "call"
  """"call"; "train": a step that changes its weights; "adam": a step of the optimiser alone, whose gradients are the
  inputs; "cold" and "warm": a new process, with and without caches."""

  def tensors(self, library: Library, arrays: tuple[Array, ...]) -> tuple[Tensor, ...]:
    """What a library's program gets for its inputs: of bfloat16, where the workload is."""
    made = tuple(library.tensor(array) for array in arrays)
    return tuple(map(library.to_bfloat16, made)) if self.name.endswith("bf16") else made

  def arrays(self) -> tuple[Weights, tuple[Array, ...]]:
    """(weights, inputs), the same in every process."""
    rng = np.random.default_rng(zlib.crc32(self.name.encode()))
    return self.weights(rng), self.inputs(rng)
