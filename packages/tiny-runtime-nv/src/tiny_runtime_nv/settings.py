"""Settings of this plugin, with the others in the one table of `tiny_uop.context`."""

from __future__ import annotations

from tiny_uop import ContextVar

TF32 = ContextVar(
  "TF32",
  0,
  "1: NVIDIA's GPUs multiply float32 on tensor cores, rounded to 11 bits, and sum in float32; when a device is opened",
)
