"""Packets of a trace → waves, and the instructions that each issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tiny_asm_amd.instruction import Instruction
from tiny_asm_amd.traces.layouts import ISSUED
from tiny_asm_amd.traces.packets import Packet, Packets
from tiny_asm_amd.traces.program import Program, class_of, target_of

_TRACED = ("WAVESTART", "WAVEEND", "INST", "VALUINST", "IMMEDIATE", "IMMEDIATE_MASK", "ISSUE")
_OTHERS = range(0x50, 0x60)
"""Codes of INST that are of instructions of another SIMD (RDNA), where `Layout.operations` does not say otherwise."""
_CDNA_WAVES = 10


class Step(NamedTuple):
  """An instruction that a wave issued: when (cycles), where (address in the program), and which."""

  time: int
  address: int
  instruction: Instruction


class Row(NamedTuple):
  """An instruction in the time of its wave, in cycles: from when the wave could have issued it until it did. All but
  the last cycle of that it waited."""

  time: int
  duration: int
  waiting: int
  step: Step


@dataclass
class Wave:
  """One wave: where it ran, from when to when (cycles; `end` is None where the trace ends before), and what it issued,
  if that was traced. `problem` says why `steps` end before the wave does."""

  array: int
  unit: int
  """The compute unit of its shader array; on RDNA the workgroup processor."""
  simd: int
  slot: int
  start: int
  end: int | None = None
  steps: list[Step] = field(default_factory=list)
  problem: str = ""

  @property
  def place(self) -> tuple[int, int, int, int]:
    return self.array, self.unit, self.simd, self.slot

  def rows(self) -> list[Row]:
    """Its instructions with what each waited: for the instructions before it, for others' waves, or for memory."""
    ready, rows = self.start, []
    for step in self.steps:
      ready = min(ready, step.time)
      rows.append(Row(ready, step.time - ready + 1, step.time - ready, step))
      ready = step.time + 1
    return rows


def waves(
  packets: Packets, program: Program | None = None, *, array: int = 0, unit: int = 0, simd: int = 0
) -> list[Wave]:
  """The waves of a trace, in the order of their starts.

  With the program that they ran, those whose instructions were traced have them: on RDNA the waves of one SIMD, the one
  with these numbers, on CDNA those of one compute unit. A packet that does not fit the next instruction of its wave
  ends that wave's steps, and its `problem` says what was found; so does a wave that ends elsewhere than at S_ENDPGM.
  """
  return _Waves(packets, program, (array, unit, simd)).run()


class _Waves:
  def __init__(self, packets: Packets, program: Program | None, traced: tuple[int, int, int]) -> None:
    self.packets, self.program, self.traced = packets, program, traced
    self.cdna = packets.layout.name == "cdna"
    self.found: list[Wave] = []
    self.alive: dict[tuple[int, int, int, int], _Walk] = {}

  def run(self) -> list[Wave]:
    for packet in self.packets.of(*_TRACED):
      if packet.name == "WAVESTART":
        wave = Wave(packet.array, packet.unit, packet.simd, packet.wave, packet.time)
        self.found.append(wave)
        before = self.alive.get(wave.place)
        if before is not None:
          before.fail(f"another wave starts in its place at cycle {packet.time}, and no packet says that it ended")
        self.alive[wave.place] = _Walk(wave, self.program, self.packets.layout.operations)
      elif packet.name == "WAVEEND":
        walk = self.alive.pop((packet.array, packet.unit, packet.simd, packet.wave), None)
        if walk is not None:
          walk.end(packet.time)
      elif self.program is not None:
        self.issue(packet)
    return self.found

  def walk(self, slot: int, simd: int) -> _Walk | None:
    return self.alive.get((*self.traced[:2], simd, slot))

  def issue(self, packet: Packet) -> None:
    simd = packet.simd if self.cdna else self.traced[2]
    if packet.name == "ISSUE":
      for slot in range(_CDNA_WAVES):
        state = ISSUED[packet.waves >> 2 * slot & 3]
        if state in ("issued", "immediate") and (walk := self.walk(slot, simd)):
          walk.issued(packet.time, state)
    elif packet.name == "INST":
      if walk := self.walk(packet.wave, simd):
        if self.cdna:
          walk.told(packet.operation)
        else:
          walk.operation(packet.time, packet.operation)
    else:
      slots = (
        [slot for slot in range(16) if packet.waves >> slot & 1]
        if packet.name == "IMMEDIATE_MASK"
        else [packet.wave]
      )  # fmt: skip
      for slot in slots:
        if walk := self.walk(slot, simd):
          walk.step(packet.time, "vector" if packet.name == "VALUINST" else "immediate")


