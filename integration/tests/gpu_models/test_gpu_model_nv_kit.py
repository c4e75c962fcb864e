"""The plugin NV on the model of NVIDIA's driver: a part of the conformance kit, and mutations of the plugin, each of
which the model or a result shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest
from gpu_model_devices import conformance, contents, filled, sizes

from gpu_model.nv.gpus import CHIPS
from gpu_model.nv.model import Model
from gpu_model.nv_backend import ModelBackend
from gpu_model.toolchain import compiler
from tiny_runtime import Binary, GraphCopy, GraphKernel
from tiny_runtime.hcq import Kernel
from tiny_runtime_nv.kernel_driver import commands, kernels
from tiny_runtime_nv.kernel_driver.channel import Channel
from tiny_runtime_nv.kernel_driver.kernels import NVKernel
from tiny_runtime_nv.kernel_driver.memory import Memories
from tiny_runtime_nv.kernel_driver.qmd import QMD
from tiny_uop import Context, KernelInfo, UOp, dtypes

pytestmark = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")

CASES = "(level0 or level1 or level2) and not deterministic and not depends_on_the_arch"  # these start processes
EVERY = "150"
F = dtypes.float32
N = 128
ALL = [pytest.param(name, marks=[] if name == "GH100" else pytest.mark.nightly) for name in CHIPS]


@pytest.mark.parametrize("chip", ALL)
def test_conformance(chip: str) -> None:
  """`hatch run nv-model` is all of it."""
  conformance("nv_backend", CASES, "--every", EVERY, name=chip, QUEUE_TIMEOUT="60")


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
def test_conformance_of_all_levels(chip: str) -> None:
  cases = "not many_programs and not nothing_is_kept"  # the model keeps more than a driver does, and is slow
  conformance("nv_backend", cases, "--every", "5", name=chip, QUEUE_TIMEOUT="60")


@cache
def added(arch: str) -> Binary:
  """p0[i] = p1[i] + p2[i]."""
  i = UOp.range(N, 0)
  total = UOp.param(1, F.ptr(N)).index(i).load() + UOp.param(2, F.ptr(N)).index(i).load()
  done = UOp.param(0, F.ptr(N)).index(i).store(total).end(i)
  backend = ModelBackend()
  try:
    return backend.compiler(arch).compile(UOp.sink(done, arg=KernelInfo("added")))
  finally:
    backend.model.end()


def result(chip: str) -> str:
  """What is wrong after a row of launches that need each other's results, copies between them, and the end of it all;
  nothing if all is well."""
  backend = ModelBackend(chip)
  model = backend.model
  try:
    with Context(QUEUE_TIMEOUT=1):
      device = backend.open(0)
      binary = added(CHIPS[chip].arch)
      program, numbers = device.load(binary), np.arange(N, dtype=np.float32)
      memories = [filled(device, numbers * scale) for scale in (1, 0, 0)]
      adds = [GraphKernel(program, tuple((at, 0) for at in places), (), *sizes(binary)[:2])
              for places in ((1, 2, 2), (2, 1, 0), (0, 1, 1))]  # fmt: skip
      copies = GraphCopy((2, 0), (0, 0), 4 * N), GraphCopy((1, 0), (2, 0), 4 * N)
      graph = device.make_graph([copies[0], *adds[:2], copies[1], adds[2]], memories)
      for turn in range(4):
        # the same words are submitted again, with another memory among the arguments
        changes = [] if turn != 2 else [(1, filled(device, numbers))]
        device.run_graph(graph, changes, (), False)
        numbers = numbers * 6
        if not np.array_equal(contents(device, memories[0]), numbers):
          return f"wrong numbers in turn {turn}"
        device.launch(program, [(memories[1], 0), (memories[0], 0), (memories[0], 0)], [], *sizes(binary))
      del graph, program
      device.close()
    return "; ".join([*model.misuse, *model.refused, *(text for _, text in model.xids)])
  except Exception as error:
    return f"{type(error).__name__}: {error}; {model.misuse}"
  finally:
    model.end()


@pytest.mark.parametrize("chip", ALL)
def test_unchanged_it_is_well(chip: str) -> None:
  assert result(chip) == ""


# *** mutations of the plugin ***

Patch = Callable[[pytest.MonkeyPatch], None]


def _qmd(change: Callable[[QMD], None]) -> Patch:
  """A change of each QMD, when it is complete."""

  def apply(patch: pytest.MonkeyPatch) -> None:
    real = NVKernel.launch

    def launch(self: NVKernel, *given: Any) -> bytes:
      data = real(self, *given)
      qmd = QMD(next(iter(self.made.values())).layout, int.from_bytes(data, "little"))
      change(qmd)
      return bytes(qmd)

    patch.setattr(NVKernel, "launch", launch)

  return apply


def _swap(one: str, other: str) -> Patch:
  """Two fields of a QMD, each with the other's value."""

  def change(qmd: QMD) -> None:
    qmd[one], qmd[other] = qmd[other], qmd[one]

  return _qmd(change)


def _zero(*fields: str) -> Patch:
  def change(qmd: QMD) -> None:
    for field in fields:
      qmd[field] = 0

  return _qmd(change)


