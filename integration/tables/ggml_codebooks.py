"""The code books of ggml's formats IQ1, IQ2 and IQ3: `--write` makes packages/tiny-tensor's module of them anew.

They are tables of numbers, found by search. Their source is the package `gguf` on PyPI, which the authors of ggml
maintain; it is imported here, and its objects hold the tables. Without an argument this says whether the module has the
same numbers, and fails where it has others.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import numpy as np

MODULE = Path(__file__).parents[2] / "packages/tiny-tensor/src/tiny_tensor/io/ggml_codebooks.py"

# name here: (class in gguf.quants, values of the numbers); formats that share a book stand once
BOOKS = {
  "IQ2_XXS": ("IQ2_XXS", (8, 25, 43)),
  "IQ2_XS": ("IQ2_XS", (8, 25, 43)),
  "IQ2_S": ("IQ2_S", (8, 25, 43)),
  "IQ1": ("IQ1_S", (-1, 0, 1)),
  "IQ3_XXS": ("IQ3_XXS", (4, 12, 20, 28, 36, 44, 52, 62)),
  "IQ3_S": ("IQ3_S", (1, 3, 5, 7, 9, 11, 13, 15)),
}

HEAD = '''"""Code books of ggml's formats IQ1, IQ2 and IQ3: the groups of 4 or 8 numbers that an index stands for.

The numbers are ggml's (github.com/ggml-org/ggml, ggml-common.h), as its package `gguf` {version} on PyPI holds them.
Made by integration/tables/ggml_codebooks.py, which also compares them.
"""

from __future__ import annotations

from functools import cached_property

from tiny_uop.records import dataclass


@dataclass(frozen=True)
class Codebook:
  """Groups of `width` numbers, each one of `values`, in ascending order: the first number of a group counts least.

  `members` says which of all `len(values) ** width` groups are in the book: a bit for each, in bytes as hexadecimal
  digits, the lowest bit of the first byte first.
  """

  width: int
  values: tuple[int, ...]
  members: str

  @cached_property
  def numbers(self) -> bytes:
    """All numbers, group by group, as int8."""
    bits, count = bytes.fromhex(self.members), len(self.values)
    groups = [group for group in range(count**self.width) if bits[group >> 3] >> (group & 7) & 1]
    return bytes(self.values[group // count**place % count] & 255 for group in groups for place in range(self.width))

'''


def version() -> str:
  """That of the package."""
  return importlib.metadata.version("gguf")


def book(name: str) -> Any:
  """The groups of numbers of a code book: (entries, width), int8."""
  kind = getattr(importlib.import_module("gguf.quants"), BOOKS[name][0])
  kind.init_grid()
  grid = np.asarray(kind.grid)
  return grid.reshape(grid.shape[-2:]).astype(np.int8)


def members(groups: Any, values: tuple[int, ...]) -> str:
  """A book's groups as the module has them."""
  places = np.searchsorted(values, groups)
  assert np.array_equal(np.array(values)[places], groups), f"numbers that are none of {values}"
  codes = (places * len(values) ** np.arange(groups.shape[1])).sum(1)
  assert np.array_equal(codes, np.unique(codes)), "groups that are not in ascending order"
  bits = np.zeros(len(values) ** groups.shape[1], np.uint8)
  bits[codes] = 1
  return np.packbits(bits, bitorder="little").tobytes().hex()


def module() -> str:
  """The module's text."""
  parts = [HEAD.format(version=version())]
  for name, (_, values) in BOOKS.items():
    groups = book(name)
    text = members(groups, values)
    lines = [text[at : at + 116] for at in range(0, len(text), 116)]
    parts += [f"\n{name} = Codebook(\n  {groups.shape[1]},\n  {values},\n  " + '"""\n  ']
    parts += ["\n  ".join(lines), '\n  """,\n)\n']
  return "".join(parts)


def main(arguments: list[str]) -> None:
  """Compare, or `--write`."""
  if arguments == ["--write"]:
    MODULE.write_text(module(), encoding="utf-8")
  elif arguments:
    sys.exit(f"usage: python {sys.argv[0]} [--write]")
  elif MODULE.read_text(encoding="utf-8") != module():
    sys.exit(f"{MODULE} differs from the tables of gguf {version()}: see what --write changes")


if __name__ == "__main__":
  main(sys.argv[1:])
