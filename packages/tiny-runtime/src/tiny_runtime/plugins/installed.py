"""What is installed, as far as looking for plugins and their versions needs it.

Distributions leave a folder `NAME-VERSION.dist-info` beside their modules (PyPA, "Recording installed projects"), with
`METADATA` and `entry_points.txt`. To read these takes a millisecond; the library for it, `importlib.metadata`, takes
ten to import, most of it for the parser of mail. It is asked where a distribution could be elsewhere than in a folder
of `sys.path`: in a zip file, or known to a finder of someone else.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from typing import NamedTuple, Protocol

SUFFIXES = (".dist-info", ".egg-info")
EGG = "EGG-INFO"


class Distribution(Protocol):
  """One installed distribution; `importlib.metadata.Distribution` is one as well."""

  def read_text(self, filename: str) -> str | None:
    """One of its files; None if it is not there. Raises UnicodeDecodeError for one that is damaged."""

  def locate_file(self, path: str) -> object:
    """Where a file or folder of it would be; a string, or a path that `str` makes one."""


class Folder:
  """A distribution whose metadata are in a folder."""

  def __init__(self, path: str) -> None:
    self.path = path

  def read_text(self, filename: str) -> str | None:
    """See Distribution."""
    try:
      with open(os.path.join(self.path, filename), encoding="utf-8") as file:
        return file.read()
    except OSError:
      return None

  def locate_file(self, path: str) -> str:
    """See Distribution."""
    return os.path.join(os.path.dirname(self.path), path)


class Headers(NamedTuple):
  """The fields of `METADATA` that are needed."""

  name: str
  version: str
  requires: list[str]


def installed() -> Iterator[Distribution]:
  """Every distribution that this process can import, those that come first on `sys.path` first."""
  if all_in_folders():
    yield from (Folder(os.path.join(entry, name)) for entry in sys.path for name in folders(entry))
  else:
    from importlib.metadata import distributions

    yield from distributions()


def all_in_folders() -> bool:
  """Whether nothing but folders can hold distributions."""
  finders = [f for f in sys.meta_path if getattr(f, "find_distributions", None) is not None and f is not PathFinder]
  return not finders and not any(os.path.isfile(entry) for entry in sys.path)


def folders(entry: str) -> list[str]:
  """The names of the folders with metadata in one folder of `sys.path`."""
  try:
    return [name for name in os.listdir(entry or os.curdir) if name.endswith(SUFFIXES) or name == EGG]
  except OSError:
    return []


def headers(distribution: Distribution) -> Headers:
  """Name, version and requirements. Raises ValueError where they are not told."""
  text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
  fields: dict[str, list[str]] = {"Name": [], "Version": [], "Requires-Dist": []}
  for line in text.partition("\n\n")[0].splitlines():
    key, colon, value = line.partition(":")
    if colon and key in fields:
      fields[key].append(value.strip())
  if not fields["Name"] or not fields["Version"]:
    raise ValueError("metadata without a name or a version")
  return Headers(fields["Name"][0], fields["Version"][0], fields["Requires-Dist"])


def entries(text: str) -> Iterator[tuple[str, str, str]]:
  """(group, name, value) of each entry point in `entry_points.txt`. Raises ValueError for what is none."""
  group = ""
  for line in map(str.strip, text.splitlines()):
    if line.startswith("[") and line.endswith("]"):
      group = line[1:-1].strip()
    elif line and not line.startswith(("#", ";")):
      name, equals, value = line.partition("=")
      if not equals:
        raise ValueError(f"no entry point: {line!r}")
      yield group, name.strip(), value.strip()


def normal(name: str) -> str:
  """The one spelling of a distribution's name (PEP 503)."""
  return re.sub(r"[-_.]+", "-", name).lower()


def by_name(found: Iterable[Distribution]) -> dict[str, Distribution]:
  """The first distribution of each name, by its one spelling. Those whose metadata are damaged are left out."""
  result: dict[str, Distribution] = {}
  for distribution in found:
    if isinstance(distribution, Folder) and not distribution.path.endswith(EGG):
      name = os.path.basename(distribution.path).rpartition(".")[0].partition("-")[0]  # without opening its files
    else:
      try:
        name = headers(distribution).name
      except (ValueError, OSError):
        continue
    result.setdefault(normal(name), distribution)
  return result
