"""Level 0: what must work on a machine without the hardware."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tiny_runtime.binary import Binary
from tiny_runtime.conformance.failure import Misbehaved, demand, demand_equal, demand_raises
from tiny_runtime.conformance.kernels import elementwise, kernel
from tiny_runtime.conformance.target import Target
from tiny_runtime.contract import API, Compiler
from tiny_runtime.errors import CompileError, Unavailable
from tiny_runtime.plugins.discovery import plugins
from tiny_runtime.plugins.plugin import MEMBERS
from tiny_uop import IR_VERSION, Ops, UOp, dtypes, evaluate

IN_CHILD = """
import hashlib, sys
from tiny_runtime.conformance.target import find_target
from tiny_runtime.conformance.test_level0_package import sample
target = find_target(sys.argv[1], sys.argv[2])
compiler = target.backend.compiler(sys.argv[2])
print(hashlib.sha256(compiler.compile(sample()).to_bytes()).hexdigest())
print(compiler.key)
"""
IN_CHILD_FOR_ARCHS = """
import sys
from tiny_runtime.conformance.target import find_target
from tiny_runtime.conformance.test_level0_package import VARIANTS, sample, variants
target = find_target(sys.argv[1], sys.argv[2])
made = target.compiler.compile(sample()).to_bytes()
tried = 0
for arch in variants(sys.argv[2]):
  try:
    compiler = target.backend.compiler(arch)
    if compiler.compile(sample()).to_bytes() != made and compiler.key == target.compiler.key:
      print("same", arch, flush=True)
  except Exception:
    continue  # there is no such arch
  tried += 1
  if tried == VARIANTS:
    break
"""
VARIANTS = 12
"""Archs that are tried besides the one of the device."""


def sample() -> UOp:
  """A kernel with a loop, a reduction's worth of arithmetic and a variable."""
  n = UOp.variable("n", 1, 16)
  return elementwise("sample", 16, dtypes.float32, [dtypes.float32] * 2, lambda a, b: a * b + n.cast(dtypes.float32))


def name_of(target: Target) -> str:
  """By which another process finds the backend."""
  return target.name if target.name in plugins() else target.origin


def environment(seed: str = "0") -> dict[str, str]:
  """That of a child process that imports what this one does."""
  path = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
  return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}


def in_child(code: str, *arguments: str, seed: str = "0", folder: str | None = None) -> str:
  """Output of a fresh interpreter with the same path."""
  command, env = [sys.executable, "-c", code, *arguments], environment(seed)
  done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)
  what = f"a new Python process failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
  look_at = "what importing the plugin and compiling need besides the package itself"
  demand(done.returncode == 0, what, got=done.stderr, look_at=look_at)
  return done.stdout.strip()


def test_backend_has_the_contract_s_names(target: Target) -> None:
  lacking = [name for name in MEMBERS if inspect.getattr_static(target.backend, name, None) is None]
  demand(not lacking, f"the backend has no {', '.join(lacking)}", look_at="tiny_runtime.contract.Backend")


def test_api_version(target: Target) -> None:
  api = target.backend.api
  what = f"the plugin says that it is written for version {api[0]}.{api[1]} of the contract"
  expected = f"major {API[0]}, minor at most {API[1]}"
  look_at = "Backend.api: the version that you read, as numbers; and the dependency on tiny-runtime"
  demand(api[0] == API[0] and api[1] <= API[1], what, expected=expected, look_at=look_at)


def test_ir_versions(target: Target) -> None:
  lowest, highest = target.backend.ir
  what = f"the compiler says that it understands versions {lowest} to {highest} of the IR"
  expected, look_at = f"version {IR_VERSION} among them", "Backend.ir, and the dependency on tiny-uop"
  demand(lowest <= IR_VERSION <= highest, what, expected=expected, look_at=look_at)


def test_entry_point_names_the_backend(target: Target) -> None:
  plugin = plugins().get(target.name)
  if plugin is None:
    pytest.skip(f"{target.origin} is not installed under the name {target.name}")
  look_at = "the table tiny_runtime.backends.v1 in pyproject.toml; after a change, install again"
  demand_equal(plugin.value, target.origin, "the entry point", look_at=look_at)


