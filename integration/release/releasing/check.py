"""Whether a package may be released: built, looked at, installed in an empty environment, imported, tested there."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from releasing.distributions import Built, build, files_of
from releasing.environment import Environment, clean_variables, without_compilers
from releasing.kept import KEPT, previous_minor, version_of
from releasing.metadata import problems
from releasing.packages import ROOT, Package, siblings

WITH_COMPILER = ("tiny-codegen", "tiny-runtime-opencl")
"""Packages whose tests run programs in C, or with a driver that needs a linker, as PoCL does. The tests of the others
run where there is no C compiler, as none is needed."""

IMPORT_EACH = """
import importlib, json, sys, traceback
failed = {}
for name in json.loads(sys.argv[1]):
  try:
    importlib.import_module(name)
  except BaseException as error:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    failed[name] = (missing, "".join(traceback.format_exception(error)))
print(json.dumps(failed))
"""


def check_all(
  names: Sequence[str], packages: Mapping[str, Package], dist: Path, options: Sequence[str],
  python: str = sys.executable, already_built: bool = False,
) -> int:  # fmt: skip
  """Check these packages for release, with everything of ours that they need from wheels; the number that may not be.

  `options` go to pytest, which runs with `python`. Wheels and source distributions stay in `dist`, where they are taken
  from if `already_built`.
  """
  needed = siblings(names, packages, "test")
  if already_built:
    built = {name: files_of(packages[name], dist) for name in needed}
  else:
    built = build_all(needed, packages, dist)
  failed: dict[str, list[str]] = {}
  with tempfile.TemporaryDirectory(prefix="tiny-release-") as folder:
    work = Path(folder)
    # links, which Windows does not let everyone make
    without = without_compilers(work / "bin", os.environ["PATH"]) if os.name == "posix" else ""
    for name in names:
      start = time.monotonic()
      print(f"\n--- {name} {packages[name].version}", flush=True)
      variables = clean_variables(work / name)
      if name not in WITH_COMPILER and without:
        variables |= {"PATH": without, "CC": os.devnull}
      here = partial(new_environment, work / name, variables, python)
      wrong = problems(built[name], packages) + installed(name, built, packages, here("itself"), options)
      wrong += with_previous_siblings(name, built, packages, here, options)
      print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
      print(
        f"--- {name}: {'MAY NOT be released' if wrong else 'passed'} ({time.monotonic() - start:.0f} s)", flush=True
      )
      if wrong:
        failed[name] = wrong
  for name, wrong in failed.items():
    print(f"\n{name} may not be released:", *wrong, sep="\n  ")
  return len(failed)


def build_all(names: Sequence[str], packages: Mapping[str, Package], dist: Path) -> dict[str, Built]:
  """The files of each of these packages, made anew in `dist`."""
  start = time.monotonic()
  with ThreadPoolExecutor(2) as pool:
    built = dict(zip(names, pool.map(lambda name: build(packages[name], dist), names)))
  print(f"built {len(built)} packages into {dist} in {time.monotonic() - start:.1f} s", flush=True)
  return built


def new_environment(folder: Path, variables: Mapping[str, str], python: str, name: str) -> Environment:
  """An empty environment, in a folder of its own."""
  return Environment(folder / name / "env", variables, python)


def installed(
  name: str, built: Mapping[str, Built], packages: Mapping[str, Package], environment: Environment,
  options: Sequence[str],
) -> list[str]:  # fmt: skip
  """What goes wrong with a package that is installed from its wheel, away from the repository."""
  try:
    environment.install(*(str(built[n].wheel) for n in siblings([name], packages)))
    wrong = cannot_import(environment, built[name], may_lack=provided_by_extras(packages[name]))
    if wrong:
      return wrong
    install_for_tests(environment, built[name], {n: built[n].wheel for n in siblings([name], packages, "test")})
  except RuntimeError as error:
    return [str(error)]
  # what another extra brings is there now, if tests need it; all else was imported
  again = cannot_import(environment, built[name]) if provided_by_extras(packages[name]) else []
  return [*again, *failed_tests(environment, built[name], options)]


def with_previous_siblings(
  name: str, built: Mapping[str, Built], packages: Mapping[str, Package], environment: Callable[[str], Environment],
  options: Sequence[str], folder: Path = KEPT,
) -> list[str]:  # fmt: skip
  """What goes wrong with a package beside the last minor of a sibling, where that was kept and its range allows it.

  `environment(sibling)` makes a new one. Tests marked as slow are left out.
  """
  found: list[str] = []
  for requirement in packages[name].requirements():
    wheel = previous_minor(packages[requirement.name], folder) if requirement.name in packages else None
    if wheel is None or version_of(wheel) not in requirement.specifier:
      continue
    here = environment(requirement.name)
    wheels = {n: built[n].wheel for n in siblings([name], packages, "test")} | {requirement.name: wheel}
    print(f"with {requirement.name} {version_of(wheel)}:", flush=True)
    try:
      install_for_tests(here, built[name], wheels)
    except RuntimeError as error:  # another sibling needs a newer one, so nobody gets this combination
      print(f"cannot be installed together: {error}", flush=True)
      continue
    wrong = [
      *cannot_import(here, built[name]),
      *failed_tests(here, built[name], ["-m", "not slow and not nightly", *options]),
    ]
    found += [f"with {requirement.name} {version_of(wheel)}, which {requirement} allows: {text}" for text in wrong]
  return found


def install_for_tests(environment: Environment, built: Built, wheels: Mapping[str, Path]) -> None:
  """Install a package with its extra for tests, and these of ours. Raises RuntimeError if that cannot be."""
  others = [str(wheel) for name, wheel in wheels.items() if name != built.package.name]
  environment.install(f"{built.package.name}[test] @ {built.wheel.as_uri()}", *others, "pytest-xdist>=3.5")


def failed_tests(environment: Environment, built: Built, options: Sequence[str]) -> list[str]:
  """Runs the tests that are in the source distribution; what to say if they fail."""
  source = unpacked(built, environment.folder.parent)
  pytest = ["-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(source), "-p", "no:cacheprovider"]
  if any(requirement.name == "hypothesis" for requirement in built.package.requirements("test")):
    pytest.append(
      "--hypothesis-profile=ci"
    )  # no deadlines, which a busy machine misses; and the same examples each time
  pytest += ["-q", "-n", "2", "--dist", "worksteal", *options, str(source / "tests")]
  status = environment.show(*pytest, cwd=source)
  return [f"its tests failed: pytest ended with status {status}"] if status else []


def provided_by_extras(package: Package) -> list[str]:
  """Names of what its extras bring, other than the one for tests: a part of it may need them."""
  extras = [extra for extra in package.extras if extra != "test"]
  return [requirement.name for requirement in package.requirements(*extras)]


def cannot_import(environment: Environment, built: Built, may_lack: Sequence[str] = ()) -> list[str]:
  """Modules of a wheel that cannot be imported, with why; for want of something in `may_lack` they need not."""
  done = environment.run("-c", IMPORT_EACH, json.dumps(built.modules()))
  if done.returncode:
    return [f"importing the modules of {built.package.name} ended the process: {done.stderr.strip()}"]
  failed: dict[str, tuple[str | None, str]] = json.loads(done.stdout.splitlines()[-1])
  return [
    f"import {module} fails in an environment with what {built.package.name} declares:\n{text}"
    for module, (missing, text) in failed.items()
    if missing is None or not any(name.startswith(missing) for name in may_lack)
  ]


def unpacked(built: Built, work: Path) -> Path:
  """The folder of the unpacked source distribution, without `src`: what is tested is what is installed."""
  with tarfile.open(built.sdist) as archive:
    archive.extractall(work, [m for m in archive if "/src/" not in m.name], filter="data")
  return work / built.sdist.name.removesuffix(".tar.gz")
