"""The model of NVIDIA's driver and queues, driven by a program of its own (`nv_client.py`): each generation works, and
what a driver or a GPU refuses, the model refuses, by name.
"""

from __future__ import annotations

import ctypes
import errno
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import nv_tables
import pytest
from nv_client import (
  COMPUTE,
  COPIES,
  DOUBLE,
  ENTRIES,
  EXCHANGE,
  LOW,
  Client,
  Refused,
  bits_of,
  fill_words,
  made,
  words_at,
)

from gpu_model.nv import cubin
from gpu_model.nv.compute import decoded
from gpu_model.nv.errors import Status, Xid
from gpu_model.nv.gpus import CHIPS, VERSIONS
from gpu_model.nv.model import Model
from gpu_model.nv.tables import CONSTANTS, TABLES, Qmd, Record, count, layouts, qmd_bytes
from gpu_model.toolchain import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")
CLASSES = {chip.classes[2]: name for name, chip in CHIPS.items()}


MACHINES: list[Model] = []


def machine(*chips: str, **changes: Any) -> Model:
  """A machine that ends with the test."""
  made = Model(chips or ("GH100",), **changes)
  MACHINES.append(made)
  return made


@pytest.fixture(autouse=True)
def machines_end() -> Iterator[None]:
  yield
  while MACHINES:
    MACHINES.pop().end()


@pytest.fixture
def client() -> Client:
  """On a Hopper; what a test did wrong it says itself."""
  return Client(machine())


@pytest.fixture(params=CHIPS)
def each(request: pytest.FixtureRequest) -> Iterator[Client]:
  """On each generation, with nothing left in the end and nothing refused."""
  client = Client(machine(request.param))
  yield client
  client.close()
  model = client.model
  assert (model.misuse, model.refused, model.xids, model.left()) == ([], [], [], [])


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


# *** what is refused ***

Case = tuple[Callable[[Client], Any], Status | int, str]


def _map_again(client: Client) -> None:
  place = client.host(65536)
  client.map_gpu(client.blocks[place][0], place, 65536)


def _no_client(client: Client) -> None:
  root, client.root = client.root, 7
  try:
    client.memory(65536, True)
  finally:
    client.root = root


def _free_twice(client: Client) -> None:
  memory = client.memory(65536, True)
  client.free_handle(memory)
  client.free_handle(memory)


def _channel(client: Client, **changes: int) -> None:
  values = {
    "gpFifoOffset": client.area, "gpFifoEntries": 64, "hContextShare": client.share,
    "hUserdMemory": client.blocks[client.area][0], "userdOffset": 0x4000, **changes,
  }  # fmt: skip
  client.alloc(int(client.chip.classes[1], 16), client.group, "NV_CHANNEL_ALLOC_PARAMS", **values)


def _second_channel(client: Client) -> None:
  _channel(client)
  client.schedule()


def _range_twice(client: Client) -> None:
  place = client.reserve(65536)
  for _ in range(2):
    client.uvm("CREATE_EXTERNAL_RANGE", base=place, length=65536)


def _uninitialised(client: Client) -> None:
  client.uvm("PAGEABLE_MEM_ACCESS", client.model.open("/dev/nvidia-uvm"))


def _other_file(client: Client) -> None:
  client.control = client.model.open("/dev/nvidiactl")
  client.memory(65536, True)


def _wrong_page(client: Client) -> None:
  place, memory = client.reserve(1 << 20), client.memory(1 << 20, True)
  client.uvm("CREATE_EXTERNAL_RANGE", base=place, length=1 << 20)
  client.map_gpu(memory, place + 4096, 65536)


