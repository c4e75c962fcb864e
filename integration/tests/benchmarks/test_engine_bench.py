"""The benchmark of the engine measures what it says, tried on small models; how long it takes is not looked at."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "engine.py"


def run(folder: Path, *options: str) -> tuple[str, dict[str, dict[str, list[dict[str, float]]]]]:
  """What the benchmark prints and what it writes, for one round of small models."""
  results = folder / "engine.json"
  done = subprocess.run(
    [sys.executable, str(BENCH), "--small", "--rounds", "1", "--json", str(results), *options],
    capture_output=True,
    text=True,
    timeout=600,
    cwd=folder,
    env={**os.environ, "DEVICE": "CPU"},
  )
  assert done.returncode == 0, done.stdout + done.stderr
  return done.stdout, json.loads(results.read_text())


@pytest.mark.parametrize("model", ["llama", pytest.param("resnet50", marks=pytest.mark.nightly)])
def test_measures_a_model_in_processes_of_its_own(tmp_path: Path, model: str) -> None:
  python = tmp_path / "python"
  python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')  # an interpreter that has nothing installed
  python.chmod(0o755)
  printed, results = run(tmp_path, "--models", model, "--tinygrad-python", str(python))
  (figures,) = results[model]["ours"]
  assert figures["kernels"] > figures["distinct"] > 40, "layers of equal sizes share kernels"
  assert figures["source MB"] > 0.05, "every distinct kernel has been rendered"
  assert abs(figures["to source"] - figures["schedule"] - figures["codegen"]) < 1e-6
  assert figures["hit"] < figures["miss"] and figures["hit tiny_sched"] < figures["miss tiny_sched"]
  assert 0 < figures["memory over imports"] < figures["memory"]
  assert model in printed
  assert "pip install tinygrad==0.14.0" in printed


def test_measures_first_calls_with_an_empty_and_a_filled_cache(tmp_path: Path) -> None:
  printed, results = run(tmp_path, "--models", "minilm", "--ours-only")
  (cold,), (warm,) = results["minilm"].values()
  assert 0 < warm["first call"] < cold["first call"], "the second process compiles nothing"
  assert cold["error"] == warm["error"] < 1e-4, "results are compared"
  assert "first call, minilm" in printed
