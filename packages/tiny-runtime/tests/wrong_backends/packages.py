"""Backends that are wrong about what is pure: keys, descriptions of binaries, archs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tiny_runtime import Binary, Compiler, Measure, Unavailable
from tiny_runtime.contract import Device
from tiny_runtime.ref import RefCompiler
from tiny_uop import UOp
from wrong_backends import Backend

STARTED = time.time_ns()


def keyed(make: Callable[[], str]) -> Backend:
  """A compiler with this key."""

  class Keyed(RefCompiler):
    @property
    def key(self) -> str:  # type: ignore[override]
      return make()

  Keyed.__qualname__ = Keyed.__name__ = "Keyed"
  return Backend(Keyed)


@dataclass(frozen=True)
class ForArchs(RefCompiler):
  """What it makes depends on the arch."""

  arch: str

  @property
  def key(self) -> str:  # type: ignore[override]
    return f"ref {self.arch}"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    binary = super().compile(kernel, measure)
    return replace(binary, source=f"# for {self.arch}\n{binary.source}")


class KeyWithoutArch(ForArchs):
  @property
  def key(self) -> str:  # type: ignore[override]
    return "ref"


class Archs(Backend):
  """Devices of snakes of several sizes: `python8` and `python16`, of which `probe` lists some."""

  def __init__(self, compiler: Callable[[str], Compiler], *listed: str) -> None:
    super().__init__()
    self.for_arch, self.listed = compiler, listed

  def probe(self) -> tuple[str, ...] | Unavailable:
    return self.listed

  def open(self, index: int) -> Device:
    device = super().open(index if index < len(self.listed) else 8)
    device.info = replace(device.info, arch=self.listed[index])  # type: ignore[misc]
    return device

  def compiler(self, arch: str) -> Compiler:
    if not arch.startswith("python") or not arch[6:].isdigit():
      raise ValueError(f"unknown arch {arch}")
    return self.for_arch(arch)


def describing(change: Callable[[Binary], Binary]) -> Backend:
  """A compiler whose binaries say something wrong about themselves."""

  class Describing(RefCompiler):
    def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
      return change(super().compile(kernel, measure))

  return Backend(Describing)


def never_both(binary: Binary) -> Binary:
  """What is written is not read."""
  return replace(binary, params=tuple(replace(p, read=p.read and not p.written) for p in binary.params))


def always_read(binary: Binary) -> Binary:
  return replace(binary, params=tuple(replace(p, read=True) for p in binary.params))


KEY_PROCESS = keyed(lambda: f"ref {os.getpid()}")
KEY_TIME = keyed(lambda: f"ref {STARTED}")
KEY_FOLDER = keyed(lambda: f"ref {os.getcwd()}")
KEY_HASH = keyed(lambda: f"ref {hash('python')}")
KEY_EMPTY = keyed(lambda: "")
ARCHS = Archs(ForArchs, "python8", "python16")
ONE_ARCH = Archs(ForArchs, "python8")
KEY_ARCH = Archs(KeyWithoutArch, "python8", "python16")
KEY_ONE_ARCH = Archs(KeyWithoutArch, "python8")
READ_FLAGS = describing(never_both)
ALL_READ = describing(always_read)
NARROW = describing(lambda b: replace(b, params=tuple(replace(p, size=p.size // 2 or 1) for p in b.params)))
