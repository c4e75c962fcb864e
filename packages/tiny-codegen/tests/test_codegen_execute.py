"""Programs run as machine code and compared with NumPy."""

from __future__ import annotations

import codegen_kernels as kernels
import pytest
from codegen_kernels import CASES, check
from tiny_uop import Context


@pytest.mark.parametrize("name", CASES)
def test_without_optimisations(name, run_kernel):
  case = CASES[name]()
  with Context(NOOPT=1, SPEC=1):
    check(case, run_kernel(case.kernel, case.arrays))


@pytest.mark.parametrize("name", CASES)
def test_with_heuristics(name, run_kernel):
  case = CASES[name]()
  with Context(SPEC=1):
    check(case, run_kernel(case.kernel, case.arrays))
