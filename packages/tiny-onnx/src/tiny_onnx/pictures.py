"""Pictures from the bytes of their files, by the package Pillow (extra `image`)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError


def decoded(data: bytes, grey: bool) -> np.ndarray[Any, Any]:
  """(height, width, channels) of uint8: grey, or red, green and blue. Raises ModelError for what is no picture."""
  try:
    from PIL import Image, UnidentifiedImageError
  except ImportError as error:
    raise ModelError("ImageDecoder needs the package Pillow: pip install tiny-onnx[image]") from error
  try:
    with Image.open(io.BytesIO(data)) as picture:
      pixels = np.array(picture.convert("L" if grey else "RGB"))
  except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
    raise ModelError(f"this is no picture that Pillow reads: {error}") from error
  return pixels[..., None] if grey else pixels
