"""Every rewrite rule of every package has a name of its own, examples and near misses: reports name rules only."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

REPLAYS = ("'recorded'",)  # does again what the trace in its context says: no rule of its own
PACKAGES = Path(__file__).parents[3] / "packages"


@cache
def rows() -> list[tuple[str, ast.Call]]:
  """Each call of `rule`, with the place it stands in."""
  texts = {path: path.read_text("utf-8") for path in sorted(PACKAGES.glob("*/src/**/*.py"))}
  return [
    (f"{path.relative_to(PACKAGES)}:{node.lineno}", node)
    for path, text in texts.items()
    if "rule" in text
    for node in ast.walk(ast.parse(text))
    if isinstance(node, ast.Call) and len(node.args) >= 3 and ast.unparse(node.func) == "rule"
  ]


def test_names_are_unique() -> None:
  places: dict[str, str] = {}
  for place, call in rows():
    name = ast.unparse(call.args[0])
    assert name not in places, f"two rules are named {name}: {places[name]} and {place}"
    places[name] = place
  assert len(places) > 150  # they have been found


def test_every_row_has_examples_and_near_misses() -> None:
  for place, call in rows():
    missing = {"example", "near_miss"} - {k.arg for k in call.keywords}
    assert not missing or ast.unparse(call.args[0]) in REPLAYS, (
      f"{place}: the rule {ast.unparse(call.args[0])} has no {' and no '.join(sorted(missing))}"
    )
