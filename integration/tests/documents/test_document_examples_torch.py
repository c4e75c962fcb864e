"""The examples of the pages that need PyTorch, in the environment that has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents.repository import ROOT
from test_document_examples import TEXTS, TORCH, check

pytest.importorskip("torch")
PAGES = [path for path, text in TEXTS.items() if TORCH in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_that_need_torch(page: Path, tmp_path: Path) -> None:
  check(page, tmp_path)
