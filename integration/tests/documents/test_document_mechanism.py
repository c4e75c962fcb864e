"""How examples in Markdown are run and compared: what is right passes, what is wrong is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents.examples import Wrong, examples_of, printed_comments, run, same, update
from documents.markdown import Block

RIGHT = """\
<!-- first: echo hidden > made.txt -->
```sh
cat made.txt
```
```text output
hidden
```

```python helper.py
TWO = 2
```

```python
from helper import TWO

x = TWO + 1
print(x)  # 3
```

```python
print(x / 0)
```
```text error
ZeroDivisionError: division by zero
```

```python
import sys

print("a", 1.25, "ms")
print("warning", file=sys.stderr)
```
```text output varies
a 17.3 µs
warn…
```

<!-- not run: it would fail -->
```sh
exit 3
```
"""


def page(tmp_path: Path, text: str) -> Path:
  path = tmp_path / "page.md"
  path.write_text(text)
  return path


def test_right_page_passes_and_is_left_as_it_is(tmp_path: Path) -> None:
  assert len(examples_of(RIGHT)) == 4
  path = page(tmp_path, RIGHT)
  run(path, tmp_path)
  update(path, tmp_path)
  assert path.read_text() == RIGHT


@pytest.mark.parametrize(
  ("before", "after", "said"),
  [
    ("# 3", "# 4", r"page.md:13: [^\0]*-4\n\+3"),
    ("hidden\n```\n\n", "shown\n```\n\n", r"-shown\n\+hidden"),
    ("division by zero", "division by one", r"\+ZeroDivisionError: division by zero"),
    ("text error", "text output", "the example failed:\nZeroDivisionError"),
    ("print(x / 0)", "print(x / 1)", "did not fail, as the page says, but printed:\n3.0"),
    ("exit 3\n```", "exit 3\n```\n```sh\nexit 4\n```", "exit status 4"),
    ("warn…", "error…", r"-error…\n[^\0]*\+warning"),
  ],
)
def test_wrong_pages_are_found(before: str, after: str, said: str, tmp_path: Path) -> None:
  assert before in RIGHT
  with pytest.raises(Wrong, match=said):
    run(page(tmp_path, RIGHT.replace(before, after)), tmp_path)


def test_a_block_of_tests_is_tested(tmp_path: Path) -> None:
  tests = "```python\nimport math\n\n\ndef test_it():\n  assert math.pi > 3\n```\n"
  run(page(tmp_path, tests), tmp_path)
  with pytest.raises(Wrong, match="failed:\n[^\0]*assert 3.14"):
    run(page(tmp_path, tests.replace(">", "<")), tmp_path)


def test_outputs_are_written(tmp_path: Path) -> None:
  path = page(tmp_path, "1. one\n\n   ```python\n   print('a\\nb')\n   ```\n   ```text output\n   ```\n")
  update(path, tmp_path)
  assert path.read_text().splitlines()[-4:] == ["   ```text output", "   a", "   b", "   ```"]


def test_comments_behind_prints_are_what_they_print() -> None:
  code = "print('ä # no')  # one\nif x:\n  print(\n    y\n  )  # two # of them\nz = 3  # not this\nprint(z)\n"
  assert printed_comments(code) == ["one", "two # of them"]


def test_a_process_that_dies_is_named(tmp_path: Path) -> None:
  with pytest.raises(Wrong, match="page.md:1: the process ended with status 7"):
    run(page(tmp_path, "```python\nimport os\n\nos._exit(7)\n```\n"), tmp_path)


def test_output_without_example_is_refused() -> None:
  with pytest.raises(Wrong, match="line 4: this output follows no example"):
    examples_of("```python\n```\ntext\n```text output\n```\n")


def expected(text: str, *words: str) -> Block:
  return Block("text", words, text, 1, 1, "")


def test_ellipsis_and_numbers() -> None:
  assert same(expected("a\n…\nz\n"), "a\nb\nc\nz\n") and same(expected("a\n…\nz\n"), "a\nz\n")
  assert not same(expected("a\n…\nz\n"), "a\nb\n") and not same(expected("a … c\n"), "a b\nc\n")
  assert same(expected("took 3 ms  4,096 B\n", "varies"), "took 17.25 ms 1 B") and not same(expected("3\n"), "4\n")
  assert not same(expected("took 3 ms\n", "varies"), "took no time\n")
