"""What is covered of PyTorch's operators: `--list` prints it, `--write` makes docs/pytorch-coverage.md of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import opinfo_table as table
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

for module in (common_utils, core):  # for each sample PyTorch goes through the stack, for a test of its own: 50 ms
  module.extract_test_fn = lambda: None

PAGE = Path(__file__).parents[3] / "docs" / "pytorch-coverage.md"

INTRODUCTION = """# Operators of PyTorch

PyTorch tests its operators on samples that it ships, OpInfo: `torch.testing._internal.common_methods_invocations`.
We run them through tiny-tensor, and compare values, dtypes, shapes and derivatives with what PyTorch computes. What
PyTorch refuses has to be refused here, too. This
page is made by `python integration/tests/pytorch/opinfo_report.py --write`, and a test compares it.

`hatch run oracle:test` runs a few samples of each operator, `hatch run oracle:opinfo` all of them, with second
derivatives.
"""

RULE = """An operator `nn.functional.x` is `tiny_tensor.nn.functional.x`, and any other the method of `Tensor` with the
last part of its name, both with PyTorch's arguments, but for these:
"""


def all_names() -> list[str]:
  """Every operator with its variants, in order."""
  return sorted(table.full_name(op) for op in op_db)


def covered() -> list[str]:
  """Those that are in no list."""
  lists = (table.BY_DESIGN, table.OUT_OF_SCOPE, table.MISSING)
  return [name for name in all_names() if not any(name in names for names in lists)]


def counts() -> dict[str, int]:
  """How many operators there are of each kind."""
  return {
    "covered": len(covered()),
    "differ by design": len(table.BY_DESIGN),
    "out of scope": len(table.OUT_OF_SCOPE),
    "missing": len(table.MISSING),
  }


def by_reason(names: Mapping[str, str]) -> list[str]:
  """Rows of a table, one for each reason."""
  reasons: dict[str, list[str]] = {}
  for name, reason in names.items():
    reasons.setdefault(reason, []).append(name)
  return ["| why | operators |", "|---|---|", *(f"| {why} | {code(found)} |" for why, found in reasons.items())]


def code(names: Iterable[str]) -> str:
  """Names as code, for a table's cell."""
  return ", ".join(f"`{name}`".replace("|", "\\|") for name in names)


def page() -> str:
  """The text of docs/pytorch-coverage.md."""
  parts = [INTRODUCTION, "| | operators |", "|---|---|", *(f"| {what} | {n} |" for what, n in counts().items()), ""]
  parts += ["## Written otherwise", "", RULE, "| PyTorch | here |", "|---|---|"]
  parts += [f"| {code([name])} | {code([text])} |" for name, text in table.WRITTEN.items()]
  parts += ["", "## Different by design", "", *by_reason(table.BY_DESIGN), "", "In parts:", ""]
  parts += [*by_reason({name: reason for name, (reason, _) in table.LEFT_OUT.items()})]
  parts += [f"| positions, counts and sums of bool are int32 | {code(sorted(table.INT32))} |"]
  parts += [*by_reason(table.SHAPES_ONLY)[2:], *by_reason(table.FORWARD_ONLY)[2:], *by_reason(table.FIRST_ONLY)[2:]]
  parts += ["", "What PyTorch refuses and we take:", "", "| why | operators |", "|---|---|"]
  parts += ["| numbers are operands | all of several operands |", *by_reason(table.TAKEN)[2:]]
  parts += ["", "Infinities, NaN and numbers next to the limits of float32:", "", *by_reason(table.EXTREMES)]
  parts += ["", "## Out of scope", "", *by_reason(table.OUT_OF_SCOPE)]
  parts += ["", "## Missing", "", code(sorted(table.MISSING)) or "None.", "", "## Covered", "", code(covered()), ""]
  return "\n".join(parts)


def main(arguments: list[str]) -> None:
  """`--list` or `--write`."""
  if arguments == ["--write"]:
    PAGE.write_text(page(), encoding="utf-8")
  elif arguments == ["--list"]:
    print(f"PyTorch {torch.__version__}: {', '.join(f'{what} {n}' for what, n in counts().items())}\n")
    print(page())
  else:
    sys.exit(f"usage: python {sys.argv[0]} --list | --write")


if __name__ == "__main__":
  main(sys.argv[1:])
