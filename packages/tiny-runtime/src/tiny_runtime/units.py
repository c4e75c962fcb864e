"""Figures with units, as columns and as short as can be."""

from __future__ import annotations


def per_second(count: int, seconds: float) -> str:
  """Thousand millions per second, 8 wide."""
  return f"{count / seconds * 1e-9:8.2f}"


def duration(seconds: float) -> str:
  """`  12.50 µs`: 10 wide."""
  for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
    if seconds < limit:
      return f"{seconds * scale:7.2f} {unit}"
  return f"{seconds:7.2f} s "


def amount(nbytes: int) -> str:
  """`  1.50 MB`: 9 wide."""
  for limit, unit in ((10**3, "B "), (10**6, "kB"), (10**9, "MB")):
    if nbytes < limit:
      return f"{nbytes / limit * 1000:6.2f} {unit}"
  return f"{nbytes / 10**9:6.2f} GB"


def short(nbytes: int) -> str:
  """`1.5 MB`: as short as it can be said."""
  number, unit = amount(nbytes).split()
  return f"{float(number):.3g} {unit}"
