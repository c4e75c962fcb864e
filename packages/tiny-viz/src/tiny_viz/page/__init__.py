"""The page that the browser shows: one file of HTML with its style, its script and, if it is to work alone, its data.

The page loads nothing, from nowhere: its policy allows the script and the style that stand in it, by their hashes, and
requests to the server that it came from.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiny_viz.errors import TraceError

if TYPE_CHECKING:
  from tiny_viz.answers import Answers

SCRIPTS = (
  "text.js", "data.js", "table.js", "records.js", "timeline.js", "layers.js", "graph.js", "compiler.js", "rules.js",
  "compare.js", "counters.js", "main.js",
)  # fmt: skip
"""In order: each is a function of its own, that sees what those before it give."""
BUNDLE = 1 << 19
"""Characters of data that are compressed together: similar answers share what they have in common."""
LIMIT = 12_000_000
"""Bytes of data in a file that works alone."""
MOST = 10
"""Kernels, and schedules, of which such a file has passes, graphs and rewrites."""


def script() -> str:
  """All of the script."""
  return '"use strict";\n' + "\n".join([_read(name) for name in SCRIPTS])


def page(data: str = "") -> str:
  """The page. `data` is what `embedded` gives, for a page that works without a server."""
  style, code = _read("style.css"), script()
  connect = "connect-src 'self'" if not data else "connect-src 'none'"
  policy = (
    f"default-src 'none'; {connect}; img-src data:; base-uri 'none'; form-action 'none'; "
    f"script-src '{_hash(code)}'; style-src '{_hash(style)}'"
  )
  text = _read("page.html")
  for name, value in (("POLICY", html.escape(policy)), ("STYLE", style), ("SCRIPT", code), ("DATA", data)):
    text = text.replace(f"<!--{name}-->", value, 1)
  return text


def embedded(answers: Answers, most: int | None = MOST, limit: int = LIMIT) -> str:
  """Answers as text, what matters most first, up to `limit` bytes, with details of the `most` slowest kernels:
  `{"bundles": [base64 of gzip, ...], "places": {path: number of its bundle}, "complete": whether nothing is left out}`.
  """
  bundles: list[str] = []
  places: dict[str, int] = {}
  size, complete = 0, most is None or len(answers.units) <= most
  for bundle in _bundles(_answered(answers, most)):
    packed = base64.b64encode(gzip.compress(json.dumps(bundle, separators=(",", ":")).encode(), 6, mtime=0)).decode()
    if size + len(packed) > limit and bundles:
      complete = False
      break
    size += len(packed)
    places |= dict.fromkeys(bundle, len(bundles))
    bundles.append(packed)
  return json.dumps({"bundles": bundles, "places": places, "complete": complete}, separators=(",", ":"))


def write_page(
  answers: Answers, path: str | os.PathLike[str], most: int | None = MOST, limit: int = LIMIT
) -> int:  # fmt: skip
  """Write the page with its data to a file that works alone; `most` and `limit` as above. Gives its size in bytes;
  OSError where it cannot be written."""
  data = page(embedded(answers, most, limit)).encode()
  Path(path).write_bytes(data)
  return len(data)


def _answered(answers: Answers, most: int | None) -> Iterator[tuple[str, Any]]:
  for path in answers.paths(most):
    try:
      yield path, answers.get(path)
    except TraceError as error:
      yield path, {"error": str(error)}


def _bundles(answers: Iterable[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
  bundle: dict[str, Any] = {}
  size = 0
  for path, answer in answers:
    bundle[path] = answer
    size += len(json.dumps(answer))
    if size > BUNDLE:
      yield bundle
      bundle, size = {}, 0
  if bundle:
    yield bundle


def _read(name: str) -> str:
  return (Path(__file__).parent / name).read_text("utf-8")


def _hash(text: str) -> str:
  return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
