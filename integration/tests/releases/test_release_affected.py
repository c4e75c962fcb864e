"""Which packages a change affects, what a tag releases, and that CI's workflows ask for what the packages promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from releasing.affected import affected, changed_since, together
from releasing.metadata import PYTHONS
from releasing.packages import ROOT, load
from ruamel.yaml import YAML

RELEASE = [sys.executable, str(ROOT / "integration" / "release" / "release.py")]


@pytest.mark.parametrize(
  ("changed", "expected"),
  [
    (["packages/tiny-viz/src/tiny_viz/cli.py"], "tiny-viz"),
    (["packages/tiny-sched/README.md"], "tiny-sched tiny-tensor tiny-llm tiny-dist tiny-onnx"),
    (
      ["packages/tiny-codegen/src/tiny_codegen/opt/apply.py"],
      "tiny-codegen tiny-runtime-amd tiny-runtime-cpu tiny-runtime-metal tiny-runtime-nv tiny-runtime-opencl "
      "tiny-llm tiny-dist tiny-onnx",
    ),
    (
      ["packages/tiny-runtime/tests/conftest.py"],
      "tiny-runtime tiny-runtime-amd tiny-runtime-cpu tiny-runtime-metal tiny-runtime-nv tiny-runtime-opencl "
      "tiny-tensor tiny-llm tiny-dist tiny-onnx",
    ),
    (["integration/plugins/tiny-runtime-opencl/pyproject.toml"], "tiny-runtime-opencl"),
    (
      ["packages/tiny-viz/pyproject.toml", "packages/tiny-tensor/CHANGELOG.md"],
      "tiny-viz tiny-tensor tiny-llm tiny-dist tiny-onnx",
    ),
    (["README.md", "integration/tests/releases/test_wheels.py", "integration/bench/bench.py"], ""),
    ([], ""),
  ],
)
def test_affected_packages(changed: list[str], expected: str) -> None:
  assert set(affected(changed, load())) == set(expected.split())


@pytest.mark.parametrize(
  "path", ["packages/tiny-uop/src/tiny_uop/ops.py", "hatch.toml", ".github/workflows/ci.yml", "conftest.py",
           "integration/release/release.py"],
)  # fmt: skip
def test_what_everything_stands_on_affects_everything(path: str) -> None:
  alone = {"tiny-asm-amd"} if path.startswith("packages/") else set[str]()  # which needs none of the others
  assert affected([path], load()) == [name for name in load() if name not in alone]


def test_only_documents_leave_out_the_tests_together() -> None:
  assert not together(["README.md", "packages/tiny-uop/README.md"])
  assert together(["README.md", "integration/tests/releases/test_wheels.py"])


def git(folder: Path, *arguments: str) -> None:
  options = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
  subprocess.run(["git", *options, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path, name: str) -> None:
  git(folder, "add", "-A")
  git(folder, "commit", "-q", "-m", name)


def test_files_changed_since_a_branch_was_left(tmp_path: Path) -> None:
  git(tmp_path, "init", "-q", "-b", "main")
  (tmp_path / "first").write_text("text\n" * 9)
  commit(tmp_path, "first")
  git(tmp_path, "checkout", "-q", "-b", "topic")
  (tmp_path / "first").rename(tmp_path / "renamed")
  commit(tmp_path, "renamed")
  git(tmp_path, "checkout", "-q", "main")
  (tmp_path / "elsewhere").write_text("")
  commit(tmp_path, "elsewhere")
  git(tmp_path, "checkout", "-q", "topic")
  assert changed_since("main", tmp_path) == ["first", "renamed"], "of a rename, both; nothing of the other branch"
  with pytest.raises(RuntimeError, match=r"(?s)git diff .*no-such-revision.*Fetch the revision first"):
    changed_since("no-such-revision", tmp_path)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
  return subprocess.run([*RELEASE, *arguments], capture_output=True, text=True)


def test_a_tag_is_of_a_package_and_its_version() -> None:
  version = load()["tiny-runtime-cpu"].version
  assert run("tag", f"tiny-runtime-cpu-v{version}").stdout == f"package=tiny-runtime-cpu\nversion={version}\n"
  wrong = run("tag", "tiny-uop-v99.0")
  assert wrong.returncode and "is of version 99.0, but tiny-uop has version" in wrong.stderr
  assert "is not PACKAGE-vVERSION; packages are tiny-asm-amd, tiny-uop, " in run("tag", "v1.0").stderr


def test_the_workflows_have_all_packages_and_pythons() -> None:
  jobs = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
  assert tuple(jobs["package"]["strategy"]["matrix"]["python"]) == PYTHONS
  assert set(jobs["passed"]["needs"]) == jobs.keys() - {"passed"}
  named = {word for step in jobs["portable"]["steps"] for word in step.get("run", "").split() if word in load()}
  assert named == {path.name for path in (ROOT / "packages").iterdir() if path.is_dir()}
