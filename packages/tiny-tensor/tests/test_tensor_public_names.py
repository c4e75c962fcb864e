"""Every name in public_names.txt is there and says what it does."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import tiny_tensor
from tiny_tensor import Tensor, nn

PLACES: dict[str, Any] = {
  "Tensor": Tensor,
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


@pytest.mark.parametrize("owner", [Tensor, nn.functional], ids=["Tensor", "nn.functional"])
def test_what_is_public_is_documented(owner: Any) -> None:
  public = {name: member for name, member in inspect.getmembers(owner) if not name.startswith("_")}
  made = {name: m for name, m in public.items() if callable(m) or isinstance(m, property)}
  assert [name for name, member in made.items() if not (inspect.getdoc(member) or "").strip()] == []
