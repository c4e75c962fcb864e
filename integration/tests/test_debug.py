"""What DEBUG=1…6 print: each level adds its part and keeps those below."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from tiny_tensor import Tensor
Tensor.manual_seed(1)
a, b = Tensor.rand(64, 64).realize(), Tensor.rand(64, 64).realize()
print(round((a @ b).relu().sum().item(), 3))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
  """Everything that goes to stderr, by level."""
  result = {}
  plain = ""
  for level in range(7):
    done = subprocess.run(
      [sys.executable, "-c", PROGRAM],
      capture_output=True,
      text=True,
      env={**os.environ, "DEVICE": "CPU", "DEBUG": str(level), "TINY_CACHE": str(tmp_path_factory.mktemp("cache"))},
    )
    assert done.returncode == 0, done.stderr
    plain = plain or done.stdout
    assert done.stdout == plain, "what DEBUG prints must not mix with the program's output"
    result[level] = done.stderr
  return result


def test_silent_by_default(printed: dict[int, str]) -> None:
  assert printed[0] == ""


def test_1_names_the_device(printed: dict[int, str]) -> None:
  assert "CPU" in printed[1]


LINE = re.compile(r"\d+ +CPU +\S+ +[\d.]+ (µs|ms|s ) +[\d.]+ GFLOPS +[\d.]+ GB/s")


def test_2_has_a_line_per_kernel(printed: dict[int, str]) -> None:
  assert not LINE.search(printed[1])
  lines = [line for line in printed[2].splitlines() if LINE.search(line)]
  assert len(lines) >= 3, printed[2]


def test_3_shows_the_optimisations(printed: dict[int, str]) -> None:
  words = re.compile(r"UPCAST|UNROLL|VECTOR|THREAD")
  assert words.search(printed[3]) and not words.search(printed[2])


def test_4_shows_the_code(printed: dict[int, str]) -> None:
  assert "define " in printed[4] and "define " not in printed[3]


def test_5_shows_the_uops(printed: dict[int, str]) -> None:
  assert "RANGE" in printed[5] and "LOAD" in printed[5]
  assert "define " in printed[5]


def test_6_shows_the_rewrites(printed: dict[int, str]) -> None:
  line = re.compile(r"^rewrite  \w.{13} \w+ .* → .*$", re.MULTILINE)
  assert len(line.findall(printed[6])) > 50 and not line.search(printed[5])


@pytest.mark.parametrize("level", [1, 2])
def test_lines_fit_a_terminal(printed: dict[int, str], level: int) -> None:
  assert all(len(line) <= 120 for line in printed[level].splitlines())


def test_levels_keep_what_is_below(printed: dict[int, str]) -> None:
  for level in range(3, 7):
    assert LINE.search(printed[level]), f"DEBUG={level} has no line per kernel"


def test_readme_names_every_level() -> None:
  readme = (Path(__file__).parents[2] / "packages" / "tiny-uop" / "README.md").read_text()
  assert "DEBUG" in readme


def test_a_filter_by_kernel(tmp_path: Path) -> None:
  """DEBUG_KERNELS leaves out what belongs to others."""
  environment = {
    **os.environ,
    "DEVICE": "CPU",
    "DEBUG": "7",
    "DEBUG_KERNELS": "reduce_64x64*,none",
    "TINY_CACHE": str(tmp_path),
  }
  done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
  named = re.findall(r"^--- (\w+): (?:UOps|code|program)$", done.stderr, re.MULTILINE)
  assert set(named) == {"reduce_64x64_r64"} and len(named) == 3
  assert set(re.findall(r"^opts     (\w+)", done.stderr, re.MULTILINE)) == {"reduce_64x64_r64"}
  assert set(re.findall(r"^--- (\w+): .*rewrites$", done.stderr, re.MULTILINE)) == {"reduce_64x64_r64"}
  assert re.findall(r"^(\w+):$", done.stderr, re.MULTILINE).count("reduce_64x64_r64") == 1, "assembly"


def test_flags_of_the_processor_are_counted(printed: dict[int, str]) -> None:
  (line,) = [line for line in printed[1].splitlines() if line.startswith("device   CPU ")]
  assert re.search(r":\d+ flags", line) and "+avx" not in line
