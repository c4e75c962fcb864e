"""An emulator of the machine code of AMD's GPUs: runs the bytes of a kernel, wave by wave, 32 or 64 lanes at a time.

In: where code, arguments and memory are, and what the kernel's descriptor says. Out: memory as the kernel leaves it, or
Fault with the instruction that does what it must not:

* it uses a register that is still to be loaded (waits are modelled per counter), that nobody wrote, or that the
  descriptor did not ask for;
* it goes outside of buffers, of shared or of private memory, or races with another wave, by bytes;
* it comes to a barrier that other waves never reach, or too soon after an instruction that takes its time.

It knows nothing of the plugin: instructions are taken apart by tiny-asm-amd (decoding.py), what they do stands in rows
(instructions.py) and C++ (the headers), which is compiled once for each family's sizes of waves. Sources: AMD's "RDNA3
Instruction Set Architecture" and its siblings for RDNA 4 and CDNA 3, and LLVM's "User Guide for AMDGPU Backend".
"""

from __future__ import annotations

import ctypes
import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpu_model.amd_code.decoding import Op, Unknown, codes, decoded
from gpu_model.amd_code.families import COUNTERS
from gpu_model.amd_code.instructions import meanings
from gpu_model.toolchain import built
from tiny_asm_amd import AsmError, decode
from tiny_asm_amd.table import family_of

HERE = Path(__file__).parent
HEADERS = ("core.h", "numbers.h", "memory.h", "lanes.h", "matrix.h", "conversions.h", "run.h")
FLAGS = (
  "-std=c++17",
  "-fPIC",
  "-w",
  "-O0",  # compiled in a third of the time of -O1, and what the kit launches is small
  "-march=native",
  "-ffp-contract=off",
  "-fno-math-errno",
  "-fsigned-char",
)
PRIVATE_BEGIN = 0x5A00FFFFFC00
"""Where private memory is that nobody gave: a wave's offset carries into the upper word."""
MOST_STEPS = 20_000_000
"""Instructions of a wave from a barrier to the next, before it is taken for one that never ends."""
KEPT = 256
"""Kernels that are kept taken apart."""
DISTINCT = 1 << 16
"""Bytes of code that are looked at, from the first instruction on."""
TRANS_USE = ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
"""Chips whose results of transcendental instructions are not there for the next ones; gfx115x wait by themselves."""
Region = tuple[int, int]


class Fault(Exception):
  """What code does that it must not."""


@dataclass(frozen=True)
class PrivateMemory:
  """Private memory as the queue says: the words of a buffer's descriptor, its address, bytes of a wave and how many
  waves have some at once."""

  buffer: tuple[int, ...]
  address: int
  wave_bytes: int
  waves: int


@dataclass(frozen=True)
class Launch:
  """A kernel: the chip, its code from `entry` on, its arguments and their bytes, the 64 bytes of its descriptor, bytes
  of shared memory and of private memory of a thread, workgroups, threads of each, and the memory that it may touch.
  `backwards`: the last workgroup and wave are first. `private`: where private memory of all waves is, before gfx940;
  one of the emulator's own if it is None."""

  chip: str
  entry: int
  arguments: int
  argument_bytes: int
  descriptor: bytes
  local_bytes: int
  private_bytes: int
  groups: tuple[int, int, int]
  threads: tuple[int, int, int]
  regions: Sequence[Region]
  backwards: bool = False
  private: PrivateMemory | None = None


def _hazards(chip: str) -> int:
  """What code has to see to itself, as LLVM's backend does for the chip (core.h has the bits)."""
  family = family_of(chip)
  return (
    (chip in TRANS_USE)
    | 2 * (family != "cdna")
    | 4 * (family == "rdna4")
    | 8 * (chip in ("gfx940", "gfx942", "gfx950"))
    | 16 * (family == "rdna3")
  )


class _Launch(ctypes.Structure):
  _fields_ = [
    ("code", ctypes.c_uint64), ("arguments", ctypes.c_uint64), ("argument_bytes", ctypes.c_uint64),
    ("regions", ctypes.c_void_p), ("region_count", ctypes.c_int64), ("groups", ctypes.c_int32 * 3),
    ("threads", ctypes.c_int32 * 3), ("local_bytes", ctypes.c_int32), ("private_bytes", ctypes.c_int32),
    ("vectors", ctypes.c_int32), ("accumulators", ctypes.c_int32), ("user_count", ctypes.c_int32),
    ("group_register", ctypes.c_int32), ("group_bits", ctypes.c_int32), ("packed", ctypes.c_int32),
    ("argument_register", ctypes.c_int32), ("float_mode", ctypes.c_int32), ("ieee", ctypes.c_int32),
    ("backwards", ctypes.c_int32), ("most_steps", ctypes.c_int64), ("counters", ctypes.c_char_p * 4),
    ("counted", ctypes.c_int64), ("logged", ctypes.c_int32), ("hazards", ctypes.c_int32),
    ("segmented", ctypes.c_int32), ("private_buffer", ctypes.c_int32), ("private_begin", ctypes.c_int32),
    ("private_offset", ctypes.c_int32), ("private_words", ctypes.c_uint32 * 4), ("private_base", ctypes.c_uint64),
    ("wave_bytes", ctypes.c_uint32), ("waves", ctypes.c_uint32), ("two_caches", ctypes.c_int32),
  ]  # fmt: skip


