"""What a second process finds in the disk cache, on this processor and on another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tiny_runtime_cpu import host_arch
from tiny_runtime_cpu.host import Arch
from tiny_runtime_cpu.linker import links_here

PROGRAM = """
import json, sys
from array import array
from tiny_runtime import buffer_of, run
from tiny_uop import Context, KernelInfo, Ops, UOp, dtypes

if len(sys.argv) > 1:  # a processor that says of itself, and of which LLVM says, what another one does
  from tiny_runtime.llvm import machine
  told = machine.identity()
  machine.identity = lambda: told and told + " another"
  machine._ask_processor = lambda: chr(10).join(sys.argv[1].split(":")[:3])

compiled, taken = [], []
def watch(frame, event, argument):
  file, name = frame.f_code.co_filename, frame.f_code.co_name
  if event == "call" and file.endswith("optimizer.py") and name == "module":
    compiled.append(1)
  if event == "return" and file.endswith("private_files.py") and name == "read_payload" and argument is not None:
    taken.append(frame.f_locals["path"].name)
sys.setprofile(watch)

SIZE = 1 << 20  # so much that the thread pool is needed
a, b = (UOp.new_buffer("CPU", SIZE, dtypes.float32) for _ in range(2))
buffer_of(a).write(array("f", [3.0]) * SIZE)
i = UOp.range(SIZE, 0)
out, source = (UOp.param(slot, dtypes.float32.ptr(SIZE)) for slot in range(2))
value = (source.index(i).load() + 0.5).sqrt()
kernel = UOp.sink(out.index(i).store(value).end(i), arg=KernelInfo("root"))
with Context(CPU_COUNT=2):
  run(UOp(Ops.LINEAR, dtypes.void, (UOp(Ops.CALL, dtypes.void, (kernel, b, a)),)))
result = memoryview(buffer_of(b).read()).cast("f")
assert max(abs(x - 3.5**0.5) for x in (min(result), max(result))) < 1e-6
imported = [name for name in ("tiny_codegen", "llvmlite", "importlib.metadata") if name in sys.modules]
from tiny_runtime_cpu import host_arch
print(json.dumps([len(compiled), imported, taken, str(host_arch())]))
"""


class Found(NamedTuple):
  """What a process had to compile, what it imported for that, names of files that it took from the cache, and the
  processor that it knew."""

  compiled: int
  imported: list[str]
  taken: list[str]
  arch: str


def process(cache: Path, *processor: str) -> Found:
  """Run the program with a folder of caches, as on another processor if one is given."""
  environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "TINY_CACHE": ""}
  command = [sys.executable, "-c", PROGRAM, *processor]
  result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
  assert result.returncode == 0, result.stderr
  return Found(*json.loads(result.stdout))


def files(cache: Path) -> dict[str, Path]:
  """All that is kept, by name."""
  return {path.name: path for path in cache.rglob("*") if path.is_file()}


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
  first, second = process(tmp_path), process(tmp_path)
  assert (first.compiled, first.imported) == (2, ["tiny_codegen", "llvmlite"])  # the kernel and the thread pool
  assert second.compiled == 0
  assert second.imported == ([] if links_here() else ["llvmlite"]), "nor does it import what compiles"


LACKING = {"avx512f": ("avx512", "avx10"), "avx": ("avx", "fma", "f16c", "vaes", "vpclmulqdq", "xop"),
           "dotprod": ("dotprod", "i8mm", "bf16"), "crc": ("crc",)}  # fmt: skip
"""What a processor lacks that differs from this one by a feature, the first here that it has: beginnings of names."""


def another_processor() -> Arch:
  """One whose programs this one runs."""
  host = host_arch()
  lacking = next((names for feature, names in LACKING.items() if host.has(feature)), None)
  if lacking is None:
    pytest.skip(f"nothing to take away from {host}: it has none of {', '.join(LACKING)}")
  features = [f"-{f[1:]}" if f[1:].startswith(lacking) else f for f in host.features.split(",")]
  return replace(host, features=",".join(features))


def test_a_folder_that_moves_to_another_processor(tmp_path: Path) -> None:
  """Nothing that was compiled for one is run on the other, not even under the other's name; each keeps its own."""
  places = [tmp_path / f"home{n}" for n in range(4)]
  other = another_processor()
  here = process(places[0])
  of_first = files(places[0])
  places[0].rename(places[1])
  there = process(places[1], str(other))
  assert (here.compiled, there.compiled) == (2, 2) and (here.arch, there.arch) == (str(host_arch()), str(other))
  of_second = {name: path for name, path in files(places[1]).items() if name not in of_first}
  # that the plugin was tried and LLVM's version are of no processor; what LLVM says of it, the kernel and the pool are
  plugin, version = sorted(there.taken, key=lambda name: files(places[1])[name].parent.name == "other")
  assert files(places[1])[plugin].parent.name == "plugins"
  assert b"llvmlite" in files(places[1])[version].read_bytes()[-60:]
  assert len(of_first) == len(of_second) + 2
  # only on Linux is it kept what LLVM says of the processor
  expected = ["binaries", *["other"] * (2 if sys.platform.startswith("linux") else 1)]
  assert sorted(path.parent.name for path in of_second.values()) == expected

  places[1].rename(places[2])
  again = process(places[2])
  assert again.compiled == 0 and set(again.taken) == set(of_first)

  places[2].rename(places[3])
  kept = {name: path.read_bytes() for name, path in files(places[3]).items()}
  for folder in ("binaries", "other"):  # the least is what LLVM says of the processor, the largest the pool
    of_one, of_another = (
      sorted(
        (kept[name] for name in names if name != version and files(places[3])[name].parent.name == folder), key=len
      )
      for names in (of_first, of_second)
    )
    assert len(of_one) == len(of_another)
    for good, forged in zip(of_another, of_one):
      name = next(name for name in of_second if kept[name] == good)
      files(places[3])[name].write_bytes(forged)
  refused = process(places[3], str(other))
  assert (refused.compiled, set(refused.taken), refused.arch) == (2, {plugin, version}, str(other))
  assert {name: path.read_bytes() for name, path in files(places[3]).items()} == kept
  assert process(places[3], str(other)).compiled == 0


def test_the_code_generator_has_no_settings_of_its_own() -> None:
  """They would have to be known before it is imported, since the keys of the cache contain them."""
  code = "from tiny_uop import ContextVar; import tiny_runtime_cpu; known = set(ContextVar.registry); "
  code += "import tiny_codegen; print(set(ContextVar.registry) - known)"
  found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
  assert found.strip() == "set()"
