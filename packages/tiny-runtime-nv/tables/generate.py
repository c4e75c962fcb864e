"""Writes the tables of NVIDIA's kernel driver from its headers: `python tables/generate.py FOLDER`. It needs gcc.

FOLDER has `modules` (headers of open-gpu-kernel-modules) and `doc` (class headers of open-gpu-doc), both MIT. It writes
text files in `src/tiny_runtime_nv/kernel_driver/tables`, in the order of the lists below, so that newer headers are a
difference to read:

  structures.txt  STRUCTURE SIZE, then a row for each field: two spaces, NAME OFFSET TYPE
  constants.txt   NAME VALUE
  methods.txt     KIND CLASS METHOD OFFSET, then a row for each field: two spaces, NAME HIGH:LOW, and its VALUE=NUMBER …
  qmd.txt         VERSION CLASS WORDS, then a row for each field: two spaces, NAME HIGH:LOW[+STRIDE], VALUE=NUMBER …

Values come from the compiler, which reads the headers; only what a structure's fields are called is read here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "tiny_runtime_nv" / "kernel_driver" / "tables"
INCLUDES = (
  "modules/src/common/sdk/nvidia/inc", "modules/kernel-open/common/inc", "modules/kernel-open/nvidia-uvm",
  "modules/src/nvidia/arch/nvalloc/unix/include", "doc/classes/compute", "doc/classes/dma-copy",
)  # fmt: skip
HEADERS = (
  "nvtypes.h", "nvlimits.h", "nvos.h", "alloc/alloc_channel.h", "class/cl0000.h", "class/cl0041.h", "class/cl0080.h",
  "class/cl0005.h", "class/cl2080.h", "class/cl2080_notification.h", "class/cl003e.h", "class/cl0040.h",
  "class/cl90f1.h", "class/cla06c.h", "class/cl9067.h", "class/clc361.h", "class/clc461.h", "class/clc561.h",
  "class/clc661.h", "class/clc761.h", "class/clc36f.h", "class/clc46f.h", "class/clc56f.h", "class/clc86f.h",
  "class/clc96f.h", "class/clca6f.h", "ctrl/ctrl0000/ctrl0000system.h", "ctrl/ctrl0000/ctrl0000gpu.h",
  "ctrl/ctrl0080/ctrl0080gpu.h", "ctrl/ctrl2080/ctrl2080gpu.h", "ctrl/ctrl2080/ctrl2080gr.h",
  "ctrl/ctrl2080/ctrl2080fb.h", "ctrl/ctrl2080/ctrl2080event.h", "ctrl/ctrlc36f.h", "ctrl/ctrla06c.h",
  "ctrl/ctrl906f.h", "nv-ioctl.h", "nv-ioctl-numbers.h", "nv_escape.h", "uvm_linux_ioctl.h", "uvm_ioctl.h",
)  # fmt: skip
COMPUTE = ("c5c0", "c6c0", "c7c0", "c9c0", "cbc0", "cdc0", "cec0")
COPY = ("c5b5", "c6b5", "c7b5", "c8b5", "c9b5", "cab5")
MISSING = {
  "nv_vgpu_types.h": "#define VM_UUID_SIZE 16",
  "nvstatus.h": "typedef unsigned int NV_STATUS;",
  "rs_access.h": "typedef struct { int unused; } RS_SHARE_POLICY;",
  "mmu_fmt_types.h": "typedef struct { int unused; } MMU_FMT_LEVEL;\n#define MMU_FMT_MAX_SUB_LEVELS 2",
  "nvimpshared.h": "typedef struct { int unused; } TEGRA_IMP_IMPORT_DATA;",
  "cc_drv.h": "#define CC_AES_256_GCM_IV_SIZE_DWORD 3",
  "nvCpuUuid.h": "typedef struct { NvU8 uuid[16]; } NvProcessorUuid;",
  # how many instances a GPU can be divided into: UVM_MAX_GPUS is 256 since driver 535
  "nv_uvm_user_types.h": "#define UVM_PARENT_ID_MAX_SUB_PROCESSORS 8",
  **dict.fromkeys(("cpuopsys.h", "nvgputypes.h", "nvcfg_sdk.h", "nv-ioctl-numa.h"), ""),
}
"""Headers that the folder lacks, with what of them is needed."""

BIT = "#define BIT(n) (1 << (n))"

STRUCTURES = (
  "NVOS00_PARAMETERS", "NVOS21_PARAMETERS", "NVOS33_PARAMETERS", "NVOS54_PARAMETERS", "nv_pci_info_t",
  "nv_ioctl_card_info_t", "nv_ioctl_register_fd_t", "NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS",
  "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS", "NV0080_ALLOC_PARAMETERS", "NV2080_ALLOC_PARAMETERS",
  "NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS", "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", "NVXXXX_CTRL_XXX_INFO",
  "NV0080_CTRL_GR_ROUTE_INFO", "NV2080_CTRL_GR_GET_INFO_PARAMS", "NV2080_CTRL_FB_GET_INFO_PARAMS",
  "NV_VASPACE_ALLOCATION_PARAMETERS", "NV_MEMORY_ALLOCATION_PARAMS", "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS",
  "NV_CTXSHARE_ALLOCATION_PARAMETERS", "NV_MEMORY_DESC_PARAMS", "NV_CHANNEL_ALLOC_PARAMS",
  "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS",
  "NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS", "NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS", "Nvc36fControl", "NvProcessorUuid",
  "UvmGpuMappingAttributes", "UVM_INITIALIZE_PARAMS", "UVM_MM_INITIALIZE_PARAMS", "UVM_REGISTER_GPU_PARAMS",
  "UVM_UNREGISTER_GPU_PARAMS", "UVM_REGISTER_GPU_VASPACE_PARAMS", "UVM_UNREGISTER_GPU_VASPACE_PARAMS",
  "UVM_REGISTER_CHANNEL_PARAMS", "UVM_UNREGISTER_CHANNEL_PARAMS", "UVM_CREATE_EXTERNAL_RANGE_PARAMS",
  "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS", "UVM_FREE_PARAMS", "UVM_ENABLE_PEER_ACCESS_PARAMS",
  "nv_ioctl_alloc_os_event_t", "NV0005_ALLOC_PARAMETERS", "NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS",
)  # fmt: skip

CONSTANTS = (
  "NV_ESC_RM_ALLOC", "NV_ESC_RM_FREE", "NV_ESC_RM_CONTROL", "NV_ESC_RM_MAP_MEMORY", "NV_ESC_CARD_INFO",
  "NV_ESC_REGISTER_FD", "UVM_INITIALIZE", "UVM_MM_INITIALIZE", "UVM_REGISTER_GPU", "UVM_UNREGISTER_GPU",
  "UVM_REGISTER_GPU_VASPACE", "UVM_UNREGISTER_GPU_VASPACE", "UVM_REGISTER_CHANNEL", "UVM_UNREGISTER_CHANNEL",
  "UVM_CREATE_EXTERNAL_RANGE", "UVM_MAP_EXTERNAL_ALLOCATION", "UVM_FREE", "UVM_ENABLE_PEER_ACCESS",
  "NV01_ROOT_CLIENT", "NV01_DEVICE_0",
  "NV20_SUBDEVICE_0", "FERMI_VASPACE_A", "KEPLER_CHANNEL_GROUP_A", "FERMI_CONTEXT_SHARE_A", "NV01_MEMORY_SYSTEM",
  "NV01_MEMORY_LOCAL_USER", "TURING_USERMODE_A", "AMPERE_USERMODE_A", "HOPPER_USERMODE_A", "BLACKWELL_USERMODE_A",
  "TURING_CHANNEL_GPFIFO_A", "AMPERE_CHANNEL_GPFIFO_A", "HOPPER_CHANNEL_GPFIFO_A", "BLACKWELL_CHANNEL_GPFIFO_A",
  "BLACKWELL_CHANNEL_GPFIFO_B", "TURING_COMPUTE_A", "AMPERE_COMPUTE_A", "AMPERE_COMPUTE_B", "ADA_COMPUTE_A",
  "HOPPER_COMPUTE_A", "BLACKWELL_COMPUTE_A", "BLACKWELL_COMPUTE_B", "TURING_DMA_COPY_A", "AMPERE_DMA_COPY_A",
  "AMPERE_DMA_COPY_B", "HOPPER_DMA_COPY_A", "BLACKWELL_DMA_COPY_A", "BLACKWELL_DMA_COPY_B",
  "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2", "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2",
  "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", "NV2080_CTRL_CMD_GPU_GET_GID_INFO", "NV2080_CTRL_CMD_GR_GET_INFO",
  "NV2080_CTRL_CMD_FB_GET_INFO", "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN", "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE",
  "NV906F_CTRL_CMD_GET_MMU_FAULT_INFO", "NV2080_CTRL_GR_INFO_INDEX_SM_VERSION",
  "NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM", "NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS",
  "NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC", "NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC",
  "NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE",
  "NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY", "NV2080_ENGINE_TYPE_GR0",
  "NV_DEVICE_ALLOCATION_VAMODE_OPTIONAL_MULTIPLE_VASPACES", "NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED",
  "NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING", "NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC",
  "NVOS32_ATTR_LOCATION_VIDMEM", "NVOS32_ATTR_LOCATION_PCI", "NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS",
  "NVOS32_ATTR_PHYSICALITY_ALLOW_NONCONTIGUOUS", "NVOS32_ATTR_COHERENCY_CACHED",
  "NVOS32_ATTR_PAGE_SIZE_4KB", "NVOS32_ATTR_PAGE_SIZE_HUGE", "NVOS32_ATTR2_ZBC_PREFER_NO_ZBC",
  "NVOS32_ATTR2_GPU_CACHEABLE_YES", "NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB", "NVOS32_TYPE_IMAGE",
  "NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE", "NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED",
  "NVC361_NV_USERMODE__SIZE", "NVC361_NOTIFY_CHANNEL_PENDING",
  "NV_ESC_ALLOC_OS_EVENT", "NV_ESC_FREE_OS_EVENT", "NV01_EVENT_OS_EVENT", "NV01_EVENT_WITHOUT_EVENT_DATA",
  "NV2080_NOTIFIERS_GR0", "NV2080_NOTIFIERS_FIFO_EVENT_MTHD", "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION",
  "NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT",
)  # fmt: skip
RANGES = (
  "NVOS32_ATTR_LOCATION", "NVOS32_ATTR_PHYSICALITY", "NVOS32_ATTR_COHERENCY", "NVOS32_ATTR_PAGE_SIZE",
  "NVOS32_ATTR2_ZBC", "NVOS32_ATTR2_GPU_CACHEABLE", "NVOS32_ATTR2_PAGE_SIZE_HUGE",
)  # fmt: skip
"""Bit fields among the constants: NAME HIGH:LOW."""

METHODS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
  "channel": (("c36f", "c46f", "c56f", "c86f", "c96f", "ca6f"), ("SEM_ADDR_LO", "SEM_EXECUTE", "NON_STALL_INTERRUPT")),
  "compute": (COMPUTE, (
    "SET_OBJECT", "WAIT_FOR_IDLE", "INVALIDATE_SHADER_CACHES", "SET_SHADER_SHARED_MEMORY_WINDOW_A", "SEND_PCAS_A",
    "SEND_SIGNALING_PCAS_B", "SEND_SIGNALING_PCAS2_B", "SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A",
    "SET_SHADER_LOCAL_MEMORY_A", "SET_SHADER_LOCAL_MEMORY_WINDOW_A", "SET_REPORT_SEMAPHORE_A", "SET_REPORT_SEMAPHORE_D",
  )),
  "copy": (COPY, ("SET_SEMAPHORE_A", "LAUNCH_DMA", "OFFSET_IN_UPPER", "LINE_LENGTH_IN")),
}  # fmt: skip
"""KIND: classes, and the methods that are used: of a run (address, payload, …) the first."""
QMDS = {"2.3": "c5c0", "3.0": "c6c0", "4.0": "cbc0", "5.0": "cdc0"}
"""Versions of the structure that describes a launch, by the class whose header has them."""


class Headers:
  """The headers of a folder, and a compiler that reads them."""

  def __init__(self, folder: Path) -> None:
    self.folder = folder
    self.stubs = tempfile.TemporaryDirectory(prefix="nv-headers-")
    for name, content in MISSING.items():
      Path(self.stubs.name, name).write_text(f"#pragma once\n{content}\n")
    self.options = [f"-I{self.stubs.name}", *[f"-I{folder / include}" for include in INCLUDES], "-w"]

  def compiled(self, *arguments: str, text: str) -> str:
    """Output of gcc on a text."""
    command = ["gcc", *self.options, "-x", "c", *arguments, "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode:
      raise SystemExit(done.stderr[:2000])
    return done.stdout

  def values(self, expressions: Sequence[str], headers: Iterable[str] = HEADERS, before: str = BIT) -> list[int]:
    """What constant expressions of C are, with headers."""
    lines = "".join(f'printf("%llu\\n", (unsigned long long)({e}));' for e in expressions)
    text = f"{before}\n{included(headers)}#include <stdio.h>\n#include <stddef.h>\nint main() {{ {lines} return 0; }}\n"
    with tempfile.TemporaryDirectory() as folder:
      program = str(Path(folder, "values"))
      self.compiled("-o", program, text=text)
      return [int(line) for line in subprocess.run([program], capture_output=True, text=True).stdout.split()]

  def text(self, name: str) -> str:
    """The text of one header."""
    return next(path for include in INCLUDES if (path := self.folder / include / name).exists()).read_text()


def included(headers: Iterable[str]) -> str:
  """Lines of C that include headers."""
  return "".join(f'#include "{name}"\n' for name in headers)


TYPES = {
  "NvU8": "u8", "NvBool": "u8", "char": "u8", "NvU16": "u16", "NvU32": "u32", "NvV32": "u32", "NvHandle": "u32",
  "NV_STATUS": "u32", "NvS32": "i32", "int": "i32", "NvU64": "u64", "NvP64": "u64", "volatile": "",
}  # fmt: skip


def structures(headers: Headers) -> str:
  """The table of structures."""
  text = headers.compiled("-E", "-P", text=included(HEADERS))
  text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
  aliases = {m[2]: m[1] for m in re.finditer(r"typedef\s+([A-Za-z_]\w*)\s+([A-Za-z_]\w*)\s*;", text)}
  rows = []
  for name in STRUCTURES:
    found = re.search(r"struct\s*\w*\s*\{([^{}]*)\}\s*" + aliases.get(name, name) + r"\b", text)
    if found is None:
      raise SystemExit(f"there is no structure {name}")
    fields = []
    for line in found[1].split(";"):
      if not (words := line.replace("volatile", " ").split()):
        continue
      field = re.fullmatch(r"(\w+)((?:\s*\[.*\])?)", " ".join(words[1:]))
      assert field is not None, f"{name}: {line}"
      fields.append((field[1], words[0], field[2]))
    expressions = [f"sizeof({name})"]
    for field_name, _, array in fields:
      place = f"(({name}*)0)->{field_name}"
      expressions += [f"offsetof({name}, {field_name})", f"sizeof({place}) / sizeof({place}[0])" if array else "0"]
    size, *numbers = headers.values(expressions)
    rows.append(f"{name} {size}")
    for (field_name, kind, array), offset, count in zip(fields, numbers[::2], numbers[1::2]):
      while kind not in TYPES and kind not in STRUCTURES:
        kind = aliases[kind]
      rows.append(f"  {field_name} {offset} {TYPES.get(kind, kind)}{f'[{count}]' if array else ''}")
  return "".join(f"{row}\n" for row in rows)


def constants(headers: Headers) -> str:
  """The table of constants."""
  classes = [f"cl{name}.h" for name in COMPUTE] + [f"cl{name}.h" for name in COPY]
  values = headers.values(CONSTANTS, [*HEADERS, *classes])
  ends = headers.values([f"{n} ? {name}" for name in RANGES for n in (1, 0)])
  rows = [f"{name} {value:#x}" for name, value in zip(CONSTANTS, values)]
  rows += [f"{name} {high}:{low}" for name, high, low in zip(RANGES, ends[::2], ends[1::2])]
  return "".join(f"{row}\n" for row in rows)


def bit_fields(headers: Headers, header: str, prefix: str, names: Sequence[str] = ()) -> list[str]:
  """Rows for the bit fields of a header whose names begin so (or for those of the names), with the values that they can
  have by name."""
  text = re.sub(r"//.*", "", headers.text(header))
  defined = [(m[1], m[2] or "", m[3].strip()) for m in re.finditer(rf"#define {prefix}(\w+)(\(i\))?[ \t]+(\S.*)", text)]
  fields = [(name, array) for name, array, value in defined if ":" in value and (not names or name in names)]
  expressions = [
    f"{n} ? {prefix}{name}{argument}"
    for name, array in fields
    for argument in (("(0)", "(1)") if array else ("", ""))
    for n in (1, 0)
  ]
  numbers = headers.values(expressions, ["nvtypes.h", header], "#define MW(x) x")
  rows = []
  known = {name for name, _ in fields}
  for n, (name, array) in enumerate(fields):
    high, low, _, following = numbers[4 * n : 4 * n + 4]
    longer = [f"{other}_" for other in known if other.startswith(f"{name}_")]
    values = [
      f"{key[len(name) + 1 :]}={int(value.strip('()'), 0)}"
      for key, _, value in defined
      if key.startswith(f"{name}_") and key not in known and not key.startswith(tuple(longer)) and ":" not in value
      and not key.endswith(("_TRUE", "_FALSE"))
    ]  # fmt: skip
    rows.append(" ".join([f"  {name} {high}:{low}{f'+{following - low}' if array else ''}", *values]))
  return rows


def methods(headers: Headers) -> str:
  """The table of methods. Classes of a kind that have one have it at the same place, and the same fields with the same
  values; a header that has fewer says nothing of the others. Of fields that grew the bits that all have are given."""
  rows = []
  for kind, (classes, names) in METHODS.items():
    for name in names:
      merged: dict[str, str] = {}
      for cls in classes:
        header, prefix = f"{'class/' if kind == 'channel' else ''}cl{cls}.h", f"NV{cls.upper()}_"
        text = headers.text(header)
        place = re.search(rf"#define {prefix}{name}[ \t]+\(?(0x\w+)\)?", text)
        if place is None:
          continue
        parts = [m[1] for m in re.finditer(rf"#define {prefix}({name}_\w+)[ \t]+[^\n]*\d:\d", text)]
        found = {f"{kind} {name}": f"{int(place[1], 0):#x}"}
        for row in bit_fields(headers, header, prefix, parts) if parts else ():
          field, bits, *values = row.split()
          found |= {f"  {field}": bits, **{f"  {field} {value.split('=')[0]}": value.split("=")[1] for value in values}}
        for key, value in found.items():
          if (before := merged.setdefault(key, value)) == value:
            continue
          if ":" not in value or value.split(":")[1] != before.split(":")[1]:
            raise SystemExit(f"{cls}: {key} is {value}, not {before}")
          merged[key] = min(before, value, key=lambda bits: int(bits.split(":")[0]))
      rows += lines_of(merged)
  return "".join(f"{row}\n" for row in rows)


def lines_of(merged: dict[str, str]) -> list[str]:
  """Rows of a method and its fields, whose values stand behind them."""
  lines: dict[str, str] = {}
  for key, value in merged.items():
    *before, last = key.split(" ")
    owner = " ".join(before)
    if owner in lines and owner.strip():
      lines[owner] += f" {last}={value}"
    else:
      lines[key] = f"{key} {value}"
  return list(lines.values())


def qmds(headers: Headers) -> str:
  """The table of structures that describe launches."""
  rows = []
  for version, cls in QMDS.items():
    major, minor = version.split(".")
    fields = bit_fields(headers, f"cl{cls}qmd.h", f"NV{cls.upper()}_QMDV{int(major):02}_{int(minor):02}_")
    rows += [f"{version} {cls} {64 if int(major) < 4 else 96}", *fields]
  return "".join(f"{row}\n" for row in rows)


def main(folder: str) -> None:
  headers = Headers(Path(folder))
  TARGET.mkdir(parents=True, exist_ok=True)
  for make in (structures, constants, methods, qmds):
    name = {"qmds": "qmd"}.get(make.__name__, make.__name__)
    (TARGET / f"{name}.txt").write_text(make(headers))


if __name__ == "__main__":
  main(sys.argv[1])