class _Walk:
  """A wave on its way through the program."""

  def __init__(self, wave: Wave, program: Program | None, operations: dict[int, str]) -> None:
    self.wave, self.program, self.operations = wave, program, operations
    self.address = program.entry if program is not None else 0
    self.untold: list[Step] = []
    """Issued, and not told yet what it was (CDNA)."""
    self.later: list[tuple[int, str]] = []
    """What was issued behind a branch of which it is not told yet whether it is taken (CDNA)."""

  def fail(self, problem: str) -> None:
    self.wave.problem = self.wave.problem or problem

  def next(self) -> Instruction | None:
    """The next instruction that a trace has a packet of."""
    assert self.program is not None
    while (found := self.program.at(self.address)) is not None and not class_of(found):
      self.address += found.size
    return found

  def step(self, time: int, told: str) -> Step | None:
    """One instruction on; `told` is what the packet says that it is."""
    if self.wave.problem:
      return None
    found = self.next()
    if found is None:
      self.fail(f"cycle {time}: the wave issues an instruction at {self.address:#x}, where the program has none")
      return None
    if not self.fits(found, told):
      self.differs(time, self.address, told, found)
      return None
    made = Step(time, self.address, found)
    self.wave.steps.append(made)
    taken = told == "branch taken" or found.mnemonic == "s_branch"
    self.address = target_of(self.address, found) if taken else self.address + found.size
    return made

  @staticmethod
  def fits(found: Instruction, told: str) -> bool:
    known = class_of(found)
    if known == "branch":
      return told in ("", "branch taken") or told == "branch not taken" and found.mnemonic != "s_branch"
    return not told or told == known or (known == "barrier" and told == "immediate")

  def operation(self, time: int, code: int) -> None:
    """A packet INST of RDNA."""
    told = self.operations.get(code, "other" if code in _OTHERS else "")
    if told != "other":
      self.step(time, told)

  def issued(self, time: int, state: str) -> None:
    """What ISSUE says of a wave; INST tells later what was issued."""
    if self.untold and self.untold[-1].instruction.mnemonic.startswith("s_cbranch"):
      self.later.append((time, state))
      return
    made = self.step(time, "" if state == "issued" else state)
    if made is not None and state == "issued":
      self.untold.append(made)

  def told(self, code: int) -> None:
    """A packet INST of CDNA, of the oldest instruction that was issued and not told."""
    if self.wave.problem or not self.untold:
      return
    time, address, found = self.untold.pop(0)
    told = self.operations.get(code, "")
    if not self.fits(found, told):
      self.differs(time, address, told, found)
    if told == "branch taken":
      self.address = target_of(address, found)
    if not self.untold:
      waiting, self.later = self.later, []
      for each in waiting:
        self.issued(*each)

  def differs(self, time: int, address: int, told: str, found: Instruction) -> None:
    self.fail(
      f"cycle {time}, address {address:#x}: the trace tells of an instruction of class {told!r}, and the program has "
      f"{found} ({class_of(found)})"
    )

  def end(self, time: int) -> None:
    self.wave.end = time
    if self.wave.problem or not self.wave.steps:
      return
    # RDNA's traces have no packet of S_ENDPGM
    last = self.wave.steps[-1].instruction
    found = last if class_of(last) == "end" else self.next()
    if found is None or class_of(found) != "end":
      what = "no instruction" if found is None else str(found)
      self.fail(f"the wave ends at cycle {time} before {what} at {self.address:#x}, not at s_endpgm")


def occupancy(found: Sequence[Wave]) -> list[tuple[int, int]]:
  """How many waves ran, from which cycle on: (cycle, waves) at each change. Waves that do not end count to the last."""
  changes: dict[int, int] = {}
  for wave in found:
    changes[wave.start] = changes.get(wave.start, 0) + 1
    if wave.end is not None:
      changes[wave.end] = changes.get(wave.end, 0) - 1
  running, made = 0, []
  for cycle in sorted(changes):
    running += changes[cycle]
    made.append((cycle, running))
  return made
