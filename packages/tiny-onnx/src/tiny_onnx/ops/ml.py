"""ai.onnx.ml: what classical machine learning exports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Host, Value, describe, host_of, shape_of, tensor_of
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
  if not classes:
    raise ModelError(f"there are no categories for {describe(x)}: cats_strings and cats_int64s")
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
