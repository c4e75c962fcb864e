"""Environments that have only what is put into them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

COMPILER = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|tcc|icx|cpp|c89|c99|as|ld)(-[\d.]+)?(\.exe)?")


def clean_variables(folder: Path) -> dict[str, str]:
  """This process's variables without what leads to its Python, and with caches of its own in `folder`.

  Kernels that another build of the same version compiled are not to be found: versions are part of that cache's key,
  the contents of a wheel are not.
  """
  ours = ("PYTHON", "VIRTUAL_ENV", "HATCH", "PYTEST_CURRENT", "PYTEST_XDIST")
  return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | {"TINY_CACHE": str(folder / "kernels")}


def without_compilers(folder: Path, path: str) -> str:
  """A PATH like this one but without C compilers: `folder` gets links to all else, since /usr/bin holds both."""
  folder.mkdir(parents=True, exist_ok=True)
  for place in reversed(path.split(os.pathsep)):
    for name in os.listdir(place) if os.path.isdir(place) else ():
      link = folder / name
      if not COMPILER.fullmatch(name):
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.join(place, name))
  return str(folder)


class Environment:
  """A virtual environment in `folder`, made by uv with a Python: a version or a path, as uv takes it."""

  def __init__(self, folder: Path, variables: Mapping[str, str] | None = None, python: str = sys.executable) -> None:
    self.folder = folder
    self.variables = dict(clean_variables(folder) if variables is None else variables)
    self.python = folder / ("Scripts" if os.name == "nt" else "bin") / ("python.exe" if os.name == "nt" else "python")
    run_uv("venv", "-q", "--python", python, str(folder))

  def install(self, *what: str) -> None:
    """Install wheels (paths, with extras in brackets) and requirements. Raises RuntimeError with what uv said."""
    run_uv("pip", "install", "-q", "--python", str(self.python), *what)

  def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS`, away from the repository, its output as text."""
    command = [str(self.python), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=self.variables, cwd=cwd or self.folder)

  def show(self, *arguments: str, cwd: Path | None = None) -> int:
    """The same, its output shown as it comes; the status."""
    return subprocess.run([str(self.python), *arguments], env=self.variables, cwd=cwd or self.folder).returncode


def run_uv(*arguments: str) -> None:
  """Run uv; raises RuntimeError with what it said if it fails."""
  from uv import find_uv_bin

  kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
  done = subprocess.run([find_uv_bin(), *arguments], capture_output=True, text=True, env=kept)
  if done.returncode:
    raise RuntimeError(f"uv {' '.join(arguments)}: {done.stderr.strip()}")