class _Program(ctypes.Structure):
  _fields_ = [
    ("index", ctypes.c_void_p), ("size", ctypes.c_int64), ("ops", ctypes.c_void_p), ("miss", ctypes.c_void_p),
    ("seen", ctypes.c_void_p),
    ("pc", ctypes.c_int64), ("text", ctypes.c_char * 1024),
  ]  # fmt: skip


def lanes_of(chip: str, descriptor: bytes) -> int:
  """Threads of a wave of a kernel: ENABLE_WAVEFRONT_SIZE32 of its descriptor. Raises Unknown."""
  narrow = descriptor[57] >> 2 & 1
  if narrow and family_of(chip) == "cdna":
    raise Unknown(f"a descriptor that asks for waves of 32 lanes on {chip}, which has none")
  return 32 if narrow else 64


def source(lanes: int, cdna: bool) -> str:
  """The C++ program for waves of 32 or 64 lanes."""
  head = [f"#define LANES {lanes}", f"#define CDNA {int(cdna)}", f"#define DUAL {codes()['dual']}"]
  rows = enumerate(meanings()[name].code for name in codes())
  functions = [f"static void op_{n}(Wave& w, const Op& o) {{ {code}; }}" for n, code in rows]
  table = "const Function FUNCTIONS[] = {" + ", ".join(f"op_{n}" for n in range(len(functions))) + "};"
  return "\n".join([*head, *((HERE / name).read_text() for name in HEADERS), *functions, table])


@cache
def library(lanes: int, cdna: bool) -> ctypes.CDLL:
  """The emulator of such waves, compiled. Raises Refused."""
  return ctypes.CDLL(str(built(source(lanes, cdna), FLAGS)))


