"""Checkpoints as PyTorch itself writes them, read without it: the same values, shapes and dtypes."""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, nn
from tiny_tensor.nn.state import load_state_dict, torch_load

torch: Any = pytest.importorskip("torch")  # only in the environment `oracle`

BASE: Any = torch.arange(24).reshape(2, 3, 4) - 3


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
  with Context(DEVICE="CPU"):
    yield


def assert_same(ours: Any, theirs: Any) -> None:
  if isinstance(theirs, torch.Tensor):
    assert isinstance(ours, Tensor)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.").replace("8_", "").replace("fn", "").replace(
      "floate", "fp8e"
    )
    assert (ours.shape, ours.tolist()) == (tuple(theirs.shape), theirs.tolist())
  elif isinstance(theirs, dict):
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
      assert_same(ours[name], value)
  elif isinstance(theirs, (list, tuple)):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
      assert_same(one, other)
  else:
    assert ours == theirs


DTYPES = [
  "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
  "float64", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_every_dtype_and_view(tmp_path: Path, zipped: bool) -> None:
  small: Any = BASE.clamp(min=0)
  saved = {
    "dtypes": {name: small.to(getattr(torch, name)) for name in DTYPES},
    "views": [
      BASE.float(), BASE.permute(2, 0, 1), BASE[:, 1:, ::2], BASE[0, 0].expand(3, 4), BASE[:0], BASE[1, 2, 3],
      BASE[0].t(), torch.as_strided(BASE, (3, 3), (1, 1), 2),
    ],
    "parameter": torch.nn.Parameter(torch.ones(2, 3)),
    "size": BASE.shape,
    "others": OrderedDict(epoch=3, rate=0.5, names=["a", ("b", None)], raw=b"\x00\xff"),
  }  # fmt: skip
  torch.save(saved, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
  assert_same(torch_load(tmp_path / "a.pt"), saved)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_numpy_in_a_checkpoint(tmp_path: Path, zipped: bool) -> None:
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  torch.save(
    {"loss": np.float64(0.25), "step": np.int64(7), "best": np.float32(1.5), "array": array, "t": array.T},
    tmp_path / "a.pt",
    _use_new_zipfile_serialization=zipped,
  )
  loaded = torch_load(tmp_path / "a.pt")
  assert (loaded["loss"], loaded["step"], loaded["best"]) == (0.25, 7, 1.5)
  assert loaded["array"].tolist() == array.tolist() and loaded["t"].tolist() == array.T.tolist()


def test_a_model_and_its_optimizer(tmp_path: Path) -> None:
  theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
  optimizer = torch.optim.Adam(theirs.parameters())
  x = torch.randn(5, 3)
  theirs(x).sum().backward()
  optimizer.step()
  torch.save({"model": theirs.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
  loaded = torch_load(tmp_path / "a.pt")
  assert_same(loaded["optimizer"], optimizer.state_dict())
  ours = {"0": nn.Linear(3, 4), "2": nn.Linear(4, 2)}
  load_state_dict(ours, loaded["model"], verbose=False)
  result = ours["2"](ours["0"](Tensor(x.numpy())).relu()).numpy()
  assert abs(result - theirs(x).detach().numpy()).max() < 1e-5


def test_a_pickled_module_is_refused(tmp_path: Path) -> None:
  torch.save(torch.nn.Linear(2, 2), tmp_path / "a.pt")
  with pytest.raises(ValueError, match=r"torch\.nn\.modules\.linear\.Linear.*state dict"):
    torch_load(tmp_path / "a.pt")
