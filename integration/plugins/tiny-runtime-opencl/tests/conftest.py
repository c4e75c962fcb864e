"""Tests neither see nor leave anything in the user's cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_uop import Context


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  monkeypatch.setenv("TINY_CACHE", str(tmp_path / "cache"))
  with Context(TINY_CACHE=str(tmp_path / "cache")):
    yield
