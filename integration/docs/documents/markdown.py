"""What the other modules want to know of a Markdown file: its fenced blocks, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")
LABEL = r"(?:[^\[\]\n]|\n(?!\n)|\[[^\[\]]*\])*"  # within a paragraph
LINK = re.compile(rf"(?<!\\)!?\[{LABEL}\]\((?P<target>[^()\s]+(?:\([^)]*\)[^()\s]*)?)\)")
HEADING = re.compile(r"^#{1,6} +(?P<text>.+?)(?: +#+)?$")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
COMMENT = re.compile(r"^ *<!-- *(?P<text>.*?) *-->$")


@dataclass(frozen=True)
class Block:
  """A fenced block. `language` and `words` are what stands after the fence: in `python src/a.py`, say, one word."""

  language: str
  words: tuple[str, ...]
  text: str
  """Without the fences and without what indents them; ends with a line break unless it is empty."""
  line: int
  """Of the opening fence, from 1."""
  end: int
  """Of the closing fence."""
  comment: str
  """Text of the HTML comment on the line before, which readers do not see."""


def blocks(text: str) -> list[Block]:
  """The fenced blocks in order. Raises ValueError for one that is never closed."""
  lines, found, number = text.splitlines(), list[Block](), 0
  while number < len(lines):
    opening = FENCE.match(lines[number])
    number += 1
    if opening is None:
      continue
    start, indent = number, opening["indent"]
    while number < len(lines) and lines[number].rstrip() != f"{indent}```":
      number += 1
    if number == len(lines):
      raise ValueError(f"line {start}: this block of code is never closed; expected a line {indent + '```'!r}")
    inside = "".join(line.removeprefix(indent) + "\n" for line in lines[start:number])
    words = opening["info"].split()
    before = COMMENT.match(lines[start - 2]) if start >= 2 else None
    comment = before["text"] if before else ""
    found.append(Block(words[0] if words else "", tuple(words[1:]), inside, start, number + 1, comment))
    number += 1
  return found


def prose(text: str) -> str:
  """The text with as many blanks in place of what is in fenced blocks and code spans."""
  lines = text.splitlines(keepends=True)
  for block in blocks(text):
    for number in range(block.line - 1, block.end):
      lines[number] = re.sub(r"[^\n]", " ", lines[number])
  return CODE_SPAN.sub(lambda span: "`" + " " * (len(span[0]) - 2) + "`", "".join(lines))


def links(text: str) -> list[tuple[int, str]]:
  """(line, target) of each link and picture."""
  plain = prose(text)
  return [(plain.count("\n", 0, link.start()) + 1, link["target"]) for link in LINK.finditer(plain)]


def anchors(text: str) -> set[str]:
  """What can stand after `#` in a link to this file: GitHub's name of each heading, and those that HTML gives."""
  found, fenced = set[str](), {n for block in blocks(text) for n in range(block.line, block.end + 1)}
  for number, line in enumerate(text.splitlines(), 1):
    if number in fenced:
      continue
    found.update(re.findall(r'<\w+ [^>]*(?:id|name)="([^"]+)"', line))
    if heading := HEADING.match(line):
      slug = slug_of(heading["text"])
      found.add(slug if slug not in found else next(s for n in range(1, 99) if (s := f"{slug}-{n}") not in found))
  return found


def slug_of(heading: str) -> str:
  """A heading's anchor as GitHub and the site make it: lower case, letters, digits, `-` and `_`, blanks as `-`."""
  plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
  return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
