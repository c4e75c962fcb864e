"""Every example in READMEs and on the site's pages is run, and prints what the page says. See `documents.examples`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from documents.examples import Wrong, examples_of, missing, run, update
from documents.repository import ROOT, documents

TORCH = "<!-- needs: torch"  # test_document_examples_torch.py runs these pages
TEXTS = {path: path.read_text(encoding="utf-8") for path in documents()}
PAGES = [path for path, text in TEXTS.items() if TORCH not in text and examples_of(text)]


def check(page: Path, folder: Path) -> None:
  """Run a page's examples, or write what they print into it with --update-golden."""
  found = ""
  try:
    (update if os.environ.get("UPDATE_GOLDEN") == "1" else run)(page, folder)
  except Wrong as wrong:
    found = str(wrong)
  if found:
    pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples(page: Path, tmp_path: Path) -> None:
  if absent := missing(TEXTS[page]):
    pytest.skip(f"needs {', '.join(absent)}")
  check(page, tmp_path)
