"""What the driver says, played by an object with the functions of its library."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tiny_runtime import Unavailable
from tiny_runtime_nv import CUDA, backend
from tiny_runtime_nv.gpus import MAJOR, compute_capabilities


class Library:
  """libcuda of a machine with these GPUs, or one that answers with an error."""

  def __init__(self, *capabilities: tuple[int, int], status: int = 0) -> None:
    self.capabilities, self.status = capabilities, status

  def cuInit(self, flags: int) -> int:
    return self.status

  def cuDeviceGetCount(self, count: Any) -> int:
    count._obj.value = len(self.capabilities)
    return 0

  def cuDeviceGet(self, device: Any, index: int) -> int:
    device._obj.value = index
    return 0

  def cuDeviceGetAttribute(self, value: Any, attribute: int, device: ctypes.c_int) -> int:
    value._obj.value = self.capabilities[device.value][attribute != MAJOR]
    return 0


@pytest.mark.parametrize(
  ("library", "reason", "what_to_do"),
  [
    (None, "driver is not installed", "--gpus all"),
    (Library(status=100), "finds no GPU", "Install"),
    (Library(), "finds no GPU", "Install"),
    (Library(status=803), "different versions", "Restart"),
    (Library(status=999), "error 999", "nvidia-smi"),
  ],
)
def test_why_there_is_none(library: Any, reason: str, what_to_do: str) -> None:
  found = compute_capabilities(library)
  assert isinstance(found, Unavailable) and reason in found.reason and what_to_do in found.what_to_do


def test_gpus_in_order() -> None:
  assert compute_capabilities(Library((9, 0), (8, 6))) == [(9, 0), (8, 6)]


def test_gpus_that_are_too_old_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(backend, "load_library", lambda: Library((6, 1), (9, 0), (12, 1)))
  assert CUDA.probe() == ["sm_90a", "sm_120"]
  with pytest.raises(Unavailable, match="no CUDA:2: 2 GPUs can be used"):
    CUDA.open(2)
  monkeypatch.setattr(backend, "load_library", lambda: Library((6, 1)))
  found = CUDA.probe()
  assert isinstance(found, Unavailable) and "older than sm_75: their compute capability is 6.1" in found.reason
  with pytest.raises(Unavailable, match="older than"):
    CUDA.open(0)
