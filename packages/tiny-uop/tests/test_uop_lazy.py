"""Public names that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tiny_uop.lazy import lazy_names


def test_names_are_imported_at_their_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  folder = tmp_path / "lazily"
  folder.mkdir()
  (folder / "__init__.py").write_text(
    "from tiny_uop.lazy import lazy_names\n__all__ = ['part', 'thing']\n"
    "__getattr__ = lazy_names(__name__, thing='part', part='')\n"
  )
  (folder / "part.py").write_text("thing = object()\n")
  (folder / "room").mkdir()
  (folder / "room" / "__init__.py").write_text("")
  (folder / "room" / "place.py").write_text(
    "from tiny_uop.lazy import lazy_names\n__getattr__ = lazy_names(__name__, thing='..part')\n"
  )
  monkeypatch.syspath_prepend(str(tmp_path))
  package = importlib.import_module("lazily")
  assert "lazily.part" not in sys.modules
  thing = package.thing
  assert (
    thing is sys.modules["lazily.part"].thing is vars(package)["thing"] and package.part is sys.modules["lazily.part"]
  )
  assert importlib.import_module("lazily.room.place").thing is thing, "as `from ..part import thing` in that module"
  with pytest.raises(AttributeError, match="module 'lazily' has no attribute 'other'"):
    _ = package.other
  namespace: dict[str, object] = {}
  exec("from lazily import *", namespace)
  assert namespace["thing"] is thing
  for name in ("lazily", "lazily.part", "lazily.room", "lazily.room.place"):
    del sys.modules[name]


def test_a_name_that_is_its_modules_is_refused() -> None:
  with pytest.raises(ValueError, match="package.link is a module"):
    lazy_names("package", link="link")
