"""What a GPU records of one launch: which wave issued which instruction when (thread traces, SQTT), and counters.

Packets before the launch set up the registers and start, packets behind it stop and put what was counted into memory.
A shader engine has a buffer of its own for its trace. Instructions are those of the waves of one SIMD (RDNA) or one
compute unit (CDNA) of each engine; waves' starts and ends are those of all. Sources: see `registers.py`. Nothing of it
was tried on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from tiny_runtime.contract import Recording
from tiny_runtime.hcq import Block, Kind
from tiny_runtime_amd import pm4
from tiny_runtime_amd.arch import Arch
from tiny_runtime_amd.gpus import Gpu
from tiny_runtime_amd.memory import Memories
from tiny_runtime_amd.registers import Register, registers
from tiny_uop import ContextVar

TRACE_KB = ContextVar(
  "TRACE_KB", 1024, "KiB of an AMD GPU's memory for the thread trace of each shader engine, which `VIZ=-2` records"
)
PAGE, UNIT = 4096, 32
"""Bytes that buffers of traces are multiples of, and that their places are counted in."""
USUAL = {"GPR_WRITE_PRIORITY": 0x2C688, "EXP_PRIORITY_ORDER": 3}
"""What SPI_CONFIG_CNTL has besides whether traces get its events, by Linux's `gc_9_0_default.h`; on RDNA also PS_PKR_…,
by `gc_11_0_0_default.h`."""
START, FREEZE = 1, 2
"""States of counters; 0 resets them."""
DETAIL, HIGH_WATER = 3, 5
COMPUTE = 1 << 6
"""Of the kinds of waves that are traced."""
EXCLUDED = {11: 1 << 10, 12: 1 << 11}
"""Of the kinds of packets, those of counters."""
INCLUDED = 0x3F
"""Registers whose values are traced, all kinds."""
CDNA_PACKETS = 0xBFFF
"""All kinds but counters."""


@dataclass(frozen=True)
class Counted:
  """What a counter counts: its number in the block that counts."""

  name: str
  block: str
  number: int


def events(major: int) -> list[Counted]:
  """What is counted, on the GPUs of a generation. Numbers: Linux's `soc21_enum.h`, `soc24_enum.h`, `vega10_enum.h`."""
  names = ("BUSY_CYCLES", "WAVES", "WAVE_CYCLES", "INSTS_VALU", "INSTS_SALU", "INSTS_SMEM", "INSTS_LDS")
  rdna = major > 9
  numbers = {
    9: (0x03, 0x04, 0x2E, 0x1A, 0x1E, 0x1F, 0x22), 11: (0x03, 0x04, 0x18, 0x3E, 0x3A, 0x3B, 0x39),
    12: (0x03, 0x04, 0x18, 0x32, 0x2E, 0x2F, 0x2D),
  }[major]  # fmt: skip
  memory, number = ("SQ_INSTS_TEX", {11: 0x41, 12: 0x35}[major]) if rdna else ("SQ_INSTS_VMEM", 0x1D)
  cache, hit, miss = {9: ("TCC", 0x11, 0x13), 11: ("GL2C", 0x2A, 0x2B), 12: ("GL2C", 0x27, 0x28)}[major]
  return [
    *(Counted(f"SQ_{name}", "SQ", number) for name, number in zip(names, numbers)), Counted(memory, "SQ", number),
    Counted("GRBM_GUI_ACTIVE", "GRBM", 2), Counted(f"{cache}_HIT", cache, hit), Counted(f"{cache}_MISS", cache, miss),
  ]  # fmt: skip


@dataclass(frozen=True)
class Indirect:
  """Packets of the kind PM4 as one of the queue's own: where they are, and how many words."""

  address: int
  words: int


