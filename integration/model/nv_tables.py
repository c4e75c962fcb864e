"""Writes `gpu_model/nv/tables.json`: what the model of NVIDIA's driver knows of its headers.

python integration/model/nv_tables.py --headers ../shared/data/nvidia    # class headers and kernel modules

Layouts of structures come from gcc, which compiles the headers; methods, QMDs and constants are read from their text.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLES = HERE / "gpu_model" / "nv" / "tables.json"
HEADERS = HERE.parents[1] / "shared" / "data" / "nvidia"
SDK = "modules/src/common/sdk/nvidia/inc"
INCLUDES = (
  "nvtypes.h", "nvos.h", "nvlimits.h", "alloc/alloc_channel.h", "class/cl0000.h", "class/cl0080.h", "class/cl2080.h",
  "class/cl0070.h", "class/cl0005.h", "class/cl83de.h", "class/clb0b5sw.h", "class/clc56f.h",
  "class/cl2080_notification.h", "ctrl/ctrl0000/ctrl0000system.h", "ctrl/ctrl0000/ctrl0000gpu.h",
  "ctrl/ctrl0080/ctrl0080gpu.h", "ctrl/ctrl2080/ctrl2080gpu.h", "ctrl/ctrl2080/ctrl2080gr.h",
  "ctrl/ctrl2080/ctrl2080fb.h", "ctrl/ctrl2080/ctrl2080perf.h", "ctrl/ctrl2080/ctrl2080event.h",
  "ctrl/ctrl2080/ctrl2080mc.h", "ctrl/ctrla06f/ctrla06fgpfifo.h", "ctrl/ctrl906f.h", "ctrl/ctrlc36f.h",
  "ctrl/ctrl83de/ctrl83dedebug.h", "nv_escape.h", "nv-ioctl.h", "uvm_ioctl.h", "uvm_linux_ioctl.h",
)  # fmt: skip
STRUCTURES = """
NVOS00_PARAMETERS NVOS02_PARAMETERS NVOS21_PARAMETERS NVOS33_PARAMETERS NVOS34_PARAMETERS NVOS46_PARAMETERS
NVOS47_PARAMETERS NVOS54_PARAMETERS NVOS64_PARAMETERS nv_ioctl_nvos02_parameters_with_fd
nv_ioctl_nvos33_parameters_with_fd nv_ioctl_card_info_t nv_pci_info_t nv_ioctl_register_fd_t nv_ioctl_rm_api_version_t
NV0080_ALLOC_PARAMETERS NV2080_ALLOC_PARAMETERS NV83DE_ALLOC_PARAMETERS NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS
NVB0B5_ALLOCATION_PARAMETERS NV_VASPACE_ALLOCATION_PARAMETERS NV_MEMORY_ALLOCATION_PARAMS NV_GR_ALLOCATION_PARAMETERS
NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS NV_CTXSHARE_ALLOCATION_PARAMETERS NV_CHANNEL_ALLOC_PARAMS
NV_CONTEXT_DMA_ALLOCATION_PARAMS Nvc56fControl
NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS
NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS
NV0000_CTRL_GPU_ATTACH_IDS_PARAMS NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS
NV2080_CTRL_GPU_GET_GID_INFO_PARAMS NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS NVXXXX_CTRL_XXX_INFO
NV2080_CTRL_GR_GET_INFO_PARAMS NV2080_CTRL_FB_GET_INFO_PARAMS NV2080_CTRL_FB_GET_INFO_V2_PARAMS
NV2080_CTRL_PERF_BOOST_PARAMS NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS
NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS
NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS
NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS
NV83DE_SM_ERROR_STATE_REGISTERS NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS
UVM_INITIALIZE_PARAMS UVM_MM_INITIALIZE_PARAMS UVM_REGISTER_GPU_PARAMS UVM_UNREGISTER_GPU_PARAMS
UVM_REGISTER_GPU_VASPACE_PARAMS UVM_UNREGISTER_GPU_VASPACE_PARAMS UVM_REGISTER_CHANNEL_PARAMS
UVM_UNREGISTER_CHANNEL_PARAMS UVM_ENABLE_PEER_ACCESS_PARAMS UVM_DISABLE_PEER_ACCESS_PARAMS
UVM_CREATE_EXTERNAL_RANGE_PARAMS UVM_MAP_EXTERNAL_ALLOCATION_PARAMS UVM_UNMAP_EXTERNAL_PARAMS UVM_FREE_PARAMS
UVM_PAGEABLE_MEM_ACCESS_PARAMS UvmGpuMappingAttributes nv_ioctl_alloc_os_event_t nv_ioctl_free_os_event_t
NV0005_ALLOC_PARAMETERS NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS
""".split()
CONSTANTS = """
NV_ESC_RM_ALLOC NV_ESC_RM_CONTROL NV_ESC_RM_FREE NV_ESC_RM_ALLOC_MEMORY NV_ESC_RM_MAP_MEMORY NV_ESC_RM_UNMAP_MEMORY
NV_ESC_RM_MAP_MEMORY_DMA NV_ESC_RM_UNMAP_MEMORY_DMA NV_ESC_CARD_INFO NV_ESC_REGISTER_FD NV_ESC_CHECK_VERSION_STR
UVM_INITIALIZE UVM_DEINITIALIZE UVM_MM_INITIALIZE UVM_REGISTER_GPU UVM_UNREGISTER_GPU UVM_REGISTER_GPU_VASPACE
UVM_UNREGISTER_GPU_VASPACE UVM_REGISTER_CHANNEL UVM_UNREGISTER_CHANNEL UVM_ENABLE_PEER_ACCESS UVM_DISABLE_PEER_ACCESS
UVM_CREATE_EXTERNAL_RANGE UVM_MAP_EXTERNAL_ALLOCATION UVM_UNMAP_EXTERNAL UVM_FREE UVM_PAGEABLE_MEM_ACCESS
NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2
NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS NV0000_CTRL_CMD_GPU_GET_PROBED_IDS NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2
NV0000_CTRL_CMD_GPU_ATTACH_IDS NV0080_CTRL_CMD_GPU_GET_CLASSLIST NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2
NV2080_CTRL_CMD_GPU_GET_GID_INFO NV2080_CTRL_CMD_GPU_GET_NAME_STRING NV2080_CTRL_CMD_GR_GET_INFO
NV2080_CTRL_CMD_FB_GET_INFO NV2080_CTRL_CMD_FB_GET_INFO_V2 NV2080_CTRL_CMD_PERF_BOOST NV2080_CTRL_CMD_MC_GET_ARCH_INFO
NVA06F_CTRL_CMD_GPFIFO_SCHEDULE NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
NV906F_CTRL_CMD_GET_MMU_FAULT_INFO NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO
NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC
NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM
NV2080_CTRL_GR_INFO_INDEX_SM_VERSION NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE
NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE
NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING
NV2080_ENGINE_TYPE_GRAPHICS NV2080_ENGINE_TYPE_COPY0 NV0080_CTRL_GPU_CLASSLIST_MAX_SIZE
NV_ESC_ALLOC_OS_EVENT NV_ESC_FREE_OS_EVENT NV01_EVENT_OS_EVENT NV01_EVENT_WITHOUT_EVENT_DATA NV2080_NOTIFIERS_GR0
NV2080_NOTIFIERS_FIFO_EVENT_MTHD NV2080_NOTIFIERS_MAXCOUNT NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION
""".split()
COMPUTE = ("c5c0", "c6c0", "c7c0", "c9c0", "cbc0", "cdc0", "cec0")
COPY = ("c5b5", "c6b5", "c7b5", "c8b5", "c9b5", "cab5")
HOST = ("c46f", "c56f", "c86f", "c96f", "ca6f")
MISSING = {
  "nv_vgpu_types.h": "#define VM_UUID_SIZE 16",
  "nv-ioctl-numa.h": "", "nvcfg_sdk.h": "", "cpuopsys.h": "", "nvgputypes.h": "",
  "nvmisc.h": "#define BIT(b) (1U << (b))",
  "rs_access.h": "typedef int RS_SHARE_POLICY;", "nvfixedtypes.h": "typedef int NvSFXP16_16;",
  "nvstatus.h": '#include "nvtypes.h"\ntypedef NvU32 NV_STATUS;',
  "nvCpuUuid.h": '#include "nvtypes.h"\ntypedef struct { NvU8 uuid[16]; } NvProcessorUuid;',
  "nv_uvm_user_types.h": "",
}  # fmt: skip
"""Headers that the data lacks: what they define is of no matter for layouts, but for the 16 bytes of an UUID."""
QMDS = {
  "c5c0": ("02_03",), "c6c0": ("02_03", "02_04", "03_00"), "c7c0": ("02_03", "02_04", "03_00"),
  "c9c0": ("02_04", "03_00"), "cbc0": ("03_00", "04_00"), "cdc0": ("04_01", "05_00"),
  "cec0": ("04_01", "05_00"),
}  # fmt: skip
"""Versions of QMDs. 05_01, of several programs at once, the model does not know."""
METHODS = re.compile(
  r"SET_OBJECT|NO_OPERATION|NOP|WAIT_FOR_IDLE|WFI|SEM_.*|MEM_OP_.*|NON_STALL_INTERRUPT|PIPE_NOP|SET_REPORT_SEMAPHORE_.*"
  r"|REPORT_SEMAPHORE_EXECUTE|INVALIDATE_.*|SEND_PCAS_A|SEND_SIGNALING_PCAS2?_B|SET_SHADER_(SHARED|LOCAL)_MEMORY_.*"
  r"|SET_SEMAPHORE_.*|LAUNCH_DMA|OFFSET_.*|PITCH_.*|LINE_.*|LOAD_INLINE_DATA|SET_(SRC|DST)_PHYS_MODE|SET_REMAP_.*"
  r"|SET_SPA_VERSION|SET_QMD_VERSION|SET_COMPUTE_CLASS_VERSION|SET_SHADER_EXCEPTIONS|SET_TEX_.*_POOL_.*"
)
"""Those that the model tells apart; of all others it knows that a class has them."""


def ranges(text: str) -> dict[str, tuple[int, int]]:
  """`#define NAME high:low` of a header, as (low, width)."""
  found = re.findall(r"^#define\s+(\w+)\s+(\d+):(\d+)\s*(?://.*)?$", text, re.MULTILINE)
  return {name: (int(low), int(high) - int(low) + 1) for name, high, low in found}


def methods(text: str, name: str) -> tuple[dict[str, Any], list[int]]:
  """Methods of a class's header with their fields, and the places of all methods."""
  head = f"NV{name.upper()}_"
  values = re.findall(rf"^#define\s+{head}(\w+)(?:\((\w)\))?\s+(.*?)\s*(?://.*|/\*.*)?$", text, re.MULTILINE)
  fields = {field.removeprefix(head): place for field, place in ranges(text).items()}
  names = sorted({*fields}, key=len)
  found: dict[str, Any] = {}
  places = set[int]()
  for method, index, value in values:
    number = re.fullmatch(r"\(?(0x[0-9a-fA-F]+)\)?", value)
    array = re.fullmatch(r"\(?\(?(0x[0-9a-fA-F]+)\s*\+\s*\(?\(?\w\)?\s*\*\s*(\w+)\)?\)?\)?", value)
    if index and array:
      places.update(int(array[1], 0) + int(array[2], 0) * n for n in range(16))
    # a method's name begins those of its fields; a value of a field is no method
    if index or number is None or any(method.startswith(f + "_") for f in names):
      continue
    if int(number[1], 0) % 4 == 0:
      places.add(int(number[1], 0))
    if METHODS.fullmatch(method):
      mine = {f.removeprefix(method + "_"): list(place) for f, place in fields.items() if f.startswith(method + "_")}
      found[method] = [int(number[1], 0), mine]
  longer = {m for m in found for other in found if m != other and m.startswith(other + "_")}
  for method in longer:
    for shorter in [m for m in found if method.startswith(m + "_")]:
      tail = method.removeprefix(shorter + "_")
      found[shorter][1] = {f: p for f, p in found[shorter][1].items() if not f.startswith(tail + "_")}
  return found, sorted(places)


