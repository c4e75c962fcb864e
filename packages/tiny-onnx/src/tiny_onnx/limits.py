"""How large and how deep a model may be: what keeps a hostile file from using up the machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
  """Bounds that `load` and calls hold a model to. Passing one raises ModelError with its name."""

  nodes: int = 1_000_000
  """Nodes in all graphs and functions, each body counted where it is used."""
  depth: int = 48
  """Graphs within graphs, and functions that call functions."""
  tensor_bytes: int = 1 << 36
  """Size of one tensor, in bytes."""
  steps: int = 10_000_000
  """Nodes that one call computes: iterations of loops count each time."""
  file_bytes: int = 1 << 31
  """Size of the model file, without external data (protobuf has no larger ones)."""
