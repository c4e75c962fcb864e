"""What has to be known of LLVM and of this machine before anything is compiled: LLVM's version, the processor's name.

Both are parts of the keys of compiled kernels, so a process needs them also where it finds all kernels in the cache. To
load LLVM for that takes longer than the rest of such a process's start, and so the answers are in the disk cache, under
all that they depend on. Where that cannot be told, LLVM is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tiny_runtime import system
from tiny_runtime.compile_cache import cached_bytes
from tiny_runtime.llvm.identity import identity
from tiny_runtime.llvm.names import name_by_features
from tiny_runtime.llvm.processor import Processor

NAMING = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU implementer",
          "CPU architecture", "CPU variant", "CPU part")  # fmt: skip
"""The lines of Linux's list of processors from which a processor's name and features follow."""


@cache
def llvm_version() -> str:
  """What code depends on besides its source and the processor: `llvmlite 0.50.0 llvm 22.1.0`."""
  return known("version", library(), _ask_version)


@cache
def host_processor() -> Processor:
  """The processor that this process runs on, with all that its name implies and the machine lacks as `-feature`; by
  the name that fits its features, if the machine shows another one."""
  about = (library(), processors(), identity())
  answer = known("processor", "\n".join(about) if all(about) else "", _ask_processor)
  return Processor(*answer.split("\n"))


def known(question: str, about: str, ask: Callable[[], str]) -> str:
  """The answer of LLVM to a question. It depends on `about` alone; asked anew in every process if that is empty."""
  if not about:
    return ask()
  return cached_bytes(f"llvm 4\n{question}\n{about}", lambda: ask().encode()).decode()


def library() -> str:
  """Names, sizes and times of the files that LLVM is in, without loading them; empty if they are not found."""
  spec = find_spec("llvmlite")
  folders = spec.submodule_search_locations if spec is not None else None
  try:
    every = [file for folder in folders or () for file in os.scandir(Path(folder, "binding"))]
    files = [file for file in every if "llvmlite" in file.name]
    states = [(file.name, file.stat()) for file in sorted(files, key=lambda file: file.path)]
  except OSError:
    return ""
  return "\n".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)


def processors(listed: str | None = None) -> str:
  """What the system lists of the first processors; empty where it lists none."""
  lines = (system.processor_list() if listed is None else listed).split("\n")[:-1]  # the last one may be cut
  told = sorted({line for line in lines if line.partition("\t")[0].partition(":")[0].strip() in NAMING})
  return "\n".join((system.machine(), system.release(), *told)) if told else ""


ARM_FEATURES = {"asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16"}
"""Of what Linux lists of arm64 processors, and LLVM does not look for there: products of integers and of bfloat16
(Linux, Documentation/arch/arm64/elf_hwcaps.rst)."""


def with_arm_features(features: str, listed: str) -> str:
  """Features in LLVM's form, with those that are in a list of arm64 processors besides."""
  lines = [line.partition(":")[2].split() for line in listed.splitlines() if line.startswith("Features")]
  known = {feature[1:] for feature in features.split(",") if feature}
  more = [name for word, name in ARM_FEATURES.items() if lines and word in lines[0] and name not in known]
  return ",".join([*[f for f in features.split(",") if f], *[f"+{name}" for name in more]])


def _ask_version() -> str:
  import llvmlite
  import llvmlite.binding as llvm

  return f"llvmlite {llvmlite.__version__} llvm {'.'.join(map(str, llvm.llvm_version_info))}"


def _ask_processor() -> str:
  import llvmlite.binding as llvm

  features = with_arm_features(llvm.get_host_cpu_features().flatten(), system.processor_list())
  return "\n".join((llvm.get_process_triple(), name_by_features(llvm.get_host_cpu_name(), features), features))
