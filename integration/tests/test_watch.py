"""Watching the compiler at work on real programs: VIZ=-1 and tiny-viz, DEBUG=6, TRACK_MATCH_STATS."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tiny_viz import Graphs, SpanInfo, Trace, read_trace

PROGRAM = """
from tiny_tensor import Tensor, nn
Tensor.manual_seed(1)
layer = nn.Conv2d(3, 4, 3, padding=1)
layer.weight.requires_grad = True
x = Tensor.rand(2, 3, 8, 8)
loss = layer(x).relu().max_pool2d((2, 2)).square().mean()
loss.backward()
print(round(loss.item() + layer.weight.grad.sum().item(), 4))
"""


def run(folder: Path, code: str = PROGRAM, **settings: str) -> subprocess.CompletedProcess[str]:
  environment = {**os.environ, "DEVICE": "CPU", "TINY_CACHE": str(folder / "cache"), **settings}
  done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
  return tmp_path_factory.mktemp("watch")


@pytest.fixture(scope="module")
def plain(folder: Path) -> subprocess.CompletedProcess[str]:
  """The program with nobody watching; it fills the caches."""
  return run(folder, DEBUG="1")


@pytest.fixture(scope="module")
def trace(folder: Path, plain: subprocess.CompletedProcess[str]) -> Trace:
  done = run(folder, VIZ="-1", VIZ_FILE="trace.jsonl.gz")
  assert done.stdout == plain.stdout
  return read_trace(folder / "trace.jsonl.gz")


def of_kind(trace: Trace, kind: str) -> list[SpanInfo]:
  return [span for span in trace.spans if span.kind == kind]


def test_every_kernel_is_there_though_it_was_cached(trace: Trace, plain: subprocess.CompletedProcess[str]) -> None:
  compiled = re.findall(r"^kernel +(\S+) +compiled", plain.stderr, re.MULTILINE)
  assert len(compiled) > 5
  assert sorted(compiled) == sorted(span.name for span in of_kind(trace, "kernel"))
  assert sorted(compiled) == sorted(span.name for span in of_kind(trace, "compile"))
  assert len(of_kind(trace, "schedule")) == len(re.findall("cache miss", plain.stderr))


def test_times_add_up(trace: Trace) -> None:
  assert trace.complete
  for span in trace.spans:
    assert span.seconds is not None and all(step.seconds <= span.seconds for step in span.steps)
    inner = sum(child.seconds or 0 for child in span.children)
    assert inner <= span.seconds * 1.001 + 1e-5, (span.kind, span.name)


def test_each_pass_takes_what_the_last_one_gave(trace: Trace) -> None:
  from tiny_codegen import PASSES

  for kernel in of_kind(trace, "kernel"):
    passes = [child for child in kernel.children if child.kind == "pass"]
    assert [p.name for p in passes][: len(PASSES)] == [p.name for p in PASSES]
    assert kernel.before == passes[0].before
    lowering = passes[: len(PASSES)]
    assert [p.after for p in lowering[:-1]] == [p.before for p in lowering[1:]]
    assert kernel.after == lowering[-1].after


def test_the_rewrites_explain_the_results(trace: Trace) -> None:
  """Replayed one by one on the graph that a table was run over, they give what it gave."""
  import tiny_codegen  # registers the classes that stand in arguments

  assert tiny_codegen
  graphs = Graphs(trace)
  replayed = 0
  for span in of_kind(trace, "table"):
    if span.steps:
      assert span.after is not None
      assert graphs.whole(span.steps[-1])[1] is graphs.uop(span.after), span.name
      replayed += len(span.steps)
  assert replayed > 500


def test_statistics_agree_with_the_rewrites(trace: Trace) -> None:
  for rule, count in trace.stats:
    assert count.matches == sum(1 for step in trace.steps if step.rule == rule), rule
    assert count.attempts >= count.matches and count.seconds >= count.match_seconds
    assert re.fullmatch(r"tiny_\w+(/\w+)+\.py:\d+", rule.where), rule


def test_the_command(folder: Path, trace: Trace) -> None:
  def viz(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "tiny_viz", "trace.jsonl.gz", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()

  kernel = of_kind(trace, "kernel")[0]
  assert any(f" {kernel.name} " in line for line in viz())
  assert any(" optimise " in line for line in viz("--kernel", kernel.name))
  assert len(viz("--pass", "kernels")) > 20
  first = next(step for step in trace.steps if step.rule.name == "index_sum")
  assert any(line.startswith("-%") for line in viz("--step", str(first.number)))
  assert len(viz("--stats")) > 20


def test_6_prints_each_rewrite_under_its_pass(folder: Path, trace: Trace) -> None:
  done = run(folder, DEBUG="6")
  rewrites = [line for line in done.stderr.splitlines() if re.match(r"rewrite  +\S", line)]
  assert len(rewrites) == len(trace.steps)
  assert all(len(line) <= 160 for line in rewrites)
  found = re.findall(r"^rewrite  +(?:.{14}) (\w+)", done.stderr, re.MULTILINE)
  assert [step.rule.name[:26] for step in trace.steps] == found
  headings = set(re.findall(r"^--- (\S+): (\w+): rewrites$", done.stderr, re.MULTILINE))
  for kernel in of_kind(trace, "kernel"):
    expected = {(kernel.name, p.name) for p in kernel.children if p.kind == "pass" and p.all_steps()}
    assert expected <= headings


@pytest.mark.parametrize("level", ["1", "2"])
def test_match_stats(folder: Path, trace: Trace, level: str) -> None:
  done = run(folder, TRACK_MATCH_STATS=level)
  assert f" {len(trace.steps)} / {sum(count.attempts for _, count in trace.stats)} " in done.stderr
  assert ("  tiny_sched/" in done.stderr) == (level == "2")


def test_1_serves_what_ran_when_the_program_ends(folder: Path, plain: subprocess.CompletedProcess[str]) -> None:
  environment = {
    **os.environ,
    "DEVICE": "CPU",
    "TINY_CACHE": str(folder / "cache"),
    "VIZ": "1",
    "VIZ_FILE": "shown.jsonl",
  }
  started = subprocess.Popen(
    [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    text=True, start_new_session=True,
  )  # fmt: skip
  assert started.stderr is not None
  said: list[str] = []
  while not (said and "http://" in said[-1]):
    said.append(started.stderr.readline())
    assert said[-1], said
  try:
    page, _, token = said[-1].split()[1].partition("?")
    with urllib.request.urlopen(f"{page}api/overview?{token}") as answer:
      overview = json.load(answer)
  finally:
    os.killpg(started.pid, signal.SIGINT)  # as Ctrl-C does, which ends both
    out, _ = started.communicate(timeout=60)
  assert out == plain.stdout and started.returncode == 0
  assert overview["run"]["records"] > 10 and "kernel" in overview["units"]["kind"]
  trace = read_trace(folder / "shown.jsonl")
  assert trace.run is not None and any(origin.phase == "backward" for origin in trace.run.origins)
