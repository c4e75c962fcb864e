"""Every name in public_names.txt is there and says what it does."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import permutations

import tiny_tensor
from tiny_tensor import Tensor, nn
from tiny_tensor.base import TensorBase
from tiny_tensor.tensor import PYTORCH_NAMES

PLACES: dict[str, Any] = {
  "Tensor": Tensor,
  "Tensor, of PyTorch and NumPy": Tensor,
  "Tensor, of our own": Tensor,
  "Tensor operators": Tensor,
  "nn": nn,
  "nn.optim": nn.optim,
  "nn.state": nn.state,
  "nn.datasets": nn.datasets,
  "tiny_tensor": tiny_tensor,
}


def listed() -> dict[str, list[str]]:
  """Names by place."""
  out: dict[str, list[str]] = {}
  for line in (Path(__file__).parent / "public_names.txt").read_text().splitlines():
    if line.startswith("["):
      names = out.setdefault(line.strip("[]"), [])
    elif not line.startswith("#"):
      names.extend(line.split()) if line else None
  return out


@pytest.mark.parametrize("place", PLACES)
def test_names_are_there(place: str) -> None:
  assert listed()[place]
  assert [name for name in listed()[place] if not hasattr(PLACES[place], name)] == []


def test_a_tensor_shows_what_is_listed_and_nothing_else() -> None:
  wanted = [name for place, names in listed().items() if place.startswith("Tensor") for name in names]
  wanted = sorted(name for name in wanted if not name.startswith("_"))
  assert wanted == [n for n in dir(Tensor(1, device="REF")) if not n.startswith("_")]
  assert wanted == [n for n in dir(Tensor) if not n.startswith("_") and n not in PYTORCH_NAMES]
  assert not hasattr(Tensor, "__getattr__"), "with it, every attribute takes longer"


@pytest.mark.parametrize("owner", [Tensor, nn.functional], ids=["Tensor", "nn.functional"])
def test_what_is_public_is_documented(owner: Any) -> None:
  public = {name: member for name, member in inspect.getmembers(owner) if not name.startswith("_")}
  made = {name: m for name, m in public.items() if callable(m) or isinstance(m, property)}
  assert [name for name, member in made.items() if not (inspect.getdoc(member) or "").strip()] == []


def test_no_name_is_defined_by_two_families() -> None:
  families = [vars(base) for base in Tensor.__bases__]
  own = {"__module__", "__doc__", "__slots__", "__annotations__"}
  homes = Counter(name for family in families for name in family if name not in own)
  assert [name for name, count in homes.items() if count > 1] == []
  assert set(homes) & set(vars(TensorBase)) <= {"__hash__", "__firstlineno__", "__static_attributes__"}
  assert all(base.__bases__ == (TensorBase,) for base in Tensor.__bases__), "families stand side by side"


@settings(max_examples=10)
@given(permutations(Tensor.__bases__))
def test_the_order_of_families_does_not_matter(bases: list[type]) -> None:
  shuffled = type("Shuffled", tuple(bases), {name: vars(Tensor)[name] for name in vars(Tensor)})
  assert dir(shuffled) == dir(Tensor)
  differ = [n for n in dir(Tensor) if inspect.getattr_static(shuffled, n) is not inspect.getattr_static(Tensor, n)]
  assert set(differ) <= {"__mro__", "__bases__", "__name__", "__qualname__", "__dict__", "__abstractmethods__"}