def _taken_by_others(client: Client) -> None:
  page = ctypes.create_string_buffer(3 * 65536)
  place = -(-ctypes.addressof(page) // 65536) * 65536
  client.uvm("CREATE_EXTERNAL_RANGE", base=place, length=65536)
  client.map_gpu(client.memory(65536, True), place, 65536)


def _space_of_rm(client: Client) -> None:
  client.uvm("UNREGISTER_CHANNEL", hClient=client.root, hChannel=client.channel)
  client.uvm("UNREGISTER_GPU_VASPACE", uuid="gpuUuid")
  space = client.alloc(0x90F1, client.device, "NV_VASPACE_ALLOCATION_PARAMETERS")
  client.uvm("REGISTER_GPU_VASPACE", uuid="gpuUuid", rmCtrlFd=client.control, hClient=client.root, hVaSpace=space)


def _dma_in_uvms(client: Client) -> None:
  client.escape("RM_MAP_MEMORY_DMA", "NVOS46_PARAMETERS", hClient=client.root, hDevice=client.device, hDma=client.space,
                hMemory=client.memory(65536, True), length=65536)  # fmt: skip


GROUP, SHARE, CHANNEL = (
  "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", "NV_CTXSHARE_ALLOCATION_PARAMETERS", "NV_CHANNEL_ALLOC_PARAMS",
)  # fmt: skip


def _group(client: Client, **values: int) -> int:
  return client.alloc(0xA06C, client.device, GROUP, **{"engineType": 1, **values})


def _other_share(client: Client) -> None:
  group = _group(client, hVASpace=client.space)
  _channel(client, hContextShare=client.alloc(0x9067, group, SHARE, hVASpace=client.space))


def _channel_of(client: Client, group: int, **values: int) -> int:
  memory = client.blocks[client.area][0]
  common = {"gpFifoOffset": client.area, "gpFifoEntries": 64, "hUserdMemory": memory, "userdOffset": 0x4000}
  return client.alloc(int(client.chip.classes[1], 16), group, CHANNEL, **{**common, **values})


def _compute_on_copies(client: Client) -> None:
  channel = _channel_of(client, _group(client, engineType=9, hVASpace=client.space))
  client.alloc(int(client.chip.classes[2], 16), channel)


def _unknown_space(client: Client) -> None:
  space = client.alloc(0x90F1, client.device, "NV_VASPACE_ALLOCATION_PARAMETERS")
  client.channel = _channel_of(client, _group(client, hVASpace=space))
  client.register_channel()


def _two_mappings(client: Client) -> None:
  memory, fd = client.memory(65536, False), client.model.open("/dev/nvidiactl")
  for _ in range(2):
    structure, record = made("nv_ioctl_nvos33_parameters_with_fd", fd=fd)
    inner = Record("NVOS33_PARAMETERS", record.at("params"))
    for name, value in {"hClient": client.root, "hDevice": client.device, "hMemory": memory, "length": 4096}.items():
      inner[name] = value
    client.send("RM_MAP_MEMORY", structure)
    client.check(inner["status"])


def _spaces_away(client: Client) -> None:
  client.uvm("UNREGISTER_CHANNEL", hClient=client.root, hChannel=client.channel)
  for _ in range(2):
    client.uvm("UNREGISTER_GPU_VASPACE", uuid="gpuUuid")


def _range(client: Client, **changes: Any) -> None:
  place = client.reserve(65536)
  client.uvm("CREATE_EXTERNAL_RANGE", base=place, length=65536)
  client.map_gpu(client.memory(65536, True), place, 65536, **changes)


def _dma(client: Client, **changes: int) -> None:
  space = client.alloc(0x90F1, client.device, "NV_VASPACE_ALLOCATION_PARAMETERS")
  values = {"hClient": client.root, "hDevice": client.device, "hDma": space, "hMemory": client.memory(65536, True)}
  client.escape("RM_MAP_MEMORY_DMA", "NVOS46_PARAMETERS", **{**values, "length": 65536, **changes})


def _fact(client: Client) -> None:
  query = (ctypes.c_uint32 * 2)(0x7777, 0)
  place = ctypes.addressof(query)
  client.control_of(client.sub, "NV2080_CTRL_CMD_GR_GET_INFO", grInfoListSize=1, grInfoList=place)


def _same_gpu(client: Client) -> None:
  client.uvm("DISABLE_PEER_ACCESS", uuids={"gpuUuidA": client.gpu.uuid, "gpuUuidB": client.gpu.uuid})


REFUSED: dict[str, Case] = {
  "a client's handle twice": (
    lambda c: c.escape("RM_ALLOC", "NVOS21_PARAMETERS", hObjectNew=c.root, hClass=0x41), Status.INSERT_DUPLICATE_NAME,
    "a client already",
  ),
  "an object of another kind": (
    lambda c: c.alloc(0x2, c.device, "NV_CONTEXT_DMA_ALLOCATION_PARAMS", hMemory=c.space), Status.INVALID_OBJECT,
    "is a vaspace",
  ),
  "a second subdevice": (
    lambda c: c.alloc(0x2080, c.device, "NV2080_ALLOC_PARAMETERS", subDeviceId=1), Status.INVALID_ARGUMENT, "one subd",
  ),
  "memory without parameters": (lambda c: c.alloc(0x40, c.device), Status.INVALID_ARGUMENT, "without parameters"),
  "large pages of the host": (
    lambda c: c.alloc(0x3E, c.device, "NV_MEMORY_ALLOCATION_PARAMS", size=2 << 20, attr=1 << 25 | 3 << 23),
    Status.INVALID_ARGUMENT, "large pages",
  ),
  "too much memory of the host": (lambda c: c.memory(2 << 30, False), Status.NO_MEMORY, "the host's memory"),
  "a context DMA without parameters": (lambda c: c.alloc(0x2, c.device), Status.INVALID_ARGUMENT, "context DMA"),
  "a context DMA that is too long": (
    lambda c: c.alloc(0x2, c.device, "NV_CONTEXT_DMA_ALLOCATION_PARAMS", hMemory=c.blocks[c.area][0], limit=1 << 20),
    Status.INVALID_LIMIT, "ends behind",
  ),
  "a group for no engine": (lambda c: _group(c, engineType=40), Status.INVALID_ARGUMENT, "for engine 40"),
  "flags of a context share": (
    lambda c: c.alloc(0x9067, c.group, SHARE, hVASpace=c.space, flags=9), Status.INVALID_FLAGS, "0x9",
  ),
  "a context share without a space": (
    lambda c: c.alloc(0x9067, _group(c), SHARE), Status.INVALID_ARGUMENT, "without an address space",
  ),
  "a channel without parameters": (
    lambda c: c.alloc(int(c.chip.classes[1], 16), c.group), Status.INVALID_ARGUMENT, "without parameters",
  ),
  "a channel with two spaces": (
    lambda c: _channel(c, hVASpace=c.space), Status.INVALID_ARGUMENT, "with a context share",
  ),
  "a context share of another group": (_other_share, Status.INVALID_OBJECT_PARENT, "another channel group"),
  "a channel without a space": (
    lambda c: _channel_of(c, _group(c)), Status.INVALID_ARGUMENT, "without an address space",
  ),
  "flags of a channel": (lambda c: _channel(c, flags=1), Status.INVALID_FLAGS, "0x1"),
  "compute on a channel for copies": (_compute_on_copies, Status.INVALID_CLASS, "not for GR0"),
  "a debugger of nobody": (
    lambda c: c.alloc(0x83DE, c.device, "NV83DE_ALLOC_PARAMETERS", hAppClient=5), Status.INVALID_CLIENT, "debugger",
  ),
  "another parent than its own": (lambda c: c.free_handle(c.sub, c.sub), Status.INVALID_OBJECT_PARENT, "not belong"),
  "two mappings of a file": (_two_mappings, Status.STATE_IN_USE, "a mapping already"),
  "more than memory has, at addresses of RM": (lambda c: _dma(c, length=1 << 20), Status.INVALID_LIMIT, "of 65536"),
  "an address of RM within a page": (
    lambda c: _dma(c, flags=1 << 15, dmaOffset=LOW - 4096), Status.INVALID_OFFSET, "pages of 65536",
  ),
  "flags of a control": (
    lambda c: c.escape("RM_CONTROL", "NVOS54_PARAMETERS", hClient=c.root, hObject=c.device, cmd=0x800201, flags=4),
    Status.INVALID_FLAGS, "of a control",
  ),
  "facts of no GPU": (
    lambda c: c.control_of(c.root, "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", gpuId=7), Status.INVALID_ARGUMENT, "no GPU",
  ),
  "a list that is too short": (
    lambda c: c.control_of(c.device, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", numClasses=1, classList=c.area),
    Status.INVALID_PARAM_STRUCT, "classes",
  ),
  "an identifier in ASCII": (
    lambda c: c.control_of(c.sub, "NV2080_CTRL_CMD_GPU_GET_GID_INFO"), Status.INVALID_ARGUMENT, "binary",
  ),
  "a name in UTF-16": (
    lambda c: c.control_of(c.sub, "NV2080_CTRL_CMD_GPU_GET_NAME_STRING", gpuNameStringFlags=1),
    Status.INVALID_ARGUMENT, "ASCII",
  ),
  "a fact that is not known": (_fact, Status.INVALID_ARGUMENT, "0x7777"),
  "a group without channels": (
    lambda c: c.control_of(_group(c), "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS"),
    Status.INVALID_STATE, "without channels",
  ),
  "memory of a file that is initialised": (
    lambda c: c.uvm("MM_INITIALIZE", uvmFd=c.uvm_fd), Status.INVALID_ARGUMENT, "MM_INITIALIZE",
  ),
  "flags of UVM": (
    lambda c: c.uvm("INITIALIZE", c.model.open("/dev/nvidia-uvm"), flags=0x80), Status.INVALID_ARGUMENT, "0x80",
  ),
  "UVM twice": (lambda c: c.uvm("INITIALIZE"), Status.INVALID_STATE, "initialised already"),
  "peers that are none": (_same_gpu, Status.INVALID_DEVICE, "no peers"),
  "a space twice": (
    lambda c: c.uvm("REGISTER_GPU_VASPACE", uuid="gpuUuid", rmCtrlFd=c.control, hClient=c.root, hVaSpace=c.space),
    Status.INVALID_STATE, "already",
  ),
  "no space": (_spaces_away, Status.INVALID_STATE, "has no address space"),
  "a channel of another space": (_unknown_space, Status.INVALID_CHANNEL, "not registered"),
  "a channel that was not registered": (
    lambda c: c.uvm("UNREGISTER_CHANNEL", hClient=c.root, hChannel=5), Status.INVALID_CHANNEL, "not registered",
  ),
  "memory beyond its end": (lambda c: _range(c, offset=65536), Status.INVALID_OFFSET, "from 0x10000"),
  "memory for no GPUs": (lambda c: _range(c, count=0), Status.INVALID_ARGUMENT, "0 GPUs"),
  "a mapping of no type": (lambda c: _range(c, kind=7), Status.INVALID_ARGUMENT, "type of mapping"),
  "a format": (lambda c: _range(c, gpuFormatType=1), Status.INVALID_ARGUMENT, "formats"),
  "addresses in no range": (
    lambda c: c.uvm("UNMAP_EXTERNAL", uuid="gpuUuid", base=LOW - 65536, length=65536), Status.INVALID_ADDRESS, "in no",
  ),
  "no client": (_no_client, Status.INVALID_CLIENT, "no client"),
  "a client of another file": (_other_file, Status.INVALID_CLIENT, "of this file"),
  "a handle that is used": (
    lambda c: c.alloc(0x2080, c.device, "NV2080_ALLOC_PARAMETERS", handle=c.sub), Status.INSERT_DUPLICATE_NAME,
    "already",
  ),
  "a handle that was freed": (_free_twice, Status.INVALID_OBJECT_HANDLE, "was freed"),
  "a class of another GPU": (lambda c: c.alloc(0xC9C0, c.channel), Status.INVALID_CLASS, "0xc9c0"),
  "a class that there is not": (lambda c: c.alloc(0x1234, c.device), Status.INVALID_CLASS, "0x1234"),
  "a parent of another kind": (
    lambda c: c.alloc(0xCBC0, c.device), Status.INVALID_OBJECT_PARENT, "belongs to a channel",
  ),
  "a structure of another size": (
    lambda c: c.escape("RM_ALLOC", "NVOS21_PARAMETERS", hRoot=c.root, hObjectParent=c.device, hObjectNew=99,
                       hClass=0x40, pAllocParms=c.area, paramsSize=8),
    Status.INVALID_PARAM_STRUCT, "128 bytes",
  ),
  "a control with another size": (
    lambda c: c.escape("RM_CONTROL", "NVOS54_PARAMETERS", hClient=c.root, hObject=c.channel, cmd=0xC36F0108,
                       params=c.area, paramsSize=8),
    Status.INVALID_PARAM_STRUCT, "4 bytes",
  ),
  "a control of another object": (
    lambda c: c.control_of(c.device, "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS"),
    Status.INVALID_COMMAND, "of a device",
  ),
  "a control that there is not": (
    lambda c: c.escape("RM_CONTROL", "NVOS54_PARAMETERS", hClient=c.root, hObject=c.device, cmd=0x801234),
    Status.INVALID_COMMAND, "0x801234",
  ),
  "no such device": (
    lambda c: c.alloc(0x80, c.root, "NV0080_ALLOC_PARAMETERS", deviceId=3), Status.INVALID_ARGUMENT, "no device 3",
  ),
  "too much memory": (lambda c: c.memory(1 << 30, True), Status.NO_MEMORY, "are free"),
  "memory of nothing": (lambda c: c.memory(0, True), Status.INVALID_ARGUMENT, "0 bytes"),
  "memory of the host as the GPU's": (
    lambda c: c.alloc(0x40, c.device, "NV_MEMORY_ALLOCATION_PARAMS", size=4096, attr=1 << 25), Status.INVALID_ARGUMENT,
    "LOCATION",
  ),
  "memory at a place of its own": (
    lambda c: c.alloc(0x40, c.device, "NV_MEMORY_ALLOCATION_PARAMS", size=65536, flags=0x10), Status.INVALID_FLAGS,
    "0x10",
  ),
  "addresses that are used": (_map_again, Status.INVALID_ADDRESS, "mapped already"),
  "a range twice": (_range_twice, Status.INVALID_ADDRESS, "in use"),
  "a range that is no pages": (
    lambda c: c.uvm("CREATE_EXTERNAL_RANGE", base=LOW + 5, length=4096), Status.INVALID_ADDRESS, "no pages",
  ),
  "no range": (
    lambda c: c.map_gpu(c.memory(65536, True), c.reserve(65536), 65536), Status.INVALID_ADDRESS, "no external",
  ),
  "addresses within a page": (_wrong_page, Status.INVALID_ADDRESS, "pages of 65536"),
  "addresses of something else": (_taken_by_others, Status.INVALID_ADDRESS, "something else"),
  "a range that is none": (lambda c: c.uvm("FREE", base=c.area + 4096), Status.INVALID_ADDRESS, "where a range begins"),
  "a GPU twice": (lambda c: c.uvm("REGISTER_GPU", uuid="gpu_uuid"), Status.INVALID_DEVICE, "already"),
  "a GPU that there is not": (
    lambda c: c.uvm("REGISTER_GPU", uuids={"gpu_uuid": b"x" * 16}), Status.GPU_UUID_NOT_FOUND, "no GPU",
  ),
  "UVM before it is initialised": (_uninitialised, Status.ILLEGAL_ACTION, "before UVM_INITIALIZE"),
  "a space that is not UVM's": (_space_of_rm, Status.INVALID_FLAGS, "EXTERNALLY_OWNED"),
  "a space that UVM has": (_dma_in_uvms, Status.NOT_SUPPORTED, "UVM's"),
  "a channel twice": (lambda c: c.register_channel(), Status.INVALID_STATE, "registered already"),
  "a GPU that is in use": (lambda c: c.uvm("UNREGISTER_GPU", uuid="gpu_uuid"), Status.STATE_IN_USE, "channels"),
  "a ring of another size": (lambda c: _channel(c, gpFifoEntries=48), Status.INVALID_ARGUMENT, "48 entries"),
  "a ring at an odd place": (lambda c: _channel(c, gpFifoOffset=LOW + 4), Status.INVALID_ARGUMENT, "ring"),
  "USERD at an odd place": (lambda c: _channel(c, userdOffset=0x4100), Status.INVALID_OFFSET, "USERD"),
  "another engine than the group's": (lambda c: _channel(c, engineType=9), Status.INVALID_ARGUMENT, "in a group"),
  "a channel that UVM does not know": (_second_channel, Status.INVALID_STATE, "not registered"),
  "a mapping beyond the end": (
    lambda c: c.map_host(c.memory(65536, False), 1 << 20, "/dev/nvidiactl"), Status.INVALID_LIMIT, "of 65536",
  ),
  "a mapping through another file": (
    lambda c: c.map_host(c.memory(65536, True), 65536, "/dev/nvidiactl"), Status.INVALID_ARGUMENT, "mapped through",
  ),
  "flags of a space": (
    lambda c: c.alloc(0x90F1, c.device, "NV_VASPACE_ALLOCATION_PARAMETERS", flags=0x4000), Status.INVALID_FLAGS,
    "0x4000",
  ),
  "a space that a channel has": (lambda c: c.free_handle(c.space), Status.STATE_IN_USE, "address space"),
}  # fmt: skip


UNREGISTERS = ("a space that is not UVM's", "no space")
"""After these the channel is no longer one of UVM's."""


@pytest.mark.parametrize("name", REFUSED)
def test_the_driver_refuses(client: Client, name: str) -> None:
  act, status, text = REFUSED[name]
  before = len(client.model.refused)
  with pytest.raises(Refused) as caught:
    act(client)
  assert caught.value.status == status
  assert text in client.model.refused[before]
  if name not in UNREGISTERS:
    client.finish()  # and all goes on
  assert client.model.misuse == [] and client.model.xids == []


def _launch(client: Client, ptx: str = DOUBLE, **changes: int) -> None:
  source, target = client.host(4096), client.host(4096)
  code, found = client.program(ptx)
  values = client.fields(code, found, client.constants(found, target, source))
  client.launch(client.qmd({**values, **{name.replace("__", ":"): value for name, value in changes.items()}}))


def _twice(client: Client, between: Callable[[Client, int, int], None], **changes: int) -> None:
  """Two launches of the same code and constants, with something done in between."""
  source, target = client.host(4096), client.host(4096)
  code, found = client.program(DOUBLE)
  bank = client.constants(found, target, source)
  values = client.fields(code, found, bank)
  client.launch(client.qmd(values))
  client.finish()
  between(client, code, bank)
  client.launch(client.qmd({**values, **changes}))


def _other_constants(client: Client, code: int, bank: int) -> None:
  client.fill(bank, client.program(DOUBLE)[1], client.host(4096), client.host(4096))


def _other_code(client: Client, code: int, bank: int) -> None:
  image = client.program(DOUBLE.replace("add.s32 \t%r6, %r5, %r5", "add.s32 \t%r6, %r5, 1"))[1].image()
  ctypes.memmove(code, image, len(image))


def _nothing(client: Client, code: int, bank: int) -> None:
  pass


def _windows(client: Client, high: int, low: int) -> None:
  client.method(COMPUTE, "SET_SHADER_SHARED_MEMORY_WINDOW_A", high, low)
  _launch(client)


def _fresh(act: Callable[[Client], None]) -> Callable[[Client], None]:
  """A channel whose first words do not set windows."""

  def run(client: Client) -> None:
    client.words = client.words[: 2 * 2]
    act(client)

  return run


def _kept_constants(client: Client) -> None:
  _twice(client, _other_constants, INVALIDATE_SHADER_CONSTANT_CACHE=0)


def _registers(client: Client) -> None:
  _launch(client, REGISTER_COUNT=8)


def _no_flush(client: Client) -> None:
  _launch(client, CWD_MEMBAR_TYPE=0)


def _no_flush_before(client: Client) -> None:
  """The kernel after it waits for its own results only."""
  _launch(client, CWD_MEMBAR_TYPE=0)
  client.method(COMPUTE, "WAIT_FOR_IDLE", 0)
  _launch(client)


def _copy_no_flush(client: Client) -> None:
  client.transfer(client.local(4096), client.host(4096), 64, 0x182)


def _overlap(client: Client) -> None:
  place = client.host(4096)
  client.transfer(place + 16, place, 64)


def _no_windows(client: Client) -> None:
  code, found = client.program(DOUBLE)
  client.launch(client.qmd(client.fields(code, found, client.host(4096))))


def _other_remap(client: Client) -> None:
  client.method(COPIES, "SET_REMAP_COMPONENTS", 3 << 16)
  client.transfer(client.host(4096), client.host(4096), 4, 0x586)


def _release_no_flush(client: Client) -> None:
  client.method(COPIES, "SET_SEMAPHORE_A", client.area >> 32, client.area + 0x5000 & 0xFFFFFFFF, 1)
  client.transfer(client.local(4096), client.host(4096), 64, 0x182 | 1 << 3)


MISUSED: dict[str, tuple[Callable[[Client], None], str]] = {
  "an operation of memory": (lambda c: c.method(0, "MEM_OP_D", 0xD << 27), "knows no MEM_OP 0xd"),
  "a semaphore without address": (lambda c: c.method(0, "SEM_EXECUTE", 1), "SEM_ADDR_HI was never set"),
  "a semaphore's reduction": (lambda c: c.semaphore(c.area + 0x4000, 1, 6), "operation 6"),
  "a report that traps": (lambda c: c.method(COMPUTE, "REPORT_SEMAPHORE_EXECUTE", 3), "with OPERATION"),
  "an older report that traps": (lambda c: c.method(COMPUTE, "SET_REPORT_SEMAPHORE_D", 3), "with OPERATION"),
  "inline data to block-linear memory": (lambda c: c.method(COMPUTE, "LAUNCH_DMA", 0), "knows no LAUNCH_DMA 0x0"),
  "inline data to nowhere": (lambda c: c.method(COMPUTE, "LOAD_INLINE_DATA", 1), "without LAUNCH_DMA"),
  "nothing to schedule": (lambda c: c.method(COMPUTE, "SEND_SIGNALING_PCAS_B", 0), "schedules nothing"),
  "another action": (lambda c: c.method(COMPUTE, "SEND_SIGNALING_PCAS2_B", 6), "SEND_SIGNALING_PCAS2_B 0x6"),
  "another action of a dependent QMD": (
    lambda c: _launch(c, DEPENDENT_QMD_ENABLE=1, DEPENDENT_QMD_ACTION=4), "no action 4",
  ),
  "a release of no size": (lambda c: _launch(c, RELEASE_ENABLE=1, RELEASE_STRUCTURE_SIZE=3), "of size 3"),
  "a setting that is not known": (lambda c: c.method(COMPUTE, "SET_QMD_VERSION", 1), "no method SET_QMD_VERSION"),
  "a barrier that there is not": (lambda c: _launch(c, CWD_MEMBAR_TYPE=2), "CWD_MEMBAR_TYPE 2"),
  "constants of nothing": (lambda c: _launch(c, CONSTANT_BUFFER_SIZE_SHIFTED4=0), "bank 0 of 0 bytes"),
  "constants without windows": (_no_windows, "c[0][0x18] is 0x0"),
  "PTX that is not known": (lambda c: _launch(c, DOUBLE.replace("add.s32", "vadd.s32")), "cannot run this PTX"),
  "a copy of a kind that is not known": (
    lambda c: c.transfer(c.host(4096), c.host(4096), 64, 0x186 | 1 << 22), "LAUNCH_DMA with VPRMODE",
  ),
  "remapping that is not known": (_other_remap, "to constants only"),
  "a release of copies without a flush": (_release_no_flush, "not told to flush"),
  "a method that is not known": (lambda c: c.set(COMPUTE, 0x114, 1), "knows no method 0x114"),
  "constants that changed": (_kept_constants, "nothing invalidated"),
  "code that changed": (lambda c: _twice(c, _other_code, INVALIDATE_INSTRUCTION_CACHE=0), "other code"),
  "data that changed": (lambda c: _twice(c, _nothing, INVALIDATE_SHADER_DATA_CACHE=0), "nothing invalidated it"),
  "too few registers": (_registers, "has 8 registers"),
  "too few barriers": (lambda c: _launch(c, EXCHANGE, BARRIER_COUNT=0), "has 0 barriers"),
  "too little shared memory": (lambda c: _launch(c, EXCHANGE, SHARED_MEMORY_SIZE=128), "128 bytes of shared memory"),
  "an odd size of shared memory": (lambda c: _launch(c, EXCHANGE, SHARED_MEMORY_SIZE=1300), "1300 bytes"),
  "a configuration that there is not": (lambda c: _launch(c, TARGET_SM_CONFIG_SHARED_MEM_SIZE=2), "configurations"),
  "a configuration too small": (
    lambda c: _launch(c, EXCHANGE, MIN_SM_CONFIG_SHARED_MEM_SIZE=1, TARGET_SM_CONFIG_SHARED_MEM_SIZE=1),
    "configuration of 0",
  ),
  "no constant bank": (lambda c: _launch(c, CONSTANT_BUFFER_VALID=0), "bank 0 is not valid"),
  "a constant bank too small": (lambda c: _launch(c, CONSTANT_BUFFER_SIZE_SHIFTED4=0x21), "of which the program reads"),
  "another bank": (lambda c: _launch(c, CONSTANT_BUFFER_VALID__3=1), "banks [0, 3]"),
  "another version of QMDs": (lambda c: _launch(c, QMD_MAJOR_VERSION=2), "no version"),
  "another type of QMDs": (lambda c: _launch(c, QMD_TYPE=0), "QMD_TYPE 0"),
  "a field that is not known": (lambda c: _launch(c, DEPENDENCE_COUNTER=1), "DEPENDENCE_COUNTER = 1"),
  "a field of the hardware": (lambda c: _launch(c, HW_ONLY_SKED_NEXT_QMD_POINTER=4), "the hardware's"),
  "a version of machine code": (lambda c: _launch(c, SASS_VERSION=0x75), "SASS_VERSION 0x75"),
  "clusters": (lambda c: _launch(c, GPC_CGA_WIDTH=2), "clusters"),
  "code fetched ahead from elsewhere": (lambda c: _launch(c, PROGRAM_PREFETCH_SIZE=4), "fetched ahead"),
  "results that are not flushed": (_no_flush, "may not be seen"),
  "results of the kernel before that are not flushed": (_no_flush_before, "may not be seen"),
  "copies that are not flushed": (_copy_no_flush, "without a flush"),
  "block-linear memory": (lambda c: c.transfer(c.host(4096), c.host(4096), 64, 0x106), "block-linear"),
  "a copy of nothing": (lambda c: c.transfer(c.host(4096), c.host(4096), 0), "of 0 bytes"),
  "a copy onto itself": (_overlap, "overlap"),
  "windows never set": (_fresh(_launch), "was never set"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSED)
def test_misuse(client: Client, name: str) -> None:
  act, text = MISUSED[name]
  act(client)
  client.signal()
  client.submit()
  assert not client.wait(5)
  assert text in client.model.misuse[0], client.model.misuse
  assert client.error() == (0xFFFF, Xid.GRAPHICS_EXCEPTION)


def _bad_header(client: Client) -> None:
  client.words.append(6 << 29)


def _short(client: Client) -> None:
  client.words.append(1 << 29 | 9 << 16 | 0x5C >> 2)


def _other_arch(client: Client) -> None:
  image = cubin.programs(DOUBLE.format(arch="sm_89"), "sm_89")[0][1].image()
  place = client.host(len(image))
  ctypes.memmove(place, image, len(image))
  _launch(client, PROGRAM_ADDRESS_LOWER=place & 0xFFFFFFFF)


def _odd_copy_semaphore(client: Client) -> None:
  client.method(COPIES, "SET_SEMAPHORE_A", client.area >> 32, client.area + 0x5008 & 0xFFFFFFFF, 1)
  client.method(COPIES, "LAUNCH_DMA", 2 << 3)


FAULTS: dict[str, tuple[Callable[[Client], None], Xid, str]] = {
  "bits of a semaphore": (lambda c: c.semaphore(c.area + 0x4000, 1, 1 | 1 << 10), Xid.PUSHBUFFER, "no field has"),
  "a report at an odd place": (
    lambda c: c.method(COMPUTE, "SET_REPORT_SEMAPHORE_A", c.area >> 32, c.area + 0x4004 & 0xFFFFFFFF, 1, 0),
    Xid.CLASS_ERROR, "a report of structure 0",
  ),
  "too many registers": (
    lambda c: _launch(c, REGISTER_COUNT=255, CTA_THREAD_DIMENSION0=1024), Xid.GRAPHICS_EXCEPTION,
    "255 registers for 1024",
  ),
  "too much shared memory": (
    lambda c: _launch(c, SHARED_MEMORY_SIZE=240 << 10), Xid.GRAPHICS_EXCEPTION, "of 227 KiB",
  ),
  "code of another architecture": (_other_arch, Xid.GRAPHICS_EXCEPTION, "code for sm_89 on sm_90a"),
  "a copy of no type": (lambda c: c.transfer(c.host(4096), c.host(4096), 64, 0x187), Xid.CLASS_ERROR, "no such type"),
  "a copy's semaphore at an odd place": (_odd_copy_semaphore, Xid.CLASS_ERROR, "semaphore of 16 bytes"),
  "a source that is not mapped": (lambda c: c.transfer(c.host(4096), LOW - 65536, 64), Xid.MMU_FAULT, "not mapped"),
  "a copy beyond the end": (
    lambda c: c.transfer(c.host(65536), c.local(65536) + 65532, 8), Xid.MMU_FAULT, "source: 0x",
  ),
  "a QMD that is not mapped": (lambda c: c.launch(LOW - 65536), Xid.MMU_FAULT, "a QMD"),
  "a program that is none": (lambda c: _launch(c, PROGRAM_ADDRESS_LOWER=(c.host(4096) & 0xFFFFFFFF)),
                             Xid.GRAPHICS_EXCEPTION, "no program"),
  "a program at an odd place": (
    lambda c: _launch(c, PROGRAM_ADDRESS_LOWER=64), Xid.GRAPHICS_EXCEPTION, "multiple of 128",
  ),
  "no threads": (lambda c: _launch(c, CTA_THREAD_DIMENSION1=0), Xid.GRAPHICS_EXCEPTION, "(32, 0, 1)"),
  "other threads": (lambda c: _launch(c, CTA_THREAD_DIMENSION0=64), Xid.GRAPHICS_EXCEPTION, "the program is for"),
  "too many threads": (lambda c: _launch(c, CTA_THREAD_DIMENSION1=64), Xid.GRAPHICS_EXCEPTION, "blocks of"),
  "no grid": (lambda c: _launch(c, GRID_WIDTH=0), Xid.GRAPHICS_EXCEPTION, "a grid of (0"),
  "a window at 0": (lambda c: _windows(c, 0, 0), Xid.GRAPHICS_EXCEPTION, "window of shared memory"),
  "a window at an odd place": (lambda c: _windows(c, 4, 1 << 24), Xid.GRAPHICS_EXCEPTION, "window of shared memory"),
  "a window over memory": (lambda c: _windows(c, LOW >> 32, 0), Xid.GRAPHICS_EXCEPTION, "covers memory"),
  "a method that there is not": (lambda c: c.set(COMPUTE, 0x3F0, 1), Xid.CLASS_ERROR, "no method 0x3f0"),
  "a method of the host": (lambda c: c.set(0, 0xF0, 1), Xid.PUSHBUFFER, "no method 0xf0"),
  "a subchannel without object": (lambda c: c.set(2, 0x110, 1), Xid.PUSHBUFFER, "no object"),
  "an object that was not made": (lambda c: c.set(2, 0, 0xC9C0), Xid.CLASS_ERROR, "no such object"),
  "copies on another subchannel": (lambda c: c.set(2, 0, 0xC8B5), Xid.CLASS_ERROR, "for copies"),
  "bits that no field has": (lambda c: c.method(COMPUTE, "SEND_SIGNALING_PCAS2_B", 1 << 30), Xid.CLASS_ERROR, "bits"),
  "a header that there is not": (_bad_header, Xid.PUSHBUFFER, "header"),
  "a header without data": (_short, Xid.PUSHBUFFER, "9 words of data"),
  "physical addresses": (lambda c: c.transfer(c.host(4096), c.host(4096), 64, 0x1186), Xid.CLASS_ERROR, "privileges"),
  "a semaphore at an odd place": (
    lambda c: c.semaphore(c.area + 0x3008, 1, 1 | 3 << 24), Xid.PUSHBUFFER, "semaphore of 16 bytes",
  ),
  "a semaphore that is not mapped": (lambda c: c.semaphore(LOW - 65536, 1, 1), Xid.MMU_FAULT, "release"),
  "the MMU": (lambda c: c.method(0, "MEM_OP_D", 9 << 27), Xid.PUSHBUFFER, "privileges"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_the_gpu_ends_the_channel(client: Client, name: str) -> None:
  act, xid, text = FAULTS[name]
  act(client)
  client.signal()
  client.submit()
  assert not client.wait(5)
  assert client.error() == (0xFFFF, xid) and text in client.model.wrong, client.model.wrong
  assert client.model.misuse == []
  if xid == Xid.MMU_FAULT:
    row = client.control_of(client.channel, "NV906F_CTRL_CMD_GET_MMU_FAULT_INFO")
    debugger = client.alloc(0x83DE, client.device, "NV83DE_ALLOC_PARAMETERS", hAppClient=client.root,
                            hClass3dObject=client.compute)  # fmt: skip
    faults = client.control_of(debugger, "NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO")
    entry = Record("NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY", faults.at("mmuFaultInfoList"))
    assert (
      row["addrHi"] << 32 | row["addrLo"] == entry["faultAddress"]
      and f"{entry['faultAddress']:#x}" in client.model.wrong
    )
  client.signal()
  client.submit()  # nothing comes of it any more
  assert not client.wait(3)
  client.close()
  assert client.model.left() == []


def test_a_kernel_that_goes_astray(client: Client) -> None:
  source, target = client.local(65536), client.host(65536)
  code, found = client.program(DOUBLE)
  client.launch(client.qmd(client.fields(code, found, client.constants(found, target, source + 65536 - 64))))
  client.signal()
  client.submit()
  assert not client.wait(5) and client.error() == (0xFFFF, Xid.MMU_FAULT)
  row = client.control_of(client.channel, "NV906F_CTRL_CMD_GET_MMU_FAULT_INFO")
  assert (row["addrHi"] << 32 | row["addrLo"], row["faultType"]) == (source + 65536, 2)


def test_memory_to_be_read_only(client: Client) -> None:
  place, memory, source = client.reserve(65536), client.memory(65536, True), client.host(4096)
  client.uvm("CREATE_EXTERNAL_RANGE", base=place, length=65536)
  client.map_gpu(memory, place, 65536, kind=3)
  client.transfer(source, place, 64)
  client.finish()
  client.transfer(place, source, 64)
  client.signal()
  client.submit()
  assert not client.wait(5) and "may only be read" in client.model.wrong
  row = client.control_of(client.channel, "NV906F_CTRL_CMD_GET_MMU_FAULT_INFO")
  assert row["faultType"] == 6


def test_memory_that_is_gone(client: Client) -> None:
  place, source = client.local(65536), client.host(4096)
  client.release(place)
  client.transfer(source, place, 64)
  client.signal()
  client.submit()
  assert not client.wait(5) and client.error() == (0xFFFF, Xid.MMU_FAULT)


def test_memory_outlives_its_handle_while_uvm_maps_it(client: Client) -> None:
  place, source = client.local(65536), client.host(4096)
  client.free_handle(client.blocks.pop(place)[0])
  client.transfer(place, source, 64)
  client.finish()
  client.uvm("FREE", base=place)


# *** the ring ***


def test_a_doorbell_with_another_token(client: Client) -> None:
  client.signal()
  client.submit(ring=False)
  with pytest.raises(OSError, match="token of no channel"):
    client.ring(client.token ^ 1)
  assert not client.wait(5)


def test_another_place_than_the_doorbell(client: Client) -> None:
  with pytest.raises(OSError, match="which is none"):
    client.model.ring(client.doorbells + 0x94, client.token)


def test_nothing_happens_without_the_doorbell(client: Client) -> None:
  client.signal()
  client.submit(ring=False)
  assert not client.wait(5)
  client.ring()
  assert client.wait()


def test_a_channel_that_is_not_scheduled(client: Client) -> None:
  client.control_of(client.group, "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", bEnable=0)
  client.signal()
  with pytest.raises(OSError, match="not scheduled"):
    client.submit()


def test_gp_put_outside(client: Client) -> None:
  ctypes.c_uint32.from_address(client.userd + 0x8C).value = ENTRIES
  with pytest.raises(OSError, match="GP_PUT is 64"):
    client.model.ring(client.doorbells + 0x90, client.token)


def test_words_that_change_before_they_are_fetched(client: Client) -> None:
  client.signal()
  client.submit()
  fill_words(client.pushbuffer, 0)
  assert not client.wait(5) and "was changed before the GPU fetched it" in client.model.misuse[0]


def test_entries_that_change_before_they_are_fetched(client: Client) -> None:
  client.signal()
  client.submit()
  fill_words(client.area, 0)
  assert not client.wait(5) and "was written anew" in client.model.misuse[0]


def test_the_ring_goes_round(client: Client) -> None:
  for _ in range(3 * ENTRIES):
    client.finish()
  assert Record("Nvc56fControl", client.userd)["GPGet"] == client.put % ENTRIES


def test_host_addresses_of_40_bits() -> None:
  client = Client(machine("AD102"))
  client.method(0, "SEM_ADDR_LO", 0, 0x100)
  client.signal()
  client.submit()
  assert not client.wait(5) and "more than 40 bits" in client.model.wrong


# *** order: what is not waited for ***


def test_copies_and_launches_are_in_no_order(client: Client) -> None:
  source, local, target = client.host(4096), client.local(4096), client.host(4096)
  fill_words(source, *range(32))
  code, found = client.program(DOUBLE)
  qmd = client.qmd(client.fields(code, found, client.constants(found, target, local)))
  client.transfer(local, source, 128)
  client.launch(qmd)
  client.finish()
  assert words_at(target, 32) != [2 * n for n in range(32)]  # nothing waited for the copy
  client.transfer(local, source, 128)
  client.method(0, "WFI", 1)
  client.launch(client.qmd(client.fields(code, found, client.constants(found, target, local))))
  client.finish()
  assert words_at(target, 32) == [2 * n for n in range(32)]


@pytest.mark.parametrize("waits", [False, True])
def test_launches_are_in_no_order(client: Client, waits: bool) -> None:
  source, middle, target = client.host(4096), client.host(4096), client.host(4096)
  fill_words(source, *range(32))
  code, found = client.program(DOUBLE)
  client.launch(client.qmd(client.fields(code, found, client.constants(found, middle, source))))
  if waits:
    client.method(COMPUTE, "WAIT_FOR_IDLE", 0)
  client.launch(client.qmd(client.fields(code, found, client.constants(found, target, middle))))
  client.finish()
  assert (words_at(target, 32) == [4 * n for n in range(32)]) == waits


@pytest.mark.parametrize("waits", [False, True])
def test_a_release_that_does_not_wait(client: Client, waits: bool) -> None:
  source, target = client.host(4096), client.host(4096)
  fill_words(source, *range(32))
  code, found = client.program(DOUBLE)
  client.launch(client.qmd(client.fields(code, found, client.constants(found, target, source))))
  client.signal(wfi=waits)
  place = client.host(4096)
  client.semaphore(place, 1, 0 | 1 << 24)  # holds the rest
  client.submit()
  seen = client.wait(5), words_at(target, 32) == [2 * n for n in range(32)]
  assert seen == (True, True) and client.model.misuse == []


def test_engines_wait_for_each_other_by_semaphores(client: Client) -> None:
  source, local, target, mark = client.host(4096), client.local(4096), client.host(4096), client.host(4096)
  fill_words(source, *range(32))
  code, found = client.program(DOUBLE)
  qmd = client.qmd(client.fields(code, found, client.constants(found, target, local)))
  client.method(COPIES, "SET_SEMAPHORE_A", mark >> 32, mark & 0xFFFFFFFF, 7)
  client.transfer(local, source, 128, 0x186 | 1 << 3)
  client.semaphore(mark, 7, 3)
  client.launch(qmd)
  client.finish()
  assert words_at(target, 32) == [2 * n for n in range(32)]


# *** faults that tests ask for ***


def test_requests_that_fail(client: Client) -> None:
  client.model.fails["RM_ALLOC"] = Status.INSUFFICIENT_RESOURCES
  with pytest.raises(Refused, match=str(int(Status.INSUFFICIENT_RESOURCES))):
    client.memory(65536, True)
  client.model.fails = {"UVM_CREATE_EXTERNAL_RANGE": -errno.EINTR}
  with pytest.raises(OSError, match="is to fail"):
    client.uvm("CREATE_EXTERNAL_RANGE", base=LOW, length=65536)


def test_a_gpu_that_is_lost(client: Client) -> None:
  client.model.lose(0)
  with pytest.raises(Refused, match=str(int(Status.GPU_IS_LOST))):
    client.memory(65536, True)
  client.signal()
  client.submit()
  assert not client.wait(3) and client.error() == (0xFFFF, Xid.FALLEN_OFF_THE_BUS)


def test_a_gpu_that_hangs(client: Client) -> None:
  client.model.hangs = True
  client.signal()
  client.submit()
  assert not client.wait(3)
  client.model.hangs = False
  assert client.wait()


def test_versions() -> None:
  for version, text in VERSIONS.items():
    client = Client(machine(version=version))
    row = client.control_of(client.root, "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2")
    assert ctypes.string_at(row.at("driverVersionBuffer")).decode() == text
    memory, record = made("nv_ioctl_rm_api_version_t")
    record.text("versionString", text)
    client.send("CHECK_VERSION_STR", memory)
    assert record["reply"] == 1
    record.text("versionString", "555.42.02")
    with pytest.raises(OSError, match=text):
      client.send("CHECK_VERSION_STR", memory)
    MACHINES.pop().end()
  with pytest.raises(ValueError, match="not of 470"):
    Model(version="470")


def test_structures_of_older_drivers() -> None:
  """550 has one that is shorter, and refuses the longer one."""
  client = Client(machine(version="550"))
  row, name = made("NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", bEnable=1), "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE"
  with pytest.raises(Refused, match=str(int(Status.INVALID_PARAM_STRUCT))):
    client.escape("RM_CONTROL", "NVOS54_PARAMETERS", hClient=client.root, hObject=client.group, cmd=CONSTANTS[name],
                  params=row[1].address, paramsSize=3)  # fmt: skip
  assert "has 2 bytes, not 3" in client.model.refused[-1]
  client.finish()


def test_no_such_requests(client: Client) -> None:
  memory = ctypes.create_string_buffer(8)
  for fd, request in ((client.control, 0xC0084612), (client.control, 0xC008462B), (client.uvm_fd, 4711)):
    with pytest.raises(OSError, match=r"no request|with 8 bytes"):
      client.model.ioctl(fd, request, memory)
  with pytest.raises(OSError, match="request of /dev/nvidiactl"):
    client.send("RM_FREE", made("NVOS00_PARAMETERS")[0], client.card)
  with pytest.raises(FileNotFoundError):
    client.model.open("/dev/nvidia1")
  with pytest.raises(OSError, match="RM_MAP_MEMORY comes before"):
    client.model.map(client.control, 4096, 0)


def test_calls_of_linux_that_fail(client: Client) -> None:
  model, memory = client.model, ctypes.create_string_buffer(8)
  with pytest.raises(OSError, match="no such descriptor"):
    model.ioctl(7, 0, memory)
  with pytest.raises(OSError, match="UVM_FREE wants 16 bytes"):
    model.ioctl(client.uvm_fd, CONSTANTS["UVM_FREE"], memory)
  with pytest.raises(OSError, match="REGISTER_FD"):
    client.send("REGISTER_FD", made("nv_ioctl_register_fd_t", ctl_fd=client.control)[0], client.card)
  with pytest.raises(OSError, match="no such mapping"):
    model.unmap(LOW - 65536, 4096)
  structure, record = made("nv_ioctl_nvos33_parameters_with_fd", fd=model.open("/dev/nvidiactl"))
  inner = Record("NVOS33_PARAMETERS", record.at("params"))
  given = {"hClient": client.root, "hDevice": client.device, "hMemory": client.memory(65536, False), "length": 65536}
  for name, value in given.items():
    inner[name] = value
  client.send("RM_MAP_MEMORY", structure)
  with pytest.raises(OSError, match="4096 bytes from 0, and 65536 from 0 are to be mapped"):
    model.map(record["fd"], 4096, 0)
  model.fails = {"CARD_INFO": -errno.EIO, "open /dev/nvidiactl": -errno.EACCES}
  for act in (lambda: client.send("CARD_INFO", made("nv_ioctl_card_info_t")[0]), lambda: model.open("/dev/nvidiactl")):
    with pytest.raises(OSError, match="is to fail"):
      act()


def test_what_is_left_is_told(client: Client) -> None:
  client.host(4096)
  assert "1 clients" in client.model.left()
  client.signal()
  client.submit()
  client.free_handle(client.group)
  assert client.model.misuse == ["channel 1 is freed, and has work to do"]


def test_the_host_cannot_touch_the_gpus_memory() -> None:
  """Only where it is mapped: else it is no memory of the process."""
  code = """
import ctypes, sys
sys.path[:0] = sys.argv[1:]
from nv_client import Client, Model
client = Client(Model())
place = client.local(4096)
host = client.map_host(client.blocks[place][0], 65536, "/dev/nvidia0")
ctypes.c_uint32.from_address(host).value = 5
print("through the mapping", flush=True)
ctypes.c_uint32.from_address(place).value = 5
print("without", flush=True)
"""
  here = Path(__file__).parent
  command = [sys.executable, "-c", code, str(here), str(here.parent / "model")]
  done = subprocess.run(command, capture_output=True, text=True, timeout=60)
  assert done.stdout == "through the mapping\n" and done.returncode < 0


# *** mutations: each is found ***


def _changed_payload(client: Client) -> None:
  client.model.flip_payload = 1 << 40


def _swapped(one: str, other: str) -> Callable[[Client, dict[str, int]], None]:
  def change(client: Client, values: dict[str, int]) -> None:
    values[one], values[other] = values[other], values[one]

  return change


def _without(name: str) -> Callable[[Client, dict[str, int]], None]:
  def change(client: Client, values: dict[str, int]) -> None:
    values[name] = 0

  return change


MUTATIONS: dict[str, Callable[[Client, dict[str, int]], None]] = {
  "grid and depth": _swapped("GRID_WIDTH", "GRID_DEPTH"),
  "registers and barriers": _swapped("REGISTER_COUNT", "BARRIER_COUNT"),
  "threads": _swapped("CTA_THREAD_DIMENSION0", "CTA_THREAD_DIMENSION1"),
  "halves of the program's address": _swapped("PROGRAM_ADDRESS_LOWER", "PROGRAM_ADDRESS_UPPER"),
  "least and most shared memory": _swapped("MIN_SM_CONFIG_SHARED_MEM_SIZE", "MAX_SM_CONFIG_SHARED_MEM_SIZE"),
  "no constants": _without("CONSTANT_BUFFER_VALID"),
  "no barrier of memory": _without("CWD_MEMBAR_TYPE"),
  "constants that stay": _without("INVALIDATE_SHADER_CONSTANT_CACHE"),
  "code that stays": _without("INVALIDATE_INSTRUCTION_CACHE"),
  "data that stays": _without("INVALIDATE_SHADER_DATA_CACHE"),
  "versions": _swapped("QMD_MAJOR_VERSION", "QMD_MINOR_VERSION"),
}


@pytest.mark.parametrize("name", [None, *MUTATIONS])
@pytest.mark.parametrize("chip", [pytest.param(n, marks=[] if n == "GH100" else pytest.mark.nightly) for n in CHIPS])
def test_mutations(chip: str, name: str | None) -> None:
  """A program that uses the same memory for code, constants and data again. Changed, it goes wrong, or is refused."""
  client = Client(machine(chip))
  source, target = client.host(4096), client.host(4096)
  fill_words(source, *range(96))
  code, found = client.program(DOUBLE)
  bank = client.constants(found, target, source)
  exchange = client.program(EXCHANGE)[1]
  layout = layouts(client.chip.classes[2])[0]
  targets = target, target + 1024, target + 2048
  good = True
  for turn, target in enumerate(targets):
    program, words = (exchange, [target]) if turn == 1 else (found, [target, source])
    ctypes.memmove(code, program.image(), len(program.image()))
    client.fill(bank, program, *words)
    fill_words(target, *[0] * 96)
    values = client.fields(code, program, bank, 1 if turn == 1 else 3)
    try:
      if name is not None:
        MUTATIONS[name](client, values)
      client.launch(client.qmd(values, layout))
    except (AssertionError, KeyError):
      pytest.skip("this version has no such fields, or the value has no place in the other")
    client.signal()
    client.submit()
    good = client.wait(5) and good
    wanted = list(reversed(range(32))) if turn == 1 else [2 * n for n in range(96)]
    good = good and words_at(target, len(wanted)) == wanted
  assert good == (name is None), (client.model.misuse, client.model.wrong)


def test_a_payload_that_is_wrong(client: Client) -> None:
  client.model.flip_payload = 1
  client.signal()
  client.submit()
  assert not client.wait(5)


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
