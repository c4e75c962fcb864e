"""Programs written for tinygrad run here with other imports, and nothing else changed: docs/from-tinygrad.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ported_programs import TINYGRAD_PROGRAMS, imported

from tiny_tensor import Context, Device, Tensor


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
  training = Tensor.training
  with Context(DEVICE="CPU"):
    yield
  Tensor.training = training


def results(name: str, *arguments: Any) -> dict[str, Any]:
  names: dict[str, Any] = {}
  exec(imported(TINYGRAD_PROGRAMS[name]), names)
  found: dict[str, Any] = names["main"](*arguments)
  return found


@pytest.mark.parametrize("name", TINYGRAD_PROGRAMS)
def test_only_imports_change(name: str) -> None:
  before, after = TINYGRAD_PROGRAMS[name].splitlines(), imported(TINYGRAD_PROGRAMS[name]).splitlines()
  changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
  assert changed and all(a.startswith("from tinygrad") and b.startswith("from tiny_") for a, b in changed)
  assert not any("tinygrad" in line for line in after)


def test_convnet() -> None:
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 4, 64).astype(np.int32)
  images = rng.standard_normal((64, 1, 14, 14), np.float32) * 0.1
  for n, label in enumerate(labels):  # a bright quarter
    images[n, 0, 7 * (label // 2) : 7 * (label // 2) + 7, 7 * (label % 2) : 7 * (label % 2) + 7] += 1
  found = results("convnet", images, labels)
  assert found["losses"][-1] < 0.3 < found["losses"][0] and found["accuracy"] > 95 and found["kernels"] > 5


def test_transformer() -> None:
  found = results("transformer", [1, 2, 3])
  assert len(found["tokens"]) == 10 and len(found["probabilities"]) == 7
  np.testing.assert_allclose(found["probabilities"][-1], found["again"], rtol=2e-4, atol=1e-6)
  np.testing.assert_allclose(np.sum(found["probabilities"], 1), 1, rtol=1e-5)


def test_saved(tmp_path: Path) -> None:
  rng = np.random.default_rng(1)
  y = rng.integers(0, 3, 60).astype(np.int32)
  x = rng.standard_normal((60, 12)).astype(np.float32) + 2 * np.eye(3, 12, dtype=np.float32)[y]
  found = results("saved", x, y, str(tmp_path / "net.safetensors"))
  assert found["accuracy"] > 0.9 and found["params"] == 12 * 8 + 8 * 3
  assert found["same"] == 0 and 0 < found["close"] < 0.05


def test_inspected() -> None:
  found = results("inspected")
  b = np.arange(16, dtype=np.float32).reshape(4, 4)
  expected = ((1 + b) @ b).sum(0)
  np.testing.assert_allclose(found["values"], expected)
  np.testing.assert_allclose(found["twice"], 2 * expected)
  assert found["kernels"] == found["ran"] and "sum" in found["names"] and found["timed"] and found["left"] == 0


def test_by_hand() -> None:
  rng = np.random.default_rng(2)
  x = rng.uniform(-1, 1, (64, 2)).astype(np.float32)
  y = (x[:, 0] > x[:, 1]).astype(np.float32)
  found = results("by hand", x, y)
  assert found["losses"][-1] < 0.25 < found["losses"][0] and min(found["right"]) > 0.9
  assert found["right"][0] == found["right"][1] == found["right"][2]


def test_sharded() -> None:
  rng = np.random.default_rng(3)
  x = rng.standard_normal((16, 4)).astype(np.float32)
  found = results("sharded", x, (x[:, 0] > 0).astype(np.int32))
  assert found["losses"][-1] < 0.6 * found["losses"][0]
  assert found["devices"] == tuple(map(Device.canonicalize, ("CPU:0", "CPU:1")))
