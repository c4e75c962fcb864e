"""A program that drives the model of NVIDIA's driver, written against NVIDIA's headers and nothing of the plugin: it
starts up, allocates, writes QMDs and methods, rings doorbells and waits.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from gpu_model.nv.cubin import Program, programs
from gpu_model.nv.errors import Status
from gpu_model.nv.gpus import CHIPS, OLDER
from gpu_model.nv.model import Gpu, Model
from gpu_model.nv.tables import CONSTANTS, TABLES, Record, layouts, methods, qmd_bytes

LOW = 0x40_0000_0000
"""Where the addresses of channels are, of 40 bits; the second client's are 64 GiB above the first's."""
SHARED_WINDOW, LOCAL_WINDOW = 0x4_0000_0000, 0xFF00_0000
ENTRIES, COMPUTE, COPIES = 64, 1, 4
VASPACE_FLAGS = (
  CONSTANTS["NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED"]
  | CONSTANTS["NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING"]
)
DOUBLE = """
.version 7.0
.target {arch}
.address_size 64
.visible .entry double(
	.param .u64 double_param_0,
	.param .u64 double_param_1
)
.reqntid 32, 1, 1
{{
	.reg .b32 	%r<8>;
	.reg .b64 	%rd<6>;

	ld.param.b64 	%rd1, [double_param_0];
	ld.param.b64 	%rd2, [double_param_1];
	mov.u32 	%r1, %ctaid.x;
	shl.b32 	%r2, %r1, 5;
	mov.u32 	%r3, %tid.x;
	add.s32 	%r4, %r2, %r3;
	mul.wide.u32 	%rd3, %r4, 4;
	add.s64 	%rd4, %rd2, %rd3;
	ld.global.b32 	%r5, [%rd4];
	add.s32 	%r6, %r5, %r5;
	add.s64 	%rd5, %rd1, %rd3;
	st.global.b32 	[%rd5], %r6;
	ret;

}}
"""
"""Word i of the first buffer becomes twice word i of the second."""
EXCHANGE = """
.version 7.0
.target {arch}
.address_size 64
.visible .entry exchange(
	.param .u64 exchange_param_0
)
.reqntid 32, 1, 1
{{
	.reg .b32 	%r<12>;
	.reg .b64 	%rd<6>;
	.shared .align 16 .b8 	tile[256];

	ld.param.b64 	%rd1, [exchange_param_0];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 4;
	mov.u64 	%rd3, tile;
	add.s64 	%rd4, %rd3, %rd2;
	st.shared.b32 	[%rd4], %r1;
	bar.sync 	0;
	xor.b32 	%r2, %r1, 31;
	mul.wide.u32 	%rd5, %r2, 4;
	add.s64 	%rd4, %rd3, %rd5;
	ld.shared.b32 	%r3, [%rd4];
	add.s64 	%rd4, %rd1, %rd2;
	st.global.b32 	[%rd4], %r3;
	ret;

}}
"""
"""Word i becomes 31 - i, by way of shared memory."""


class Refused(Exception):
  """The driver's status of a request that was not done."""

  @property
  def status(self) -> Status:
    return Status(self.args[0])


class Held(Record):
  """A structure with its memory."""

  memory: Any


def made(name: str, **values: int) -> tuple[Any, Held]:
  """A structure with these fields; all others are 0."""
  memory = ctypes.create_string_buffer(TABLES["structures"][name][0])
  record = Held(name, ctypes.addressof(memory))
  record.memory = memory
  for field, value in values.items():
    record.put(field, value)
  return memory, record


def bits_of(qmd: int, place: list[int], value: int, index: int = 0) -> int:
  """A QMD with a field."""
  low, width, *step = place
  low += step[0] * index if step else 0
  assert 0 <= value < 1 << width, (place, value)
  return qmd & ~(((1 << width) - 1) << low) | value << low


