"""The backend suite of `onnx`: a part of it here, all of it in `nightly`, and the table of the README that counts it.

`python test_onnx_suite.py` runs all and prints the table; `--write` puts it into the README.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from onnx_suite import EXCLUDED, Case, cases, excluded

from tiny_tensor import Context

README = Path(__file__).parents[1] / "README.md"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
EVERY = 4
"""One of so many cases runs in CI; the others do in `nightly`."""

PARTS = 8
"""Tests that share the cases."""

LARGE = (
  "bvlc_alexnet",
  "densenet121",
  "inception_v1",
  "inception_v2",
  "resnet50",
  "shufflenet",
  "squeezenet",
  "vgg19",
  "zfnet512",
)
"""Models of which a device that interprets takes minutes."""


def names(ours: bool) -> list[str]:
  """The cases of CI or of `nightly`, without the large models."""
  ordered = sorted(n for n in cases() if cases()[n].kind != "real")
  chosen = {n for i, n in enumerate(ordered) if i % EVERY == 0 or excluded(n)} - {"test_operator_conv"}  # 20 s
  return [n for n in ordered if (n in chosen) == ours]


def outcome(case: Case) -> str | None:
  """What a case failed with, None if it passed."""
  try:
    case.run()
  except Exception as error:
    return f"{type(error).__name__}: {error}"
  return None


def check(name: str) -> None:
  reason, failed = excluded(name), outcome(cases()[name])
  if reason is None:
    assert failed is None, failed
  else:
    assert failed is not None, f"{name} passes: take it off the table of exclusions"


def check_part(chosen: list[str], part: int) -> None:
  wrong = []
  for name in chosen[part::PARTS]:
    try:
      check(name)
    except AssertionError as error:
      wrong.append(f"{name}: {str(error)[:300]}")
  assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_part_of_the_suite(part: int) -> None:
  check_part(names(True), part)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_the_rest_of_the_suite(part: int) -> None:
  check_part(names(False), part)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_the_large_models(name: str) -> None:
  with Context(DEVICE="CPU"):
    check(f"test_{name}")


def test_every_exclusion_is_a_case() -> None:
  assert {f"test_{name}" for name in EXCLUDED} <= cases().keys()
  assert {f"test_{name}" for name in LARGE} == {n for n, case in cases().items() if case.kind == "real"}


def table(passed: dict[str, bool]) -> str:
  """Counts by kind, as Markdown."""
  lines = ["| kind | cases | pass | |", "|---|---|---|---|"]
  for kind in KINDS:
    of = [n for n, case in cases().items() if case.kind == kind]
    good = sum(passed[n] for n in of)
    lines.append(f"| {kind} | {len(of):,} | {good:,} | {100 * good / len(of):.1f} % |")
  good = sum(passed.values())
  lines.append(f"| all | {len(passed):,} | {good:,} | {100 * good / len(passed):.1f} % |")
  reasons = Counter(EXCLUDED.values())
  lines += ["", "| excluded | why |", "|---|---|", *[f"| {count} | {why} |" for why, count in reasons.items()]]
  return "\n".join(lines)


def test_the_readme_has_the_table() -> None:
  """What the table says of failures is what the exclusions say."""
  text = README.read_text("utf-8")
  expected = table({name: excluded(name) is None for name in cases()})
  assert expected in text, f"python {Path(__file__).name} --write; expected\n{expected}"


if __name__ == "__main__":
  found: dict[str, bool] = {}
  for name, case in cases().items():
    with Context(DEVICE="CPU" if case.kind == "real" else "REF"):
      failed = outcome(case)
    found[name] = failed is None
    if (failed is None) == (excluded(name) is not None):
      print(name, "passes, and is excluded" if failed is None else failed[:200])
  print(table(found))
  if "--write" in sys.argv:
    text = README.read_text("utf-8")
    README.write_text(re.sub(r"\| kind \| cases.*?(?=\n\n[^|]|\Z)", lambda _: table(found), text, flags=re.S), "utf-8")
