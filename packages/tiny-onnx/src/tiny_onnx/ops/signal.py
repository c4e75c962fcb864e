"""Transforms of signals: DFT, STFT, windows, mel weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.ops.shape import axis_in
from tiny_onnx.registry import Call, op
from tiny_onnx.values import ARRAY_DTYPES, DTYPES, Host, Value, checked_count, host_of, ints_of
from tiny_tensor import Tensor, dtypes, fft


def transformed(call: Call, x: Tensor, length: int | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
  """The transform along an axis of `x`, whose last axis holds real parts, or real and imaginary ones."""
  axis = axis_in(axis, x.ndim)
  count: Any = x.shape[axis] if length is None else length
  if count < 1:
    raise ModelError(f"a transform has 1 element at least, found {count}")
  real = x[..., 0]
  if onesided and inverse:
    imaginary = x[..., 1] if x.shape[-1] == 2 else Tensor.zeros_like(real)
    whole: Any = count if length is not None else 2 * (x.shape[axis] - 1)
    return fft.irfft((real, imaginary), whole, axis).unsqueeze(-1)
  if x.shape[-1] == 1 and not inverse:
    pair = fft.rfft(real, count, axis) if onesided else fft.fft(real, count, axis)
  else:
    imaginary = x[..., 1] if x.shape[-1] == 2 else Tensor.zeros_like(real)
    pair = (fft.ifft if inverse else fft.fft)((real, imaginary), count, axis)
    if onesided:
      cut = (slice(None),) * axis + (slice(0, count // 2 + 1),)
      pair = pair[0][cut], pair[1][cut]
  return pair[0].stack(pair[1], dim=-1).cast(x.dtype)


@op("DFT", 20, needs=(1, 2))
def dft(call: Call, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None) -> Tensor:
  along = -2 if axis is None else ints_of(axis)[0]
  count = None if length is None else ints_of(length)[0]
  return transformed(call, x, count, along, bool(call["inverse"]), bool(call["onesided"]))


@op("DFT", 17, needs=(1,))
def dft_by_attribute(call: Call, x: Tensor, length: Tensor | None = None) -> Tensor:
  count = None if length is None else ints_of(length)[0]
  return transformed(call, x, count, call["axis"], bool(call["inverse"]), bool(call["onesided"]))


@op("STFT", 17, needs=(1, 3))
def stft(call: Call, x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None) -> Tensor:
  hop = ints_of(step)[0]
  size = ints_of(length)[0] if length is not None else window.shape[0] if window is not None else x.shape[1]
  parts = [x.reshape(x.shape[0], x.shape[1])] if x.ndim == 2 or x.shape[-1] == 1 else [x[..., 0], x[..., 1]]
  frames = [p.unfold(1, size, hop) for p in parts]
  if window is not None:
    before = (size - window.shape[0]) // 2
    spread = window.pad(((before, size - window.shape[0] - before),))
    frames = [f * spread for f in frames]
  return transformed(
    call,
    frames[0].stack(*frames[1:], dim=-1) if len(frames) > 1 else frames[0].unsqueeze(-1),
    None,
    2,
    False,
    bool(call["onesided"]),
  )


def window_of(call: Call, size: Value, terms: list[float]) -> Tensor:
  """A sum of cosines over a window, periodic or symmetric."""
  count = ints_of(size)[0]
  whole = count if call["periodic"] else count - 1
  angle = Tensor.arange(count, dtype=dtypes.float32) * (2 * math.pi / whole)
  made = Tensor.zeros(count)
  for i, term in enumerate(terms):
    made = made + (angle * i).cos() * ((-1) ** i * term)
  return made.cast(DTYPES[call["output_datatype"]])


@op("HannWindow", 17, raw=True, needs=(0,))
def hann_window(call: Call, size: Value) -> Tensor:
  return window_of(call, size, [0.5, 0.5])


@op("HammingWindow", 17, raw=True, needs=(0,))
def hamming_window(call: Call, size: Value) -> Tensor:
  return window_of(call, size, [25 / 46, 21 / 46])


@op("BlackmanWindow", 17, raw=True, needs=(0,))
def blackman_window(call: Call, size: Value) -> Tensor:
  return window_of(call, size, [0.42, 0.5, 0.08])


@op("MelWeightMatrix", 17, raw=True, needs=(0, 1, 2, 3, 4))
def mel_weight_matrix(call: Call, bins: Value, length: Value, rate: Value, low: Value, high: Value) -> Value:
  """Triangles that weigh the bins of a spectrum by the mel scale, 2595 log10(1 + f / 700)."""
  count, size, samples = (int(host_of(v).reshape(-1)[0]) for v in (bins, length, rate))
  ends = [float(host_of(v).reshape(-1)[0]) for v in (low, high)]
  first, last = (2595 * math.log10(1 + f / 700) for f in ends)
  points = np.arange(count + 2) * ((last - first) / (count + 2)) + first
  corners = (((size + 1) * (700 * (10 ** (points / 2595) - 1))) // samples).astype(np.int64)
  rows = size // 2 + 1
  checked_count(max(count, rows) + rows * count, "mel weights")
  made: np.ndarray[Any, Any] = np.zeros((rows, count))
  for i in range(count):
    left, middle, right = corners[i : i + 3]
    if middle == left:
      made[middle, i] = 1
    else:
      made[left : middle + 1, i] = (np.arange(left, middle + 1) - left) / (middle - left)
    if right > middle:
      made[middle:right, i] = (right - np.arange(middle, right)) / (right - middle)
  return Host(made.astype(ARRAY_DTYPES[call["output_datatype"]]))