class Client:
  """A program with one GPU, a channel with compute and copies, and memory."""

  def __init__(self, model: Model, number: int = 0, start: bool = True) -> None:
    self.model, self.number, self.next, self.handles = model, number, LOW + (number << 36), 0x5C000000
    self.timeline, self.put = 0, 0
    self.words: list[int] = []
    self.blocks: dict[int, tuple[int, int, bool]] = {}
    if start:
      self.start()

  @property
  def gpu(self) -> Gpu:
    return self.model.gpus[self.number]

  @property
  def chip(self) -> Any:
    return CHIPS[self.gpu.chip.name]

  # *** requests ***

  def handle(self) -> int:
    self.handles += 1
    return self.handles

  def escape(self, name: str, structure: str, fd: int = 0, **values: int) -> Record:
    memory, record = made(structure, **values)
    self.send(name, memory, fd)
    self.check(record.get("status"))
    return record

  def send(self, name: str, memory: Any, fd: int = 0) -> None:
    size = ctypes.sizeof(memory)
    self.model.ioctl(fd or self.control, 3 << 30 | size << 16 | ord("F") << 8 | CONSTANTS[f"NV_ESC_{name}"], memory)

  @staticmethod
  def check(status: int) -> None:
    if status:
      raise Refused(status)

  def alloc(self, number: int, parent: int, structure: str = "", handle: int = 0, **values: int) -> int:
    """A new object; its handle."""
    memory, record = made(structure, **values) if structure else (None, None)
    self.parameters = record
    place, size = (record.address, record.size) if record else (0, 0)
    made_handle = handle or self.handle()
    self.escape(
      "RM_ALLOC", "NVOS21_PARAMETERS", hRoot=self.root, hObjectParent=parent, hObjectNew=made_handle, hClass=number,
      pAllocParms=place, paramsSize=size,
    )  # fmt: skip
    return made_handle

  def control_of(self, target: int, command: str, structure: str = "", **values: int) -> Record:
    _, record = made(structure or command.replace("_CMD_", "_") + "_PARAMS", **values)
    size = OLDER.get(self.model.version, {}).get(record.name, record.size)
    self.escape(
      "RM_CONTROL", "NVOS54_PARAMETERS", hClient=self.root, hObject=target, cmd=CONSTANTS[command],
      params=record.address, paramsSize=size,
    )  # fmt: skip
    return record

  def free_handle(self, handle: int, parent: int = 0) -> None:
    self.escape("RM_FREE", "NVOS00_PARAMETERS", hRoot=self.root, hObjectParent=parent, hObjectOld=handle)

  def uvm(self, name: str, fd: int = 0, uuid: str = "", uuids: dict[str, bytes] | None = None, **values: int) -> Record:
    memory, record = made(f"UVM_{name}_PARAMS", **values)
    for field, value in {**({uuid: self.gpu.uuid} if uuid else {}), **(uuids or {})}.items():
      ctypes.memmove(record.at(field), value, 16)
    self.model.ioctl(fd or self.uvm_fd, CONSTANTS[f"UVM_{name}"], memory)
    self.check(record["rmStatus"])
    return record

  # *** start ***

  def start(self, uvm_fd: int = 0) -> None:
    """Up to a channel that is scheduled."""
    self.open(uvm_fd)
    self.objects()
    self.channel_up()

  def open(self, uvm_fd: int = 0) -> None:
    model = self.model
    self.control = model.open("/dev/nvidiactl")
    self.root = 0
    root = self.escape("RM_ALLOC", "NVOS21_PARAMETERS", hClass=0x41)
    self.root = root["hObjectNew"]
    self.own_uvm = not uvm_fd
    self.uvm_fd = uvm_fd or model.open("/dev/nvidia-uvm")
    if self.own_uvm:
      self.uvm("INITIALIZE")
    self.card = model.open(f"/dev/nvidia{self.number}")
    memory, record = made("nv_ioctl_register_fd_t", ctl_fd=self.control)
    self.send("REGISTER_FD", memory, self.card)

  def objects(self) -> None:
    self.device = self.alloc(0x80, self.root, "NV0080_ALLOC_PARAMETERS", deviceId=self.number)
    self.sub = self.alloc(0x2080, self.device, "NV2080_ALLOC_PARAMETERS")
    self.space = self.alloc(0x90F1, self.device, "NV_VASPACE_ALLOCATION_PARAMETERS", flags=VASPACE_FLAGS)
    self.uvm("REGISTER_GPU", uuid="gpu_uuid", rmCtrlFd=self.control, hClient=self.root)
    self.uvm("REGISTER_GPU_VASPACE", uuid="gpuUuid", rmCtrlFd=self.control, hClient=self.root, hVaSpace=self.space)
    usermode, *_ = self.chip.classes
    self.usermode = self.alloc(int(usermode, 16), self.sub)
    self.doorbells = self.map_host(self.usermode, 0x10000, f"/dev/nvidia{self.number}")

  def channel_up(self, **changes: int) -> None:
    """A group with a channel, registered and scheduled, with its engines."""
    _, channel, compute, copies = (int(name, 16) for name in self.chip.classes)
    self.area = self.host(1 << 16)
    self.userd, self.notifier = self.area + 0x1000, self.area + 0x2000
    self.group = self.alloc(
      0xA06C, self.device, "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", hVASpace=self.space, engineType=1
    )
    self.share = self.alloc(0x9067, self.group, "NV_CTXSHARE_ALLOCATION_PARAMETERS", hVASpace=self.space)
    memory = self.blocks[self.area][0]
    error = self.alloc(0x2, self.device, "NV_CONTEXT_DMA_ALLOCATION_PARAMS", hMemory=memory, offset=0x2000, limit=0xFFF)
    values = {
      "hObjectError": error, "gpFifoOffset": self.area, "gpFifoEntries": ENTRIES, "hContextShare": self.share,
      "hUserdMemory": memory, "userdOffset": 0x1000, **changes,
    }  # fmt: skip
    self.channel = self.alloc(channel, self.group, "NV_CHANNEL_ALLOC_PARAMS", **values)
    self.compute, self.copy = self.alloc(compute, self.channel), self.alloc(copies, self.channel)
    row = self.control_of(
      self.channel, "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN",
      "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS",
    )  # fmt: skip
    self.token = row["workSubmitToken"]
    self.register_channel()
    self.schedule()
    self.pushbuffer, self.written = self.host(1 << 16), 0
    self.fence = self.area + 0x3000
    self.set(COMPUTE, 0, compute)
    self.set(COPIES, 0, copies)
    self.windows()

  def register_channel(self) -> None:
    room = self.reserve(1 << 20)
    self.uvm("REGISTER_CHANNEL", uuid="gpuUuid", rmCtrlFd=self.control, hClient=self.root, hChannel=self.channel,
             base=room, length=1 << 20)  # fmt: skip

  def schedule(self) -> None:
    self.control_of(self.group, "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", bEnable=1)

  def windows(self) -> None:
    for name, address in (("SHARED", SHARED_WINDOW), ("LOCAL", LOCAL_WINDOW)):
      self.method(COMPUTE, f"SET_SHADER_{name}_MEMORY_WINDOW_A", address >> 32, address & 0xFFFFFFFF)

  # *** memory ***

  def reserve(self, nbytes: int) -> int:
    address = self.next
    self.next += -(-nbytes // (2 << 20)) * (2 << 20)
    return self.model.reserve(-(-nbytes // 65536) * 65536, address)

  def memory(self, nbytes: int, local: bool) -> int:
    attr = (1 << 27 | 0 << 25) if local else 1 << 25
    return self.alloc(0x40 if local else 0x3E, self.device, "NV_MEMORY_ALLOCATION_PARAMS", size=nbytes, attr=attr)

  def host(self, nbytes: int) -> int:
    """Memory that host and GPU see."""
    return self.block(nbytes, False)

  def local(self, nbytes: int) -> int:
    """Memory of the GPU."""
    return self.block(nbytes, True)

  def block(self, nbytes: int, local: bool) -> int:
    nbytes = -(-nbytes // 65536) * 65536
    address, memory = self.reserve(nbytes), self.memory(nbytes, local)
    if not local:
      self.map_host(memory, nbytes, "/dev/nvidiactl", address)
    self.uvm("CREATE_EXTERNAL_RANGE", base=address, length=nbytes)
    self.map_gpu(memory, address, nbytes)
    self.blocks[address] = memory, nbytes, local
    return address

  def map_gpu(
    self, memory: int, address: int, nbytes: int, kind: int = 0, offset: int = 0, uuid: bytes = b"", count: int = 1,
    **attributes: int,
  ) -> None:  # fmt: skip
    row, record = made("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS", base=address, length=nbytes, offset=offset,
                       gpuAttributesCount=count, rmCtrlFd=self.control, hClient=self.root, hMemory=memory)  # fmt: skip
    given = Record("UvmGpuMappingAttributes", record.at("perGpuAttributes"))
    ctypes.memmove(given.at("gpuUuid"), uuid or self.gpu.uuid, 16)
    for name, value in {"gpuMappingType": kind, **attributes}.items():
      given[name] = value
    self.model.ioctl(self.uvm_fd, CONSTANTS["UVM_MAP_EXTERNAL_ALLOCATION"], row)
    self.check(record["rmStatus"])

  def map_host(self, memory: int, nbytes: int, path: str, address: int = 0) -> int:
    fd = self.model.open(path)
    try:
      structure, record = made("nv_ioctl_nvos33_parameters_with_fd", fd=fd)
      inner = Record("NVOS33_PARAMETERS", record.at("params"))
      inner["hClient"], inner["hDevice"], inner["hMemory"], inner["length"] = self.root, self.device, memory, nbytes
      self.send("RM_MAP_MEMORY", structure)
      self.check(inner["status"])
      return self.model.map(fd, nbytes, 0, address)
    finally:
      self.model.close(fd)

  def release(self, address: int) -> None:
    memory, nbytes, local = self.blocks.pop(address)
    self.uvm("FREE", base=address)
    self.free_handle(memory)
    self.model.unmap(address, nbytes)

  # *** work ***

  def method(self, subchannel: int, name: str, *data: int) -> None:
    """A method, and those that follow it."""
    classes = self.chip.classes
    of = {COMPUTE: classes[2], COPIES: classes[3], 0: classes[1]}[subchannel]
    place = next(place for place, (other, _) in methods(of).items() if other == name)
    self.set(subchannel, place, *data)

  def set(self, subchannel: int, place: int, *data: int) -> None:
    self.words += [1 << 29 | len(data) << 16 | subchannel << 13 | place >> 2, *data]

  def signal(self, wfi: bool = True, stamped: bool = True, wide: bool = True) -> int:
    """The channel's own semaphore; its value."""
    self.timeline += 1
    self.semaphore(self.fence, self.timeline, 1 | wfi << 20 | wide << 24 | stamped << 25)
    return self.timeline

  def semaphore(self, address: int, payload: int, how: int) -> None:
    self.method(0, "SEM_ADDR_LO", address & 0xFFFFFFFF, address >> 32, payload & 0xFFFFFFFF, payload >> 32, how)

  def submit(self, ring: bool = True) -> None:
    """What was written since, as one entry."""
    data = struct.pack(f"<{len(self.words)}I", *self.words)
    if self.written + len(data) > 1 << 16:
      self.written = 0
    place = self.pushbuffer + self.written
    ctypes.memmove(place, data, len(data))
    self.written += len(data)
    self.entry(place, len(self.words))
    self.words = []
    if ring:
      self.ring()

  def entry(self, place: int, words: int, more: int = 0) -> None:
    value = place | words << 42 | more
    ctypes.c_uint64.from_address(self.area + 8 * (self.put % ENTRIES)).value = value
    self.put += 1

  def ring(self, token: int | None = None) -> None:
    ctypes.c_uint32.from_address(self.userd + 0x8C).value = self.put % ENTRIES
    self.model.ring(self.doorbells + 0x90, self.token if token is None else token)

  def reached(self) -> int:
    return int(ctypes.c_uint64.from_address(self.fence).value)

  def wait(self, turns: int = 50) -> bool:
    """Until all is done; whether it is."""
    for _ in range(turns):
      if self.reached() >= self.timeline:
        return True
      self.model.pause(1e-4)
    return False

  def finish(self) -> None:
    self.signal()
    self.submit()
    assert self.wait(), (self.model.misuse, self.model.wrong)

  def error(self) -> tuple[int, int]:
    """The notifier: status and Xid."""
    data = ctypes.string_at(self.notifier, 16)
    return int.from_bytes(data[14:], "little"), int.from_bytes(data[8:12], "little")

  def transfer(self, target: int, source: int, nbytes: int, launch: int = 0x186, **more: int) -> None:
    """A copy: pitch memory, not pipelined, flushed."""
    self.method(COPIES, "OFFSET_IN_UPPER", source >> 32, source & 0xFFFFFFFF, target >> 32, target & 0xFFFFFFFF)
    self.method(COPIES, "LINE_LENGTH_IN", nbytes)
    for name, value in more.items():
      self.method(COPIES, name, value)
    self.method(COPIES, "LAUNCH_DMA", launch)

  # *** launches ***

  def program(self, ptx: str) -> tuple[int, Program]:
    """Code in memory of the GPU that the host sees too."""
    _, found, _ = programs(ptx.format(arch=self.chip.arch), self.chip.arch)[0]
    image = found.image()
    place = self.host(len(image))
    ctypes.memmove(place, image, len(image))
    return place, found

  def constants(self, found: Program, *words: int) -> int:
    """Constant bank 0 with a kernel's parameters."""
    place = self.host(4096)
    self.fill(place, found, *words)
    return place

  def fill(self, place: int, found: Program, *words: int) -> None:
    for at, value in zip(self.chip.windows, (SHARED_WINDOW, LOCAL_WINDOW)):
      ctypes.c_uint64.from_address(place + at).value = value
    for n, word in enumerate(words):
      ctypes.c_uint64.from_address(place + found.parameters + 8 * n).value = word

  def fields(self, code: int, found: Program, bank: int, grid: int = 1, layout: str = "") -> dict[str, int]:
    """What a QMD of the newest version, or of one by name, says; a name may have an index, `NAME:2`."""
    layout = layout or layouts(self.chip.classes[2])[0]
    places, (_, major, minor) = TABLES["qmd"][layout], layout.split("_")
    size = found.parameters + found.parameter_bytes
    size = -(-size // 16) * 16
    total = -(-found.shared // 128) * 128
    config = next(n for n in self.chip.configurations if n * 1024 >= total) // 4 + 1
    wanted = {
      "QMD_MAJOR_VERSION": int(major), "QMD_VERSION": int(minor), "QMD_MINOR_VERSION": int(minor), "QMD_TYPE": 2,
      "API_VISIBLE_CALL_LIMIT": 1, "CWD_MEMBAR_TYPE": 1, "GRID_WIDTH": grid, "GRID_HEIGHT": 1, "GRID_DEPTH": 1,
      "CTA_RASTER_WIDTH": grid, "CTA_RASTER_HEIGHT": 1, "CTA_RASTER_DEPTH": 1, "CTA_THREAD_DIMENSION0": 32,
      "CTA_THREAD_DIMENSION1": 1, "CTA_THREAD_DIMENSION2": 1, "REGISTER_COUNT": found.registers,
      "REGISTER_COUNT_V": found.registers, "BARRIER_COUNT": found.barriers, "SHARED_MEMORY_SIZE": total,
      "SHARED_MEMORY_SIZE_SHIFTED7": total >> 7, "MIN_SM_CONFIG_SHARED_MEM_SIZE": config,
      "MAX_SM_CONFIG_SHARED_MEM_SIZE": self.chip.configurations[-1] // 4 + 1,
      "TARGET_SM_CONFIG_SHARED_MEM_SIZE": config,
      "PROGRAM_ADDRESS_LOWER": code & 0xFFFFFFFF, "PROGRAM_ADDRESS_UPPER": code >> 32,
      "PROGRAM_ADDRESS_LOWER_SHIFTED4": code >> 4 & 0xFFFFFFFF, "PROGRAM_ADDRESS_UPPER_SHIFTED4": code >> 36,
      "CONSTANT_BUFFER_VALID": 1, "CONSTANT_BUFFER_ADDR_LOWER": bank & 0xFFFFFFFF,
      "CONSTANT_BUFFER_ADDR_UPPER": bank >> 32, "CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6": bank >> 6 & 0xFFFFFFFF,
      "CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6": bank >> 38, "CONSTANT_BUFFER_SIZE_SHIFTED4": size >> 4,
      "INVALIDATE_SHADER_CONSTANT_CACHE": 1, "INVALIDATE_SHADER_DATA_CACHE": 1, "INVALIDATE_INSTRUCTION_CACHE": 1,
    }  # fmt: skip
    return {name: value for name, value in wanted.items() if name in places}

  @staticmethod
  def bank_of(values: dict[str, int]) -> int:
    """The address of constant bank 0 in a QMD."""
    stem, end, shift = "CONSTANT_BUFFER_ADDR", "", 0
    if f"{stem}_LOWER_SHIFTED6" in values:
      end, shift = "_SHIFTED6", 6
    return (values.get(f"{stem}_UPPER{end}", 0) << 32 | values.get(f"{stem}_LOWER{end}", 0)) << shift

  def qmd(self, values: dict[str, int], layout: str = "", place: int = 0) -> int:
    """A QMD in memory; where it is. Its sizes are in constant bank 0, too, if that is memory."""
    layout = layout or layouts(self.chip.classes[2])[0]
    number, bank = 0, self.bank_of(values)
    if any(begin <= bank < begin + nbytes and not local for begin, (_, nbytes, local) in self.blocks.items()):
      grid = "GRID" if "GRID_WIDTH" in values else "CTA_RASTER"
      block = [values[f"CTA_THREAD_DIMENSION{axis}"] for axis in range(3)]
      blocks = [values[f"{grid}_{axis}"] for axis in ("WIDTH", "HEIGHT", "DEPTH")]
      for at, sizes in zip(self.chip.sizes, (block, blocks)):
        ctypes.memmove(bank + at, struct.pack("<3I", *sizes), 12)
    for name, value in values.items():
      field, _, index = name.partition(":")
      number = bits_of(number, TABLES["qmd"][layout][field], value, int(index or 0))
    place = place or self.host(4096)
    ctypes.memmove(place, number.to_bytes(qmd_bytes(layout), "little"), qmd_bytes(layout))
    return place

  def launch(self, qmd: int) -> None:
    """Schedule it."""
    later = self.chip.classes[2] != "c5c0"
    self.method(COMPUTE, "SEND_PCAS_A", qmd >> 8)
    self.method(COMPUTE, "SEND_SIGNALING_PCAS2_B" if later else "SEND_SIGNALING_PCAS_B", 9 if later else 2)

  def run(self, ptx: str, *words: int, grid: int = 1, **changes: int) -> None:
    """A kernel with its own code, constants and QMD; waits for it."""
    code, found = self.program(ptx)
    values = self.fields(code, found, self.constants(found, *words), grid)
    self.launch(self.qmd({**values, **{name.replace("__", ":"): value for name, value in changes.items()}}))
    self.finish()

  # *** the end ***

  def close(self) -> None:
    """All of it goes."""
    if hasattr(self, "channel"):
      self.uvm("UNREGISTER_CHANNEL", hClient=self.root, hChannel=self.channel)
      self.free_handle(self.group)
    for address in list(self.blocks):
      self.release(address)
    if hasattr(self, "doorbells"):
      self.model.unmap(self.doorbells, 0x10000)
      self.uvm("UNREGISTER_GPU_VASPACE", uuid="gpuUuid")
      self.uvm("UNREGISTER_GPU", uuid="gpu_uuid")
    self.model.close(self.card)
    self.free_handle(self.root)
    if self.own_uvm:
      self.model.close(self.uvm_fd)
    self.model.close(self.control)
    for base, nbytes in list(self.model.store.reserved.items()):
      if self.number == (base - LOW) >> 36:
        self.model.unmap(base, nbytes)


def words_at(address: int, count: int) -> list[int]:
  """Words of 32 bits that the host sees."""
  return list((ctypes.c_uint32 * count).from_address(address))


def fill_words(address: int, *words: int) -> None:
  """Write some."""
  (ctypes.c_uint32 * len(words)).from_address(address)[:] = list(words)
