"""Serves the page of a trace and its answers, to this machine and to who knows the token.

Only 127.0.0.1 is listened on. A request has to bear the token, and the name under which the server is reached: a page
of another site, whose name somebody has made to mean 127.0.0.1, is refused. Paths are looked up, no file is opened.
"""

from __future__ import annotations

import gzip
import hmac
import json
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tiny_uop.locks import shared_lock
from tiny_viz.answers import Answers, Missing
from tiny_viz.errors import TraceError
from tiny_viz.page import page

LONG = 1 << 14
"""Bytes from which an answer is compressed."""


class Server(ThreadingHTTPServer):
  """`Server(answers).serve_forever()`; `url` is the address for the browser."""

  daemon_threads = True

  def __init__(self, answers: Answers, port: int = 0, token: str = "") -> None:
    super().__init__(("127.0.0.1", port), Handler)
    self.answers, self.token, self.lock = answers, token or secrets.token_urlsafe(24), shared_lock()
    self.page = page().encode()

  @property
  def url(self) -> str:
    """With the token."""
    return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

  def answer(self, path: str) -> tuple[HTTPStatus, Any]:
    """What a path under `/api/` gives."""
    try:
      with self.lock:  # answers share what they have read of the trace
        return HTTPStatus.OK, self.answers.get(path)
    except Missing as error:
      return HTTPStatus.NOT_FOUND, {"error": str(error)}
    except TraceError as error:
      return HTTPStatus.UNPROCESSABLE_ENTITY, {"error": str(error)}


class Handler(BaseHTTPRequestHandler):
  """One request."""

  server: Server
  server_version, sys_version = "tiny-viz", ""
  timeout = 30

  def do_GET(self) -> None:
    """The page at `/`, answers under `/api/`."""
    server = self.server
    url = urlsplit(self.path)
    token = "".join(parse_qs(url.query, keep_blank_values=True).get("token", []))
    if self.headers.get_all("Host", []) not in [
      [f"{name}:{server.server_port}"] for name in ("127.0.0.1", "localhost")
    ]:
      return self.refuse(f"open this as http://127.0.0.1:{server.server_port}/")
    if not hmac.compare_digest(token.encode("utf-8", "replace"), server.token.encode()):
      return self.refuse("the address lacks the token: copy all of what `tiny_viz serve` printed")
    if url.path == "/":
      return self.give(HTTPStatus.OK, "text/html; charset=utf-8", server.page)
    if not url.path.startswith("/api/"):
      return self.give(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is nothing here\n")
    status, answer = server.answer(url.path.removeprefix("/api/"))
    self.give(status, "application/json", json.dumps(answer, separators=(",", ":")).encode())

  def refuse(self, why: str) -> None:
    """Say no."""
    self.give(HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", f"{why}\n".encode())

  def give(self, status: HTTPStatus, kind: str, data: bytes) -> None:
    """Send an answer."""
    self.send_response(status)
    if len(data) > LONG and "gzip" in self.headers.get("Accept-Encoding", ""):
      data = gzip.compress(data, 1)
      self.send_header("Content-Encoding", "gzip")
    for name, value in (
      ("Content-Type", kind), ("Content-Length", str(len(data))), ("Cache-Control", "no-store"),
      ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
      ("Cross-Origin-Resource-Policy", "same-origin"), ("Content-Security-Policy", "frame-ancestors 'none'"),
    ):  # fmt: skip
      self.send_header(name, value)
    self.end_headers()
    self.wfile.write(data)

  def log_message(self, format: str, *args: Any) -> None:
    """Nothing: the addresses have the token."""
