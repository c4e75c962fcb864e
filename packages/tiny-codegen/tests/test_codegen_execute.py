"""Programs run as machine code and compared with NumPy."""

from __future__ import annotations

from typing import Any

import pytest
from codegen_kernels import CASES, check

from tiny_uop import Context


@pytest.mark.parametrize("name", CASES)
def test_without_optimisations(name: str, run_kernel: Any) -> None:
  case = CASES[name]()
  with Context(NOOPT=1, SPEC=1):
    check(case, run_kernel(case.kernel, case.arrays))


@pytest.mark.parametrize("name", CASES)
def test_with_heuristics(name: str, run_kernel: Any) -> None:
  case = CASES[name]()
  with Context(SPEC=1):
    check(case, run_kernel(case.kernel, case.arrays))


@pytest.mark.parametrize("size", [8192, 10007, 20480, 33333])
def test_pieces_of_large_odd_sizes(size: int, run_kernel: Any) -> None:
  """Threads get blocks, the last of which is partial: whole vectors run without gates, the rest once."""
  case = CASES["elementwise"](1, size)
  for pieces in (1, 3, 7):
    check(case, run_kernel(case.kernel, case.arrays, pieces=pieces))
