"""Programs written for PyTorch, ported by what docs/from-pytorch.md says, with the same weights: the same losses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ported_programs import PROGRAMS, ported

from tiny_tensor import Context, Tensor
from tiny_tensor.nn import state

torch: Any = pytest.importorskip("torch")  # only in the environment `oracle`
pytestmark = pytest.mark.nightly


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
  with Context(DEVICE="CPU"):
    yield


def data_for(name: str) -> list[Any]:
  rng = np.random.default_rng(0)
  if name == "VAE":
    return [rng.random((32, 4, 5), np.float32), rng.standard_normal((8, 4, 3), np.float32)]
  if name == "language model":
    return [rng.integers(0, 11, (4, 9)).astype(np.int32), np.array([9, 4, 7, 2], np.int32)]
  return [rng.standard_normal((6, 3, 8, 8), np.float32), rng.integers(0, 3, 6)]


def module(text: str) -> dict[str, Any]:
  names: dict[str, Any] = {}
  exec(text, names)
  return names


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_losses(name: str, tmp_path: Path) -> None:
  torch.manual_seed(0)
  theirs, ours = module(PROGRAMS[name]), module(ported(PROGRAMS[name]))
  assert "torch" not in ported(PROGRAMS[name])
  model, twin, arrays = theirs["make"](), ours["make"](), data_for(name)
  weights = {key: Tensor(value.numpy()) for key, value in model.state_dict().items()}
  assert sorted(state.get_state_dict(twin)) == sorted(weights), "the same names"
  state.load_state_dict(twin, weights, verbose=False)
  expected = theirs["train"](model, [torch.from_numpy(a) for a in arrays], tmp_path / "theirs.pt")
  with Tensor.train():
    found = ours["train"](twin, [Tensor(a) for a in arrays], tmp_path / "ours.safetensors")
  np.testing.assert_allclose(found, expected, rtol=2e-4)
  for key, value in state.get_state_dict(twin).items():
    np.testing.assert_allclose(value.numpy(), model.state_dict()[key].numpy(), rtol=5e-3, atol=5e-4, err_msg=key)
  # what PyTorch kept half-way can be read, too, and what we kept is the same
  kept, read = state.safe_load(tmp_path / "ours.safetensors"), state.torch_load(tmp_path / "theirs.pt")
  for key, value in kept.items():
    np.testing.assert_allclose(value.numpy(), read[key].numpy(), rtol=5e-3, atol=5e-4, err_msg=key)
