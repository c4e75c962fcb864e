"""Registers of the model's GPUs, and packets of the kind PM4 that write and read them: thread traces and counters.

Addresses and fields are those of Linux's headers (`amd_registers.json`, which `integration/model/amd_registers.py`
writes); the plugin has a table of its own. What must not be is Misuse: a register or a field that there is not, an
address outside of memory, a buffer that two engines write, tracing that is on while it is set up or read, results that
were not waited for, counters that are read while they run, a part of the GPU that stays chosen for what comes after.

Each compute die carries out the packets for itself, and leaves out those that PRED_EXEC has for others.
"""

from __future__ import annotations

import ctypes
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_model.amd_traces import Place, Recorded, Shape, Told, packets
from gpu_model.kfd_objects import Misuse
from tiny_asm_amd.traces.layouts import layout
from tiny_asm_amd.traces.packets import encode

if TYPE_CHECKING:
  from gpu_model.kfd import Model

SH, UCONFIG = (0x2C00, 0x3000), (0xC000, 0x10000)
NAMES = {0x23: "PRED_EXEC", 0x3C: "WAIT_REG_MEM", 0x40: "COPY_DATA", 0x46: "EVENT_WRITE", 0x76: "SET_SH_REG",
         0x79: "SET_UCONFIG_REG"}  # fmt: skip
EVENTS = {0x07: "CS_PARTIAL_FLUSH", 0x17: "PERFCOUNTER_START", 0x18: "PERFCOUNTER_STOP", 0x1B: "PERFCOUNTER_SAMPLE",
          0x37: "THREAD_TRACE_FINISH"}  # fmt: skip
SETUP = ("BASE", "SIZE", "MASK", "HIWATER", "BUF0", "TOKEN")
"""Beginnings of the names of what must not change while a trace is on."""
PAGE = 4096


@cache
def registers(major: int) -> dict[int, tuple[str, dict[str, int]]]:
  """By address: name, and fields with their bits."""
  table = json.loads(Path(__file__).with_name("amd_registers.json").read_text())[str(major)]
  return {address: (name, fields) for name, (address, fields) in table.items()}


def field_of(word: int, mask: int) -> int:
  """A field of a word."""
  return (word & mask) // (mask & -mask)


@dataclass
class Trace:
  """The thread trace of one shader engine."""

  words: dict[str, int] = field(default_factory=dict)
  on: bool = False
  busy: bool = False
  """It was switched off, and writes what it still has."""
  finishing: bool = False
  finished: bool = False
  written: int = 0
  full: bool = False
  order: list[str] = field(default_factory=list)
  told: list[Told] = field(default_factory=list)


