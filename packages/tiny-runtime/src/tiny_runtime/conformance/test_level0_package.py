"""Level 0: what must work on a machine without the hardware."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiny_runtime.binary import Binary
from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.conformance.target import Target
from tiny_runtime.contract import API, Backend, Compiler
from tiny_runtime.discovery import plugins
from tiny_runtime.errors import Unavailable
from tiny_uop import IR_VERSION, UOp, dtypes

IN_CHILD = """
import hashlib, sys
from tiny_runtime.conformance.target import find_target
from tiny_runtime.conformance.test_level0_package import sample
target = find_target(sys.argv[1])
print(hashlib.sha256(target.backend.compiler(sys.argv[2]).compile(sample()).to_bytes()).hexdigest())
"""


def sample() -> UOp:
  """A kernel with a loop, a reduction's worth of arithmetic and a variable."""
  n = UOp.variable("n", 1, 16)
  return elementwise("sample", 16, dtypes.float32, [dtypes.float32] * 2, lambda a, b: a * b + n.cast(dtypes.float32))


def in_child(code: str, *arguments: str, seed: str = "0") -> str:
  """Output of a fresh interpreter with the same path."""
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": seed}
  done = subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, timeout=120)
  assert done.returncode == 0, done.stderr
  return done.stdout.strip()


def test_backend_has_the_contract_s_names(target: Target) -> None:
  assert isinstance(target.backend, Backend)


def test_api_version(target: Target) -> None:
  major, minor = target.backend.api
  assert major == API[0], f"written for major version {major} of the contract, this is {API[0]}"
  assert minor <= API[1], f"needs minor version {minor} of the contract, this is {API[1]}"


def test_ir_versions(target: Target) -> None:
  lowest, highest = target.backend.ir
  assert lowest <= IR_VERSION <= highest, f"understands versions {lowest} to {highest} of the IR, this is {IR_VERSION}"


def test_entry_point_names_the_backend(target: Target) -> None:
  plugin = plugins().get(target.name)
  if plugin is None:
    pytest.skip(f"{target.origin} is not installed under the name {target.name}")
  assert plugin.value == target.origin


def test_import_is_quiet(target: Target) -> None:
  module = target.origin.partition(":")[0]
  assert in_child(f"import {module}") == "", "importing the plugin printed something"


def test_probe_returns(target: Target) -> None:
  found = target.backend.probe()
  if isinstance(found, Unavailable):
    assert found.reason, "Unavailable without a reason"
  else:
    assert isinstance(found, Sequence) and not isinstance(found, str)
    assert all(isinstance(arch, str) and arch for arch in found)


def test_open_beyond_the_last_device_is_unavailable(target: Target) -> None:
  with pytest.raises(Unavailable):
    target.backend.open(10**6)


def test_compiler_key_is_stable(target: Target) -> None:
  key = target.compiler.key
  assert key and key == target.backend.compiler(target.arch).key


def test_compiler_pickles(target: Target) -> None:
  copy: Compiler = pickle.loads(pickle.dumps(target.compiler))
  assert copy.key == target.compiler.key
  assert copy.compile(sample()).to_bytes() == target.compiler.compile(sample()).to_bytes()


def test_compile_is_deterministic(target: Target) -> None:
  name = target.name if target.name in plugins() else target.origin
  digests = {in_child(IN_CHILD, name, target.arch, seed=seed) for seed in ("1", "2")}
  assert len(digests) == 1, "the same kernel compiled to different bytes in two processes"


def test_threads_compile_at_once(target: Target) -> None:
  kernels = [elementwise(f"threads{n}", 16 + n, dtypes.float32, [dtypes.float32], lambda a: a + 1.0) for n in range(8)]
  alone = [target.compiler.compile(sink).to_bytes() for sink in kernels]
  with ThreadPoolExecutor(4) as threads:
    together = list(threads.map(lambda sink: target.compiler.compile(sink).to_bytes(), kernels * 3))
  assert together == alone * 3


def test_binary_survives_serialisation(target: Target) -> None:
  binary = target.compiler.compile(sample())
  assert Binary.from_bytes(binary.to_bytes()) == binary


def test_binary_describes_the_kernel(target: Target) -> None:
  binary = target.compiler.compile(sample())
  assert [p.slot for p in binary.params] == [0, 1, 2]
  assert [p.written for p in binary.params] == [True, False, False]
  assert [p.read for p in binary.params] == [False, True, True]
  assert [(p.dtype, p.size) for p in binary.params] == [(dtypes.float32, 16)] * 3
  assert binary.variables == ("n",)
  assert binary.code and binary.entry and binary.source
