"""The table of operations, made of the tables that the verifier checks graphs with."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from documents.repository import ROOT

if find_spec("tiny_uop") is None:  # the environment that builds the site has no packages of ours; this one needs none
  sys.path.insert(0, str(ROOT / "packages" / "tiny-uop" / "src"))

from tiny_uop.ops import Ops
from tiny_uop.spec.tables import LEVELS


def operation_table() -> str:
  """Every operation in the order of `Ops`: what it has to look like, and at which levels."""
  lines = ["| operation | has | at the levels |", "|---|---|---|"]
  for op in Ops:
    forms: dict[str, list[str]] = {}
    for level, rows in LEVELS.items():
      if op in rows:
        forms.setdefault(" *or* ".join(row.expects for row in rows[op]), []).append(level)
    for number, (expects, levels) in enumerate(forms.items()):
      name = f"`{op.name}`" if number == 0 else ""
      lines.append(f"| {name} | {expects.replace('|', '&#124;')} | {', '.join(levels)} |")
  return "\n".join(lines)
