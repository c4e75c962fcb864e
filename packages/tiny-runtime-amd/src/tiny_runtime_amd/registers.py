"""Registers of the GPU that recording is set up with: where they are, and their fields.

Addresses are of 32-bit words, as packets count them; a field is its highest and its lowest bit. Sources: Linux's
register headers `gc_9_4_3`, `gc_11_0_0` and `gc_12_0_0` (`_offset.h`, `_sh_mask.h`); which of them recording needs, and
in what order, after Mesa's RADV and ROCm's aqlprofile. `integration/model/amd_registers.py` of the repository compares
these tables with the headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

_ALL = """
COMPUTE_THREAD_TRACE_ENABLE 2E1E THREAD_TRACE_ENABLE=0:0
SPI_CONFIG_CNTL             C440 GPR_WRITE_PRIORITY=20:0 EXP_PRIORITY_ORDER=23:21 ENABLE_SQG_TOP_EVENTS=24:24
                                 ENABLE_SQG_BOP_EVENTS=25:25 PS_PKR_PRIORITY_CNTL=31:30
CP_PERFMON_CNTL             D808 PERFMON_STATE=3:0 PERFMON_SAMPLE_ENABLE=10:10
SQ_PERFCOUNTER_CTRL2        D9E2 FORCE_EN=0:0
GRBM_PERFCOUNTER0_LO        D040
GRBM_PERFCOUNTER0_SELECT    D840 PERF_SEL=5:0
"""
_RDNA = """
SQ_PERFCOUNTER_CTRL         D9E0 CS_EN=6:6
SQ_PERFCOUNTER_CTRL2        D9E2 FORCE_EN=0:0 VMID_EN=16:1
SQ_PERFCOUNTER0_LO          D1C0
SQ_PERFCOUNTER0_SELECT      D9C0 PERF_SEL=8:0
GL2C_PERFCOUNTER0_LO        D380
GL2C_PERFCOUNTER0_SELECT    DB80 PERF_SEL=9:0
SQ_THREAD_TRACE_MASK        D9ED SIMD_SEL=1:0 WGP_SEL=7:4 SA_SEL=9:9 WTYPE_INCLUDE=16:10
SQ_THREAD_TRACE_WPTR        D9EF OFFSET=28:0
SQ_THREAD_TRACE_STATUS      D9F4 FINISH_PENDING=11:0 FINISH_DONE=23:12 WRITE_ERROR=24:24 BUSY=25:25
SQ_THREAD_TRACE_DROPPED_CNTR D9FA
"""
_GFX11 = """
GRBM_GFX_INDEX              C200 INSTANCE_INDEX=7:0 SA_INDEX=15:8 SE_INDEX=23:16 SA_BROADCAST_WRITES=29:29
                                 INSTANCE_BROADCAST_WRITES=30:30 SE_BROADCAST_WRITES=31:31
SQ_THREAD_TRACE_BUF0_BASE   D9E8 BASE_LO=31:0
SQ_THREAD_TRACE_BUF0_SIZE   D9E9 BASE_HI=3:0 SIZE=29:8
SQ_THREAD_TRACE_CTRL        D9EC MODE=1:0 HIWATER=8:6 REG_AT_HWM=10:9 SPI_STALL_EN=11:11 SQ_STALL_EN=12:12
                                 UTIL_TIMER=13:13 RT_FREQ=17:16 LOWATER_OFFSET=22:20 DRAW_EVENT_EN=31:31
SQ_THREAD_TRACE_TOKEN_MASK  D9EE TOKEN_EXCLUDE=10:0 BOP_EVENTS_TOKEN_INCLUDE=12:12 REG_INCLUDE=23:16
"""
_GFX12 = """
GRBM_GFX_INDEX              C200 INSTANCE_INDEX=6:0 SA_INDEX=9:8 SE_INDEX=19:16 SA_BROADCAST_WRITES=29:29
                                 INSTANCE_BROADCAST_WRITES=30:30 SE_BROADCAST_WRITES=31:31
SQ_THREAD_TRACE_BUF0_SIZE   D9E6 SIZE=21:0
SQ_THREAD_TRACE_BUF0_BASE_LO D9E7 BASE_LO=31:0
SQ_THREAD_TRACE_BUF0_BASE_HI D9E8 BASE_HI=12:0
SQ_THREAD_TRACE_CTRL        D9EC MODE=1:0 HIWATER=8:6 REG_AT_HWM=10:9 SPI_STALL_EN=11:11 SQ_STALL_EN=12:12
                                 UTIL_TIMER=14:14 LOWATER_OFFSET=22:20 DRAW_EVENT_EN=31:31
