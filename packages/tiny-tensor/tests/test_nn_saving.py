"""Saving models: in several files with an index, and when the process dies in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_tensor import Context, Tensor
from tiny_tensor.nn.state import safe_load, safe_load_metadata, safe_save

INDEX = "model.safetensors.index.json"


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def model(value: float, count: int = 5) -> dict[str, Tensor]:
  """Tensors of 40 bytes, and a small one."""
  return {f"layer.{i}": Tensor([value + i] * 10) for i in range(count)} | {"n": Tensor([7], dtype="uint8")}


def loaded(path: Path) -> dict[str, list[float]]:
  return {name: t.to("REF").tolist() for name, t in safe_load(path).items()}


def expected(value: float, count: int = 5) -> dict[str, list[float]]:
  return {name: t.tolist() for name, t in model(value, count).items()}


def test_a_model_in_several_files(tmp_path: Path) -> None:
  safe_save(model(1.0), tmp_path / "model.safetensors", {"format": "pt"}, max_shard_size=100)
  names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
  assert sorted(os.listdir(tmp_path)) == [*names, INDEX]
  index = json.loads((tmp_path / INDEX).read_text())
  assert index["metadata"] == {"format": "pt", "total_size": 201}
  assert list(index["weight_map"].values()) == [names[i] for i in (0, 0, 1, 1, 2, 2)]
  assert loaded(tmp_path / INDEX) == expected(1.0)
  assert all(str(t.device).startswith("DISK:") for t in safe_load(tmp_path / INDEX).values()), (
    "mapped, and read when used"
  )
  assert safe_load_metadata(tmp_path / names[2])[2]["__metadata__"] == {"format": "pt"}


def test_sizes_of_files(tmp_path: Path) -> None:
  for most, files in ((1, 6), (40, 6), (41, 5), (1000, 1)):
    safe_save(model(1.0), tmp_path / "model.safetensors", max_shard_size=most)
    assert len(os.listdir(tmp_path)) == files + 1 and loaded(tmp_path / INDEX) == expected(1.0)
  safe_save({}, tmp_path / INDEX)
  assert loaded(tmp_path / INDEX) == {} and len(os.listdir(tmp_path)) == 2
  with pytest.raises(ValueError, match="max_shard_size=0"):
    safe_save({}, tmp_path / INDEX, max_shard_size=0)


def test_a_model_is_saved_over_itself(tmp_path: Path) -> None:
  """The tensors that are saved are still mapped from the files that are replaced."""
  safe_save(model(1.0), tmp_path / INDEX, max_shard_size=100)
  old = safe_load(tmp_path / INDEX)
  safe_save(old, tmp_path / INDEX, max_shard_size=50)
  assert loaded(tmp_path / INDEX) == expected(1.0)
  assert len(os.listdir(tmp_path)) == len(set(json.loads((tmp_path / INDEX).read_text())["weight_map"].values())) + 1
  if os.name == "posix":
    assert {name: t.to("REF").tolist() for name, t in old.items()} == expected(1.0), "who has it goes on reading it"


def test_an_error_leaves_the_old_model(tmp_path: Path) -> None:
  safe_save(model(1.0), tmp_path / INDEX, max_shard_size=100)
  before = sorted(os.listdir(tmp_path))
  with pytest.raises(RuntimeError):
    safe_save(model(2.0) | {"bad": Tensor([1.0]).to("NOWHERE")}, tmp_path / INDEX, max_shard_size=100)
  assert sorted(os.listdir(tmp_path)) == before and loaded(tmp_path / INDEX) == expected(1.0)


DYING = """
import os, signal, sys
from tiny_tensor import Tensor
from tiny_tensor.io import files
from tiny_tensor.io import safetensors

calls, last = 0, int(sys.argv[2])
def die(inner):
  def call(*arguments):
    global calls
    calls += 1
    if calls == last:
      os.kill(os.getpid(), signal.SIGKILL)
    return inner(*arguments)
  return call

if sys.argv[3] == "writing":
  safetensors.files.write_tensor = die(safetensors.files.write_tensor)
else:
  os.replace = die(os.replace)
tensors = {f"layer.{i}": Tensor([2.0 + i] * 10) for i in range(5)} | {"n": Tensor([7], dtype="uint8")}
safetensors.safe_save(tensors, sys.argv[1], max_shard_size=int(sys.argv[4]) or None)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize(("where", "nth", "most"), [("writing", 3, 0), ("replacing", 4, 100)])
def test_a_process_that_is_killed_leaves_the_old_model(tmp_path: Path, where: str, nth: int, most: int) -> None:
  path = tmp_path / "model.safetensors"
  found = tmp_path / INDEX if most else path
  safe_save(model(1.0), path, max_shard_size=most or None)
  arguments = [sys.executable, "-c", DYING, str(path), str(nth), where, str(most)]
  ended = subprocess.run(arguments, env={**os.environ, "DEVICE": "REF"}, capture_output=True, text=True, check=False)
  assert ended.returncode == -signal.SIGKILL, ended.stderr
  assert loaded(found) == expected(1.0)
  safe_save(model(3.0), path, max_shard_size=most or None)
  assert loaded(found) == expected(3.0), "what it left behind is in nobody's way"


def test_a_file_as_a_tensor(tmp_path: Path) -> None:
  path = tmp_path / "a.safetensors"
  safe_save({"w": Tensor([1.0, 2.0]), "n": Tensor([3])}, path)
  for file in (str(path), Tensor(path), Tensor(path.read_bytes()), Tensor(path.read_bytes()).realize()):
    whole, start, header = safe_load_metadata(file)
    assert whole.shape == (path.stat().st_size,) and start > 8 and set(header) >= {"w", "n"}
    assert {name: t.tolist() for name, t in safe_load(file).items()} == {"w": [1, 2], "n": [3]}
  with pytest.raises(ValueError, match="the tensor is not a safetensors file: it has 3 bytes"):
    safe_load(Tensor(b"abc"))
  with pytest.raises(ValueError, match=r"a vector of uint8, got float32 of shape \(2,\)"):
    safe_load_metadata(Tensor([1.0, 2.0]))
