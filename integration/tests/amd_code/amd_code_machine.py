"""Instructions of AMD's GPUs, run by the emulator on arrays: what its tests share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from gpu_model.amd_code.emulator import Launch, run
from tiny_asm_amd import AsmError, Isa, Kernel, null, s, v
from tiny_asm_amd.table import family_of, table

ALL = 0xFFFFFFFF
Array = Any
Body = list[Any]


def lanes(chip: str) -> int:
  """Threads of a wave."""
  return 64 if family_of(chip) == "cdna" else 32


def launched(
  chip: str, body: Sequence[Any], buffers: Sequence[Array], *, local: int = 0, private: int = 0, threads: int = 0,
  groups: int = 1, backwards: bool = False, wave: int = 0,
) -> None:  # fmt: skip
  """Run instructions with the addresses of arrays as arguments, in s[0:1]; the workgroup is in s2 (RDNA 4: ttmp9), the
  thread in v0. `wave`: its lanes, if not those that waves of the chip have mostly."""
  threads = threads or wave or lanes(chip)
  kernel = Kernel.of(
    chip, "test", body, argument_bytes=8 * len(buffers), local_bytes=local, threads=threads, lanes=wave
  )
  code = kernel.machine_code + bytes(64)
  place = ctypes.create_string_buffer(code, len(code))
  arguments = np.array([b.ctypes.data for b in buffers], np.uint64)
  regions = [(b.ctypes.data, b.ctypes.data + b.nbytes) for b in (*buffers, arguments)]
  regions.append((ctypes.addressof(place), ctypes.addressof(place) + len(code)))
  given = Launch(chip, ctypes.addressof(place), arguments.ctypes.data, arguments.nbytes, kernel.descriptor(0), local,
                 private, (groups, 1, 1), (threads, 1, 1), regions, backwards)  # fmt: skip
  run(given)


def run_image(
  chip: str, image: bytes, kernel: Any, arrays: Sequence[Array], groups: tuple[int, ...], threads: tuple[int, ...],
  private: int | None = None,
) -> set[int]:  # fmt: skip
  """Run a kernel of a code object's image on arrays, by what is said of it (`tiny_runtime_amd.Descriptor`); the places
  in the image where something was done. `private`: other bytes of private memory."""
  room = ctypes.create_string_buffer(len(image) + 512)
  place = -(-ctypes.addressof(room) // 256) * 256
  ctypes.memmove(place, image, len(image))
  arguments = np.array([a.ctypes.data for a in arrays], np.uint64)
  regions = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in (*arrays, arguments)]
  regions.append((place, place + len(image) + 256))
  seen: set[int] = set()
  given = Launch(
    chip, place + kernel.entry, arguments.ctypes.data, arguments.nbytes, image[kernel.place : kernel.place + 64],
    kernel.local_bytes, kernel.private_bytes if private is None else private, (groups[0], groups[1], groups[2]),
    (threads[0], threads[1], threads[2]), regions,
  )  # fmt: skip
  run(given, seen)
  return {kernel.entry + n for n in seen}


class Words:
  """A family's instructions that move words, and that wait for them."""

  def __init__(self, chip: str) -> None:
    self.isa, self.chip, self.family = Isa(chip), chip, family_of(chip)

  def addresses(self, to: Any, offset: int = 0) -> list[Any]:
    """Load one address, or two, of the arguments."""
    count = to.count if hasattr(to, "count") else 2
    name = {2: ("s_load_b64", "s_load_dwordx2"), 4: ("s_load_b128", "s_load_dwordx4")}[count][self.family == "cdna"]
    return [getattr(self.isa, name)(to, s[0:1], offset), *self.wait()]

  def wait(self) -> list[Any]:
    """Until all that was asked for is there."""
    if self.family == "rdna4":
      return [self.isa.s_wait_loadcnt(0), self.isa.s_wait_dscnt(0), self.isa.s_wait_kmcnt(0)]
    return [self.isa.s_waitcnt(vmcnt=0, lgkmcnt=0)]

  def settled(self) -> list[Any]:
    """Until what the SALU wrote is there for all."""
    return [self.isa.s_wait_alu(0xFFFE)] if self.family == "rdna4" else []

  def multiplied(self) -> list[Any]:
    """Until what a product of vectors wrote is there for all: CDNA does not wait by itself."""
    return [self.isa.s_nop(2)] if self.family == "cdna" else []

  def load(self, to: Any, address: Any, base: Any, offset: int = 0) -> Any:
    """A word of each lane."""
    make = self.isa.global_load_dword if self.family == "cdna" else self.isa.global_load_b32
    return make(to, address, base, offset=offset)

  def store(self, address: Any, value: Any, base: Any, offset: int = 0) -> Any:
    """A word of each lane."""
    make = self.isa.global_store_dword if self.family == "cdna" else self.isa.global_store_b32
    return make(address, value, base, offset=offset)

  def barrier(self) -> list[Any]:
    """All waves of the workgroup."""
    if self.family == "rdna4":
      return [self.isa.s_barrier_signal(-1), self.isa.s_barrier_wait(0xFFFF)]
    return [self.isa.s_barrier()]


