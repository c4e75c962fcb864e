"""The wrappers that show of a backend nothing but the contract; the tests of tiny-tensor run on them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime import Device, buffer_of, contract, run
from tiny_runtime.conformance import only_contract as module
from tiny_runtime.conformance.only_contract import BeyondContract, Opaque, only_contract, wrap, wrap_device
from tiny_runtime.ref import BACKEND, RefDevice
from tiny_uop import UOp, dtypes


def public(kind: type) -> set[str]:
  return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
  ("wrapper", "protocols"),
  (
    (module.OnlyBackend, (contract.Backend,)),
    (module.OnlyCompiler, (contract.Compiler,)),
    (module.OnlyDevice, (contract.Device,)),
    (module._device_class(contract.HostMapped), (contract.Device, contract.HostMapped)),
    (module._device_class(contract.HostImport), (contract.Device, contract.HostImport)),
    (module._device_class(contract.Peers), (contract.Device, contract.Peers)),
    (module._device_class(contract.Graphs), (contract.Device, contract.Graphs)),
    (
      module._device_class(contract.HostMapped, contract.Graphs),
      (contract.Device, contract.HostMapped, contract.Graphs),
    ),
  ),
)
def test_a_wrapper_has_the_names_of_its_protocols(wrapper: type, protocols: tuple[type, ...]) -> None:
  assert public(wrapper) == set().union(*map(public, protocols))


def test_a_device_shows_what_it_claims() -> None:
  device = wrap_device(RefDevice())
  assert isinstance(device, contract.HostMapped) and not hasattr(type(device), "make_graph")
  assert wrap_device(device) is device


def test_whatever_else_is_asked_for_is_an_error() -> None:
  backend: Any = wrap(BACKEND)
  device = backend.open(0)
  with pytest.raises(
    BeyondContract, match="no 'used' in the contract; it has adopt, alloc, close, copy_from, free, info"
  ):
    device.used  # noqa: B018
  with pytest.raises(BeyondContract):
    hasattr(device, "used")  # a question that shared code must not ask
  memory = device.alloc(4)
  assert type(memory) is Opaque
  with pytest.raises(BeyondContract, match="a handle is opaque: there is no 'nbytes'"):
    memory.nbytes  # noqa: B018
  with pytest.raises(TypeError):
    len(memory)
  compiler = backend.compiler("python")
  assert pickle.loads(pickle.dumps(compiler)).key == compiler.key


def test_shared_code_runs_on_it(kernels: Any, tmp_path: Path) -> None:
  before = kernels.buffer([5.0])
  outside = Device["REF"]
  with only_contract():
    assert isinstance(Device["REF"], module.OnlyDevice) and isinstance(Device["HOST"], module.OnlyDevice)
    a, b = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2)
    file = UOp.new_buffer(f"DISK:{tmp_path / 'file'}", 2, dtypes.float32)
    run(kernels.linear(kernels.add(b, a), kernels.copy(file, b)))
    assert kernels.values(b) == kernels.values(file) == [2.0, 3.0]
    assert type(buffer_of(b).to_read()[0]) is Opaque
  assert Device["REF"] is outside and kernels.values(before) == [5.0]
