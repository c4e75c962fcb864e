"""Every public function, class and member has a docstring: the reference of the site is made of them."""

from __future__ import annotations

import types
from importlib.util import find_spec

import pytest
from documents.public_names import imported, public_objects, undocumented
from documents.reference import modules


@pytest.mark.parametrize("name", modules())
def test_public_names_are_documented(name: str) -> None:
  if find_spec(name.partition(".")[0]) is None:
    pytest.skip(f"{name} is not installed")
  assert not (found := undocumented(imported(name))), f"no docstring: {', '.join(found)}"


def test_what_is_public() -> None:
  names = {name for name, _ in public_objects(imported("tiny_tensor"))}
  assert {"tiny_tensor.Tensor", "tiny_tensor.Tensor.relu", "tiny_tensor.Tensor.shape", "tiny_tensor.TinyJit"} <= names
  assert not any(name.rpartition(".")[2].startswith("_") for name in names) and len(names) > 300


def test_one_without_is_found() -> None:
  module = types.ModuleType("tiny_example")
  code = "def said(): 'It is.'\ndef unsaid(): ...\nclass Thing:\n  'A thing.'\n  @property\n  def size(self): ...\n"
  exec(code, module.__dict__)
  assert undocumented(module) == ["tiny_example.unsaid", "tiny_example.Thing.size"]
