"""Level 5: what the capability record claims. A claim that fails is a failure."""

from __future__ import annotations

import pytest

from tiny_runtime.conformance.kernels import elementwise
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.values import pack, unpack
from tiny_runtime.contract import HostMapped
from tiny_uop import dtypes

F = dtypes.float32


def test_dtypes_are_names(target: Target) -> None:
  known = {d.name for d in dtypes.all}
  claimed = target.device.info.capabilities.dtypes
  assert claimed <= known, f"claims unknown types {sorted(claimed - known)}"
  assert {"bool", "int32", "float32"} <= claimed, "every device computes with bool, int32 and float32"


def test_record_is_consistent(target: Target) -> None:
  record, info = target.device.info.capabilities, target.device.info
  assert record.kernels, "a device that runs no kernels is no backend"
  assert record.max_local_size >= 1 and record.local_memory >= 0 and info.memory >= 0
  assert info.arch == target.arch


def test_host_mapped(target: Target) -> None:
  device = target.device
  if not device.info.capabilities.host_mapped:
    pytest.skip("host_mapped is not claimed")
  assert isinstance(device, HostMapped), "host_mapped is claimed, but there is no method view"
  source, result = device.alloc(64), device.alloc(64)
  view = device.view(source)
  assert (view.nbytes, view.readonly) == (64, False)
  view[:] = pack(F, range(16))
  binary = target.compiler.compile(elementwise("add_one", 16, F, [F], lambda a: a + 1.0))
  sizes = [tuple(int(size) for size in group) for group in (binary.global_size, binary.local_size)]
  device.launch(device.load(binary), [(result, 0), (source, 0)], [], sizes[0], sizes[1], False)
  device.sync()
  assert unpack(F, bytes(device.view(result))) == [float(i + 1) for i in range(16)]
  del view
  for memory in (source, result):
    device.free(memory)
