"""Places the nodes of a graph in layers: sources above, users below.

Layers are longest paths; the order in them comes from sweeps that move each node to the mean place of its neighbours
(Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981). The same graph
always gets the same places. The work is O(nodes log nodes + edges).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SWEEPS = 2
"""Down and up; more of them change little."""
GAP = 14.0
"""Pixels between nodes of a layer."""
ROW = 64.0
"""Pixels from one layer to the next."""


@dataclass(frozen=True, slots=True)
class Layout:
  """Where nodes stand, in pixels: `x` is the middle of each, `layers` counts from the top."""

  x: list[float]
  layers: list[int]


def place(sources: Sequence[Sequence[int]], widths: Sequence[float]) -> Layout:
  """The layout of a graph whose nodes come after their sources: node `n` has the sources `sources[n]`, all of them
  less than `n`, and is `widths[n]` pixels wide."""
  users: list[list[int]] = [[] for _ in sources]
  for node, of_node in enumerate(sources):
    for source in of_node:
      users[source].append(node)
  layers = _layers(sources, users)
  rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
  for node in _first_order(sources, users):
    rows[layers[node]].append(node)
  place_of = [0.0] * len(layers)
  for row in rows:
    for i, node in enumerate(row):
      place_of[node] = i - len(row) / 2
  for _ in range(SWEEPS):
    for row in rows:
      _sort(row, sources, place_of)
    for row in reversed(rows):
      _sort(row, users, place_of)
  x = _spread(rows, widths)
  for _ in range(SWEEPS):
    for row in rows:
      _pull(row, sources, x, widths)
    for row in reversed(rows):
      _pull(row, users, x, widths)
  left = min((x[n] - widths[n] / 2 for n in range(len(x))), default=0.0)
  return Layout([round(at - left, 1) for at in x], layers)


def _layers(sources: Sequence[Sequence[int]], users: Sequence[Sequence[int]]) -> list[int]:
  """Longest paths from the top; a node all of whose users are far below stands right above the first of them."""
  layers = [0] * len(sources)
  for node, of_node in enumerate(sources):
    for source in of_node:
      layers[node] = max(layers[node], layers[source] + 1)
  for node in range(len(sources) - 1, -1, -1):
    if users[node]:
      layers[node] = min([layers[user] for user in users[node]]) - 1
  return layers


def _first_order(sources: Sequence[Sequence[int]], users: Sequence[Sequence[int]]) -> list[int]:
  """Depth first from the nodes without users, so that what belongs together is near."""
  seen = [False] * len(sources)
  order: list[int] = []
  for root in range(len(sources) - 1, -1, -1):
    if users[root]:
      continue
    stack = [root]
    while stack:
      node = stack.pop()
      if not seen[node]:
        seen[node] = True
        order.append(node)
        stack.extend(reversed(sources[node]))
  return order


def _sort(row: list[int], neighbours: Sequence[Sequence[int]], place_of: list[float]) -> None:
  keys = {node: _mean(neighbours[node], place_of, place_of[node]) for node in row}
  row.sort(key=keys.__getitem__)  # stable: what is equal keeps its order
  for i, node in enumerate(row):
    place_of[node] = i - len(row) / 2


def _mean(nodes: Sequence[int], of: list[float], default: float) -> float:
  return sum([of[n] for n in nodes]) / len(nodes) if nodes else default


def _spread(rows: list[list[int]], widths: Sequence[float]) -> list[float]:
  """Each row side by side, around 0."""
  x = [0.0] * len(widths)
  for row in rows:
    at = -sum([widths[node] + GAP for node in row]) / 2
    for node in row:
      x[node] = at + (widths[node] + GAP) / 2
      at += widths[node] + GAP
  return x


def _pull(row: list[int], neighbours: Sequence[Sequence[int]], x: list[float], widths: Sequence[float]) -> None:
  """Move nodes towards their neighbours as far as the order of the row allows: the mean of what pushing to the right
  and pushing to the left gives, each of which keeps nodes apart."""
  wanted = [_mean(neighbours[node], x, x[node]) for node in row]
  right, left = wanted[:], wanted[:]
  for i in range(1, len(row)):
    right[i] = max(right[i], right[i - 1] + (widths[row[i - 1]] + widths[row[i]]) / 2 + GAP)
  for i in range(len(row) - 2, -1, -1):
    left[i] = min(left[i], left[i + 1] - (widths[row[i + 1]] + widths[row[i]]) / 2 - GAP)
  for i, node in enumerate(row):
    x[node] = (right[i] + left[i]) / 2
