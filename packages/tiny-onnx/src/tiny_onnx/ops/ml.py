"""ai.onnx.ml: what classical machine learning exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Host, Value, checked_count, host_of, shape_of, tensor_of
from tiny_tensor import Tensor, dtypes

ML = "ai.onnx.ml"
Array = np.ndarray[Any, Any]


def floats(x: Value) -> Tensor:
  t = tensor_of(x)
  return t if t.is_floating_point() and t.dtype.bits >= 32 else t.cast(dtypes.float32)


@op("Binarizer", domain=ML)
def binarizer(call: Call, x: Tensor) -> Tensor:
  return (x > call["threshold"]).cast(x.dtype)


@op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(call: Call, x: Tensor, places: Tensor) -> Tensor:
  found = x[..., places.reshape(-1)]
  return found.unsqueeze(0) if x.ndim == 1 else found


@op("Scaler", domain=ML)
def scaler(call: Call, x: Tensor) -> Tensor:
  return (floats(x) - Tensor(call["offset"])) * Tensor(call["scale"])


@op("Normalizer", domain=ML)
def normalizer(call: Call, x: Tensor) -> Tensor:
  t = floats(x)
  norms = {"MAX": t.abs().max(-1, True), "L1": t.abs().sum(-1, True), "L2": (t * t).sum(-1, True).sqrt()}
  norm = norms[call["norm"]]
  return t / (norm == 0).where(1, norm)


@op("Imputer", domain=ML)
def imputer(call: Call, x: Tensor) -> Tensor:
  integers = not x.is_floating_point()
  new = call["imputed_value_int64s"] if integers else call["imputed_value_floats"]
  old = call["replaced_value_int64"] if integers else call["replaced_value_float"]
  gone = x.isnan() if not integers and np.isnan(old) else x == old
  return gone.where(Tensor(new).cast(x.dtype), x)


@op("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: Call, *features: Tensor) -> Tensor:
  parts = [floats(f).cast(dtypes.float32).reshape(shape_of(f)[0], -1) for f in features]
  return parts[0].cat(*parts[1:], dim=1) if len(parts) > 1 else parts[0]


def mapping_of(call: Call) -> tuple[list[Any], list[Any], Any]:
  """(keys, values, default) of a LabelEncoder, however its attributes have them."""
  lists: dict[str, list[Any]] = {}
  for side in ("keys", "values"):
    for kind in ("strings", "int64s", "floats", "tensor"):
      found = call[f"{side}_{kind}"]
      if found is not None and side not in lists:
        lists[side] = list(found.array.reshape(-1)) if isinstance(found, Host) else list(found)
  if lists.keys() != {"keys", "values"} or len(lists["keys"]) != len(lists["values"]):
    raise ModelError("a LabelEncoder has as many keys as values")
  first = lists["values"][0] if lists["values"] else 0
  if isinstance(call["default_tensor"], Host):
    return lists["keys"], lists["values"], call["default_tensor"].array.reshape(-1)[0]
  kind = "string" if isinstance(first, str) else "float" if isinstance(first, (float, np.floating)) else "int64"
  return lists["keys"], lists["values"], call[f"default_{kind}"]


def mapped(x: Array, keys: list[Any], values: list[Any], default: Any) -> Value:
  known = dict(zip(keys, values))
  nan = next((v for k, v in known.items() if isinstance(k, (float, np.floating)) and np.isnan(k)), default)
  found = [
    nan if isinstance(k, (float, np.floating)) and np.isnan(k) else known.get(k, default)
    for k in x.reshape(-1).tolist()
  ]
  first = values[0] if values else default
  kind: Any = object if isinstance(first, str) else np.int64 if isinstance(first, int) else np.float32
  if isinstance(first, np.generic):
    kind = first.dtype
  return Host(np.array(found, kind).reshape(x.shape))


@op("LabelEncoder", 2, domain=ML, raw=True, needs=(0,))
def label_encoder(call: Call, x: Value) -> Value:
  return mapped(host_of(x), *mapping_of(call))


@op("LabelEncoder", 1, domain=ML, raw=True, needs=(0,))
def label_encoder_of_classes(call: Call, x: Value) -> Value:
  classes, array = call["classes_strings"], host_of(x)
  if array.dtype.kind == "O":
    return mapped(array, classes, list(range(len(classes))), call["default_int64"])
  return mapped(array, list(range(len(classes))), classes, call["default_string"])


@op("CategoryMapper", domain=ML, raw=True, needs=(0,))
def category_mapper(call: Call, x: Value) -> Value:
  array = host_of(x)
  if array.dtype.kind == "O":
    return mapped(array, call["cats_strings"], call["cats_int64s"], call["default_int64"])
  return mapped(array, call["cats_int64s"], call["cats_strings"], call["default_string"])


@op("OneHotEncoder", domain=ML, raw=True, needs=(0,))
def one_hot_encoder(call: Call, x: Value) -> Value:
  array = host_of(x)
  classes = call["cats_strings"] if array.dtype.kind == "O" else call["cats_int64s"]
  made = np.array([[float(v == c) for c in classes] for v in array.reshape(-1).tolist()], np.float32)
  if not call["zeros"] and not made.any(-1).all():
    raise ModelError("a value is none of the categories, and `zeros` is 0")
  return Host(made.reshape([*array.shape, len(classes)]))


def labels_of(call: Call) -> tuple[list[Any], bool]:
  """(labels, whether they are strings) of a classifier."""
  words = call["classlabels_strings"]
  return (words, True) if words else (call.get("classlabels_int64s", call["classlabels_ints"]) or [], False)


def chosen(call: Call, places: Tensor) -> Value:
  """The labels at these places."""
  labels, words = labels_of(call)
  if words:
    return Host(np.array(labels, object)[places.numpy()])
  return Tensor(np.array(labels, np.int64))[places]


def transformed(scores: Tensor, name: str) -> Tensor:
  """Scores after the transformation that a classifier or regressor names."""
  known: dict[str, Callable[[Tensor], Tensor]] = {
    "NONE": lambda s: s,
    "LOGISTIC": lambda s: s.sigmoid(),
    "SOFTMAX": lambda s: s.softmax(-1),
    "SOFTMAX_ZERO": lambda s: (s == 0).where(0, s.exp() / (s == 0).where(0, s.exp()).sum(-1, True)),
    "PROBIT": lambda s: (s * 2 - 1).erfinv() * float(np.sqrt(2)),
  }
  if name not in known:
    raise ModelError(f"there is no transformation {name!r}")
  return known[name](scores)


@op("LinearRegressor", domain=ML)
def linear_regressor(call: Call, x: Tensor) -> Tensor:
  t = floats(x).cast(dtypes.float32)
  weights = Tensor(np.array(call["coefficients"], np.float32).reshape(call["targets"], -1))
  made = t.reshape(shape_of(t)[0], -1).matmul(weights.transpose(0, 1))
  return transformed(made if call["intercepts"] is None else made + Tensor(call["intercepts"]), call["post_transform"])


@op("LinearClassifier", domain=ML)
def linear_classifier(call: Call, x: Tensor) -> tuple[Value, Tensor]:
  t = floats(x).cast(dtypes.float32)
  labels, _ = labels_of(call)
  width = shape_of(t)[-1]
  weights = Tensor(np.array(call["coefficients"], np.float32).reshape(-1, width))
  scores = t.reshape(-1, width).matmul(weights.transpose(0, 1))
  if call["intercepts"]:
    scores = scores + Tensor(call["intercepts"])
  if shape_of(scores)[1] == 1 and len(labels) == 2:
    places = (scores.reshape(-1) > 0).cast(dtypes.int64)
    both = (
      (1 - scores.sigmoid()).cat(scores.sigmoid(), dim=1)
      if call["post_transform"] == "LOGISTIC"
      else (0 - scores).cat(scores, dim=1)
    )
    return chosen(call, places), both
  return chosen(call, scores.argmax(1)), transformed(scores, call["post_transform"])


# trees


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


def by_node_ids(call: Call) -> tuple[Trees, dict[tuple[int, int], int]]:
  """Trees of a TreeEnsembleClassifier or -Regressor, and the rows of (tree, node)."""
  trees, nodes = call["nodes_treeids"], call["nodes_nodeids"]
  row = {(t, n): i for i, (t, n) in enumerate(zip(trees, nodes))}
  names = [name for name, _ in COMPARISONS]
  modes = call["nodes_modes"]
  values = call["nodes_values"] if call["nodes_values"] is not None else call["nodes_values_as_tensor"].array
  leaf = [m == "LEAF" for m in modes]
  true, false = call["nodes_truenodeids"], call["nodes_falsenodeids"]
  down = [(i, i) if leaf[i] else (row[t, true[i]], row[t, false[i]]) for i, t in enumerate(trees)]
  roots: dict[int, int] = {}
  for i, t in enumerate(trees):
    roots.setdefault(t, i)
  missing = call["nodes_missing_value_tracks_true"] or [0] * len(nodes)
  made = Trees(
    np.array(list(roots.values())), np.array(call["nodes_featureids"]), np.asarray(values),
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
  weights = call[f"{kind}_weights"] if call[f"{kind}_weights"] is not None else call[f"{kind}_weights_as_tensor"].array
  checked_count(count * width, "leaves of trees")
  table = np.zeros((count, width), np.float64 if getattr(weights, "dtype", None) == np.float64 else np.float32)
  for tree, node, place, weight in zip(call[f"{kind}_treeids"], call[f"{kind}_nodeids"], call[f"{kind}_ids"], weights):
    table[row[tree, node], place] += weight
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
  how = ["AVERAGE", "SUM", "MIN", "MAX"][call["aggregate_function"]]
  names = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
  return transformed(aggregated(Tensor(table)[trees.leaves(x)], how), names[call["post_transform"]]).cast(x.dtype)


# support vectors


def kernel_of(call: Call, x: Tensor, vectors: Tensor) -> Tensor:
  """Kernels of rows and support vectors: (rows, vectors)."""
  gamma, constant, degree = call["kernel_params"] or [0.0, 0.0, 0.0]
  product = x.matmul(vectors.transpose(0, 1))
  if call["kernel_type"] == "RBF":
    apart = (x * x).sum(1, True) + (vectors * vectors).sum(1) - product * 2
    return (apart * -gamma).exp()
  known: dict[str, Callable[[], Tensor]] = {
    "LINEAR": lambda: product,
    "POLY": lambda: (product * gamma + constant).pow(degree),
    "SIGMOID": lambda: (product * gamma + constant).tanh(),
  }
  return known[call["kernel_type"]]()


@op("SVMRegressor", domain=ML)
def svm_regressor(call: Call, x: Tensor) -> Tensor:
  t, count = floats(x).cast(dtypes.float32), call["n_supports"]
  coefficients = Tensor(np.array(call["coefficients"], np.float32))
  if count:
    vectors = Tensor(np.array(call["support_vectors"], np.float32).reshape(count, -1))
    made = kernel_of(call, t, vectors).matmul(coefficients.reshape(-1, 1))
  else:
    made = kernel_of(call, t, coefficients.reshape(1, -1))
  made = made + call["rho"][0]
  return transformed((made > 0).where(1, -1).cast(made.dtype) if call["one_class"] else made, call["post_transform"])


def one_against_one(call: Call, t: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
  """(scores of each pair of classes, votes that each class gets) of an SVM with so many vectors per class. The vectors
  of one class have a row of coefficients for each other class."""
  total = sum(counts)
  kernels = kernel_of(call, t, Tensor(np.array(call["support_vectors"], np.float32).reshape(total, -1)))
  table = np.array(call["coefficients"], np.float32).reshape(len(counts) - 1, total)
  owner = np.repeat(np.arange(len(counts)), counts)
  pairs = [(i, j) for i in range(len(counts)) for j in range(i + 1, len(counts))]
  weights = np.array([np.where(owner == i, table[j - 1], np.where(owner == j, table[i], 0)) for i, j in pairs])
  scores = kernels.matmul(Tensor(weights.T.astype(np.float32).copy())) + Tensor(np.array(call["rho"], np.float32))
  first, second = (Tensor(np.array([pair[side] for pair in pairs])) for side in (0, 1))
  winners = (scores > 0).where(first, second).unsqueeze(-1)
  return scores, (winners == Tensor(np.arange(len(counts)))).cast(dtypes.float32).sum(1)


def coupled(pairs: Array) -> Array:
  """Probabilities of classes from those of pairs, `pairs[i, j]` that it is i if it is i or j: Wu, Lin and Weng,
  "Probability estimates for multi-class classification by pairwise coupling" (2004), algorithm 2."""
  count = len(pairs)
  q = -pairs.T * pairs
  np.fill_diagonal(q, (pairs**2).sum(0) - np.diag(pairs) ** 2)
  p = np.full(count, 1 / count)
  for _ in range(max(100, count)):
    product = q @ p
    value = p @ product
    if np.abs(product - value).max() < 0.005 / count:
      break
    for t in range(count):
      step = (value - product[t]) / q[t, t]
      value = (value + step * (step * q[t, t] + 2 * product[t])) / (1 + step) ** 2
      product = (product + step * q[t]) / (1 + step)
      p[t] += step
      p /= 1 + step
  return p


def probabilities(call: Call, scores: Array, classes: int) -> Array:
  """Those of the classes, in each row, from scores of pairs."""
  of_pairs = 1 / (1 + np.exp(scores.astype(np.float64) * call["prob_a"] + call["prob_b"]))
  found = np.zeros((len(scores), classes, classes))
  rows, columns = np.triu_indices(classes, 1)
  found[:, rows, columns] = of_pairs.clip(1e-7, 1 - 1e-7)
  found[:, columns, rows] = 1 - found[:, rows, columns]
  return np.array([coupled(row) for row in found], np.float32).reshape(-1, classes)


@op("SVMClassifier", domain=ML)
def svm_classifier(call: Call, x: Tensor) -> tuple[Value, Tensor]:
  labels, _ = labels_of(call)
  t, counts = floats(x).cast(dtypes.float32), call["vectors_per_class"] or []
  if sum(counts):
    scores, votes = one_against_one(call, t, counts)
  else:
    weights = np.array(call["coefficients"], np.float32).reshape(max(len(labels), 1), -1)
    scores = votes = t.matmul(Tensor(weights.T.copy())) + call["rho"][0]
  best, most = votes.argmax(1), votes.max(1)
  likely = bool(call["prob_a"]) and bool(sum(counts))
  if likely:
    scores = Tensor(probabilities(call, scores.numpy(), len(counts)))
  elif len(call["rho"]) == 1 and len(labels) == 2 and min(call["coefficients"]) >= 0:
    best = (most >= 0.5).where(1, best)
  if len(call["rho"]) == 1 and len(labels) != 2:
    found: Value = (most > 0).cast(dtypes.int64)
  else:
    found = chosen(call, best)
  if shape_of(scores)[1] == 1 and len(labels) == 2:
    scores = (0 - scores).cat(scores, dim=1)
  return found, transformed(scores, call["post_transform"])


# maps


def map_of(x: Value) -> dict[Any, Any]:
  """The dict that was given for a map. Raises ModelError for anything else."""
  found = host_of(x).reshape(-1).tolist()
  if len(found) != 1 or not isinstance(found[0], dict):
    raise ModelError("expected a map: give a dict")
  return found[0]


@op("DictVectorizer", domain=ML, raw=True, needs=(0,))
def dict_vectorizer(call: Call, x: Value) -> Value:
  words, given = call["string_vocabulary"] or call["int64_vocabulary"] or [], map_of(x)
  kind = next((type(v) for v in given.values()), float)
  dtype: Any = object if kind is str else np.int64 if kind is int else np.float32
  return Host(np.array([[given.get(word, kind()) for word in words]], dtype))


@op("CastMap", domain=ML, raw=True, needs=(0,))
def cast_map(call: Call, x: Value) -> Value:
  given = map_of(x)
  kinds: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "TO_FLOAT": (float, np.float32), "TO_INT64": (int, np.int64), "TO_STRING": (str, object)
  }  # fmt: skip
  cast, dtype = kinds[call["cast_to"]]
  keys = range(call["max_map"]) if call["map_form"] == "SPARSE" else sorted(given)
  if call["map_form"] == "SPARSE" and any(not 0 <= key < call["max_map"] for key in given):
    raise ModelError(f"keys of a sparse map are from 0 to {call['max_map'] - 1}: got {sorted(given)}")
  zero = "0.0" if dtype is object else 0
  return Host(np.array([[cast(given[key]) if key in given else zero for key in keys]], dtype))


@op("ZipMap", domain=ML, raw=True, needs=(0,))
def zip_map(call: Call, x: Value) -> tuple[Value]:
  """Rows of scores as dicts by label."""
  labels, _ = labels_of(call)
  return ([dict(zip(labels, row.tolist())) for row in host_of(x)],)
