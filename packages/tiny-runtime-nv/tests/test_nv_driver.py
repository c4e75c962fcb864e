"""The table of the driver's functions against NVIDIA's header, where there is one, and drivers that are too old."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime import DeviceLost, Unavailable
from tiny_runtime_nv.cuda_errors import lost, not_opened
from tiny_runtime_nv.driver import FUNCTIONS, Access, CopyNode, Driver, DriverError, KernelNode, Location

SCALARS = {
  "unsigned int": c_uint, "int": c_int, "CUdevice": c_int, "CUdevice_attribute": c_int, "CUfunction_attribute": c_int,
  "CUmemPool_attribute": c_int, "CUresult": c_int, "size_t": c_size_t, "CUdeviceptr": c_uint64,
  "unsigned long long": c_uint64, "const char*": c_char_p,
}  # fmt: skip
STRUCTURES = {
  "CUDA_KERNEL_NODE_PARAMS_v2": KernelNode, "CUDA_MEMCPY3D_v2": CopyNode, "CUmemAccessDesc": Access,
  "CUmemLocation": Location,
}  # fmt: skip
ENUMERATORS = {
  "CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED": 115, "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD": 4,
  "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 0, "CU_FUNC_ATTRIBUTE_NUM_REGS": 4,
  "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 8, "CU_JIT_ERROR_LOG_BUFFER": 5,
  "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": 6, "CU_MEMORYTYPE_DEVICE": 2, "CU_STREAM_NON_BLOCKING": 1,
  "CU_EVENT_DISABLE_TIMING": 2, "CU_MEM_LOCATION_TYPE_DEVICE": 1, "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": 3,
  "CUDA_ERROR_OUT_OF_MEMORY": 2, "CUDA_ERROR_INVALID_PTX": 218,
  "CUDA_ERROR_ILLEGAL_ADDRESS": 700, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": 701, "CUDA_ERROR_LAUNCH_TIMEOUT": 702,
  "CUDA_ERROR_MISALIGNED_ADDRESS": 716, "CUDA_ERROR_LAUNCH_FAILED": 719, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222,
  "CUDA_ERROR_DEVICE_UNAVAILABLE": 46, "CUDA_ERROR_ILLEGAL_INSTRUCTION": 715, "CUDA_ERROR_ECC_UNCORRECTABLE": 214,
}  # fmt: skip


def header() -> Path | None:
  """cuda.h of the package nvidia-cuda-runtime, or of a CUDA that is installed."""
  spec = importlib.util.find_spec("nvidia")
  folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec is not None else []
  found = [path for folder in [*folders, Path("/usr/local/cuda")] for path in folder.glob("**/include/cuda.h")]
  return found[0] if found else None


HEADER = header()
needs_header = pytest.mark.skipif(HEADER is None, reason="there is no cuda.h: pip install nvidia-cuda-runtime")


@cache
def declared() -> dict[str, str]:
  """The parameters of each function of the header, by the name that the library exports."""
  assert HEADER is not None
  text = HEADER.read_text()
  exported = dict(re.findall(r"^#define (cu\w+)\s+(?:__CUDA_API_\w+\()?(cu\w+)", text, re.MULTILINE))
  found = re.findall(r"^CUresult CUDAAPI (\w+)\(([^;]*)\);", text, re.MULTILINE)
  return {name: parameters for short, parameters in found for name in (short, exported.get(short, short))}


@needs_header
@pytest.mark.parametrize("name", FUNCTIONS)
def test_types_are_those_of_the_header(name: str) -> None:
  kinds: list[Any] = []
  for parameter in declared()[name].split(","):
    kind = re.sub(r"\s+", " ", re.sub(r"\w+$", "", parameter.strip())).strip().replace(" *", "*")
    kinds.append(SCALARS.get(kind, c_void_p))
    assert kinds[-1] is not c_void_p or kind.endswith("*") or re.fullmatch(r"CU[a-zA-Z]+", kind), kind
  assert list(FUNCTIONS[name]) == kinds, declared()[name]


@needs_header
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on the PATH")
def test_structures_and_numbers_are_those_of_the_header(tmp_path: Path) -> None:
  assert HEADER is not None
  facts = [f"{name} == {number}" for name, number in ENUMERATORS.items()]
  for name, kind in STRUCTURES.items():
    facts.append(f"sizeof({name}) == {ctypes.sizeof(kind)}")
    for field, *_ in kind._fields_:
      place = getattr(kind, field)
      facts.append(f"offsetof({name}, {field}) == {place.offset}")
      facts.append(f"sizeof((({name}*)0)->{field}) == {place.size}")
  source = tmp_path / "facts.c"
  lines = [f'_Static_assert({fact}, "{fact}");' for fact in facts]
  source.write_text("\n".join(["#include <stddef.h>", "#include <cuda.h>", *lines]))
  command = ["cc", "-fsyntax-only", f"-I{HEADER.parent}", str(source)]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr


class Old:
  """A library with all functions but some, of a version. None of them does anything."""

  def __init__(self, version: int, without: str = "") -> None:
    def call(place: Any, *rest: Any) -> int:
      return 0

    def say_version(place: int) -> int:
      c_int.from_address(place).value = version
      return 0

    for name, kinds in FUNCTIONS.items():
      if name != without:
        function = say_version if name == "cuDriverGetVersion" else call
        setattr(self, name, ctypes.CFUNCTYPE(c_int, *kinds)(function))


@pytest.mark.parametrize(
  ("library", "reason"),
  [(Old(11040), "for CUDA 11.4"), (Old(13000, without="cuGraphAddKernelNode_v2"), "no cuGraphAddKernelNode_v2")],
)
def test_a_driver_that_is_too_old_says_so(library: Old, reason: str) -> None:
  with pytest.raises(Unavailable, match=reason) as found:
    Driver(library)
  assert "CUDA 12.0 or later" in found.value.what_to_do


def test_a_driver_that_is_new_enough() -> None:
  assert Driver(Old(12000)).functions.keys() == FUNCTIONS.keys()


def test_a_lost_device_names_what_may_be_the_cause() -> None:
  error = DriverError("cuStreamSynchronize says CUDA_ERROR_ILLEGAL_ADDRESS: an illegal access", 700, "")
  assert isinstance(lost(error, "waiting", []), DeviceLost)
  one, many = (str(lost(error, "CUDA: waiting", [f"k{n}" for n in range(count)])) for count in (1, 12))
  assert "used an address that is in no buffer. It was kernel k0" in one and "CUDA: waiting" in one
  assert "k4, k5, k6, k7, k8, k9, k10, k11 (and 4 more)" in many and "CUDA_LAUNCH_BLOCKING=1" in many


def test_what_cannot_be_opened_says_why() -> None:
  for status, text in ((2, "no memory left"), (46, "in use"), (999, "cannot be opened")):
    found = not_opened(DriverError("it says so", status, ""), "CUDA")
    assert isinstance(found, Unavailable) and text in found.reason and "nvidia-smi" in found.what_to_do
