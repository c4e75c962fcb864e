"""Releases of the packages of this repository: `hatch run release-check`, `hatch run test`, and what CI asks.

release.py check [PACKAGE …]       may these be released? All, if none is named
release.py test [ARGUMENTS …]      every test once; with arguments, pytest with them
release.py ci                      the same, the demo, and tests in other environments: what `.ci/run` ends with
release.py affected REVISION       what to check after a change, as lines for $GITHUB_OUTPUT
release.py tag tiny-uop-v1.2.3     what a tag releases, as lines for $GITHUB_OUTPUT; fails if it is not that version
release.py keep PACKAGE            keep the wheel in dist/ for the tests of later versions of its siblings
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from releasing.affected import affected, changed_since, together
from releasing.packages import ROOT, load
from releasing.sessions import Session, at_once, longest_first, run_all

PYTEST = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-q",
          "-n", "2", "--dist", "worksteal"]  # fmt: skip
HERE = [sys.executable, str(Path(__file__).resolve())]
LONGEST = (
  "integration",
  "oracle",
  "tiny-tensor",
  "tiny-codegen",
  "tiny-llm",
  "tiny-runtime",
  "tiny-dist",
  "tiny-uop",
  "tiny-runtime-cpu",
  "openmpi",
  "opencl",
  "tiny-onnx",
  "docs",
  "tiny-runtime-nv",
  "tiny-asm-amd",
  "tiny-viz",
  "tiny-sched",
  "tiny-runtime-amd",
)
"""Sessions of tests that take long, the longest first: the last to start should not be the last to end by much."""


def check(names: list[str], python: str, options: list[str], built: bool) -> int:
  """May these packages be released? All, if none is named. The number that may not."""
  from releasing.check import check_all  # the other commands run where only `packaging` is installed

  packages = load()
  unknown = [name for name in names if name not in packages]
  if unknown:
    raise SystemExit(f"no package here is called {', '.join(unknown)}; there are {', '.join(packages)}")
  return check_all(names or list(packages), packages, ROOT / "dist", options, python, built)


def build() -> int:
  """Wheels and source distributions of all packages, into dist/."""
  from releasing.check import build_all

  packages = load()
  build_all(list(packages), packages, ROOT / "dist")
  return 0


def test(arguments: list[str]) -> int:
  """Every test once, those of a package where only its wheel and what that declares are installed, those of several
  packages in the environment of development. With arguments: pytest with them, in that environment."""
  if arguments:
    return subprocess.run([*PYTEST, *arguments]).returncode
  return run_tests([])


def ci() -> int:
  """Types, every test, and what has environments of its own. The demo is tested as `hatch run demo`."""
  hatch = os.environ.setdefault("HATCH", "hatch")
  workers = {"TEST_WORKERS": str(at_once()[1] if at_once()[1] > 1 else 0)}
  return run_tests(
    [
      Session("types", [hatch, "run", "types"], vital=True),
      *(Session(name, [hatch, "run", f"{name}:test"], variables=workers) for name in ("oracle", "opencl", "openmpi")),
      Session("docs", [hatch, "run", "docs:build"]),
    ]
  )


def run_tests(others: list[Session]) -> int:
  """Tests of all packages, and these, as many at once as there are processors; how many of them failed."""
  count, workers = at_once()
  option = f"-n{workers if workers > 1 else 0}"  # 0: no other process, which would collect everything again
  tests = [Session("build", [*HERE, "build"])]
  tests += [Session(name, [*HERE, "check", "--built", f"--pytest={option}", name], ("build",)) for name in load()]
  integration = [*PYTEST, option, str(ROOT / "integration" / "tests")]
  tests.append(Session("integration", integration, ("build",), {"TINY_WHEELS": str(ROOT / "dist")}))
  sessions = {session.name: session for session in [*others, *tests]}
  first = ("types", "build", *LONGEST)
  failed = run_all([sessions[name] for name in longest_first(list(sessions), first)], count)
  print(f"\n{'failed: ' + ', '.join(failed) if failed else 'everything passed'}", flush=True)
  return len(failed)


def after_change(revision: str) -> None:
  """Print what is to be checked after what was committed since `revision`."""
  changed = changed_since(revision)
  print(f"packages={json.dumps(affected(changed, load()))}")
  print(f"together={json.dumps(together(changed))}")


def of_tag(tag: str) -> None:
  """Print the package and version of a tag. Exits with a message if the package has another version."""
  name, _, version = tag.rpartition("-v")
  packages = load()
  if name not in packages:
    raise SystemExit(f"the tag {tag!r} is not PACKAGE-vVERSION; packages are {', '.join(packages)}")
  if packages[name].version != version:
    raise SystemExit(f"the tag {tag!r} is of version {version}, but {name} has version {packages[name].version}")
  print(f"package={name}\nversion={version}")


def keep(name: str) -> None:
  """Keep the wheel in dist/ for checks of what is to come, after it was published."""
  from releasing.kept import keep as keep_wheel

  print(keep_wheel(load()[name], ROOT / "dist"))


def main() -> int:
  if sys.argv[1:2] == ["test"]:  # whose arguments are pytest's
    return min(test(sys.argv[2:]), 1)
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  commands = parser.add_subparsers(dest="command", required=True)
  checking = commands.add_parser("check", description=check.__doc__)
  checking.add_argument("packages", nargs="*", metavar="PACKAGE")
  checking.add_argument(
    "--python", default=sys.executable, help="a version or a path, as uv takes it; default: this one"
  )
  checking.add_argument("--pytest", action="append", default=[], metavar="OPTION", help="an option for the tests")
  checking.add_argument("--built", action="store_true", help="take what is in dist/; default: build it")
  commands.add_parser("build", description=build.__doc__)
  commands.add_parser("ci", description=ci.__doc__)
  commands.add_parser("affected", description=after_change.__doc__).add_argument("revision")
  commands.add_parser("tag", description=of_tag.__doc__).add_argument("tag")
  commands.add_parser("keep", description=keep.__doc__).add_argument("package", choices=list(load()))
  given = parser.parse_args()
  if given.command == "check":
    return min(check(given.packages, given.python, given.pytest, given.built), 1)
  if given.command in ("build", "ci"):
    return min({"build": build, "ci": ci}[given.command](), 1)
  if given.command == "affected":
    after_change(given.revision)
  elif given.command == "tag":
    of_tag(given.tag)
  elif given.command == "keep":
    keep(given.package)
  return 0


if __name__ == "__main__":
  sys.exit(main())
