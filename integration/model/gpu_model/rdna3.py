"""An emulator of RDNA 3: runs the bytes of a kernel, 32 lanes at a time, with NumPy.

After AMD's "RDNA3 Instruction Set Architecture": what an instruction does, which counter it is waited for by, and where
the elements of matrices are (7.9). It knows nothing of the plugin; instructions are taken apart by tiny-asm-amd.

A load becomes visible when it is waited for, and not before: who uses its register earlier, reads one that nobody
wrote, goes outside of memory, or comes to a barrier that other waves never reach, is told so by Fault, with the
instruction.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from tiny_asm_amd import AsmError, Instruction, decode

LANES, ALL = 32, 0xFFFFFFFF
VCC, NULL, M0, EXEC, SCC, LITERAL, VECTOR = 106, 124, 125, 126, 253, 255, 256
MOST_STEPS = 1_000_000
"""Instructions of a wave, before it is taken for one that never ends."""
NEG, ABS, HALF, HIGH = 1, 2, 4, 8
Array = Any
Region = tuple[int, int]
_CONSTANTS = dict(zip(range(240, 249), (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)))


class Fault(Exception):
  """What code does that it must not."""


class Unknown(Fault):
  """An instruction that the emulator does not know yet."""


@lru_cache(maxsize=1 << 16)
def _decoded(code: bytes) -> Instruction:
  return decode(code, "gfx1100")


# *** arithmetic ***


def f32(bits: Array) -> Array:
  """Words as floats."""
  return bits.astype(np.uint32).view(np.float32)


def _fma(a: Array, b: Array, c: Array) -> Array:
  """a * b + c, rounded once."""
  return _exact(a, b, c).astype(np.float32)


def _exact(a: Array, b: Array, c: Array) -> Array:
  """a * b + c of float32 numbers in float64, rounded to odd: what it is rounded to next is as if it were exact."""
  product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
  total = product + addend
  part = total - product
  error = (product - (total - part)) + (addend - part)
  odd = total.view(np.uint64) & 1
  inexact = np.isfinite(total) & np.isfinite(error) & (error != 0) & (odd == 0)
  toward = np.where(error > 0, np.inf, -np.inf)
  return np.where(inexact, np.nextafter(total, toward), total)


def _max(a: Array, b: Array) -> Array:
  return np.fmax(a, b)


def _exponent(x: Array) -> Array:
  return (x.view(np.uint32) >> 23 & 255).astype(np.int32)


def _div_scale(s0: Array, s1: Array, s2: Array) -> tuple[Array, Array]:
  """What a division's operand is scaled by, and whether its result has to be, too: 16.12.1, V_DIV_SCALE_F32."""
  e1, e2 = _exponent(s1), _exponent(s2)
  up, down = np.ldexp(s0, 64), np.ldexp(s0, -64)
  inverse = np.float32(1) / s1
  small_inverse = (inverse != 0) & (_exponent(inverse) == 0)
  quotient = s2 / s1
  small = (quotient != 0) & (_exponent(quotient) == 0) | (quotient == 0) & (s2 != 0)
  first, last = s0.view(np.uint32) == s1.view(np.uint32), s0.view(np.uint32) == s2.view(np.uint32)
  denormal = (e1 == 0) & (s1 != 0)
  conditions = [(s1 == 0) | (s2 == 0), e2 - e1 >= 96, denormal, small_inverse & small, small_inverse, small, e2 <= 23]
  nan = np.full_like(s0, np.nan)
  # both small: the denominator goes down, which is what makes the quotient representable; the manual has it go up
  results = [nan, np.where(first, up, s0), up, np.where(first, down, s0), down, np.where(last, up, s0), up]
  flags = np.select(conditions, [c & False if n in (0, 2, 4, 6) else c for n, c in enumerate(conditions)], False)
  return np.select(conditions, results, s0), flags


def _div_fixup(s0: Array, s1: Array, s2: Array) -> Array:
  sign = (s1.view(np.uint32) ^ s2.view(np.uint32)) >> 31

  def signed(x: Array) -> Array:
    return np.where(sign, -x, x).astype(np.float32)

  infinite, zero = signed(np.full_like(s0, np.inf)), signed(np.zeros_like(s0))
  tiny = _exponent(s2) - _exponent(s1) < -150
  # a quotient that is none is one of numbers so far apart that its estimate is infinite
  conditions = [np.isnan(s1) | np.isnan(s2), (s1 == 0) & (s2 == 0) | np.isinf(s1) & np.isinf(s2),
                (s1 == 0) | np.isinf(s2), np.isinf(s1) | (s2 == 0) | tiny, np.isnan(s0)]  # fmt: skip
  results = [s1 + s2, np.full_like(s0, np.nan), infinite, zero, infinite]
  return np.select(conditions, results, signed(np.abs(s0)))


