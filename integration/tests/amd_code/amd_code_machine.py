"""Instructions of AMD's GPUs, run by the emulator on arrays: what its tests share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu_model.amd_code.emulator import Launch, run
from tiny_asm_amd import Isa, Kernel, s, v
from tiny_asm_amd.table import family_of

ALL = 0xFFFFFFFF
Array = Any


def lanes(chip: str) -> int:
  """Threads of a wave."""
  return 64 if family_of(chip) == "cdna" else 32


def launched(
  chip: str, body: Sequence[Any], buffers: Sequence[Array], *, local: int = 0, private: int = 0, threads: int = 0,
  groups: int = 1, backwards: bool = False,
) -> None:  # fmt: skip
  """Run instructions with the addresses of arrays as arguments, in s[0:1]; the workgroup is in s2 (RDNA 4: ttmp9), the
  thread in v0."""
  threads = threads or lanes(chip)
  kernel = Kernel.of(chip, "test", body, argument_bytes=8 * len(buffers), local_bytes=local, threads=threads)
  code = kernel.machine_code + bytes(64)
  place = ctypes.create_string_buffer(code, len(code))
  arguments = np.array([b.ctypes.data for b in buffers], np.uint64)
  regions = [(b.ctypes.data, b.ctypes.data + b.nbytes) for b in (*buffers, arguments)]
  regions.append((ctypes.addressof(place), ctypes.addressof(place) + len(code)))
  given = Launch(chip, ctypes.addressof(place), arguments.ctypes.data, arguments.nbytes, kernel.descriptor(0), local,
                 private, (groups, 1, 1), (threads, 1, 1), regions, backwards)  # fmt: skip
  run(given)


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
  chip: str, instructions: Callable[[], Sequence[Any]], inputs: Sequence[Array], words: int = 1, private: int = 0
) -> Array:
  """What v[10:] is after instructions that find the inputs in v[1], v[2], …, 32 bits each; a row per word."""
  count, move = lanes(chip), Words(chip)
  out = np.zeros((words, count), np.uint32)
  given = [np.ascontiguousarray(x) for x in inputs]
  body: list[Any] = [*move.addresses(s[4:5]), move.isa.v_lshlrev_b32(v[0], 2, v[0])]
  for n in range(len(given)):
    body += move.addresses(s[6:7], 8 * (n + 1))
    body += [move.load(v[n + 1], v[0], s[6:7])]
  body += [*move.wait(), *instructions()]
  body += [move.store(v[0], v[10 + n], s[4:5], 4 * count * n) for n in range(words)]
  launched(chip, [*body, move.isa.s_endpgm()], [out, *given], private=private)
  return out if words > 1 else out[0]
