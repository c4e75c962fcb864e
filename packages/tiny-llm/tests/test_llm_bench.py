"""How fast a model is: that the figures are there and fit together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import small_models as small

from tiny_llm.bench import bench_model
from tiny_llm.command_line import main


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
  found = tmp_path_factory.mktemp("bench") / "a.gguf"
  small.write_llama(found, small.weights_of(np.random.default_rng(0)))
  return found


def test_figures(path: Path) -> None:
  found = bench_model(path, prompt=8, slices=1, processor=True)
  assert all(value > 0 for value in found.values())
  assert found["of_floor"] == pytest.approx(found["decode"] / found["floor"])
  assert "decode_ratio" not in found


def test_the_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  assert main(["bench", str(path), "--prompt", "8", "--slices", "1", "--json"]) == 0
  assert json.loads(capsys.readouterr().out)["prefill"] > 0
  assert main(["bench", str(path), "--prompt", "8", "--slices", "1"]) == 0
  assert "tokens/s" in capsys.readouterr().out


def test_slots(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  """Several slots against one: memory allows as many times the tokens as there are slots where nothing was read yet,
  and fewer the more keys and values there are."""
  found = {at: bench_model(path, prompt=8, slices=1, processor=True, slots=2, position=at) for at in (0, 60)}
  for figures in found.values():
    assert figures["slots_ratio"] == pytest.approx(figures["slots_decode"] / figures["slot_decode"])
  assert 2 == found[0]["slots_floor"] > found[60]["slots_floor"] > 1
  assert main(["bench", str(path), "--prompt", "8", "--slices", "1", "--slots", "2", "--position", "20"]) == 0
  assert "2 slots decode" in capsys.readouterr().out
