"""The plan of a run on many ranks, against what a run on a few sends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dist_ranks import PROGRAMS, lines, ranks

from tiny_dist.plan import rate_of


def planned(count: int, *arguments: str) -> str:
  command = [sys.executable, "-m", "tiny_dist", "plan", "--ranks", str(count), "--link", "50GB/s"]
  command += [str(PROGRAMS / "training.py"), *arguments]
  done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
  assert done.returncode == 0, done.stderr
  return done.stdout


@pytest.mark.parametrize(("count", "net", "layout"), [
  pytest.param(1, "conv", "data", marks=pytest.mark.nightly), (2, "conv", "data"),
  pytest.param(4, "conv", "data", marks=pytest.mark.nightly),
  pytest.param(4, "transformer", "tensor", marks=pytest.mark.nightly),
  pytest.param(2, "transformer", "zero2", marks=pytest.mark.nightly),
  pytest.param(4, "conv", "zero3", marks=pytest.mark.nightly),
])  # fmt: skip
def test_it_is_what_a_run_sends_and_keeps(count: int, net: str, layout: str, tmp_path: Path) -> None:
  text = planned(count, net, layout, "3", str(tmp_path / "plan"))
  lines(ranks(count, "training.py", net, layout, "3", str(tmp_path / "run")))
  sent, kept = map(int, (tmp_path / "run-0").read_text().split())
  assert (tmp_path / "plan-0").read_text() == f"{sent} {kept}" and (sent > 0) == (count > 1)
  assert f"on {count} ranks: rank 0 keeps" in text


def test_a_thousand_ranks() -> None:
  text = planned(1024, "conv", "zero2", "2")
  assert "on 1024 ranks: rank 0 keeps" in text and "schedule" in text, text


def test_rates() -> None:
  assert [rate_of(text) for text in ("50GB/s", "300T", "1.5 kB/s", "0")] == [50e9, 300e12, 1500.0, 0.0]
  with pytest.raises(ValueError, match="'fast' is no rate"):
    rate_of("fast")
