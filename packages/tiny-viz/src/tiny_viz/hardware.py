"""What a GPU recorded of launches, as it stands in a trace → counters, waves and their instructions.

The bytes are AMD's; tiny-asm-amd reads them: `pip install 'tiny-viz[amd]'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tiny_viz.errors import TraceError
from tiny_viz.listing import columns, counted
from tiny_viz.run import Run, ThreadTrace, Wave
from tiny_viz.terminal import Style

if TYPE_CHECKING:
  from tiny_asm_amd.traces import waves as amd
  from tiny_asm_amd.traces.program import Program

LISTED = 30
"""Instructions that a list of a launch has."""


class Traced(NamedTuple):
  """A wave, and the shader engine that it ran on."""

  engine: int
  code: int
  wave: amd.Wave
  cdna: bool

  @property
  def place(self) -> str:
    wave, unit = self.wave, "CU" if self.cdna else "WGP"
    return f"SE{self.engine} SA{wave.array} {unit}{wave.unit} SIMD{wave.simd} slot {wave.slot}"


class Recordings:
  """The launches of a run of which a GPU recorded something. Raises TraceError where tiny-asm-amd is not installed, and
  from its methods for what is not in the trace or cannot be read."""

  def __init__(self, run: Run | None) -> None:
    if run is None or not (run.thread_traces or run.counter_blocks):
      raise TraceError("this trace has no thread traces and no counters, as an AMD GPU records them")
    try:
      import tiny_asm_amd.traces.packets  # noqa: F401
    except ImportError as error:
      raise TraceError(f"what a GPU recorded is read by tiny-asm-amd: pip install 'tiny-viz[amd]' ({error})") from None
    self.run = run
    self._waves: dict[int, list[Traced]] = {}

  @cached_property
  def launches(self) -> list[int]:
    """Numbers of their records."""
    return sorted({*(t.record for t in self.run.thread_traces), *(b.record for b in self.run.counter_blocks)})

  def name(self, launch: int) -> str:
    return self.run.records[self.known(launch)].name

  def known(self, launch: int) -> int:
    if launch not in self.launches:
      raise TraceError(f"nothing was recorded of record {launch}; there is: {', '.join(map(str, self.launches))}")
    return launch

  def program(self, code: int) -> Program:
    from tiny_asm_amd import FAMILIES
    from tiny_asm_amd.errors import TraceError as Unreadable
    from tiny_asm_amd.traces.program import Program

    found = self.run.programs.get(code)
    if found is None:
      raise TraceError(f"the trace has no program {code}, that a thread trace is of")
    if found.chip not in FAMILIES:
      raise TraceError(f"program {code} is of {found.chip!r}; tiny-asm-amd knows {', '.join(FAMILIES)}")
    try:
      return Program.of(found.data, found.chip)
    except Unreadable as error:
      raise TraceError(f"program {code}: {error}") from None

  def waves(self, launch: int) -> list[Traced]:
    """All waves of a launch, by shader engine and start."""
    from tiny_asm_amd.errors import TraceError as Unreadable
    from tiny_asm_amd.traces.packets import decode
    from tiny_asm_amd.traces.waves import waves

    if self.known(launch) not in self._waves:
      found: list[Traced] = []
      for trace in self.traces(launch):
        try:
          packets = decode(trace.data)
        except Unreadable as error:
          raise TraceError(f"the thread trace of record {launch}, shader engine {trace.engine}: {error}") from None
        cdna = packets.layout.name == "cdna"
        of_code = self.program(trace.code)
        found += [Traced(trace.engine, trace.code, wave, cdna) for wave in waves(packets, of_code)]
      self._waves[launch] = found
    return self._waves[launch]

  def traces(self, launch: int) -> Iterator[ThreadTrace]:
    return (t for t in sorted(self.run.thread_traces, key=lambda t: t.engine) if t.record == self.known(launch))

  def counters(self, launch: int) -> dict[str, int]:
    """Sums over all instances, by counter."""
    from tiny_asm_amd.errors import TraceError as Unreadable
    from tiny_asm_amd.traces.counters import Counter, totals

    found: dict[str, int] = {}
    for block in self.run.counter_blocks:
      if block.record == self.known(launch):
        rows = [Counter(name, place, parts, of) for name, of, place, parts in block.layout]
        try:
          found |= totals(rows, block.data)
        except Unreadable as error:
          raise TraceError(f"the counters of record {launch}: {error}") from None
    return found

  def add_to_run(self) -> list[str]:
    """Adds counters, and the waves of which there are instructions, to the run. Gives back what could not be read."""
    problems: list[str] = []
    for launch in self.launches:
      try:
        counters, traced = self.counters(launch), self.waves(launch)
      except TraceError as error:
        problems.append(str(error))
        continue
      if counters:
        self.run.counters[launch] = {name: float(value) for name, value in counters.items()}
      code = self.run.code
      for each in traced:
        rows = each.wave.rows()
        if each.wave.problem:
          problems.append(f"record {launch}, {each.place}: {each.wave.problem}")
        if rows:
          end = each.wave.end if each.wave.end is not None else rows[-1].step.time + 1
          steps = [(row.time, row.duration, row.waiting, row.step.address) for row in rows]
          self.run.waves.append(Wave(each.place, launch, each.code, each.wave.start, end, steps))
          known = dict(code.get(each.code, ()))
          known.update({row.step.address: str(row.step.instruction) for row in rows})
          code[each.code] = sorted(known.items())
    return problems


def launch_listing(recordings: Recordings, launch: int, style: Style) -> list[str]:
  """What was recorded of a launch: its counters, how many waves ran when, and what instructions waited."""
  lines = [style.bold(f"record {launch}: {recordings.name(launch)}")]
  counters = recordings.counters(launch)
  if counters:
    rows = [("counter", "value"), *((name, f"{value:,}") for name, value in counters.items())]
    lines += ["", *columns(rows, "lr", style)]
  traced = recordings.waves(launch)
  if not traced:
    return lines
  lines += ["", *_engines(traced, style)]
  sums: dict[tuple[int, int], list[int]] = {}
  text: dict[tuple[int, int], str] = {}
  with_rows = [each for each in traced if each.wave.steps]
  for each in with_rows:
    for row in each.wave.rows():
      key = (each.code, row.step.address)
      text[key] = str(row.step.instruction)
      sums[key] = [a + b for a, b in zip(sums.get(key, [0, 0, 0]), (1, row.duration, row.waiting))]
  if sums:
    most = sorted(sums, key=lambda key: (-sums[key][1], key))[:LISTED]
    part = f", the {LISTED} that took longest" if len(sums) > LISTED else ""
    lines += ["", f"instructions of {counted(len(with_rows), 'wave')}, in the order of the program{part}"]
    table = [("address", "times", "cycles", "waiting", "instruction")]
    for code, address in sorted(most):
      times, cycles, waiting = sums[code, address]
      table.append((f"{address:04x}", f"{times:,}", f"{cycles:,}", f"{waiting:,}", text[code, address]))
    lines += columns(table, "lrrrl", style)
  lines += [f"{each.place}: {each.wave.problem}" for each in traced if each.wave.problem]
  return lines


def _engines(traced: list[Traced], style: Style) -> list[str]:
  """A row per shader engine: its waves, and how many ran at once."""
  from tiny_asm_amd.traces.waves import occupancy

  rows = [("engine", "waves", "most at once", "mean", "cycles", "a wave's cycles", "with instructions")]
  for engine in sorted({each.engine for each in traced}):
    found = [each.wave for each in traced if each.engine == engine]
    changes = occupancy(found)
    took = changes[-1][0] - changes[0][0]
    area = sum(running * (after[0] - cycle) for (cycle, running), after in zip(changes, changes[1:]))
    lengths = [wave.end - wave.start for wave in found if wave.end is not None]
    mean = sum(lengths) / len(lengths) if lengths else 0
    most = max(running for _, running in changes)
    rows.append((
      str(engine), f"{len(found):,}", f"{most:,}", f"{area / took if took else 0:.1f}", f"{took:,}", f"{mean:,.0f}",
      f"{sum(bool(wave.steps) for wave in found):,}",
    ))  # fmt: skip
  return columns(rows, "rrrrrrr", style)


def wave_listing(recordings: Recordings, launch: int, number: int, style: Style) -> list[str]:
  """Each instruction of a wave: when it was issued, and what it waited before that."""
  traced = [each for each in recordings.waves(launch) if each.wave.steps]
  if not 0 <= number < len(traced):
    there = f"0 to {len(traced) - 1}" if traced else "none"
    raise TraceError(f"record {launch} has no wave {number} whose instructions were traced; there is: {there}")
  each = traced[number]
  end = "does not end in the trace" if each.wave.end is None else f"to {each.wave.end:,}"
  lines = [style.bold(f"{each.place}: from cycle {each.wave.start:,} {end}"), ""]
  rows = [("issued at", "waited", "address", "instruction")]
  rows += [
    (f"{row.step.time:,}", f"{row.waiting:,}", f"{row.step.address:04x}", str(row.step.instruction))
    for row in each.wave.rows()
  ]  # fmt: skip
  return [*lines, *columns(rows, "rrll", style), *([each.wave.problem] if each.wave.problem else [])]


def packet_listing(recordings: Recordings, launch: int, engine: int) -> list[str]:
  """The packets of a shader engine, a line each: time in cycles, kind, fields."""
  from tiny_asm_amd.errors import TraceError as Unreadable
  from tiny_asm_amd.traces.packets import decode

  for trace in recordings.traces(launch):
    if trace.engine == engine:
      try:
        return [str(packet) for packet in decode(trace.data) if packet.name != "NOP"]
      except Unreadable as error:
        raise TraceError(f"the thread trace of record {launch}, shader engine {engine}: {error}") from None
  there = ", ".join(str(trace.engine) for trace in recordings.traces(launch)) or "none"
  raise TraceError(f"record {launch} has no thread trace of shader engine {engine}; there is: {there}")
