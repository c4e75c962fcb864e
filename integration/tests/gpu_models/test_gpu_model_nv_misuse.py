"""What NVIDIA's hardware does not forgive, the model of it finds: misuse, faults and mutations of a right program."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
from nv_client import COMPUTE, COPIES, DOUBLE, EXCHANGE, LOW, Client, fill_words, words_at
from nv_machines import client, machine, machines_end

from gpu_model.nv import cubin
from gpu_model.nv.errors import Xid
from gpu_model.nv.gpus import CHIPS
from gpu_model.nv.tables import Record, layouts
from gpu_model.toolchain import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")


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


def _other_sizes(client: Client) -> None:
  """The sizes in the constants are those of a launch before."""
  code, found = client.program(DOUBLE)
  bank = client.constants(found)
  qmd = client.qmd(client.fields(code, found, bank))
  ctypes.c_uint32.from_address(bank + client.chip.sizes[1]).value = 7
  client.launch(qmd)


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
  "sizes of another launch": (_other_sizes, "sizes (7, 1, 1), and the launch (1, 1, 1)"),
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