SQ_THREAD_TRACE_TOKEN_MASK  D9EE TOKEN_EXCLUDE=11:0 BOP_EVENTS_TOKEN_INCLUDE=13:13 REG_INCLUDE=23:16
"""
_GFX9 = """
GRBM_GFX_INDEX              C200 INSTANCE_INDEX=7:0 SH_INDEX=15:8 SE_INDEX=23:16 SH_BROADCAST_WRITES=29:29
                                 INSTANCE_BROADCAST_WRITES=30:30 SE_BROADCAST_WRITES=31:31
SQ_PERFCOUNTER_CTRL         D9E0 CS_EN=6:6 VMID_MASK=31:16
SQ_PERFCOUNTER_MASK         D9E1 SH0_MASK=15:0 SH1_MASK=31:16
SQ_PERFCOUNTER0_LO          D1C0
SQ_PERFCOUNTER0_SELECT      D9C0 PERF_SEL=8:0 SQC_BANK_MASK=15:12 SQC_CLIENT_MASK=19:16 SIMD_MASK=27:24
TCC_PERFCOUNTER0_LO         D380
TCC_PERFCOUNTER0_SELECT     DB80 PERF_SEL=9:0
SQ_THREAD_TRACE_BASE        C330 ADDR=31:0
SQ_THREAD_TRACE_SIZE        C331 SIZE=21:0
SQ_THREAD_TRACE_MASK        C332 CU_SEL=4:0 SH_SEL=5:5 REG_STALL_EN=7:7 SIMD_EN=11:8 SPI_STALL_EN=14:14
                                 SQ_STALL_EN=15:15
SQ_THREAD_TRACE_TOKEN_MASK  C333 TOKEN_MASK=15:0 REG_MASK=23:16
SQ_THREAD_TRACE_PERF_MASK   C334 SH0_MASK=15:0 SH1_MASK=31:16
SQ_THREAD_TRACE_CTRL        C335 RESET_BUFFER=31:31
SQ_THREAD_TRACE_MODE        C336 MASK_CS=20:18 MODE=22:21 AUTOFLUSH_EN=25:25
SQ_THREAD_TRACE_BASE2       C337 ADDR_HI=3:0
SQ_THREAD_TRACE_TOKEN_MASK2 C338 INST_MASK=31:0
SQ_THREAD_TRACE_WPTR        C339 WPTR=29:0
SQ_THREAD_TRACE_STATUS      C33A FINISH_PENDING=9:0 FINISH_DONE=25:16 UTC_ERROR=28:28 BUSY=30:30 FULL=31:31
SQ_THREAD_TRACE_HIWATER     C33B HIWATER=2:0
SQ_THREAD_TRACE_CNTR        C33C
"""


@dataclass(frozen=True)
class Register:
  """A register: the address of its word, and its fields as (highest bit, lowest bit)."""

  name: str
  address: int
  fields: dict[str, tuple[int, int]]

  def value(self, **fields: int) -> int:
    """A word with these fields; the others are 0. Raises ValueError for a number that does not fit, and KeyError for a
    field that there is not."""
    word = 0
    for name, number in fields.items():
      high, low = self.fields[name]
      if not 0 <= number < 1 << (high - low + 1):
        raise ValueError(f"{self.name}.{name} has {high - low + 1} bits: {number} does not fit")
      word |= number << low
    return word

  def mask(self, name: str) -> int:
    """The bits of a field."""
    high, low = self.fields[name]
    return (1 << high + 1) - (1 << low)

  def field(self, word: int, name: str) -> int:
    """A field of a word that was read."""
    return (word & self.mask(name)) >> self.fields[name][1]


@cache
def registers(major: int) -> dict[str, Register]:
  """Those of a generation: 9, 11 or 12 (`Arch.major`)."""
  text = _ALL + (_GFX9 if major == 9 else _RDNA + (_GFX11 if major == 11 else _GFX12))
  found = {}
  for line in text.replace("\n   ", "").strip().splitlines():
    if not line:
      continue
    name, address, *fields = line.split()
    places = {}
    for entry in fields:
      field, _, place = entry.partition("=")
      high, _, low = place.partition(":")
      places[field] = (int(high), int(low))
    found[name] = Register(name, int(address, 16), places)
  return found
