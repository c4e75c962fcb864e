"""What sysfs says, played by a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tiny_runtime import Unavailable
from tiny_runtime_amd import AMD, backend, gpus

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sysfs is Linux's")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
  """Nodes of a processor and two GPUs."""
  nodes = tmp_path / "nodes"
  for number, version in ((0, 0), (1, 110000), (2, 90402)):
    (nodes / str(number)).mkdir(parents=True)
    (nodes / str(number) / "properties").write_text(f"simd_count 96\ngfx_target_version {version}\nunique_id 1\n")
  (tmp_path / "kfd").touch()
  return tmp_path


def test_gpus_in_order(machine: Path) -> None:
  assert gpus.gpu_versions(machine / "nodes", machine / "kfd") == [110000, 90402]


def test_why_there_is_none(machine: Path, tmp_path: Path) -> None:
  for nodes, device, reason, what_to_do in (
    (tmp_path / "absent", machine / "kfd", "no driver amdgpu", "load the module"),
    (tmp_path, machine / "kfd", "lists no GPU", "dmesg"),
    (machine / "nodes", tmp_path / "absent", "is not there", "group render"),
  ):
    found = gpus.gpu_versions(nodes, device)
    assert isinstance(found, Unavailable) and reason in found.reason and what_to_do in found.what_to_do


def test_gpus_that_are_there_are_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(backend, "gpu_versions", lambda: [110000, 100300])
  found = AMD.probe()
  assert isinstance(found, Unavailable) and "gfx1100, gfx_target_version 100300" in found.reason
  with pytest.raises(Unavailable, match="does not run on yet"):
    AMD.open(0)


def test_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(sys, "platform", "darwin")
  found = gpus.gpu_versions()
  assert isinstance(found, Unavailable) and "this system is darwin" in found.reason
