"""What NVIDIA's own tools say of cubins: `cuobjdump` of what a kernel takes, `nvdisasm` of its instructions. They come
with the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, beside ptxas."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tiny_runtime import Binary
from tiny_runtime.hcq import Launch
from tiny_runtime_nv import Arch, ptxas
from tiny_runtime_nv.kernel_driver.generations import GENERATIONS, Generation
from tiny_runtime_nv.kernel_driver.kernels import NVKernel, Windows
from tiny_runtime_nv.kernel_driver.qmd import QMD
from tiny_runtime_nv.kernel_driver.tables import qmd_layout
from tiny_runtime_nv.shared_memory import at_launch, without_note

COMPUTE = {
  "sm_75": "TURING_COMPUTE_A", "sm_80": "AMPERE_COMPUTE_A", "sm_86": "AMPERE_COMPUTE_B", "sm_89": "ADA_COMPUTE_A",
  "sm_90a": "HOPPER_COMPUTE_A", "sm_100": "BLACKWELL_COMPUTE_A", "sm_120": "BLACKWELL_COMPUTE_B",
}  # fmt: skip
DESCRIPTOR = {"sm_75": 0, "sm_80": 0x118, "sm_86": 0x118, "sm_89": 0x118, "sm_90a": 0x208}
"""Where code reads how global memory is accessed, 64 bits (of later ones at 0x358): the device leaves it 0."""
WINDOWS = Windows(0x7FFF_0100_0000, 0x7FFF_0200_0000)
CODE, ARGUMENTS = 0x7F12_3456_0000, 0x7F00_0000_1000
READS = re.compile(r"c\[0x0\]\[([^]]+)\]")
WORD = re.compile(r"/\* 0x([0-9a-f]{16}) \*/")


class Taken(NamedTuple):
  """What `cuobjdump --dump-resource-usage` says of a kernel: registers of a thread, bytes of its stack, bytes of shared
  memory with what the system takes, and bytes of constant banks."""

  registers: int
  stack: int
  shared: int
  constants: dict[int, int]


class Code(NamedTuple):
  """What `nvdisasm -hex` says of a kernel: its bytes, the bytes of constant bank 0 that instructions name (begin, end),
  and the instructions that name it by a register, and so any of it."""

  data: bytes
  reads: frozenset[tuple[int, int]]
  indexed: tuple[str, ...]


@cache
def found(name: str) -> str | None:
  """A tool, beside ptxas or on the PATH."""
  beside = Path(ptxas.find_ptxas() or "/nowhere").with_name(name)
  return str(beside) if beside.exists() else shutil.which(name)


def _said(name: str, code: bytes, *options: str) -> str:
  tool = found(name)
  assert tool is not None
  with tempfile.TemporaryDirectory(prefix="tiny-nv-") as folder:
    path = Path(folder, "kernel.cubin")
    path.write_bytes(code)
    # cuobjdump starts nvdisasm
    paths = os.pathsep.join([str(Path(tool).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
      [tool, *options, str(path)], capture_output=True, text=True, env={**os.environ, "PATH": paths}
    )
  assert not done.returncode, done.stderr
  return done.stdout


def taken(code: bytes) -> dict[str, Taken]:
  """Of each kernel of a cubin."""
  rows = re.findall(r"Function (\S+):\s+(REG:.*)", _said("cuobjdump", code, "--dump-resource-usage"))
  kernels = {}
  for name, row in rows:
    numbers = {key: int(value) for key, value in re.findall(r"([A-Z]+(?:\[\d+\])?):(\d+)", row)}
    banks = {int(key[9:-1]): value for key, value in numbers.items() if key.startswith("CONSTANT[")}
    kernels[name] = Taken(numbers["REG"], numbers["STACK"] + numbers["LOCAL"], numbers["SHARED"], banks)
  return kernels


def disassembled(code: bytes) -> dict[str, Code]:
  """Each kernel of a cubin."""
  kernels = {}
  for part in re.split(r"^//-+ \.text\.", _said("nvdisasm", code, "-c", "-hex"), flags=re.MULTILINE)[1:]:
    name = part.split(None, 1)[0]
    lines = [line for line in part.splitlines() if WORD.search(line)]
    reads, indexed = set(), []
    for line in lines:
      for place in READS.findall(line):
        if not re.fullmatch("RZ|0x[0-9a-f]+", place):
          indexed.append(line.strip())
          continue
        begin = 0 if place == "RZ" else int(place, 16)
        opcode = re.sub(r"/\*.*?\*/|@!?U?P\w+", "", line).split()[0]
        wide = re.search(r"\.(64|128|U8|S8|U16|S16)\b", opcode) if "LD" in opcode else None
        bits = int(re.sub(r"\D", "", wide[1])) if wide else 64 if re.match("D[A-Z]", opcode) else 32
        reads.add((begin, begin + bits // 8))
    data = b"".join(int(word, 16).to_bytes(8, "little") for line in lines for word in WORD.findall(line))
    kernels[name] = Code(data, frozenset(reads), tuple(indexed))
  return kernels


def generation(arch: str) -> Generation:
  """The row of a GPU that runs code for an architecture."""
  return next(row for row in GENERATIONS if row.compute == COMPUTE[arch])


def written(arch: str, parameters: tuple[int, int]) -> list[tuple[int, int]]:
  """What of constant bank 0 the device writes, and the descriptor of memory: begin and end of each."""
  row, begin = generation(arch), parameters[0]
  places = [(row.windows, 16), (row.stack, 4), *((place, 12) for place in row.sizes), parameters]
  places += [(place, 8)] if (place := DESCRIPTOR.get(arch, 0x358)) else []
  assert all(at + size <= begin for at, size in places if at != begin)
  return [(at, at + size) for at, size in places]


def differences(binary: Binary, arch: str) -> list[str]:
  """What our reader, or a launch that it describes, has otherwise than NVIDIA's tools say of a cubin."""
  cubin, wrong = without_note(binary.code), []
  usage, code = taken(cubin), disassembled(cubin)
  whole = NVKernel.of(binary, Arch.parse(arch), generation(arch), WINDOWS)
  whole.address = CODE
  image = whole.placed()
  for kernel in (whole, *whole.aligned):
    about, said, text = kernel.about, usage[kernel.name], code[kernel.name]
    base, size = about.parameters
    threads = about.threads or (32, 1, 1)
    qmd = QMD(qmd_layout(kernel.generation.qmd), int.from_bytes(kernel.launch(ARGUMENTS, (5, 3, 2), threads), "little"))
    begin = _address(qmd, "PROGRAM_ADDRESS") - CODE
    shift = 7 if "SHARED_MEMORY_SIZE_SHIFTED7" in qmd else 0
    unit, shared = 128 if shift else 256, said.shared + at_launch(binary.code)
    pairs = {
      "registers": (qmd["REGISTER_COUNT_V" if "REGISTER_COUNT_V" in qmd else "REGISTER_COUNT"], said.registers),
      "shared memory": (qmd[f"SHARED_MEMORY_SIZE{'_SHIFTED7' if shift else ''}"] << shift, -(-shared // unit) * unit),
      "stack": (about.stack, said.stack),
      "constant bank 0": (base + size, said.constants[0]),
      "other banks": ({n: len(data) for n, data in about.constants.items()},
                      {n: nbytes for n, nbytes in said.constants.items() if n}),
      "code": (image[begin : begin + len(text.data)], text.data),
      "bytes of code": (len(about.code), len(text.data)),
      "constants by a register": (text.indexed, ()),
    }  # fmt: skip
    wrong += [
      f"{kernel.name}: {name}: {ours!r}, {theirs!r}" for name, (ours, theirs) in pairs.items() if ours != theirs
    ]
    places = written(arch, about.parameters)
    wrong += [
      f"{kernel.name} reads c[0][{first:#x}:{end:#x}], which nobody writes" for first, end in sorted(text.reads)
      if not any(at <= first and end <= to for at, to in places)
    ]  # fmt: skip
    data = kernel.arguments(Launch(kernel, tuple(range(size // 8)), (5, 3, 2), (7, 1, 1)))
    if len(data) != base + size:
      wrong.append(f"{kernel.name}: {len(data)} bytes of constants, not {base + size}")
  return wrong


def _address(qmd: QMD, name: str) -> int:
  end, shift = ("_SHIFTED4", 4) if f"{name}_LOWER_SHIFTED4" in qmd else ("", 0)
  low, high = qmd[f"{name}_LOWER{end}"], qmd[f"{name}_UPPER{end}"]
  assert isinstance(low, int) and isinstance(high, int)
  return (high << 32 | low) << shift
