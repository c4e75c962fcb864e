"""The backend under test, and the reference that it is compared with: both run a kernel over bytes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pytest

from tiny_runtime.binary import Binary
from tiny_runtime.conformance.failure import Misbehaved, demand, describe
from tiny_runtime.conformance.values import pack, unpack
from tiny_runtime.contract import Backend, Compiler, Device, Memory
from tiny_runtime.errors import BackendError, CompileError, Unavailable
from tiny_runtime.plugins.discovery import find
from tiny_runtime.ref import BACKEND as REF
from tiny_runtime.ref.compiler import parameters
from tiny_uop import DType, UOp, dtypes

GUARD = 64
"""Bytes behind every buffer that have to be the same after a launch; so do those in front of one at an offset."""


PARAMS = (
  "Binary.params: (slot, bytes, written, read) are not those of the kernel, by which the runtime knows what a launch"
  " needs and changes"
)
PARAM_INFO = (
  "one ParamInfo for each PARAM that the program has; `written`: it has a STORE; `read`: what was there before matters,"
  " as where a STORE accumulates"
)
BOUNDS = (
  "bounds: how launch sizes are rounded up, vectors at the end of a buffer, gates of stores; and whether launch adds"
  " the byte offset of each buffer to its address, once"
)
Contents = Sequence[int] | bytes | bytearray
"""Of a memory: int32 numbers, or bytes."""
Offsets = int | Sequence[int]
"""Where buffers begin in their memory, in bytes: all of them, or each."""


@dataclass
class Target:
  """One backend with its first device, opened on first use."""

  name: str
  backend: Backend
  origin: str
  """The entry point's value, `module:OBJECT`."""
  given_arch: str = ""
  """An arch to compile for: where there is no device, or one that the device runs too; empty: that of the device."""
  index: int = 0

  @cached_property
  def arch(self) -> str:
    """What the compiler compiles for. Raises Unavailable where there is no device and no arch was given."""
    if self.given_arch:
      return self.given_arch
    found = self.backend.probe()
    if isinstance(found, Unavailable):
      raise found
    return found[self.index]

  @cached_property
  def device(self) -> Device:
    """The device, the first one but for `again`."""
    return self.backend.open(self.index)

  @cached_property
  def compiler(self) -> Compiler:
    """The compiler for the first device."""
    return self.backend.compiler(self.arch)

  def needs_types(self, *types: DType) -> None:
    """Skip a test where the device does not claim these data types."""
    names = dict.fromkeys(dtype.name for dtype in types)
    if not self.device.info.capabilities.dtypes.issuperset(names):
      pytest.skip(f"{self.name} does not claim {', '.join(names)}")

  def needs(self, claim: str) -> None:
    """Skip a test where the device does not claim a capability."""
    if not getattr(self.device.info.capabilities, claim):
      pytest.skip(f"{claim} is not claimed")

  def again(self, index: int = 0) -> Target:
    """The same backend, with a device of its own, opened on first use."""
    return Target(self.name, self.backend, self.origin, self.given_arch, index)

  def compile(self, kernel: UOp) -> Binary:
    """A binary. Raises Misbehaved if the compiler refuses the kernel; whatever else it raises has the kernel in its
    notes."""
    try:
      binary = self.compiler.compile(kernel)
    except CompileError as error:
      raise Misbehaved(
        f"compile refused a kernel that is legal and uses only what the device claims: {error}",
        look_at="the compiler, or take back the claim (a type in Capabilities.dtypes, local_memory) that it misses",
        kernel=kernel,
        source=error.source,
      ) from error
    except Exception as error:
      error.add_note(f"while {self.name} compiled\n{describe(kernel)}")
      raise
    # types that a target lacks are others in memory, of the same size
    expected, got = ([(p.slot, p.size * p.dtype.itemsize, p.written, p.read) for p in each] for each in
                     (parameters(kernel), binary.params))  # fmt: skip
    fits = set(got) <= set(expected) and all(each in got for each in expected if each[2])
    demand(fits, PARAMS, expected=expected, got=got, look_at=PARAM_INFO, kernel=kernel)
    return binary

  def run(
    self, kernel: UOp, contents: Sequence[bytes], values: Mapping[str, int] | None = None, offset: Offsets = 0
  ) -> list[bytes]:
    """Compile and launch a kernel over buffers with these contents, in slot order; returns what they hold afterwards.

    With `offset`, each buffer begins that many bytes into its memory. Raises Misbehaved for a write outside of one.
    """
    binary = self.compile(kernel)
    try:
      return self.run_binary(binary, contents, values, offset)
    except Misbehaved as error:
      error.kernel, error.source = kernel, binary.source
      raise
    except BackendError as error:
      look_at = "load and launch; free memory is given back even so"
      what = f"the kernel did not run: {error}"
      raise Misbehaved(what, look_at=look_at, kernel=kernel, source=binary.source) from error
    except Exception as error:
      error.add_note(f"while {self.name} ran\n{describe(kernel)}")
      raise

  def run_binary(
    self, binary: Binary, contents: Sequence[bytes], values: Mapping[str, int] | None = None, offset: Offsets = 0
  ) -> list[bytes]:
    """The same with a binary."""
    device, numbers = self.device, dict(values or {})
    offsets = [offset] * len(contents) if isinstance(offset, int) else list(offset)
    program, (grid, group, _, _) = device.load(binary), binary.sizes(numbers)
    memory = [device.alloc(start + len(data) + GUARD) for start, data in zip(offsets, contents, strict=True)]
    try:
      for slot, (handle, start, data) in enumerate(zip(memory, offsets, contents)):
        device.write(handle, 0, memoryview(guard(slot, start) + data + guard(slot, GUARD)))
      buffers = [(memory[p.slot], offsets[p.slot]) for p in binary.params]
      device.launch(program, buffers, [numbers[name] for name in binary.variables], grid, group, True)
      found = [self._contents(slot, *each) for slot, each in enumerate(zip(memory, offsets, contents))]
      for param in binary.params:
        if param.dtype is dtypes.bool and param.written:
          _demand_bools(param.slot, found[param.slot])
      return found
    finally:
      for handle in memory:
        device.free(handle)

  def _contents(self, slot: int, memory: Memory, start: int, data: bytes) -> bytes:
    """What a buffer holds, after a look at what is around it."""
    end = start + len(data)
    found = self.fetch(memory, 0, end + GUARD)
    for what, place, expected in (("before", 0, guard(slot, start)), ("behind", end, guard(slot, GUARD))):
      got = found[place : place + len(expected)]
      if wrong := [n for n in range(len(expected)) if got[n] != expected[n]]:
        first, distance = wrong[0], start - wrong[0] if what == "before" else wrong[0]
        raise Misbehaved(
          f"the launch changed {len(wrong)} bytes outside of its buffers: {distance} bytes {what} the buffer of"
          f" PARAM {slot}, which has {len(data)} bytes at offset {start} of its memory",
          expected=expected[first:][:16].hex(" "), got=got[first:][:16].hex(" "), look_at=BOUNDS,
        )  # fmt: skip
    return found[start:end]

  # *** memory, for cases about bytes, order and time rather than about results ***

  @contextmanager
  def memories(self, *contents: Contents) -> Iterator[list[Memory]]:
    """New memories with these contents; freed at the end, those that the list still has."""
    held = [self.filled(each) for each in contents]
    try:
      yield held
    finally:
      self.device.sync()
      for memory in held:
        self.device.free(memory)

  def filled(self, contents: Contents) -> Memory:
    """New memory with these contents."""
    data = contents if isinstance(contents, (bytes, bytearray)) else pack(dtypes.int32, contents)
    memory = self.device.alloc(len(data))
    self.device.write(memory, 0, memoryview(data))
    return memory

  def fetch(self, memory: Memory, offset: int, size: int) -> bytes:
    """The bytes of a place in a memory."""
    out = bytearray(size)
    self.device.read(memory, offset, memoryview(out))
    return bytes(out)

  def numbers_in(self, memory: Memory, count: int) -> list[int]:
    """The first int32 numbers of a memory."""
    return [int(number) for number in unpack(dtypes.int32, self.fetch(memory, 0, 4 * count))]

  def demand_numbers(
    self, memory: Memory, expected: Sequence[int], what: str, look_at: str, kernel: UOp | None = None
  ) -> None:
    """Raise Misbehaved, which says `what`, where a memory does not hold these numbers."""
    data = self.fetch(memory, 0, 4 * len(expected))
    got = [] if data == pack(dtypes.int32, expected) else [int(number) for number in unpack(dtypes.int32, data)]
    if wrong := [n for n, (g, e) in enumerate(zip(got, expected)) if g != e]:
      what = f"{what}: {len(wrong)} of {len(expected)} numbers are wrong, the first at {wrong[0]}"
      shown = slice(wrong[0], wrong[0] + 8)
      raise Misbehaved(what, expected=list(expected[shown]), got=got[shown], look_at=look_at, kernel=kernel)

  def demand_bytes(self, memory: Memory, expected: bytes | bytearray, what: str, look_at: str, offset: int = 0) -> None:
    """Raise Misbehaved where a memory does not hold these bytes; it says where they differ first and how many do."""
    got = self.fetch(memory, offset, len(expected))
    if got == expected:
      return
    wrong = [n for n, (g, e) in enumerate(zip(got, expected)) if g != e]
    first, last, count = wrong[0], wrong[-1], len(wrong)
    together = last - first + 1 == count
    where = f"bytes {first} to {last}" if together else f"{count} bytes, the first is {first}"
    if together and last == len(expected) - 1 and count < len(expected):
      look_at = f"sizes that are no multiple of a word: the last {count} bytes are lost. {look_at}"
    shown, what = slice(first, first + 16), f"{what}: {where} of {len(expected)} are wrong"
    raise Misbehaved(what, expected=expected[shown].hex(" "), got=got[shown].hex(" "), look_at=look_at)


