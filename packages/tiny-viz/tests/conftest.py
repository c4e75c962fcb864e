"""A trace of a small compiler."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tiny_uop.observe import tracing

sys.path.insert(0, str(Path(__file__).parent))  # helpers shared by the test files

from viz_compiler import compile_it


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
  path = tmp_path / "one.jsonl"
  with tracing(path):
    compile_it()
  return path
