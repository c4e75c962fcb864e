"""Reading what is installed, against the standard library's reader."""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from pathlib import Path

import pytest

from tiny_runtime.plugins import installed
from tiny_runtime.plugins.installed import Folder, by_name, entries, headers, normal


def test_everything_here_is_read_as_the_standard_library_does() -> None:
  theirs: dict[str, importlib.metadata.Distribution] = {}
  for distribution in importlib.metadata.distributions():
    theirs.setdefault(normal(distribution.metadata["Name"]), distribution)
  ours = by_name(installed.installed())
  assert installed.all_in_folders() and ours.keys() == theirs.keys() and len(ours) > 3
  for name, distribution in theirs.items():
    found = headers(ours[name])
    assert (normal(found.name), found.version) == (name, distribution.version)
    if distribution.read_text("METADATA"):
      assert found.requires == (distribution.requires or [])
    text = ours[name].read_text("entry_points.txt") or ""
    assert sorted(entries(text)) == sorted((e.group, e.name, e.value) for e in distribution.entry_points)


def write(folder: Path, files: dict[str, str]) -> Path:
  folder.mkdir(parents=True)
  for name, text in files.items():
    (folder / name).write_text(text)
  return folder


def test_forms_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  metadata = "Metadata-Version: 2.1\nName: {}\nVersion: 1.0\nSummary: Version: 9\n\nName: body\nVersion: 8\n"
  write(tmp_path / "a" / "Some_Thing-1.0.dist-info", {"METADATA": metadata.format("Some.Thing")})
  write(tmp_path / "a" / "other-1.0-py3.11.egg-info", {"PKG-INFO": metadata.format("other")})
  write(tmp_path / "b" / "EGG-INFO", {"PKG-INFO": metadata.format("egg")})
  write(tmp_path / "b" / "some_thing-2.0.dist-info", {"METADATA": metadata.format("hidden by the first")})
  (tmp_path / "b" / "flat-1.0.egg-info").write_text(metadata.format("flat"))
  monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "nowhere")])
  found = by_name(installed.installed())
  assert [headers(found[name]).name for name in ("some-thing", "other", "egg")] == ["Some.Thing", "other", "egg"]
  assert headers(found["other"]).version == "1.0"
  with pytest.raises(ValueError, match="without a name"):
    headers(found["flat"])


def test_a_zip_file_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
    archive.writestr("packed-3.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 3.0\n")
  monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
  assert not installed.all_in_folders()
  assert headers(by_name(installed.installed())["packed"]).version == "3.0"


def test_finders_of_others_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
  class Finder(importlib.metadata.DistributionFinder):
    def find_distributions(self, context: object = None) -> list[importlib.metadata.Distribution]:
      return []

  monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
  assert not installed.all_in_folders()


def test_entry_points_as_written_by_hand() -> None:
  text = "# comment\n\n[ group ]\nname=module:thing\n  a b = c.d [extra]\n[empty]\n"
  assert list(entries(text)) == [("group", "name", "module:thing"), ("group", "a b", "c.d [extra]")]
  with pytest.raises(ValueError, match="no entry point: 'nonsense'"):
    list(entries("[g]\nnonsense"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
  assert Folder(str(tmp_path)).read_text("METADATA") is None
