"""Servers that run in a thread while tests ask them."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import uvicorn

from tiny_llm.server import create_app
from tiny_llm.session import Session

PATIENCE = 120
"""Seconds that a test waits for anything at most."""


def ended(threads: list[threading.Thread]) -> None:
  """Waits until threads have ended; fails if one does not."""
  end = time.monotonic() + PATIENCE
  for thread in threads:
    thread.join(max(end - time.monotonic(), 0))
  assert not any(thread.is_alive() for thread in threads), f"{threads} have not ended"


class Running:
  """A server in a thread."""

  def __init__(self, session: Session, **options: Any) -> None:
    self.session, self.app = session, create_app(session, **options)
    self.server = self.app.state.server
    self.socket = socket.socket()
    self.socket.bind(("127.0.0.1", 0))
    self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
    self._uvicorn = uvicorn.Server(uvicorn.Config(self.app, log_level="error", timeout_graceful_shutdown=2))
    self._thread = threading.Thread(target=lambda: self._uvicorn.run([self.socket]), daemon=True)
    self._thread.start()
    end = time.monotonic() + PATIENCE
    while not self._uvicorn.started:
      assert self._thread.is_alive() and time.monotonic() < end, "the server does not start"
      time.sleep(0.01)

  def close(self) -> None:
    self._uvicorn.should_exit = True
    ended([self._thread])
    self.server.close()
    self.socket.close()

  def idle(self) -> None:
    """Waits until nothing runs; fails if a slot is not given back."""
    end = time.monotonic() + PATIENCE
    while self.server.worker.running or self.server.worker.waiting:
      assert time.monotonic() < end, "a slot is lost"
      time.sleep(0.02)
    assert all(slot.generation is None for slot in self.session.engine._slots)
