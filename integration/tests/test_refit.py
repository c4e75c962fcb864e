"""The fit of the cost model's figures, on times that another cost model gives: nothing is measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from tiny_codegen import cpu_target
from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.opt.beam import before_opts
from tiny_codegen.tiling.choose import ranked_tilings
from tiny_runtime.conformance.standard import matmul
from tiny_uop import dtypes

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from refit import Sample, estimates, figures_of, fit, report, with_figures

TARGET = cpu_target("x86_64", "", ("+avx", "+avx2", "+fma", "+sse4.1")).target
F32 = dtypes.float32


def samples(cost_figures: dict[str, float], clock: float) -> list[Sample]:
  """All that a machine with these figures would measure of two products."""
  target = replace(TARGET, cost=with_figures(TARGET.cost, cost_figures))
  found = []
  for kernel in (matmul(96, 192, 512, F32, F32, F32), matmul(640, 640, 640, F32, F32, F32, True)):
    product = SumOfProducts.of(before_opts(kernel))
    assert product is not None
    tilings = ranked_tilings(product, target)
    found += [Sample(product, tiling, tiling.cycles / clock) for tiling in tilings[:: len(tilings) // 40]]
  return found


def test_figures_are_recovered() -> None:
  truth = {"copy": 0.3, "gather": 2.5, "loads": 1.8, "second_bytes": 16.0, "tile": 45.0}
  measured = samples(truth, 3e9)
  start = {name: figures_of(TARGET.cost)[name] for name in truth}
  found = fit(estimates(measured, TARGET), np.array([s.seconds for s in measured]), start, weight=1e-6)
  assert np.abs(found.before).max() > 0.2 and np.abs(found.after).max() < 0.02
  assert {name: round(value / truth[name], 1) for name, value in found.figures.items()} == dict.fromkeys(truth, 1.0)
  assert abs(found.clock / 3e9 - 1) < 0.02
  lines = report(measured, start, found)
  assert [line.split()[0] for line in lines[1:6]] == list(truth) and "fitted" in lines[6]


def test_figures_without_influence_stay() -> None:
  measured = samples({}, 2e9)
  start = figures_of(TARGET.cost)
  found = fit(estimates(measured, TARGET), np.array([s.seconds for s in measured]), start)
  assert found.figures == start and abs(found.clock / 2e9 - 1) < 1e-6


def test_pairs_and_counts() -> None:
  figures = figures_of(TARGET.cost)
  assert {"scattered.0", "scattered.1", "copy"} <= figures.keys() and "way" not in figures
  changed = with_figures(TARGET.cost, {"beyond.1": 9.0, "copy": 8.0})
  assert changed.beyond == (TARGET.cost.beyond[0], 9.0) and changed.copy == 8.0
