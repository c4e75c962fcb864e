"""What sysfs says, played by a folder."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_runtime import Unavailable
from tiny_runtime_amd import AMD
from tiny_runtime_amd.backend import AMDBackend
from tiny_runtime_amd.gpus import Gpu, Places, find_gpus

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sysfs is Linux's")
FACTS = {
  "simd_count": 192, "simd_per_cu": 2, "array_count": 12, "simd_arrays_per_engine": 2, "max_waves_per_simd": 16,
  "lds_size_in_kb": 64,
}  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> Places:
  """A processor, and GPUs: one of RDNA 3, one that is too old, one of CDNA 3."""
  made = Places(tmp_path / "nodes", tmp_path / "kfd", tmp_path / "dri", "x86_64")
  made.render.mkdir()
  made.kfd.touch()
  for number, version in ((0, 0), (1, 110000), (2, 90000), (10, 90402)):
    folder = made.nodes / str(number)
    (folder / "mem_banks" / "0").mkdir(parents=True)
    (folder / "mem_banks" / "0" / "properties").write_text("heap_type 1\nsize_in_bytes 1000000\n")
    rows = {**FACTS, "gfx_target_version": version, "drm_render_minor": 128 + number}
    (folder / "properties").write_text("".join(f"{name} {value}\n" for name, value in rows.items()))
    (folder / "gpu_id").write_text(f"{100 + number}\n")
    (made.render / f"renderD{128 + number}").touch()
  return made


def test_gpus_in_order(places: Places) -> None:
  found = find_gpus(places)
  assert not isinstance(found, Unavailable)
  assert [(gpu.gpu_id, str(gpu.arch), gpu.memory) for gpu in found] == [(101, "gfx1100", 10**6), (110, "gfx942", 10**6)]
  assert (found[0].units, found[0].dies, found[0].waves, found[0].scratch_waves) == (96, 1, 32, 32)
  assert AMDBackend(places=places).probe() == ["gfx1100", "gfx942"]


def test_which_gpus_are_connected(places: Places) -> None:
  """By xGMI, and over PCIe; a link to the processor is no way to another GPU."""
  for node, kind, to in ((1, "io_links", 0), (1, "io_links", 10), (10, "io_links", 0), (10, "p2p_links", 2)):
    folder = places.nodes / str(node) / kind / str(to)
    folder.mkdir(parents=True)
    (folder / "properties").write_text(f"type 2\nversion_major 0\nnode_from {node}\nnode_to {to}\nweight 20\n")
  found = find_gpus(places)
  assert not isinstance(found, Unavailable)
  assert [sorted(gpu.links) for gpu in found] == [[0, 10], [0, 2]]


def refused(places: Places) -> Unavailable:
  found = find_gpus(places)
  assert isinstance(found, Unavailable)
  assert AMDBackend(places=places).probe().__class__ is Unavailable
  with pytest.raises(Unavailable, match=found.reason):
    AMDBackend(places=places).open(0)
  return found


def test_why_there_is_none(places: Places, tmp_path: Path) -> None:
  empty = tmp_path / "empty"
  empty.mkdir()
  for changed, reason, what_to_do in (
    (replace(places, nodes=tmp_path / "absent"), "no driver amdgpu", "load the module"),
    (replace(places, nodes=empty), "lists no GPU", "dmesg"),
    (replace(places, kfd=tmp_path / "absent"), "there is no .*absent", "--device="),
    (replace(places, render=empty), "there is no .*renderD129", "--device="),
  ):
    found = refused(changed)
    assert what_to_do in found.what_to_do and re.search(reason, found.reason), found


def test_gpus_of_no_known_architecture(places: Places) -> None:
  for number in (1, 10):
    (places.nodes / str(number) / "properties").write_text("gfx_target_version 100300\n")
  assert "gfx_target_version 90000" in refused(places).reason


def test_permission(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
  barred = {places.render / "renderD129"}
  monkeypatch.setattr(os, "access", lambda path, mode: path not in barred)
  found = find_gpus(places)
  assert not isinstance(found, Unavailable) and [gpu.gpu_id for gpu in found] == [110], "one that may be used is enough"
  barred.add(places.render / "renderD138")
  assert "renderD129" in refused(places).reason and "groups render and video" in refused(places).what_to_do
  barred.add(places.kfd)
  assert "this user may not open" in refused(places).reason and str(places.kfd) in refused(places).reason


def test_one_that_this_process_may_not_see(places: Places) -> None:
  (places.nodes / "1" / "gpu_id").unlink()
  found = find_gpus(places)
  assert not isinstance(found, Unavailable) and [gpu.gpu_id for gpu in found] == [110]


def test_another_number(places: Places) -> None:
  with pytest.raises(Unavailable, match="no AMD:2: 2 GPUs can be used"):
    AMDBackend(places=places).open(2)


def test_other_systems(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(sys, "platform", "darwin")
  assert "this system is darwin" in refused(places).reason
  assert isinstance(AMD.probe(), Unavailable)


def test_other_processors(places: Places) -> None:
  found = refused(replace(places, processor="aarch64"))
  assert "processor is aarch64" in found.reason and "AMD.compiler" in found.what_to_do


def test_properties_of_a_gpu_have_defaults() -> None:
  made = Gpu(1, 2, 90402, Path("x"), 0, {})
  assert (made.dies, made.scratch_waves, made.end_of_pipe) == (1, 32, 4096)
