"""A web server on this machine that misbehaves as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
  """What is served: contents by path, and how."""

  files: dict[str, bytes] = field(default_factory=dict)
  url: str = ""
  requests: list[tuple[str, str]] = field(default_factory=list)
  """(path, the header Range) of each request."""
  headers: list[dict[str, str]] = field(default_factory=list)
  """The headers of each request."""
  breaks: dict[str, list[int]] = field(default_factory=dict)
  """By path: after how many bytes each of the next answers breaks off."""
  failures: dict[str, list[int]] = field(default_factory=dict)
  """By path: the status of each of the next answers."""
  redirects: dict[str, str] = field(default_factory=dict)
  ranges: bool = True
  lengths: bool = True
  tag: str = '"1"'


class _Handler(BaseHTTPRequestHandler):
  site: Site

  def log_message(self, format: str, *args: object) -> None:
    """Nothing is printed."""

  def do_GET(self) -> None:
    site, path = self.site, self.path
    site.requests.append((path, self.headers.get("Range", "")))
    site.headers.append(dict(self.headers.items()))
    status = site.failures[path].pop(0) if site.failures.get(path) else 200
    if path in site.redirects:
      self.send_response(302)
      self.send_header("Location", site.redirects[path])
      self.end_headers()
      return
    if path not in site.files or status != 200:
      self.send_error(404 if path not in site.files else status)
      return
    content, begin = site.files[path], 0
    asked = self.headers.get("Range", "")
    if site.ranges and asked.startswith("bytes=") and self.headers.get("If-Range") in (None, site.tag):
      begin = int(asked.removeprefix("bytes=").partition("-")[0])
    self.send_response(206 if begin else 200)
    if begin:
      self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
    if site.ranges:
      self.send_header("Accept-Ranges", "bytes")
      self.send_header("ETag", site.tag)
    if site.lengths:
      self.send_header("Content-Length", str(len(content) - begin))
    self.end_headers()
    end = site.breaks[path].pop(0) + begin if site.breaks.get(path) else len(content)
    self.wfile.write(content[begin:end])


@contextmanager
def serving(site: Site) -> Iterator[Site]:
  """Serves on a free port of the loopback interface; `site.url` says where."""
  server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site}))
  thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
  thread.start()
  site.url = f"http://127.0.0.1:{server.server_port}"
  try:
    yield site
  finally:
    server.shutdown()
    thread.join()
    server.server_close()
