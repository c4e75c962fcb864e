"""The files of tests as text: read, compared, and rewritten on request only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_uop import UOp, parse_uop, print_uop, spec
from tiny_uop.text.golden import golden_cases, round_trips_checked, unused

x = UOp.variable("x", 0, 15)
HEAD = "# pass: double\n# shows: something\n"
TEXT = f"{HEAD}{print_uop(x * 2)}# expected\n{print_uop(x * 4)}"


def test_reads_options_input_and_expectation(tmp_path: Path) -> None:
  (tmp_path / "double-small.uop").write_text(TEXT)
  (case,) = golden_cases(tmp_path)
  assert str(case) == "double-small" and case.options == {"pass": "double", "shows": "something"}
  assert parse_uop(case.given) is x * 2 and parse_uop(case.expected) is x * 4
  assert unused([case], "pass", ["double", "halve"]) == {"halve"}


def test_checks_and_shows_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
  (tmp_path / "a.uop").write_text(TEXT)
  (case,) = golden_cases(tmp_path)
  case.check(print_uop(x * 4))
  with pytest.raises(AssertionError) as caught:
    case.check(print_uop(x * 8))
  message = str(caught.value)
  assert "a.uop expects something else (UPDATE_GOLDEN=1 rewrites it)" in message and "1 changed" in message
  assert "-%1 = CONST index () arg=4\n+%1 = CONST index () arg=8" in message
  with pytest.raises(AssertionError, match="in another form of text"):
    case.check(print_uop(x * 4) + "# a comment\n")
  with pytest.raises(AssertionError, match=r"\+define"):
    case.check("define\n")
  assert (tmp_path / "a.uop").read_text() == TEXT


def test_rewrites_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  (tmp_path / "a.uop").write_text(HEAD + print_uop(x * 2))
  monkeypatch.setenv("UPDATE_GOLDEN", "1")
  (case,) = golden_cases(tmp_path)
  case.check(print_uop(x * 4))
  assert (tmp_path / "a.uop").read_text() == TEXT


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("tiny-uop 1\n", "expected lines"),
    ("# what\n", "'# what' is no option"),
    ("# a: 1\n# a: 2\n", "'# a: 2' is no option"),
  ],
)
def test_files_that_say_nothing_are_refused(tmp_path: Path, text: str, message: str) -> None:
  (tmp_path / "a.uop").write_text(text)
  with pytest.raises(ValueError, match=message):
    golden_cases(tmp_path)


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
  with pytest.raises(ValueError, match="at least one golden case"):
    golden_cases(tmp_path)


# *** what other tests compile ***


@pytest.fixture
def check_stage(monkeypatch: pytest.MonkeyPatch) -> None:
  """`spec.check_stage` as it is where no conftest watches it."""

  def nothing(root: UOp, level: spec.Level, stage: str = "") -> UOp:
    return root

  monkeypatch.setattr(spec, "check_stage", nothing)


def test_graphs_of_stages_are_printed_and_parsed(check_stage: None) -> None:
  before = spec.check_stage
  with round_trips_checked(every=2, most_nodes=3) as checked:
    for graph in (x, x * 2, x * 2, x * 2 + 1, x * 2 + 1, x):
      assert spec.check_stage(graph, "tensor") is graph
    with round_trips_checked(every=1) as inner:  # on already: not once more
      spec.check_stage(x, "tensor")
    assert (checked, inner) == ([2], [0])
  assert spec.check_stage is before


def test_a_graph_that_does_not_parse_back_is_reported(check_stage: None, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_uop.text.golden.parse_uop", lambda text: x)
  with round_trips_checked(every=1), pytest.raises(AssertionError, match="does not parse back:\ntiny-uop 1"):
    spec.check_stage(x * 2, "kernel", "merge")
