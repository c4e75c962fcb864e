"""Measures one product with each choice of instructions that the GPU has: which of them pays, and by how much.

`choices.py` prints a line of JSON for each, as measure.py does; `--compile` only compiles, which needs no GPU. Time is
what the GPU counted from the start of a kernel to its end, the median of several.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tiny_codegen import Target, compile_kernel
from tiny_runtime import Binary
from tiny_runtime.conformance.standard import matmul
from tiny_runtime_nv import CUDA, Arch, NVCompiler
from tiny_runtime_nv.target import PTXRenderer
from tiny_uop import DType, UOp, dtypes

Array = np.ndarray[Any, np.dtype[Any]]
TIMES = 20
BF16, FP8 = dtypes.bfloat16, dtypes.fp8e4m3
Change = Callable[[Target], Target]


def without_near(given: Target) -> Target:
  """mma.sync in the place of wgmma."""
  return replace(given, tensor_cores=tuple([core for core in given.tensor_cores if core.shared is None]))


def without_copies(given: Target) -> Target:
  """Through registers in the place of cp.async."""
  return replace(given, async_copy=0)


def without_matrix_loads(given: Target) -> Target:
  """Element by element in the place of ldmatrix."""
  return replace(given, matrix_loads=False)


def columns(number: int) -> Change:
  """wgmma of so many columns only."""

  def change(given: Target) -> Target:
    return replace(
      given, tensor_cores=tuple([c for c in given.tensor_cores if c.shared is None or c.dims[0] == number])
    )

  return change


# what is multiplied, whether the second matrix is turned, and what is changed of what the target can do
CHOICES: Mapping[str, tuple[DType, bool, tuple[Change, ...]]] = {
  "bf16 8192: wgmma 128×256": (BF16, False, (columns(256),)),
  "bf16 8192: wgmma 128×128": (BF16, False, (columns(128),)),
  "bf16 8192: wgmma 128×64": (BF16, False, (columns(64),)),
  "bf16 8192: wgmma, turned": (BF16, True, (columns(256),)),
  "bf16 8192: wgmma, no cp.async": (BF16, False, (columns(256), without_copies)),
  "bf16 8192: mma.sync": (BF16, False, (without_near,)),
  "bf16 8192: mma.sync, no cp.async": (BF16, False, (without_near, without_copies)),
  "bf16 8192: mma.sync, no ldmatrix": (BF16, False, (without_near, without_matrix_loads)),
  "fp8 8192: mma.sync": (FP8, True, ()),
}


def kernel(size: int, dtype: DType, turned: bool) -> UOp:
  """The product, in the type that its operands have, or float32 for those of 8 bits."""
  return matmul(size, size, size, dtype, dtypes.float32, BF16 if dtype is BF16 else dtypes.float32, turned)


def compiled(name: str, arch: str, size: int) -> Binary:
  """The kernel of a choice. Raises CompileError."""
  dtype, turned, changes = CHOICES[name]
  renderer = PTXRenderer(Arch.parse(arch))
  for change in changes:
    renderer.target = change(renderer.target)
  renderer.llvm = replace(renderer.llvm, target=renderer.target)
  return NVCompiler(Arch.parse(arch)).assemble(compile_kernel(kernel(size, dtype, turned), renderer))


def operand(size: int, dtype: DType, seed: int) -> tuple[Array, Array]:
  """(bits, numbers) of a random matrix. Of 8 bits: 0.5, 1, 1.5 and 2 with either sign."""
  generator = np.random.default_rng(seed)
  if dtype is FP8:
    codes, values = np.array([0x30, 0x38, 0x3C, 0x40], np.uint8), np.array([0.5, 1, 1.5, 2], np.float32)
    which, signs = generator.integers(0, 4, (size, size)), generator.integers(0, 2, (size, size)).astype(np.uint8)
    return codes[which] | signs << 7, values[which] * (1 - 2 * signs.astype(np.float32))
  bits = (generator.random((size, size), np.float32) * 2 - 1).view(np.uint32) >> 16
  return bits.astype(np.uint16), (bits << 16).view(np.float32)


def measured(name: str, size: int) -> dict[str, Any]:
  """Time and error. Raises ValueError for a wrong result."""
  dtype, turned, _ = CHOICES[name]
  start = time.perf_counter()
  device = CUDA.open(0)
  try:
    binary = compiled(name, device.info.arch, size)
    (a_bits, a), (b_bits, b) = operand(size, dtype, 0), operand(size, dtype, 1)
    memories = [device.alloc(p.size * p.dtype.itemsize) for p in binary.params]
    device.write(memories[1], 0, a_bits.data.cast("B"))
    device.write(memories[2], 0, b_bits.data.cast("B"))
    program = device.load(binary)
    grid, block = (tuple(int(u.arg) for u in group) for group in (binary.global_size, binary.local_size))

    def run() -> float:
      return device.launch(program, [(memory, 0) for memory in memories], [], grid, block, True) or 0.0

    run()
    first = time.perf_counter() - start
    out = np.zeros((size, size), np.uint16 if dtype is BF16 else np.float32)
    device.read(memories[0], 0, out.data.cast("B"))
    rows = np.arange(0, size, size // 16 + 1)
    found = (out[rows].astype(np.uint32) << 16).view(np.float32) if dtype is BF16 else out[rows]
    expected = a[rows].astype(np.float64) @ (b.T if turned else b)
    error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    if not error < 1e-2:
      raise ValueError(f"the result is wrong: its error is {error:.1e}")
    seconds = statistics.median(run() for _ in range(TIMES))
  finally:
    device.close()
  return {"seconds": seconds, "error": error, "first": first, "operations": 2.0 * size**3, "nbytes": 0}


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("choices", nargs="*", default=list(CHOICES), metavar="choice")
  parser.add_argument("--size", type=int, default=8192)
  parser.add_argument("--compile", metavar="ARCH", help="only compile, for an architecture")
  given = parser.parse_args()
  failed = 0
  for name in given.choices:
    try:
      if given.compile:
        print(f"{name}: {len(compiled(name, given.compile, given.size).code)} bytes of PTX", flush=True)
      else:
        print(json.dumps({"workload": name, "library": "ours", **measured(name, given.size)}), flush=True)
    except Exception:
      failed += 1
      print(f"{name} failed\n{traceback.format_exc()}", flush=True)
  return int(failed > 0)


if __name__ == "__main__":
  sys.exit(main())
