"""Where the nodes of a graph are placed."""

from __future__ import annotations

import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_viz.layout import GAP, place


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[float]]:
  count = draw(st.integers(0, 40))
  sources = [draw(st.lists(st.integers(0, n - 1), max_size=4)) if n else [] for n in range(count)]
  return sources, draw(st.lists(st.floats(10, 300), min_size=count, max_size=count))


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_sources_stand_above_and_nothing_overlaps(graph: tuple[list[list[int]], list[float]]) -> None:
  sources, widths = graph
  layout = place(sources, widths)
  assert all(layout.layers[s] < layout.layers[n] for n, of_node in enumerate(sources) for s in of_node)
  assert set(layout.layers) == set(range(max(layout.layers, default=-1) + 1))  # none is empty
  rows: dict[int, list[tuple[float, float]]] = {}
  for x, layer, width in zip(layout.x, layout.layers, widths):
    rows.setdefault(layer, []).append((x - width / 2, x + width / 2))
  for row in rows.values():
    row.sort()
    assert all(b[0] - a[1] >= GAP - 0.2 for a, b in zip(row, row[1:]))  # places are rounded
  assert min([x - w / 2 for x, w in zip(layout.x, widths)], default=0) >= -0.1
  assert place(sources, widths) == layout


def test_a_chain_stands_in_line() -> None:
  layout = place([[], [0], [1], [2]], [50.0, 10.0, 90.0, 30.0])
  assert layout.layers == [0, 1, 2, 3] and len(set(layout.x)) == 1


def test_a_source_stands_right_above_its_first_user() -> None:
  assert place([[], [0], [1], [], [2, 3]], [10.0] * 5).layers == [0, 1, 2, 2, 3]


def test_twenty_thousand_nodes_in_a_second() -> None:
  """Of processor time; a kernel has tens of nodes, the graph of a large model thousands."""
  pick = random.Random(1)
  sources = [
    [pick.randrange(max(0, n - 400), n) for _ in range(min(n, pick.choice((1, 2, 2, 3))))] for n in range(20_000)
  ]
  start = time.process_time()
  layout = place(sources, [80.0] * len(sources))
  assert time.process_time() - start < 1.0
  assert len(layout.x) == 20_000
