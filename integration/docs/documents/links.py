"""Links in Markdown files lead somewhere: to files of the repository, and to headings in them.

Those to other sites are not followed (CI has no internet, and what they lead to is not ours), but they are https.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from documents import reference
from documents.markdown import anchors, links
from documents.repository import DOCS, ROOT

PYPI = "https://pypi.org/project/"
"""A package's README is shown on PyPI, where paths lead nowhere: it links to its siblings' pages there."""


def broken(path: Path) -> list[str]:
  """What is wrong with the links of a file, a line each."""
  text = path.read_text(encoding="utf-8")
  found = ((line, target, problem(path, text, target)) for line, target in links(text))
  return [f"{path.relative_to(ROOT)}:{line}: {target}: {what}" for line, target, what in found if what]


def problem(path: Path, text: str, target: str) -> str:
  """What is wrong with a link of the file `path`; empty if nothing is."""
  if target.startswith(PYPI):
    return to_package(target)
  if "://" in target or target.startswith("mailto:"):
    return "" if target.startswith(("https://", "mailto:")) else "expected https"
  place, _, anchor = unquote(target).partition("#")
  goal = (path.parent / place).resolve() if place else path
  if not goal.exists():
    made = goal.is_relative_to(DOCS) and goal.relative_to(DOCS).as_posix() in reference.pages()
    return "" if made else "there is no such file"
  if not goal.is_relative_to(ROOT):
    return "leads out of the repository"
  if goal.is_dir() and anchor:
    goal = goal / "README.md"
  if anchor and goal.suffix == ".md" and anchor not in anchors(text if goal == path else goal.read_text("utf-8")):
    return f"{goal.relative_to(ROOT)} has no heading for #{anchor}"
  return ""


def to_package(target: str) -> str:
  """What is wrong with a link to a page of PyPI: packages of ours are here, and their READMEs are those pages."""
  name, _, anchor = target.removeprefix(PYPI).partition("#")
  readme = ROOT / "packages" / name.strip("/") / "README.md"
  if not name.startswith("tiny-"):
    return ""
  if not readme.exists():
    return f"there is no package {name.strip('/')}"
  return "" if not anchor or anchor in anchors(readme.read_text("utf-8")) else f"its README has no heading #{anchor}"