def computed(
  chip: str, instructions: Callable[[], Sequence[Any]], inputs: Sequence[Array], words: int = 1, private: int = 0,
  wave: int = 0,
) -> Array:  # fmt: skip
  """What v[10:] is after instructions that find the inputs in v[1], v[2], …, 32 bits each; a row per word."""
  count, move = wave or lanes(chip), Words(chip)
  out = np.zeros((words, count), np.uint32)
  given = [np.ascontiguousarray(x) for x in inputs]
  body: list[Any] = [*move.addresses(s[4:5]), move.isa.v_lshlrev_b32(v[0], 2, v[0])]
  for n in range(len(given)):
    body += move.addresses(s[6:7], 8 * (n + 1))
    body += [move.load(v[n + 1], v[0], s[6:7])]
  body += [*move.wait(), *instructions()]
  body += [move.store(v[0], v[10 + n], s[4:5], 4 * count * n) for n in range(words)]
  launched(chip, [*body, move.isa.s_endpgm()], [out, *given], private=private, wave=wave)
  return out if words > 1 else out[0]


# *** accesses to memory ***


def named(isa: Isa, *names: str) -> Callable[..., Any]:
  """The instruction that a family has by one of these names."""
  (found,) = [n for n in names if n in table(family_of(isa.chip)).named]
  instruction: Callable[..., Any] = getattr(isa, found)
  return instruction


ZERO: dict[str, Any] = {"gfx1100": 0, "gfx1201": null, "gfx942": 0}
"""No scalar offset of a buffer."""


def range_of(first: int, count: int) -> Any:
  return v[first : first + count - 1] if count > 1 else v[first]


def descriptor(chip: str, records: int, stride: int = 0, last: int | None = None) -> Body:
  """One of the buffer at s[4:5], in s[8:11]; by itself a raw one."""
  how = (3 << 28 if chip != "gfx942" else 0) if last is None else last
  return ["s_mov_b32 s8, s4", f"s_or_b32 s9, s5, {stride << 16}", f"s_mov_b32 s10, {records}", f"s_mov_b32 s11, {how}"]


def flat_address(chip: str) -> Body:
  """s[4:5] + v0, in v[2:3]."""
  body = ["v_mov_b32 v3, s5", "v_mov_b32 v2, s4"]
  if chip == "gfx942":
    more = ["v_add_co_u32 v2, vcc, v2, v0", "s_nop 1", "v_addc_co_u32 v3, vcc, 0, v3, vcc"]
  else:
    more = ["v_add_co_u32 v2, vcc_lo, v2, v0", "v_add_co_ci_u32 v3, vcc_lo, 0, v3, vcc_lo"]
  return [*body, *more]


def started(chip: str) -> tuple[Isa, Words, Body]:
  """s[4:5] and s[6:7] are the first two buffers, v0 is 16 times the lane."""
  isa, move = Isa(chip), Words(chip)
  return isa, move, [*move.addresses(s[4:7]), isa.v_lshlrev_b32(v[0], 4, v[0])]


# *** tables of instructions ***