def qmd(text: str, name: str, version: str) -> dict[str, list[int]]:
  """Fields of a QMD: lowest bit, bits, and of what is there several times the bits from one to the next."""
  head = f"NV{name.upper()}_QMDV{version}_"
  found = {}
  for field, index, high, low in re.findall(
    rf"^#define {head}(\w+?)(\(i\))?\s+MW\((.*):(.*)\)\s*$", text, re.MULTILINE
  ):
    if not index:
      found[field] = [int(low), int(high) - int(low) + 1]
      continue
    (first, step), (last, _) = (map(int, re.fullmatch(r"\((\d+)\+\(i\)\*(\d+)\)", end).groups()) for end in (low, high))  # type: ignore[union-attr]
    found[field] = [first, last - first + 1, step]
  return found


def structures(headers: Path) -> tuple[dict[str, Any], dict[str, int]]:
  """Sizes of structures with places, sizes and counts of their fields; and constants. gcc says so."""
  text = "\n".join(path.read_text(errors="replace") for path in headers.rglob("*.h"))
  bodies = dict[str, str]()
  for body, name in re.findall(r"typedef\s+(?:volatile\s+)?struct\s*\w*\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*(\w+)", text):
    bodies.setdefault(name, body)
  with_fd = "typedef struct {{ NVOS{0}_PARAMETERS params; int fd; }} nv_ioctl_nvos{0}_parameters_with_fd;"
  own = [with_fd.format(number) for number in ("02", "33")]
  for line in own:
    bodies[line.split()[-1].rstrip(";")] = "NVOS params; int fd;"
  lines = []
  for name in STRUCTURES:
    body = re.sub(r"//[^\n]*|/\*.*?\*/", "", bodies[name], flags=re.DOTALL)
    body = re.sub(r"NV_DECLARE_ALIGNED\((.*?),\s*\d+\)", r"\1", body)
    body = re.sub(r"(union|struct)\s*\{[^{}]*\}", "", body)
    body = re.sub(r"NV_ALIGN_BYTES\(\d+\)|__attribute__\(\(.*?\)\)", "", body)
    fields = [re.search(r"(\w+)\s*((?:\[[^\]]*\])*)\s*$", part.strip()) for part in body.split(";") if part.strip()]
    lines.append(f'printf("S {name} %zu\\n", sizeof({name}));')
    for field in fields:
      assert field is not None, name
      each = f"(({name}*)0)->{field[1]}" + "[0]" * field[2].count("[")
      lines.append(
        f'printf("F {field[1]} %zu %zu %zu\\n", offsetof({name}, {field[1]}), sizeof({each}),'
        f" sizeof((({name}*)0)->{field[1]}) / sizeof({each}));"
      )
  lines += [f'printf("C {name} %llu\\n", (unsigned long long)(unsigned)({name}));' for name in CONSTANTS]
  empty = {name: content + "\n" for name, content in MISSING.items() if not list(headers.rglob(name))}
  with tempfile.TemporaryDirectory() as folder:
    here = Path(folder)
    for name, content in empty.items():
      (here / name).write_text(content)
    source = "".join(f'#include "{name}"\n' for name in INCLUDES)
    source = f"#include <stddef.h>\n#include <stdio.h>\n#include <stdint.h>\n{source}\n" + "\n".join(own)
    (here / "layout.c").write_text(source + "\nint main() {\n" + "\n".join(lines) + "\nreturn 0; }\n")
    modules = headers / "modules"
    paths = [here, headers / SDK, modules / "kernel-open/common/inc", modules / "kernel-open/nvidia-uvm",
             modules / "src/nvidia/arch/nvalloc/unix/include"]  # fmt: skip
    command = ["gcc", "-w", "-DNV_UNIX", "-DNV_LINUX", *(f"-I{path}" for path in paths), "layout.c", "-o", "layout"]
    subprocess.run(command, cwd=here, check=True)
    printed = subprocess.run([here / "layout"], capture_output=True, text=True, check=True).stdout
  made: dict[str, Any] = {}
  constants, fields_of = dict[str, int](), dict[str, list[int]]()
  for line in printed.splitlines():
    kind, name, *numbers = line.split()
    if kind == "S":
      fields_of = {}
      made[name] = [int(numbers[0]), fields_of]
    elif kind == "F":
      fields_of[name] = [int(number) for number in numbers]
    else:
      constants[name] = int(numbers[0])
  # the header of channel groups includes many that the data lacks
  group = re.search(r"^#define (NVA06C_CTRL_CMD_GPFIFO_SCHEDULE)\s+\((0x\w+)\)", text, re.MULTILINE)
  assert group is not None
  return made, {**constants, group[1]: int(group[2], 0)}


