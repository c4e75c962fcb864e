"""ptxas takes what we write, and spills nothing. It comes with the extra `ptxas`."""

from __future__ import annotations

import pytest
from nv_assembler import assemble

from tiny_runtime import CompileError
from tiny_runtime.conformance.standard import STANDARD, matmul
from tiny_runtime_nv import Arch, NVCompiler, ptxas
from tiny_uop import dtypes

pytestmark = pytest.mark.skipif(ptxas.find_ptxas() is None, reason="no ptxas: pip install nvidia-cuda-nvcc")


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
@pytest.mark.parametrize("name", STANDARD)
def test_standard_kernels(name: str, arch: str) -> None:
  report = assemble(NVCompiler(Arch.parse(arch)).compile(STANDARD[name]()).code, arch)
  assert (
    not report.losses
    and report.spilled == 0
    and 0 < report.registers <= 255
    and report.shared <= Arch.parse(arch).shared_memory
  )


def test_a_refusal_has_the_message() -> None:
  with pytest.raises(CompileError, match="ptxas refused it: .*syntax error"):
    assemble(b".version 8.0\n.target sm_90a\n.address_size 64\nnonsense\n", "sm_90a")


@pytest.mark.parametrize("depth", [64, 128])
def test_scores_of_attention_are_not_serialised(depth: int) -> None:
  """Accumulators of 128 registers, with a sum of one step and of two."""
  kernel = matmul(2048, 2048, depth, dtypes.bfloat16, dtypes.float32, dtypes.float32, transposed=True)
  binary = NVCompiler(Arch.parse("sm_90a")).compile(kernel)
  assert b"wgmma.mma_async" in binary.code and assemble(binary.code, "sm_90a").losses == ()