CHIPS = {"rdna3": "gfx1100", "rdna4": "gfx1201", "cdna": "gfx942"}
TYPES: dict[str, Any] = {
  "f16": np.float16, "f32": np.float32, "f64": np.float64, "i16": np.int16, "u16": np.uint16, "i32": np.int32,
  "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
EDGES: dict[str, list[Any]] = {
  "f": [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -1.5, 2.5, 1e-3, -7.0, 1024.0],
  "i": [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 255, 256, 0x7FFF, 0x8000, 0xFFFF],
}
Function = Callable[..., Any]


def drawn(kind: str, number: int, count: int) -> Any:
  """Numbers of a type: edges in an order of their own, and others at random."""
  free = np.random.default_rng([number, sum(map(ord, kind))])
  dtype, bits = np.dtype(TYPES[kind]), 8 * np.dtype(TYPES[kind]).itemsize
  if kind[0] == "f":
    values = free.standard_normal(count) * 10.0 ** free.integers(-3, 4, count)
    values[: len(EDGES["f"])] = EDGES["f"]
    values[14] = {16: 3e-7, 32: 1e-40, 64: 1e-310}[bits]  # denormal
    free.shuffle(values)
    return values.astype(dtype)
  whole = (
    free.integers(0, 1 << bits, count, np.uint64, endpoint=False)
    if bits < 64
    else free.integers(0, 1 << 64, count, np.uint64, endpoint=False)
  )
  edges = [e & (1 << bits) - 1 for e in (*EDGES["i"], -1, 1 << (bits - 1), (1 << (bits - 1)) - 1)]
  whole[: len(edges)] = edges
  free.shuffle(whole)
  return whole.astype(f"u{bits // 8}").view(dtype)


def as_words(values: Any) -> list[Any]:
  """The registers that numbers take, 32 bits a lane."""
  if values.itemsize == 8:
    pairs = values.view(np.uint32).reshape(-1, 2)
    return [pairs[:, 0].copy(), pairs[:, 1].copy()]
  return [values.view(f"u{values.itemsize}").astype(np.uint32)]


def applied(chip: str, instructions: Callable[[list[Any], Any], list[Any]], inputs: list[Any], result: str) -> Any:
  """What an instruction makes of numbers: it gets registers of its operands, and of its result."""
  count, move, wide = lanes(chip), Words(chip), TYPES[result]().itemsize == 8
  out = np.zeros((1 + wide, count), np.uint32)
  given: list[tuple[int, Any]] = []
  registers: list[Any] = []
  for values in inputs:
    first, words = 2 + 2 * len(registers), as_words(values)
    registers.append(v[first : first + 1] if len(words) == 2 else v[first])
    given += list(enumerate(words, first))
  body: list[Any] = [*move.addresses(s[4:5]), move.isa.v_lshlrev_b32(v[0], 2, v[0])]
  for n, (register, _) in enumerate(given):
    body += [*move.addresses(s[6:7], 8 * (n + 1)), move.load(v[register], v[0], s[6:7])]
  body += [*move.wait(), move.isa.v_mov_b32(v[20], 0)]
  body += [*instructions(registers, v[20:21] if wide else v[20]), *move.multiplied()]
  body += [move.store(v[0], v[20 + n], s[4:5], 4 * count * n) for n in range(1 + wide)]
  launched(chip, [*body, move.isa.s_endpgm()], [out, *(words for _, words in given)])
  if wide:
    return (out[0].astype(np.uint64) | out[1].astype(np.uint64) << np.uint64(32)).view(TYPES[result])
  return out[0].astype(f"u{TYPES[result]().itemsize}").view(TYPES[result])


def made(chip: str, name: str, to: Any, sources: list[Any], kinds: tuple[str, ...]) -> Any:
  """An instruction; of numbers with 16 bits the lower half of a register, where there are names for that."""
  halves = [r.l if k.endswith("16") else r for r, k in zip([to, *sources], kinds)]
  for operands in ([to, *sources], halves):
    try:
      return getattr(Isa(chip), name)(*operands)
    except AsmError as error:
      last = error
  raise last


def same(found: Any, wanted: Any) -> Any:
  """Whether they are the same numbers, with the signs of zeros; any NaN is any NaN."""
  if found.dtype.kind != "f":
    return found == wanted
  return (found == wanted) & (np.signbit(found) == np.signbit(wanted)) | np.isnan(found) & np.isnan(wanted)


def cases(rows: list[Any]) -> list[Any]:
  """A row for each family that has it."""
  found = []
  for name, *rest in rows:
    names = name.split() * (3 if " " not in name else 1)
    for family, mnemonic in zip(CHIPS, names):
      if mnemonic != "-":
        found.append(pytest.param(CHIPS[family], mnemonic, *rest, id=f"{CHIPS[family]}-{mnemonic}"))
  return found


ORDERS: dict[str, Function] = {
  "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
  "lg": lambda a, b: (a < b) | (a > b), "neq": np.not_equal, "nlt": lambda a, b: ~(a < b),
  "nle": lambda a, b: ~(a <= b), "ngt": lambda a, b: ~(a > b), "nge": lambda a, b: ~(a >= b),
  "nlg": lambda a, b: ~((a < b) | (a > b)), "u": lambda a, b: np.isnan(a) | np.isnan(b),
  "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "f": lambda a, b: np.zeros(a.shape, bool),
  "t": lambda a, b: np.ones(a.shape, bool), "tru": lambda a, b: np.ones(a.shape, bool),
}  # fmt: skip
