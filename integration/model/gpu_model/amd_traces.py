"""What a GPU of the model records of a launch: packets of thread traces, and values of counters, made of what the
emulator executed.

Workgroups go to dies, engines, arrays and units by turns, one at a time on each unit, the waves of one to its SIMDs by
turns. An instruction takes a cycle of its SIMD, what is loaded a fixed time; times are thus the model's own. Packets
are those of the layouts that real GPUs recorded (`tiny_asm_amd.traces.layouts`).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tiny_asm_amd import decode
from tiny_asm_amd.traces.layouts import Layout
from tiny_asm_amd.traces.packets import Packet
from tiny_asm_amd.traces.program import class_of

LATENCY = {"scalar memory": 200, "memory": 400, "local memory": 60}
"""Cycles until something is loaded."""
COUNTED = {
  "vector": "INSTS_VALU", "scalar": "INSTS_SALU", "branch": "INSTS_BRANCH", "scalar memory": "INSTS_SMEM",
  "local memory": "INSTS_LDS", "memory": "INSTS_MEMORY",
}  # fmt: skip
CLASSES = (*COUNTED, "barrier", "immediate", "message", "end", "")
Place = tuple[int, int, int, int]
"""Die, engine, array, unit."""


@dataclass(frozen=True)
class Shape:
  """A GPU: compute dies, and of each the shader engines; of those the arrays, of those the units, of those the
  SIMDs."""

  dies: int
  engines: int
  arrays: int
  units: int
  simds: int

  def place(self, group: int) -> Place:
    """Where a workgroup runs."""
    group, die = divmod(group, self.dies)
    group, engine = divmod(group, self.engines)
    group, array = divmod(group, self.arrays)
    return die, engine, array, group % self.units


@dataclass
class Run:
  """One wave: its workgroup, its number in that, and the bytes of the code that it executed, in order."""

  group: int
  number: int
  steps: list[int]


@dataclass
class Told:
  """What one packet is to say: when, of which kind, and its fields."""

  time: int
  name: str
  fields: dict[str, int] = field(default_factory=dict)


@dataclass
class Recorded:
  """Of a launch: by die and engine what traces tell, by place what is counted, and the cycles it took."""

  told: dict[tuple[int, int], list[Told]]
  counted: dict[Place, dict[str, int]]
  cycles: int


class Code:
  """A kernel's code: what each of its instructions is."""

  def __init__(self, code: Callable[[int], bytes], chip: str) -> None:
    self.read, self.chip = code, chip
    self.known: dict[int, tuple[str, str, int]] = {}

  def at(self, byte: int) -> tuple[str, str, int]:
    """Class, name and size of an instruction."""
    if byte not in self.known:
      made = decode(self.read(byte), self.chip)
      self.known[byte] = class_of(made), made.mnemonic, made.size
    return self.known[byte]


def runs_of(steps: NDArray[np.uint64], waves: int) -> list[Run]:
  """Waves, from what the emulator tells; a workgroup has so many."""
  owners, places = (steps >> np.uint64(32)).astype(np.int64), (steps & np.uint64(0xFFFFFFFF)).astype(np.int64)
  order = np.argsort(owners, kind="stable")
  owners, places = owners[order], places[order]
  numbers, starts = np.unique(owners, return_index=True)
  parts = np.split(places, starts[1:])
  return [Run(*divmod(int(number), waves), part.tolist()) for number, part in zip(numbers, parts)]


def record(runs: Iterable[Run], code: Code, shape: Shape, traced: Callable[[Place, int], bool], begin: int) -> Recorded:
  """Run waves in time. `traced`: whether instructions of a place's SIMD are told; `begin`: the cycle of the launch."""
  told: dict[tuple[int, int], list[Told]] = defaultdict(list)
  counted: dict[Place, dict[str, int]] = defaultdict(lambda: defaultdict(int))
  free: dict[Place, int] = {}
  groups: dict[int, list[Run]] = defaultdict(list)
  for run in runs:
    groups[run.group].append(run)
  last = begin
  for group, waves in sorted(groups.items()):
    place = shape.place(group)
    start = free.get(place, begin)
    end = _group(waves, place, start, code, shape, traced, told[place[:2]], counted[place])
    counted[place]["BUSY_CYCLES"] += end - start
    free[place] = end + 4
    last = max(last, end)
  for each in told.values():
    each.sort(key=lambda one: one.time)
  return Recorded(told, counted, last - begin)


