"""The loops of a kernel's machine code, and how often a profiler met each: text in, numbers out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
_JUMP = re.compile(r"^(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)$")
_TARGET = re.compile(r"\b([0-9a-f]+)\b(?= <|$)")


@dataclass(frozen=True)
class Instruction:
  """One line of a disassembly: its place in the section, the mnemonic, and the operands."""

  place: int
  name: str
  operands: str


@dataclass(frozen=True)
class Loop:
  """Instructions from the target of a jump backwards to that jump, without those of the loops inside."""

  first: int
  last: int
  instructions: tuple[Instruction, ...]
  depth: int

  @property
  def products(self) -> int:
    """Instructions that multiply and add, or add products."""
    return sum(i.name.startswith(("vfm", "vfnm", "vdpb", "vpdp", "fml", "sdot", "udot")) for i in self.instructions)

  @property
  def stores(self) -> int:
    """Vectors and numbers that are written to memory."""
    return sum(i.name.startswith(("vmov", "mov", "st")) and _writes(i) for i in self.instructions)

  @property
  def kind(self) -> str:
    """What it does, as far as that shows."""
    if self.products:
      return "multiplies and adds"
    return "copies or packs" if self.stores else "counts and reads"


def _writes(instruction: Instruction) -> bool:
  return instruction.name.startswith("st") or instruction.operands.rstrip().endswith(")")


def instructions(disassembly: str) -> list[Instruction]:
  """The lines of `objdump -d --no-show-raw-insn` that are instructions."""
  found = (_LINE.match(line) for line in disassembly.splitlines())
  return [Instruction(int(m[1], 16), m[2], m[3]) for m in found if m is not None]


def loops(code: Sequence[Instruction]) -> list[Loop]:
  """All loops, in their order in memory, outer ones before those inside."""
  ends: dict[int, int] = {}
  for i in code:
    target = _TARGET.search(i.operands) if _JUMP.match(i.name) else None
    if target is not None and (to := int(target[1], 16)) <= i.place:
      ends[to] = max(ends.get(to, 0), i.place)
  spans = sorted(ends.items(), key=lambda span: (span[0], -span[1]))
  owners = {i.place: _innermost(spans, i.place) for i in code}
  return [
    Loop(
      first, last, tuple([i for i in code if owners[i.place] == (first, last)]),
      sum(a <= first and last <= b for a, b in spans) - 1,
    )
    for first, last in spans
  ]  # fmt: skip


def _innermost(spans: Iterable[tuple[int, int]], place: int) -> tuple[int, int] | None:
  around = [span for span in spans if span[0] <= place <= span[1]]
  return min(around, key=lambda span: span[1] - span[0], default=None)


def shares(found: Sequence[Loop], places: Iterable[int]) -> dict[Loop | None, float]:
  """By loop, None for what is outside of all: which part of the samples was there and in no loop inside."""
  spans = {(loop.first, loop.last): loop for loop in found}
  counts = Counter(spans.get(_innermost(spans, place) or (-1, -1)) for place in places)
  total = sum(counts.values())
  return {loop: count / total for loop, count in counts.items()}


def costs(found: Sequence[Loop], parts: dict[Loop | None, float]) -> list[tuple[float, str, int, int, int, str]]:
  """The same for tiny-viz: share, addresses, instructions, multiply-adds, stores, and what the loop does."""
  rows = []
  for loop in found:
    name, size = f"{loop.first:x}–{loop.last:x}", len(loop.instructions)
    rows.append((parts.get(loop, 0.0), name, size, loop.products, loop.stores, loop.kind))
  return [row for row in (*rows, (parts.get(None, 0.0), "", 0, 0, 0, "outside of loops")) if row[0] >= 0.001]


def table(found: Sequence[Loop], parts: dict[Loop | None, float]) -> list[str]:
  """A line for each loop in which at least a thousandth of the time goes by."""
  lines = [f"  {'share':>6}  {'loop':<22} {'instructions':>12} {'multiply-adds':>13} {'stores':>6}  what it does"]
  for loop in found:
    if (share := parts.get(loop, 0.0)) >= 0.001:
      name = f"{'  ' * loop.depth}{loop.first:x}–{loop.last:x}"
      counts = f"{len(loop.instructions):>12} {loop.products:>13} {loop.stores:>6}"
      lines.append(f"  {share:6.1%}  {name:<22} {counts}  {loop.kind}")
  if (rest := parts.get(None, 0.0)) >= 0.001:
    lines.append(f"  {rest:6.1%}  outside of loops")
  return lines
