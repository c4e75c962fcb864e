"""Releases of the packages of this repository. `hatch run release-check [PACKAGE …]`, `hatch run test [ARGUMENTS]`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from releasing.check import check_all
from releasing.packages import ROOT, load

PYTEST = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-q",
          "-n", "2", "--dist", "worksteal"]  # fmt: skip


def check(names: list[str], options: list[str]) -> int:
  """`check [PACKAGE …] [-- OPTIONS]`: may these packages be released? All, if none is named."""
  packages = load()
  unknown = [name for name in names if name not in packages]
  if unknown:
    raise SystemExit(f"no package here is called {', '.join(unknown)}; there are {', '.join(packages)}")
  return check_all(names or list(packages), packages, ROOT / "dist", options)


def test(arguments: list[str]) -> int:
  """`test`: every test once, those of a package where only its wheel and what that declares are installed, those of
  several packages in the environment of development. With arguments: pytest with them, in that environment."""
  if arguments:
    return subprocess.run([*PYTEST, *arguments]).returncode
  failed = check([], [])
  environment = os.environ | {"TINY_WHEELS": str(ROOT / "dist")}
  print("\n--- integration", flush=True)
  return failed + subprocess.run([*PYTEST, str(ROOT / "integration" / "tests")], env=environment).returncode


def main() -> int:
  if sys.argv[1:2] == ["test"]:  # whose arguments are pytest's
    return min(test(sys.argv[2:]), 1)
  parser = argparse.ArgumentParser(description=__doc__)
  commands = parser.add_subparsers(dest="command", required=True)
  commands.add_parser("test", help="the tests of all packages and of integration/, each once")
  checking = commands.add_parser("check", help="whether packages may be released", description=check.__doc__)
  checking.add_argument("packages", nargs="*", metavar="PACKAGE")
  checking.add_argument("--pytest", nargs="*", default=[], metavar="OPTION", help="options for the tests")
  given = parser.parse_args()
  return min(check(given.packages, given.pytest), 1)


if __name__ == "__main__":
  sys.exit(main())
