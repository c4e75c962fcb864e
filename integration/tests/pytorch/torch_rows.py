"""Comparisons with PyTorch as rows: a name, the expression for us, the expression for PyTorch, shapes of arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Tensor

torch: Any = pytest.importorskip("torch")


@dataclass(frozen=True)
class Row:
  name: str
  ours: Callable[..., Any]
  theirs: Callable[..., Any]
  shapes: tuple[tuple[int, ...], ...]
  grad: bool = True
  low: float | None = None
  high: float | None = None
  tolerance: float = 2e-5

  def data(self) -> list[Any]:
    rng = np.random.default_rng(sum(map(ord, self.name)))
    if self.low is None:
      return [rng.standard_normal(s).astype(np.float32) for s in self.shapes]
    assert self.high is not None
    return [rng.uniform(self.low, self.high, s).astype(np.float32) for s in self.shapes]


def same(
  name: str, f: Callable[..., Any], theirs: Callable[..., Any] | None = None, *shapes: Any, **kw: Any
) -> list[Row]:
  """A row per group of shapes; an expression for both where their methods agree."""
  groups = shapes or (((3, 5),), ((),), ((1,),), ((0, 3),), ((2, 1, 7),))
  return [Row(f"{name}-{'-'.join(map(str, g))}".replace(" ", ""), f, theirs or f, tuple(g), **kw) for g in groups]


def close(got: Any, expected: Any, tolerance: float, what: str) -> None:
  assert got.shape == tuple(expected.shape), f"{what}: shape {got.shape}, expected {tuple(expected.shape)}"
  np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance, err_msg=what)


def check_forward_and_backward(row: Row) -> None:
  """Values, and gradients of a weighted sum of them in every argument, are those of PyTorch."""
  data = row.data()
  ours = [Tensor(d, requires_grad=row.grad) for d in data]
  theirs = [torch.tensor(d, requires_grad=row.grad) for d in data]
  got, expected = row.ours(*ours), row.theirs(*theirs)
  close(got, expected.detach(), row.tolerance, "forward")
  if not row.grad:
    return
  weight = np.random.default_rng(1).standard_normal(tuple(expected.shape)).astype(np.float32)
  (got * Tensor(weight)).sum().backward()
  (expected * torch.tensor(weight)).sum().backward()
  for i, (a, b) in enumerate(zip(ours, theirs)):
    if a.grad is None:  # the result does not depend on it
      assert b.grad is None or not b.grad.any(), f"argument {i} has no gradient"
    else:
      close(a.grad, b.grad, 5 * row.tolerance, f"gradient of argument {i}")
