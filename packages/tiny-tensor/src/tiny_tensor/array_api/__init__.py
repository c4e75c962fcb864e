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
from tiny_tensor.array_api.constants import *
from tiny_tensor.array_api.creation import *
from tiny_tensor.array_api.data_types import *
from tiny_tensor.array_api.elementwise import *
from tiny_tensor.array_api.info import *
from tiny_tensor.array_api.manipulation import *
from tiny_tensor.array_api.products import *
from tiny_tensor.array_api.searching import *
from tiny_tensor.array_api.sets import *
from tiny_tensor.array_api.statistics import *

__array_api_version__ = "2024.12"
"""The revision of the standard."""

_PUBLIC = {
  name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, type(linalg))
}
__all__ = sorted({"__array_api_version__", "__array_namespace_info__", "linalg", *_PUBLIC})
