"""Padding in all modes by negative, no and positive amounts, against PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tiny_tensor import Context, Tensor  # noqa: E402

MODES = ("constant", "reflect", "replicate", "circular")
AMOUNTS = (-6, -4, -2, -1, 0, 1, 2, 3, 5)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def theirs(size: int, before: int, after: int, mode: str) -> list[float] | None:
  """What PyTorch gives, None where it raises. Where circular padding takes more off than it leaves to go round, PyTorch
  reads memory that nobody has written."""
  left = size + min(before, 0) + min(after, 0)
  if mode == "circular" and (left < 0 or max(before, after) > left):
    return None
  try:
    x = torch.nn.functional.pad(torch.arange(1.0, size + 1).reshape(1, 1, size), (before, after), mode=mode)
  except RuntimeError:
    return None
  values: list[float] = x.flatten().tolist()
  return values


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 4])
def test_one_axis(mode: str, size: int) -> None:
  x, made, expected = Tensor([*map(float, range(1, size + 1))]), {}, {}
  for pads in itertools.product(AMOUNTS, AMOUNTS):
    if (values := theirs(size, *pads, mode)) is not None:
      made[pads], expected[pads] = x.pad(pads, mode=mode), values
    else:
      with pytest.raises(ValueError, match=r"axis|shrink"):
        x.pad(pads, mode=mode)
  assert size == 1 or len(made) > 10
  parts = [t for t in made.values() if t.numel()]
  values = iter(parts[0].cat(*parts[1:]).tolist())
  assert {pads: [next(values) for _ in range(int(t.shape[0]))] for pads, t in made.items()} == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pads", [(3, -3, 0, 0), (0, 0, 0, -3), (-1, 2, 1, -2), (-2, -1, 2, -2), (1, -4, -2, 2)])
def test_two_axes(mode: str, pads: tuple[int, ...]) -> None:
  x = torch.arange(24.0).reshape(1, 1, 4, 6)
  expected = torch.nn.functional.pad(x, pads, mode=mode)
  assert Tensor(x.numpy()).pad(pads, mode=mode).tolist() == expected.tolist()


def test_small_images() -> None:
  x = Tensor.arange(16).reshape(1, 1, 4, 4)
  assert x.pad((3, -3, 0, 0), mode="reflect")[0, 0, 0].tolist() == [3, 2, 1, 0]
  with pytest.raises(ValueError, match="leaves nothing of axis 2 of size 4"):
    x.pad((0, 0, 0, -5), mode="replicate")
