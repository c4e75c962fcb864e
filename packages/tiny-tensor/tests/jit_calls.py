"""What tests of `TinyJit` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiny_tensor import Tensor, TinyJit


def T(*values: float) -> Tensor:
  """A realised tensor of its own."""
  return Tensor([*values]).realize()


def captured(f: Callable[..., Any], *args: Any, calls: int = 3) -> TinyJit[..., Any]:
  """`f`, called until a replay has run."""
  jitted: TinyJit[..., Any] = TinyJit(f)
  for _ in range(calls):
    jitted(*args)
  assert jitted.captured
  return jitted
