"""What every function of the Array API namespace is tried with: NumPy arrays in the place of arrays.

`CASES` has (arguments, keyword arguments) by the name of the function, `linalg.` in front of those of the extension.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

Case = tuple[tuple[Any, ...], dict[str, Any]]

FLOATS = ("float32", "float64")
INTS = ("int8", "uint16", "int32", "uint64")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, -2.5, 3.5, math.inf, -math.inf, math.nan)
PAIRS = np.array(list(itertools.product(SPECIAL, SPECIAL)))


def call(*args: Any, **kwargs: Any) -> Case:
  """The arguments of a call."""
  return args, kwargs


def draw(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
  """Random elements; integers from 0 (-5 for signed ones) to 5."""
  rng = np.random.default_rng([seed, *shape])
  if dtype == "bool":
    return rng.integers(0, 2, shape).astype(bool)
  if dtype.startswith("float"):
    return rng.standard_normal(shape).astype(dtype)
  return rng.integers(0 if dtype.startswith("u") else -5, 6, shape).astype(dtype)


def unary(*dtypes: str, values: Any = SPECIAL) -> list[Case]:
  """One vector of each dtype: special values for floats."""
  floats = [call(np.array(values, d)) for d in dtypes if d.startswith("float")]
  return floats + [call(draw(2, 3, dtype=d)) for d in dtypes if not d.startswith("float")]


def binary(*dtypes: str) -> list[Case]:
  """All pairs of special values for floats, matrices that broadcast for others, and a Python number on either side."""
  cases: list[Case] = []
  for d in dtypes:
    if d.startswith("float"):
      cases.append(call(PAIRS[:, 0].astype(d), PAIRS[:, 1].astype(d)))
    else:
      cases.append(call(draw(3, 1, dtype=d), draw(1, 4, dtype=d, seed=1)))
  first = draw(2, 3, dtype=dtypes[0])
  number = {"f": 2.0, "b": True}.get(dtypes[0][0], 3)
  return [*cases, call(first, number), call(number, first)]


MIXED = [
  call(draw(3, 1, dtype="int8"), draw(1, 4, dtype="int32")),
  call(draw(4, dtype="uint16"), draw(4, dtype="int8")),
]
SPD = np.array([[[4.0, 1, 0], [1, 3, -1], [0, -1, 2]], [[2, 0.5, 0], [0.5, 1, 0.25], [0, 0.25, 5]]])
SQUARE = draw(2, 3, 3, dtype="float64") + 2 * np.eye(3)
TALL = draw(3, 2)
DUPLICATES = np.array([[3, 1, 3], [2, 1, 3]], "int32")

CASES: dict[str, list[Case]] = {}

for name in "ceil floor trunc round abs negative square sign positive isnan isinf isfinite".split():
  CASES[name] = unary(*FLOATS, *INTS)
for name in "cos sin tan acos asin atan cosh sinh tanh acosh asinh atanh".split():
  CASES[name] = unary(*FLOATS)
for name in "exp expm1 log log1p log2 log10 sqrt reciprocal signbit".split():
  CASES[name] = unary(*FLOATS)
CASES["logical_not"] = unary("bool")
CASES["bitwise_invert"] = unary("bool", *INTS)
CASES["conj"] = CASES["real"] = []  # complex ones only in the oracle
CASES["imag"] = []
for name in "add subtract multiply maximum minimum less less_equal greater greater_equal".split():
  CASES[name] = binary(*FLOATS, *INTS) + MIXED
for name in "equal not_equal".split():
  CASES[name] = binary(*FLOATS, *INTS, "bool") + MIXED
for name in "divide atan2 logaddexp hypot copysign nextafter".split():
  CASES[name] = binary(*FLOATS)
for name in "logical_and logical_or logical_xor".split():
  CASES[name] = binary("bool")
for name in "bitwise_and bitwise_or bitwise_xor".split():
  CASES[name] = binary(*INTS, "bool") + MIXED
COUNTS = [(draw(3, 4, dtype=d), np.abs(draw(3, 4, dtype=d, seed=2))) for d in INTS]
CASES["bitwise_left_shift"] = CASES["bitwise_right_shift"] = [call(a, b) for a, b in COUNTS] + [call(COUNTS[0][0], 2)]
CASES["pow"] = binary(*FLOATS) + [call(draw(3, 4, dtype=d), np.abs(draw(4, dtype=d))) for d in INTS]
NONZERO = [(draw(3, 4, dtype=d), np.abs(draw(4, dtype=d)) + np.array(1, d)) for d in INTS]
CASES["remainder"] = binary(*FLOATS) + [call(a, b) for a, b in NONZERO]
FINITE = PAIRS[np.isfinite(PAIRS).all(1) & (PAIRS[:, 1] != 0)]
CASES["floor_divide"] = [call(a, b) for a, b in NONZERO] + [call(FINITE[:, 0], FINITE[:, 1]), call(FINITE[:, 0], -2.0)]
CASES["clip"] = [
  call(draw(3, 4), -0.5, 0.5),
  call(draw(3, 4), None, 0.25),
  call(draw(3, 4, dtype="int8"), min=-2),
  call(draw(3, 4), draw(4) - 1, draw(3, 1) + 1),
  call(draw(3)),
  call(np.array(SPECIAL), -1.0, 1.0),
]

A, B, N = draw(2, 3, 4), draw(2, 3, 4, seed=3), draw(3, 4, dtype="int32")

# *** creation ***
CASES["asarray"] = [call(A), call(A, dtype="float64"), call([[1, 2], [3, 4]]), call(2.5), call(True), call([])]
CASES["asarray"] += [call([1.5, 2]), call(N, copy=True), call((True, False)), call([[1, 2]], dtype="uint8")]
CASES["arange"] = [call(5), call(2, 9, 3), call(5, 0, -2), call(0.0, 1.0, 0.25), call(3, dtype="float64"), call(0)]
CASES["empty"] = CASES["empty_like"] = []  # shapes and dtypes only: in test_array_api.py
CASES["zeros"] = CASES["ones"] = [call((2, 3)), call(3), call((), dtype="int8"), call((0, 2)), call(2, dtype="bool")]
CASES["full"] = [call((2, 3), 7), call(2, 2.5), call((), True), call((2,), 3, dtype="float64")]
CASES["zeros_like"] = CASES["ones_like"] = [call(A), call(N), call(N, dtype="float64")]
CASES["full_like"] = [call(A, 3), call(N, -2), call(N, 2.5, dtype="float32")]
CASES["eye"] = [call(3), call(2, 4), call(4, 3, k=1), call(3, k=-2, dtype="int32"), call(0), call(3, k=5)]
CASES["linspace"] = [call(0, 1, 5), call(-2.0, 2.0, 7, dtype="float64"), call(0, 1, 4, endpoint=False), call(3, 9, 1)]
CASES["linspace"] += [call(0, 1, 0), call(5.0, 1.0, 3)]
CASES["meshgrid"] = [call(draw(3), draw(2)), call(draw(3), draw(2), indexing="ij"), call(draw(2), draw(3), draw(4))]
CASES["meshgrid"] += [call(), call(draw(2))]
CASES["tril"] = CASES["triu"] = [call(A), call(A, k=1), call(draw(3, 3, dtype="bool"), k=-1)]
CASES["from_dlpack"] = [call(N), call(draw(3, dtype="float64"))]

# *** data types ***
CASES["astype"] = [call(np.array([-1.5, 0.0, 2.7]), d) for d in ("int32", "float32", "bool", "int8")]
CASES["astype"] += [call(draw(3, dtype="bool"), "float32"), call(N, "int64"), call(N, "int32", copy=False)]

# *** manipulation ***
CASES["broadcast_arrays"] = [call(draw(3, 1), draw(4), draw(2, 1, 1)), call(draw(2))]
CASES["broadcast_to"] = [call(draw(3, 1), (2, 3, 4)), call(draw(), (2,))]
CASES["concat"] = [call([A, B]), call((A, B), axis=-1), call([N, N], axis=None), call([draw(2), draw(0)]), call([A])]
CASES["concat"] += [call([draw(2, dtype="int8"), draw(3, dtype="int32")]), call([draw(2, dtype="bool")] * 2)]
CASES["expand_dims"] = [call(N, 0), call(N, -1), call(N, 1), call(draw(), 0)]
CASES["flip"] = [call(A), call(A, axis=1), call(A, axis=(0, -1)), call(draw())]
CASES["moveaxis"] = [call(A, 0, -1), call(A, (0, 1), (2, 0)), call(A, -1, 0)]
CASES["permute_dims"] = [call(A, (2, 0, 1)), call(draw(), ())]
CASES["repeat"] = [call(N, 2), call(N, 3, axis=1), call(N, np.array([2, 0, 1]), axis=0), call(N, 0, axis=0)]
CASES["repeat"] += [call(draw(3), np.array([1, 2, 3])), call(draw(3), np.array([0, 0, 0])), call(draw(0), 2)]
CASES["reshape"] = [call(A, (4, 6)), call(A, (-1,)), call(A, (3, -1), copy=True), call(draw(1), ())]
CASES["roll"] = [
  call(A, 1),
  call(A, (1, -2), axis=(0, 2)),
  call(A, 5, axis=1),
  call(A, 1, axis=(0, 1)),
  call(draw(0), 1),
]
CASES["squeeze"] = [call(draw(1, 3, 1), 0), call(draw(1, 3, 1), (0, -1)), call(draw(1), (0,))]
CASES["stack"] = [call([A, B]), call([A, B], axis=-1), call((N,), axis=1)]
CASES["tile"] = [call(N, (2,)), call(N, (2, 1, 2)), call(A, (1, 2)), call(N, (0, 1)), call(draw(), (3,))]
CASES["unstack"] = [call(A), call(A, axis=1), call(A, axis=-1)]

# *** searching, sorting, sets ***
TIES = np.array([[3, 1, 3, 2], [0, 0, 5, 5]], "int16")
AXES: list[dict[str, Any]] = [{}, {"axis": 0}, {"axis": -1, "keepdims": True}]
MANY: list[dict[str, Any]] = [*AXES, {"axis": (0, 2)}, {"keepdims": True}, {"axis": ()}]
CASES["argmax"] = CASES["argmin"] = [((x,), k) for x in (A, TIES, draw()) for k in (AXES if x.ndim else AXES[:1])]
CASES["count_nonzero"] = [((draw(2, 3, 4, dtype="int8"),), k) for k in MANY[:-1]] + [call(draw(3, dtype="bool"))]
CASES["nonzero"] = [call(N), call(draw(5, dtype="bool")), call(np.zeros(3, "int8")), call(draw(0))]
ASCENDING = np.sort(draw(7))
CASES["searchsorted"] = [
  call(ASCENDING, draw(2, 3)),
  call(TIES[1], TIES[0], side="right"),
]
CASES["searchsorted"] += [call(draw(7), draw(4), sorter=np.argsort(draw(7))), call(ASCENDING, draw(0))]
CASES["where"] = [call(A > 0, A, B), call(draw(3, 1, dtype="bool"), N, 0), call(draw(4, dtype="bool"), 1.5, A)]
CASES["sort"] = [call(A), call(TIES, axis=0), call(A, axis=1, descending=True), call(TIES, descending=True)]
CASES["sort"] += [call(draw(0)), call(draw(6, dtype="uint64"))]
CASES["argsort"] = CASES["sort"]
CASES["take"] = [call(A, np.array([1, 0, 1]), axis=0), call(A, np.array([3, 0], "int8"), axis=-1)]
CASES["take"] += [call(draw(5), np.array([4, 4])), call(A, np.array([], "int64"), axis=1)]
CASES["take_along_axis"] = [call(A, np.argsort(A, axis=1), axis=1), call(A, np.zeros((2, 3, 2), "int64"))]
CASES["take_along_axis"] += [call(A, np.array([[[2, -1, 0, 1]]]), axis=1)]
CASES["unique_all"] = [call(DUPLICATES), call(TIES), call(draw(0, dtype="int32")), call(draw(4, dtype="bool"))]
CASES["unique_all"] += [call(np.array([1.0, math.nan, 1.0, math.nan, -0.0, 0.0]))]
CASES["unique_counts"] = CASES["unique_inverse"] = CASES["unique_values"] = CASES["unique_all"][1:3]
CASES["isin"] = [call(DUPLICATES, np.array([1, 2], "int32")), call(2, DUPLICATES), call(DUPLICATES, 3)]

# *** statistics, utility ***
for name in "max min".split():
  CASES[name] = [((x,), k) for x in (A, draw(2, 3, 4, dtype="int8")) for k in MANY] + [call(np.array(SPECIAL))]
for name in "mean std var".split():
  CASES[name] = [((x,), k) for x in (A, draw(2, 3, 4, dtype="float64")) for k in MANY[:-1]]
for name in "std var".split():
  CASES[name] += [call(A, correction=1), call(A, axis=1, correction=0.5)]
for name in "sum prod".split():
  CASES[name] = [((x,), k) for x in (A, draw(2, 3, 4, dtype="int8")) for k in MANY]
  CASES[name] += [call(draw(3, 2, dtype=d)) for d in ("uint16", "int64", "uint64", "float64")]
  CASES[name] += [call(N, dtype="float64"), call(N, axis=0, dtype="int8"), call(draw(0, 3), axis=0), call(draw())]
for name in "all any".split():
  CASES[name] = [((draw(2, 3, 4, dtype="bool"),), k) for k in MANY] + [
    call(A),
    call(draw(0, 2)),
    call(draw(0, 2), axis=0),
  ]
for name in "cumulative_sum cumulative_prod".split():
  CASES[name] = [call(A, axis=1), call(draw(5, dtype="int8")), call(A, axis=-1, include_initial=True)]
  CASES[name] += [call(draw(3, 2, dtype="uint16"), axis=0, dtype="float32"), call(draw(0), include_initial=True)]
CASES["diff"] = [call(A), call(A, axis=0), call(A, n=2), call(N, prepend=N[:, :1], append=N[:, 1:3]), call(N, n=5)]

# *** linear algebra ***
CASES["matmul"] = [
  call(A, draw(4, 5)),
  call(draw(4), draw(4)),
  call(draw(2, 3), draw(3)),
  call(N, draw(4, 2, dtype="int32")),
]
CASES["matmul"] += [call(draw(5, 1, 2, 3), draw(4, 3, 2))]
CASES["matrix_transpose"] = [call(A), call(N)]
CASES["tensordot"] = [call(A, draw(3, 4, 2)), call(A, B, axes=((0, 2), (0, 2))), call(draw(2), draw(3), axes=0)]
CASES["vecdot"] = [call(A, B), call(A, draw(3, 1), axis=-2), call(N, draw(4, dtype="int32"))]
CASES["linalg.cholesky"] = [call(SPD), call(SPD[0], upper=True)]
CASES["linalg.cross"] = [call(draw(2, 3), draw(2, 3, seed=1)), call(draw(3, 2), draw(3, 1), axis=-2)]
CASES["linalg.det"] = [call(SQUARE), call(SQUARE[0].astype("float32")), call(np.ones((2, 2)))]
CASES["linalg.diagonal"] = [call(A), call(A, offset=1), call(N, offset=-1)]
CASES["linalg.eigh"] = []  # vectors have either sign: in test_array_api.py
CASES["linalg.eigvalsh"] = [call(SPD[:, :2, :2].astype("float32"))]
CASES["linalg.inv"] = [call(SQUARE), call(SQUARE[0])]
CASES["linalg.matrix_norm"] = [call(TALL, ord=o) for o in ("nuc", 1, -1, 2, -2, math.inf, -math.inf)]
CASES["linalg.matrix_norm"] += [call(A), call(A, keepdims=True), call(A, ord=1, keepdims=True)]
CASES["linalg.matrix_power"] = [call(SQUARE, n) for n in (0, 1, 3, -2)]
CASES["linalg.matrix_rank"] = [call(TALL), call(np.outer([1.0, 2, 3], [1.0, 1])), call(TALL, rtol=0.9)]
CASES["linalg.outer"] = [call(draw(3), draw(2))]
CASES["linalg.pinv"] = [call(TALL), call(np.outer([1.0, 2, 3], [1.0, 1]))]
CASES["linalg.qr"] = []  # either sign: in test_array_api.py
CASES["linalg.slogdet"] = [call(SQUARE), call(-SQUARE[0]), call(1e200 * SQUARE[0])]
CASES["linalg.solve"] = [call(SQUARE, draw(2, 3, 2, dtype="float64")), call(SQUARE[0], draw(3, dtype="float64"))]
CASES["linalg.solve"] += [call(SQUARE, draw(3, 2, dtype="float64")), call(SQUARE, draw(3, dtype="float64"))]
CASES["linalg.svd"] = []  # either sign: in test_array_api.py
CASES["linalg.svdvals"] = [call(TALL)]
CASES["linalg.trace"] = [call(A), call(A, offset=1), call(N), call(N, dtype="float64")]
CASES["linalg.vector_norm"] = [((A,), {**k, "ord": o}) for k in MANY[:-1] for o in (2, 1, math.inf)]
CASES["linalg.vector_norm"] += [call(A, axis=1, ord=o) for o in (3, 0, -1, -math.inf, 0.5)]
for name in "matmul matrix_transpose tensordot vecdot".split():
  CASES[f"linalg.{name}"] = CASES[name][:1]
