"""VIZ=-2 on the models of AMD's GPUs: registers and packets that start and stop recording, what comes back, and that it
is what the emulator executed."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from asm_kernels import N, counting, doubled
from gpu_model_devices import contents, filled
from gpu_model_kernels import SMALL

from gpu_model.as_device import as_device
from gpu_model.kfd_backend import ModelBackend
from gpu_model.kfd_recording import registers as of_headers
from gpu_model.toolchain import compiler
from tiny_asm_amd.traces.counters import Counter, totals
from tiny_asm_amd.traces.packets import decode
from tiny_asm_amd.traces.program import Program, class_of
from tiny_asm_amd.traces.waves import Wave, waves
from tiny_runtime import Binary, DeviceLost
from tiny_runtime.contract import Recording
from tiny_runtime.hcq import QueueDevice
from tiny_runtime.profiling.recording import profile
from tiny_runtime_amd import AMD, pm4
from tiny_runtime_amd.hardware import AMDHardware
from tiny_runtime_amd.kfd import KFDError
from tiny_runtime_amd.recorder import Recorder
from tiny_runtime_amd.registers import registers
from tiny_tensor import Tensor, TinyJit
from tiny_uop import Context
from tiny_viz.__main__ import main

CHIPS = ["gfx1100", "gfx1201", "gfx942", "gfx950"]

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[ModelBackend, QueueDevice]]:
  backend = ModelBackend(gpu=request.param, machine_code=True)
  device = backend.open(0)
  yield backend, device
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


def launch(device: QueueDevice, binary: Binary) -> Recording:
  """Record a kernel, on buffers of some numbers."""
  rng = np.random.default_rng(0)
  buffers = [
    (filled(device, (rng.standard_normal(info.size) * 4).astype(info.dtype.name)), 0) for info in binary.params
  ]
  global_size, local_size, _, _ = binary.sizes({})
  return device.launch_recorded(device.load(binary), buffers, [], global_size, local_size)


def traced(recording: Recording) -> list[Wave]:
  program = Program.of(recording.code, recording.arch, recording.kernel)
  return [wave for _, data in recording.traces for wave in waves(decode(data), program)]


def counted(recording: Recording) -> dict[str, int]:
  return totals([Counter(name, at, parts, of) for name, of, at, parts in recording.layout], recording.counters)


def executed(backend: ModelBackend, recording: Recording) -> list[list[int]]:
  """The addresses that each wave executed, as the emulator tells, without instructions that no trace has."""
  program = Program.of(recording.code, recording.arch, recording.kernel)
  entry = program.entry
  found = []
  for run in backend.model.processor.steps:
    kinds = [(entry + byte, class_of(made)) for byte in run.steps if (made := program.at(entry + byte)) is not None]
    cdna = recording.arch.startswith("gfx9")
    found.append([at for at, kind in kinds if kind and (cdna or kind != "end")])
  return found


# *** what is recorded ***


@pytest.mark.parametrize("opened", CHIPS, indirect=True)
@pytest.mark.parametrize("name", ["softmax", pytest.param("total", marks=pytest.mark.nightly), "gelu"])
def test_what_is_recorded_is_what_was_executed(opened: tuple[ModelBackend, QueueDevice], name: str) -> None:
  """Loops, barriers and branches: each wave whose instructions are told has those that it executed, in order."""
  backend, device = opened
  recording = launch(device, AMD.compiler(device.info.arch).compile(SMALL[name]()))
  found, ran, counts = traced(recording), executed(backend, recording), counted(recording)
  assert len(found) == len(ran) == counts["SQ_WAVES"]
  assert [wave.problem for wave in found if wave.problem] == []
  with_steps = [[step.address for step in wave.steps] for wave in found if wave.steps]
  assert with_steps and all(steps in ran for steps in with_steps)
  assert all(wave.end is not None and wave.start < wave.end for wave in found)
  program = Program.of(recording.code, recording.arch, recording.kernel)
  kinds = [class_of(made) for steps in ran for at in steps if (made := program.at(at)) is not None]
  for counter, kind in (("VALU", "vector"), ("SALU", "scalar"), ("SMEM", "scalar memory"), ("LDS", "local memory")):
    assert counts[f"SQ_INSTS_{counter}"] == kinds.count(kind), counter


@pytest.mark.parametrize("opened", ["gfx1100"], indirect=True)
def test_a_kernel_by_hand(opened: tuple[ModelBackend, QueueDevice]) -> None:
  """Its results are those without recording, its trace is its text, and it may be recorded again."""
  _, device = opened
  binary = doubled()
  program, source, out = device.load(binary), filled(device, np.arange(N, dtype=np.float32)), device.alloc(4 * N)
  for _ in range(2):
    recording = device.launch_recorded(program, [(out, 0), (source, 0)], [], (N // 32, 1, 1), (32, 1, 1))
    assert (contents(device, out) == 2 * np.arange(N)).all() and recording.seconds > 0
    waves_found = traced(recording)
    assert [len(wave.steps) for wave in waves_found] == [8, 8] and counted(recording)["SQ_WAVES"] == 2
    for wave in waves_found:
      assert [str(step.instruction) for step in wave.steps] == binary.source.splitlines()[:-1]
      waited = {str(row.step.instruction): row.waiting for row in wave.rows()}
      assert waited["s_waitcnt vmcnt(0)"] > waited["s_waitcnt lgkmcnt(0)"] > 100 > waited["v_add_f32_e32 v1, v1, v1"]
  assert device.launch_recorded(program, [(out, 0), (source, 0)], [], (0, 1, 1), (32, 1, 1)).traces == ()


@pytest.mark.parametrize("opened", ["gfx1100", "gfx942"], indirect=True)
def test_a_trace_that_is_longer_than_its_memory(
  opened: tuple[ModelBackend, QueueDevice], capsys: pytest.CaptureFixture[str]
) -> None:
  """It is there as far as there was room, and who records is told."""
  _, device = opened
  with Context(TRACE_KB=1):  # of whole pages
    recording = launch(device, counting(device.info.arch, 2000))
  assert "shader engine 0, ends after 4 KiB: TRACE_KB, now 1, gives it more" in capsys.readouterr().err
  assert {len(data) for engine, data in recording.traces if engine == 0} == {4096}
  wave = traced(recording)[0]
  assert wave.end is None and not wave.problem and 200 < len(wave.steps) < 6000
  taken = [step for step in wave.steps if step.instruction.mnemonic == "s_cbranch_scc1"]
  assert len(taken) > 60 and len({step.address for step in taken}) == 1, "it is followed"


# *** the whole way ***


@pytest.fixture
def amd() -> Iterator[ModelBackend]:
  """AMD is a device of the model."""
  backend = ModelBackend(gpu="gfx1201", machine_code=True)
  with as_device(backend, "AMD"):
    yield backend
  assert backend.model.misuse == [] and backend.model.left() == []


def test_viz_records_tensors(amd: ModelBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  """`VIZ=-2`: each launch, those of a captured graph too, has counters and waves in the trace that `tiny_viz` shows."""
  step = TinyJit(lambda x: ((x * 2 + 1).contiguous() - x).realize())
  with profile() as found, Context(VIZ=-2, VIZ_FILE=str(tmp_path / "all.jsonl.gz")):
    for n in range(3):
      assert step(Tensor([n, 4.0, 5.0], device="AMD").realize()).tolist() == [n + 1, 5, 6]
  path = tmp_path / "run.jsonl"
  found.save(path)
  kernels = [record for record in found.records if record.kind == "kernel"]
  assert len(kernels) == 4 and all(record.recording for record in kernels)
  assert not [record for record in found.records if record.kind == "graph"]
  assert main(["sqtt", str(path)]) == 0
  shown = capsys.readouterr().out
  assert shown.count("SQ_WAVES") == 4 and "global_store_b" in shown and "with instructions" in shown
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  assert len([line for line in lines if "program" in line and "code" in line]) == 2, "of two kernels"
  found.csv(tmp_path / "run.csv")
  assert "recording" not in (tmp_path / "run.csv").read_text().splitlines()[0]


def test_what_an_owner_of_a_card_runs(
  amd: ModelBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
  """The part `recording` of `integration/device`."""
  monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "device"))
  import recording

  with Context(DEVICE="AMD"):
    assert recording.main(tmp_path) == 0
  said = capsys.readouterr().out
  assert "the results are the same" in said and "traced from the first instruction to the last" in said


# *** what the model refuses ***

Packets = list[list[int]]


def taken_apart(words: list[int]) -> Packets:
  found, at = [], 0
  while at < len(words):
    size = (words[at] >> 16 & 0x3FFF) + 2
    found.append(words[at : at + size])
    at += size
  return found


def is_write(packet: list[int], chip: str, name: str, value: int | None = None) -> bool:
  address = registers(int(chip[3:-2])).get(name)
  first = pm4.UCONFIG if packet[0] >> 8 & 255 == pm4.SET_UCONFIG_REG else pm4.SH
  written = packet[0] >> 8 & 255 in (pm4.SET_UCONFIG_REG, pm4.SET_SH_REG)
  return written and address is not None and packet[1] + first == address.address and value in (None, packet[2])


def without(chip: str, name: str, value: int | None = None) -> Callable[[Packets], Packets]:
  return lambda packets: [packet for packet in packets if not is_write(packet, chip, name, value)]


def without_kind(kind: int, *body: int) -> Callable[[Packets], Packets]:
  return lambda packets: [p for p in packets if not (p[0] >> 8 & 255 == kind and tuple(p[1 : 1 + len(body)]) == body)]


def changed(chip: str, name: str, change: Callable[[int], int]) -> Callable[[Packets], Packets]:
  return lambda packets: [[*p[:2], change(p[2])] if is_write(p, chip, name) else p for p in packets]


def copies(change: Callable[[list[int]], list[int]]) -> Callable[[Packets], Packets]:
  return lambda packets: [change(packet) if packet[0] >> 8 & 255 == pm4.COPY_DATA else packet for packet in packets]


def swapped(chip: str, one: str, two: str) -> Callable[[Packets], Packets]:
  """Writes of two registers that follow each other, the other way round."""

  def change(packets: Packets) -> Packets:
    for n, packet in enumerate(packets[:-1]):
      if is_write(packet, chip, one) and is_write(packets[n + 1], chip, two):
        packets[n : n + 2] = packets[n + 1], packet
    return packets

  return change


R3, R4, C3 = "gfx1100", "gfx1201", "gfx942"
TRACE = "SQ_THREAD_TRACE_"
STARTING: list[tuple[str, Callable[[Packets], Packets], str]] = [
  (R3, swapped(R3, TRACE + "BUF0_SIZE", TRACE + "BUF0_BASE"), "set up in the order"),
  (R4, swapped(R4, TRACE + "BUF0_BASE_LO", TRACE + "BUF0_SIZE"), ""),
  (R4, swapped(R4, TRACE + "BUF0_SIZE", TRACE + "BUF0_BASE_LO"), "set up in the order"),
  (R3, without(R3, TRACE + "MASK"), "set up in the order"),
  (R3, changed(R3, TRACE + "BUF0_BASE", lambda page: page + (1 << 20)), "in no buffer"),
  (R3, changed(R3, TRACE + "BUF0_SIZE", lambda word: word & 15), "no bytes"),
  (R3, changed(R3, TRACE + "BUF0_SIZE", lambda word: word + (1 << 8)), "two shader engines|in no buffer"),
  (R3, changed(R3, TRACE + "MASK", lambda word: word | 1 << 18), "has no bits"),
  (R3, lambda packets: packets[:-2] + packets[-1:], "registers are those of a part of the GPU"),
  (R3, lambda packets: packets[:-1], "compute is not traced"),
  (R3, without(R3, TRACE + "CTRL"), "no trace is on"),
  (R3, without(R3, "SPI_CONFIG_CNTL"), "tells it of no events"),
  (R3, changed(R3, "SPI_CONFIG_CNTL", lambda word: word & 3 << 24), "but for events"),
  (R3, without_kind(pm4.EVENT_WRITE, pm4.COUNTERS_START), "no event started them"),
  (R3, lambda packets: [[3 << 30 | 0x12 << 8, 0], *packets], "a packet of kind 0x12"),
  (R3, lambda packets: [pm4.write(0xC300, 0), *packets], "there is no register 0xc300"),
  (C3, without_kind(pm4.PRED_EXEC), "while the trace is on"),
]
STOPPING: list[tuple[str, Callable[[Packets], Packets], str]] = [
  (R3, without_kind(pm4.EVENT_WRITE, pm4.CS_PARTIAL_FLUSH | 4 << 8), "before waves were waited for"),
  (R3, without_kind(pm4.EVENT_WRITE, pm4.COUNTERS_SAMPLE), "were not sampled"),
  (R3, without_kind(pm4.EVENT_WRITE, pm4.TRACE_FINISH), "waits for ever"),
  (R3, without_kind(pm4.WAIT_REG_MEM, 4), "switched off before it has written"),
  (R3, without_kind(pm4.WAIT_REG_MEM, 3), "read before the trace is written"),
  (R3, without(R3, TRACE + "CTRL"), "does not cease to be busy"),
  (R3, without(R3, "COMPUTE_THREAD_TRACE_ENABLE"), "while compute is traced"),
  (R3, without(R3, "CP_PERFMON_CNTL", 2 | 1 << 10), "counters run"),
  (R3, without(R3, "GRBM_GFX_INDEX"), "none is chosen|choose"),
  (R3, copies(lambda p: [p[0], p[1] & ~(1 << 20), *p[2:]]), "confirmed"),
  (R3, copies(lambda p: [*p[:4], p[4] ^ 1 << 30, p[5]]), "in no buffer"),
  (C3, without_kind(pm4.WAIT_REG_MEM, 3), "read before the trace is written"),
  (C3, without_kind(pm4.EVENT_WRITE, pm4.TRACE_FINISH), "nobody asked it to finish"),
  (C3, without_kind(pm4.PRED_EXEC), "another die writes there|switched off"),
]  # fmt: skip


def refused(monkeypatch: pytest.MonkeyPatch, method: str, chip: str, change: Callable[[Packets], Packets]) -> str:
  """What the model says to packets that were changed."""
  original: Callable[[Recorder], list[int]] = getattr(Recorder, method)

  def mutant(self: Recorder) -> list[int]:
    words = original(self)
    made = [word for packet in change(taken_apart(words)) for word in packet]
    assert made != words, "the change changes nothing"
    return made

  monkeypatch.setattr(Recorder, method, mutant)
  backend = ModelBackend(gpu=chip, machine_code=True)
  device = backend.open(0)
  assert isinstance(device.hardware, AMDHardware)
  with pytest.raises((DeviceLost, KFDError)):
    launch(device, doubled(chip) if chip == R3 else AMD.compiler(chip).compile(SMALL["gelu"]()))
  device.close()
  return "\n".join(backend.model.misuse)


@pytest.mark.parametrize(("chip", "change", "text"), [row for row in STARTING if row[2]])
def test_a_start_that_is_wrong(
  monkeypatch: pytest.MonkeyPatch, chip: str, change: Callable[[Packets], Packets], text: str
) -> None:
  said = refused(monkeypatch, "_starting", chip, change)
  assert any(part in said for part in text.split("|")), said


@pytest.mark.parametrize(("chip", "change", "text"), STOPPING)
def test_an_end_that_is_wrong(
  monkeypatch: pytest.MonkeyPatch, chip: str, change: Callable[[Packets], Packets], text: str
) -> None:
  said = refused(monkeypatch, "_stopping", chip, change)
  assert any(part in said for part in text.split("|")), said


# *** tables, and what real GPUs were told ***


@pytest.mark.parametrize("major", [9, 11, 12])
def test_registers_are_those_of_linuxs_headers(major: int) -> None:
  theirs = {name: (address, fields) for address, (name, fields) in of_headers(major).items()}
  for name, register in registers(major).items():
    address, fields = theirs[name]
    assert register.address == address, name
    assert {field: register.mask(field) for field in register.fields}.items() <= fields.items(), name
  status = registers(major)["SQ_THREAD_TRACE_STATUS"]
  assert status.field(status.value(FINISH_DONE=5), "FINISH_DONE") == 5
  with pytest.raises(ValueError, match=r"SQ_THREAD_TRACE_STATUS.BUSY has 1 bits: 2 does not fit"):
    status.value(BUSY=2)


@pytest.mark.parametrize("opened", ["gfx1100"], indirect=True)
def test_a_real_gpu_was_told_the_same(opened: tuple[ModelBackend, QueueDevice]) -> None:
  """A recorded trace of a Radeon RX 7900 has the registers that were written while it was on: which parts of the GPU
  were chosen to read counters, that tracing of compute was on, and the event that finishes traces."""
  path = Path(__file__).parents[3] / "packages/tiny-asm-amd/tests/recordings/gfx1100-plus.jsonl.gz"
  lines = [json.loads(line) for line in gzip.open(path, "rt")]
  (data,) = [
    base64.b64decode(line["thread_trace"]) for line in lines if line.get("engine") == 1 and "thread_trace" in line
  ]
  written = [(packet.address >> 4, packet.data) for packet in decode(data).of("REG")]
  index, enable = 0x30800, 0x78 | 2  # bytes; of registers of compute, from 0xB800 on, with a bit of their own
  _, device = opened
  assert isinstance(device.hardware, AMDHardware)
  recorder = device.hardware.recorder
  ours = [p[2] for p in taken_apart(recorder._stopping()) if is_write(p, "gfx1100", "GRBM_GFX_INDEX")]
  # the engine sees a write if it was chosen before that
  seen = [value for before, value in zip([0xE0000000, *ours], ours) if before >> 31 or before >> 16 & 255 == 1]
  theirs = [value for address, value in written if address == index]
  units = [1 << 16 | array << 8 | unit << 2 for array in range(2) for unit in range(4)]
  assert units[1:] + [2 << 16] == seen[1 : len(units) + 1] == theirs[-theirs[::-1].index(0) :][: len(units)]
  caches = [0xA0000000 | n for n in range(32)]
  assert caches[1:] == [value for value in theirs if value in caches][:31] == [v for v in seen if v in caches][1:32]
  assert [value for address, value in written if address == enable][0::1][-1] == 0 and (enable, 1) in written
  assert theirs[0] == recorder_first_select(recorder) and theirs[-1] == 1 << 30, "engines are chosen as here"


def recorder_first_select(recorder: Recorder) -> int:
  """What chooses the second engine before the trace of the next is set up."""
  chosen = [p[2] for p in taken_apart(recorder._starting()) if is_write(p, "gfx1100", "GRBM_GFX_INDEX")]
  return chosen[3]
