"""Commands that run side by side: in which order, what waits for what, and what is shown of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from releasing.sessions import Session, longest_first, run_all


def python(name: str, text: str, *after: str, **variables: str) -> Session:
  return Session(name, [sys.executable, "-c", text], after, variables)


def test_what_fails_is_shown_last_and_what_waits_for_it_does_not_run(capfd: pytest.CaptureFixture[str]) -> None:
  sessions = [
    python("needs", "print('never')", "broken"),
    python("broken", "import sys; print('a reason', file=sys.stderr); sys.exit(3)"),
    python("good", "import os; print('first'); print(os.environ['WORD'])", WORD="and last"),
    python("later", "print('after good')", "good"),
  ]
  assert run_all(sessions, 2) == ["broken", "needs"]
  text = capfd.readouterr().out
  assert "broken: FAILED (3)" in text and text.count("a reason") == 2 and "never" not in text
  assert "and last" in text and "first" not in text, "of what passed, the last line"
  assert text.index("after good") < text.rindex("a reason") < text.index("needs did not run: broken did not pass")


def test_as_many_as_asked_for_run_at_once_in_the_order_of_the_list(tmp_path: Path) -> None:
  """Each of a pair waits for the other's file, so they have to run at the same time; a third sees both gone."""
  meet = "import pathlib, sys, time\nfolder = pathlib.Path(sys.argv[1])\n(folder / sys.argv[2]).touch()\n"
  meet += "while not (folder / sys.argv[3]).exists(): time.sleep(0.01)"
  pair = [
    Session(one, [sys.executable, "-c", meet, str(tmp_path), one, other]) for one, other in (("a", "b"), ("b", "a"))
  ]
  seen = f"import pathlib; assert len([*pathlib.Path({str(tmp_path)!r}).iterdir()]) == 2"
  assert run_all([*pair, python("third", seen)], 2) == []


def test_nothing_starts_after_what_is_vital_has_failed(capfd: pytest.CaptureFixture[str]) -> None:
  sessions = [python("good", "print('ran')"), replace(python("types", "raise SystemExit(1)"), vital=True)]
  sessions += [python("more", "print('never')"), python("waits", "print('never')", "good")]
  assert run_all(sessions, 1) == ["types", "more", "waits"]
  text = capfd.readouterr().out
  assert "ran" in text and "never" not in text and "more did not run: types did not pass" in text


def test_a_list_of_one_at_a_time(tmp_path: Path) -> None:
  log = tmp_path / "log"
  append = [python(name, f"open({str(log)!r}, 'a').write({name!r})") for name in "dbca"]
  assert run_all(append, 1) == [] and log.read_text() == "dbca"


def test_long_ones_start_first() -> None:
  assert longest_first(["short", "quick", "long", "longer"], ("longer", "long")) == ["longer", "long", "short", "quick"]
