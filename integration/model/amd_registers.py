"""Registers of AMD's GPUs that recording uses, of Linux's headers: their addresses, and the bits of their fields.

`python integration/model/amd_registers.py FOLDER` writes `gpu_model/amd_registers.json` anew. FOLDER has the files
`gc_9_4_3_offset.h`, `gc_9_4_3_sh_mask.h` and their siblings: `drivers/gpu/drm/amd/include/asic_reg/gc` in the sources
of Linux 6.12 (Debian: `linux-source-6.12`; MIT licence).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

OUT = Path(__file__).parent / "gpu_model" / "amd_registers.json"
VERSIONS = {"9": "gc_9_4_3", "11": "gc_11_0_0", "12": "gc_12_0_0"}
SEGMENTS = {"9": (0x2000, 0xA000), "11": (0x1260, 0xA000), "12": (0x1260, 0xA000)}
"""Where the two parts of the registers begin, in words: `GC_BASE__INST0_SEG0` and `_SEG1` of `vega10_ip_offset.h`; RDNA
tells them in its firmware, and `gfx_v11_0.c` of Linux expects these."""
WANTED = re.compile(
  r"SQ_THREAD_TRACE_(?!WORD|USERDATA)\w+|COMPUTE_THREAD_TRACE_ENABLE|GRBM_GFX_INDEX|SPI_CONFIG_CNTL|CP_(CP_)?PERFMON_CNTL"
  r"|SQ_PERFCOUNTER\w+|GRBM_PERFCOUNTER0_\w+|(GL2C|TCC)_PERFCOUNTER[01]_(LO|HI|SELECT)"
)


def table(folder: Path, major: str) -> dict[str, list[object]]:
  """Name → address, {field: mask}."""
  file = VERSIONS[major]
  offsets = dict(re.findall(r"#define reg(\w+)\s+(0x[0-9a-f]+)", (folder / f"{file}_offset.h").read_text()))
  segments = dict(re.findall(r"#define reg(\w+)_BASE_IDX\s+(\d)", (folder / f"{file}_offset.h").read_text()))
  found: dict[str, list[object]] = {}
  for name, offset in offsets.items():
    if WANTED.fullmatch(name) and name in segments:
      found[name.replace("CP_CP_", "CP_")] = [SEGMENTS[major][int(segments[name])] + int(offset, 16), {}]
  for name, field, mask in re.findall(
    r"#define (\w+?)__(\w+)_MASK\s+(0x[0-9A-Fa-f]+)L?", (folder / f"{file}_sh_mask.h").read_text()
  ):
    if WANTED.fullmatch(name) and (row := found.get(name.replace("CP_CP_", "CP_"))):
      assert isinstance(row[1], dict)
      row[1][field] = int(mask, 16)
  return found


if __name__ == "__main__":
  folder = Path(sys.argv[1])
  lines = []
  for major in VERSIONS:
    rows = table(folder, major)
    inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    lines.append(f'"{major}": {{\n{inner}\n}}')
  OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