def _group(
  waves: Sequence[Run], place: Place, start: int, code: Code, shape: Shape, traced: Callable[[Place, int], bool],
  told: list[Told], counted: dict[str, int],
) -> int:  # fmt: skip
  """Run a workgroup from a cycle on; gives its last."""
  free, loaded, at = [start] * shape.simds, defaultdict[int, list[int]](list), [0] * len(waves)
  waiting: list[int] = []
  where = {"array": place[2], "unit": place[3]}
  queue = []
  for n, wave in enumerate(waves):
    simd, slot = wave.number % shape.simds, wave.number // shape.simds
    time = start + 4 * n
    told.append(Told(time, "WAVESTART", where | {"simd": simd, "wave": slot}))
    queue.append((time + 4, n))
    counted["WAVES"] += 1
  heapq.heapify(queue)
  running, end = len(waves), start
  while queue:
    ready, n = heapq.heappop(queue)
    wave = waves[n]
    simd, slot = wave.number % shape.simds, wave.number // shape.simds
    if at[n] == len(wave.steps):
      told.append(Told(ready, "WAVEEND", where | {"simd": simd, "wave": slot}))
      counted["WAVE_CYCLES"] += ready - start
      running, end = running - 1, max(end, ready)
      continue
    byte = wave.steps[at[n]]
    kind, name, size = code.at(byte)
    at[n] += 1
    after = wave.steps[at[n]] if at[n] < len(wave.steps) else byte + size
    time = max(ready, free[simd])
    if name.startswith("s_wait"):
      time = max([time, *loaded.pop(n, ())])
    free[simd] = time + 4
    if kind in LATENCY:
      loaded[n].append(time + LATENCY[kind])
    if kind in COUNTED:
      counted[COUNTED[kind]] += 1
    if kind and traced(place, simd):
      what = "branch taken" if after != byte + size else "branch not taken"
      told.append(Told(time, kind if kind != "branch" else what, {"simd": simd, "wave": slot}))
    if name == "s_barrier" or name == "s_barrier_wait":
      waiting.append(n)
      if len(waiting) == running:
        for each in waiting:
          heapq.heappush(queue, (time + 4, each))
        waiting = []
    else:
      heapq.heappush(queue, (time + 4, n))
  return end


# *** packets ***

OPERATIONS = {
  "rdna3": {"scalar": 0x00, "scalar memory": 0x01, "branch taken": 0x03, "branch not taken": 0x04, "message": 0x09,
            "barrier": 0x13, "memory": 0x21, "local memory": 0x29},
  "rdna4": {"scalar": 0x00, "scalar memory": 0x01, "branch taken": 0x03, "branch not taken": 0x04, "message": 0x09,
            "barrier": 0x7A, "memory": 0x21, "local memory": 0x29},
  "cdna": {"scalar memory": 0, "scalar": 1, "vector": 5, "local memory": 6, "branch taken": 12, "branch not taken": 13,
           "memory": 14, "end": 15, "message": 15},
}  # fmt: skip
"""Codes of packets INST, as recordings have them; 12 after the list of GCN's types of instructions."""


def packets(told: Iterable[Told], layout: Layout) -> list[Packet]:
  """The packets of an engine's trace."""
  kinds = layout.by_name
  made: list[Packet] = []
  now = 0

  def add(name: str, time: int | None = None, **fields: int) -> None:
    nonlocal now
    if time is not None:
      high, low = kinds[name].fields["delta"]
      most, step = (1 << high - low + 1) - 1, 4 if layout.name == "cdna" else 1
      while (delta := (time - now) // step) > most:
        if layout.name == "cdna":
          part = min(delta, 255)
          made.append(Packet(kinds["MISC"], kinds["MISC"].packed(delta=part)))
          now += part * step
        else:
          made.append(Packet(kinds["TS_OR_MARK"], kinds["TS_OR_MARK"].packed(value=delta)))
          now += delta
      fields["delta"] = max(0, delta)
      now += fields["delta"] * step
    made.append(Packet(kinds[name], kinds[name].packed(**fields)))

  if layout.name == "cdna":
    made.append(Packet(kinds["TIMESTAMP"], kinds["TIMESTAMP"].packed() | 1 << 4))
  else:
    add("LAYOUT", layout=layout.code)
  for one in told:
    simd, slot = one.fields.get("simd", 0), one.fields.get("wave", 0)
    if one.name in ("WAVESTART", "WAVEEND"):
      add(one.name, one.time, **one.fields)
    elif layout.name == "cdna":
      immediate = one.name in ("immediate", "barrier")
      add("ISSUE", one.time, simd=simd, waves=(3 if immediate else 2) << 2 * slot)
      if not immediate:
        add("INST", one.time, simd=simd, wave=slot, operation=OPERATIONS["cdna"][one.name])
    elif one.name == "vector":
      add("VALUINST", one.time, wave=slot)
    elif one.name == "immediate":
      add("IMMEDIATE", one.time, wave=slot)
    elif one.name != "end":
      add("INST", one.time, wave=slot, operation=OPERATIONS[layout.name][one.name])
  return made
