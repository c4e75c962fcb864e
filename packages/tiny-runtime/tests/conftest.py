"""Plugins made on the fly: a folder with a module and a `.dist-info`, as `pip install` would leave them."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import tiny_runtime  # noqa: F401  # which declares TINY_CACHE
from tiny_runtime import Device, buffer_of
from tiny_runtime.plugins import discovery
from tiny_uop import AxisType, Context, KernelInfo, Ops, UOp, dtypes

# pytest's importlib mode puts no test directory on the path, and this one has a module that tests share
sys.path.insert(0, str(Path(__file__).parent))

MakePlugin = Callable[..., Path]


@pytest.fixture(autouse=True, scope="module")
def nothing_old_is_collected() -> Iterator[None]:
  """What was imported, and what tests of other modules have left, is not looked at by `gc.collect`."""
  gc.freeze()
  yield
  gc.unfreeze()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
  """A folder on the import path, like site-packages."""
  folder = tmp_path / "site"
  folder.mkdir()
  monkeypatch.syspath_prepend(str(folder))
  monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
  return folder


@pytest.fixture
def make_plugin(site: Path) -> Iterator[MakePlugin]:
  """`make_plugin(package, device, source, group=..., attribute=...)` installs one; the module is named after the
  package."""

  def make(
    package: str,
    device: str,
    source: str | None,
    group: str = "tiny_runtime.backends.v1",
    attribute: str = "BACKEND",
    version: str = "1.2.3",
  ) -> Path:
    module = package.replace("-", "_")
    info = site / f"{module}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    with (info / "entry_points.txt").open("a") as file:
      file.write(f"[{group}]\n{device} = {module}:{attribute}\n")
    if source is not None:
      (site / f"{module}.py").write_text(source)
    forget(module)
    made[module] = device
    return site

  def forget(module: str) -> None:
    sys.modules.pop(module, None)
    importlib.invalidate_caches()
    discovery.rescan()

  made: dict[str, str] = {}
  yield make
  for module, device in made.items():
    forget(module)
    for name in Device.open_names():
      if name.partition(":")[0] == device:
        Device._opened.pop(name).close()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
  """Tests neither see nor leave anything in the user's cache."""
  folder = tmp_path / "cache"
  monkeypatch.setenv("TINY_CACHE", str(folder))
  with Context(TINY_CACHE=str(folder)):
    yield folder


class Kernels:
  """Schedules written by hand, over float32 buffers."""

  def __init__(self, device: str = "REF") -> None:
    self.device = device

  def buffer(self, values: Sequence[float] | None = None, size: int = 0) -> UOp:
    """A new BUFFER of these values, or an empty one."""
    uop = UOp.new_buffer(self.device, len(values) if values is not None else size, dtypes.float32)
    if values is not None:
      buffer_of(uop).write(array("f", values))
    return uop

  def values(self, uop: UOp) -> list[float]:
    """What is in a BUFFER."""
    return list(memoryview(buffer_of(uop).read()).cast("f"))

  def add(self, out: UOp, source: UOp, amount: float = 1.0, name: str = "add") -> UOp:
    """CALL of `out[i] = source[i] + amount`."""
    size = out.arg[1]
    to, of = (UOp.param(n, dtypes.float32.ptr(size)) for n in range(2))
    i = UOp.range(size, 0)
    body = UOp.sink(to.index(i).store(of.index(i).load() + amount).end(i), arg=KernelInfo(name))
    return self.call(body, out, source)

  def increment(self, out: UOp, name: str = "increment") -> UOp:
    """CALL of `out[i] += 1`."""
    to = UOp.param(0, dtypes.float32.ptr(out.arg[1]))
    i = UOp.range(out.arg[1], 0)
    return self.call(UOp.sink(to.index(i).store(to.index(i).load() + 1.0).end(i), arg=KernelInfo(name)), out)

  def prefix(self, out: UOp, source: UOp, length: UOp) -> UOp:
    """CALL of `out[0] = sum(source[:length])`, `length` a BIND."""
    to, of = UOp.param(0, dtypes.float32.ptr(1)), UOp.param(1, dtypes.float32.ptr(source.arg[1]))
    i = UOp.range(length.src[0], 0, AxisType.REDUCE)
    total = of.index(i).load().reduce(Ops.ADD, i)
    return self.call(UOp.sink(to.index(0).store(total), arg=KernelInfo("prefix")), out, source, length)

  def copy(self, out: UOp, source: UOp) -> UOp:
    """CALL of a copy, between any two devices."""
    to, of = (UOp.param(n, dtypes.float32.ptr(out.arg[1])) for n in range(2))
    return self.call(UOp(Ops.COPY, dtypes.void, (to, of)), out, source)

  def call(self, body: UOp, *arguments: UOp) -> UOp:
    """CALL of any body."""
    return UOp(Ops.CALL, dtypes.void, (body, *arguments))

  def linear(self, *calls: UOp) -> UOp:
    """A schedule."""
    return UOp(Ops.LINEAR, dtypes.void, calls)


@pytest.fixture
def kernels() -> Kernels:
  """Schedules written by hand for the reference backend."""
  return Kernels()


@pytest.fixture
def kernels_on() -> Callable[[str], Kernels]:
  """The same for another device."""
  return Kernels
