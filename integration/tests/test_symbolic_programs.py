"""Random programs with symbolic sizes and gradients: see `symbolic_programs`, which runs as many as one likes.

`pytest --examples N` draws N times as many, others each time. A failure names the seed and prints a shrunk program.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from symbolic_programs import Concrete, Program, difference, kind_of, program_of, shrunk

from tiny_tensor import Context


def check(device: str, seed: int) -> None:
  with Context(DEVICE=device):
    program = program_of(seed)
    if kind_of(difference(program)) is not None:
      shorter, text = shrunk(program)
      pytest.fail(f"{shorter}\non {device}: {text}", pytrace=False)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(seed=st.integers(0, 1 << 40))
def test_variables_give_what_numbers_give(seed: int) -> None:
  """Interpreted, without optimisations: frontend and scheduler."""
  check("REF", seed)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(seed=st.integers(0, 1 << 40))
def test_variables_give_what_numbers_give_compiled(seed: int) -> None:
  check("CPU", seed)


@pytest.mark.nightly
def test_many_programs() -> None:
  for seed in range(1000):
    check("REF", seed)


def test_results_that_are_inputs_have_gradients_of_their_own() -> None:
  """Also where other results depend on them."""
  lines = ("t0 = a", "t1 = t0[:n] * 2", "t2 = b")
  program = Program(3, ((4, 3), (4,), (4,)), ((1, 4), (1, 2)), ((2, 1), (4, 2)), lines, captured=False, gradient=True)
  with Context(DEVICE="REF"):
    assert difference(program) is None


LINES = ("t0 = a[:n]", "t1 = t0.abs()", "t2 = t0 + 1", "t3 = t2.sum(0)", "t4 = b * 2")


def test_a_difference_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
  """An evaluator that gives another sum than it should is a difference, and only the lines that it needs are left."""
  real = Concrete.results

  def off_by_one(concrete: Concrete, program: Program) -> dict[str, object]:
    return {name: a + 1 if name == "t3" else a for name, a in real(concrete, program).items()}

  monkeypatch.setattr(Concrete, "results", off_by_one)
  bounds = ((1, 4), (1, 2))
  program = Program(7, ((4, 3), (4, 3), (4,)), bounds, ((2, 1), (3, 2)), LINES, captured=True, gradient=True)
  with Context(DEVICE="REF"):
    shorter, text = shrunk(program)
  assert text.startswith("t3 is") and not shorter.captured and not shorter.gradient
  assert len(shorter.lines) <= 3 and len(shorter.values) == 1 and "seed 7" in str(shorter)
