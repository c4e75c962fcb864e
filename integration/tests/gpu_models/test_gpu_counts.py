"""What kernels that a GPU gets do with its memory, counted on the model: `hatch run gpu-counts` prints all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counts import SECTOR, counted, counted_ptx, number

from gpu_model.toolchain import compiler
from tiny_codegen import compile_kernel
from tiny_runtime import Binary
from tiny_runtime.conformance.standard import layer_norm, matmul, softmax, sums, transpose
from tiny_runtime_metal import Arch, MetalRenderer
from tiny_runtime_nv import Arch as NVArch
from tiny_runtime_nv import NVCompiler
from tiny_uop import DType, UOp, dtypes

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


ROWS = {
  "softmax": lambda: softmax(512, 8192),
  "odd softmax": lambda: softmax(4096, 1000),
  "short softmax": lambda: softmax(8192, 100),
  "layer norm": lambda: layer_norm(4096, 1024),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_read_once(name: str) -> None:
  """What a row is normalised with and the row itself come from one read: it stays in registers."""
  counts = counted_ptx(NVCompiler(NVArch.parse("sm_90a")).compile(ROWS[name]()), 1)
  assert counts["load_sectors"] <= 1.25 * counts["load_fresh"]
  assert counts["load_bytes"] >= 0.9 * SECTOR * counts["load_sectors"]


@pytest.mark.parametrize(
  ("rows", "columns", "groups"), ((4096, 17, 512), (4096, 31, 512), (64, 512, 64), (256, 1000, 128))
)
def test_short_rows_keep_a_device_busy(rows: int, columns: int, groups: int) -> None:
  """Neighbours read neighbours where a wave has several rows, too; and few rows are not put into fewer workgroups."""
  binary = NVCompiler(NVArch.parse("sm_90a")).compile(sums(rows, columns, 1))
  counts = counted_ptx(binary, 1)
  assert counts["load_bytes"] >= 0.6 * SECTOR * counts["load_sectors"]
  assert number(binary.global_size[0]) >= groups


H, S8, S32 = dtypes.float16, dtypes.int8, dtypes.int32


@pytest.mark.parametrize("turned", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize(("dtype", "total"), [(H, F), (S8, S32), (F, F)], ids=["float16", "int8", "tf32"])
def test_tiles_of_tensor_cores_have_no_two_threads_in_a_bank(dtype: DType, total: DType, turned: bool) -> None:
  """Neither the copies that write them nor the loads of fragments, whichever way an operand lies; and it is read from
  memory in whole lines."""
  compiler = NVCompiler(NVArch.parse("sm_80"), tf32=True)
  binary = compiler.compile(matmul(1024, 1024, 128, dtype, total, total, turned))
  text = binary.code.decode()
  assert "mma.sync" in text and "ldmatrix" in text and "cp.async.cg" in text
  counts = counted_ptx(binary, 1)
  assert counts["shared_cycles"] == counts["shared_least"]
  assert counts["load_bytes"] == SECTOR * counts["load_sectors"]
