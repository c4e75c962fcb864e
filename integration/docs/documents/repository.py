"""Where things are in this repository."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
_ROW = re.compile(r"^\| \[([\w-]+)\]\(packages/\1\) \|", re.MULTILINE)
_ORDER = _ROW.findall((ROOT / "README.md").read_text("utf-8"))
PACKAGES = sorted(
  (path.parent for path in (ROOT / "packages").glob("*/pyproject.toml")),
  key=lambda folder: (_ORDER.index(folder.name) if folder.name in _ORDER else len(_ORDER), folder.name),
)
"""In the order of the pipeline, which is that of the README's table."""
PLUGINS = sorted(path.parent for path in (ROOT / "integration" / "plugins").glob("*/pyproject.toml"))


def package_of(path: Path) -> str:
  """Name of the package that a file belongs to."""
  return next(folder.name for folder in (*PACKAGES, *PLUGINS) if path.is_relative_to(folder))


def documents() -> list[Path]:
  """Every Markdown file that people read: the site's pages, READMEs, changelogs, CONTRIBUTING."""
  folders = (ROOT, ROOT / "integration", *PACKAGES, *PLUGINS)
  beside = [path for folder in folders for path in folder.glob("*.md")]
  inside = [path for folder in (*PACKAGES, *PLUGINS) for path in (folder / "src").rglob("*.md")]
  return sorted({*DOCS.rglob("*.md"), *beside, *inside})