_F32: dict[str, Callable[..., Array]] = {
  "add": np.add, "sub": np.subtract, "subrev": lambda a, b: b - a, "mul": np.multiply, "max": _max, "min": np.fmin,
  "rcp": lambda a: np.float32(1) / a, "sqrt": np.sqrt, "rsq": lambda a: np.float32(1) / np.sqrt(a), "mov": lambda a: a,
  "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rndne": np.rint, "fma": _fma, "div_fixup": _div_fixup,
  "fmaak": _fma, "exp": np.exp2, "log": np.log2,
}  # fmt: skip
_U32: dict[str, Callable[..., Array]] = {
  "add_nc_u32": lambda a, b: a + b, "sub_nc_u32": lambda a, b: a - b, "subrev_nc_u32": lambda a, b: b - a,
  "and_b32": lambda a, b: a & b, "or_b32": lambda a, b: a | b, "xor_b32": lambda a, b: a ^ b, "not_b32": lambda a: ~a,
  "xnor_b32": lambda a, b: ~(a ^ b), "mov_b32": lambda a: a, "lshlrev_b32": lambda a, b: b << (a & 31),
  "lshrrev_b32": lambda a, b: b >> (a & 31), "and_or_b32": lambda a, b, c: a & b | c,
  "or3_b32": lambda a, b, c: a | b | c, "add3_u32": lambda a, b, c: a + b + c,
  "lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
  "add_lshl_u32": lambda a, b, c: (a + b) << (c & 31), "lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
  "xor3_b32": lambda a, b, c: a ^ b ^ c, "mul_lo_u32": lambda a, b: a * b,
  "mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF), "max_u32": np.maximum, "min_u32": np.minimum,
  "mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
  "ashrrev_i32": lambda a, b: (b.view(np.int32) >> (a & 31).astype(np.int32)).view(np.uint32),
  "bfe_u32": lambda a, b, c: a >> (b & 31) & _ones(c & 31), "bfi_b32": lambda a, b, c: a & b | ~a & c,
  "bfe_i32": lambda a, b, c: _extended(a >> (b & 31) & _ones(c & 31), c & 31),
  "mul_hi_u32": lambda a, b: (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32),
  "max_i32": lambda a, b: np.maximum(a.view(np.int32), b.view(np.int32)).view(np.uint32),
  "min_i32": lambda a, b: np.minimum(a.view(np.int32), b.view(np.int32)).view(np.uint32),
}  # fmt: skip


