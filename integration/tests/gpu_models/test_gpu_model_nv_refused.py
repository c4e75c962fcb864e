"""What NVIDIA's driver refuses, the model of it refuses, by name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from nv_client import LOW, Client, Refused, made
from nv_machines import client, machines_end

from gpu_model.nv.errors import Status
from gpu_model.nv.tables import Record
from gpu_model.toolchain import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")


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
