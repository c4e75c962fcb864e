"""What must be true of the two files of a release before anyone installs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from configparser import ConfigParser

import readme_renderer.markdown
from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from trove_classifiers import classifiers as known_classifiers

from releasing.distributions import Built
from releasing.packages import ROOT, Package

LINK = re.compile(r"\]\(([^)\s]+)\)")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Versions that every package says it runs on."""
CLASSIFIERS = ("Typing :: Typed", *(f"Programming Language :: Python :: {version}" for version in PYTHONS))


def problems(built: Built, packages: Mapping[str, Package]) -> list[str]:
  """What is wrong with a release, a line each that says what was expected."""
  missing = [path.name for path in (built.wheel, built.sdist) if not path.exists()]
  if missing:
    return [f"the build made no {name}; expected a wheel for every platform and a .tar.gz" for name in missing]
  found = [*_metadata(built), *_readme(built), *_licence(built), *_ranges(built.package, packages)]
  return [*found, *_changelog(built), *_entry_points(built), *_contents(built)]


def _metadata(built: Built) -> Iterator[str]:
  try:
    metadata = Metadata.from_email(built.metadata, validate=True)
  except Exception as error:  # an ExceptionGroup of what is wrong with each field
    yield from (f"METADATA: {e}" for e in getattr(error, "exceptions", (error,)))
    return
  if not metadata.summary:
    yield "pyproject.toml has no description"
  if metadata.requires_python is None or "3.11" not in metadata.requires_python or "3.10" in metadata.requires_python:
    yield f"requires-python is {metadata.requires_python}, expected >=3.11"
  given = set(metadata.classifiers or ())
  yield from (f"{name!r} is no classifier that PyPI knows" for name in sorted(given - known_classifiers))
  yield from (f"the classifier {name!r} is missing" for name in CLASSIFIERS if name not in given)
  if not any(name.endswith("/py.typed") for name in built.wheel_files):
    yield f"the wheel has no {built.package.module}/py.typed, so type checkers ignore its annotations"


def _readme(built: Built) -> Iterator[str]:
  metadata = Metadata.from_email(built.metadata, validate=False)
  text = metadata.description or ""
  if metadata.description_content_type != "text/markdown" or not text.startswith("# "):
    yield 'README.md is not the description; expected readme = "README.md" and a text that begins with its heading'
  elif readme_renderer.markdown.render(text) is None:
    yield "README.md cannot be rendered as PyPI does"
  for target in LINK.findall(text):
    if not target.startswith(("https://", "#")):
      yield f"README.md links to {target}, which leads nowhere on PyPI; expected https://… or #…"


def _licence(built: Built) -> Iterator[str]:
  metadata = Metadata.from_email(built.metadata, validate=False)
  if metadata.license_expression != "MIT":
    yield f"the licence is {metadata.license_expression!r}, expected 'MIT'"
  ours = (ROOT / "LICENSE").read_bytes()
  for what, files in (("wheel", built.wheel_files), ("sdist", built.sdist_files)):
    name = f"{built.info}/licenses/LICENSE" if what == "wheel" else "LICENSE"
    if files.get(name) != ours:
      yield f"the {what} has no copy of the repository's LICENSE at {name}"


def _ranges(package: Package, packages: Mapping[str, Package]) -> Iterator[str]:
  for requirement in package.requirements(*package.extras):
    if (sibling := packages.get(requirement.name)) is None:
      continue
    operators = {specifier.operator for specifier in requirement.specifier}
    if operators != {">=", "<"}:
      yield f"{requirement} is not a range of versions; expected {sibling.name}>=…,<…"
    elif not SpecifierSet(str(requirement.specifier)).contains(sibling.version, prereleases=True):
      yield f"{requirement} leaves out the {sibling.name} of this repository, {sibling.version}"


def _changelog(built: Built) -> Iterator[str]:
  lines = built.sdist_files.get("CHANGELOG.md", b"").decode().splitlines()
  start = f"## {built.package.version}"
  after = lines[lines.index(start) + 1 :] if start in lines else []
  entry = [line for line in after[: next((n for n, line in enumerate(after) if line.startswith("## ")), None)] if line]
  if not entry:
    yield f"CHANGELOG.md says nothing under {start!r}"


def _entry_points(built: Built) -> Iterator[str]:
  parser = ConfigParser(delimiters="=")
  parser.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser documents it: keep capitals
  parser.read_string(built.wheel_files.get(f"{built.info}/entry_points.txt", b"").decode())
  modules = built.modules()
  for group in parser.sections():
    for name, value in parser.items(group):
      if value.partition(":")[0] not in modules:
        yield f"the entry point {name} of {group} names {value}, but the wheel has no such module"


def _contents(built: Built) -> Iterator[str]:
  """The wheel is the sdist's `src`, and the sdist is the folder, with its tests."""
  module = f"{built.package.module}/"
  wheel = {name: data for name, data in built.wheel_files.items() if not name.startswith(built.info)}
  sdist = {name.removeprefix("src/"): data for name, data in built.sdist_files.items() if name.startswith("src/")}
  yield from (f"the wheel has {name}, which is not of {module}" for name in wheel if not name.startswith(module))
  for name in sorted(wheel.keys() | sdist.keys()):
    if wheel.get(name) != sdist.get(name):
      yield f"{name} is not the same in wheel and sdist"
  folder = built.package.folder
  for part in ("src", "tests"):
    for path in sorted((folder / part).rglob("*")):
      name = path.relative_to(folder).as_posix()
      if path.is_file() and "__pycache__" not in name and built.sdist_files.get(name) != path.read_bytes():
        yield f"the sdist lacks {name}, or has another text"
