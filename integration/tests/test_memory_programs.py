"""Writes through views in random programs are those of NumPy: see `memory_programs.py`, which draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from memory_programs import Program, difference, made, shrunk

from tiny_tensor import Context, Tensor

FOUND = (305, 468, 482)
"""Seeds of programs that have found a fault."""


@pytest.mark.parametrize("seeds", [FOUND, range(20), range(20, 40)], ids=["found", "0-19", "20-39"])
def test_programs_that_write(seeds: Sequence[int]) -> None:
  with Context(DEVICE="REF"):
    for seed in seeds:
      program = made(seed)
      if difference(program) is not None:
        pytest.fail("\n".join(map(str, shrunk(program))))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_more_programs_that_write(first: int) -> None:
  with Context(DEVICE="CPU"):
    for seed in range(first, first + 100):
      program = made(seed)
      if difference(program) is not None:
        pytest.fail("\n".join(map(str, shrunk(program))))


def test_a_difference_is_seen_and_shrunk(monkeypatch: Any) -> None:
  """A write that is lost is found, and only what it needs is shown."""
  right = Tensor.__setitem__

  def lost(self: Tensor, key: Any, x: Any) -> None:
    if key != 1:
      right(self, key, x)

  monkeypatch.setattr(Tensor, "__setitem__", lost)
  lines = ("t0 = a.permute(0)", "a[1] = (2)", "t2 = value(b + 1)", "t0[2:] = (3)")
  with Context(DEVICE="REF"):
    program, text = shrunk(Program(0, "int32", ((4,), (4,), (4,)), lines, 1))
  assert program.lines == ("a[1] = (2)",) and "a is" in text


def test_views_are_those_of_numpy() -> None:
  program = Program(0, "int32", ((2, 3), (3,), (4,)), ("t0 = a[:, ::-1]", "t0[0] = b", "compute(a)", "t0 += 1"), 1)
  with Context(DEVICE="REF"):
    assert difference(program) is None
  a, b = program.data()[:2]
  a[:, ::-1][0] = b
  assert np.any(a != program.data()[0])
