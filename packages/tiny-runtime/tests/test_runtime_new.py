"""`python -m tiny_runtime new NAME` writes a plugin that works at once, or nothing at all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tiny_runtime.plugins import new
from tiny_runtime.plugins.new import FILES, LONGEST, Names, write_plugin


def run(*arguments: str, path: Path | None = None, cwd: Path) -> subprocess.CompletedProcess[str]:
  env = {**os.environ, "PYTHONPATH": os.pathsep.join([*([str(path)] if path else []), *(p for p in sys.path if p)])}
  return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)


def install(package: Path, site: Path) -> None:
  """What `pip install` leaves: modules and metadata."""
  project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
  info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
  info.mkdir(parents=True)
  (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
  groups = project["entry-points"].items()
  lines = [line for group, names in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))]
  (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
  for module in (package / "src").iterdir():
    shutil.copytree(module, site / module.name)


def test_it_passes_its_own_tests(tmp_path: Path) -> None:
  done = run("-m", "tiny_runtime", "new", "my-npu", cwd=tmp_path)
  assert done.returncode == 0, done.stderr
  package = tmp_path / "tiny-runtime-my-npu"
  assert "wrote tiny-runtime-my-npu: the device MY_NPU" in done.stdout and "pip install -e" in done.stdout
  install(package, tmp_path / "site")
  tests = run("-m", "pytest", "-q", "-p", "no:cacheprovider", path=tmp_path / "site", cwd=package)
  assert tests.returncode == 0 and "4 passed" in tests.stdout, tests.stdout
  files = ["tiny_runtime.conformance.test_level1_memory", "tiny_runtime.conformance.test_level3_programs"]
  kit = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", *files, "--backend", "MY_NPU"]
  more = run(*kit, "-k", "level1 or test_constant", path=tmp_path / "site", cwd=package)
  assert more.returncode == 1
  assert "cannot run kernel fill: launch is not written yet. Fill in STEP 4" in more.stdout, more.stdout[-3000:]
  assert "next: level 3" in more.stdout and re.search(r"\n1 memory +\d\d +0 ", more.stdout), more.stdout[-3000:]


def test_the_table_lists_it(tmp_path: Path) -> None:
  install(write_plugin("toy", tmp_path), tmp_path / "site")
  table = run("-m", "tiny_runtime", path=tmp_path / "site", cwd=tmp_path)
  row = next(line for line in table.stdout.splitlines() if " TOY " in line)
  assert row.split() == ["✓", "TOY", "ready", "toy1", "tiny-runtime-toy", "0.1.0"]


def test_every_file_is_written_and_nothing_is_left_to_replace(tmp_path: Path) -> None:
  folder = write_plugin("A-b_c9", tmp_path)
  assert folder.name == "tiny-runtime-a-b-c9" and list(tmp_path.iterdir()) == [folder]
  names = Names.of("A-b_c9")
  assert (names.device, names.module, names.prefix) == ("A_B_C9", "tiny_runtime_a_b_c9", "ABC9")
  written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
  assert written == {names.replace_in(target) for target in FILES}
  assert {path.relative_to(new.TEMPLATE).as_posix() for path in new.TEMPLATE.rglob("*.txt")} == set(FILES.values())
  for path in written:
    text = (folder / path).read_text()
    assert "@device" not in text and "@name" not in text and "@module" not in text, path


@pytest.mark.parametrize("name", ("x", "N" * LONGEST))
def test_lines_fit_with_short_and_long_names(tmp_path: Path, name: str) -> None:
  folder = write_plugin(name, tmp_path)
  for path in folder.rglob("*.py"):
    compile(path.read_text(), str(path), "exec")
    assert max(map(len, path.read_text().splitlines()), default=0) <= 120, path


@pytest.mark.parametrize(
  ("name", "message"),
  (
    ("", "'' cannot be the name of a device: expected letters, digits"),
    ("9lives", "a letter first"),
    ("toy/../../etc", "cannot be the name of a device"),
    ("toy.npu", "as in toy or my-npu"),
    ("-toy", "the following arguments are required: name"),
    ("töy", "cannot be the name of a device"),
    ("disk", "the name DISK is taken by storage of tiny-runtime"),
    ("Metal", "the name METAL is taken by tiny-runtime-metal"),
    ("ref", "the name REF is taken by tiny-runtime: choose another"),
    ("n" * 21, "too long for the name of a device"),
  ),
)
def test_bad_names(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str) -> None:
  try:
    status = new.main([name, "--into", str(tmp_path)])
  except SystemExit as exit:  # argparse
    status = int(exit.code or 0)
  assert status == 2 and message in capsys.readouterr().err
  assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  folder = tmp_path / "tiny-runtime-toy"
  for make in (folder.mkdir, lambda: (folder / "mine").write_text("x")):
    make()
    assert new.main(["toy", "--into", str(tmp_path)]) == 2
    assert "is there already: nothing was written" in capsys.readouterr().err
  assert [path.name for path in tmp_path.rglob("*")] == ["tiny-runtime-toy", "mine"]
  assert new.main(["toy", "--into", str(tmp_path / "nowhere")]) == 2
  assert "is no folder: nothing was written" in capsys.readouterr().err


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  write, count = Path.write_text, iter(range(100))

  def full(self: Path, *arguments: str, **options: str) -> int:
    if next(count) == 5:
      raise OSError("No space left on device")
    return write(self, *arguments, **options)

  monkeypatch.setattr(Path, "write_text", full)
  with pytest.raises(OSError, match="No space"):
    write_plugin("toy", tmp_path)
  assert list(tmp_path.iterdir()) == []
