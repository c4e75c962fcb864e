"""The benchmark of workloads measures what it says, tried on tiny sizes; how long anything takes is not looked at."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from suite import markdown, measuring, models  # noqa: E402
from suite.measuring import Figures, Row, error_of  # noqa: E402
from suite.numpy_gradients import NumpyGradients  # noqa: E402
from suite.numpy_library import Numpy  # noqa: E402
from suite.report import show, summary  # noqa: E402
from suite.workload import Goal  # noqa: E402
from suite.workloads import all_workloads  # noqa: E402

TINY = ("--small", "--seconds", "0.01", "--slice", "0.005", "--libraries", "numpy")


def run(*options: str, folder: Path) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    [sys.executable, str(BENCH / "bench.py"), *options],
    capture_output=True,
    text=True,
    timeout=600,
    cwd=folder,
    env={**os.environ, "DEVICE": "CPU"},
  )


ONE_OF_A_KIND = ["matmul 64", "softmax", "conv 2×1×14²", "MLP", "int8", "warm", "max pool", "LSTM", "Adam"]
OTHERS = [
  *("sum of 4 MB", "attention", "MNIST", "deconv 1", "dilation", "conv 4×64×512", "4 groups", "pad", "axis -1", "GRU"),
  *("bag", "transformer", "batch 1"),
]
MODES = [
  ("--single", ONE_OF_A_KIND), pytest.param("--single", OTHERS, marks=pytest.mark.nightly),
  ("--threads=2", ["relu"]),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "words"), MODES)
def test_workloads_are_checked_and_measured(tmp_path: Path, mode: str, words: list[str]) -> None:
  results, log = tmp_path / "bench.json", tmp_path / "log"
  done = run(*TINY, mode, "--json", str(results), "--log", str(log), *words, folder=tmp_path)
  assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
  rows = json.loads(results.read_text())["rows"]
  expected = [w.name for w in all_workloads(small=True) if any(word in w.name for word in words)]
  assert [row["name"] for row in rows] == expected, "no row is left out"
  for row in rows:
    assert row["name"] in done.stdout
    assert {"ours", "numpy"} & set(row["lanes"]), row
    for lane, figures in row["lanes"].items():
      assert not figures["failure"], (row["name"], lane, figures["failure"])
      assert 0 < figures["best"] and 0 < figures["seconds"], (row["name"], lane)
      assert row["group"] == "start" or figures["error"] is not None, (row["name"], lane)
    assert row["reached"] is None or row["reached"] > 0
    assert row["roof"] is None or len(row["roof"]["samples"]) >= 2 * measuring.LEAST_ROUNDS


def test_says_which_workloads_there_are(tmp_path: Path) -> None:
  done = run("--list", "matmul 1024", folder=tmp_path)
  assert done.stdout.splitlines()[0].split("  ")[0] == "matmul", done.stdout
  done = run("no such thing", folder=tmp_path)
  assert done.returncode == 1 and "'no such thing'" in done.stderr and "resnet50" in done.stderr


def test_roofs_of_the_machine(tmp_path: Path) -> None:
  done = run("--roofs", "--single", "--small", "--seconds", "0.01", folder=tmp_path)
  assert done.returncode == 0, done.stderr
  names = [line.split("  ")[0] for line in done.stdout.splitlines()[1:]]
  assert names[:3] == ["fma", "dot int8", "dot bf16"] and len(names) == 6
  assert all(float(line.split()[-2]) > 0 for line in done.stdout.splitlines()[1:])


def test_rows_that_are_wrong_or_missed_say_so() -> None:
  (workload,) = (w for w in all_workloads() if w.name == "matmul 1024")
  assert workload.goal == Goal("roof", 0.8)
  good = Figures(slices=[0.01], shares=[0.6], best=0.01, error=1e-7)
  other = Figures(slices=[0.02], shares=[0.3], best=0.02, error=1e-7)
  row = Row(workload, {"ours": good, "numpy": other})
  assert row.reached() == pytest.approx(0.75) and row.ratio("numpy") == pytest.approx(2)
  assert "MISSED, at 75%" in show(row) and "2.00×" in show(row)
  broken = Row(workload, {"ours": Figures(failure="wrong: off by 1.0"), "numpy": other})
  assert broken.reached() is None
  assert "FAILED" in show(broken) and "wrong: off by 1.0" in show(broken) and workload.name in summary([broken])
  assert "0 of 2 goals" in summary([row, broken])


def test_a_page_gets_the_table_and_keeps_the_rest(tmp_path: Path) -> None:
  (workload,) = (w for w in all_workloads() if w.name == "matmul 1024")
  lanes = {"ours": 0.6, "numpy": 0.3, "torch": 0.5}
  row = Row(workload, {n: Figures(slices=[0.01], shares=[s], best=0.01, error=1e-7) for n, s in lanes.items()})
  page = tmp_path / "page.md"
  page.write_text(f"# Before\n\n{markdown.BEGIN}\nold\n{markdown.END}\n\nafter\n")
  for _ in range(2):
    markdown.write(page, [row], "a machine")
  text = page.read_text()
  assert text.startswith("# Before\n") and text.endswith("after\n") and "old" not in text
  assert "| matmul 1024 | 215 GFLOPS | 60% | torch 215 GFLOPS | ≥ 0.80 of roof, MISSED, at 75% |" in text
  assert text.count("a machine.") == text.count("0 of 1 goals reached.") == 1
  page.write_text(f"{markdown.END} {markdown.BEGIN}")
  with pytest.raises(ValueError, match="the other way round"):
    markdown.write(page, [row], "a machine")


def test_goals_against_peers_are_against_the_best_of_them() -> None:
  (workload,) = (w for w in all_workloads() if w.name == "ResNet-18 forward, batch 1")
  shares = {"ours": 0.6, "numpy": 0.9, "torch": 0.2, "torch channels last": 0.4}
  row = Row(workload, {lane: Figures(slices=[1.0], shares=[share]) for lane, share in shares.items()})
  assert row.reached() == pytest.approx(0.6 / 0.4 / 1.2), "torch's best layout, and no one else"


def test_errors_are_shares_of_the_largest_value() -> None:
  exact = np.array([[1.0, -4.0]])
  assert error_of(np.array([[1.0, -4.4]]), exact) == pytest.approx(0.1)
  assert np.isnan(error_of(np.array([[np.nan, -4.0]]), exact))
  assert error_of(np.zeros((3, 2)), exact) == float("inf")


def mnist() -> tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...]]:
  rng = np.random.default_rng(0)
  return (
    models.mnist_loss,
    models.mnist_weights(rng),
    (rng.standard_normal((3, 1, 28, 28)), np.arange(3, dtype=np.int32)),
  )


def transformer() -> tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...]]:
  rng, size = np.random.default_rng(0), models.BertSize(2, 8, 2, 12, 10)
  ids = rng.integers(0, 10, (3, 6)).astype(np.int32)
  loss = partial(models.language_model_loss, size=size)
  return loss, models.language_model_weights(rng, size, 5), (ids[:, :-1], ids[:, 1:].ravel())


@pytest.mark.parametrize("model", [mnist, transformer])
def test_gradients_that_results_are_compared_with_are_right(model: Callable[..., Any]) -> None:
  loss, drawn, data = model()
  weights = {name: w.astype(np.float64) for name, w in drawn.items()}
  _, gradients = NumpyGradients().differentiate(loss, weights, data)
  assert gradients.keys() == weights.keys()
  rng, exact, step = np.random.default_rng(1), Numpy("exact"), 1e-8  # so short that few units change sign
  for name, weight in weights.items():
    direction = rng.standard_normal(weight.shape)
    both = [loss(exact, weights | {name: weight + sign * step * direction}, *data) for sign in (1, -1)]
    # a bias of keys changes nothing: its gradient is 0
    numeric = pytest.approx((both[0] - both[1]) / (2 * step), rel=1e-5, abs=1e-7)
    assert (gradients[name] * direction).sum() == numeric, name
