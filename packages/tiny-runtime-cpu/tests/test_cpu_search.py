"""BEAM on the CPU: candidates are timed there, and the next process finds what this one has found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tiny_runtime import Binary
from tiny_runtime.compile_cache import compile_cached
from tiny_runtime_cpu import CPUCompiler, host_arch
from tiny_uop import Context, KernelInfo, UOp, dtypes


def scale(size: int, factor: float) -> UOp:
  i = UOp.range(size, 0)
  place = [UOp.param(n, dtypes.float32.ptr(size)).index(i) for n in range(2)]
  return UOp.sink(place[0].store(place[1].load() * factor).end(i), arg=KernelInfo("scale"))


def test_the_second_process_does_not_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  timed: list[Binary] = []

  def timer(binary: Binary) -> float:
    timed.append(binary)
    lanes = re.search(r"<(\d+) x float>", binary.source)  # likes short vectors, shorter than any processor's
    return float(lanes[1]) if lanes else 100.0

  def compiled(*, again: bool) -> Sequence[str]:
    before = len(timed)
    # nothing in memory; and DEBUG=3 has kernels compiled that are on disk
    with Context(BEAM=1, TINY_CACHE=str(tmp_path), DEBUG=3):
      binary = compile_cached(scale(64, 2.0), CPUCompiler(host_arch()), timer=timer)
    assert (len(timed) == before) is again and "<2 x float>" in binary.source
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("opts")]

  assert compiled(again=False) == compiled(again=True)
  assert len(timed) > 4 and len(list((tmp_path / "searches").iterdir())) == 1
