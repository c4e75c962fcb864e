"""The chat page of tiny-llm's server in Chromium: a talk with a small model of random weights, as a person has it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tiny-viz" / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tiny-llm" / "tests"))

from chat_models import write_talker
from llm_servers import Running
from viz_browser import Browser, chromium

from tiny_llm.session import Session

pytestmark = pytest.mark.skipif(chromium() is None, reason="there is no Chromium (Debian: apt-get install chromium)")
ROLES = "[...document.querySelectorAll('article')].map((e) => e.className)"
IDLE = "document.querySelector('#send').innerText === 'Send'"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
  made = Browser()
  yield made
  made.close()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
  session = Session(write_talker(tmp_path_factory.mktemp("models") / "talker.gguf"), context=256, quiet=True)
  yield session
  session.close()


@pytest.fixture
def running(session: Session) -> Iterator[Running]:
  running = Running(session)
  yield running
  running.close()


@pytest.fixture
def page(tab: Browser, running: Running) -> Browser:
  """The page, where the model says what is likeliest."""
  tab.call("Page.navigate", url=running.url)
  tab.until("document.readyState === 'complete' && document.title === 'talker'")
  tab.evaluate("document.querySelector('details').open = true")
  tab.click_on("#temperature")
  tab.type("0")
  return tab


def say(page: Browser, words: str) -> None:
  """Write a message, and send it with Enter."""
  page.click_on("#text")
  page.type(words)
  page.key("Enter")


def answer(page: Browser) -> tuple[str, str]:
  """What the model says, once it has said all, and the line of figures below it."""
  page.until(f"{IDLE} && document.querySelector('article.assistant:last-child small')")
  last = "document.querySelector('article.assistant:last-child')"
  figures = str(page.evaluate(f"{last}.querySelector('small').innerText"))
  return str(page.evaluate(f"{last}.firstChild.data")), figures


def test_a_talk_and_a_new_one(page: Browser, running: Running) -> None:
  with page.quiet(running.url):
    say(page, "Hello <b>you</b>")
    first, figures = answer(page)
    assert page.text("article.user") == "Hello <b>you</b>" and page.text("#text") == ""
    assert len(first) > 20 and "tokens" in figures
    assert page.evaluate("document.querySelectorAll('article b').length") == 0, "text became HTML"
    page.click_on("#new")
    assert page.evaluate(ROLES) == []
    say(page, "Hello <b>you</b>")
    again, more = answer(page)
  assert again == first
  prompts = [line.partition("prompt of ")[2].partition(",")[0] for line in (figures, more)]
  assert prompts[0] == prompts[1], "the old conversation was sent again"


def test_an_answer_streams_in_and_stops(page: Browser, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
  held, engine, taken = threading.Event(), running.session.engine, itertools.count()
  step = engine.step

  def held_back() -> Any:
    if next(taken) == 20:  # of the answer's many: no more tokens until the page has stopped it
      held.wait(20)
    return step()

  monkeypatch.setattr(engine, "step", held_back)
  with page.quiet(running.url):
    say(page, "Hello")
    page.until("document.querySelector('article.assistant')?.innerText.length > 1")
    assert page.text("#send") == "Stop"
    page.click_on("#send")
    page.until(IDLE)
    said = page.text("article.assistant")
    held.set()
    running.idle()
    assert 1 < len(said) and page.text("article.assistant") == said
    assert page.evaluate(ROLES) == ["user", "assistant"]
    page.evaluate("document.querySelector('#system').value = 'Be brief'")
    say(page, "And now?")
    answer(page)
  assert page.evaluate(ROLES) == ["user", "assistant"] * 2


def test_what_went_wrong_is_shown(page: Browser, running: Running) -> None:
  say(page, "Hello " * 300)  # more than the context holds
  page.until("document.querySelector('article.error')")
  assert "context" in page.text("article.error")
  page.click_on("#new")
  running.close()
  say(page, "Is anybody there?")
  page.until(f"{IDLE} && document.querySelector('article.error')")
  assert page.evaluate(ROLES) == ["user", "error"] and "fetch" in page.text("article.error")
