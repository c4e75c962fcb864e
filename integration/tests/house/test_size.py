"""The lines of code of each package (no blanks, comments, docstrings) against the table of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
ROW = re.compile(r"^\| (tiny-[a-z-]+) \| ([\d,]+) \| (.+) \|$", re.M)
SLACK = 0.03
"""A budget is no more than this share above what is there: what a package has become smaller by stays off."""


def code_lines(text: str) -> int:
  """The lines of Python text with code on them."""
  documented: set[int] = set()
  for node in ast.walk(ast.parse(text)):
    body = getattr(node, "body", None)
    for part in body if isinstance(body, list) else ():
      if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str):
        documented.update(range(part.lineno, (part.end_lineno or part.lineno) + 1))
  lines: set[int] = set()
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type not in NO_CODE:
      lines.update(range(token.start[0], token.end[0] + 1))
  return len(lines - documented)


def budgets() -> dict[str, tuple[int, str]]:
  """Package → (lines at most, what they buy)."""
  text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
  return {package: (int(lines.replace(",", "")), why) for package, lines, why in ROW.findall(text)}


def size_of(package: str) -> int:
  files = sorted((ROOT / "packages" / package / "src").rglob("*.py"))
  return sum(code_lines(path.read_text("utf-8")) for path in files)


@pytest.mark.parametrize("package", sorted(p.name for p in (ROOT / "packages").iterdir() if (p / "src").is_dir()))
def test_packages_keep_to_their_budgets(package: str) -> None:
  assert package in budgets(), f"{package} has no row in the table of sizes in CONTRIBUTING.md"
  (budget, why), size = budgets()[package], size_of(package)
  assert size <= budget, (
    f"{package} has {size:,} lines of code, its budget is {budget:,}: make it smaller, or raise the budget in "
    "CONTRIBUTING.md and say in the package's CHANGELOG.md what the lines buy"
  )
  assert budget <= size * (1 + SLACK) + 20, f"{package} has {size:,} lines: lower its budget of {budget:,}"
  assert len(why) > 20


def test_blanks_comments_and_docstrings_do_not_count() -> None:
  text = '"""Doc."""\n\n# why\nx = 1  # here\n\ndef f():\n  """Doc\n  of f."""\n  return (\n    x\n  )\n'
  assert code_lines(text) == 5
