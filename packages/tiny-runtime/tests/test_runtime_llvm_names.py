"""Processors that a virtual machine shows under another one's name."""

from __future__ import annotations

import pytest

from tiny_runtime.llvm.names import name_by_features


@pytest.mark.parametrize(
  ("name", "features", "expected"),
  (
    ("rocketlake", "+avx512f,+avx512fp16,+amx-tile,+amx-bf16,+amx-int8,-amx-fp16", "sapphirerapids"),
    ("rocketlake", "+avx512f,+avx512fp16,+amx-tile,+amx-fp16", "graniterapids"),
    ("icelake-server", "+avx512fp16,+amx-tile,+prefetchi", "graniterapids"),
    ("icelake-client", "+avx512fp16,-amx-tile", "sapphirerapids"),  # where AMX is hidden as well
    ("rocketlake", "+avx512f,-avx512fp16,-amx-tile", "rocketlake"),
    ("emeraldrapids", "+avx512fp16,+amx-tile,+prefetchi", "emeraldrapids"),
    ("znver5", "+avx512fp16", "znver5"),
    ("x86-64", "+avx2,+prefetchi", "x86-64"),
    ("apple-m1", "", "apple-m1"),
  ),
)
def test_name_that_features_do_not_contradict(name: str, features: str, expected: str) -> None:
  assert name_by_features(name, features) == expected
