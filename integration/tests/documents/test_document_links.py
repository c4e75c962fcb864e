"""Links in every Markdown file of the repository lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents.links import broken, problem
from documents.markdown import anchors, blocks, links
from documents.repository import ROOT, documents
from releasing.metadata import LINK


def test_links_lead_somewhere() -> None:
  assert len(documents()) > 15
  assert not (found := [line for path in documents() for line in broken(path)]), "\n".join(found)


@pytest.mark.parametrize("readme", sorted(ROOT.glob("packages/*/README.md")), ids=lambda path: path.parent.name)
def test_readmes_of_packages_link_to_what_pypi_has(readme: Path) -> None:
  """The check of a release says the same, later."""
  nowhere = [target for target in LINK.findall(readme.read_text()) if not target.startswith(("https://", "#"))]
  assert not nowhere, f"{readme}: links lead nowhere on PyPI: {nowhere}; expected https://… or #…"


@pytest.mark.parametrize(
  ("target", "what"),
  [
    ("CONTRIBUTING.md", ""),
    ("CONTRIBUTING.md#releasing", ""),
    ("packages/tiny-uop#the-trace-file", ""),
    ("#here", ""),
    ("https://pypi.org/project/tiny-uop/#the-trace-file", ""),
    ("https://example.org/anything", ""),
    ("CONTRIBUTE.md", "no such file"),
    ("CONTRIBUTING.md#releases", "no heading"),
    ("#there", "no heading"),
    ("../elsewhere", "no such file"),
    ("https://pypi.org/project/tiny-uops/", "no package"),
    ("http://example.org", "expected https"),
  ],
)
def test_what_is_wrong_with_a_link(target: str, what: str) -> None:
  said = problem(ROOT / "README.md", "# A title\n\n## Here\n", target)
  assert what in said and bool(said) is bool(what)


def test_markdown_is_read_as_people_see_it() -> None:
  text = "# `A` [b](c.md), d!\n## Twice\n## Twice\n```python x.py\n# no heading [no](link)\n```\n"
  text += "`[no](code)` [yes](a_(b).md)\n[over two\nlines](d.md) [no\n\nlink](e.md)\n"
  assert anchors(text) == {"a-b-d", "twice", "twice-1"}
  assert links(text) == [(1, "c.md"), (7, "a_(b).md"), (8, "d.md")]
  (block,) = blocks(text)
  assert (block.language, block.words, block.line, block.end) == ("python", ("x.py",), 4, 6)
  with pytest.raises(ValueError, match="line 1: .*never closed"):
    blocks("```\nno end")


def test_documents_are_all_of_them() -> None:
  names = {path.relative_to(ROOT).as_posix() for path in documents()}
  assert {"README.md", "CONTRIBUTING.md", "packages/tiny-uop/README.md", "packages/tiny-uop/CHANGELOG.md"} <= names
  assert all(isinstance(path, Path) for path in documents())
