"""Values for the leaves of a graph: all where there are few, otherwise those that break rules, and random ones."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterator

from tiny_uop.dtype import DType, dtypes
from tiny_uop.truncate import FORMATS, Number, from_bits, to_bits, truncate

LIMIT = 2500  # all pairs of special floats
RANDOM_TRIALS = 1000
_RANDOM = 6
_EDGES = (128.0, 255.0, 65536.0, 2.0**24, 2.0**31, 2.0**63)  # of integer types


def integers(low: int, high: int, rng: random.Random) -> list[Number]:
  """Integers of [low, high]: the ends, those next to 0 and to powers of two, and random ones."""
  chosen = {low, low + 1, high - 1, high, -8, -3, -2, -1, 0, 1, 2, 3, 7, 8, 255, 256}
  chosen |= {rng.randint(low, high) for _ in range(2 * _RANDOM)}
  return sorted(v for v in chosen if low <= v <= high)


def floats(dtype: DType, rng: random.Random, ordinary: bool = False) -> list[Number]:
  """Values of a float type; `ordinary` leaves out what overflows, underflows or is no number."""
  plain = [1.0, -1.0, 0.5, -2.0, 3.0, 0.1, -7.25, *(rng.uniform(-20, 20) for _ in range(_RANDOM))]
  if ordinary:
    return _distinct(dtype, plain)
  form = FORMATS[dtype.name]
  one, normal = to_bits(dtype, 1.0), 1 << form.mantissa
  subnormal = (1, 2, normal - 1)
  patterns = (0, *subnormal, normal, one - 1, one + 1, form.largest, form.largest + 1)  # the last is infinity, or NaN
  special = [*(from_bits(dtype, p) for p in patterns), *_EDGES]
  mixed = [from_bits(dtype, rng.getrandbits(dtype.bits)) for _ in range(_RANDOM)]
  return _distinct(dtype, [*special, *(-v for v in special), math.nan, *plain, *mixed])


def _distinct(dtype: DType, values: list[Number]) -> list[Number]:
  rounded = [truncate(dtype, v) for v in values]
  return list({to_bits(dtype, v): v for v in rounded}.values())


class Draws:
  """Chooses one value for each leaf and memory cell that is asked for, in the order of asking.

  The first trials run through all combinations of the values that break rules, where these are at most `limit`; those
  that follow, up to RANDOM_TRIALS, are random (seeded). With `exhaustive`, integers take all values of their bounds,
  and `complete` says whether all combinations have been tried.
  """

  def __init__(self, limit: int = LIMIT, ordinary: bool = False, exhaustive: bool = False) -> None:
    self.limit, self.ordinary, self.exhaustive = limit, ordinary, exhaustive
    self.rng = random.Random(20)
    self.complete = exhaustive
    self.chosen: dict[Hashable, Number] = {}
    self._candidates: dict[Hashable, list[Number]] = {}
    self._asked: list[int] = []
    self._rest: int | None = None

  def trials(self) -> Iterator[int]:
    """Once per combination; within one, `choose` gives the values of it."""
    sizes, combinations, number = self._asked, 1, 0
    while number < combinations or (not self.complete and number < min(self.limit, RANDOM_TRIALS)):
      self.chosen, self._asked = {}, []
      self._rest = number if number < combinations else None
      yield number
      if number == 0:
        sizes, combinations = self._asked, math.prod(self._asked)
        if combinations > self.limit:
          self.complete, combinations = False, 0
      elif self._asked != sizes:
        self.complete = False  # which leaves are read depends on values: combinations may have been skipped
      number += 1

  def choose(self, leaf: Hashable, dtype: DType, low: int = 0, high: int = -1) -> Number:
    """The value of a leaf; [low, high] narrows an integer's type."""
    if leaf not in self.chosen:
      key = (leaf, low, high)
      if key not in self._candidates:
        self._candidates[key] = self._values(dtype, low, high)
      values = self._candidates[key]
      self._asked.append(len(values))
      if self._rest is None:
        fresh = dtype.kind == "float" and self.rng.random() < 0.5
        self.chosen[leaf] = self._fresh(dtype) if fresh else self.rng.choice(values)
      else:
        self._rest, place = divmod(self._rest, len(values))
        self.chosen[leaf] = values[place]
    return self.chosen[leaf]

  def _fresh(self, dtype: DType) -> Number:
    size = 4 if self.ordinary or self.rng.random() < 0.5 else self.rng.randint(-40, 40)
    return truncate(dtype, math.ldexp(self.rng.uniform(-1, 1), size))

  def _values(self, dtype: DType, low: int, high: int) -> list[Number]:
    if dtype.kind == "bool":
      return [False, True]
    if dtype.kind == "float":
      self.complete = False
      return floats(dtype, self.rng, self.ordinary)
    if high < low:
      low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    if self.exhaustive and high - low < self.limit:
      return list(range(low, high + 1))
    self.complete = False
    return integers(low, high, self.rng)
