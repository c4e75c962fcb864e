"""What a processor can do and how long it takes is data. No code compares names of processors: a table may have them as
keys, and nothing asks for one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[3] / "packages"
NAME = re.compile(
  r"(znver|bdver|btver)\d?|amdfam10|nehalem|westmere|(sandy|ivy)bridge|(has|broad)well|(sky|cascade|cooper|cannon)lake.*|"
  r"(ice|tiger|alder|rocket|meteor|arrow|lunar|panther)lake.*|(sapphire|emerald|granite|diamond)rapids.*|"
  r"x86-64(-v\d)?|a64fx|ampere1.*|thunderx.*|graviton.*|(apple-[am]|cortex-|neoverse-).*"
)
"""As LLVM spells them, or their beginnings."""
GPU = re.compile(r"gfx\d*\w*|sm_\d*|apple\d*")
SHARED = ("tiny-uop", "tiny-sched", "tiny-codegen", "tiny-runtime", "tiny-tensor")
"""Packages that know no device: of these, names of GPUs neither."""
ASKS = {"startswith", "endswith", "removeprefix", "find", "index", "count", "match", "fullmatch", "search", "get"}


def asked_for(tree: ast.AST) -> Iterator[tuple[int, str]]:
  """The strings that something is compared with, is looked for by, or is matched against, with their lines; those of
  a tuple or set, too."""
  for node in ast.walk(tree):
    places: list[ast.AST] = []
    match node:
      case ast.Compare():
        places = [node.left, *node.comparators]
      case ast.Call(func=ast.Attribute(attr=name)) if name in ASKS:
        places = [*node.args]
      case ast.MatchValue() | ast.MatchMapping():
        places = [node]
      case ast.Subscript(ctx=ast.Load()):
        places = [node.slice]
    for place in places:
      for inner in ast.walk(place):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
          yield inner.lineno, inner.value


def compared(source: str, gpus: bool) -> list[tuple[int, str]]:
  """Lines of a source, and the names there."""
  if not (NAME.search(source) or (gpus and GPU.search(source))):
    return []
  found = sorted(set(asked_for(ast.parse(source))))
  return [(n, t) for n, t in found if NAME.fullmatch(t) or (gpus and GPU.fullmatch(t))]


@pytest.mark.parametrize("package", sorted(folder.name for folder in PACKAGES.iterdir()))
def test_no_names_of_processors_are_compared(package: str) -> None:
  paths = sorted((PACKAGES / package / "src").rglob("*.py"))
  found = [(path.name, *each) for path in paths for each in compared(path.read_text("utf-8"), package in SHARED)]
  assert paths and not found, "make it data of the target: `CORES` in tiny-codegen's processors.py"


@pytest.mark.parametrize(
  "source",
  [
    'if cpu == "znver5": pass',
    'rate = 1.0 if cpu.startswith("znver") else 0.25',
    'wide = cpu in ("haswell", "skylake-avx512")',
    'match cpu:\n  case "neoverse-v1" | "other": pass',
    'cost = COSTS["apple-m1"]',
    'cost = COSTS.get("sapphirerapids", 1)',
    'if target.name.startswith("gfx"): pass',
  ],
)
def test_comparisons_are_seen(source: str) -> None:
  assert compared(source, gpus=True)


def test_tables_are_data() -> None:
  assert not compared('T = {("znver5", 512): 1, "haswell": 2}\nx = T.get((cpu, 512))\ny = cpu in T', gpus=True)
