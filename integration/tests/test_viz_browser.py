"""A ResNet-18's training step in the browser, from `VIZ` to what the page shows: `hatch run viz:test`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_viz import Trace, read_trace
from tiny_viz.answers import Answers
from tiny_viz.page import write_page

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tiny-viz" / "tests"))

from viz_browser import Browser, chromium, served

pytestmark = [
  pytest.mark.nightly,
  pytest.mark.skipif(chromium() is None, reason="there is no Chromium (Debian: apt-get install chromium)"),
]
EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAM = """
import sys
from tiny_tensor import Tensor, nn
from resnet import ResNet18
Tensor.manual_seed(0)
model = ResNet18(3, 10, 8)
opt = nn.optim.SGD(nn.state.get_parameters(model), lr=0.05, momentum=0.9)
x, y = Tensor.rand(4, 3, 16, 16).realize(), Tensor([1, 2, 3, 4])
with Tensor.train():
  for _ in range(2):
    opt.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y)
    loss.backward()
    opt.step()
    loss.realize()
"""
SLOW = PROGRAM.replace(
  "opt =",
  """plain = model.blocks[0]
model.blocks[0] = lambda x: plain(x).cumsum(3).cumsum(2) * 0.01
opt =""",
)
"""With a mistake in one block: two running sums that nobody asked for, in line 8."""


def recorded(folder: Path, name: str, program: str) -> Trace:
  """The trace of a program."""
  (folder / "train.py").write_text(program)
  environment = {**os.environ, "DEVICE": "CPU", "VIZ": "-1", "VIZ_FILE": name, "TINY_CACHE": str(folder / "cache")}
  environment["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES), environment.get("PYTHONPATH", "")])
  done = subprocess.run([sys.executable, "train.py"], cwd=folder, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return read_trace(folder / name, lazy=True)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
  folder = tmp_path_factory.mktemp("resnet")
  before = recorded(folder, "before.jsonl.gz", PROGRAM)
  return Answers(recorded(folder, "after.jsonl.gz", SLOW), "after.jsonl.gz", before, "before.jsonl.gz")


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
  made = Browser()
  yield made
  made.close()


@pytest.fixture
def page(tab: Browser, answers: Answers) -> Iterator[Browser]:
  with served(answers) as url, tab.quiet(url.partition("?")[0]):
    tab.open(url)
    yield tab


def test_the_slow_layer_and_its_line(page: Browser) -> None:
  page.show("layers")
  if "blocks" not in page.text("table"):
    page.click_on("tbody tr", "model")
  rows = page.rows("time by layer")
  assert {"model", "blocks"} <= {row[0].lstrip("▾▸") for row in rows}
  assert all(re.search(r"\d (ns|µs|ms|s)$", row[1]) and row[2].endswith("%") for row in rows)
  assert any(re.fullmatch(r"resnet\.py:\d+", row[7]) for row in rows)
  assert page.evaluate("document.querySelectorAll('.parts .backward').length") > 0
  times = page.evaluate("[...document.querySelectorAll('tr[aria-level=\"1\"] .parts')].map((e) => e.clientWidth)")
  assert times == sorted(times, reverse=True)


def test_the_timeline_has_all_that_ran(page: Browser, answers: Answers) -> None:
  page.show("timeline")
  page.until("viz.view()?.at")
  run = answers.trace.run
  assert run is not None
  name = next(record.name for record in run.records if record.kind == "kernel")
  keys = {unit.key for unit in answers.units if unit.kind == "kernel"}
  assert keys == {record.key for record in run.records if record.kind == "load"} and "" not in keys
  assert {"CPU queue", "CPU operations", "memory in use"} <= set(page.evaluate(f"viz.view().at('{name}').tracks"))
  page.evaluate(f"viz.view().reveal('{name}')")
  page.until(f"document.querySelector('aside h2')?.innerText === '{name}'")
  facts = page.text("aside")
  assert "device busy" in facts and "how it was compiled" in facts
  page.key("Enter")
  page.until("document.querySelector('#view').dataset.shown.startsWith('unit/')")
  assert name in page.text(".path")


def test_from_the_tensors_to_the_code(page: Browser, answers: Answers) -> None:
  number = max(range(len(answers.units)), key=lambda n: len(answers.calls(answers.units[n])))
  page.show(f"unit/{number}/graph")
  page.until("viz.view()?.graph?.at('SINK')?.zoom > 0")
  assert page.evaluate("document.querySelector('aside h2').innerText").endswith("nodes")
  page.click_on(".path a", "kernels")
  page.until("document.querySelector('table[aria-label=kernels]')")
  rows = page.rows("kernels")
  assert len(rows) == len(answers.calls(answers.units[number])) > 50
  page.evaluate("document.querySelector('table[aria-label=kernels] tbody tr').focus()")
  while "not in this trace" in page.evaluate("document.activeElement.innerText"):  # a copy
    page.key("ArrowDown")
  page.key("Enter")
  page.until("viz.view()?.graph?.at('SINK')?.zoom > 0")
  passes = [row[0] for row in page.rows("passes")]
  assert {"optimise", "linearise", "render"} <= set(passes)
  page.click_on(".path a", "code")
  page.until("document.querySelector('.code')")
  assert "define" in page.text(".code")


def test_every_kernel_opens(page: Browser, answers: Answers) -> None:
  for number in range(0, len(answers.units), 12):
    page.show(f"unit/{number}")
    page.until("document.querySelector('#view tr.current')")
    assert not page.text("[role=alert]")
    for mode in ("difference", "rewrites", "graph before", "graph after"):
      page.click_on("#view .bar button", mode)
    page.until("viz.view().graph || document.querySelector('#view .page, [role=alert]')")
    assert not page.text("[role=alert]"), (number, page.text("[role=alert]"))


def test_the_regression_is_explained(page: Browser) -> None:
  """The kernels of the mistake came, and say which line they are for."""
  page.show("compare")
  assert re.search(r"\d+ came", page.text(".summary"))
  page.click_on(".chip", "came")
  rows = page.rows("kernels")
  assert rows and all(row[0] == "came" for row in rows) and rows[0][2].startswith("+")
  places = ""
  for name in [row[1].split("\n")[0] for row in rows]:
    page.click_on("table[aria-label=kernels] tbody tr", name)
    page.until(f"document.querySelector('aside h2')?.innerText === '{name}'")
    places += page.text("aside")
  assert "train.py:8" in places


def test_the_whole_of_it_in_a_file(tab: Browser, answers: Answers, tmp_path: Path) -> None:
  path = tmp_path / "out.html"
  size = write_page(answers, path, most=2)
  assert size < 13_000_000
  slowest = max(range(len(answers.units)), key=answers.time_of)
  with tab.quiet(path.as_uri()), tab.offline():
    tab.open(path.as_uri())
    for place in (*"timeline layers compiler rules rule/0 compare".split(), f"unit/{slowest}", f"unit/{slowest}/code"):
      tab.show(place)
      assert not tab.text("[role=alert]"), place
