"""Fits the figures of tiny-codegen's cost model to this machine, from tilings that are measured, and prints them.

    hatch run refit "matmul 512" conv            # groups, or parts of names, as for bench
    hatch run refit --count 40 --processors 2 matmul

Each sum of products is compiled as the cost model ranks its tilings first, and measured (see `tilings.py`). The figures
(`tiny_codegen.CostModel`, which says their units) and the clock are then such that the estimates come closest to the
times: least squares of logarithms, by Gauss-Newton steps, with a weight that keeps figures at their defaults on which
nothing depends. Put what comes out into `CORES` of `processors.py`, and look at `tilings.py` again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from suite.launching import kernels_of, names_of
from tilings import described, measured, options_of

from tiny_codegen import CostModel, Target
from tiny_codegen.tiling.choose import ranked_tilings
from tiny_codegen.tiling.tiles import Tiling

Array = np.ndarray[Any, np.dtype[np.float64]]
Figures = dict[str, float]
STEPS, CHANGE, LARGEST = 30, 1e-3, 0.5
"""Steps of the fit; the relative change by which derivatives are found; the largest relative change in a step."""


@dataclass(frozen=True)
class Sample:
  """A tiling of a sum of products, and the seconds that it took."""

  product: Any
  tiling: Any
  seconds: float


@dataclass(frozen=True)
class Fit:
  """`figures` with the clock in Hz; `before` and `after` are logarithms of measured over estimated times."""

  figures: Figures
  clock: float
  before: Array
  after: Array


def figures_of(cost: CostModel) -> Figures:
  """The figures that are fitted: all that are no counts. Those of a pair are `scattered.0` and `scattered.1`."""
  found: Figures = {}
  for field in fields(cost):
    value = getattr(cost, field.name)
    if isinstance(value, tuple):
      found |= {f"{field.name}.{place}": part for place, part in enumerate(value) if isinstance(part, float)}
    elif isinstance(value, float):
      found[field.name] = value
  return found


def with_figures(cost: CostModel, figures: Mapping[str, float]) -> CostModel:
  """The cost model with these figures."""
  changes: dict[str, Any] = {}
  for name, value in figures.items():
    field, _, place = name.partition(".")
    if place:
      pair = list(changes.get(field, getattr(cost, field)))
      pair[int(place)] = value
      changes[field] = tuple(pair)
    else:
      changes[field] = value
  return replace(cost, **changes)


def unpriced(tiling: Tiling) -> Tiling:
  """The tiling without what it is estimated to cost."""
  return replace(tiling, cycles=0.0, packing=(0.0, 0.0))


def estimates(samples: Sequence[Sample], target: Target) -> Callable[[Figures], Array]:
  """A function from figures to the logarithms of the estimated cycles of the samples."""

  def logarithms(figures: Figures) -> Array:
    changed = replace(target, cost=with_figures(target.cost, figures))
    ranked = {
      product: {unpriced(t): t.cycles for t in ranked_tilings(product, changed)}
      for product in dict.fromkeys(s.product for s in samples)
    }
    return np.log([ranked[s.product][unpriced(s.tiling)] for s in samples])

  return logarithms


def fit(logarithms: Callable[[Figures], Array], seconds: Array, start: Figures, weight: float = 0.05) -> Fit:
  """The figures, and the clock, with which the estimates come closest to the times. `weight` is that of a relative
  change of a figure against a relative error of all times."""
  names = list(start)
  scale = np.array([start[name] or 0.1 for name in names])
  least = 1e-3 * scale

  def figures(values: Array) -> Figures:
    return dict(zip(names, map(float, values), strict=True))

  def errors(values: Array) -> tuple[Array, float]:
    left = np.log(seconds) - logarithms(figures(values))
    return left - left.mean(), float(left.mean())

  def badness(values: Array) -> float:
    return float((errors(values)[0] ** 2).mean() + weight**2 * (((values - first) / scale) ** 2).sum())

  first = now = np.array([start[name] for name in names])
  for _ in range(STEPS):
    error, _ = errors(now)
    columns = [(errors(now + scale * CHANGE * unit)[0] - error) / CHANGE for unit in np.eye(len(names))]
    slopes = np.stack(columns, axis=1) / np.sqrt(len(error))
    pull = weight * np.eye(len(names))
    step = -np.linalg.lstsq(
      np.concatenate([slopes, pull]), np.concatenate([error / np.sqrt(len(error)), pull @ ((now - first) / scale)])
    )[0]
    step /= max(1.0, float(np.abs(step).max()) / LARGEST)
    tries = [np.maximum(now + scale * step * part, least) for part in (1.0, 0.5, 0.25, 0.1, 0.02)]
    better = min(tries, key=badness)
    if badness(better) >= badness(now) * (1 - 1e-9):
      break
    now = better
  after, offset = errors(now)
  return Fit(figures(now), float(np.exp(-offset)), errors(first)[0], after)


def report(samples: Sequence[Sample], start: Figures, found: Fit) -> list[str]:
  """Lines: each figure that changed, the error before and after, and the tilings that are estimated worst."""
  lines = [f"{'figure':<24} {'default':>9} {'fitted':>9}"]
  lines += [
    f"{name:<24} {start[name]:9.3g} {value:9.3g}"
    for name, value in found.figures.items()
    if abs(value - start[name]) > 0.02 * (abs(start[name]) or 0.1)
  ]
  before, after = (float(np.sqrt((e**2).mean())) for e in (found.before, found.after))
  lines.append(f"clock {found.clock * 1e-9:.2f} GHz; error of {len(samples)} times {before:.1%}, {after:.1%} fitted")
  worst = sorted(zip(found.after, samples, strict=True), key=lambda each: -abs(each[0]))[:5]
  lines += [f"  {np.exp(error):.2f} times the estimate: {described(s.tiling)}" for error, s in worst]
  return lines


def main() -> None:
  """See the head of this file."""
  options = options_of(None, __doc__, 30)
  from tiny_runtime_cpu import host_arch
  from tiny_runtime_cpu.compiler import renderer_for

  target = renderer_for(host_arch()).target
  kernels = [kernel for name in names_of(options.only) for kernel in kernels_of(name)]
  samples = [Sample(*each) for kernel in kernels for each in measured(kernel, options)[0]]
  if not samples:
    raise SystemExit(f"no kernel of {options.only} is a sum of products of two operands")
  start = figures_of(target.cost)
  found = fit(estimates(samples, target), np.array([s.seconds for s in samples]), start)
  print(*report(samples, start, found), sep="\n")


if __name__ == "__main__":
  main()
