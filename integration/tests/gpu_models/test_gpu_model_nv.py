"""The model of NVIDIA's driver and queues, driven by a program of its own (`nv_client.py`): each generation works; and
its headers are what compilers and assemblers say.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import nv_tables
import pytest
from nv_client import COMPUTE, COPIES, DOUBLE, EXCHANGE, Client, Refused, bits_of, fill_words, made, words_at
from nv_machines import client, each, machine, machines_end

from gpu_model.nv import cubin
from gpu_model.nv.compute import decoded
from gpu_model.nv.errors import Status
from gpu_model.nv.gpus import CHIPS, VERSIONS
from gpu_model.nv.tables import CONSTANTS, TABLES, Qmd, count, layouts, qmd_bytes
from gpu_model.toolchain import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CLASSES = {chip.classes[2]: name for name, chip in CHIPS.items()}


# *** what works ***


def test_copies(each: Client) -> None:
  one, other, local = each.host(4096), each.host(4096), each.local(4096)
  fill_words(one, *range(1024))
  each.transfer(local, one, 4096)
  each.transfer(other, local, 4096)
  each.finish()
  assert words_at(other, 1024) == list(range(1024))


def test_lines_and_patterns(each: Client) -> None:
  one, other = each.host(4096), each.host(4096)
  fill_words(one, *range(64))
  each.transfer(other, one, 8, 0x386, LINE_COUNT=3, PITCH_IN=32, PITCH_OUT=16)
  each.method(COPIES, "SET_REMAP_CONST_A", 0x1234)
  each.method(COPIES, "SET_REMAP_COMPONENTS", 4 | 3 << 16)  # one component, of four bytes: constant A
  each.transfer(other + 256, one, 5, 0x586)
  each.finish()
  assert words_at(other, 10) == [0, 1, 0, 0, 8, 9, 0, 0, 16, 17]
  assert words_at(other + 256, 6) == [0x1234] * 5 + [0]


def test_launches(each: Client) -> None:
  source, target = each.host(4096), each.host(4096)
  fill_words(source, *range(64))
  each.run(DOUBLE, target, source, grid=2)
  assert words_at(target, 65) == [2 * n for n in range(64)] + [0]
  each.run(EXCHANGE, target)
  assert words_at(target, 32) == list(reversed(range(32)))
  assert list(each.gpu.launched) == ["double", "exchange"]


@pytest.mark.parametrize("layout", [f"{name}/{layout}" for name in CLASSES for layout in layouts(name)])
def test_every_version_of_qmds(layout: str) -> None:
  name, layout = layout.split("/")
  client = Client(machine(CLASSES[name]))
  source, target, late = client.host(4096), client.host(4096), client.host(4096)
  fill_words(source, *range(1, 33))
  code, found = client.program(DOUBLE)
  bank, other = client.constants(found, target, source), client.constants(found, late, target)
  second = client.qmd(client.fields(code, found, other, layout=layout), layout)
  values = client.fields(code, found, bank, layout=layout)
  places = TABLES["qmd"][layout]
  # a semaphore and another launch, when this one is done
  mark = target + 2048
  if "RELEASE_ENABLE" in places:
    head = "RELEASE_SEMAPHORE0_"
    values |= {"RELEASE_ENABLE": 1, "RELEASE_STRUCTURE_SIZE": 2, "RELEASE_PAYLOAD64B": 1, "RELEASE_MEMBAR_TYPE": 1,
               head + "ADDR_LOWER": mark & 0xFFFFFFFF, head + "ADDR_UPPER": mark >> 32, head + "PAYLOAD_LOWER": 77,
               head + "PAYLOAD_UPPER": 5}  # fmt: skip
  elif "RELEASE0_ENABLE" in places:
    values |= {"RELEASE0_ENABLE": 1, "RELEASE0_STRUCTURE_SIZE": 2, "RELEASE0_PAYLOAD64B": 1, "RELEASE0_MEMBAR_TYPE": 1,
               "RELEASE0_ADDRESS_LOWER": mark & 0xFFFFFFFF, "RELEASE0_ADDRESS_UPPER": mark >> 32,
               "RELEASE0_PAYLOAD_LOWER": 77, "RELEASE0_PAYLOAD_UPPER": 5}  # fmt: skip
  else:
    values |= {"SEMAPHORE_RELEASE_ENABLE0": 1, "RELEASE0_STRUCTURE_SIZE": 1, "RELEASE_MEMBAR_TYPE": 1,
               "RELEASE0_ADDRESS_LOWER": mark & 0xFFFFFFFF, "RELEASE0_ADDRESS_UPPER": mark >> 32,
               "RELEASE0_PAYLOAD": 77}  # fmt: skip
  if "DEPENDENT_QMD_SCHEDULE_ENABLE" in places:
    values |= {"DEPENDENT_QMD_SCHEDULE_ENABLE": 1, "DEPENDENT_QMD_TYPE": 1, "DEPENDENT_QMD_POINTER": second >> 8}
  elif "DEPENDENT_QMD0_ENABLE" in places:
    values |= {"DEPENDENT_QMD0_ENABLE": 1, "DEPENDENT_QMD0_ACTION": 1, "DEPENDENT_QMD0_POINTER": second >> 8}
  else:
    values |= {"DEPENDENT_QMD_ENABLE": 1, "DEPENDENT_QMD_ACTION": 1, "DEPENDENT_QMD0_POINTER": second >> 8}
  client.launch(client.qmd(values, layout))
  client.finish()
  assert words_at(target, 32) == [2 * n for n in range(1, 33)]
  assert words_at(late, 32) == [4 * n for n in range(1, 33)]
  assert words_at(mark, 1) == [77]
  assert client.model.misuse == []


def test_reports_and_inline_data(each: Client) -> None:
  place = each.host(4096)
  each.method(COMPUTE, "SET_REPORT_SEMAPHORE_A", place >> 32, (place & 0xFFFFFFFF) + 32, 0x4321, 0)
  if each.chip.classes[2] == "c5c0":
    each.method(COMPUTE, "SET_REPORT_SEMAPHORE_A", place >> 32, place & 0xFFFFFFFF, 0x1234, 0)
  else:
    names = ("PAYLOAD_LOWER", "PAYLOAD_UPPER", "ADDRESS_LOWER", "ADDRESS_UPPER")
    for name, value in zip(names, (0x1234, 0x9, place & 0xFFFFFFFF, place >> 32)):
      each.method(COMPUTE, f"SET_REPORT_SEMAPHORE_{name}", value)
    each.method(COMPUTE, "REPORT_SEMAPHORE_EXECUTE", 0)  # four words, with the time
  each.method(COMPUTE, "LINE_LENGTH_IN", 8)
  each.method(COMPUTE, "LINE_COUNT", 1)
  each.method(COMPUTE, "OFFSET_OUT_UPPER", place >> 32)
  each.method(COMPUTE, "OFFSET_OUT", (place & 0xFFFFFFFF) + 64)
  each.method(COMPUTE, "LAUNCH_DMA", 1)
  load = next(
    place for name, place, _, of in TABLES["methods"] if name == "LOAD_INLINE_DATA" and each.chip.classes[2] in of
  )
  each.words += [3 << 29 | 2 << 16 | COMPUTE << 13 | load >> 2, 41, 42]  # two words for one method
  each.finish()
  found = words_at(place, 32)
  assert found[0] == 0x1234 and found[2] | found[3] << 32 > 0 and found[8] == 0x4321 and found[16:18] == [41, 42]


def test_time_stamps_grow(each: Client) -> None:
  stamps = []
  for _ in range(3):
    each.finish()
    stamps.append(words_at(each.fence + 8, 2))
  times = [low | high << 32 for low, high in stamps]
  assert times == sorted(times) and times[0] < times[-1]


def test_headers_of_all_kinds(each: Client) -> None:
  """Incrementing, not incrementing, once, immediate, the old ones, nothing, the end of a segment."""
  host = {name: place for name, place, _, of in TABLES["methods"] if of[0] == "c46f"}
  place, first = each.host(4096), host["SEM_ADDR_LO"] >> 2
  low, high = place & 0xFFFFFFFF, place >> 32
  each.words += [0, 0, 1 << 29 | 2 << 16 | first, low, high]
  each.words += [3 << 29 | 2 << 16 | host["SEM_PAYLOAD_LO"] >> 2, 1, 5]  # the last of them counts
  each.words += [4 << 29 | 7 << 16 | host["SEM_PAYLOAD_HI"] >> 2]
  each.words += [5 << 29 | 1 << 16 | host["SEM_EXECUTE"] >> 2, 1 | 1 << 24]
  each.words += [1 << 18 | first << 2, low + 8]  # old: its place in bytes, its count further up
  each.words += [2 << 29 | 1 << 18 | host["SEM_EXECUTE"], 1 | 1 << 24]
  each.words += [5 << 29 | 3 << 16 | first, low + 16, high, high]  # the first to one method, the others to the next
  each.words += [1 << 29 | 1 << 16 | host["SEM_EXECUTE"] >> 2, 1]
  each.words += [7 << 29, 0xFFFFFFFF]
  each.submit()
  each.finish()
  assert words_at(place, 5) == [5, 7, 5, 7, 5]


@pytest.mark.parametrize(("how", "value", "wanted"), [(0, 5, 5), (2, 9, 5), (3, 2, 2**64 - 2), (4, 6, 4), (5, 6, 1)])
def test_acquires(client: Client, how: int, value: int, wanted: int) -> None:
  """Equal, at least, at least around the end of numbers, some of the bits, not all of the bits that are there."""
  place = client.host(4096)
  ctypes.c_uint64.from_address(place).value = 0 if how != 5 else 2**64 - 1
  client.semaphore(place, wanted, how | 1 << 24)
  client.signal()
  client.submit()
  if how == 3:
    ctypes.c_uint64.from_address(place).value = wanted - 1
  assert how == 5 or not client.wait(3)
  ctypes.c_uint64.from_address(place).value = value
  assert client.wait() and client.model.misuse == []


def test_two_channels_wait_for_each_other() -> None:
  model = machine("AD102", "GH100")
  one = Client(model)
  other = Client(model, 1, start=False)
  other.start(one.uvm_fd)
  place = one.host(4096)
  memory = one.blocks[place][0]
  one.uvm("UNMAP_EXTERNAL", uuid="gpuUuid", base=place, length=65536)
  for gpu in model.gpus:
    one.map_gpu(memory, place, 65536, uuid=gpu.uuid)
  other.semaphore(place, 1, 3 | 1 << 24)
  other.semaphore(place + 8, 1, 1 | 1 << 24)
  other.signal()
  other.submit()
  one.semaphore(place, 1, 1 | 1 << 24)
  one.semaphore(place + 8, 1, 3 | 1 << 24)
  one.signal()
  one.submit()
  assert one.wait() and other.wait()
  other.close()
  one.close()
  assert (model.misuse, model.refused, model.left()) == ([], [], [])


def test_peers() -> None:
  model = machine("GH100", "GH100")
  one = Client(model)
  other = Client(model, 1, start=False)
  other.start(one.uvm_fd)
  local, seen = one.local(65536), other.reserve(65536)
  memory = one.blocks[local][0]
  with pytest.raises(Refused, match=str(int(Status.INVALID_DEVICE))):
    one.map_gpu(memory, local, 65536, uuid=other.gpu.uuid)
  assert "no peer" in model.refused[-1]
  one.uvm("ENABLE_PEER_ACCESS", uuids={"gpuUuidA": model.gpus[0].uuid, "gpuUuidB": model.gpus[1].uuid})
  one.map_gpu(memory, local, 65536, uuid=other.gpu.uuid)
  source, target = other.host(4096), one.host(4096)
  fill_words(source, *range(16))
  other.transfer(local, source, 64)
  other.finish()
  one.transfer(target, local, 64)
  one.finish()
  assert words_at(target, 16) == list(range(16)) and seen
  with pytest.raises(Refused):
    one.uvm("ENABLE_PEER_ACCESS", uuids={"gpuUuidA": model.gpus[0].uuid, "gpuUuidB": model.gpus[1].uuid})


def test_apart() -> None:
  model = machine("GH100", "GH100", apart=[(0, 1)])
  one = Client(model)
  other = Client(model, 1, start=False)
  other.start(one.uvm_fd)
  with pytest.raises(Refused, match=str(int(Status.NOT_SUPPORTED))):
    one.uvm("ENABLE_PEER_ACCESS", uuids={"gpuUuidA": model.gpus[0].uuid, "gpuUuidB": model.gpus[1].uuid})


def test_addresses_of_the_driver(client: Client) -> None:
  """MAP_MEMORY_DMA: RM gives addresses of a space that is not UVM's."""
  space = client.alloc(0x90F1, client.device, "NV_VASPACE_ALLOCATION_PARAMETERS")
  virtual = client.alloc(0x70, client.device, "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", hVASpace=space)
  memory = client.memory(65536, True)
  common = {"hClient": client.root, "hDevice": client.device, "hDma": virtual, "hMemory": memory}
  row = client.escape("RM_MAP_MEMORY_DMA", "NVOS46_PARAMETERS", **common, length=65536)
  assert row["dmaOffset"]
  client.escape("RM_UNMAP_MEMORY_DMA", "NVOS47_PARAMETERS", **common, dmaOffset=row["dmaOffset"])
  with pytest.raises(Refused):
    client.escape("RM_UNMAP_MEMORY_DMA", "NVOS47_PARAMETERS", **common, dmaOffset=row["dmaOffset"])


