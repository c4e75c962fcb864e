"""The kit for a compiler without its device, and the standard kernels."""

from __future__ import annotations

import pytest

from tiny_runtime import Binary, CompileError
from tiny_runtime.conformance.compile_only import CompileOnly
from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.conformance.standard import STANDARD, matmul
from tiny_runtime.conformance.target import Target
from tiny_runtime.generated import compile_generated
from tiny_runtime.ref import BACKEND as REF
from tiny_uop import UOp, dtypes, spec

KERNEL = elementwise("half", 4, dtypes.float32, [dtypes.float32], lambda a: a * 0.5)
INPUTS = [b"\xff" * 16, memoryview(b"\0\0\x80?" * 4).tobytes()]


def test_kernels_are_checked_and_run_by_ref() -> None:
  seen: list[Binary] = []
  backend = CompileOnly(REF, "python", seen.append, local_memory=1 << 12)
  target = Target("TESTED", backend, "a:b")
  assert target.run(KERNEL, INPUTS)[0] == b"\0\0\0?" * 4
  assert [binary.entry for binary in seen] == ["half"]
  assert target.device.info.arch == "python" and target.device.info.capabilities.local_memory == 1 << 12
  assert target.compiler.key.startswith("compile only ")


def test_an_objection_reaches_whoever_compiles() -> None:
  def object_to(binary: Binary) -> None:
    raise CompileError("not like this", binary.source)

  with pytest.raises(CompileError, match="not like this"):
    CompileOnly(REF, "python", object_to).compiler("python").compile(KERNEL)


@pytest.mark.parametrize("name", STANDARD)
def test_standard_kernels_are_legal(name: str) -> None:
  kernel = STANDARD[name]()
  spec.check(kernel, "kernel")
  assert kernel is STANDARD[name]()


def test_a_standard_kernel_computes_what_its_name_says() -> None:
  kernel = matmul(2, 2, 3, dtypes.int32, dtypes.int32, dtypes.int32, transposed=True)
  rows = [b"".join(n.to_bytes(4, "little") for n in numbers) for numbers in ([1, 2, 3, 4, 5, 6], [1, 0, 1, 0, 1, 0])]
  out = Target("REF", REF, "a:b").run(kernel, [bytes(16), *rows])[0]
  assert memoryview(out).cast("i").tolist() == [4, 2, 10, 5]


def test_what_is_generated_is_assembled() -> None:
  def refuse(kernel: UOp, *, measure: object, notes: object) -> UOp:
    raise NotImplementedError("SIN")

  with pytest.raises(CompileError, match="no code for this kernel: SIN") as error:
    compile_generated(KERNEL, None, refuse, lambda program: REF.compiler("python").compile(program))
  assert "PARAM" in error.value.source
  made = compile_generated(KERNEL, None, lambda kernel, **_: kernel, REF.compiler("python").compile)
  assert made.entry == "half"
