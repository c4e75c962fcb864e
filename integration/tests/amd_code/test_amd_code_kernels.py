"""Kernels that the plugin compiles, as machine code of each chip: products of matrices against NumPy, and mutations of
code and of layouts, all of which are found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amd_code_machine import run_image

from gpu_model.amd_code.emulator import Fault, Unknown
from gpu_model.toolchain import compiler
from tiny_asm_amd import Instruction, decode
from tiny_codegen import Fragment, LLVMRenderer, TensorCore, compile_kernel
from tiny_codegen.render.llvm.matrix import MatrixInstruction
from tiny_runtime import Binary
from tiny_runtime.conformance.standard import linear, matmul, softmax, sums
from tiny_runtime_amd import AMDCompiler, Arch, CodeObject
from tiny_runtime_amd.target import target
from tiny_uop import Opt, OptOps, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CHIPS = ("gfx1100", "gfx1201", "gfx942", "gfx950")
PRODUCTS = [(chip, kind) for chip in CHIPS for kind in ("float16", "bfloat16", "int8", "uint8", "float64")
            if not (kind == "uint8" and chip[3] == "9" or kind == "float64" and chip[3] != "9")]  # fmt: skip
Array = Any


def compiled(kernel: UOp, chip: str, opts: Sequence[Opt] | None, matrices: Sequence[MatrixInstruction] = ()) -> Binary:
  """The binary of a kernel; with other matrix instructions than the plugin's."""
  arch = Arch.parse(chip)
  about = target(arch)
  if matrices:
    cores = tuple(m.core for m in matrices)
    about = replace(about, matrices=tuple(matrices), target=replace(about.target, tensor_cores=cores))
  return AMDCompiler(arch).assemble(compile_kernel(kernel, LLVMRenderer(about), None if opts is None else list(opts)))


def launched(binary: Binary, chip: str, arrays: Sequence[Array], image: bytes | None = None) -> set[int]:
  """Run a binary, or with another image, on arrays; the places in the image where something was done."""
  code = CodeObject.parse(binary.code)
  groups, threads = (tuple(int(u.arg) for u in size) for size in (binary.global_size, binary.local_size))
  kernel, content = code.kernels[binary.entry], bytes(code.image) if image is None else image
  return run_image(chip, content, kernel, arrays, groups, threads)


def instructions(binary: Binary, chip: str) -> Iterator[tuple[int, Instruction]]:
  """Places in the image, and what is there, to the end of the kernel."""
  code = CodeObject.parse(binary.code)
  at, image = code.kernels[binary.entry].entry, bytes(code.image)
  while True:
    made = decode(image[at : at + 20], chip)
    yield at, made
    at += made.size
    if made.mnemonic == "s_endpgm":
      return


def narrow(kind: str, values: Array) -> Array:
  """Small integers as numbers of a type; bfloat16 as its bits."""
  return (
    (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) if kind == "bfloat16" else values.astype(kind)
  )


def product(chip: str, kind: str, matrices: Sequence[MatrixInstruction] = ()) -> tuple[Array, Array]:
  """A product of 32 × 64 by 64 × 48 as the chip computes it with its matrix instructions, and as NumPy does."""
  free = np.random.default_rng(0)
  dtype = dtypes.parse(kind)
  total = dtype if kind == "float64" else dtypes.float32 if dtype.kind == "float" else dtypes.int32
  low = 0 if kind == "uint8" else -8
  a, b = free.integers(low, 9, (32, 64)), free.integers(low, 9, (64, 48))
  out = np.zeros((32, 48), total.name)
  binary = compiled(matmul(32, 48, 64, dtype, total, total), chip, [Opt(OptOps.TC, 2, None)], matrices)
  names = {made.mnemonic for _, made in instructions(binary, chip)}
  assert any(name.startswith(("v_wmma", "v_mfma")) for name in names)
  launched(binary, chip, [out, narrow(kind, a), narrow(kind, b)])
  return out, (a @ b).astype(total.name)


@pytest.mark.parametrize(("chip", "kind"), PRODUCTS)
def test_products_of_matrices(chip: str, kind: str) -> None:
  found, wanted = product(chip, kind)
  assert (found == wanted).all()


def turned(fragment: Fragment) -> Fragment:
  """Rows of results that are neighbours in a thread are in neighbouring threads, and the other way round."""
  (columns, (groups, step, _), *_), ((count, own, _), *more) = fragment.threads, fragment.elements
  assert (step, own) in ((1, groups), (count, 1))
  rows = ((groups, count, 0), (count, 1, 0)) if step == 1 else ((groups, 1, 0), (count, groups, 0))
  return Fragment((columns, rows[0]), (rows[1], *more))


