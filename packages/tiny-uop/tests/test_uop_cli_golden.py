"""`python -m tiny_uop` as text in, text out: the files in `golden_tools/`, which `UPDATE_GOLDEN=1` writes anew.

Options of a file: `run` (the arguments of the command line) and `shows` (what to look at).
"""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path

import pytest

from tiny_uop.__main__ import main
from tiny_uop.text.golden import GoldenCase, golden_cases

CASES = golden_cases(Path(__file__).parent / "golden_tools")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden(case: GoldenCase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
  monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(case.given.encode())))
  assert main(shlex.split(case.options["run"])) == 0
  out, err = capsys.readouterr()
  assert err == "" and case.options["shows"]
  case.check(out)
