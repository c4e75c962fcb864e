"""What a second process finds in the disk cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tiny_runtime_cpu.linker import links_here

PROGRAM = """
import sys
from array import array
from tiny_runtime import buffer_of, run
from tiny_uop import Context, KernelInfo, Ops, UOp, dtypes

compiled = []
def watch(frame, event, argument):
  if event == "call" and frame.f_code.co_filename.endswith("optimizer.py") and frame.f_code.co_name == "module":
    compiled.append(1)
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
assert abs(memoryview(buffer_of(b).read()).cast("f")[SIZE - 1] - 3.5**0.5) < 1e-6
print(len(compiled), *[name for name in ("tiny_codegen", "llvmlite", "importlib.metadata") if name in sys.modules])
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
  environment = {**os.environ, "TINY_CACHE": str(tmp_path)}

  def compiled() -> str:
    result = subprocess.run(
      [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()

  assert compiled() == "2 tiny_codegen llvmlite"  # the kernel and the thread pool
  assert compiled() == ("0" if links_here() else "0 llvmlite"), "nor does it import what compiles"


def test_the_code_generator_has_no_settings_of_its_own() -> None:
  """They would have to be known before it is imported, since the keys of the cache contain them."""
  code = "from tiny_uop import ContextVar; import tiny_runtime_cpu; known = set(ContextVar.registry); "
  code += "import tiny_codegen; print(set(ContextVar.registry) - known)"
  found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
  assert found.strip() == "set()"
