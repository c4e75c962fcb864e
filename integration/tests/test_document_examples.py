"""Every example in READMEs and on the site's pages is run, and prints what the page says. See `documents.examples`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from documents.examples import Wrong, examples_of, missing, run, update
from documents.repository import ROOT, documents

PAGES = [path for path in documents() if examples_of(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples(page: Path, tmp_path: Path) -> None:
  if absent := missing(page.read_text(encoding="utf-8")):
    pytest.skip(f"needs {', '.join(absent)}")
  try:
    (update if os.environ.get("UPDATE_GOLDEN") == "1" else run)(page, tmp_path)
  except Wrong as wrong:
    pytest.fail(str(wrong), pytrace=False)
