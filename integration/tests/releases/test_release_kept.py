"""A package beside the previous minor of a sibling: which wheels are kept, and what the check says of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from releasing.check import new_environment, with_previous_siblings
from releasing.distributions import Built, build
from releasing.environment import clean_variables
from releasing.kept import keep, previous_minor
from releasing.packages import Package, load
from test_release_check import write


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Package:
  root = tmp_path_factory.mktemp("below")
  write(root, "tiny-below")
  return load(root)["tiny-below"]


def version(package: Package, number: str) -> Package:
  """The same package at another version."""
  return replace(package, project={**package.project, "version": number})


def test_the_previous_minor_is_the_newest_that_was_kept_of_it(below: Package, tmp_path: Path) -> None:
  dist, folder = tmp_path / "dist", tmp_path / "kept"
  dist.mkdir()
  with pytest.raises(FileNotFoundError, match="First: hatch run release-check tiny-below"):
    keep(below, dist, folder)
  for number in ("0.9.0", "1.2.0", "1.10.0", "1.10.1", "2.0.0"):
    (dist / f"tiny_below-{number}-py3-none-any.whl").write_text(number)
    assert keep(version(below, number), dist, folder).read_text() == number
  names = {path.name.split("-")[1] for path in folder.iterdir()}
  assert names == {"0.9.0", "1.2.0", "1.10.1", "2.0.0"}, "of a minor version the last"
  for now, previous in (("2.0.1", "1.10.1"), ("1.10.0", "1.2.0"), ("1.2.5", "0.9.0")):
    found = previous_minor(version(below, now), folder)
    assert found is not None and found.read_text() == previous
  assert previous_minor(version(below, "0.9.3"), folder) is None


def test_what_does_not_work_with_the_previous_minor_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
  """tiny-below 1.1 was kept, and 1.2 has something new. One package needs that and says so, one does not, one lies."""
  folder, dist = tmp_path / "kept", tmp_path / "dist"
  write(tmp_path / "old", "tiny-below", part="VALUE = 1")
  project = tmp_path / "old" / "packages" / "tiny-below" / "pyproject.toml"
  project.write_text(project.read_text().replace('version = "1.2.0"', 'version = "1.1.0"'))
  old = load(tmp_path / "old")["tiny-below"]
  build(old, dist)
  keep(old, dist, folder)

  new = tmp_path / "new"
  write(new, "tiny-below", part="VALUE = 1\nNEW = 1")
  write(new, "tiny-works", '"tiny-below>=1.1,<1.3"', "from tiny_below.part import VALUE")
  write(new, "tiny-newer", '"tiny-below>=1.2,<1.3"', "from tiny_below.part import NEW as VALUE")
  write(new, "tiny-lies", '"tiny-below>=1.1,<1.3"', "from tiny_below.part import NEW as VALUE")
  packages = load(new)
  built: dict[str, Built] = {name: build(package, dist) for name, package in packages.items()}

  def wrong(name: str) -> list[str]:
    here = partial(new_environment, tmp_path / name, clean_variables(tmp_path / name), sys.executable)
    return with_previous_siblings(name, built, packages, here, ["-n", "0"], folder)

  assert wrong("tiny-works") == []
  assert "with tiny-below 1.1.0:" in capfd.readouterr().out
  assert wrong("tiny-newer") == []
  assert "with tiny-below" not in capfd.readouterr().out, "its range leaves it out"
  first, *_ = wrong("tiny-lies")
  assert first.startswith("with tiny-below 1.1.0, which tiny-below<1.3,>=1.1 allows: import tiny_lies.part fails")
  assert "cannot import name 'NEW'" in first