def test_import_is_quiet(target: Target) -> None:
  printed = in_child(f"import {target.origin.partition(':')[0]}")
  demand(printed == "", "importing the plugin printed something", got=printed, look_at="code at module level")


def test_probe_returns(target: Target) -> None:
  found = target.backend.probe()
  if isinstance(found, Unavailable):
    demand(bool(found.reason), "probe gave Unavailable without a reason", look_at="Unavailable(reason, what_to_do)")
    return
  right = isinstance(found, Sequence) and not isinstance(found, str) and all(isinstance(a, str) and a for a in found)
  demand(right, "probe gave something else", expected="a sequence of arch names, or Unavailable", got=found)


def test_open_beyond_the_last_device_is_unavailable(target: Target) -> None:
  look_at = "open raises Unavailable, which says how many devices there are"
  demand_raises(Unavailable, lambda: target.backend.open(10**6), "opening device 1000000", look_at=look_at)


def test_compiler_key_is_stable(target: Target) -> None:
  key, again = target.compiler.key, target.backend.compiler(target.arch).key
  demand(isinstance(key, str) and bool(key), "the compiler's key", expected="a string that is not empty", got=key)
  look_at = "key names target, flags and versions, nothing that is new each time (ids, times)"
  demand_equal(again, key, "two compilers for one arch have two keys", look_at=look_at)


def test_compiler_pickles(target: Target) -> None:
  look_at = "the compiler holds plain data only: no device, no handle, no lock. Others are made when they are needed"
  try:
    copy: Compiler = pickle.loads(pickle.dumps(target.compiler))
  except Exception as error:
    raise Misbehaved("the compiler cannot be pickled", look_at=look_at) from error
  demand(copy.key == target.compiler.key, "a pickled compiler has another key", look_at=look_at)
  same = copy.compile(sample()).to_bytes() == target.compile(sample()).to_bytes()
  demand(same, "a pickled compiler compiles to other bytes", look_at=look_at, kernel=sample())


def test_compile_is_deterministic(target: Target, tmp_path: Path) -> None:
  """In every process, started anywhere and at any time: the same bytes, under the same key."""
  places = (("1", None), ("2", str(tmp_path)))
  found = [in_child(IN_CHILD, name_of(target), target.arch, seed=seed, folder=folder) for seed, folder in places]
  digests, keys = zip(*(text.split("\n", 1) for text in found))
  what = "the same kernel compiled to different bytes in two processes"
  look_at = "sets whose order depends on PYTHONHASHSEED or on id; times, paths and counters in the code"
  demand(digests[0] == digests[1], what, look_at=look_at, kernel=sample())
  what = "the compiler has another key in another process, so what is on disk is never found"
  look_at = "key names target, flags and versions: no number of the process, no time, no folder, no hash(), no id()"
  expected = target.compiler.key
  for key in keys:
    demand(key == expected.rstrip("\n"), what, expected=expected, got=key, look_at=look_at)


def variants(arch: str) -> Iterator[str]:
  """Texts that may be archs: the first parts alone, a part left out, another number."""
  for separator in " ;:,":
    parts = arch.split(separator)
    last = len(parts) - 1
    yield from (separator.join(parts[:count]) for count in range(last, max(last - 4, 0), -1))
    yield from (separator.join(parts[:place] + parts[place + 1 :]) for place in range(max(last - 3, 1), last))
  for found in re.finditer(r"\d+", arch):
    for step in (-1, 1, -10, 10):
      if (number := int(found[0]) + step) >= 0:
        yield f"{arch[: found.start()]}{number}{arch[found.end() :]}"


def test_the_key_depends_on_the_arch(target: Target) -> None:
  """Compilers with one key make the same of a kernel: those for two archs have two keys. Tried are the archs that probe
  lists, and those like them that the backend has a compiler for."""
  listed = target.backend.probe()
  archs = dict.fromkeys([target.arch, *(() if isinstance(listed, Unavailable) else listed)])
  look_at = "key has all that the output depends on besides the kernel: the arch, with its features, to begin with"
  keys: dict[str, str] = {}
  for arch in archs:
    key = target.backend.compiler(arch).key
    demand(key not in keys, f"the compilers for {keys.get(key)} and {arch} have one key", got=key, look_at=look_at)
    keys[key] = arch
  # in a process of its own: what is no arch at all may end a compiler of another language
  command = [sys.executable, "-c", IN_CHILD_FOR_ARCHS, name_of(target), target.arch]
  done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
  for line in done.stdout.splitlines():
    if line.startswith("same "):
      what = f"the compilers for {target.arch} and {line[5:]} make different programs, and have one key"
      demand(False, what, got=target.compiler.key, look_at=look_at)


