"""What a program imports before its first result: counted, since the time of a start is spent there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

COUNTED = "import json, sys; {}; print(); print(json.dumps(sorted(sys.modules)))"
FIRST_RESULT = "from tiny_tensor import Tensor; assert (Tensor([1, 2, 3]) + 1).tolist() == [2, 3, 4]"

# what these would bring along takes longer than all of ours: `python -X importtime` shows it
DEAR = {"numpy", "llvmlite", "tiny_codegen", "importlib.metadata", "email", "tempfile", "decimal", "urllib.request",
        "socket", "multiprocessing", "concurrent.futures", "platform", "zipfile", "pickle"}  # fmt: skip


def modules(code: str, cache: Path) -> set[str]:
  """The modules of a process that has run some code. `json` is ours as well, so that it counts anyway."""
  environment = {name: value for name, value in os.environ.items() if name != "DEVICE"} | {"TINY_CACHE": str(cache)}
  done = subprocess.run(
    [sys.executable, "-c", COUNTED.format(code)], env=environment, capture_output=True, text=True, check=True
  )
  return set(json.loads(done.stdout.splitlines()[-1]))


def by_package(names: set[str]) -> Counter[str]:
  return Counter(name.partition(".")[0] for name in names if name.startswith("tiny_"))


def test_importing_the_frontend(tmp_path: Path) -> None:
  found = modules("import tiny_tensor", tmp_path)
  assert found & DEAR == set()
  counts = by_package(found)
  assert counts.keys() == {"tiny_tensor", "tiny_runtime", "tiny_uop"}
  # a few more than there are: who adds one that every start needs may raise them
  assert counts["tiny_tensor"] <= 80 and counts["tiny_runtime"] <= 20 and counts["tiny_uop"] <= 23, counts
  # half of the time of an import was the standard library's
  assert found & {"pathlib", "ctypes", "hashlib", "traceback", "urllib.parse"} == set()
  assert not {"tiny_tensor.nn", "tiny_tensor.jit", "tiny_tensor.func"} & found


def test_a_first_result_with_its_kernels_in_the_cache(tmp_path: Path) -> None:
  cold = modules(FIRST_RESULT, tmp_path)
  assert {"tiny_codegen", "llvmlite"} <= cold, "the first process compiles"
  warm = modules(FIRST_RESULT, tmp_path)
  dear = DEAR - {"llvmlite"} if sys.platform != "linux" or os.uname().machine != "x86_64" else DEAR
  assert warm & dear == set()
  counts = by_package(warm)
  # of the plugins that are asked before the processor is chosen: package, entry point, architectures, how to look
  plugins = {name: count for name, count in counts.items() if name.startswith("tiny_runtime_")}
  assert plugins.pop("tiny_runtime_cpu") <= 18
  assert plugins.keys() <= {"tiny_runtime_amd", "tiny_runtime_nv", "tiny_runtime_metal"}
  assert all(count <= 7 for count in plugins.values()), plugins
  assert counts["tiny_sched"] <= 30


def test_a_small_softmax_needs_no_kernels_of_attention(tmp_path: Path) -> None:
  code = (
    "from tiny_tensor import Context, Tensor\nwith Context(DEVICE='REF'): Tensor([1.0, 2.0]).log_softmax().tolist()"
  )
  found = {name for name in modules(code, tmp_path) if name.startswith("tiny_sched.softmax.")}
  assert found == {"tiny_sched.softmax.candidates"}
