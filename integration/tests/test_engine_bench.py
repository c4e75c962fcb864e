"""The benchmark of the engine measures what it says, tried on small models; how long it takes is not looked at."""

import json
import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench" / "engine.py"


def test_measures_both_models_in_processes_of_their_own(tmp_path: Path) -> None:
  results, python = tmp_path / "engine.json", tmp_path / "python"
  python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')  # an interpreter that has nothing installed
  python.chmod(0o755)
  options = ["--small", "--rounds", "1", "--tinygrad-python", str(python), "--json", str(results)]
  done = subprocess.run(
    [sys.executable, str(BENCH), *options],
    capture_output=True,
    text=True,
    timeout=600,
    cwd=tmp_path,
    env={**os.environ, "DEVICE": "CPU"},
  )
  assert done.returncode == 0, done.stdout + done.stderr
  for model in ("resnet50", "llama"):
    (figures,) = json.loads(results.read_text())[model]["ours"]
    assert figures["kernels"] > figures["distinct"] > 40, "layers of equal sizes share kernels"
    assert figures["source MB"] > 0.05, "every distinct kernel has been rendered"
    assert abs(figures["to source"] - figures["schedule"] - figures["codegen"]) < 1e-6
    assert figures["hit"] < figures["miss"] and figures["hit tiny_sched"] < figures["miss tiny_sched"]
    assert 0 < figures["memory over imports"] < figures["memory"]
    assert model in done.stdout
  assert "pip install tinygrad==0.14.0" in done.stdout
