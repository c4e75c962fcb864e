"""ai.onnx.ml: ensembles of trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.ops.ml import ML, Array, chosen, floats, labels_of, transformed
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Host, Value, checked_count, shape_of
from tiny_tensor import Tensor, dtypes


@dataclass
class Trees:
  """An ensemble as tables with a row for each node: a leaf leads to itself."""

  roots: Array
  features: Array
  thresholds: Array
  modes: Array
  true: Array
  false: Array
  missing_true: Array
  depth: int

  def leaves(self, x: Tensor) -> Tensor:
    """The leaf of each row of `x` in each tree: (rows, trees)."""
    rows = shape_of(x)[0]
    at = Tensor(self.roots.astype(np.int64)).reshape(1, -1).expand(rows, len(self.roots)).contiguous()
    tables = [Tensor(a) for a in (self.features.astype(np.int64), self.thresholds, self.modes.astype(np.int32))]
    true, false, missing = (
      Tensor(self.true.astype(np.int64)),
      Tensor(self.false.astype(np.int64)),
      Tensor(self.missing_true.astype(bool)),
    )
    for _ in range(self.depth):
      feature, threshold, mode = (t[at] for t in tables)
      value = x.gather(1, feature)
      goes = compare(value, threshold, mode, sorted(set(self.modes.tolist()))) | (value.isnan() & missing[at])
      at = goes.where(true[at], false[at]).realize()
    return at


COMPARISONS: list[tuple[str, Callable[[Tensor, Tensor], Tensor]]] = [
  ("BRANCH_LEQ", lambda v, t: v <= t), ("BRANCH_LT", lambda v, t: v < t), ("BRANCH_GTE", lambda v, t: v >= t),
  ("BRANCH_GT", lambda v, t: v > t), ("BRANCH_EQ", lambda v, t: v == t), ("BRANCH_NEQ", lambda v, t: v != t),
]  # fmt: skip
MEMBER = 6
"""The mode of a node that asks whether a value is in a set. TreeEnsemble counts modes as `COMPARISONS` does."""


def compare(value: Tensor, threshold: Tensor, mode: Tensor, used: list[int]) -> Tensor:
  made = value <= threshold
  for number in used:
    if 0 < number < MEMBER:
      made = (mode == number).where(COMPARISONS[number][1](value, threshold), made)
  return made


def columns(call: Call, prefix: str, first: str, *more: str) -> list[list[Any]]:
  """Attributes with an entry for each node, or leaf. Raises ModelError where one has more or fewer than the first."""
  count = len(column(call, prefix + first))
  return [list(column(call, prefix + name, count)) for name in (first, *more)]


def column(call: Call, name: str, count: int | None = None, default: Any = None) -> Any:
  """An attribute with an entry for each node or leaf, in a list or a tensor; `default` for each where there is none."""
  found = call[name] if call[name] is not None else call[f"{name}_as_tensor"]
  if not found and default is not None:
    return [default] * (count or 0)
  entries = found.array.reshape(-1) if isinstance(found, Host) else found
  if entries is None or len(entries) != (len(entries) if count is None else count):
    raise ModelError(f"attribute {name!r} has {None if entries is None else len(entries)} entries, expected {count}")
  return entries


def place_in(row: dict[tuple[int, int], int], key: tuple[int, int]) -> int:
  """The row of a (tree, node). Raises ModelError where there is no such node."""
  if key not in row:
    raise ModelError(f"tree {key[0]} has no node {key[1]}")
  return row[key]


def by_node_ids(call: Call) -> tuple[Trees, dict[tuple[int, int], int]]:
  """Trees of a TreeEnsembleClassifier or -Regressor, and the rows of (tree, node)."""
  trees, nodes, features, modes, true, false = columns(
    call, "nodes_", "treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids"
  )
  row = {(t, n): i for i, (t, n) in enumerate(zip(trees, nodes))}
  names = [*[name for name, _ in COMPARISONS], "LEAF"]
  values = column(call, "nodes_values", len(nodes))
  if wrong := set(modes) - set(names):
    raise ModelError(f"nodes_modes has {sorted(wrong)}, expected {names}")
  leaf = [m == "LEAF" for m in modes]
  down = [
    (i, i) if leaf[i] else (place_in(row, (t, true[i])), place_in(row, (t, false[i]))) for i, t in enumerate(trees)
  ]
  roots: dict[int, int] = {}
  for i, t in enumerate(trees):
    roots.setdefault(t, i)
  missing = column(call, "nodes_missing_value_tracks_true", len(nodes), 0)
  made = Trees(
    np.array(list(roots.values())), np.array(features), np.asarray(values),
    np.array([0 if leaf[i] else names.index(m) for i, m in enumerate(modes)]), np.array([d[0] for d in down]),
    np.array([d[1] for d in down]), np.array(missing), depth_of(list(roots.values()), down),
  )  # fmt: skip
  return made, row


def depth_of(roots: list[int], down: list[tuple[int, int]]) -> int:
  """Steps from a root to the deepest leaf. Raises ModelError for nodes in a circle."""
  level, depth = set(roots), 0
  while level := {child for i in level for child in down[i] if child != i}:
    depth += 1
    if depth > len(down):
      raise ModelError("the nodes of a tree lead back to themselves")
  return depth


def aggregated(parts: Tensor, how: str) -> Tensor:
  """(rows, trees, targets) of contributions as (rows, targets)."""
  return {"SUM": parts.sum(1), "AVERAGE": parts.mean(1), "MIN": parts.min(1), "MAX": parts.max(1)}[how]


def contributions(call: Call, row: dict[tuple[int, int], int], kind: str, width: int, count: int) -> Array:
  """What each node adds to each target or class: rows of zeros but at leaves."""
  trees, nodes, places = columns(call, f"{kind}_", "treeids", "nodeids", "ids")
  weights = column(call, f"{kind}_weights", len(trees))
  checked_count(count * width, "leaves of trees")
  if wrong := [place for place in places if not 0 <= place < width]:
    raise ModelError(f"attribute {kind}_ids has {wrong[0]}, expected 0 to {width - 1}")
  table = np.zeros((count, width), np.float64 if getattr(weights, "dtype", None) == np.float64 else np.float32)
  for tree, node, place, weight in zip(trees, nodes, places, weights):
    table[place_in(row, (tree, node)), place] += weight
  return table


@op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(call: Call, x: Tensor) -> Tensor:
  trees, row = by_node_ids(call)
  table = contributions(call, row, "target", call["n_targets"], len(trees.features))
  made = aggregated(Tensor(table)[trees.leaves(floats(x))], call["aggregate_function"])
  if call["base_values"]:
    made = made + Tensor(call["base_values"]).cast(made.dtype)
  return transformed(made, call["post_transform"]).cast(dtypes.float32)


@op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(call: Call, x: Tensor) -> tuple[Value, Tensor]:
  trees, row = by_node_ids(call)
  labels, _ = labels_of(call)
  table = contributions(call, row, "class", len(labels), len(trees.features))
  scores = Tensor(table)[trees.leaves(floats(x))].sum(1)
  if call["base_values"]:
    scores = scores + Tensor(call["base_values"]).cast(scores.dtype)
  if len(labels) == 2 and len(set(call["class_ids"])) == 1:
    positive = scores[:, call["class_ids"][0] : call["class_ids"][0] + 1]
    if call["post_transform"] == "LOGISTIC":
      positive = positive.sigmoid()
    scores = (1 - positive).cat(positive, dim=1)
    return chosen(call, scores.argmax(1)), scores.cast(dtypes.float32)
  return chosen(call, scores.argmax(1)), transformed(scores, call["post_transform"]).cast(dtypes.float32)


@op("TreeEnsemble", 5, domain=ML)
def tree_ensemble(call: Call, x: Tensor) -> Tensor:
  """Trees whose children are nodes or leaves; a node may ask whether a value is in a set, which is a chain of nodes."""
  modes = call["nodes_modes"].array.astype(np.int64)
  count = len(modes)
  splits = call["nodes_splits"].array
  sets: list[list[float]] = [[]]
  for value in [] if call["membership_values"] is None else call["membership_values"].array:
    if np.isnan(value):
      sets.append([])
    else:
      sets[-1].append(float(value))
  features, thresholds = list(call["nodes_featureids"]), [*splits]
  leaf = [call["nodes_trueleafs"], call["nodes_falseleafs"]]
  target = [call["nodes_truenodeids"], call["nodes_falsenodeids"]]
  leaves = len(call["leaf_targetids"])
  # rows: nodes, then leaves, then what sets need more of
  down = [tuple(count + target[s][i] if leaf[s][i] else target[s][i] for s in (0, 1)) for i in range(count)]
  down += [(count + i, count + i) for i in range(leaves)]
  kinds = [*modes.tolist(), *[0] * leaves]
  features += [0] * leaves
  thresholds += [splits.dtype.type(0)] * leaves
  missing = [*(call["nodes_missing_value_tracks_true"] or [0] * count), *[0] * leaves]
  number = 0
  for i in range(count):
    if kinds[i] != MEMBER:
      continue
    members, (yes, no) = sets[number], down[i]
    number += 1
    at = i
    for place, member in enumerate(members):
      last = place == len(members) - 1
      kinds[at], thresholds[at], features[at] = 4, splits.dtype.type(member), features[i]
      down[at] = (yes, no if last else len(down))
      if not last:
        at = len(down)
        down.append((yes, no))
        kinds.append(4)
        features.append(features[i])
        thresholds.append(splits.dtype.type(0))
        missing.append(missing[i])
  roots = list(call["tree_roots"])
  pairs = [(int(a), int(b)) for a, b in down]
  trees = Trees(
    np.array(roots), np.array(features), np.array(thresholds, splits.dtype), np.array(kinds),
    np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]), np.array(missing), depth_of(roots, pairs),
  )  # fmt: skip
  checked_count(len(pairs) * call["n_targets"], "leaves of trees")
  table = np.zeros((len(pairs), call["n_targets"]), splits.dtype)
  for i, (place, weight) in enumerate(zip(call["leaf_targetids"], call["leaf_weights"].array)):
    table[count + i, place] += weight
  how = call.choice("aggregate_function", dict(enumerate(("AVERAGE", "SUM", "MIN", "MAX"))))
  after = call.choice("post_transform", dict(enumerate(("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"))))
  return transformed(aggregated(Tensor(table)[trees.leaves(x)], how), after).cast(x.dtype)
