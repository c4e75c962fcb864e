"""A namespace of the Python Array API standard, revision 2024.12, for `Tensor`.

`Tensor.__array_namespace__()` gives this module, so that code written for the standard (scikit-learn's and SciPy's
array-API parts, for example) runs on tensors: lazily, on any device, with gradients.

>>> from tiny_tensor import Tensor, array_api as xp
>>> x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
>>> xp.sum(x, axis=0, keepdims=True).tolist()
[[4.0, 6.0]]
>>> Tensor([3, 1, 2]).__array_namespace__() is xp
True

It has all functions of the standard, `linalg` (without `eig` and `eigvals`), and `isin`, `broadcast_shapes` and
`expand_dims` with several axes of the revision after it. What differs:

* There are no complex numbers, and so no `complex64`, `complex128` and `fft`. `conj`, `real` and `imag` take real ones.
* Defaults are float32 and int32, positions are int32. `float16` and `bfloat16` are there as well.
* The array object is `Tensor` as it is: `size` is a method, as PyTorch's (`array_api_compat.size(x)` works for both),
  operators mix kinds (int32 + float32 is float32), `%` and `//` by an integer 0 give 0.
* Indexing takes positions outside as 0 where they stand in an array. `x[mask]` computes `mask`.
* `empty` gives zeros. `//` of floats is `floor(x1 / x2)`, which is -0.0 for `-1.0 // inf`.
* Every NaN is greater than all numbers when sorting.
"""

from tiny_tensor.array_api import linalg
from tiny_tensor.array_api.constants import (
  bfloat16,
  bool,
  e,
  float16,
  float32,
  float64,
  inf,
  int8,
  int16,
  int32,
  int64,
  nan,
  newaxis,
  pi,
  uint8,
  uint16,
  uint32,
  uint64,
)
from tiny_tensor.array_api.creation import (
  arange,
  asarray,
  empty,
  empty_like,
  eye,
  from_dlpack,
  full,
  full_like,
  linspace,
  meshgrid,
  ones,
  ones_like,
  tril,
  triu,
  zeros,
  zeros_like,
)
from tiny_tensor.array_api.data_types import (
  astype,
  can_cast,
  finfo,
  iinfo,
  isdtype,
  result_type,
)
from tiny_tensor.array_api.elementwise import (
  abs,
  add,
  bitwise_and,
  bitwise_invert,
  bitwise_left_shift,
  bitwise_or,
  bitwise_right_shift,
  bitwise_xor,
  clip,
  conj,
  copysign,
  divide,
  equal,
  floor_divide,
  greater,
  greater_equal,
  imag,
  isfinite,
  isinf,
  isnan,
  less,
  less_equal,
  logical_and,
  logical_not,
  logical_or,
  logical_xor,
  maximum,
  minimum,
  multiply,
  negative,
  nextafter,
  not_equal,
  positive,
  pow,
  real,
  reciprocal,
  remainder,
  sign,
  signbit,
  square,
  subtract,
)
from tiny_tensor.array_api.functions import (
  acos,
  acosh,
  asin,
  asinh,
  atan,
  atan2,
  atanh,
  ceil,
  cos,
  cosh,
  exp,
  expm1,
  floor,
  hypot,
  log,
  log1p,
  log2,
  log10,
  logaddexp,
  round,
  sin,
  sinh,
  sqrt,
  tan,
  tanh,
  trunc,
)
from tiny_tensor.array_api.info import (
  __array_namespace_info__,
)
from tiny_tensor.array_api.manipulation import (
  broadcast_arrays,
  broadcast_shapes,
  broadcast_to,
  concat,
  expand_dims,
  flip,
  moveaxis,
  permute_dims,
  repeat,
  reshape,
  roll,
  squeeze,
  stack,
  tile,
  unstack,
)
from tiny_tensor.array_api.products import (
  matmul,
  matrix_transpose,
  tensordot,
  vecdot,
)
from tiny_tensor.array_api.searching import (
  argmax,
  argmin,
  argsort,
  count_nonzero,
  nonzero,
  searchsorted,
  sort,
  take,
  take_along_axis,
  where,
)
from tiny_tensor.array_api.sets import (
  isin,
  unique_all,
  unique_counts,
  unique_inverse,
  unique_values,
)
from tiny_tensor.array_api.statistics import (
  all,
  any,
  cumulative_prod,
  cumulative_sum,
  diff,
  max,
  mean,
  min,
  prod,
  std,
  sum,
  var,
)

__array_api_version__ = "2024.12"
"""The revision of the standard."""

__all__ = [
  "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh", "add", "all", "any", "arange",
  "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "bfloat16",
  "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool",
  "broadcast_arrays", "broadcast_shapes", "broadcast_to", "can_cast", "ceil", "clip", "concat", "conj", "copysign",
  "cos", "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "divide", "e", "empty", "empty_like",
  "equal", "exp", "expand_dims", "expm1", "eye", "finfo", "flip", "float16", "float32", "float64", "floor",
  "floor_divide", "from_dlpack", "full", "full_like", "greater", "greater_equal", "hypot", "iinfo", "imag", "inf",
  "int16", "int32", "int64", "int8", "isdtype", "isfinite", "isin", "isinf", "isnan", "less", "less_equal", "linalg",
  "linspace", "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor",
  "matmul", "matrix_transpose", "max", "maximum", "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan",
  "negative", "newaxis", "nextafter", "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "pi", "positive",
  "pow", "prod", "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll", "round",
  "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt", "square", "squeeze", "stack", "std", "subtract",
  "sum", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril", "triu", "trunc", "uint16", "uint32",
  "uint64", "uint8", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot",
  "where", "zeros", "zeros_like",
]  # fmt: skip
