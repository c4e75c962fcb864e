"""Fixtures: run a kernel as machine code through llvmlite, on NumPy arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_codegen import LLVMRenderer, compile_kernel
from tiny_uop import Opt, UOp
from tiny_uop.text.golden import round_trips_checked

# pytest's importlib mode puts no test directory on the path: this one has modules that several tests share
sys.path.insert(0, str(Path(__file__).parent))

from codegen_machine import Machine, host_renderer

Run = Callable[..., list[np.ndarray[Any, Any]]]


@pytest.fixture(scope="session")
def renderer() -> LLVMRenderer:
  return host_renderer()


@pytest.fixture(scope="session")
def run_kernel(renderer: LLVMRenderer) -> Run:
  """run(kernel, arrays, opts=None, variables={}, pieces=1) → copies of the arrays after the kernel has run on them
  (`in_place`: on the arrays themselves)."""
  machine = Machine()

  def run(
    kernel: UOp,
    arrays: Sequence[np.ndarray[Any, Any]],
    opts: Sequence[Opt] | None = None,
    variables: Mapping[str, int] | None = None,
    pieces: int = 1,
    in_place: bool = False,
  ) -> list[np.ndarray[Any, Any]]:
    copies = list(arrays) if in_place else [np.ascontiguousarray(a).copy() for a in arrays]
    machine.call(compile_kernel(kernel, renderer, opts), copies, variables or {}, pieces)
    return copies

  return run


@pytest.fixture(autouse=True, scope="session")
def graphs_round_trip() -> Iterator[None]:
  """What these tests schedule and compile is printed and parsed back on the side."""
  with round_trips_checked():
    yield
