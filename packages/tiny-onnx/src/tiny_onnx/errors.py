"""What can be wrong with a model, or with a call of it."""

from __future__ import annotations

from collections.abc import Sequence


class ModelError(ValueError):
  """A file that is no valid ONNX model, passes a limit, or asks for what its values do not allow."""


class UnsupportedOps(ModelError):
  """Operators of a model that have no implementation. `missing` has a tuple (domain, name, version, nodes) for each."""

  def __init__(self, missing: Sequence[tuple[str, str, int, list[str]]]) -> None:
    self.missing = list(missing)
    lines = [
      f"  {domain or 'ai.onnx'}.{name} version {version}: {len(nodes)} node{'s' * (len(nodes) > 1)}, "
      f"{', '.join(nodes[:5])}{' …' * (len(nodes) > 5)}"
      for domain, name, version, nodes in self.missing
    ]
    super().__init__(
      "the model uses operators that tiny-onnx does not have:\n" + "\n".join(lines) + "\n"
      "Export the model with other operators, or register an implementation with tiny_onnx.registry.op"
    )