class Recorder:
  """Records launches of one GPU, one at a time. Raises OutOfMemory."""

  def __init__(self, memories: Memories, gpu: Gpu, arch: Arch) -> None:
    self.gpu, self.arch, self.registers = gpu, arch, registers(arch.major)
    self.rdna = arch.major > 9
    self.array = "SA" if self.rdna else "SH"
    self.usual = USUAL | ({"PS_PKR_PRIORITY_CNTL": 3} if self.rdna else {})
    self.trace_bytes = -(-(TRACE_KB.value << 10) // PAGE) * PAGE
    self.engines = gpu.engines // gpu.dies
    self.traces = memories.allocate(gpu.engines * self.trace_bytes, Kind.DEVICE)
    self.layout, self.counted = self._layout()
    self.results = memories.allocate(self._ends + self.counted, Kind.HOST)
    assert self.results.view is not None
    self.view = self.results.view
    self.start = self._put(memories, self._starting())
    self.stop = self._put(memories, self._stopping())

  def _put(self, memories: Memories, words: pm4.Words) -> Indirect:
    block: Block = memories.allocate(4 * len(words), Kind.HOST)
    assert block.view is not None
    block.view[: 4 * len(words)] = b"".join(word.to_bytes(4, "little") for word in words)
    return Indirect(block.address, len(words))

  @property
  def _ends(self) -> int:
    """Bytes of what tells where traces end, which stands before the counters: 16 for each engine."""
    return 16 * self.gpu.engines

  # *** parts of the GPU ***

  def _layout(self) -> tuple[list[tuple[str, str, int, dict[str, int]]], int]:
    """See Recording; and how many bytes that is."""
    gpu, rows, at = self.gpu, list[tuple[str, str, int, dict[str, int]]](), 0
    dies = {"xcc": gpu.dies}
    arrays = gpu.properties["simd_arrays_per_engine"]
    units = {"sa": arrays, "wgp": gpu.units // gpu.properties["array_count"] // 2} if self.rdna else {}
    of_block = {
      "SQ": dies | {"se": self.engines} | units, "GRBM": dies, "GL2C": dies | {"inst": 32}, "TCC": dies | {"inst": 16},
    }  # fmt: skip
    for event in events(self.arch.major):
      parts = of_block[event.block]
      rows.append((event.name, event.block, at, parts))
      at += 8 * prod(parts.values())
    return rows, at

  def _select(self, **numbers: int) -> pm4.Words:
    """Registers are those of this part of the GPU from now on: of all, where nothing is said."""
    index = self.registers["GRBM_GFX_INDEX"]
    names = {"se": "SE", "sa": self.array, "instance": "INSTANCE"}
    fields = {
      f"{name}_{'INDEX' if key in numbers else 'BROADCAST_WRITES'}": numbers.get(key, 1) for key, name in names.items()
    }  # fmt: skip
    return pm4.write(index.address, index.value(**fields))

  def _write(self, name: str, **fields: int) -> pm4.Words:
    register = self.registers[name]
    return pm4.write(register.address, register.value(**fields))

  def _each_die(self, words: Callable[[int], pm4.Words]) -> pm4.Words:
    """What each compute die is to do: there may be only one, which needs no naming."""
    dies = range(self.gpu.dies)
    return [word for die in dies for word in (pm4.only_on(die, words(die)) if len(dies) > 1 else words(die))]

  def _counters(self) -> Iterator[tuple[Counted, int, int]]:
    """Each event with the number of its counter in its block, and how far apart registers that choose are."""
    used: dict[str, int] = {}
    for event in events(self.arch.major):
      number = used[event.block] = used.get(event.block, -1) + 1
      yield event, number, 1 if event.block == "SQ" and not self.rdna else 2

  # *** before the launch ***

  def _starting(self) -> pm4.Words:
    ways = self.registers
    words = [*pm4.event(pm4.CS_PARTIAL_FLUSH), *self._select(), *self._write("CP_PERFMON_CNTL")]
    words += self._write("SQ_PERFCOUNTER_CTRL", CS_EN=1, **({} if self.rdna else {"VMID_MASK": 0xFFFF}))
    words += self._write("SQ_PERFCOUNTER_CTRL2", FORCE_EN=1, **({"VMID_EN": 0xFFFF} if self.rdna else {}))
    if not self.rdna:
      words += self._write("SQ_PERFCOUNTER_MASK", SH0_MASK=0xFFFF, SH1_MASK=0xFFFF)
    for event, number, apart in self._counters():
      select = ways[f"{event.block}_PERFCOUNTER0_SELECT"]
      all_of_it = {name: 15 for name in ("SQC_BANK_MASK", "SQC_CLIENT_MASK", "SIMD_MASK") if name in select.fields}
      words += pm4.write(select.address + apart * number, select.value(PERF_SEL=event.number, **all_of_it))
    words += self._write("CP_PERFMON_CNTL", PERFMON_STATE=START)
    words += pm4.event(pm4.COUNTERS_START)
    words += self._write("SPI_CONFIG_CNTL", ENABLE_SQG_TOP_EVENTS=1, ENABLE_SQG_BOP_EVENTS=1, **self.usual)
    words += self._each_die(self._traces_of_die)
    return [*words, *self._select(), *self._write("COMPUTE_THREAD_TRACE_ENABLE", THREAD_TRACE_ENABLE=1)]

  def _traces_of_die(self, die: int) -> pm4.Words:
    words: pm4.Words = []
    for engine in range(self.engines):
      page = self._trace(die * self.engines + engine) // PAGE
      words += self._select(se=engine, sa=0)
      words += self._rdna_trace(page) if self.rdna else self._cdna_trace(page)
    return words

  def _trace(self, engine: int) -> int:
    return self.traces.address + engine * self.trace_bytes

  def _rdna_trace(self, page: int) -> pm4.Words:
    pages, low, high = self.trace_bytes // PAGE, page & 0xFFFFFFFF, page >> 32
    # the size comes before the address, and what switches it on comes last
    if self.arch.major == 11:
      words = self._write("SQ_THREAD_TRACE_BUF0_SIZE", SIZE=pages, BASE_HI=high)
      words += self._write("SQ_THREAD_TRACE_BUF0_BASE", BASE_LO=low)
    else:
      words = self._write("SQ_THREAD_TRACE_BUF0_SIZE", SIZE=pages)
      words += self._write("SQ_THREAD_TRACE_BUF0_BASE_LO", BASE_LO=low)
      words += self._write("SQ_THREAD_TRACE_BUF0_BASE_HI", BASE_HI=high)
    words += self._write("SQ_THREAD_TRACE_MASK", WTYPE_INCLUDE=COMPUTE)
    words += self._write(
      "SQ_THREAD_TRACE_TOKEN_MASK", TOKEN_EXCLUDE=EXCLUDED[self.arch.major], BOP_EVENTS_TOKEN_INCLUDE=1,
      REG_INCLUDE=INCLUDED,
    )  # fmt: skip
    return [*words, *self._rdna_mode(DETAIL)]

  def _rdna_mode(self, mode: int) -> pm4.Words:
    real_time = {"RT_FREQ": 2, "UTIL_TIMER": 1} if self.arch.major == 11 else {"UTIL_TIMER": 1}
    return self._write(
      "SQ_THREAD_TRACE_CTRL", MODE=mode, HIWATER=HIGH_WATER, LOWATER_OFFSET=4, REG_AT_HWM=2, SPI_STALL_EN=1,
      SQ_STALL_EN=1, DRAW_EVENT_EN=1, **real_time,
    )  # fmt: skip

  def _cdna_trace(self, page: int) -> pm4.Words:
    words = self._write("SQ_THREAD_TRACE_BASE2", ADDR_HI=page >> 32)
    words += self._write("SQ_THREAD_TRACE_BASE", ADDR=page & 0xFFFFFFFF)
    words += self._write("SQ_THREAD_TRACE_SIZE", SIZE=self.trace_bytes // PAGE)
    words += self._write("SQ_THREAD_TRACE_CTRL", RESET_BUFFER=1)
    words += self._write("SQ_THREAD_TRACE_MASK", SIMD_EN=15, REG_STALL_EN=1, SPI_STALL_EN=1, SQ_STALL_EN=1)
    words += self._write("SQ_THREAD_TRACE_TOKEN_MASK", TOKEN_MASK=CDNA_PACKETS, REG_MASK=0xFF)
    words += self._write("SQ_THREAD_TRACE_TOKEN_MASK2", INST_MASK=0xFFFFFFFF)
    words += self._write("SQ_THREAD_TRACE_PERF_MASK", SH0_MASK=0xFFFF, SH1_MASK=0xFFFF)
    words += self._write("SQ_THREAD_TRACE_HIWATER", HIWATER=4)
    words += self._write("SQ_THREAD_TRACE_STATUS")
    return [*words, *self._write("SQ_THREAD_TRACE_MODE", MASK_CS=1, MODE=1, AUTOFLUSH_EN=1)]

  # *** behind it ***

  def _stopping(self) -> pm4.Words:
    words = [*pm4.event(pm4.CS_PARTIAL_FLUSH), *pm4.event(pm4.COUNTERS_SAMPLE), *pm4.event(pm4.COUNTERS_STOP)]
    words += self._write("CP_PERFMON_CNTL", PERFMON_STATE=FREEZE, PERFMON_SAMPLE_ENABLE=1)
    words += self._each_die(self._read_counters)
    words += self._select()
    words += self._write("CP_PERFMON_CNTL")
    words += self._write("COMPUTE_THREAD_TRACE_ENABLE")
    words += pm4.event(pm4.TRACE_FINISH)
    words += self._each_die(self._end_traces)
    return [*words, *self._select(), *self._write("SPI_CONFIG_CNTL", **self.usual)]

  def _end_traces(self, die: int) -> pm4.Words:
    status = self.registers["SQ_THREAD_TRACE_STATUS"]
    words: pm4.Words = []
    for engine in range(self.engines):
      words += self._select(se=engine, sa=0)
      if self.rdna:
        words += pm4.wait(status.address, status.mask("FINISH_DONE"), zero=False)
        words += self._rdna_mode(0)
      else:
        words += self._write("SQ_THREAD_TRACE_MODE")
      words += pm4.wait(status.address, status.mask("BUSY"), zero=True)
      place = self.results.address + 16 * (die * self.engines + engine)
      lost = "SQ_THREAD_TRACE_DROPPED_CNTR" if self.rdna else "SQ_THREAD_TRACE_CNTR"
      for n, name in enumerate(("SQ_THREAD_TRACE_WPTR", "SQ_THREAD_TRACE_STATUS", lost)):
        words += pm4.copy(self.registers[name].address, place + 4 * n)
    return words

  def _read_counters(self, die: int) -> pm4.Words:
    words: pm4.Words = []
    before = None
    for (event, number, _), (_, _, at, parts) in zip(self._counters(), self.layout):
      register = self.registers[f"{event.block}_PERFCOUNTER0_LO"].address + 2 * number
      instances = prod(parts.values()) // self.gpu.dies
      for n in range(instances):
        if (chosen := self._part(event.block, n, parts)) != before:
          words += self._select(**chosen)
          before = chosen
        place = self.results.address + self._ends + at + 8 * (die * instances + n)
        words += pm4.copy(register, place)
        if not (event.block == "SQ" and self.rdna):  # whose counters have 32 bits
          words += pm4.copy(register + 1, place + 4)
    return words

  @staticmethod
  def _part(block: str, number: int, parts: dict[str, int]) -> dict[str, int]:
    """Which part of a die has an instance of a block."""
    if block == "GRBM":
      return {}
    if "inst" in parts:
      return {"instance": number}
    if "wgp" not in parts:
      return {"se": number}
    number, unit = divmod(number, parts["wgp"])
    engine, array = divmod(number, parts["sa"])
    return {"se": engine, "sa": array, "instance": unit << 2}

  # *** what there is then ***

  def prepare(self) -> None:
    """Forget what was recorded before."""
    self.view[: self._ends + self.counted] = bytes(self._ends + self.counted)

  def read(self, kernel: str, code: bytes, seconds: float, read: Callable[[int, int], bytes]) -> Recording:
    """What was recorded of the last launch; see RecordingHardware."""
    words = self.view.cast("I")
    traces = []
    for engine in range(self.gpu.engines):
      end, status, lost = words[4 * engine : 4 * engine + 3]
      nbytes, whole = self._filled(engine, end, status, lost)
      if not whole:
        print(
          f"VIZ=-2   the trace of kernel {kernel}, shader engine {engine}, ends after {nbytes >> 10} KiB: TRACE_KB, now"
          f" {TRACE_KB.value}, gives it more",
          file=sys.stderr,
        )
      if nbytes:
        traces.append((engine, read(self._trace(engine), nbytes)))
    counters = bytes(self.view[self._ends : self._ends + self.counted])
    return Recording(str(self.arch), code, kernel, seconds, tuple(traces), counters, tuple(self.layout))

  def _filled(self, engine: int, end: int, status: int, lost: int) -> tuple[int, bool]:
    """Bytes of an engine's trace, and whether that is all."""
    state: Register = self.registers["SQ_THREAD_TRACE_STATUS"]
    pointer = self.registers["SQ_THREAD_TRACE_WPTR"]
    if self.rdna:  # counted from address 0, in so many bits
      offset = pointer.field(end, "OFFSET") - self._trace(engine) // UNIT & pointer.mask("OFFSET")
    else:
      offset = pointer.field(end, "WPTR")
    failed = state.field(status, "WRITE_ERROR" if self.rdna else "UTC_ERROR")
    full = lost if self.rdna else state.field(status, "FULL")
    return (0 if failed else min(offset * UNIT, self.trace_bytes)), not failed and not full