def tables(headers: Path) -> dict[str, Any]:
  """All of it."""
  docs = headers / "doc" / "classes"
  text = {}
  for name in (*COMPUTE, *COPY, *HOST):
    places = [path for folder in (docs, headers / SDK / "class") for path in folder.rglob(f"cl{name}.h")]
    text[name] = places[0].read_text()
  shared: dict[str, Any] = {}
  every = {}
  for name, source in text.items():
    found, every[name] = methods(source, name)
    for method, (place, fields) in found.items():
      row = shared.setdefault(json.dumps([method, place, fields]), [])
      row.append(name)
  qmds: dict[str, Any] = {}
  layouts: dict[str, dict[str, str]] = {}
  for name, versions in QMDS.items():
    source = (docs / "compute" / f"cl{name}qmd.h").read_text()
    for version in versions:
      fields = qmd(source, name, version)
      # a version is not the same in all classes
      key = next((key for key, known in qmds.items() if known == fields and version in key), f"{name}_{version}")
      qmds[key] = fields
      layouts.setdefault(name, {})[version] = key
  made, constants = structures(headers)
  return {
    "structures": made, "constants": constants, "qmd_of_class": layouts,
    "qmd": qmds, "methods": [[*json.loads(key), names] for key, names in shared.items()],
    "all_methods": {name: runs(places) for name, places in every.items()},
  }  # fmt: skip


def runs(places: list[int]) -> list[list[int]]:
  """Numbers, four apart where they follow each other, as first and last of each run."""
  made: list[list[int]] = []
  for place in places:
    if made and place == made[-1][1] + 4:
      made[-1][1] = place
    else:
      made.append([place, place])
  return made


def written(found: dict[str, Any]) -> str:
  """The text of the file: a line for each row."""
  parts = []
  for name, rows in found.items():
    if isinstance(rows, dict):
      lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items())
      parts.append(f"{json.dumps(name)}: {{\n{lines}\n}}")
    else:
      parts.append(f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]")
  return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
  """The command."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--headers", type=Path, default=HEADERS)
  given = parser.parse_args()
  TABLES.parent.mkdir(exist_ok=True)
  TABLES.write_text(written(tables(given.headers)))


if __name__ == "__main__":
  main()
