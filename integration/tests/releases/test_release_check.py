"""What `hatch run release-check` finds, on packages made for it: a good pair, and each thing that can be wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from releasing.check import check_all
from releasing.distributions import Built, build
from releasing.metadata import CLASSIFIERS, problems
from releasing.packages import ROOT, Package, load, siblings

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.2.0"
description = "{name}, for a test"
readme = "README.md"
requires-python = ">=3.11"
license = "MIT"
license-files = ["LICENSE"]
classifiers = {classifiers}
dependencies = [{dependencies}]
[project.optional-dependencies]
table = ["tabulate"]
test = ["pytest>=8"]
[project.entry-points."tiny_runtime.backends.v1"]
{device} = "{module}.part:VALUE"
[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]
[tool.hatch.build.targets.sdist]
include = ["/src", "/tests", "/README.md", "/CHANGELOG.md"]
"""


def write(root: Path, name: str, dependencies: str = "", part: str = "VALUE = 1", test: str = "VALUE == 1") -> None:
  """A package that may be released, in `root/packages`."""
  module, folder = name.replace("-", "_"), root / "packages" / name
  text = PROJECT.format(
    name=name, module=module, device=module.upper(), dependencies=dependencies, classifiers=list(CLASSIFIERS)
  )
  files = {
    "pyproject.toml": text,
    "README.md": f"# {name}\n\n[The others](https://pypi.org/project/tiny-uop/).\n",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0\n\nFirst version.\n\n## 1.1.0\n",
    f"src/{module}/__init__.py": "",
    f"src/{module}/py.typed": "",
    f"src/{module}/part.py": part,
    f"tests/test_{module}.py": f"from {module}.part import VALUE\ndef test() -> None:\n  assert {test}\n",
  }
  for path, content in files.items():
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(content)
  shutil.copy(ROOT / "LICENSE", folder / "LICENSE")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Package]:
  """Two packages, one of which needs the other."""
  root = tmp_path_factory.mktemp("pair")
  write(root, "tiny-above", '"tiny-below>=1.2,<1.3"', "from tiny_below.part import VALUE")
  write(root, "tiny-below")
  return load(root)


@pytest.fixture(scope="module")
def above(pair: dict[str, Package], tmp_path_factory: pytest.TempPathFactory) -> Built:
  return build(pair["tiny-above"], tmp_path_factory.mktemp("dist"))


def test_packages_come_after_what_they_need(pair: dict[str, Package], tmp_path: Path) -> None:
  assert list(pair) == ["tiny-below", "tiny-above"]
  ours = load()
  assert all(list(ours).index(need) < place for place, p in enumerate(ours.values()) for need in p.needs & ours.keys())
  assert siblings(["tiny-tensor"], ours) == ["tiny-uop", "tiny-runtime", "tiny-sched", "tiny-tensor"]
  write(tmp_path, "tiny-one", '"tiny-two>=1"')
  write(tmp_path, "tiny-two", '"tiny-one>=1"')
  with pytest.raises(ValueError, match="these packages need each other: tiny-one, tiny-two"):
    load(tmp_path)


def test_a_good_release_has_no_problems(above: Built, pair: dict[str, Package]) -> None:
  assert problems(above, pair) == []
  assert above.modules() == ["tiny_above", "tiny_above.part"]


def in_metadata(old: str, new: str) -> Callable[[Built], None]:
  def change(built: Built) -> None:
    assert old.encode() in built.metadata
    built.wheel_files[f"{built.info}/METADATA"] = built.metadata.replace(old.encode(), new.encode())
    del built.__dict__["metadata"]

  return change


def without(*ends: str) -> Callable[[Built], None]:
  def change(built: Built) -> None:
    for files in (built.wheel_files, built.sdist_files):
      for name in [name for name in files if name.endswith(ends)]:
        del files[name]

  return change


def add(name: str) -> Callable[[Built], None]:
  return lambda built: built.wheel_files.update({name: b""})


WRONG = {
  "no such classifier": (in_metadata("Typing :: Typed", "Typing :: Tight"), "'Typing :: Tight' is no classifier"),
  "classifier missing": (in_metadata("Classifier: Typing :: Typed\n", ""), "classifier 'Typing :: Typed' is missing"),
  "old Pythons": (in_metadata("Requires-Python: >=3.11", "Requires-Python: >=3.8"), "is >=3.8, expected >=3.11"),
  "bad version": (in_metadata("Version: 1.2.0\n", "Version: one\n"), "METADATA: 'one' is invalid for 'version'"),
  "link into the tree": (in_metadata("https://pypi.org/project/", "../"), "links to ../tiny-uop/, which leads nowhere"),
  "readme without heading": (in_metadata("# tiny-above", "tiny-above"), "README.md is not the description"),
  "another licence": (in_metadata("License-Expression: MIT", "License-Expression: BSD-3-Clause"), "expected 'MIT'"),
  "no text of the licence": (without("LICENSE"), "the wheel has no copy of the repository's LICENSE"),
  "untyped": (without("py.typed"), "the wheel has no tiny_above/py.typed"),
  "entry point to nothing": (without("part.py"), "names tiny_above.part:VALUE, but the wheel has no such module"),
  "not in the changelog": (without("CHANGELOG.md"), "CHANGELOG.md says nothing under '## 1.2.0'"),
  "tests missing": (without("test_tiny_above.py"), "the sdist lacks tests/test_tiny_above.py"),
  "tests in the wheel": (add("tests/test_x.py"), "the wheel has tests/test_x.py, which is not of tiny_above/"),
  "a file of the wheel only": (add("tiny_above/new.py"), "tiny_above/new.py is not the same in wheel and sdist"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(
  above: Built, pair: dict[str, Package], change: Callable[[Built], None], message: str
) -> None:
  built = replace(above)  # with contents of its own
  change(built)
  assert any(message in text for text in problems(built, pair)), problems(built, pair)


@pytest.mark.parametrize(
  ("range_", "message"),
  [
    ("tiny-below>=1.2", "tiny-below>=1.2 is not a range of versions; expected tiny-below>=…,<…"),
    ("tiny-below>=1.1,<1.2", "leaves out the tiny-below of this repository, 1.2.0"),
  ],
)
def test_ranges_on_siblings(above: Built, pair: dict[str, Package], range_: str, message: str) -> None:
  project = {**above.package.project, "dependencies": [range_]}
  built = replace(above, package=replace(above.package, project=project))
  assert any(message in text for text in problems(built, pair))


def test_checked_where_only_what_is_declared_is_installed(
  pair: dict[str, Package], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
  assert check_all(["tiny-above"], pair, tmp_path / "dist", ["-n", "0"]) == 0, capfd.readouterr().out
  assert len(list((tmp_path / "dist").glob("*.whl"))) == 2, "the sibling came from its wheel"
  write(tmp_path, "tiny-lacks", part="import hypothesis\nVALUE = 1")
  write(tmp_path, "tiny-fails", part="import sys\nVALUE = 2")
  write(tmp_path, "tiny-extra", part="try: import tabulate\nexcept ImportError: pass\nVALUE = 1")
  packages = load(tmp_path)
  capfd.readouterr()
  assert check_all(list(packages), packages, tmp_path / "dist", ["-n", "0"]) == 2
  text = capfd.readouterr().out
  assert "tiny-extra: passed" in text
  assert "import tiny_lacks.part fails in an environment with what tiny-lacks declares" in text
  assert "No module named 'hypothesis'" in text
  assert "tiny-fails may not be released:\n  its tests failed" in text
