"""Where nodes come from: the line of the user's program, the module of his model, and what the step was about.

Marks are beside the graph: a node keeps its mark as it keeps a shape, so that it is no part of what makes two nodes
equal, of keys, or of text, and ends with the node.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Phase = Literal["forward", "backward", "optimiser"]


class Origin(NamedTuple):
  """Where a value was asked for."""

  file: str
  """The path of the user's file."""
  line: int
  function: str
  """The function that the line is in."""
  module: str
  """The module of the model: `model.layer2.0.conv1`; empty outside of modules."""
  phase: Phase
  """`backward` for what a gradient is made of, at the line that is differentiated; `optimiser` for its step."""
