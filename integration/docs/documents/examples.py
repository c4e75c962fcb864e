"""Examples in Markdown: they are run in the order of the page, and what they print is what the page says.

| in a page | |
|---|---|
| a block `python` | is run. The blocks of a page share their names. One with functions `test_…` is run by pytest |
| a block `sh` | is run by bash, in a folder that the blocks of a page share |
| a block right after it with the word `output` (`text output`) | is what it prints, on standard output and error |
| … with the word `error` | the same, and it fails with that error at the end |
| … with the word `varies` as well | numbers may be others, and what is between columns, as with times |
| `…` in such a block | stands for any text; alone on a line, for any lines |
| a comment after a `print(…)` | is the line that it prints, in blocks without a block `output` |
| a block `python path/to/file.py` | is a file, and not run by itself. Later examples of the page can use it |
| `<!-- not run: REASON -->` on the line before a block | it is not run |
| `<!-- first: COMMAND -->` on the line before a block | bash runs this before it. `$ROOT` is the repository |
| `<!-- needs: MODULE … -->` anywhere in the page | the examples are skipped where a module cannot be imported |

Blocks of other languages are not run.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from documents.markdown import Block, blocks
from documents.repository import ROOT
from documents.settings import declared

LANGUAGES = ("python", "sh")
WORDS = {"output", "error", "varies"}
NEEDS = re.compile(r"<!-- needs: (.*?) -->")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?: (?:[nµm]?s|[kMGT]?B)\b)?")


class Wrong(AssertionError):
  """A page that does not say what happens: where, what was expected, what was found."""


@dataclass(frozen=True)
class Example:
  """A block that is run, and the block that says what it prints, if there is one."""

  code: Block
  output: Block | None

  @property
  def first(self) -> str:
    """The command that is run before it, which readers do not see."""
    return self.code.comment.removeprefix("first: ") if self.code.comment.startswith("first: ") else ""

  @property
  def fails(self) -> bool:
    """Whether the page says that it ends with an error."""
    return self.output is not None and "error" in self.output.words

  def expected(self) -> str:
    """What it prints, by the page."""
    if self.output is not None:
      return self.output.text
    return "".join(f"{line}\n" for line in printed_comments(self.code.text))


def printed_comments(code: str) -> list[str]:
  """The comments behind calls of `print`, in order; none of code that is not Python."""
  try:
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Expr) and _prints(node.value)]
  except SyntaxError:
    return []
  lines = code.encode().splitlines()  # the columns of a syntax tree count bytes
  ends = sorted((node.end_lineno or 0, node.end_col_offset or 0) for node in calls)
  behind = (lines[line - 1][column:].decode().strip() for line, column in ends)
  return [comment.removeprefix("# ") for comment in behind if comment.startswith("# ")]


def _prints(node: ast.expr) -> bool:
  return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def examples_of(text: str) -> list[Example]:
  """The examples of a page. Raises Wrong for a block `output` that is no output of anything."""
  found, previous = list[Example](), None
  lines = text.splitlines()
  for block in blocks(text):
    if set(block.words) & WORDS:
      gap = lines[previous.end : block.line - 1] if previous else ["?"]
      if previous is None or any(gap):
        raise Wrong(f"line {block.line}: this output follows no example; expected one right before it")
      found[-1] = Example(previous, block)
      previous = None
    elif block.language in LANGUAGES and not block.words and not block.comment.startswith("not run: "):
      found.append(Example(block, None))
      previous = block
    else:
      previous = None
  return found


def files_of(text: str) -> Iterator[tuple[str, str]]:
  """(path, contents) of the blocks that are files."""
  for block in blocks(text):
    if block.words and not set(block.words) & WORDS:
      yield block.words[0], block.text


def missing(text: str) -> list[str]:
  """Modules that the page needs and that are not installed."""
  names = [name for line in NEEDS.findall(text) for name in line.split()]
  return [name for name in names if find_spec(name) is None]


def run(path: Path, folder: Path) -> None:
  """Run the examples of the page `path` in an empty folder. Raises Wrong with all that is not as the page says."""
  wrong = [problem for example, said in results(path, folder) if (problem := difference(example, said, path))]
  if wrong:
    raise Wrong("\n\n".join([*wrong, "`pytest --update-golden` writes what the examples print into the page"]))


def update(path: Path, folder: Path) -> None:
  """Run the examples of a page, and write what they print into it, where it is something else. Raises Wrong for what
  people write: a comment that is another, an error that is not announced, or none where one is."""
  text = path.read_text(encoding="utf-8")
  lines, wrong = text.splitlines(keepends=True), list[str]()
  for example, said in reversed(list(results(path, folder))):
    if example.output is None:
      wrong += filter(None, [difference(example, said, path)])
    elif not same(example.output, said):
      indent = lines[example.output.line - 1].split("`")[0]
      lines[example.output.line : example.output.end - 1] = [f"{indent}{line}\n" for line in said.rstrip().splitlines()]
  path.write_text("".join(lines), encoding="utf-8")
  if wrong:
    raise Wrong("\n\n".join(reversed(wrong)))


def results(path: Path, folder: Path) -> Iterator[tuple[Example, str]]:
  """(example, what it printed) for each of a page. Raises Wrong for one that fails though the page does not say so."""
  text = path.read_text(encoding="utf-8")
  found = examples_of(text)
  for name, contents in files_of(text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(contents, encoding="utf-8")
  given, answer = folder / "examples.json", folder / "results.json"
  given.write_text(json.dumps([(e.code.language, e.code.text, e.first) for e in found]))
  answer.unlink(missing_ok=True)
  command = [sys.executable, str(Path(__file__).with_name("run_page.py")), given.name, answer.name]
  done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True)
  said = json.loads(answer.read_text()) if answer.exists() else []
  for example, (printed, error) in zip(found, said):
    if bool(error) is not example.fails:
      what = f"failed:\n{printed}{error}" if error else f"did not fail, as the page says, but printed:\n{printed}"
      raise Wrong(f"{path}:{example.code.line}: the example {what}")
    yield example, printed + error
  if done.returncode or len(said) < len(found):
    line = found[min(len(said), len(found) - 1)].code.line
    raise Wrong(f"{path}:{line}: the process ended with status {done.returncode}: {done.stdout}{done.stderr}")


def environment(folder: Path) -> dict[str, str]:
  """Variables that the examples of a page see: no settings of whoever runs the tests, an empty cache of kernels."""
  kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
  kept |= {setting.name: "" for setting in declared()}
  path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
  kept |= {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), "ROOT": str(ROOT)}
  return kept | {"DEVICE": "CPU", "TINY_CACHE": str(folder / ".cache"), "COLUMNS": "100", "NO_COLOR": "1"}


def difference(example: Example, said: str, path: Path) -> str:
  """What is wrong with an example that printed `said`, for people; empty where nothing is."""
  if example.output is None and example.code.language == "sh":
    return ""  # what it prints is not on the page
  expected = example.output or replace(example.code, text=example.expected(), words=())
  if same(expected, said):
    return ""
  lines = difflib.unified_diff(expected.text.splitlines(), said.splitlines(), "the page", "printed", lineterm="", n=2)
  return f"{path}:{example.code.line}: the example prints something else\n" + "\n".join(lines)


def same(expected: Block, said: str) -> bool:
  """Whether `said` is what a block expects; blank ends of lines do not count."""
  wanted, found = (re.sub(r" +$", "", text.rstrip(), flags=re.M) + "\n" for text in (expected.text, said))
  if "varies" in expected.words:
    wanted, found = (re.sub(" +", " ", NUMBER.sub("0", text)) for text in (wanted, found))
  return wanted == found or ("…" in wanted and pattern(wanted).fullmatch(found) is not None)


def pattern(text: str) -> re.Pattern[str]:
  """A text in which `…` stands for any part of a line, or on a line of its own for any number of lines."""
  lines = (
    "(?:.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*") + "\n" for line in text.splitlines()
  )
  return re.compile("".join(lines))