def _ones(count: Array) -> Array:
  return ((np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)


def _extended(value: Array, bits: Array) -> Array:
  sign = np.where(bits > 0, np.uint32(1) << np.maximum(bits, 1).astype(np.uint32) - np.uint32(1), np.uint32(0))
  return ((value ^ sign) - sign).astype(np.uint32)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
  "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
  "lg": lambda a, b: (a < b) | (a > b), "neq": np.not_equal, "nlt": lambda a, b: ~(a < b),
  "nle": lambda a, b: ~(a <= b), "ngt": lambda a, b: ~(a > b), "nge": lambda a, b: ~(a >= b),
  "nlg": lambda a, b: ~((a < b) | (a > b)),
  "u": lambda a, b: np.isnan(a) | np.isnan(b), "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}  # fmt: skip
_TYPES: dict[str, Any] = {
  "f16": np.float16, "f32": np.float32, "f64": np.float64, "u16": np.uint16, "i16": np.int16, "b16": np.uint16,
  "u32": np.uint32, "i32": np.int32, "b32": np.uint32, "u64": np.uint64, "i64": np.int64, "b64": np.uint64,
}  # fmt: skip
_TYPED: dict[str, Callable[..., Array]] = {
  "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.fmax, "min": np.fmin, "add_nc": np.add,
  "sub_nc": np.subtract, "mul_lo": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
  "not": np.invert, "mov": lambda a: a, "trunc": np.trunc, "floor": np.floor, "ceil": np.ceil, "rndne": np.rint,
  "sqrt": np.sqrt, "rcp": lambda a: np.ones_like(a) / a, "mad": lambda a, b, c: a * b + c, "rcp_iflag": lambda a: 1 / a,
  "lshlrev": lambda a, b: b << (a & (8 * b.itemsize - 1)), "lshrrev": lambda a, b: b >> (a & (8 * b.itemsize - 1)),
  "ashrrev": lambda a, b: b >> (a & (8 * b.itemsize - 1)),
}  # fmt: skip
"""Operations on numbers of the type at the end of an instruction's name."""


# *** waves ***


@dataclass
class Load:
  """What is on its way to registers, by their numbers; `done` puts it there."""

  registers: frozenset[int]
  done: Callable[[], None]
  ordered: bool = True
  """It comes after those before it: loads of scalars do not."""
  half: str = ""
  """The half of a register that it is, if it is one."""


@dataclass
class Group:
  """A workgroup: its memory, and who is where."""

  lds: bytearray
  regions: Sequence[Region]


@dataclass
class Wave:
  """32 threads. Registers have a number as in operands: 256 and more are vectors."""

  code: Callable[[int], bytes]
  group: Group
  pc: int
  active: int = ALL
  scc: int = 0
  scalars: list[int] = field(default_factory=lambda: [0] * 128)
  known: set[int] = field(default_factory=lambda: {EXEC, EXEC + 1})
  vectors: Array = field(default_factory=lambda: np.zeros((256, LANES), np.uint32))
  written: Array = field(default_factory=lambda: np.zeros((256, LANES), bool))
  counters: dict[str, deque[Load]] = field(default_factory=lambda: {n: deque() for n in ("vmcnt", "lgkmcnt", "vscnt")})

  def __post_init__(self) -> None:
    self.scalars[EXEC] = self.active

  # registers

  @property
  def mask(self) -> Array:
    """Lanes that are on."""
    return (self.scalars[EXEC] >> np.arange(LANES, dtype=np.uint64) & np.uint64(1)).astype(bool)

  def _ready(self, number: int) -> None:
    for name, loads in self.counters.items():
      if any(number in load.registers for load in loads):
        raise Fault(f"{_name(number)} is used before what it is loaded with was waited for by {name}")

  def scalar(self, number: int, literal: int | None, words: int = 1) -> int:
    """The value of an operand that is the same for all lanes."""
    if number == LITERAL:
      return (literal or 0) & ((1 << 32 * words) - 1)
    if 128 <= number <= 192:
      return number - 128
    if 193 <= number <= 208:
      return (192 - number) & ((1 << 32 * words) - 1)
    if number in _CONSTANTS:
      kind = np.float64 if words == 2 else np.float32
      return int(np.array(_CONSTANTS[number], kind).view(np.uint64 if words == 2 else np.uint32))
    if number == SCC:
      return self.scc
    if number == NULL:
      return 0
    if number > 127:
      raise Unknown(f"operand {number} is not known here")
    value = 0
    for n in range(words):
      self._ready(number + n)
      if number + n not in self.known:
        raise Fault(f"{_name(number + n)} is read, and nobody wrote it")
      value |= self.scalars[number + n] << 32 * n
    return value

  def set_scalar(self, number: int, value: int, words: int = 1) -> None:
    """Write registers of the wave."""
    for n in range(words):
      if number != NULL:
        self._ready(number + n)
        self.scalars[number + n] = value >> 32 * n & ALL
        self.known.add(number + n)

  def vector(self, number: int, literal: int | None = None) -> Array:
    """Words of an operand, a lane each."""
    if number < VECTOR:
      return np.full(LANES, self.scalar(number, literal), np.uint32)
    self._ready(number)
    if not self.written[number - VECTOR][self.mask].all():
      raise Fault(f"{_name(number)} is read, and nobody wrote it in every lane that is on")
    return self.vectors[number - VECTOR].copy()

  def set_vector(self, number: int, value: Array, mask: Array | None = None) -> None:
    """Write words of the lanes that are on."""
    self._ready(number)
    on = self.mask if mask is None else mask
    self.vectors[number - VECTOR][on] = value[on]
    self.written[number - VECTOR][on] = True

  # memory

  def address(self, begin: int, size: int) -> int:
    """An address of memory with so many bytes."""
    for low, high in self.group.regions:
      if low <= begin and begin + size <= high:
        return begin
    raise Fault(f"{size} bytes at {begin:#x} are in no buffer")

  def put(
    self, counter: str, registers: Sequence[int], done: Callable[[], None], ordered: bool = True, half: str = ""
  ) -> None:
    """Something is on its way: not to where something else is, but to the other half of a register."""
    for number in registers:
      before = [load for loads in self.counters.values() for load in loads if number in load.registers]
      if not half or any(load.half in ("", half) for load in before):
        self._ready(number)
    self.counters[counter].append(Load(frozenset(registers), done, ordered, half))

  def wait(self, counter: str, most: int) -> None:
    """Until so many are on their way at most."""
    loads = self.counters[counter]
    if most and any(not load.ordered for load in loads):
      return  # which of them are done nobody can know
    while len(loads) > most:
      loads.popleft().done()

  # running

  def run(self) -> Iterator[None]:
    """Run to the end; yields at each barrier. Raises Fault."""
    for _ in range(MOST_STEPS):
      made: Instruction | None = None
      try:
        made = _decoded(self.code(self.pc))
        here = self.pc
        self.pc += made.size
        name = made.mnemonic
        if name == "s_endpgm":
          return
        if name == "s_barrier":
          yield
          continue
        step(self, made)
      except (AsmError, Fault) as error:
        kind = Unknown if isinstance(error, Unknown) else Fault
        raise kind(f"{made or 'code'} at byte {self.pc if made is None else here}: {error}") from error
    raise Fault(f"a wave was not done after {MOST_STEPS} instructions")


def _name(number: int) -> str:
  return (
    f"v{number - VECTOR}" if number >= VECTOR else {VCC: "vcc_lo", EXEC: "exec_lo", M0: "m0"}.get(number, f"s{number}")
  )


# *** instructions ***


def step(wave: Wave, made: Instruction) -> None:
  """Do what an instruction does. Raises Fault for one that is not known here."""
  values, name = dict(made.values), made.mnemonic
  if name.startswith("s_"):
    _scalar(wave, made, name, values)
  elif name.startswith("v_dual_"):
    _both(wave, made, name, values)
  elif name.startswith("v_"):
    if made.row.form.endswith(("dpp", "dpp8")):
      raise Unknown("lanes that are permuted are not known here")
    _vector(wave, made, name, values)
  elif name.startswith("global_"):
    _global(wave, name, values)
  elif name.startswith("ds_"):
    _shared(wave, name, values)
  else:
    raise Unknown("it is not known here")


def _signed(value: int, bits: int = 32) -> int:
  return value - (value >> (bits - 1) << bits)


def _scalar(wave: Wave, made: Instruction, name: str, values: dict[str, int]) -> None:
  literal = made.literal
  simm = values.get("simm16", 0)
  if name in ("s_nop", "s_delay_alu", "s_clause", "s_sendmsg", "s_waitcnt_depctr", "s_set_inst_prefetch_distance"):
    return
  if name == "s_waitcnt":
    wave.wait("vmcnt", simm >> 10)
    wave.wait("lgkmcnt", simm >> 4 & 63)
    return
  if name == "s_waitcnt_vscnt":
    return wave.wait("vscnt", values["simm16"])
  if name.startswith("s_load_"):
    return _scalar_load(wave, name, values)
  if name == "s_branch" or name.startswith("s_cbranch_"):
    conditions = {
      "scc0": not wave.scc, "scc1": wave.scc, "execz": not wave.scalars[EXEC], "execnz": wave.scalars[EXEC],
      "vccz": name.endswith("vccz") and not wave.scalar(VCC, None),
      "vccnz": name.endswith("vccnz") and wave.scalar(VCC, None),
    }  # fmt: skip
    if name == "s_branch" or conditions[name.removeprefix("s_cbranch_")]:
      wave.pc += 4 * _signed(simm, 16)
    return
  words = 2 if name.endswith(("64", "_b64")) else 1

  def get(key: str) -> int:
    return wave.scalar(values[key], literal, words)

  full = (1 << 32 * words) - 1
  if name.startswith("s_cmp"):
    return _scalar_compare(wave, name, values, get)
  if name.endswith("_saveexec_b32"):
    old, value = wave.scalars[EXEC], get("src0")
    wave.set_scalar(values["sdst"], old)
    done = {"and": value & old, "or": value | old, "and_not1": value & ~old & ALL}[name[2 : name.index("_saveexec")]]
    wave.set_scalar(EXEC, done)
    wave.scc = int(done != 0)
    return
  if name in ("s_addk_i32", "s_mulk_i32", "s_movk_i32"):
    old = 0 if name == "s_movk_i32" else _signed(wave.scalar(values["sdst"], None))
    result = {"s_addk_i32": old + _signed(simm, 16), "s_mulk_i32": old * _signed(simm, 16)}.get(name, _signed(simm, 16))
    if name == "s_addk_i32":
      wave.scc = int(not -(1 << 31) <= result < 1 << 31)
    return wave.set_scalar(values["sdst"], result & ALL)
  a = get("src0")
  b = get("src1") if "src1" in values else 0
  shift = b & (32 * words - 1)
  sa, sb = _signed(a, 32 * words), _signed(b, 32 * words)
  base = name.removeprefix("s_")
  kind = base.rsplit("_", 1)[0]
  if base in ("add_u32", "addc_u32"):
    result = a + b + (wave.scc if base == "addc_u32" else 0)
    wave.scc = result >> 32
  elif base in ("sub_u32", "subb_u32"):
    result = a - b - (wave.scc if base == "subb_u32" else 0)
    wave.scc = int(result < 0)
  elif base in ("add_i32", "sub_i32"):
    result = sa + sb if base == "add_i32" else sa - sb
    wave.scc = int(not -(1 << 31) <= result < 1 << 31)
  elif kind in ("and", "or", "xor", "and_not1", "or_not1", "lshl", "lshr", "ashr", "not"):
    result = {
      "and": a & b, "or": a | b, "xor": a ^ b, "and_not1": a & ~b, "or_not1": a | ~b & full, "lshl": a << shift,
      "lshr": a >> shift, "ashr": sa >> shift, "not": ~a,
    }[kind] & full  # fmt: skip
    wave.scc = int(result != 0)
  elif base in ("min_u32", "max_u32", "min_i32", "max_i32"):
    x, y = (a, b) if base.endswith("u32") else (sa, sb)
    result = min(x, y) if base.startswith("min") else max(x, y)
    wave.scc = int(result == x)
  elif kind in ("mov", "mul", "cselect", "mul_hi"):
    product = a * b if base.endswith("u32") else sa * sb
    result = {"mov": a, "mul": product, "mul_hi": product >> 32, "cselect": a if wave.scc else b}[kind]
  else:
    raise Unknown("it is not known here")
  wave.set_scalar(values["sdst"], result & full, words)


def _scalar_compare(wave: Wave, name: str, values: dict[str, int], get: Callable[[str], int]) -> None:
  constant = name.startswith("s_cmpk_")
  _, how, kind = name.split("_")[0], name.split("_")[2], name.split("_")[3]
  if constant:
    a, b = wave.scalar(values["sdst"] if "sdst" in values else values["src0"], None), values["simm16"]
    b = _signed(b, 16) if kind[0] == "i" else b
  else:
    a, b = get("src0"), get("src1")
    b = _signed(b) if kind[0] == "i" else b
  a = _signed(a) if kind[0] == "i" else a
  wave.scc = int({"eq": a == b, "lg": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[how])


def _scalar_load(wave: Wave, name: str, values: dict[str, int]) -> None:
  words = int(name.removeprefix("s_load_b")) // 32
  offset = values.get("offset", 0)
  begin = wave.scalar(values["sbase"], None, 2) + _signed(offset, 21)
  if values.get("soffset", NULL) != NULL:
    begin += wave.scalar(values["soffset"], None)
  data = ctypes.string_at(wave.address(begin & ~3, 4 * words), 4 * words)
  target = values["sdst"]

  def done() -> None:
    for n in range(words):
      wave.scalars[target + n] = int.from_bytes(data[4 * n : 4 * n + 4], "little")
      wave.known.add(target + n)

  wave.put("lgkmcnt", range(target, target + words), done, False)


def _floats(wave: Wave, made: Instruction, values: dict[str, int], names: Sequence[str]) -> list[Array]:
  found = []
  for name in names:
    value = f32(wave.vector(values[name], made.literal))
    done = values.get(f"{name}_modifiers", 0)
    value = np.abs(value) if done & ABS else value
    found.append(-value if done & NEG else value)
  return found


def _result(wave: Wave, values: dict[str, int], value: Array) -> None:
  value = value.astype(np.float32)
  scale = {1: 2.0, 2: 4.0, 3: 0.5}.get(values.get("omod", 0))
  value = value * np.float32(scale) if scale else value
  value = np.clip(np.nan_to_num(value, nan=0.0), 0, 1).astype(np.float32) if values.get("clamp") else value
  wave.set_vector(values["vdst"] | VECTOR, value.view(np.uint32))


def _bits(mask: Array) -> int:
  return int(sum(1 << n for n in range(LANES) if mask[n]))


def _vector(wave: Wave, made: Instruction, name: str, values: dict[str, int]) -> None:
  with np.errstate(all="ignore"):
    base = name.removeprefix("v_")
    literal = made.literal if "imm" not in values else values["imm"]
    sources = [n for n in ("src0", "src1", "src2") if n in values]

    def words() -> list[Array]:
      return [wave.vector(_source(made, n, values), literal) for n in sources]

    for n in sources:  # fields of eight bits are vector registers
      values[n] = _source(made, n, values)
    target = values.get("vdst", 0) | VECTOR
    if base.startswith("cmp"):
      return _compare(wave, made, base, values)
    if base in _U32:
      return wave.set_vector(target, _U32[base](*words()).astype(np.uint32))
    kind, _, typed = base.rpartition("_")
    if typed == "f32" and kind in _F32 and "16" not in kind:
      arguments = _floats(wave, made, values, sources)
      if kind == "fmaak":
        arguments.append(np.full(LANES, np.uint32(literal or 0)).view(np.float32))
      return _result(wave, values, _F32[kind](*arguments))
    if base == "fmamk_f32":
      a, b = _floats(wave, made, values, sources)
      return _result(wave, values, _fma(a, np.full(LANES, np.uint32(literal or 0)).view(np.float32), b))
    if base == "fmac_f32":
      a, b = _floats(wave, made, values, ["src0", "src1"])
      return _result(wave, values, _fma(a, b, f32(wave.vector(target))))
    if base == "div_scale_f32":
      arguments = _floats(wave, made, values, sources)
      value, flag = _div_scale(*arguments)
      wave.set_scalar(values["sdst"], _bits(flag & wave.mask))
      return wave.set_vector(target, value.astype(np.float32).view(np.uint32))
    if base == "div_fmas_f32":
      arguments = _floats(wave, made, values, sources)
      value, flags = _exact(*arguments), _lanes(wave.scalar(VCC, None))
      # the quotient was scaled down if it is above 1, and else up; the manual has one direction, and half of the way
      scale = np.where(flags, np.where(_exponent(arguments[2]) > 127, 64, -64), 0)
      return _result(wave, values, np.ldexp(value, scale))
    if base in ("cndmask_b32", "cndmask_b16") or "_co_" in base:
      return _carried(wave, made, base, values, target)
    if base in _OTHERS:
      return _OTHERS[base](wave, made, values, target)
    _other_types(wave, made, base, values, sources)


def _other_types(wave: Wave, made: Instruction, base: str, values: dict[str, int], sources: Sequence[str]) -> None:
  """Operations on numbers of other types than float32 and words, and conversions."""
  kind, _, typed = base.rpartition("_")
  parts = base.split("_")
  if len(parts) == 3 and parts[0] == "cvt" and parts[1] in _TYPES and parts[2] in _TYPES:
    return _converted(wave, made, values, parts[1], parts[2])
  if base.startswith("cvt_f32_ubyte"):
    word = wave.vector(values["src0"], made.literal) >> 8 * int(base[-1]) & 255
    return _set_typed(wave, made, values, word.astype(np.float32))
  if base in ("clz_i32_u32", "ctz_i32_b32", "cls_i32", "bfrev_b32"):
    words = wave.vector(values["src0"], made.literal)
    return _set_typed(wave, made, values, np.array([_bits_counted(base, int(w)) for w in words], np.uint32))
  if base == "alignbit_b32":
    high, low, count = (wave.vector(values[n], made.literal).astype(np.uint64) for n in ("src0", "src1", "src2"))
    shifted = (high << np.uint64(32) | low) >> (count & np.uint64(31))
    return _set_typed(wave, made, values, shifted.astype(np.uint32))
  if typed in _TYPES and kind in _TYPED:
    shift = kind.endswith("rev")
    kinds = ["u32" if shift and n == "src0" and typed.endswith("64") else typed for n in sources]
    arguments = [_typed(wave, made, values, n, k) for n, k in zip(sources, kinds)]
    arguments = [a.astype(_TYPES[typed]) for a in arguments] if shift else arguments
    return _set_typed(wave, made, values, _TYPED[kind](*arguments).astype(_TYPES[typed]))
  if base in ("ldexp_f32", "ldexp_f64"):
    count = wave.vector(values["src1"], made.literal).view(np.int32)
    return _set_typed(wave, made, values, np.ldexp(_typed(wave, made, values, "src0", typed), count))
  if base == "fma_f16":
    a, b, c = (_typed(wave, made, values, n, "f16").astype(np.float64) for n in sources)
    return _set_typed(wave, made, values, (a * b + c).astype(np.float16))  # exact before it is rounded
  raise Unknown("it is not known here")


def _source(made: Instruction, name: str, values: dict[str, int]) -> int:
  room = max(low + length for _, low, length in made.row.layout.fields[name])
  return values[name] | VECTOR if room == 8 and "s" not in made.row.layout.kinds[name][0][:1] else values[name]


def _lanes(mask: int) -> Array:
  return (mask >> np.arange(LANES, dtype=np.uint64) & np.uint64(1)).astype(bool)


def _typed(wave: Wave, made: Instruction, values: dict[str, int], name: str, typed: str) -> Array:
  """An operand as numbers of a type, with its sign; of 16 bits the half that is said."""
  number, kind = values[name], made.row.layout.kinds[name][0]
  done = values.get(f"{name}_modifiers", 0)
  wide, short, floats = typed.endswith("64"), typed.endswith("16"), typed[0] == "f"
  if number < VECTOR:
    constant = number in _CONSTANTS and floats
    if constant:
      value = np.full(LANES, _CONSTANTS[number], _TYPES[typed])
    elif number == LITERAL and typed == "f64":
      value = np.full(LANES, (made.literal or 0) << 32, np.uint64).view(np.float64)
    else:
      bits = wave.scalar(number, made.literal, 2 if wide else 1)
      value = np.full(LANES, bits & 0xFFFF if short else bits, _TYPES["b" + typed[1:]]).view(_TYPES[typed])
  elif short:
    high = done & HALF
    if kind in ("hlo",) or kind.startswith("VTlo"):
      number, high = number & ~128, number & 128
    value = (wave.vector(number) >> (16 if high else 0)).astype(np.uint16).view(_TYPES[typed])
  else:
    value = (_wide(wave, number, None) if wide else wave.vector(number)).view(_TYPES[typed])
  if not floats or not any("_modifiers" in token for position in made.row.layout.positions for token in position):
    return value
  value = np.abs(value) if done & ABS else value
  return -value if done & NEG else value


def _set_typed(wave: Wave, made: Instruction, values: dict[str, int], value: Array) -> None:
  """Write a result of its own type."""
  target, kind = values["vdst"] | VECTOR, made.row.layout.kinds["vdst"][0]
  if value.dtype.kind == "f":
    scale = {1: 2.0, 2: 4.0, 3: 0.5}.get(values.get("omod", 0), 1.0)
    value = value * value.dtype.type(scale)
    value = np.clip(np.nan_to_num(value, nan=0.0), 0, 1).astype(value.dtype) if values.get("clamp") else value
  if value.itemsize == 8:
    return _set_wide(wave, target, value.view(np.uint64))
  if value.itemsize == 4:
    return wave.set_vector(target, value.view(np.uint32))
  high = values.get("src0_modifiers", 0) & HIGH
  if kind == "hlo":
    target, high = target & ~128, target & 128
  old, word = wave.vectors[target - VECTOR], value.view(np.uint16).astype(np.uint32)
  wave.set_vector(target, old & 0xFFFF | word << 16 if high else old & 0xFFFF0000 | word)


def _compare(wave: Wave, made: Instruction, base: str, values: dict[str, int]) -> None:
  parts = base.split("_")
  how, typed = parts[1], parts[2]
  if how == "class" and typed == "f32":
    x = _typed(wave, made, values, "src0", typed)
    done = _class_of(x) & wave.vector(values["src1"], made.literal) != 0
  elif typed not in _TYPES or how not in _COMPARE:
    raise Unknown("it is not known here")
  else:
    done = _COMPARE[how](*(_typed(wave, made, values, n, typed) for n in ("src0", "src1")))
  wave.set_scalar(EXEC if parts[0] == "cmpx" else values.get("sdst", VCC), _bits(done & wave.mask))


def _class_of(x: Array) -> Array:
  """The bit of V_CMP_CLASS_F32 that a number is of."""
  bits = x.view(np.uint32)
  sign, exponent, rest = bits >> 31 == 1, bits >> 23 & 255, bits & 0x7FFFFF
  quiet = bits & 0x400000 != 0
  number = np.select(
    [np.isnan(x) & ~quiet, np.isnan(x), np.isinf(x), (exponent == 0) & (rest == 0), exponent == 0],
    [np.full(LANES, n) for n in (0, 1, 2, 5, 4)], 3,
  )  # fmt: skip
  positive = np.select([number == 2, number == 3, number == 4, number == 5], [9, 8, 7, 6], number)
  return np.uint32(1) << np.where(sign, number, positive).astype(np.uint32)


def _carried(wave: Wave, made: Instruction, base: str, values: dict[str, int], target: int) -> None:
  """Sums and differences with carries, and choices, by a bit of each lane."""
  if base.startswith("cndmask"):
    carry = _lanes(wave.scalar(values.get("src2", VCC), None))
    signs = any(values.get(f"{n}_modifiers", 0) & (NEG | ABS) for n in ("src0", "src1"))
    kind = ("f" if signs else "b") + base[-2:]
    a, b = (_typed(wave, made, values, n, kind) for n in ("src0", "src1"))
    return _set_typed(wave, made, values, np.where(carry, b, a))
  carry = _lanes(wave.scalar(values.get("src2", VCC), None)) if "_co_ci_" in base else np.zeros(LANES, bool)
  a, b = (wave.vector(values[n], made.literal).astype(np.int64) for n in ("src0", "src1"))
  a, b = (b, a) if base.startswith("subrev") else (a, b)
  total = a + b + carry if base.startswith("add") else a - b - carry
  wave.set_vector(target, (total & ALL).astype(np.uint32))
  wave.set_scalar(values.get("sdst", VCC), _bits((total >> 32 != 0) & wave.mask))


def _wide(wave: Wave, number: int, literal: int | None) -> Array:
  """64 bits of an operand, a lane each."""
  if number < VECTOR:
    return np.full(LANES, wave.scalar(number, literal, 2), np.uint64)
  low, high = wave.vector(number), wave.vector(number + 1)
  return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def _set_wide(wave: Wave, target: int, value: Array) -> None:
  wave.set_vector(target, value.astype(np.uint32))
  wave.set_vector(target + 1, (value >> np.uint64(32)).astype(np.uint32))


def _mad_wide(wave: Wave, made: Instruction, values: dict[str, int], target: int) -> None:
  a, b = (wave.vector(values[n], made.literal).astype(np.uint64) for n in ("src0", "src1"))
  if values["src2"] >= VECTOR:
    # compilers leave the upper word as it is where only the lower word of the result is wanted
    low, high = wave.vector(values["src2"]), wave.vectors[values["src2"] + 1 - VECTOR]
    c = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
  else:
    c = _wide(wave, values["src2"], made.literal)
  total = a * b + c
  wave.set_scalar(values["sdst"], _bits((total < c) & wave.mask))
  _set_wide(wave, target, total)


def _converted(wave: Wave, made: Instruction, values: dict[str, int], result: str, source: str) -> None:
  value = _typed(wave, made, values, "src0", source)
  if value.dtype.kind == "f" and result[0] != "f":
    info = np.iinfo(_TYPES[result])
    value = np.clip(np.nan_to_num(np.trunc(value.astype(np.float64)), nan=0.0), info.min, info.max)
  _set_typed(wave, made, values, value.astype(_TYPES[result]))


def _bits_counted(name: str, value: int) -> int:
  """V_CLZ_I32_U32, V_CTZ_I32_B32, V_CLS_I32, V_BFREV_B32, V_BCNT of one number."""
  if name == "bfrev_b32":
    return int(f"{value:032b}"[::-1], 2)
  if name == "cls_i32":
    other = value ^ ALL if value >> 31 else value
    return 32 - other.bit_length() if other else ALL
  if not value:
    return ALL
  return 32 - value.bit_length() if name == "clz_i32_u32" else (value & -value).bit_length() - 1


def _other_row(wave: Wave, made: Instruction, values: dict[str, int], target: int) -> None:
  """V_PERMLANEX16_B32: each lane has a word of the other row of 16, chosen by four bits of two scalars."""
  word, low, high = (
    wave.vectors[values["src0"] - VECTOR].copy(),
    *(wave.scalar(values[n], made.literal) for n in ("src1", "src2")),
  )
  wave.vector(values["src0"])
  choice = [(high << 32 | low) >> 4 * (n % 16) & 15 for n in range(LANES)]
  wave.set_vector(target, word[[choice[n] + (0 if n >= 16 else 16) for n in range(LANES)]])


def _matrix(wave: Wave, made: Instruction, values: dict[str, int], target: int) -> None:
  """V_WMMA_F32_16X16X16_F16 and _BF16. Lane n has row n % 16 of A, and column n % 16 of B, both halves of a wave the
  same; register r of C has row 2 r in the first half, 2 r + 1 in the second, and column n % 16."""
  if wave.scalars[EXEC] != ALL:
    raise Fault("a product of matrices takes all lanes")

  def elements(first: int, what: str) -> Array:
    rows = np.stack([wave.vector(first + n) for n in range(8)], 1)
    if not (rows[:16] == rows[16:]).all():
      raise Fault(f"the halves of the wave have different elements of {what}")
    halves = rows[:16].copy().view(np.uint16)
    if made.mnemonic.endswith("bf16"):
      return (halves.astype(np.uint32) << 16).view(np.float32)
    return halves.view(np.float16).astype(np.float32)

  a, b = elements(values["src0"], "A"), elements(values["src1"], "B")
  c = np.zeros((16, 16), np.float32)
  number = values["src2"]
  for r in range(8):
    word = f32(wave.vector(number + r if number >= VECTOR else number, made.literal))
    c[2 * r], c[2 * r + 1] = word[:16], word[16:]
  done = (c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
  for r in range(8):
    wave.set_vector(target + r, np.concatenate([done[2 * r], done[2 * r + 1]]).view(np.uint32))


_OTHERS: dict[str, Callable[[Wave, Instruction, dict[str, int], int], None]] = {
  "mad_u64_u32": _mad_wide, "permlanex16_b32": _other_row, "wmma_f32_16x16x16_f16": _matrix,
  "wmma_f32_16x16x16_bf16": _matrix,
}  # fmt: skip


def _both(wave: Wave, made: Instruction, name: str, values: dict[str, int]) -> None:
  """Two operations at once: both read before either writes."""
  literal = values.get("imm", made.literal)
  writes: list[tuple[int, Array]] = []
  with np.errstate(all="ignore"):
    for part, half in zip(name.split(" :: "), "XY"):
      base, target = part.removeprefix("v_dual_"), values[f"vdst{half}"] | VECTOR
      a = wave.vector(values[f"src0{half}"], literal)
      b = wave.vector(values[f"vsrc1{half}"] | VECTOR) if f"vsrc1{half}" in values else None
      constant = np.full(LANES, np.uint32(literal or 0))
      if base == "cndmask_b32":
        value = np.where(_lanes(wave.scalar(VCC, None)), b, a)
      elif base in _U32:
        value = _U32[base](*([a] if b is None else [a, b])).astype(np.uint32)
      elif base in ("fmac_f32", "fmaak_f32", "fmamk_f32"):
        x, y = {"fmac_f32": (b, wave.vector(target) if base == "fmac_f32" else b), "fmaak_f32": (b, constant)}.get(
          base, (constant, b)
        )
        value = _fma(f32(a), f32(x), f32(y)).view(np.uint32)
      elif base.endswith("_f32") and base[:-4] in _F32:
        value = _F32[base[:-4]](f32(a), f32(b)).astype(np.float32).view(np.uint32)
      else:
        raise Unknown(f"{part} is not known here")
      writes.append((target, value))
  for target, value in writes:
    wave.set_vector(target, value)


# *** memory ***


@dataclass(frozen=True)
class Access:
  """What an instruction moves for a lane: bytes, whether they have a sign, and the half of a register that it is."""

  size: int
  signed: bool
  half: str

  @classmethod
  def of(cls, name: str) -> Access:
    """By its name: b128, u8, d16_hi_b16, u16_d16_hi. Raises Fault."""
    half = "high" if "d16_hi" in name else "low" if "d16" in name else ""
    kinds = [part for part in name.split("_") if part[:1] in "biu" and part[1:].isdigit()]
    if len(kinds) != 1 or "atomic" in name or name.split("_")[1] not in ("load", "store"):
      raise Unknown("it is not known here")
    return cls(int(kinds[0][1:]) // 8, kinds[0][0] == "i", half)

  @property
  def words(self) -> int:
    """Registers of a lane."""
    return max(1, self.size // 4)

  def content(self, wave: Wave, register: int) -> list[bytes]:
    """What is stored, of each lane that is on."""
    data = [wave.vector(register + n) >> (16 if self.half == "high" else 0) for n in range(self.words)]
    return [b"".join(int(w[n]).to_bytes(4, "little") for w in data)[: self.size] for n in np.flatnonzero(wave.mask)]

  def arrive(self, wave: Wave, register: int, lanes: Array, read: list[bytes]) -> None:
    """What was loaded comes to registers."""
    for lane, content in zip(lanes, read):
      for n in range(self.words):
        value = int.from_bytes(content[4 * n : 4 * n + 4], "little", signed=self.signed) & ALL
        old = int(wave.vectors[register - VECTOR + n][lane])
        if self.half:
          value = value << 16 | old & 0xFFFF if self.half == "high" else value & 0xFFFF | old & 0xFFFF0000
        wave.vectors[register - VECTOR + n][lane] = value
        wave.written[register - VECTOR + n][lane] = True


def _global(wave: Wave, name: str, values: dict[str, int]) -> None:
  access = Access.of(name)
  offset, lanes = _signed(values["offset"], 13), np.flatnonzero(wave.mask)
  address = values["vaddr"] | VECTOR
  if values.get("saddr", NULL) != NULL:
    base = wave.scalar(values["saddr"], None, 2)
    places = [base + int(n) + offset for n in wave.vector(address)[lanes]]
  else:
    places = [int(n) + offset for n in _wide(wave, address, None)[lanes]]
  places = [wave.address(place, access.size) for place in places]
  if "store" in name:
    for place, content in zip(places, access.content(wave, values["vdata"] | VECTOR)):
      ctypes.memmove(place, content, access.size)
    return wave.put("vscnt", (), lambda: None)
  read, target = [ctypes.string_at(place, access.size) for place in places], values["vdst"] | VECTOR
  wave.put(
    "vmcnt", range(target, target + access.words), lambda: access.arrive(wave, target, lanes, read), half=access.half
  )


def _shared(wave: Wave, name: str, values: dict[str, int]) -> None:
  access, lanes, lds = Access.of(name), np.flatnonzero(wave.mask), wave.group.lds
  address, two = wave.vector(values["addr"] | VECTOR), "2addr" in name
  unit = access.size * (64 if "stride64" in name else 1)
  offsets = [values["offset0"] * unit, values["offset1"] * unit] if two else [values["offset"]]
  places = [[int(address[lane]) + offset for lane in lanes] for offset in offsets]
  if wrong := [place for row in places for place in row if place + access.size > len(lds)]:
    raise Fault(f"{access.size} bytes at {wrong[0]} of shared memory, which has {len(lds)}")
  if "store" in name:
    for row, key in zip(places, ("data0", "data1")):
      for place, content in zip(row, access.content(wave, values[key] | VECTOR)):
        lds[place : place + access.size] = content
    return wave.put("lgkmcnt", (), lambda: None)
  read = [[bytes(lds[place : place + access.size]) for place in row] for row in places]
  target = values["vdst"] | VECTOR

  def done() -> None:
    for n, row in enumerate(read):
      access.arrive(wave, target + n * access.words, lanes, row)

  wave.put("lgkmcnt", range(target, target + access.words * len(offsets)), done, half=access.half)


# *** launches ***


@dataclass(frozen=True)
class Launch:
  """A kernel: where its code and its arguments are, what rsrc2 of its descriptor says of the registers that it finds
  set, bytes of shared memory, and the memory that it may touch."""

  entry: int
  arguments: int
  rsrc2: int
  local_bytes: int
  groups: tuple[int, int, int]
  threads: tuple[int, int, int]
  regions: Sequence[Region]


def run(launch: Launch) -> None:
  """Run all workgroups, one after the other. Raises Fault."""
  gx, gy, gz = launch.groups
  for number in range(gx * gy * gz):
    place = number % gx, number // gx % gy, number // gx // gy
    group = Group(bytearray(b"\xff" * launch.local_bytes), launch.regions)
    waves = list(_waves(launch, group, place))
    going = [wave.run() for wave in waves]
    while going:
      stopped = [next(wave, "done") is None for wave in going]
      if any(stopped) and not all(stopped):
        raise Fault("some waves of a workgroup wait at a barrier, and others are done")
      going = [wave for wave, waits in zip(going, stopped) if waits]


def _waves(launch: Launch, group: Group, place: tuple[int, int, int]) -> Iterator[Wave]:
  x, y, z = launch.threads
  total = x * y * z

  def code(pc: int) -> bytes:
    for low, high in launch.regions:
      if low <= pc < high:
        return ctypes.string_at(pc, min(12, high - pc))
    raise Fault(f"code at {pc:#x} is in no buffer")

  for first in range(0, total, LANES):
    numbers = np.arange(first, first + LANES)
    on = numbers < total
    wave = Wave(code, group, launch.entry, _bits(on))
    users = launch.rsrc2 >> 1 & 31
    if users >= 2:
      wave.set_scalar(0, launch.arguments, 2)
    at = users
    for axis in range(3):
      if launch.rsrc2 >> (7 + axis) & 1:
        wave.set_scalar(at, place[axis])
        at += 1
    packed = numbers % x | numbers // x % y << 10 | numbers // (x * y) << 20
    kept = {0: 0x3FF, 1: 0xFFFFF, 2: ALL}[launch.rsrc2 >> 11 & 3]
    wave.set_vector(VECTOR, (packed & kept).astype(np.uint32), on)
    yield wave
