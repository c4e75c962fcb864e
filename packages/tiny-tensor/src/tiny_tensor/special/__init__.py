"""Special functions of tensors. Coefficients are in `tables.py`, which most programs never load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiny_tensor.pytorch_names import of_torch
from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_tensor.special.chebyshev import Series

__getattr__ = lazy_names(__name__, of_torch)


def series(name: str) -> Series:
  """A Chebyshev series."""
  found: Series = table(name)
  return found


def table(name: str) -> Any:
  """A series, several, or a zero in two parts."""
  from tiny_tensor.special import tables

  return getattr(tables, name)
