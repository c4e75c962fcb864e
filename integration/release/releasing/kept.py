"""Wheels that were published, kept so that what is new can be tried with them: `integration/release/kept/`."""

from __future__ import annotations

import shutil
from pathlib import Path

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from releasing.packages import ROOT, Package

KEPT = ROOT / "integration" / "release" / "kept"


def version_of(wheel: Path) -> Version:
  """The version in the name of a wheel."""
  return parse_wheel_filename(wheel.name)[1]


def kept(package: Package, folder: Path = KEPT) -> list[Path]:
  """The wheels of a package that were kept, oldest first."""
  return sorted(folder.glob(f"{package.module}-*.whl"), key=version_of)


def previous_minor(package: Package, folder: Path = KEPT) -> Path | None:
  """The newest wheel of the minor version before the one that the package has now, if one was kept."""
  now = Version(package.version).release[:2]
  older = [wheel for wheel in kept(package, folder) if version_of(wheel).release[:2] < now]
  return older[-1] if older else None


def keep(package: Package, dist: Path, folder: Path = KEPT) -> Path:
  """Keep the wheel that `dist` has of a package, in place of others of the same minor version; where it is now.

  Raises FileNotFoundError if `dist` has none of this version.
  """
  wheel = dist / f"{package.module}-{package.version}-py3-none-any.whl"
  if not wheel.exists():
    raise FileNotFoundError(f"{wheel} does not exist. First: hatch run release-check {package.name}")
  minor = Version(package.version).release[:2]
  for old in [wheel for wheel in kept(package, folder) if version_of(wheel).release[:2] == minor]:
    old.unlink()
  folder.mkdir(parents=True, exist_ok=True)
  return Path(shutil.copy(wheel, folder))