def shuffled(fragment: Fragment) -> Fragment:
  """Lanes have other rows of A, or columns of B: the first four are 0, 4, 8 and 12."""
  (_, down, right), *groups = fragment.threads
  return Fragment(((4, 4 * down, 4 * right), (4, down, right), *groups), fragment.elements)


def apart(fragment: Fragment) -> Fragment:
  """Terms of the sum that are neighbours in a lane are half of its terms apart."""
  ((count, down, right),) = fragment.elements
  half = count // 2
  return Fragment(fragment.threads, ((2, down * half, right * half), (half, down, right)))


WRONG: dict[str, Callable[[TensorCore], TensorCore]] = {
  "results": lambda core: replace(core, c=turned(core.c)), "rows of A": lambda core: replace(core, a=shuffled(core.a)),
  "columns of B": lambda core: replace(core, b=shuffled(core.b)),
  "terms of A": lambda core: replace(core, a=apart(core.a)), "terms of B": lambda core: replace(core, b=apart(core.b)),
}  # fmt: skip
"""Of float64 a lane has one term."""
OFTEN = {("float16", "results"), ("float16", "rows of A"), ("int8", "results"),
         ("float64", "results")}  # fmt: skip
"""Those that are not for the night only."""
LAYOUTS = [
  pytest.param(chip, kind, wrong, marks=() if (kind, wrong) in OFTEN else pytest.mark.nightly)
  for chip, kind in PRODUCTS for wrong in WRONG if kind != "float64" or "terms" not in wrong
]  # fmt: skip


@pytest.mark.parametrize(("chip", "kind", "wrong"), LAYOUTS)
def test_a_wrong_layout_is_found(chip: str, kind: str, wrong: str) -> None:
  matrices = [
    replace(m, core=WRONG[wrong](m.core)) for m in target(Arch.parse(chip)).matrices if m.core.dtype_in.name == kind
  ]
  found, wanted = product(chip, kind, matrices)
  assert not (found == wanted).all()


# *** mutations of code ***

KERNELS: dict[str, tuple[UOp, list[Opt] | None]] = {
  "sums": (sums(4, 1024, 1), [Opt(OptOps.GROUP, 1, 256)]), "linear": (linear(128, 128, 64), None),
  "softmax": (softmax(4, 128), None),
}  # fmt: skip


def buffers(binary: Binary) -> list[Array]:
  """Random numbers for each parameter."""
  free = np.random.default_rng(1)
  return [free.standard_normal(p.size).astype(p.dtype.name) for p in binary.params]


def mutated(image: bytes, at: int, made: Instruction) -> Iterator[tuple[str, bytes]]:
  """What one instruction can be instead, with what is wrong then."""

  def put(words: bytes) -> bytes:
    return image[:at] + words + image[at + len(words) :]

  name, old = made.mnemonic, int.from_bytes(image[at : at + 8], "little")
  if name.startswith(("s_waitcnt", "s_wait_")):
    yield "no wait", put(bytes.fromhex("000080bf"))
  if name in ("s_barrier", "s_barrier_signal", "s_barrier_wait"):
    yield "no barrier", put(bytes.fromhex("000080bf"))
  if name.startswith(("ds_load", "ds_store", "ds_read", "ds_write")):
    yield "another offset", put((old ^ 64).to_bytes(8, "little"))
  if name.startswith(("global_load", "global_store")) and "saddr" in made.operands:
    shift = made.row.layout.fields["saddr"][0][0]
    yield "another base", put((old ^ (2 << shift)).to_bytes(8, "little"))


UNSEEN = {"linear": r"no wait: s_wait(cnt lgkmcnt\(0\)|_dscnt 0)|another offset: ds_(store|write)"}
"""Its workgroup is one wave, which shared memory serves in order: waits between its stores and loads are for others.
Nobody reads the last tile that it stores."""


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("chip", CHIPS)
def test_mutations_are_found(chip: str, kernel: str) -> None:
  """Each wait left out, each barrier, each offset in shared memory changed, each base exchanged for its neighbour: an
  error, or another result."""
  made, opts = KERNELS[kernel]
  binary = compiled(made, chip, opts)
  arrays = buffers(binary)
  seen = launched(binary, chip, arrays)
  wanted, image = arrays[0].copy(), bytes(CodeObject.parse(binary.code).image)
  left, count = [], 0
  for at, instruction in instructions(binary, chip):
    for what, wrong in mutated(image, at, instruction) if at in seen else ():
      count += 1
      given = [np.zeros_like(arrays[0]), *arrays[1:]]
      try:
        launched(binary, chip, given, wrong)
      except (Fault, Unknown):
        continue
      if np.array_equal(given[0], wanted):
        left.append(f"{what}: {instruction}")
  unseen = [text for text in left if re.match(UNSEEN.get(kernel, "$"), text)]
  assert count >= 4 and left == unseen and len(left) <= count // 4, f"{len(left)} of {count}: {left}"
