"""Which packages a change can affect, by the files that it touches and by what packages declare to need."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from releasing.packages import ROOT, Package, siblings

NO_PACKAGE = ("docs/", "integration/tests/", "integration/bench/", "integration/docs/", "integration/examples/")
"""Folders that no package is made of. All else outside the packages (settings, CI, the release check) affects all."""


def changed_since(revision: str, root: Path = ROOT) -> list[str]:
  """Files that differ between HEAD and where it left `revision`, as paths from the root.

  Raises RuntimeError with what git said.
  """
  command = ["git", "diff", "--name-only", "--no-renames", f"{revision}...HEAD"]
  done = subprocess.run(command, cwd=root, capture_output=True, text=True)
  if done.returncode:
    raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}. Fetch the revision first, with its history")
  return done.stdout.splitlines()


def affected(changed: Iterable[str], packages: Mapping[str, Package], root: Path = ROOT) -> list[str]:
  """Packages to check after a change of these files: those that have one, and all that need those, be it for tests."""
  touched: set[str] = set()
  folders = {f"{package.folder.relative_to(root).as_posix()}/": name for name, package in packages.items()}
  for path in changed:
    owner = next((name for folder, name in folders.items() if path.startswith(folder)), None)
    if owner is not None:
      touched.add(owner)
    elif not path.startswith(NO_PACKAGE) and not ("/" not in path and path.endswith(".md")):
      return list(packages)
  return [name for name in packages if touched & set(siblings([name], packages, *packages[name].extras))]


def together(changed: Iterable[str]) -> bool:
  """Whether the tests of several packages together are to run: for all but changes of nothing but documents."""
  return any(not path.endswith(".md") for path in changed)
