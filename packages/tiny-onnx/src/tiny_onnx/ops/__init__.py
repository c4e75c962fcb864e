"""The operators, by kind. Importing this module fills the registry."""

from tiny_onnx.ops import (
  attention,
  casts,
  contrib,
  control,
  elementwise,
  image,
  ml,
  neural,
  quantised,
  random,
  recurrent,
  reduction,
  sequences,
  shape,
  signal,
  strings,
  training,
  trees,
)

__all__ = [
  "attention", "casts", "contrib", "control", "elementwise", "image", "ml", "neural", "quantised", "random",
  "recurrent", "reduction", "sequences", "shape", "signal", "strings", "training", "trees",
]  # fmt: skip
