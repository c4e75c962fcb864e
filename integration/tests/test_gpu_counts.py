"""What kernels that a GPU gets do with its memory, counted on the model: `hatch run gpu-counts` prints all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counts import SECTOR, counted

from gpu_model.toolchain import compiler
from tiny_codegen import compile_kernel
from tiny_runtime import Binary
from tiny_runtime.conformance.standard import layer_norm, matmul, softmax, sums, transpose
from tiny_runtime_metal import Arch, MetalRenderer
from tiny_uop import UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

F = dtypes.float32


@pytest.mark.parametrize(
  ("make", "barriers"),
  (
    (lambda: transpose(96, 256), 1),
    (lambda: transpose(70, 96), 1),
    (lambda: softmax(4096, 256), 0),
    (lambda: layer_norm(4096, 256), 0),
    (lambda: softmax(8, 4096), 2),
    (lambda: sums(512, 8192, 1), 1),
    (lambda: sums(4096, 512, 0), 1),
    (lambda: matmul(1, 2048, 512, F, F, F, transposed=True), 0),
  ),
  ids=("transpose", "odd", "softmax", "layer_norm", "long", "rows", "columns", "thin"),
)
def test_neighbours_move_neighbours(make: Callable[[], UOp], barriers: int) -> None:
  """Of sectors all is used, but for what single results leave of theirs; no two threads want one bank."""
  binary = Binary.of(compile_kernel(make(), MetalRenderer(Arch.parse("apple9"))), b"")
  counts = counted(binary, 2)
  assert counts["load_bytes"] >= 0.9 * SECTOR * counts["load_sectors"]
  assert counts["stores"] <= 2 * counts["groups"] or counts["store_bytes"] >= 0.8 * SECTOR * counts["store_sectors"]
  assert counts["shared_cycles"] == counts["shared"]
  assert counts["barriers"] == barriers * counts["groups"]