class Die:
  """One compute die: the values of its registers, its traces and counters."""

  def __init__(self, recorder: Recorder, number: int) -> None:
    self.of, self.number = recorder, number
    self.index = recorder.all_parts
    self.traces = [Trace() for _ in range(recorder.shape.engines)]
    self.words: dict[str, int] = {}
    self.selects: dict[str, int] = {}
    self.counting = self.sampled = self.flushed = self.started = False
    self.counts: dict[tuple[int, int, int], dict[str, int]] = {}
    self.cycles = 0

  # *** packets ***

  def execute(self, words: list[int]) -> None:
    """Carry out packets."""
    at = 0
    while at < len(words):
      head = words[at]
      kind, count = head >> 8 & 255, (head >> 16 & 0x3FFF) + 1
      if head >> 30 != 3 or head & 255 or at + 1 + count > len(words):
        raise Misuse(f"word {at} of {len(words)} is no packet: {head:#010x}")
      body = words[at + 1 : at + 1 + count]
      at += 1 + count
      name = NAMES.get(kind)
      if name is None:
        raise Misuse(f"a packet of kind {kind:#x}")
      if name == "PRED_EXEC":
        (what,) = body
        if what >> 14 & 0x3FF or not what >> 24:
          raise Misuse(f"PRED_EXEC of {what:#x}")
        if at + (what & 0x3FFF) > len(words):
          raise Misuse("PRED_EXEC counts words behind the end")
        self.of.named = True
        if what >> 24 >> self.number & 1:
          self.execute(words[at : at + (what & 0x3FFF)])
        at += what & 0x3FFF
        continue
      getattr(self, f"do_{name}")(*body)

  def do_SET_SH_REG(self, offset: int, *values: int) -> None:
    self._set(SH, offset, values)

  def do_SET_UCONFIG_REG(self, offset: int, *values: int) -> None:
    self._set(UCONFIG, offset, values)

  def _set(self, kind: tuple[int, int], offset: int, values: tuple[int, ...]) -> None:
    for n, value in enumerate(values):
      address = kind[0] + offset + n
      if not kind[0] <= address < kind[1]:
        raise Misuse(f"register {address:#x} is not of this kind")
      self.write(*self._register(address), value)

  def _register(self, address: int) -> tuple[str, dict[str, int]]:
    if address not in self.of.registers:
      raise Misuse(f"there is no register {address:#x} that recording uses")
    return self.of.registers[address]

  def do_EVENT_WRITE(self, what: int) -> None:
    name = EVENTS.get(what & 63)
    if name is None or what >> 8 != (4 if name == "CS_PARTIAL_FLUSH" else 0) or what >> 6 & 3:
      raise Misuse(f"an event of {what:#x}")
    if name == "CS_PARTIAL_FLUSH":
      self.flushed = True
    elif name == "PERFCOUNTER_START":
      self.started = True
    elif name == "PERFCOUNTER_SAMPLE":
      if not self.flushed:
        raise Misuse("counters are sampled before waves were waited for")
      self.sampled = True
    elif name == "PERFCOUNTER_STOP":
      self.started = False
    else:
      if not self.flushed:
        raise Misuse("traces are finished before waves were waited for")
      if self.words.get("COMPUTE_THREAD_TRACE_ENABLE"):
        raise Misuse("traces are finished while compute is traced")
      for trace in self.traces:
        trace.finishing = trace.on

  def do_WAIT_REG_MEM(self, control: int, address: int, high: int, reference: int, mask: int, interval: int) -> None:
    name, _ = self._register(address)
    if control & ~7 or control & 7 not in (3, 4) or high or not interval:
      raise Misuse(f"a wait of {control:#x} for {name}")
    equal = control & 7 == 3
    trace = self._trace(name)
    status = self.of.field("SQ_THREAD_TRACE_STATUS")
    if mask == status["FINISH_DONE"] and not equal:
      if not trace.finishing:
        raise Misuse("nobody asked for the trace to be finished: this waits for ever")
      trace.finishing, trace.finished = False, True
    elif mask == status["BUSY"] and equal:
      if trace.on:
        raise Misuse("a trace that is on does not cease to be busy")
      trace.busy = False
    else:
      raise Misuse(f"a wait for {mask:#x} of {name}")
    if (self._status(trace) & mask == reference) != equal:
      raise Misuse(f"a wait for {name} that does not end: {self._status(trace):#x}, mask {mask:#x}")

  def do_COPY_DATA(self, control: int, source: int, high: int, target: int, target_high: int) -> None:
    if control != 4 | 5 << 8 | 1 << 20 or high:
      raise Misuse(f"a copy of {control:#x}: expected performance register to memory, confirmed")
    name, _ = self._register(source)
    address = target_high << 32 | target
    self.of.model.buffer_at(self.of.gpu_id, address, 4)
    if address % 4 or self.of.wrote.get(address, self.number) != self.number:
      raise Misuse(f"{address:#x} is no place for a word, or another die writes there")
    self.of.wrote[address] = self.number
    ctypes.c_uint32.from_address(address).value = self.read(name)

  # *** registers ***

  def _parts(self) -> tuple[int | None, int | None, int | None]:
    """Engine, array and instance that are chosen, or None for all."""
    found: list[int | None] = []
    for name in ("SE", self.of.array, "INSTANCE"):
      every = field_of(self.index, self.of.field("GRBM_GFX_INDEX")[f"{name}_BROADCAST_WRITES"])
      found.append(None if every else field_of(self.index, self.of.field("GRBM_GFX_INDEX")[f"{name}_INDEX"]))
    return found[0], found[1], found[2]

  def _trace(self, name: str) -> Trace:
    engine, array, _ = self._parts()
    if engine is None or array != 0:
      raise Misuse(f"{name} is one of each shader engine, and none is chosen: {self.index:#x}")
    if engine >= len(self.traces):
      raise Misuse(f"there is no shader engine {engine}")
    return self.traces[engine]

  def write(self, name: str, fields: dict[str, int], value: int) -> None:
    """A register gets a value."""
    known = 0
    for mask in fields.values():
      known |= mask
    if value & ~known:
      raise Misuse(f"{name} has no bits {value & ~known:#x}")
    if name == "GRBM_GFX_INDEX":
      self.index = value
      engine, array, _ = self._parts()
      if (engine or 0) >= self.of.shape.engines or (array or 0) >= self.of.shape.arrays:
        raise Misuse(f"there is no engine {engine} or array {array}")
    elif name == "COMPUTE_THREAD_TRACE_ENABLE":
      if value and not any(trace.on for trace in self.traces):
        raise Misuse("compute is traced, and no trace is on")
      self.words[name] = value
    elif name == "CP_PERFMON_CNTL":
      self._count(value, fields)
    elif name == "SPI_CONFIG_CNTL":
      events = fields["ENABLE_SQG_TOP_EVENTS"] | fields["ENABLE_SQG_BOP_EVENTS"]
      if value & ~events != self.of.usual:
        raise Misuse(f"{name} is {value:#x}, and has been {self.of.usual:#x} but for events")
      self.words[name] = value
    elif "PERFCOUNTER" in name:
      if self.counting:
        raise Misuse(f"{name} is written while counters run")
      self.selects[name] = value
    else:
      self._write_trace(self._trace(name), name, fields, value)

  def _count(self, value: int, fields: dict[str, int]) -> None:
    state = field_of(value, fields["PERFMON_STATE"])
    if state == 0:
      self.counting = self.sampled = self.started = False
      self.counts, self.cycles = {}, 0
    elif state == 1:
      if not self.selects:
        raise Misuse("counters start, and none was told what to count")
      self.counting = True
    elif state == 2:
      if not self.sampled or not value & fields["PERFMON_SAMPLE_ENABLE"]:
        raise Misuse("counters stop, and were not sampled")
      self.counting = False
    else:
      raise Misuse(f"counters in state {state}")

  def _write_trace(self, trace: Trace, name: str, fields: dict[str, int], value: int) -> None:
    short = name.removeprefix("SQ_THREAD_TRACE_")
    if trace.on and short.startswith(SETUP):
      raise Misuse(f"{name} is written while the trace is on")
    trace.words[short] = value
    trace.order.append(short)
    if short == ("MODE" if self.of.cdna else "CTRL"):
      self._switch(trace, field_of(value, fields["MODE"]))
    elif short == "CTRL" and value:
      trace.written = 0

  def _switch(self, trace: Trace, mode: int) -> None:
    if mode:
      if trace.on or trace.busy:
        raise Misuse("a trace is switched on twice")
      wanted = self.of.setup
      if [name for name in trace.order if name in wanted] != wanted:
        raise Misuse(f"a trace is set up in the order {', '.join(trace.order)}: expected {', '.join(wanted)}")
      if not field_of(self.words.get("SPI_CONFIG_CNTL", 0), self.of.field("SPI_CONFIG_CNTL")["ENABLE_SQG_TOP_EVENTS"]):
        raise Misuse("a trace is on, and the shader engine tells it of no events")
      self.of.claim(self, trace)
      trace.on, trace.told, trace.finished, trace.finishing = True, [], False, False
    else:
      if trace.on and not self.of.cdna and not trace.finished:
        raise Misuse("a trace is switched off before it has written what it has")
      if trace.on and self.of.cdna and not trace.finishing:
        raise Misuse("a trace is switched off, and nobody asked it to finish")
      if trace.on:
        self.of.store(trace)
      trace.busy, trace.on = trace.on, False
    trace.order = []

  def _status(self, trace: Trace) -> int:
    bits = self.of.field("SQ_THREAD_TRACE_STATUS")
    status = bits["BUSY"] if trace.busy or trace.on else 0
    done = bits["FINISH_DONE"]
    status |= (done & -done) if trace.finished else 0
    return status | (bits["FULL"] if trace.full and self.of.cdna else 0)

  def read(self, name: str) -> int:
    """The value of a register."""
    if name.startswith("SQ_THREAD_TRACE_"):
      trace = self._trace(name)
      if trace.on or trace.busy:
        raise Misuse(f"{name} is read before the trace is written")
      short = name.removeprefix("SQ_THREAD_TRACE_")
      if short == "STATUS":
        return self._status(trace)
      if short == "WPTR":
        start = 0 if self.of.cdna else self.of.buffer(trace)[0] // 32
        return (start + trace.written // 32) & self.of.field(name)["WPTR" if self.of.cdna else "OFFSET"]
      if short in ("DROPPED_CNTR", "CNTR"):
        return int(trace.full)
      raise Misuse(f"{name} is read")
    block, _, rest = name.partition("_PERFCOUNTER")
    number, _, half = rest.partition("_")
    if half not in ("LO", "HI") or not number.isdecimal():
      raise Misuse(f"{name} is read")
    if self.counting or not self.sampled:
      raise Misuse(f"{name} is read, and counters run, or were not sampled")
    return self._counter(block, int(number)) >> (32 if half == "HI" else 0) & 0xFFFFFFFF

  def _counter(self, block: str, number: int) -> int:
    chosen = self.selects.get(f"{block}_PERFCOUNTER{number * (1 if self.of.cdna or block != 'SQ' else 2)}_SELECT")
    if chosen is None:
      raise Misuse(f"counter {number} of {block} was not told what to count")
    event = chosen & 0x1FF
    engine, array, instance = self._parts()
    if block == "GRBM":
      return self.cycles if event == 2 else 0
    if block != "SQ":  # caches, which there are none of here
      if engine is not None or instance is None:
        raise Misuse(f"{block} is chosen by its instance alone: {self.index:#x}")
      return 0
    if engine is None or self.of.cdna and (array, instance) != (None, None):
      raise Misuse(f"counters of SQ are of one engine, and {self.index:#x} chooses others")
    if self.of.cdna:
      return sum(counts.get(self.of.events[event], 0) for (of, _, _), counts in self.counts.items() if of == engine)
    if array is None or instance is None or instance & 3 or instance >> 2 >= self.of.shape.units:
      raise Misuse(f"counters of SQ are of one workgroup processor, and {self.index:#x} chooses none")
    return self.counts.get((engine, array, instance >> 2), {}).get(self.of.events[event], 0)


class Recorder:
  """The registers of one GPU that recording uses."""

  def __init__(self, model: Model, gpu_id: int) -> None:
    facts = model.facts
    self.model, self.gpu_id = model, gpu_id
    self.major = facts.version // 10000
    self.cdna = self.major == 9
    self.array = "SH" if self.cdna else "SA"
    self.registers = registers(self.major)
    self.names = dict(self.registers.values())
    arrays = facts.properties["simd_arrays_per_engine"]
    engines = facts.properties["array_count"] // arrays // facts.dies
    units = facts.properties["simd_count"] // facts.properties["simd_per_cu"] // facts.properties["array_count"]
    self.shape = Shape(facts.dies, engines, arrays, units if self.cdna else units // 2, 4)
    self.all_parts = 0xE0000000
    self.usual = 0x0062C688 if self.cdna else 0xC062C688
    self.setup = {
      9: ["BASE2", "BASE", "SIZE", "CTRL", "MASK", "TOKEN_MASK", "TOKEN_MASK2", "PERF_MASK", "HIWATER", "STATUS"],
      11: ["BUF0_SIZE", "BUF0_BASE", "MASK", "TOKEN_MASK"],
      12: ["BUF0_SIZE", "BUF0_BASE_LO", "BUF0_BASE_HI", "MASK", "TOKEN_MASK"],
    }[self.major]  # fmt: skip
    self.events = _events(self.major)
    self.wrote: dict[int, int] = {}
    self.named = False
    self.dies = [Die(self, n) for n in range(facts.dies)]

  def field(self, name: str) -> dict[str, int]:
    """The fields of a register."""
    return self.names[name]

  def execute(self, address: int, words: int) -> None:
    """Packets that are in memory."""
    self.model.buffer_at(self.gpu_id, address, 4 * words)
    read = list((ctypes.c_uint32 * words).from_address(address))
    self.wrote = {}
    for die in self.dies:
      die.execute(read)

  @property
  def recording(self) -> bool:
    """Whether launches are traced or counted."""
    return any(die.counting or die.words.get("COMPUTE_THREAD_TRACE_ENABLE") for die in self.dies)

  def check_launch(self) -> None:
    """Raises Misuse where a launch would not find registers as it needs them."""
    for die in self.dies:
      if die.index != self.all_parts:
        raise Misuse(f"a kernel starts, and registers are those of a part of the GPU: {die.index:#x}")
      if die.counting and not die.started:
        raise Misuse("counters are on, and no event started them")
      traced = bool(die.words.get("COMPUTE_THREAD_TRACE_ENABLE"))
      if any(trace.on != traced for trace in die.traces):
        raise Misuse("of some shader engines traces are on and of others they are not, or compute is not traced")
      die.flushed = False

  def traced(self, place: Place, simd: int) -> bool:
    """Whether instructions of this SIMD are told."""
    die, engine, array, unit = place
    words = self.dies[die].traces[engine].words
    mask, bits = words.get("MASK", 0), self.field("SQ_THREAD_TRACE_MASK")
    if self.cdna:
      chosen = field_of(mask, bits["SH_SEL"]), field_of(mask, bits["CU_SEL"])
      return chosen == (array, unit) and bool(field_of(mask, bits["SIMD_EN"]) >> simd & 1)
    chosen = field_of(mask, bits["SA_SEL"]), field_of(mask, bits["WGP_SEL"])
    kinds = field_of(mask, bits["WTYPE_INCLUDE"]) >> 6 & 1
    detail = field_of(words["CTRL"], self.field("SQ_THREAD_TRACE_CTRL")["MODE"]) == 3
    return bool(kinds) and detail and chosen == (array, unit) and field_of(mask, bits["SIMD_SEL"]) == simd

  def launched(self, found: Recorded) -> None:
    """A launch ran, and this is to be told of it."""
    for (die, engine), told in found.told.items():
      if self.dies[die].words.get("COMPUTE_THREAD_TRACE_ENABLE"):
        self.dies[die].traces[engine].told += told
    for (number, *part), counts in found.counted.items():
      if self.dies[number].counting:
        mine = self.dies[number].counts.setdefault((part[0], part[1], part[2]), defaultdict(int))
        for name, count in counts.items():
          mine[name] += count
    for each in self.dies:
      each.cycles += found.cycles if each.counting else 0

  def buffer(self, trace: Trace) -> tuple[int, int]:
    """Address and bytes of a trace's memory."""
    words = trace.words
    if self.cdna:
      return (words["BASE2"] << 32 | words["BASE"]) * PAGE, words["SIZE"] * PAGE
    size = self.field("SQ_THREAD_TRACE_BUF0_SIZE")
    pages = field_of(words["BUF0_SIZE"], size["SIZE"])
    if self.major == 11:
      return (field_of(words["BUF0_SIZE"], size["BASE_HI"]) << 32 | words["BUF0_BASE"]) * PAGE, pages * PAGE
    return (words["BUF0_BASE_HI"] << 32 | words["BUF0_BASE_LO"]) * PAGE, pages * PAGE

  def _others(self, but: Trace) -> Iterator[Trace]:
    return (trace for die in self.dies for trace in die.traces if trace is not but and trace.on)

  def claim(self, die: Die, trace: Trace) -> None:
    """A trace is to be written: look whether it can be."""
    address, size = self.buffer(trace)
    if not size:
      raise Misuse("a trace of no bytes")
    self.model.buffer_at(self.gpu_id, address, size)
    for other in self._others(trace):
      begin, length = self.buffer(other)
      if address < begin + length and begin < address + size:
        raise Misuse(f"two shader engines write their traces to {address:#x}")

  def store(self, trace: Trace) -> None:
    """Write what a trace was told, as far as there is room."""
    address, size = self.buffer(trace)
    name = "cdna" if self.cdna else f"rdna{3 if self.major == 11 else 4}"
    data = encode(packets(trace.told, layout(name)))
    data += bytes(-len(data) % 32)  # packets that do nothing
    trace.full = len(data) > size
    trace.written = min(len(data), size)
    ctypes.memmove(address, data, trace.written)


def _events(major: int) -> dict[int, str]:
  """What the counters of SQ count: `vega10_enum.h`, `soc21_enum.h`, `soc24_enum.h` of Linux."""
  names = ("BUSY_CYCLES", "WAVES", "WAVE_CYCLES", "INSTS_VALU", "INSTS_SALU", "INSTS_SMEM", "INSTS_LDS", "INSTS_MEMORY")
  numbers = {
    9: (3, 4, 46, 26, 30, 31, 34, 29), 11: (3, 4, 24, 62, 58, 59, 57, 65), 12: (3, 4, 24, 50, 46, 47, 45, 53),
  }[major]  # fmt: skip
  return dict(zip(numbers, names))