def test_facts(each: Client) -> None:
  row = each.control_of(each.root, "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2")
  assert ctypes.string_at(row.at("driverVersionBuffer")).decode() == VERSIONS["580"]
  memory, card = made("nv_ioctl_card_info_t")
  each.send("CARD_INFO", memory)
  info = each.control_of(each.root, "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", gpuId=card["gpu_id"])
  assert card["valid"] and info["deviceInstance"] == 0
  classes = each.control_of(each.device, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2")
  listed = [classes.get("classList", n) for n in range(classes["numClasses"])]
  assert {int(name, 16) for name in each.chip.classes} <= {*listed}
  gid = each.control_of(each.sub, "NV2080_CTRL_CMD_GPU_GET_GID_INFO", flags=2)
  assert ctypes.string_at(gid.at("data"), gid["length"]) == each.gpu.uuid
  query = (ctypes.c_uint32 * 2)(CONSTANTS["NV2080_CTRL_GR_INFO_INDEX_SM_VERSION"], 0)
  each.control_of(each.sub, "NV2080_CTRL_CMD_GR_GET_INFO", grInfoListSize=1, grInfoList=ctypes.addressof(query))
  major, minor = divmod(each.chip.sm, 10)
  assert query[1] == major << 8 | minor
  memory, fb = made("NV2080_CTRL_FB_GET_INFO_V2_PARAMS", fbInfoListSize=1)
  assert memory is not None
  local = each.local(1 << 20)
  row = each.control_of(each.device, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", numClasses=0)
  assert row["numClasses"] == len(listed) and local


# *** QMDs, bit by bit ***


@pytest.mark.parametrize("layout", TABLES["qmd"])
def test_every_field_is_read_back(layout: str) -> None:
  fields = TABLES["qmd"][layout]
  generator = np.random.default_rng(len(layout))
  for name, place in fields.items():
    for index in range(count(name) if len(place) > 2 else 1):
      value = int(generator.integers(1 << place[1], dtype=np.uint64)) | 1
      number = bits_of(0, place, value, index)
      assert number < 1 << 8 * qmd_bytes(layout)
      found = Qmd(layout, number.to_bytes(qmd_bytes(layout), "little"))
      assert found.get(name, index) == value
      low, width = place[0] + (place[2] * index if len(place) > 2 else 0), place[1]
      for other, (begin, size, *step) in fields.items():
        for n in range(count(other) if step else 1):
          at = begin + (step[0] * n if step else 0)
          if at >= low + width or at + size <= low:
            assert found.get(other, n) == 0, (name, other)


@pytest.mark.parametrize("layout", [f"{name}/{layout}" for name in CLASSES for layout in layouts(name)])
def test_every_field_of_a_launch_counts(layout: str) -> None:
  """Each field that launches are made of changes what is decoded; each other one is refused, or is a hint."""
  name, layout = layout.split("/")
  client = Client(machine(CLASSES[name]))
  code, found = client.program(EXCHANGE)
  values = client.fields(code, found, client.constants(found, 0), layout=layout)
  number = 0
  for field, value in values.items():
    number = bits_of(number, TABLES["qmd"][layout][field], value)
  plain = decoded(Qmd(layout, number.to_bytes(qmd_bytes(layout), "little")))
  changed = set()
  for field, place in TABLES["qmd"][layout].items():
    if "HW_ONLY" in field or "RESERVED" in field or "SPARE" in field:
      continue
    other = number ^ 1 << place[0]
    try:
      if decoded(Qmd(layout, other.to_bytes(qmd_bytes(layout), "little"))) != plain:
        changed.add(field)
    except Exception as error:
      assert "model knows no" in str(error) or "release" in str(error) or "dependent QMD" in str(error), error
      changed.add(field)
  assert {*values} - changed <= {"API_VISIBLE_CALL_LIMIT", "QMD_MAJOR_VERSION", "QMD_VERSION", "QMD_MINOR_VERSION",
                                 "REGISTER_COUNT"}  # fmt: skip


# *** headers and assemblers, where they are ***


def test_tables_are_those_of_the_headers() -> None:
  headers = next((p for p in (nv_tables.HEADERS, Path("/work/shared/data/nvidia")) if p.is_dir()), None)
  if headers is None or shutil.which("gcc") is None:
    pytest.skip("NVIDIA's headers are not here, or gcc is not")
  assert nv_tables.written(nv_tables.tables(headers)) == nv_tables.TABLES.read_text()
  assert json.loads(nv_tables.TABLES.read_text()) == TABLES


def sections(elf: bytes) -> dict[str, tuple[tuple[int, ...], bytes]]:
  """Sections of an ELF file: its row, and its bytes."""
  start, number, names = (*struct.unpack_from("<Q", elf, 0x28), *struct.unpack_from("<HH", elf, 0x3C))
  rows = [struct.unpack_from("<IIQQQQIIQQ", elf, start + 64 * n) for n in range(number)]
  strings = elf[rows[names][4] :]
  return {
    strings[row[0] :].split(b"\0")[0].decode(): (row, elf[row[4] : row[4] + row[5]] if row[1] != 8 else b"")
    for row in rows
  }


def attributes(data: bytes) -> dict[int, bytes]:
  """Rows of `.nv.info` by number; of several the last."""
  found, at = dict[int, bytes](), 0
  while at < len(data):
    kind, number, size = struct.unpack_from("<BBH", data, at)
    found[number] = data[at + 4 : at + 4 + size] if kind == 4 else data[at + 2 : at + 4]
    at += 4 + (size if kind == 4 else 0)
  return found


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_89", "sm_90a", "sm_120"])
@pytest.mark.parametrize("ptx", [DOUBLE, EXCHANGE])
def test_cubins_are_of_the_form_that_ptxas_writes(arch: str, ptx: str, tmp_path: Path) -> None:
  ptxas = shutil.which("ptxas")
  if ptxas is None:
    pytest.skip("ptxas is not here")
  text = ptx.format(arch=arch).replace(".version 7.0", ".version 8.7")
  (tmp_path / "kernel.ptx").write_text(text)
  subprocess.run([ptxas, f"-arch={arch}", "kernel.ptx", "-o", "kernel.cubin"], cwd=tmp_path, check=True, timeout=60)
  theirs, mine = sections((tmp_path / "kernel.cubin").read_bytes()), sections(cubin.assemble(text, arch))
  name = "double" if ptx is DOUBLE else "exchange"
  for section in (f".text.{name}", f".nv.constant0.{name}", f".nv.shared.{name}", f".nv.info.{name}", ".nv.info"):
    assert (section in mine) == (section in theirs), section
    if section in mine:
      (_, kind, flags, *_), (_, other, others, *_) = mine[section][0], theirs[section][0]
      assert (kind, flags) == (other, others), section
  for section in (f".nv.constant0.{name}", f".nv.shared.{name}"):
    if section in mine:
      assert mine[section][0][5] == theirs[section][0][5]
  rows, wanted = (attributes(found[f".nv.info.{name}"][1]) for found in (mine, theirs))
  for number in (0x37, 0x19, 0x4C, 0x10):
    if number in wanted:
      assert rows[number] == wanted[number] or number == 0x4C and rows[number][0] == wanted[number][0], hex(number)
  assert rows[0x0A][4:] == wanted[0x0A][4:]
  assert len(attributes(mine[".nv.info"][1])) == len(attributes(theirs[".nv.info"][1]))
