"""`python -m tiny_runtime`: probes in child processes, so that not even a crash or a hang spoils the table."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

MakePlugin = Callable[..., Path]

TEMPLATE = """
import os, sys, time
from tiny_runtime import Unavailable
class BACKEND:
  api = (1, 0)
  ir = (1, 1)
  def probe(self): {probe}
  def open(self, index): raise NotImplementedError
  def compiler(self, arch): raise NotImplementedError
"""


def table(*arguments: str) -> str:
  result = subprocess.run(
    [sys.executable, "-m", "tiny_runtime", *arguments], capture_output=True, text=True, timeout=60, check=True
  )
  assert result.stderr == ""
  return result.stdout


def row(text: str, name: str) -> str:
  """The row of a device and the lines under it, as one line."""
  lines = text.splitlines()
  start = next(n for n, line in enumerate(lines) if line[2:].startswith(name + " "))
  end = next((n for n in range(start + 1, len(lines)) if not lines[n].startswith("      ")), len(lines))
  return " ".join(" ".join(lines[start:end]).split())


def test_table(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-a", "READY_A", TEMPLATE.format(probe="return ['gfx942', 'gfx942']"))
  make_plugin("tiny-runtime-b", "ABSENT", TEMPLATE.format(probe="return Unavailable('no card', 'Buy one')"))
  make_plugin("tiny-runtime-c", "CRASH", TEMPLATE.format(probe="print('last words', flush=True); os.abort()"))
  make_plugin("tiny-runtime-d", "NOISY", TEMPLATE.format(probe="print('x' * 100000); return ['ok']"))
  make_plugin("tiny-runtime-e", "QUITS", TEMPLATE.format(probe="os._exit(7)"))
  make_plugin("tiny-runtime-f", "IMPORT", "import os\nos.abort()")
  make_plugin("tiny-runtime-g", "OLD", "", group="tiny_runtime.backends.v0")
  text = table()
  assert row(text, "READY_A") == "✓ READY_A ready 2 × gfx942 tiny-runtime-a 1.2.3"
  assert row(text, "ABSENT") == "– ABSENT unavailable – tiny-runtime-b 1.2.3 why no card do Buy one"
  assert "broken" in row(text, "CRASH") and "was ended by SIGABRT" in row(text, "CRASH")
  assert row(text, "NOISY").startswith("✓ NOISY ready ok")
  assert "ended the process with status 7" in row(text, "QUITS")
  assert "SIGABRT" in row(text, "IMPORT")
  assert "incompatible" in row(text, "OLD") and "pip install --upgrade tiny-runtime-g" in row(text, "OLD")
  assert row(text, "REF").startswith("✓ REF ready")
  assert max(map(len, text.splitlines())) <= 120
  assert "last words" not in text and "last words" in table("--verbose")


def test_hanging_probe_is_ended_with_its_children(make_plugin: MakePlugin, tmp_path: Path) -> None:
  alive = tmp_path / "alive"
  hang = f"os.fork(); [(open({str(alive)!r}, 'a').write('x'), time.sleep(0.05)) for _ in range(2000)]"
  make_plugin("tiny-runtime-hang", "HANG", TEMPLATE.format(probe=hang))
  start = time.monotonic()
  text = table("--timeout", "8")  # in which the others have answered, also on a busy machine
  assert time.monotonic() - start < 60
  assert "did not finish in time" in row(text, "HANG")
  assert row(text, "REF").startswith("✓ REF ready")
  size = alive.stat().st_size
  time.sleep(0.5)
  assert alive.stat().st_size == size > 0
