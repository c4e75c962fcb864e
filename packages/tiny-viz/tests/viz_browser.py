"""Chromium without a window, driven by its DevTools protocol over a pipe: no library, and no port that others reach."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from tiny_viz.answers import Answers
from tiny_viz.serve import Server

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 60.0
"""Seconds; a page that needs longer hangs."""
CODES = {
  "Enter": 13,
  "Escape": 27,
  "ArrowLeft": 37,
  "ArrowUp": 38,
  "ArrowRight": 39,
  "ArrowDown": 40,
  "Backspace": 8,
  "Tab": 9,
}


def chromium() -> str | None:
  """The path of the browser, or None where there is none."""
  return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


@contextmanager
def served(answers: Answers) -> Iterator[str]:
  """The address of a server of these answers, and no other path of this machine's is asked for."""
  with Server(answers) as server:
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.url
    server.shutdown()
    thread.join()


class Browser:
  """One tab. `errors` are those of scripts and of the console, `requests` the addresses that were asked for."""

  def __init__(self, width: int = 1280, height: int = 800) -> None:
    path = chromium()
    assert path is not None
    self.folder = tempfile.TemporaryDirectory(prefix="tiny-viz-browser", ignore_cleanup_errors=True)
    theirs_in, self.out = os.pipe()
    self.input, theirs_out = os.pipe()
    options = [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
      "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
      "--hide-scrollbars", f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}", "about:blank",
    ]  # fmt: skip
    # the browser reads commands from its descriptor 3, and answers on 4
    command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    self.process = subprocess.Popen(
      ["bash", "-c", command, path, *options], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    self.buffer, self.number, self.session = b"", 0, ""
    self.errors: list[str] = []
    self.requests: list[str] = []
    (target,) = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
    self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Network", "Log"):
      self.call(f"{domain}.enable")
    self.resize(width, height)

  def close(self) -> None:
    """End it."""
    os.close(self.out)  # the browser ends when nobody can command it
    try:
      self.process.wait(20)
    except subprocess.TimeoutExpired:
      self.process.kill()
      self.process.wait()
    os.close(self.input)
    self.folder.cleanup()

  # *** the protocol ***

  def call(self, method: str, **parameters: Any) -> dict[str, Any]:
    """Ask for something, and wait for the answer."""
    self.number += 1
    mine = self.number
    message = {"id": mine, "method": method, "params": parameters} | (
      {"sessionId": self.session} if self.session else {}
    )
    data = json.dumps(message).encode() + b"\0"
    while data:
      data = data[os.write(self.out, data) :]
    while True:
      answer = self.receive()
      if answer.get("id") == mine:
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])
      self.event(answer)

  def receive(self) -> dict[str, Any]:
    end = time.monotonic() + PATIENCE
    while b"\0" not in self.buffer:
      ready, _, _ = select.select([self.input], [], [], max(0, end - time.monotonic()))
      assert ready, "the browser does not answer"
      more = os.read(self.input, 1 << 20)
      assert more, "the browser has ended"
      self.buffer += more
    message, _, self.buffer = self.buffer.partition(b"\0")
    return dict(json.loads(message))

  def event(self, message: dict[str, Any]) -> None:
    name, found = message.get("method"), message.get("params", {})
    if name == "Runtime.exceptionThrown":
      detail = found["exceptionDetails"]
      self.errors.append(str(detail.get("exception", {}).get("description", detail["text"])))
    elif name == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
      self.errors.append(str([argument.get("value") for argument in found["args"]]))
    elif name == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
      self.errors.append(f"{found['entry']['text']} {found['entry'].get('url', '')}")
    elif name == "Network.requestWillBeSent":
      self.requests.append(str(found["request"]["url"]))

  # *** what a person does ***

  def open(self, url: str) -> None:
    """Go to an address, and wait for the page to show its first view."""
    self.call("Page.navigate", url=url)
    self.until("document.readyState === 'complete' && document.querySelector('#view')?.children.length > 0")

  def show(self, place: str) -> None:
    """Go to a view by the part of the address behind #."""
    self.evaluate(f"location.hash = {json.dumps('#' + place)}")
    self.until(f"document.querySelector('#view').dataset.shown === {json.dumps(place)}")

  def evaluate(self, script: str) -> Any:
    """The value of an expression; of a promise, what it gives."""
    found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
    assert "exceptionDetails" not in found, found["exceptionDetails"]
    return found["result"].get("value")

  def until(self, condition: str) -> None:
    """Wait for an expression to be true."""
    end = time.monotonic() + PATIENCE
    while not self.evaluate(f"Boolean({condition})"):
      assert time.monotonic() < end, f"never so: {condition}; {self.errors}; {self.text()[:300]}"
      time.sleep(0.02)

  def text(self, selector: str = "#view") -> str:
    """What stands in an element."""
    return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

  def key(self, *names: str) -> None:
    """Press keys one after the other."""
    for name in names:
      code = CODES.get(name, ord(name[0].upper()))
      written = "\r" if name == "Enter" else name if len(name) == 1 else ""
      same = {"key": name, "windowsVirtualKeyCode": code, "text": written}
      self.call("Input.dispatchKeyEvent", type="keyDown" if written else "rawKeyDown", **same)
      self.call("Input.dispatchKeyEvent", type="keyUp", **same)

  def click(self, x: float, y: float) -> None:
    """Press the mouse and let it go."""
    self.drag((x, y), (x, y))

  def drag(self, *points: tuple[float, float]) -> None:
    """Press the mouse at the first place, move it, and let it go at the last."""
    button: dict[str, Any] = {"button": "left", "clickCount": 1}
    self.call("Input.dispatchMouseEvent", type="mouseMoved", x=points[0][0], y=points[0][1])
    self.call("Input.dispatchMouseEvent", type="mousePressed", x=points[0][0], y=points[0][1], **button)
    for x, y in points[1:]:
      self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, **button)
    self.call("Input.dispatchMouseEvent", type="mouseReleased", x=points[-1][0], y=points[-1][1], **button)

  def click_on(self, selector: str, words: str = "") -> None:
    """Click in the middle of the first element that matches, and has some words."""
    x, y, width, height = self.box(selector, words)
    self.click(x + width / 2, y + height / 2)

  def box(self, selector: str, words: str = "") -> list[float]:
    """Where the first element is that matches, and has some words: x, y, width and height in pixels."""
    all_of_them = f"[...document.querySelectorAll({json.dumps(selector)})]"
    find = f"{all_of_them}.find((e) => e.innerText.includes({json.dumps(words)}))"
    assert self.evaluate(f"Boolean({find})"), f"there is no {selector} with {words!r}: {self.text()[:300]}"
    self.evaluate(f"{find}.scrollIntoView({{block: 'nearest'}})")
    return list(self.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({find}.getBoundingClientRect())"))

  def rows(self, label: str) -> list[list[str]]:
    """The cells of a table's rows."""
    find = f"document.querySelectorAll('table[aria-label={json.dumps(label)}] tbody tr')"
    return [list(row) for row in self.evaluate(f"[...{find}].map((row) => [...row.cells].map((c) => c.innerText))")]

  def type(self, words: str) -> None:
    """Write into what has the focus."""
    self.call("Input.insertText", text=words)

  def resize(self, width: int, height: int) -> None:
    """The size of the window, in pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    self.call("Emulation.setDeviceMetricsOverride", **size)

  def dark(self, on: bool) -> None:
    """The colours that the system asks for."""
    self.call(
      "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
    )

  @contextmanager
  def quiet(self, *addresses: str) -> Iterator[None]:
    """In the block no script fails, and the page asks for nothing but what begins with one of the addresses."""
    self.errors.clear()
    self.requests.clear()
    yield
    assert not self.errors
    assert all(url.startswith((*addresses, "data:")) for url in self.requests), self.requests

  @contextmanager
  def offline(self) -> Iterator[None]:
    """In the block there is no network."""
    speeds = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    self.call("Network.emulateNetworkConditions", offline=True, **speeds)
    try:
      yield
    finally:
      self.call("Network.emulateNetworkConditions", offline=False, **speeds)

  def screenshot(self, path: Path) -> None:
    """Save what is seen as PNG."""
    self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
