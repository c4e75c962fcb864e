"""The source of some kernels as text, which shows what a change does to it. `UPDATE_GOLDEN=1 pytest` writes it anew."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from tiny_codegen import compile_kernel
from tiny_runtime.conformance.standard import STANDARD, convolution, elementwise, matmul, sums, transpose
from tiny_runtime_metal import Arch, MetalRenderer
from tiny_uop import AddrSpace, KernelInfo, Ops, Opt, OptOps, PtrDType, UOp, dtypes

GOLDEN = Path(__file__).parent / "golden"
F32, F16, BF16 = dtypes.float32, dtypes.float16, dtypes.bfloat16


def opts(*chosen: tuple[OptOps, int, int | tuple[int, ...]]) -> list[Opt]:
  return [Opt(*one) for one in chosen]


def symbolic() -> UOp:
  """As many elements as a variable says."""
  n = UOp.variable("n", 1, 1000)
  i, floats = UOp.range(n, 0), F32.ptr(1000)
  store = UOp.param(0, floats).index(i).store(UOp.param(1, floats).index(i).load() * n.cast(F32)).end(i)
  return UOp.sink(store, arg=KernelInfo("symbolic"))


L, G, U, V, P, S, T = (
  OptOps.LOCAL, OptOps.GROUP, OptOps.UPCAST, OptOps.VECTOR, OptOps.PADTO, OptOps.STAGE, OptOps.TC
)  # fmt: skip
# name → kernel, arch, optimisations, so that what heuristics choose does not matter
TEXTS = {
  "elementwise": (elementwise(1024, F32), "apple9", opts((V, 0, 4), (L, 0, 32))),
  "elementwise_bfloat": (elementwise(1024, BF16), "apple9", opts((V, 0, 4), (L, 0, 32))),
  "elementwise_emulated": (elementwise(1024, BF16), "apple7 metal3.0", opts((L, 0, 32))),
  "group_sums": (sums(4, 256, 1), "apple9", opts((G, 1, 32))),
  "tiles": (matmul(32, 32, 32, F32, F32, F32), "mac2", opts((L, 0, 8), (L, 1, 8), (OptOps.SPLIT, 2, 8), (S, 1, (5,)))),
  "matrices": (matmul(32, 16, 64, BF16, F32, F32), "apple9", opts((T, 2, 1))),
  "matrices_padded": (matmul(12, 16, 8, F16, F32, F16), "apple8", opts((P, 0, 8), (T, 2, 0))),
  "padded": (transpose(30, 20), "apple9", opts((P, 0, 16), (L, 0, 16), (U, 1, 2))),
  "convolution": (convolution(3, 8, 4), "apple9", opts((L, 2, 8), (OptOps.UNROLL, 5, 0))),
  "symbolic": (symbolic(), "apple9", opts((P, 0, 32), (L, 0, 32))),
}


@pytest.mark.parametrize("name", TEXTS)
def test_golden_text(name: str) -> None:
  kernel, arch, chosen = TEXTS[name]
  text = str(compile_kernel(kernel, MetalRenderer(Arch.parse(arch)), chosen).src[2].arg)
  path = GOLDEN / f"{name}.metal"
  if os.environ.get("UPDATE_GOLDEN"):
    path.write_text(text, encoding="utf-8")
  assert text == path.read_text(encoding="utf-8"), f"{path} has another text; UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize("arch", ["apple9", "mac2"])
def test_standard_kernels(arch: str) -> None:
  """Every one compiles, within what a threadgroup has; nothing in it is of a type that the language lacks."""
  renderer, family = MetalRenderer(Arch.parse(arch)), Arch.parse(arch).family
  for name, make in STANDARD.items():
    program = compile_kernel(make(), renderer)
    source, local = str(program.src[2].arg), [int(size.arg) for size in program.src[4].src]
    pointers = [u.dtype for u in program.src[1].src if u.op is Ops.ALLOC and isinstance(u.dtype, PtrDType)]
    shared = sum(d.size * d.base.itemsize for d in pointers if d.space is AddrSpace.LOCAL)
    assert shared <= family.threadgroup_memory and math.prod(local) <= family.threads, name
    assert "double" not in source and ("bfloat" not in source or arch == "apple9"), name
