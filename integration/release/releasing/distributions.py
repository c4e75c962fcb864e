"""A package's wheel and source distribution: building them, and what is in them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from zipfile import ZipFile

from releasing.packages import Package


@dataclass(frozen=True)
class Built:
  """The two files of a release."""

  package: Package
  wheel: Path
  sdist: Path

  @cached_property
  def wheel_files(self) -> dict[str, bytes]:
    """Path in the wheel → contents."""
    with ZipFile(self.wheel) as archive:
      return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}

  @cached_property
  def sdist_files(self) -> dict[str, bytes]:
    """Path in the source distribution, without its first folder → contents."""
    files: dict[str, bytes] = {}
    with tarfile.open(self.sdist) as archive:
      for member in archive:
        if member.isfile() and (stream := archive.extractfile(member)) is not None:
          files[member.name.partition("/")[2]] = stream.read()
    return files

  @property
  def info(self) -> str:
    """The folder of metadata in the wheel."""
    return f"{self.package.module}-{self.package.version}.dist-info"

  @cached_property
  def metadata(self) -> bytes:
    return self.wheel_files[f"{self.info}/METADATA"]

  def modules(self) -> list[str]:
    """Every module in the wheel, as `import` takes it."""
    paths = [name.removesuffix(".py") for name in self.wheel_files if name.endswith(".py")]
    return sorted(path.removesuffix("/__init__").replace("/", ".") for path in paths)


def build(package: Package, dist: Path) -> Built:
  """Build the source distribution, and from that the wheel, into `dist`. What it had of this package goes."""
  dist.mkdir(parents=True, exist_ok=True)
  for old in dist.glob(f"{package.module}-*"):
    old.unlink()
  command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(package.folder)]
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    raise RuntimeError(f"{package.name} cannot be built:\n{done.stdout}{done.stderr}")
  return files_of(package, dist)


def files_of(package: Package, dist: Path) -> Built:
  """Where `build` puts the two files."""
  stem = f"{package.module}-{package.version}"
  return Built(package, dist / f"{stem}-py3-none-any.whl", dist / f"{stem}.tar.gz")