def test_compiling_twice_gives_the_same(target: Target) -> None:
  first, second = (target.compile(sample()).to_bytes() for _ in range(2))
  look_at = "state that one call leaves for the next: counters in names, for example"
  demand(first == second, "a kernel compiled twice gave different bytes", look_at=look_at, kernel=sample())


def test_threads_compile_at_once(target: Target) -> None:
  kernels = [elementwise(f"threads{n}", 16 + n, dtypes.float32, [dtypes.float32], lambda a: a + 1.0) for n in range(8)]
  compile_in_threads(target, kernels, 4)


def compile_in_threads(target: Target, kernels: Sequence[UOp], count: int) -> None:
  """So many threads make of each kernel what one makes."""
  alone = [target.compile(sink).to_bytes() for sink in kernels]
  with ThreadPoolExecutor(count) as threads:
    together = list(threads.map(lambda sink: target.compile(sink).to_bytes(), [*kernels] * 3))
  look_at = "state that threads share; a lock around what cannot be shared is enough"
  demand(together == alone * 3, "kernels compiled by several threads at once came out differently", look_at=look_at)


def test_what_cannot_be_compiled_is_a_compile_error(target: Target) -> None:
  """Movement of tensors is no part of a kernel, so there is no code for it."""
  value = UOp.const(dtypes.float32, 1.0).replace(op=Ops.RESHAPE, src=(UOp.const(dtypes.float32, 1.0),), arg=(1,))
  sink = kernel("illegal", UOp.param(0, dtypes.float32.ptr(1)).index(0).store(value))
  look_at = "compile raises CompileError(message, source) for every kernel that it has no code for, and nothing else"
  what = "compile took an illegal kernel, or"
  error = demand_raises(CompileError, lambda: target.compiler.compile(sink), what, look_at=look_at, kernel=sink)
  demand(bool(str(error)), "CompileError without a message", look_at=look_at, kernel=sink)


def test_binary_survives_serialisation(target: Target) -> None:
  binary = target.compile(sample())
  again = Binary.from_bytes(binary.to_bytes())
  look_at = "the fields of Binary have the types that it declares: tuples, bytes, UOps"
  demand_equal(again, binary, "a binary changed on its way through bytes", look_at=look_at)


def test_binary_describes_the_kernel(target: Target) -> None:
  binary = target.compile(sample())
  f = dtypes.float32
  expected = [(0, f, 16, True, False), (1, f, 16, False, True), (2, f, 16, False, True)]
  got = [(p.slot, p.dtype, p.size, p.written, p.read) for p in binary.params]
  what = "Binary.params: (slot, dtype, size, written, read)"
  demand_equal(got, expected, what, look_at="one ParamInfo per PARAM", kernel=sample())
  demand_equal(binary.variables, ("n",), "Binary.variables", kernel=sample())
  lacking = [name for name in ("code", "entry", "source") if not getattr(binary, name)]
  demand(not lacking, f"Binary: {', '.join(lacking)} is empty", look_at="`source` is text for people", kernel=sample())


def test_estimates_are_numbers(target: Target) -> None:
  binary = target.compile(sample())
  for name, size in (("ops", binary.ops), ("nbytes", binary.nbytes)):
    count = evaluate(size, {"n": 3})
    right = isinstance(count, int) and count >= 0
    demand(right, f"Binary.{name}", expected="an index expression over the variables, 0 or more", got=count)
  moved = evaluate(binary.nbytes, {"n": 3})
  look_at = "the bytes of memory that a launch touches, here three buffers of 64; DEBUG=2 divides them by the time"
  right = isinstance(moved, int) and 96 <= moved <= 384
  demand(right, "Binary.nbytes", expected="about 192", got=moved, look_at=look_at, kernel=sample())
