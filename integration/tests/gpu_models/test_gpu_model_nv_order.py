"""The model of NVIDIA's queues: the ring, what is not waited for, and faults that tests ask for."""

from __future__ import annotations

import ctypes
import errno
import subprocess
import sys
from pathlib import Path

import pytest
from nv_client import COMPUTE, COPIES, DOUBLE, ENTRIES, LOW, Client, Refused, fill_words, made, words_at
from nv_machines import MACHINES, client, machine, machines_end

from gpu_model.nv.errors import Status, Xid
from gpu_model.nv.gpus import VERSIONS
from gpu_model.nv.model import Model
from gpu_model.nv.tables import CONSTANTS, Record
from gpu_model.toolchain import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")


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
  command = [sys.executable, "-c", code, str(here), str(here.parents[1] / "model")]
  done = subprocess.run(command, capture_output=True, text=True, timeout=60)
  assert done.stdout == "through the mapping\n" and done.returncode < 0