class _Code:
  """A kernel's code, taken apart as far as it was run."""

  def __init__(self, code: bytes, chip: str) -> None:
    self.code, self.chip = code, chip
    self.index = np.full(len(code) // 4, -1, np.int32)
    self.ops = bytearray()
    self.room = (ctypes.c_char * (ctypes.sizeof(Op) * 64))()
    self.error: Exception | None = None
    self.callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(self.miss)
    self.program = _Program(size=len(code) // 4 * 4)
    self.program.index = self.index.ctypes.data
    self.seen = np.zeros(len(code) // 4, np.uint8)
    self.program.seen = self.seen.ctypes.data
    self.program.ops = ctypes.addressof(self.room)
    self.program.miss = ctypes.cast(self.callback, ctypes.c_void_p)

  def miss(self, pc: int) -> int:
    """Take the instruction at a byte apart; not 0 if there is none that is known."""
    try:
      made = b"".join(decoded(self.code[pc : pc + 20], self.chip))
    except Exception as error:  # which must not go through C++
      self.error = error
      return 1
    self.index[pc // 4] = len(self.ops) // ctypes.sizeof(Op)
    self.ops += made
    if len(self.ops) > len(self.room):
      self.room = (ctypes.c_char * (2 * len(self.ops)))()
      ctypes.memmove(self.room, bytes(self.ops), len(self.ops))
      self.program.ops = ctypes.addressof(self.room)
    else:
      ctypes.memmove(ctypes.addressof(self.room) + len(self.ops) - len(made), made, len(made))
    return 0


_codes: OrderedDict[tuple[bytes, str], _Code] = OrderedDict()


def _code(code: bytes, chip: str) -> _Code:
  found = _codes.pop((code, chip), None) or _Code(code, chip)
  _codes[code, chip] = found
  while len(_codes) > KEPT:
    _codes.popitem(last=False)
  return found


def run(launch: Launch, seen: set[int] | None = None, steps: list[NDArray[np.uint64]] | None = None) -> int:
  """Run all workgroups; how many instructions of waves that were. To `seen` come bytes of the code where something was
  run: a wait only if something was waited for. To `steps` comes each instruction that was run, in order: the number of
  its wave, in the upper half, and its byte in the code. Raises Fault, and Unknown for an instruction that is not known
  here."""
  family = family_of(launch.chip)
  end = max((high for low, high in launch.regions if low <= launch.entry < high), default=0)
  code = _code(ctypes.string_at(launch.entry, max(0, min(end - launch.entry, DISTINCT)) // 4 * 4), launch.chip)
  regions = np.array(sorted(launch.regions), np.uint64).reshape(-1, 2)
  given = _given(launch, family)
  given.regions, given.region_count = regions.ctypes.data, len(regions)
  program = code.program
  code.seen[:] = 0
  given.logged = int(steps is not None)
  machine = library(lanes_of(launch.chip, launch.descriptor), family == "cdna")
  failed = machine.run(ctypes.byref(given), ctypes.byref(program))
  if steps is not None:
    first = ctypes.POINTER(ctypes.c_uint64)()
    count = machine.steps_of(ctypes.byref(first))
    steps.append(np.ctypeslib.as_array(first, (count,)).copy() if count else np.zeros(0, np.uint64))
  if seen is not None:
    seen.update(4 * int(n) for n in np.flatnonzero(code.seen))
    waits, ops, size = (codes()["s_waitcnt"], codes()["s_wait_alu"]), bytes(code.ops), ctypes.sizeof(Op)
    idle = [n for n in np.flatnonzero(code.seen == 1) if Op.from_buffer_copy(ops, size * code.index[n]).code in waits]
    seen.difference_update(4 * int(n) for n in idle)
  if not failed:
    return int(given.counted)
  try:
    lanes = lanes_of(launch.chip, launch.descriptor)
    made = str(decode(code.code[program.pc : program.pc + 20], launch.chip, lanes=lanes))
  except AsmError:
    made = "code"
  if failed == 4:
    assert code.error is not None
    kind = Fault if isinstance(code.error, AsmError) else Unknown
    raise kind(f"{made} at byte {program.pc}: {code.error}") from code.error
  raise Fault(f"{made} at byte {program.pc}: {program.text.decode(errors='replace')}")


def _given(launch: Launch, family: str) -> _Launch:
  """What registers have at first, and how many there are: "Kernel Descriptor" in LLVM's guide."""
  rsrc3, rsrc1, rsrc2 = struct.unpack_from("<III", launch.descriptor, 44)
  properties, preload = struct.unpack_from("<HH", launch.descriptor, 56)
  # before gfx940, four registers are a buffer for private memory, and two say where that begins; without private memory
  # nobody wrote them here
  segmented = launch.chip in ("gfx900", "gfx908", "gfx90a")
  segments = properties & 0b100001 if segmented else 0
  if properties & 0b100111 & ~segments or preload:
    raise Unknown(f"a descriptor with properties {properties:#x}, {preload:#x}")
  unified = family == "cdna" and launch.chip not in ("gfx900", "gfx908")
  if unified and rsrc3 >> 16 & 1:
    raise Unknown("a descriptor that has waves of a workgroup on several compute units (TG_SPLIT)")
  vectors = (8 if unified or properties >> 10 & 1 else 4) * ((rsrc1 & 63) + 1)
  accumulators = vectors if launch.chip == "gfx908" else 0
  if unified:  # one file, of which the part behind ACCUM_OFFSET is accumulators
    direct = 4 * ((rsrc3 & 63) + 1)
    vectors, accumulators = direct, max(0, vectors - direct)
  users = rsrc2 >> 1 & 31
  arguments = 4 * (segments & 1)  # the first register of their address
  begin = arguments + 2 * (properties >> 3 & 1) + 2 * (properties >> 4 & 1)
  offset = users + (rsrc2 >> 7 & 15).bit_count()  # behind the workgroup's numbers and size
  given = _Launch(
    code=launch.entry, arguments=launch.arguments, argument_bytes=launch.argument_bytes, local_bytes=launch.local_bytes,
    private_bytes=launch.private_bytes, vectors=min(vectors, 256), accumulators=min(accumulators, 256),
    user_count=users, group_register=-1 if family == "rdna4" else users, group_bits=rsrc2 >> 7 & 7,
    packed=rsrc2 >> 11 & 3,
    argument_register=arguments if properties >> 3 & 1 else -1, float_mode=rsrc1 >> 12 & 255,
    ieee=rsrc1 >> 23 & 1, backwards=int(launch.backwards), most_steps=MOST_STEPS, hazards=_hazards(launch.chip),
    segmented=segmented, private_buffer=0 if segments & 1 else -1, private_begin=begin if segments >> 5 else -1,
    private_offset=offset if segmented and rsrc2 & 1 else -1,
    two_caches=family != "cdna" and rsrc1 >> 29 & 1,
  )  # fmt: skip
  if segmented:
    _place_private(given, launch)
  given.groups[:], given.threads[:] = launch.groups, launch.threads
  given.counters[:] = [name.encode() for name in COUNTERS[family]]
  return given


def _place_private(given: _Launch, launch: Launch) -> None:
  """What a wave finds in registers of where private memory is."""
  private = launch.private
  if private is None:
    nbytes = -(-launch.private_bytes * 64 // 1024) * 1024
    words = PRIVATE_BEGIN & 0xFFFFFFFF, PRIVATE_BEGIN >> 32 | 1 << 31, nbytes * 33, 3 << 21 | 1 << 23
    private = PrivateMemory(words, PRIVATE_BEGIN, nbytes, 33)
  given.private_words[:], given.private_base = private.buffer, private.address
  given.wave_bytes, given.waves = private.wave_bytes, private.waves


__all__ = ["MOST_STEPS", "Fault", "Launch", "PrivateMemory", "Unknown", "lanes_of", "run"]
