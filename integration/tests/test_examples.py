"""The examples do what they promise."""

import os
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image
from releasing.environment import without_compilers
from releasing.packages import ROOT

DIGITS = ROOT / "integration" / "examples" / "digits.py"


def test_digits_learns_saves_and_draws(tmp_path: Path) -> None:
  """As the README says, `hatch run demo`, where CI has set HATCH. With an empty cache of compiled kernels, as the first
  time, and where there is no C compiler."""
  hatch = os.environ.get("HATCH")
  command = [hatch, "run", "demo"] if hatch else [sys.executable, str(DIGITS)]
  environment = {**os.environ, "TINY_CACHE": str(tmp_path / "cache"), "CC": os.devnull}
  if os.name == "posix":
    environment["PATH"] = without_compilers(tmp_path / "bin", os.environ["PATH"])
  start = time.perf_counter()
  done = subprocess.run(
    [*command, "--out", str(tmp_path / "out")],
    capture_output=True,
    text=True,
    timeout=600,
    cwd=ROOT if hatch else tmp_path,
    env=environment,
  )
  seconds = time.perf_counter() - start
  assert done.returncode == 0, done.stdout + done.stderr
  accuracy = float(done.stdout.split("held-out images: ")[1].split("%")[0])
  assert accuracy >= 98
  assert "agrees on every image" in done.stdout
  assert "loss=" in done.stdout and "images/s" in done.stdout
  assert (tmp_path / "out" / "digits.safetensors").stat().st_size > 10_000
  picture = Image.open(tmp_path / "out" / "digits.png")
  assert picture.size[0] > 400 and picture.size[1] > 200
  assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 16, "the digits are drawn in shades of grey"
  assert seconds < 240, f"{seconds:.0f} s: a minute is promised on two idle cores"
