"""Programs run as machine code and compared with NumPy."""

from __future__ import annotations

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
