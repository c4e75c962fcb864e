"""Resizing the last axis by slices is resizing by places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_onnx.ops.image import cubic, in_phases, linear, resize_axis, source_places, taps
from tiny_tensor import Tensor

RNG = np.random.default_rng(0)
MODES = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]


def along_rows(x: Any, indices: Any, weights: Any) -> Any:
  """By places: these are used along any axis but the last."""
  return resize_axis(Tensor(np.ascontiguousarray(x.T)), 0, indices, weights).numpy().T


@given(size=st.integers(1, 9), factor=st.integers(1, 5), mode=st.sampled_from(MODES), kind=st.sampled_from("lcn"))
def test_whole_numbers_of_phases_are_as_places(size: int, factor: int, mode: str, kind: str) -> None:
  x = RNG.standard_normal((3, size)).astype(np.float32)
  places = source_places(mode, size, size * factor, float(factor), (0, 1))
  if kind == "n":
    indices, weights = np.clip(np.floor(places), 0, size - 1).astype(np.int32), None
  else:
    kernel, radius = (linear, 1) if kind == "l" else (cubic(-0.75), 2)
    at = np.clip(places, 0, size - 1) if kind == "l" else places
    indices, weights = taps(at, kernel, radius, size, float(factor), False, False)
  found = resize_axis(Tensor(x), 1, indices, weights).numpy()
  np.testing.assert_allclose(found, along_rows(x, indices, weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("factor", "sliced"), [(1.5, False), (2, True), (4, True), (5, False)])
def test_which_places_are_slices(factor: float, sliced: bool) -> None:
  places = np.clip(source_places("half_pixel", 8, int(8 * factor), factor, (0, 1)), 0, 7)
  indices, weights = taps(places, linear, 1, 8, factor, False, False)
  assert (in_phases(Tensor.ones(1, 8), indices, weights) is not None) == sliced


def test_a_weight_of_zero_hides_what_is_not_finite() -> None:
  indices, weights = taps(source_places("asymmetric", 4, 8, 2.0, (0, 1)), linear, 1, 4, 2.0, False, False)
  found = resize_axis(Tensor([[1.0, float("inf"), 2.0, 3.0]]), 1, indices, weights).numpy()
  assert found[0, 0] == 1 and found[0, 4] == 2
