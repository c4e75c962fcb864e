"""Puts together what the site is made of: `docs/`, the READMEs of packages, pages made of sources, and a configuration.

The result is a folder of plain Markdown and `mkdocs.yml`, which Zensical builds, and Material for MkDocs as well: see
`docs.py`. Nothing of it is kept in the repository.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from posixpath import relpath

from documents import reference, settings
from documents.examples import WORDS
from documents.links import PYPI
from documents.markdown import LINK, blocks, prose
from documents.operations import operation_table
from documents.package_table import package_table
from documents.repository import DOCS, PACKAGES, PLUGINS, ROOT

HIDDEN = re.compile(r"^ *<!-- (?:first|not run|needs): .*? -->\n", re.MULTILINE)
INSERT = re.compile(r"^<!-- insert: (.*?) -->$", re.MULTILINE)
ITEM = re.compile(r"^( *)(?:[*+-]|\d+\.) +")
INSERTS: dict[str, Callable[[], str]] = {
  "settings": lambda: settings.table(item for item in settings.declared() if item.kind),
  "variables": lambda: settings.table(item for item in settings.declared() if not item.kind),
  "operations": operation_table,
  "packages": package_table,
}


def pages() -> dict[Path, str]:
  """Markdown file of the repository → its place in the site."""
  found = {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
  found |= {folder / "README.md": f"packages/{folder.name}.md" for folder in (*PACKAGES, *PLUGINS)}
  found[next(ROOT.glob("packages/tiny-runtime/src/*/conformance/README.md"))] = "packages/conformance.md"
  return found | {ROOT / "CONTRIBUTING.md": "contributing.md"}


def assemble(target: Path, repository: str = "") -> None:
  """Write the pages into `target/pages` and the configuration beside them. `repository` is where its files can be seen
  on the web; where it is not known, links to what is no page become plain text."""
  shutil.rmtree(target / "pages", ignore_errors=True)
  shutil.copytree(DOCS, target / "pages", ignore=shutil.ignore_patterns("*.md", "mkdocs.yml"))
  for source, place in pages().items():
    _write(target / "pages" / place, page(source, repository))
  for place, text in reference.pages().items():
    _write(target / "pages" / place, text)
  sources = ", ".join(str(folder / "src") for folder in PACKAGES)
  configuration = (DOCS / "mkdocs.yml").read_text("utf-8").replace("SOURCES", sources)
  _write(target / "mkdocs.yml", configuration.replace("\nNAVIGATION", f"\n{navigation()}"))


def page(source: Path, repository: str = "") -> str:
  """A file of the repository as a page of the site."""
  text = source.read_text(encoding="utf-8")
  text = _blocks(_links(text, source, repository))
  text = INSERT.sub(lambda name: INSERTS[name[1]](), HIDDEN.sub("", text))
  return _lists(text)


def navigation() -> str:
  """The packages and the reference, as they are found, in the form of the configuration."""
  packages = [f"    - {folder.name}: packages/{folder.name}.md" for folder in (*PACKAGES, *PLUGINS)]
  modules = [f"    - {Path(place).stem}: {place}" for place in reference.pages()]
  modules[0] = "    - Index: reference/index.md"
  return "\n".join(["  - Packages:", "    - Overview: packages/index.md", *packages,
                    "    - Conformance kit: packages/conformance.md", "  - API:", *modules])  # fmt: skip


def _write(path: Path, text: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding="utf-8")


def _links(text: str, source: Path, repository: str) -> str:
  """Links to files of the repository lead to their pages."""
  for link in reversed(list(LINK.finditer(prose(text)))):
    start, end = link.span()
    text = text[:start] + _link(text[start:end], link["target"], source, repository) + text[end:]
  return text


def _link(link: str, target: str, source: Path, repository: str) -> str:
  places, here = pages(), pages()[source]
  place, _, anchor = target.partition("#")
  anchor = f"#{anchor}" if anchor else ""
  if place.startswith(PYPI + "tiny-"):
    goal = ROOT / "packages" / place.removeprefix(PYPI).strip("/")
  elif not place or "://" in place or place.startswith("mailto:"):
    return link
  else:
    goal = (source.parent / place).resolve()
  if goal.is_dir() and goal / "README.md" in places:
    goal = goal / "README.md"
  if goal in places:
    return link.replace(f"({target})", f"({relpath(places[goal], Path(here).parent.as_posix())}{anchor})")
  if goal.is_relative_to(DOCS):
    return link  # a picture, which is copied
  if repository:
    return link.replace(f"({target})", f"({repository}/blob/main/{goal.relative_to(ROOT).as_posix()}{anchor})")
  return link[1 : link.rindex("](")]


def _blocks(text: str) -> str:
  """Fences as Markdown with superfences has them: files get their name as a title, outputs a class of their own."""
  lines = text.splitlines(keepends=True)
  for block in blocks(text):
    indent, words = lines[block.line - 1].split("`")[0], set(block.words)
    if words & WORDS:
      kind = "error" if "error" in words else "output"
      lines[block.line - 1] = f"{indent}```{{ .{block.language} .{kind} }}\n"
    elif words:
      lines[block.line - 1] = f'{indent}```{{ .{block.language} title="{block.words[0]}" }}\n'
  return "".join(lines)


def _lists(text: str) -> str:
  """Lists as Python-Markdown wants them: a blank line before the first item, and four blanks for each level where
  GitHub takes two or three."""
  inside, found, fenced = False, list[str](), {n for b in blocks(text) for n in range(b.line, b.end + 1)}
  for number, line in enumerate(text.splitlines(keepends=True), 1):
    item, blank = ITEM.match(line), not line.strip()
    starts = item is not None and not item[1] and number not in fenced
    if starts and not inside and found and found[-1].strip() and not found[-1].startswith("#"):
      found.append("\n")
    inside = starts or (inside and (blank or line.startswith(" ")))
    indent = len(line) - len(line.lstrip(" ")) if inside else 0
    found.append(" " * (indent if indent % 2 == 0 else 1) + line)  # from 2 to 4, from 3 to 4, from 4 to 8
  return "".join(found)