def _words(name: str, change: Callable[[list[int]], list[int]], *modules: Any) -> Patch:
  """A change of the words that a function of `commands` gives."""

  def apply(patch: pytest.MonkeyPatch) -> None:
    real = getattr(commands, name)
    for module in modules or (commands,):
      patch.setattr(module, name, lambda *given, **more: change(real(*given, **more)), raising=False)

  return apply


def _payload(words: list[int]) -> list[int]:
  """Its payload is one more: the third word after the header."""
  return [*words[:3], words[3] + 1, *words[4:]]


def _without(name: str) -> Patch:
  """A method is left out."""

  def apply(patch: pytest.MonkeyPatch) -> None:
    real = commands.methods
    patch.setattr(commands, "methods", lambda sub, method, *data: [] if method == name else real(sub, method, *data))

  return apply


def _token(patch: pytest.MonkeyPatch) -> None:
  real = Channel._create

  def create(self: Channel) -> None:
    real(self)
    self.token ^= 1

  patch.setattr(Channel, "_create", create)


def _unflushed(patch: pytest.MonkeyPatch) -> None:
  for name in ("copy", "copied"):
    _words(name, lambda words: [*words[:-1], words[-1] & ~4])(patch)


def _windows(patch: pytest.MonkeyPatch) -> None:
  real = kernels.Windows
  made = NVKernel.of.__func__  # type: ignore[attr-defined]

  def of(cls: type[NVKernel], binary: Any, arch: Any, generation: Any, windows: Any) -> NVKernel:
    kernel: NVKernel = made(cls, binary, arch, generation, real(windows.local, windows.shared))
    return kernel

  patch.setattr(NVKernel, "of", classmethod(of))


def _sizes(patch: pytest.MonkeyPatch) -> None:
  patch.setattr(NVKernel, "arguments", Kernel.arguments)


def _subchannel(patch: pytest.MonkeyPatch) -> None:
  for module in (commands, __import__("tiny_runtime_nv.kernel_driver.hardware", fromlist=["COPY"])):
    patch.setattr(module, "COPY", 2)


def _flipped(patch: pytest.MonkeyPatch) -> None:
  real = Model.__init__

  def init(self: Model, *given: Any, **more: Any) -> None:
    real(self, *given, **more)
    self.flip_payload = 1

  patch.setattr(Model, "__init__", init)


def _high(patch: pytest.MonkeyPatch) -> None:
  """The host's memory is where addresses have bits from 40 on: at places of its own, as what bits the system's would
  have is chance."""
  places = count(0x3F00_0000_0000, 1 << 32)
  patch.setattr(Memories, "_low", lambda self, size: self.system.reserve(size, next(places)))


def _early(patch: pytest.MonkeyPatch) -> None:
  """Submissions are done when nobody has waited for them."""
  patch.setattr(Channel, "completed", lambda self: self.submitted - self.base)


MUTATIONS: dict[str, Patch] = {
  "grid's width and height": _swap("GRID_WIDTH", "GRID_HEIGHT"),
  "registers and barriers": _swap("REGISTER_COUNT", "BARRIER_COUNT"),
  "threads along x and y": _swap("CTA_THREAD_DIMENSION0", "CTA_THREAD_DIMENSION1"),
  "halves of the program's address": _swap("PROGRAM_ADDRESS_LOWER", "PROGRAM_ADDRESS_UPPER"),
  "most and wanted shared memory": _swap("MAX_SM_CONFIG_SHARED_MEM_SIZE", "TARGET_SM_CONFIG_SHARED_MEM_SIZE"),
  "versions": _swap("QMD_MAJOR_VERSION", "QMD_MINOR_VERSION"),
  "no constant bank": _zero("CONSTANT_BUFFER_VALID"),
  "constants in a cache": _zero("CONSTANT_BUFFER_INVALIDATE", "INVALIDATE_SHADER_CONSTANT_CACHE"),
  "data in a cache": _zero("INVALIDATE_SHADER_DATA_CACHE"),
  "results in a cache": _zero("CWD_MEMBAR_TYPE"),
  "no type": _zero("QMD_TYPE"),
  "payload of an acquire": _words("acquire", _payload),
  "payload of a copy's semaphore": _words("copied", _payload),
  "payload of a report": _words("report", _payload),
  "payload of the order's end": _words("release", _payload),
  "payload of all semaphores": _flipped,
  "no wait between launches": _without("WAIT_FOR_IDLE"),
  "no wait between engines": _words("acquire", lambda words: []),
  "nobody waits": _early,
  "no flush of copies": _unflushed,
  "another token": _token,
  "windows the other way round": _windows,
  "another subchannel": _subchannel,
  "no sizes for those who ask": _sizes,
}


@pytest.fixture
def changed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  with monkeypatch.context() as patch:
    MUTATIONS[request.param](patch)
    yield


@pytest.mark.parametrize("changed", MUTATIONS, indirect=True)
def test_mutations_of_the_plugin_show(changed: None) -> None:
  assert result("GH100") != ""


@pytest.mark.parametrize("chip", ["TU102", "GA102", "AD102"])
def test_addresses_of_more_than_40_bits_show(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
  _high(monkeypatch)
  assert "nothing is known of" in result(chip) or "40 bits" in result(chip)
