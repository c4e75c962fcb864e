"""The tables of NVIDIA's kernel driver as a compiler reads the headers, and descriptions of launches bit by bit."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime_nv.kernel_driver.qmd import QMD
from tiny_runtime_nv.kernel_driver.tables import (
  FOLDER,
  Field,
  _structures,
  constant,
  flags,
  method,
  qmd_layout,
  structure,
  word,
)

VERSIONS = ("2.3", "3.0", "4.0", "5.0")
TABLES = Path(__file__).parents[1] / "tables"
HEADERS = next((p for n in (4, 5) if (p := Path(__file__).parents[n] / "shared/data/nvidia").exists()), None)
"""Beside the repository, or beside the folder that it is in."""
HERE = pytest.mark.skipif(
  HEADERS is None or shutil.which("gcc") is None or not TABLES.exists(), reason="needs NVIDIA's headers, and gcc"
)


def places_of(field: Field, index: int) -> set[int]:
  return set(range(field.low + index * field.stride, field.high + index * field.stride + 1))


def generator() -> tuple[Any, Any]:
  """The script that makes the tables, and the headers for it."""
  spec = importlib.util.spec_from_file_location("nv_tables_generate", TABLES / "generate.py")
  assert spec is not None and spec.loader is not None
  made = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(made)
  return made, made.Headers(HEADERS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_reads_back_and_changes_no_other(version: str) -> None:
  layout = qmd_layout(version)
  for name, field in layout.fields.items():
    for index in (0, 1, 2) if field.stride else (0,):
      ones = (1 << field.high - field.low + 1) - 1
      made = QMD(layout)
      made[name, index] = ones
      assert made[name, index] == ones and {n for n in range(32 * layout.words) if made.value >> n & 1} == places_of(
        field, index
      )
      full = QMD(layout, (1 << 32 * layout.words) - 1)
      full[name, index] = 0
      assert full[name, index] == 0 and bytes(full).count(b"\xff") < 4 * layout.words
      with pytest.raises(OverflowError, match=name):
        made[name, index] = ones + 1


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_lie_apart(version: str) -> None:
  """But for arrays that the header names twice, and for fields of queues that share bits with those of grids."""
  layout = qmd_layout(version)
  chosen = [
    n for n in layout.fields
    if n.startswith(("CTA_THREAD", "CTA_RASTER", "GRID_", "REGISTER", "BARRIER", "SHARED_MEM", "PROGRAM_ADDRESS",
                     "QMD_", "CONSTANT_BUFFER", "SHADER_LOCAL"))
    and "RESUME" not in n and "QUEUE" not in n
  ]  # fmt: skip
  seen: dict[int, str] = {}
  for name in chosen:
    for place in places_of(layout.fields[name], 0):
      assert seen.setdefault(place, name) == name


def test_hopper_is_as_others_found_it() -> None:
  """Bits of version 4.0 that ran on an H100, from libcuda-research (MIT), which knows nothing of these tables."""
  fields = qmd_layout("4.0").fields
  assert qmd_layout("4.0").words == 96
  for name, high, low in (
    ("QMD_TYPE", 25, 23), ("SHADER_LOCAL_MEMORY_LOW_SIZE", 535, 512), ("SHADER_LOCAL_MEMORY_HIGH_SIZE", 567, 544),
    ("QMD_MINOR_VERSION", 579, 576), ("QMD_MAJOR_VERSION", 583, 580), ("SHARED_MEMORY_SIZE", 601, 584),
    ("GRID_WIDTH", 1055, 1024), ("GRID_HEIGHT", 1071, 1056), ("GRID_DEPTH", 1103, 1088), ("REGISTER_COUNT", 1208, 1200),
    ("BARRIER_COUNT", 1215, 1211), ("PROGRAM_ADDRESS_LOWER", 1247, 1216), ("PROGRAM_ADDRESS_UPPER", 1272, 1248),
    ("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", 1567, 1536), ("CONSTANT_BUFFER_SIZE_SHIFTED4", 1599, 1587),
  ):  # fmt: skip
    assert (fields[name].high, fields[name].low) == (high, low), name
  assert fields["CONSTANT_BUFFER_VALID"].stride == 4 and fields["CONSTANT_BUFFER_SIZE_SHIFTED4"].stride == 64
  assert fields["QMD_TYPE"].values == {
    "QUEUE": 0, "GRID_NULL": 1, "GRID_CTA": 2, "GRID_GPC_CGA": 3, "GRID_GPU_CGA": 4, "GRID_GPU_GPC_CGA": 5,
  }  # fmt: skip


def test_addresses_in_two_halves() -> None:
  address = 0x7F12_3456_7880
  for version, name in (("2.3", "PROGRAM_ADDRESS"), ("4.0", "PROGRAM_ADDRESS"), ("5.0", "PROGRAM_ADDRESS")):
    made = QMD(qmd_layout(version))
    made.address(name, address)
    shift = 4 if version == "5.0" else 0
    end = "_SHIFTED4" if shift else ""
    assert made[f"{name}_LOWER{end}"] | made[f"{name}_UPPER{end}"] << 32 == address >> shift
  with pytest.raises(ValueError, match="no multiple of 16"):
    made.address("PROGRAM_ADDRESS", address + 8)


def test_words_of_methods() -> None:
  assert method("SEND_PCAS_A") == 0x2B4 and method("SEND_SIGNALING_PCAS2_B") == 0x2C0
  assert word("SEND_SIGNALING_PCAS2_B", PCAS_ACTION="PREFETCH_SCHEDULE") == 9
  assert word(
    "LAUNCH_DMA", DATA_TRANSFER_TYPE="NON_PIPELINED", SRC_MEMORY_LAYOUT="PITCH", DST_MEMORY_LAYOUT="PITCH"
  ) == (0x182)
  with pytest.raises(KeyError):
    word("LAUNCH_DMA", DATA_TRANSFER_TYPE="BOTH")
  with pytest.raises(OverflowError):
    word("LAUNCH_DMA", FLUSH_ENABLE=2)
  assert flags("NVOS32_ATTR", LOCATION="PCI", COHERENCY="CACHED") == 1 << 25 | 1 << 29


def test_structures_have_their_size() -> None:
  assert ctypes.sizeof(structure("NVOS21_PARAMETERS")) == 32 and ctypes.sizeof(structure("NVOS54_PARAMETERS")) == 32
  assert structure("Nvc36fControl").GPPut.offset == 0x8C
  assert constant("NV_ESC_RM_ALLOC") == 0x2B and constant("UVM_MAP_EXTERNAL_ALLOCATION") == 33


@HERE
def test_the_compiler_has_the_same() -> None:
  """ctypes lays structures out as C does."""
  generate, headers = generator()
  expressions, expected = [], []
  for name, fields in _structures().items():
    made = structure(name)
    expressions.append(f"sizeof({name})")
    expected.append(ctypes.sizeof(made))
    for field, _, _ in fields:
      expressions += [f"offsetof({name}, {field})", f"sizeof((({name}*)0)->{field})"]
      expected += [getattr(made, field).offset, getattr(made, field).size]
  assert headers.values(expressions) == expected


@HERE
@pytest.mark.nightly
def test_the_tables_are_what_the_generator_writes() -> None:
  generate, headers = generator()
  assert generate.constants(headers) == (FOLDER / "constants.txt").read_text()
  assert generate.methods(headers) == (FOLDER / "methods.txt").read_text()
  assert generate.structures(headers) == (FOLDER / "structures.txt").read_text()
  assert generate.qmds(headers) == (FOLDER / "qmd.txt").read_text()
