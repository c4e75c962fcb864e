"""What the machine is to the compiler: triple, processor, features, caches; and these four as one `arch` string."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tiny_runtime import system
from tiny_runtime.llvm import Processor, host_processor
from tiny_runtime_cpu.machine import check_execution
from tiny_runtime_cpu.system import allowed_processors, scalable_bits
from tiny_runtime_cpu.system.amx_permission import permitted
from tiny_runtime_cpu.system.caches import host_caches
from tiny_runtime_cpu.system.control_groups import group_limits
from tiny_runtime_cpu.system.topology import are_uneven

FORMS = ("object", "llvm-ir")
"""Of programs from elsewhere; a binary is the first."""
UNEVEN_SHARES = 8
"""For how many times as many threads kernels are divided, where some cores are slower: each may then do less."""


@dataclass(frozen=True)
class Arch:
  """A processor to compile for. `str(arch)` is what `Device.info.arch` and `Backend.compiler` exchange."""

  triple: str
  cpu: str
  features: str
  """LLVM's form: `+avx2,-avx512f`. What the processor's name implies and the machine lacks is there with a minus."""
  caches: str = ""
  """Bytes of the levels 1, 2 and 3 that a core has: `48K,2M,16M`; empty: what is usual for such a processor."""
  threads: int = 0
  """How many threads kernels are divided for; 0: few."""
  scalable_bits: int = 0
  """Bits of a register of SVE (arm64); 0: there is none."""

  def __str__(self) -> str:
    last = (str(self.threads or ""), str(self.scalable_bits or ""))
    return ":".join((self.triple, self.cpu, self.features, self.caches, *last)).rstrip(":")

  @classmethod
  def parse(cls, text: str) -> Arch:
    """The inverse of `str`. All but the triple may be left out: `x86_64-unknown-linux-gnu:x86-64-v3`."""
    triple, cpu, features, caches, threads, scalable, *rest = (*text.split(":"), "", "", "", "", "")
    if not triple or any(rest) or not f"0{threads}{scalable}".isdecimal():
      raise ValueError(
        f"not a CPU arch: {text!r}, expected 'triple:cpu:features:caches:threads:scalable_bits', as "
        "`tiny_runtime_cpu.host_arch()` gives"
      )
    return cls(triple, cpu, features, caches, int(threads or 0), int(scalable or 0))

  @property
  def processor(self) -> Processor:
    """What LLVM has to know of it."""
    return Processor(self.triple, self.cpu, self.features)

  @property
  def family(self) -> str:
    """`x86_64`, `aarch64` or another first part of a triple; Apple's name of arm64 is made `aarch64`."""
    name = self.triple.split("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)

  @property
  def fuses(self) -> bool:
    """Whether it multiplies and adds as one operation, and so programs for it do: as `cpu_target` of tiny-codegen,
    whose import takes longer than opening the device."""
    return self.family == "aarch64" or self.has("fma")

  def has(self, feature: str) -> bool:
    """Whether a feature is switched on by name."""
    return f"+{feature}" in self.features.split(",")


@cache
def host_arch() -> Arch:
  """The processor that this process runs on, with what the system lets it use."""
  processor = host_processor()
  scalable = scalable_bits() if "+sve" in processor.features.split(",") else 0
  threads = many(cpu_limit() * (UNEVEN_SHARES if has_uneven_cores() else 1))
  return Arch(processor.triple, processor.cpu, permitted(processor.features), host_caches(), threads, scalable)


def many(threads: int) -> int:
  """For how many threads kernels are divided where there are so many: powers of two, so that machines with about as
  many have the same kernels; 0 for up to four."""
  return 0 if threads <= 4 else 1 << (threads - 1).bit_length()


@cache
def has_uneven_cores() -> bool:
  """Whether some of the processors that this process may use are slower than others."""
  return are_uneven(allowed_processors())


def cpu_limit() -> int:
  """Processors this process may keep busy: its affinity mask, or less if its control groups have a quota."""
  quotas = [*group_limits("cpu.max"), *group_limits("cpu.cfs_quota_us", "cpu.cfs_period_us")]
  return max(1, min([system.processors(), *[quota // period for quota, period in quotas]]))


def memory_bytes() -> int:
  """Bytes of memory that this process may have: the machine's, or its control groups' limit; 0 if nobody says."""
  limits = [*group_limits("memory.max"), *group_limits("memory.limit_in_bytes")]
  physical = system.memory_bytes()
  return min([physical, *[limit for (limit,) in limits]]) if physical else 0


def unsupported_reason() -> str | None:
  """Why this machine cannot run generated code; None if it can."""
  if host_arch().family not in ("x86_64", "aarch64"):
    return f"no code generation for {host_arch().family}: only x86-64 and arm64"
  try:
    check_execution()
  except OSError as error:
    return f"this system does not let the process run generated code: {error}"
  return None
