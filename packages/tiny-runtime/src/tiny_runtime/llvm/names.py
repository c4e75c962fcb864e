"""A processor's name that its features do not contradict.

LLVM names a processor by the numbers of its family and model. A virtual machine may show those of another one, whose
name LLVM then gives: a Sapphire Rapids is a `rocketlake` with AMX, which there never was. Features are on or off by
themselves, but what instructions take is known by name, so that the code is arranged for another processor.
"""

from __future__ import annotations

_BEFORE = frozenset(
  "nehalem westmere sandybridge ivybridge haswell broadwell skylake skylake-avx512 cascadelake cooperlake "
  "cannonlake icelake-client icelake-server tigerlake rocketlake".split()
)
"""Intel's processors before Sapphire Rapids."""
_NAMES = (
  ("graniterapids", frozenset(("amx-fp16", "prefetchi"))),
  ("sapphirerapids", frozenset(("amx-tile", "avx512fp16"))),
)
"""Names, and features of which no processor before has any; the newest first."""


def name_by_features(name: str, features: str) -> str:
  """The name, or a later one if features (`+avx2,-avx512f`) are on that the processor of this name never had."""
  on = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
  # of the table's features one alone may come from another maker; with AVX-512 for halves it is one of these
  if name not in _BEFORE or "avx512fp16" not in on:
    return name
  return next((better for better, new in _NAMES if new & on), name)
