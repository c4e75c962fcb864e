"""Several devices in one program: tensors that move between them, threads that compute on two at once, and one device
that fails while the others go on. `hatch run opencl:test` runs these with OPENCL, too.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tiny_runtime import Device, DeviceLost, Unavailable
from tiny_runtime.plugins import discovery
from tiny_tensor import Tensor, dtypes

COMPUTING = ("CPU", "REF", "OPENCL")
PAIRS = list(itertools.permutations((*COMPUTING, "DISK"), 2))


def usable(name: str, path: Path) -> str:
  """The device, with this file for DISK; skips the test where OPENCL cannot be used."""
  if name == "OPENCL":
    pytest.importorskip("pyopencl", reason="no OPENCL here: `hatch run opencl:test` has it")
    try:
      Device[name]
    except Unavailable as error:
      pytest.skip(str(error))
  return f"DISK:{path}" if name == "DISK" else name


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_values_move(source: str, target: str, tmp_path: Path) -> None:
  cases = (([0.5, -2.0, 2.0**100], dtypes.float32), ([1, -(2**40)], dtypes.int64), ([True, False], dtypes.bool))
  for values, dtype in cases:
    here, there = (usable(name, tmp_path / f"{name}-{dtype.name}") for name in (source, target))
    original = Tensor(values, dtype=dtype, device="CPU").to(here).realize()
    moved = original.to(there).realize()
    assert moved.device == there and moved.dtype is dtype and moved.tolist() == values
    assert moved.to(here).tolist() == values


@pytest.mark.parametrize("name", COMPUTING)
def test_a_part_moves_and_is_computed_with(name: str, tmp_path: Path) -> None:
  device = usable(name, tmp_path)
  rows = Tensor.arange(24, device="CPU").reshape(6, 4).realize()
  part = (rows[2:5, 1:3].to(device) * 2 + 1).to("CPU")
  assert part.tolist() == [[19, 21], [27, 29], [35, 37]]


@pytest.mark.parametrize("name", COMPUTING)
def test_one_schedule_over_two_devices(name: str, tmp_path: Path) -> None:
  other = "REF" if name == "CPU" else "CPU"
  a = Tensor([1.0, 2.0, 3.0], device=usable(name, tmp_path))
  total = ((a * a).to(other) + Tensor([1.0, 1.0, 1.0], device=other)).to(name).sum()
  assert total.device == name and total.item() == 17.0


@pytest.mark.parametrize("pair", list(itertools.combinations(COMPUTING, 2)), ids="-".join)
def test_one_tensor_on_two_devices(pair: tuple[str, str], tmp_path: Path) -> None:
  devices = [usable(name, tmp_path) for name in pair]
  x = Tensor([[float(4 * i + k) for k in range(4)] for i in range(5)], device="CPU").shard(devices, 0)
  assert x.device == tuple(devices) and x.sum().item() == 190.0
  assert (x.T @ x)[3].tolist() == [600.0, 655.0, 710.0, 765.0] and x.shard(devices[::-1], 1).tolist() == x.tolist()
  x[1:4] = 0.5
  assert x.realize().to(devices[1]).mean(1).tolist() == [1.5, 0.5, 0.5, 0.5, 17.5]


@pytest.mark.parametrize("pair", list(itertools.combinations(COMPUTING, 2)), ids="-".join)
def test_threads_compute_on_two_devices(pair: tuple[str, str], tmp_path: Path) -> None:
  devices = [usable(name, tmp_path) for name in pair]

  def work(number: int) -> list[float]:
    here, there = devices[number % 2], devices[(number + 1) % 2]
    x = Tensor([float(number + k) for k in range(8)], device=here)
    for step in range(3):
      x = ((x * 0.5 + step).to(there) * 2.0).to(here).realize()
    return [float(value) for value in x.tolist()]

  def expected(number: int) -> list[float]:
    values = [float(number + k) for k in range(8)]
    for step in range(3):
      values = [(value * 0.5 + step) * 2.0 for value in values]
    return values

  with ThreadPoolExecutor(4) as threads:
    assert list(threads.map(work, range(12))) == [expected(number) for number in range(12)]


# A device that is REF, until a kernel is launched while the file named in `BREAK` exists.
FRAGILE = """
import os
from pathlib import Path
from tiny_runtime import DeviceInfo, DeviceLost
from tiny_runtime.ref import BACKEND as REF, RefDevice

class FragileDevice(RefDevice):
  def __init__(self):
    super().__init__()
    self.info = DeviceInfo("FRAGILE", self.info.arch, self.info.memory, self.info.capabilities)

  def launch(self, *arguments):
    if Path(os.environ["BREAK"]).exists():
      raise DeviceLost("the bus reports an error")
    return super().launch(*arguments)

class Backend:
  api, ir = (1, 0), REF.ir
  def probe(self): return REF.probe()
  def open(self, index): return FragileDevice()
  def compiler(self, arch): return REF.compiler(arch)

BACKEND = Backend()
"""


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
  """Installs the device FRAGILE; gives the file that breaks it."""
  info = tmp_path / "fragile_device-1.0.dist-info"
  info.mkdir()
  (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fragile-device\nVersion: 1.0\n")
  (info / "entry_points.txt").write_text("[tiny_runtime.backends.v1]\nFRAGILE = fragile_device:BACKEND\n")
  (tmp_path / "fragile_device.py").write_text(FRAGILE)
  monkeypatch.syspath_prepend(str(tmp_path))
  monkeypatch.setenv("BREAK", str(tmp_path / "break"))
  importlib.invalidate_caches()
  discovery.rescan()
  yield tmp_path / "break"
  monkeypatch.undo()
  discovery.rescan()


def test_a_device_lost_in_the_middle(fragile: Path) -> None:
  kept, elsewhere = (Tensor([1.0, 2.0], device=name).realize() for name in ("FRAGILE", "CPU"))
  assert (kept + 1).tolist() == [2.0, 3.0]
  fragile.touch()
  with pytest.raises(DeviceLost, match=r"kernel \w+ on FRAGILE: the bus reports an error"):
    ((kept * 3).to("CPU") + elsewhere).tolist()
  # its memory is gone, what is elsewhere is not
  with pytest.raises(DeviceLost, match="FRAGILE, written> is gone with its device"):
    kept.tolist()
  assert (elsewhere * 2).tolist() == [2.0, 4.0]
  assert (Tensor([1.0], device="REF") + 1).item() == 2.0
  fragile.unlink()
  assert (Tensor([5.0], device="FRAGILE") + 1).item() == 6.0  # opened afresh


def test_a_device_lost_in_one_thread_of_several(fragile: Path) -> None:
  fragile.touch()

  def work(number: int) -> str:
    try:
      device = "FRAGILE" if number % 3 == 0 else "CPU"
      return str((Tensor([float(number)], device=device) + 1).item())
    except DeviceLost as error:
      return str(error)

  with ThreadPoolExecutor(4) as threads:
    results = list(threads.map(work, range(12)))
  for number, result in enumerate(results):
    assert "FRAGILE" in result if number % 3 == 0 else result == str(number + 1.0), result
