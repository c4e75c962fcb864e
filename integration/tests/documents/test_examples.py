"""The examples do what they promise."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from releasing.environment import without_compilers
from releasing.packages import ROOT

from tiny_viz import read_trace
from tiny_viz.hardware import Recordings

EXAMPLES = ROOT / "integration" / "examples"
DIGITS = EXAMPLES / "digits.py"
SMALL = {
  "amd_trace": ("--wave", "0"),
  "custom_kernel": ("--size", "64", "--steps", "60"),
  "data_parallel": ("--devices", "CPU,CPU:1", "--steps", "5", "--batch", "64"),
  "embeddings": ("--layers", "1"),
  "gpt": ("--steps", "60", "--batch", "16", "--context", "16", "--width", "32", "--layers", "1", "--sample", "20"),
  "heat": ("--size", "32", "--frames", "12"),
  "resnet": ("--size", "8", "--width", "2", "--epochs", "1"),
  "vae": ("--steps", "400", "--hidden", "128"),
}
"""Options that make an example small. Each says by its exit status whether it has done what it promises."""
NO_PICTURE = {"amd_trace", "data_parallel"}
SLOW = {"resnet", "vae"}
"""Those with many kernels: in `nightly`."""


def run(example: str, *options: str) -> str:
  """What the example prints."""
  done = subprocess.run(
    [sys.executable, str(EXAMPLES / f"{example}.py"), *options], capture_output=True, text=True, timeout=600
  )
  assert done.returncode == 0, done.stdout + done.stderr
  return done.stdout


def test_every_example_is_here() -> None:
  assert {path.stem for path in EXAMPLES.glob("*.py")} == {"digits", *SMALL}


@pytest.mark.parametrize(
  "example", [pytest.param(name, marks=[pytest.mark.nightly] if name in SLOW else []) for name in sorted(SMALL)]
)
def test_examples_do_what_they_promise(example: str, tmp_path: Path) -> None:
  out = () if example == "data_parallel" else ("--out", str(tmp_path))
  printed = run(example, *SMALL[example], *out)
  for path in tmp_path.glob("*.png"):
    assert len(Image.open(path).convert("RGB").getcolors(1 << 24) or []) > 16, "there is something in the picture"
    assert f"drew {path}" in printed
  assert example in NO_PICTURE or list(tmp_path.glob("*.png"))
  if example == "amd_trace":
    _trace_shows_the_program(printed, tmp_path / "amd_trace.jsonl")
  if example == "resnet":
    again = run(example, *SMALL[example], *out, "--epochs", "2")
    assert "epoch 1: loss" in printed and "epoch 1: loss" not in again
    assert "going on from" in again and "epoch 2: loss" in again


def _trace_shows_the_program(printed: str, path: Path) -> None:
  """A wave's instructions, one by one, are the program with its loop gone round six times; the page has them, too."""
  _, _, wave = printed.partition("issued at")
  names = [line.split()[3] for line in wave.splitlines()[1:] if line[:1] == " "]
  begin = [
    "s_load_b128",
    "v_lshl_or_b32",
    "v_lshlrev_b32_e32",
    "v_mov_b32_e32",
    "s_movk_i32",
    "v_mov_b32_e32",
    "s_waitcnt",
  ]
  loop = ["global_load_b32", "v_add_nc_u32_e32", "s_sub_u32", "s_cmp_lg_u32", "s_waitcnt", "v_fmac_f32_e32"]
  assert names == [*begin, *6 * [*loop, "s_cbranch_scc1"], "global_store_b32"]
  run = read_trace(path).run
  assert run is not None and Recordings(run).add_to_run() == [] and len(run.counters) == 3, "of three kernels"
  assert [c["SQ_WAVES"] for c in run.counters.values() if c["SQ_INSTS_VALU"] == 4 * (4 + 6 * 2)] == [4]


HELP = """
import runpy, sys
for example in sys.argv[1:]:
  sys.argv = [example, "--help"]
  try:
    runpy.run_path(example, run_name="__main__")
  except SystemExit as end:
    assert not end.code, (example, end.code)
"""


def test_examples_say_what_they_take_and_are_short() -> None:
  paths = [EXAMPLES / f"{example}.py" for example in ("digits", *sorted(SMALL))]
  assert not [path.name for path in paths if len(path.read_text("utf-8").splitlines()) >= 150]
  # in one process: what all of them import takes a second
  done = subprocess.run([sys.executable, "-c", HELP, *map(str, paths)], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("usage:")] == [p.name for p in paths]


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
