"""The page in a browser, on a trace made by hand: what it shows, and that the keyboard is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from viz_browser import Browser, chromium, served
from viz_made import CODE, made_trace

from tiny_viz import read_trace
from tiny_viz.answers import Answers
from tiny_viz.page import write_page

DETAIL = "aside:not(.left)"
PLACES = (
  "timeline layers compiler unit/0 unit/0/code unit/0/graph rewrite/0 rules rule/0 compare counters counters/1".split()
)

pytestmark = pytest.mark.skipif(chromium() is None, reason="there is no Chromium (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
  folder = tmp_path_factory.mktemp("page")
  after = made_trace(folder / "after.jsonl", slow=3, without="kernel_4", extra="kernel_new")
  before = made_trace(folder / "before.jsonl")
  return Answers(read_trace(after, lazy=True), "after.jsonl", read_trace(before, lazy=True), "before.jsonl")


@pytest.fixture(scope="module")
def address(answers: Answers) -> Iterator[str]:
  with served(answers) as url:
    yield url


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
  made = Browser()
  yield made
  made.close()


@pytest.fixture
def page(tab: Browser, address: str) -> Iterator[Browser]:
  with tab.quiet(address.partition("?")[0]):
    tab.open(address)
    yield tab


def position(page: Browser, script: str) -> tuple[float, float]:
  """Where in the window something on the canvas is."""
  x, y, *_ = page.box("canvas")
  found = page.evaluate(f"viz.view().{script}")
  return x + found["x"], y + found["y"]


def test_two_traces_are_compared_first(page: Browser) -> None:
  assert page.text("#tabs").split() == ["Timeline", "Layers", "Compiler", "Rules", "Compare", "Counters"]
  text = page.text()
  assert "before.jsonl → after.jsonl" in text
  assert "1 slower, 1 came, 1 went" in text
  first = page.text("tbody tr").split()
  assert first[:2] == ["slower", "kernel_3"] and "3.00×" in first and "+40.0" in first
  assert page.rows("kernels")[0][1] == "kernel_3\nmodel.layer1.0.conv2, backward, train.py:21"
  page.key("ArrowDown", "ArrowUp", "Enter")
  page.until("document.querySelector('aside h2')?.innerText === 'kernel_3'")
  assert "the same" in page.text("aside")  # as much work as before, in three times the time
  page.click_on(".chip", "came")
  assert page.text("tbody").split()[:2] == ["came", "kernel_new"]
  page.click_on("button", "layers")
  page.click_on(".chip", "came")
  assert "model.layer1.0.conv2, backward" in page.text("tbody tr")


def test_the_timeline(page: Browser) -> None:
  page.key("1")
  page.until("viz.view()?.at")
  tracks = page.evaluate("viz.view().at('kernel_3').tracks")
  assert tracks == [
    "MainThread (7)", "loader (8)", "CPU queue", "CPU operations", "CPU memory traffic", "memory in use"
  ] or tracks[0].startswith("thread")  # fmt: skip
  page.click(*position(page, "at('kernel_3')"))
  page.until("document.querySelector('aside h2')?.innerText === 'kernel_3'")
  facts = page.text("aside")
  for fact in (
    "60.0 ms",
    "13.3 GFLOPS (13 % of the peak)",
    "3.00 GB/s (15 % of the peak)",
    "model.layer1.0.conv2, backward",
    "train.py:21",
  ):
    assert fact in facts, fact


def test_search_and_selection(page: Browser) -> None:
  page.show("timeline")
  page.key("/")
  page.type("layer1.0.conv2")
  page.until("document.querySelector('.bar .soft')?.innerText === '4 records'")
  assert "4 records found" in page.text("aside")
  page.key("Enter")
  page.until("document.querySelector('aside h2')?.innerText !== '4 records found'")
  page.key("Escape", "0")
  x, y, width, _ = page.box("canvas")
  page.drag((x + 150, y + 60), (x + width / 2, y + 60), (x + width - 4, y + 60))
  page.until("document.querySelector('aside h2')?.innerText.startsWith('Selected')")
  rows = page.rows("kernel")
  assert rows[0][:2] == ["kernel_3", "60.0 ms"]


def test_memory_at_a_moment(page: Browser) -> None:
  page.show("timeline")
  page.click(*position(page, "moment(0.55)"))
  page.until("document.querySelector('aside h2')?.innerText.startsWith('Memory at')")
  text = page.text("aside")
  assert "2 × 1000000 × float32, model.layer1.0.conv1" in text and "never" in text
  assert "1 × 1000000" not in text  # it is freed by then


def test_the_timeline_by_keys(page: Browser) -> None:
  page.show("timeline")
  page.key("n")
  page.until("document.querySelector('aside h2')?.innerText === 'copy_16'")
  page.key("n", "n", "p")
  page.until("document.querySelector('aside h2')?.innerText === 'kernel_1'")
  page.key("f", "+", "-", "a", "d", "0", "m")
  page.until("document.querySelector('aside h2')?.innerText.startsWith('Memory at')")
  page.key("Escape")
  page.until("document.querySelector('aside h2')?.innerText.startsWith('All of it')")


def test_the_slow_layer_stands_first(page: Browser) -> None:
  page.key("2")
  page.until("document.querySelector('table[role=treegrid]')")
  page.until("document.activeElement.tagName === 'TR'")
  first = page.text("tbody tr")
  assert first.startswith("▾model") and "96 %" in first
  second = page.evaluate("document.querySelectorAll('tbody tr')[1].innerText")
  assert "layer1.0" in second and "train.py:21" in second
  page.key("ArrowLeft")
  assert page.text("tbody tr").startswith("▸model")
  page.key("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight")
  widths = page.evaluate("[...document.querySelectorAll('.parts')].map((e) => e.getBoundingClientRect().width)")
  assert widths[0] > widths[1] > 50  # the longest first, drawn to scale
  assert page.evaluate("document.querySelectorAll('.parts .backward').length") > 1


def test_from_the_kernel_to_its_code(page: Browser) -> None:
  page.key("3")
  page.until("document.querySelector('table[aria-label=\"schedules and kernels\"]')")
  assert page.text("tbody tr").split()[:3] == ["0", "kernel", "copy_16"]
  page.key("Enter")
  page.until("viz.view()?.graph")
  assert page.evaluate("document.querySelector('tr.current').innerText").split("\t")[0] == "simplify"
  assert "graph after" in page.text("button[aria-pressed=true]") and page.text(DETAIL).startswith("8 nodes")
  page.click(*position_in_graph(page, "INDEX"))
  page.until("document.querySelector('aside:not(.left) h2')?.innerText === 'INDEX'")
  page.click_on("button", "difference")
  page.until("document.querySelector('.diff .minus')")
  assert page.evaluate("document.querySelectorAll('.diff .minus').length") >= 2
  page.click_on("button", "rewrites (2)")
  page.until("document.querySelector('table[aria-label=rewrites]')")
  page.click_on(".chip", "div_constant")
  rows = page.rows("rewrites")
  assert len(rows) == 1 and rows[0][1:4] == ["div_constant", "(i*4 + 2)//4", "i"]
  assert page.text(".page > p a") == "what div_constant does"
  page.click_on("table[aria-label=rewrites] tbody tr")
  page.until("document.querySelector('#view').dataset.shown === 'rewrite/1'")
  assert "Rewrite 1 of 2: div_constant" in page.text() and "in kernel" not in page.text("h1")
  page.key("k")
  page.until("document.querySelector('#view').dataset.shown === 'rewrite/0'")
  page.click_on("h2 a", "int_add_zero")
  page.until("document.querySelector('#view').dataset.shown.startsWith('rule/')")
  assert "applied" in page.text() and "1 time" in page.text() and "int_add_zero" in page.text(".code")


def position_in_graph(page: Browser, op: str) -> tuple[float, float]:
  page.until(f"viz.view().graph.at('{op}').zoom > 0")  # it is drawn
  x, y, *_ = page.box("canvas")
  found = page.evaluate(f"viz.view().graph.at('{op}')")
  return x + found["x"], y + found["y"]


def test_counters_and_waves(page: Browser) -> None:
  page.key("6")
  page.until("document.querySelector('table[aria-label=\"launches with counters\"]')")
  page.key("Enter")
  page.until("document.querySelector('table[aria-label=instructions]')")
  assert "GL2C_HIT\t123,456" in page.text("aside") and "2 waves" in page.text()
  rows = page.rows("instructions")
  assert rows[1] == ["0008", CODE[1][1], "2", "600", "592"]
  page.key("n", "n")
  page.until("document.querySelector('aside div h2')?.innerText.startsWith('s_waitcnt')")
  assert "300 cycles" in page.text("aside") and "SE0 CU0 SIMD0" in page.text("aside")


def test_a_rule_says_what_it_does_and_where_it_applied(page: Browser) -> None:
  page.show("rules")
  page.click_on("tbody a", "int_add_zero")
  page.until("document.querySelector('#view').dataset.shown.startsWith('rule/')")
  text = page.text()
  assert "replaces" in text and "tiny_uop/symbolic/sums.py:" in text
  assert page.text("a.chip") == "copy_16 1" and page.rows("rewrites")
  page.click_on("a.chip", "copy_16")
  page.until("document.querySelector('#view').dataset.shown.startsWith('unit/')")


def test_a_narrow_window_has_one_column(page: Browser) -> None:
  page.resize(500, 800)
  try:
    for place in PLACES:
      page.show(place)
      assert page.evaluate("document.documentElement.scrollWidth") <= 500, place
      detail = "document.querySelector('.split > aside:not(.left)')"
      top, bottom = (
        f"{detail}.{side}"
        for side in ("getBoundingClientRect().top", "previousElementSibling.getBoundingClientRect().bottom")
      )
      assert page.evaluate(f"!{detail}?.previousElementSibling || {top} >= {bottom} - 1"), f"{place}: beside"
  finally:
    page.resize(1280, 800)


def test_every_view_in_the_dark(page: Browser, tmp_path: Path) -> None:
  page.dark(True)
  try:
    for place in PLACES:
      page.show(place)
      assert not page.text("[role=alert]"), place
      red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
      assert red + green + blue < 120
  finally:
    page.dark(False)


def test_keys_are_listed_and_wrong_addresses_are_named(page: Browser) -> None:
  page.key("?")
  page.until("document.querySelector('dialog').open")
  assert "next and previous event" in page.text("dialog")
  page.key("Escape")
  page.until("!document.querySelector('dialog').open")
  for place, reason in (
    ("nothing", "There is no view nothing."),
    ("rule/99", "there is no number 99"),
    ("unit/x", "there is no 'unit/NaN'"),
  ):
    page.show(place)
    assert reason in page.text("[role=alert]")
  # the browser tells of answers that are errors
  page.errors[:] = [error for error in page.errors if "404" not in error]


def test_a_file_that_works_alone(tab: Browser, answers: Answers, tmp_path: Path) -> None:
  path = tmp_path / "out.html"
  write_page(answers, path)
  with tab.quiet(path.as_uri()), tab.offline():
    tab.open(path.as_uri())
    for place in PLACES:
      tab.show(place)
      assert not tab.text("[role=alert]"), place
    tab.show("compare")
    assert "1 slower, 1 came, 1 went" in tab.text()
    tab.show("rule/99")
    assert "The trace does not have this." in tab.text("[role=alert]")


def test_what_is_left_out_of_a_file_is_said(
  tab: Browser, answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr("tiny_viz.page.BUNDLE", 2000)
  path = tmp_path / "out.html"
  write_page(answers, path, limit=6000)
  tab.open(path.as_uri())
  tab.show("rewrite/1")
  assert "This is left out of the file" in tab.text("[role=alert]")


def test_hostile_text_stays_text(tab: Browser, tmp_path: Path) -> None:
  evil = '<img src=x onerror="document.title=1">'
  lines = (
    made_trace(tmp_path / "t")
    .read_text()
    .replace("kernel_3", evil.replace('"', '\\"'))
    .replace("model.fc", "</script><script>alert(1)")
  )
  (tmp_path / "evil").write_text(lines)
  answers = Answers(read_trace(tmp_path / "evil", lazy=True), "<b>evil</b>")
  write_page(answers, tmp_path / "out.html")
  tab.errors.clear()
  tab.open((tmp_path / "out.html").as_uri())
  tab.show("layers")
  assert tab.evaluate("document.querySelectorAll('img, b').length") == 0
  assert "</script>" in tab.text() and "<b>evil</b>" in tab.text("#program")
  assert not tab.errors


def test_where_the_time_goes_loop_by_loop(page: Browser) -> None:
  page.show("unit/0/code")
  assert page.rows("loops") == [["75 %", "180–200", "21", "8", "multiplies and adds"]]
