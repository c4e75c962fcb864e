"""The grammar in the README is the one that the parser has: random sentences of it parse, and the README's programs
run.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import pytest

from tiny_uop import Ops, ParseError, UOp, args, dtypes, parse_uop, print_uop
from tiny_uop.args import ARG_TYPES

README = (Path(__file__).parent.parent / "README.md").read_text()
SECTION = README.split("\n## The textual form\n")[1].split("\n## ")[0]
GRAMMAR = re.sub(r"\(\*.*?\*\)", "", SECTION.split("```ebnf\n")[1].split("```")[0])
TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|\?([^?]*)\?|([a-z]+)|([=|,;{}()\[\]])')

# *** a grammar in EBNF (ISO/IEC 14977) as functions that make random sentences ***

Make = Callable[[random.Random, int], str]


class Grammar:
  """Rules by name; `special` makes what stands between question marks."""

  def __init__(self, text: str, special: dict[str, Make]) -> None:
    self.tokens = list(TOKEN.finditer(text))
    self.place, self.special = 0, special
    self.rules: dict[str, Make] = {}
    while self.place < len(self.tokens):
      name = self.take(3)
      self.sign("=")
      self.rules[name] = self.alternatives()
      self.sign(";")

  def take(self, group: int) -> str:
    found = self.tokens[self.place][group]
    assert found is not None, f"expected a token of kind {group} at {self.tokens[self.place]}"
    self.place += 1
    return str(found)

  def at(self, *signs: str) -> bool:
    return self.tokens[self.place][4] in signs

  def sign(self, wanted: str) -> None:
    assert self.take(4) == wanted

  def alternatives(self) -> Make:
    options = [self.sequence()]
    while self.at("|"):
      self.sign("|")
      options.append(self.sequence())

    def make(r: random.Random, depth: int) -> str:
      return (options[0] if depth > 12 else r.choice(options))(r, depth)

    return make

  def sequence(self) -> Make:
    parts = [self.part()]
    while self.at(","):
      self.sign(",")
      parts.append(self.part())
    return lambda r, depth: "".join([p(r, depth + 1) for p in parts])

  def part(self) -> Make:
    for opening, closing, most in (("[", "]", 1), ("{", "}", 3)):
      if self.at(opening):
        self.sign(opening)
        inner = self.alternatives()
        self.sign(closing)
        return lambda r, depth, most=most: "".join(  # type: ignore[misc]
          [inner(r, depth) for _ in range(0 if depth > 12 else r.randint(0, most))]
        )
    if self.at("("):
      self.sign("(")
      inner = self.alternatives()
      self.sign(")")
      return inner
    token = self.tokens[self.place]
    self.place += 1
    if token[1] is not None:
      return lambda r, depth: str(json.loads(f'"{token[1]}"'))
    if token[2] is not None:
      return self.special[token[2].strip()]
    return lambda r, depth: self.rules[str(token[3])](r, depth)


# *** what the README says in words ***

ENUMS = {name: kind for name, kind in ARG_TYPES.items() if issubclass(kind, Enum)} | {"Ops": Ops}


def member(r: random.Random, depth: int) -> str:
  name = r.choice(sorted(ENUMS))
  return f"{name}.{r.choice(list(ENUMS[name].__members__))}"


def string(r: random.Random, depth: int) -> str:
  text = "".join(r.choice('ab"\\/\n\t\x01é漢\U0001f600 %,()=#') for _ in range(r.randint(0, 6)))
  return json.dumps(text, ensure_ascii=r.random() < 0.5)


def options(r: random.Random, depth: int) -> str:
  return r.choice(
    ["None", "()", "(Opt(op=OptOps.TC),)", "(Opt(axis=1,op=OptOps.UPCAST),Opt(op=OptOps.SWAP,arg=(1,2),),)"]
  )


def space(r: random.Random, depth: int) -> str:
  return r.choice(["AddrSpace.REG", "AddrSpace.LOCAL"])


SPECIAL: dict[str, Make] = {
  "name of a member of Ops": lambda r, d: r.choice(list(Ops)).name,
  "bool, int8 … float64: a name of dtypes": lambda r, d: r.choice(dtypes.all).name,
  "an integer from 2 to 65536": lambda r, d: str(r.choice([2, 3, 16, 65536])),
  "a string of JSON, RFC 8259": string,
}


def grammar() -> Grammar:
  # members and records have names that belong together, which no grammar says
  whole = re.sub(r"member   = .*", "member = ? a member ? ;", GRAMMAR)
  whole = re.sub(r"record   = .*\n", "record = ? a record ? ;\n", whole)
  whole = re.sub(r"field    = .*\n", "", whole)
  whole = re.sub(r"(?s)text     = .*?;", "", whole)
  whole = re.sub(r"(?s)empty    = .*?;", "", whole)
  whole = re.sub(r"(?s)header   = .*?;", "", whole)

  def record(r: random.Random, depth: int) -> str:
    records: dict[str, dict[str, Make]] = {
      "KernelInfo": {"name": string, "opts": options},
      "Stage": {"space": space, "copies": made.rules["integer"]},
    }
    name = r.choice(list(records))
    chosen = [f"{field}={make(r, depth)}" for field, make in records[name].items() if r.random() < 0.7]
    return f"{name}({','.join(chosen)}{',' if chosen and r.random() < 0.3 else ''})"

  made = Grammar(whole, SPECIAL | {"a member": member, "a record": record})
  return made


MADE = grammar()


def parsed(text: str) -> UOp | None:
  """The graph, or None where a number is too large: that no grammar says either."""
  try:
    return parse_uop(text)
  except ParseError as error:
    assert "beyond the range of float64" in error.reason, f"{error}\n{text}"
    return None


@pytest.mark.parametrize("seed", range(150))
def test_literals_of_the_grammar_parse(seed: int) -> None:
  text = MADE.rules["literal"](random.Random(seed), 0)
  node = parsed(f"tiny-uop 1\n%0 = SINK void () arg={text}")
  assert node is None or parse_uop(print_uop(node)) is node


@pytest.mark.parametrize("seed", range(150))
def test_nodes_of_the_grammar_parse(seed: int) -> None:
  r = random.Random(seed)
  made = MADE.rules["node"](r, 0)
  head = made.split(")")[0]
  own, *sources = re.findall(r"%\d+", head)
  defined = [f"{s} = CONST int32 () arg={i}" for i, s in enumerate(dict.fromkeys(sources)) if s != own]
  if own in sources:
    made = made.replace(head, head.replace(own, "%777777", 1), 1)  # or it would be used before its definition
    defined.append(f"{own} = CONST int32 () arg=-1")
  blank = r.choice(["", " ", " \t "])  # between tokens there may be any
  head = made.split(")")[0]
  line = blank + head.replace("(", f"({blank}").replace("=", f"{blank}={blank}", 1) + made[len(head) :] + blank
  text = "\n".join(["# a comment", "tiny-uop 1", "", *defined, "  # another", line])
  assert parsed(text) is None or parse_uop(text).op in Ops


def test_every_rule_of_the_grammar_is_used() -> None:
  names = set(re.findall(r"(?m)^([a-z]+) +=", GRAMMAR))
  used = set(re.findall(r"\b[a-z]+\b", re.sub(r'"[^"]*"|\?[^?]*\?', "", re.sub(r"(?m)^[a-z]+ +=", "", GRAMMAR))))
  assert names - used == {"text"} and used - names <= {"any", "character"}


def test_classes_of_arguments_that_the_readme_lists() -> None:
  ours = {name for name, kind in ARG_TYPES.items() if kind.__module__ == args.__name__ or name == "AddrSpace"}
  listed = re.search(r"those of their classes: (.*?), and\s+what packages register", SECTION, re.S)
  assert listed is not None and set(re.findall(r"\b[A-Z]\w+", listed[1])) == ours | {"Ops"}


def test_programs_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
  (code,) = [part.split("```")[0] for part in SECTION.split("```python\n")[1:]]
  try:
    exec(compile(code, "README.md", "exec", dont_inherit=True), {"__name__": __name__})
  finally:
    ARG_TYPES.pop("Tile", None)
  expected = [line.split("# ", 1)[1] for line in code.splitlines() if "# " in line]
  assert capsys.readouterr().out.splitlines() == expected
