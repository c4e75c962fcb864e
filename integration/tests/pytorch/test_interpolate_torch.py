"""`interpolate` in every mode and dtype against PyTorch, and where PyTorch has no kernel against its float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from tiny_tensor import Context, Tensor, dtypes, nn  # noqa: E402

MODES = {
  "nearest": (5, 4), "nearest-exact": (5, 4), "linear": (6,), "bilinear": (5, 4), "trilinear": (3, 4, 5),
  "bicubic": (5, 4), "area": (5, 4),
}  # fmt: skip
NEW = {5: 8, 4: 3, 6: 9, 3: 5}
OWN = {"linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
LIMITS = {dtypes.float16: 2e-2, dtypes.bfloat16: 2e-1, dtypes.float32: 1e-4, dtypes.float64: 1e-6}


def data(dtype: Any, shape: tuple[int, ...]) -> Any:
  """Values all over a dtype's range, where float64 holds that, as float64."""
  generator = torch.Generator().manual_seed(3)
  values = torch.rand((2, 1, *shape), generator=generator, dtype=torch.float64)
  if dtypes.is_bool(dtype):
    return (values > 0.5).double()
  if dtypes.is_float(dtype):
    return (values * 16 - 8).to(getattr(torch, dtype.name)).double()
  low, high = max(dtypes.min(dtype), -(2**40)), min(dtypes.max(dtype), 2**40)
  return torch.where(
    values < 0.2, float(low), torch.where(values > 0.8, float(high), low + values * (high - low))
  ).floor()


def exactly(x: Any, size: list[int], mode: str, dtype: Any) -> Any:
  """What PyTorch gives in float64; integers stay in range after each axis, the last one first, as in its kernel."""
  if mode != "bicubic" or dtypes.is_float(dtype):
    return torch.nn.functional.interpolate(x, size=size, mode=mode)
  low, high = float(dtypes.min(dtype)), float(dtypes.max(dtype))
  wide = torch.nn.functional.interpolate(x, size=[x.shape[2], size[1]], mode=mode).clamp(low, high)
  return torch.nn.functional.interpolate(wide, size=size, mode=mode)


OFTEN = {dtypes.bool, dtypes.uint8, dtypes.int64, dtypes.float16}
DTYPES = [pytest.param(d, marks=[] if d in OFTEN else pytest.mark.nightly, id=d.name) for d in dtypes.all]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [p for p in DTYPES if p.values[0] not in dtypes.fp8s])
def test_every_dtype_stays_itself(mode: str, dtype: Any) -> None:
  shape = MODES[mode]
  x, size = data(dtype, shape), [NEW[s] for s in shape]
  exact = exactly(x, size, mode, dtype)
  ours = nn.functional.interpolate(Tensor(x.numpy()).cast(dtype), size=size, mode=mode)
  assert ours.dtype is dtype
  if mode in OWN or mode.startswith("nearest"):
    method = Tensor(x.numpy()).cast(dtype).interpolate(size, mode=OWN.get(mode, mode))
    assert method.dtype is dtype
  found = torch.tensor(ours.double().tolist(), dtype=torch.float64)
  if dtypes.is_float(dtype):
    torch.testing.assert_close(found, exact, rtol=LIMITS[dtype], atol=LIMITS[dtype])
    return
  low, high = float(dtypes.min(dtype)), float(dtypes.max(dtype))
  rounded = exact if mode.startswith("nearest") else (exact + 0.5).floor().clamp(low, high)
  # where a half is missed by a rounding error it goes the other way
  near = ((exact - exact.floor() - 0.5).abs() < 1e-4) | (found == rounded)
  assert bool(near.all()) and bool(((found - rounded).abs() <= 1).all())


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [False, True])
def test_bytes_are_at_most_one_from_pytorch(mode: str, corners: bool) -> None:
  # which rounds in fixed point, axis by axis
  x = data(dtypes.uint8, (5, 4)).to(torch.uint8)
  options = {} if mode.startswith("nearest") else {"align_corners": corners}
  theirs = torch.nn.functional.interpolate(x, size=(8, 3), mode=mode, **options)
  ours = nn.functional.interpolate(Tensor(x.numpy()), size=(8, 3), mode=mode, **options)
  assert ours.dtype is dtypes.uint8 and theirs.dtype is torch.uint8
  assert int((torch.tensor(ours.numpy()).int() - theirs.int()).abs().max()) <= (0 if mode.startswith("nearest") else 1)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_sizes_of_zero_are_refused(mode: str, sizes: tuple[int, int]) -> None:
  x = np.ones((1, 1, sizes[0]), np.float32)
  with pytest.raises(RuntimeError, match="greater than 0"):
    torch.nn.functional.interpolate(torch.tensor(x), sizes[1], mode=mode)
  with pytest.raises(ValueError, match="at least 1"):
    Tensor(x).interpolate([sizes[1]], mode=mode)


def test_the_element_before_a_place_does_not_depend_on_fused_sums() -> None:
  """Where new and old elements are at the same place, only rounding could say whether it is there or just before: what
  is computed must be the same where a product and a sum are rounded once, as CPU has it, and where twice.
  """
  for old, new in ((6, 14), (3, 7), (5, 9), (6, 10), (7, 21)):
    places = []
    for device in ("REF", "CPU"):
      with Context(DEVICE=device):
        x = Tensor(np.arange(old, dtype=np.float64)).reshape(1, 1, old).realize()
        places.append(x.interpolate([new], mode="linear").numpy())
    np.testing.assert_array_equal(places[0], places[1])