def _demand_bools(slot: int, data: bytes) -> None:
  """A bool is a byte that is 0 or 1."""
  wrong = [byte for byte in data if byte > 1]
  what = f"{len(wrong)} elements of PARAM {slot}, bools, are bytes that are neither 0 nor 1"
  look_at = "how a bool is stored: all ones, or what was compared, is no number that other kernels can add up"
  demand(not wrong, what, expected="1 where it is true", got=wrong[:8], look_at=look_at)


def guard(slot: int, size: int) -> bytes:
  """Bytes to stand around a buffer: others for each, so that copying them shows."""
  return bytes([0xA5 ^ 17 * slot & 0xFF]) * size


def find_target(name: str, arch: str = "") -> Target:
  """The target for `--backend`: a device name (`CPU`), or `module:OBJECT` for a backend that is not installed. With an
  `arch` to compile for, the device need not be there; if it is, it has to run programs of the arch.

  Raises Unavailable, Broken or Incompatible.
  """
  if ":" in name:
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    backend = found() if isinstance(found, type) else found
    if not isinstance(backend, Backend):
      raise TypeError(f"--backend {name}: expected an object with api, ir, probe, open and compiler, got {backend!r}")
    return Target(attribute, backend, name, arch)
  plugin = find(name)
  loaded = plugin.load() if arch else plugin.require()
  if loaded is None:
    raise plugin.error()
  return Target(name, loaded, plugin.value, arch)


def reference() -> Target:
  """The oracle."""
  return Target("REF", REF, "tiny_runtime.ref:BACKEND")
