"""Which dtype a result has: the default where none is named, that of `dtype=` where one is; and `device=`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, Variable, dtypes, nn

NARROW = (dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.float16, dtypes.bfloat16)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


@pytest.fixture
def default(request: pytest.FixtureRequest) -> Iterator[Any]:
  """`default_float` or `default_int`, set to the parameter for one test."""
  name = "default_float" if dtypes.is_float(request.param) else "default_int"
  before = getattr(dtypes, name)
  setattr(dtypes, name, request.param)
  try:
    yield request.param
  finally:
    setattr(dtypes, name, before)


def ints() -> Tensor:
  return Tensor([[1, 2], [3, 4]], dtype="int32")


FLOATS: dict[str, Callable[[], Tensor]] = {
  "list": lambda: Tensor([1.0, 2.5]),
  "nested list": lambda: Tensor([[1.0], [2.5]]),
  "list of floats and integers": lambda: Tensor([1, 2.5]),
  "tuple": lambda: Tensor((0.5, 1.5)),
  "empty list": lambda: Tensor([]),
  "nested empty list": lambda: Tensor([[], []]),
  "number": lambda: Tensor(1.5),
  "nothing": Tensor,
  "full": lambda: Tensor.full((2,), 1.5),
  "zeros": lambda: Tensor.zeros(2),
  "ones": lambda: Tensor.ones(2, 2),
  "empty": lambda: Tensor.empty(2),
  "eye": lambda: Tensor.eye(2),
  "arange": lambda: Tensor.arange(0, 2, 0.5),
  "linspace": lambda: Tensor.linspace(0, 1, 3),
  "logspace": lambda: Tensor.logspace(0, 1, 3),
  "rand": lambda: Tensor.rand(2),
  "randn": lambda: Tensor.randn(2),
  "uniform": lambda: Tensor.uniform(2, low=1, high=2),
  "normal": lambda: Tensor.normal(2, mean=1),
  "scaled_uniform": lambda: Tensor.scaled_uniform(2),
  "glorot_uniform": lambda: Tensor.glorot_uniform(2, 2),
  "kaiming_uniform": lambda: Tensor.kaiming_uniform(2, 2),
  "kaiming_normal": lambda: Tensor.kaiming_normal(2, 2),
  "integer + float": lambda: ints() + 1.5,
  "float * bool": lambda: 1.5 * Tensor([True]),
  "integer / integer": lambda: ints() / ints(),
  "integer / number": lambda: ints() / 2,
  "number / integer": lambda: 1 / ints(),
  "power": lambda: ints() ** 0.5,
  "where": lambda: (ints() > 2).where(1.0, 0.0),
  "clamp": lambda: ints().clamp(0.5, 2.5),
  "lists beside tensors": lambda: Tensor([True]).cat(Tensor([0.5])),
  "layer": lambda: nn.Linear(2, 2).weight,
  "norm layer": lambda: nn.BatchNorm(2).running_mean,
}
INTS: dict[str, Callable[[], Tensor]] = {
  "list": lambda: Tensor([1, 2]),
  "list of bool and integers": lambda: Tensor([True, 2]),
  "number": lambda: Tensor(3),
  "full": lambda: Tensor.full((2,), 3),
  "arange": lambda: Tensor.arange(3),
  "one_hot": lambda: ints().one_hot(5),
  "bool + integer": lambda: Tensor([True]) + 1,
  "where": lambda: (ints() > 2).where(1, 0),
  "variable": lambda: Tensor(Variable("i", 0, 3).bind(2)),
}


@pytest.mark.parametrize("default", [d for d in dtypes.all if dtypes.is_float(d)], indirect=True)
def test_floats_without_a_dtype_have_the_default(default: Any) -> None:
  assert {name: made.dtype for name, make in FLOATS.items() if (made := make()).dtype is not default} == {}


@pytest.mark.parametrize("default", [d for d in dtypes.all if dtypes.is_int(d)], indirect=True)
def test_integers_without_a_dtype_have_the_default(default: Any) -> None:
  assert {name: made.dtype for name, make in INTS.items() if (made := make()).dtype is not default} == {}


@pytest.mark.parametrize("default", NARROW, indirect=True)
def test_values_are_those_of_the_default(default: Any) -> None:
  assert Tensor([1.0, 2.25, -3.5]).tolist() == [Tensor(v).item() for v in (1.0, 2.25, -3.5)]
  assert Tensor([[1.0], [2.0]]).sum().item() == 3 and Tensor([]).sum().item() == 0


# *** methods of integers: found by calling all of them ***

OTHERWISE = {"float"}
"""Methods whose name says which dtype they give."""
ARGUMENTS: tuple[tuple[Any, ...], ...] = ((), (2,), ("T",))
Call = tuple[str, tuple[Any, ...]]


def calls() -> list[Call]:
  """Methods of Tensor, each with several arguments: those that change no state of the class."""
  left_out = {"manual_seed", "custom_kernel", "realize", *OTHERWISE}
  names = [name for name, _ in inspect.getmembers(Tensor, inspect.isfunction) if name not in left_out]
  return [(name, arguments) for name in names if not name.startswith("_") for arguments in ARGUMENTS]


def results(make: Callable[[], Tensor], wanted: Iterable[Call]) -> dict[Call, tuple[str, ...]]:
  """The dtypes of what calls give, where they can be made."""
  found: dict[Call, tuple[str, ...]] = {}
  for name, arguments in wanted:
    try:
      out = getattr(make(), name)(*[make() if a == "T" else a for a in arguments])
      found[name, arguments] = tuple(t.dtype.name for t in (out if isinstance(out, (tuple, list)) else [out]))
    except Exception:
      continue
  return found


@pytest.mark.parametrize("make", [ints, lambda: Tensor([True, False])], ids=["integers", "bool"])
def test_methods_of_integers_give_the_default_float(make: Callable[[], Tensor]) -> None:
  before = {call: given for call, given in results(make, calls()).items() if "float32" in given}
  assert len({name for name, _ in before}) > 80, "most of them can be called"
  for other in (dtypes.bfloat16, dtypes.float64):
    dtypes.default_float = other
    try:
      now = results(make, before)
    finally:
      dtypes.default_float = dtypes.float32
    wanted = {k: tuple(other.name if g == "float32" else g for g in given) for k, given in before.items()}
    assert {k: now.get(k) for k, w in wanted.items() if now.get(k) != w} == {}


# *** dtype= ***


def matrix() -> Tensor:
  return Tensor([[1.0, 2.0], [3.0, 5.0]], dtype="float32")


def image() -> Tensor:
  return Tensor.ones(1, 2, 3, 3, dtype="float32")


TYPED: dict[str, list[Callable[[Any], Tensor]]] = {
  "arange": [lambda d: Tensor.arange(3, dtype=d), lambda d: Tensor.arange(0.0, 2.0, 0.5, dtype=d)],
  "conv2d": [
    lambda d: image().conv2d(Tensor.ones(2, 2, 2, 2), dtype=d),
    lambda d: image().conv2d(Tensor.ones(2, 2, 2, 2), Tensor([1.0, 2.0]), dtype=d),
    lambda d: image().conv2d(Tensor.ones(2, 2, 2, 2), Tensor([1, 2], dtype="float64"), dtype=d),
  ],
  "cumprod": [lambda d: matrix().cumprod(0, dtype=d), lambda d: matrix().int().cumprod(0, dtype=d)],
  "cumsum": [lambda d: matrix().cumsum(0, dtype=d), lambda d: matrix().int().cumsum(0, dtype=d)],
  "dot": [lambda d: matrix().dot(matrix(), dtype=d), lambda d: matrix().dot(matrix().double(), dtype=d)],
  "einsum": [
    lambda d: Tensor.einsum("ij,jk->ik", matrix(), matrix(), dtype=d),
    lambda d: Tensor.einsum("ij->ji", matrix(), dtype=d),
    lambda d: Tensor.einsum("ij->", matrix(), dtype=d),
  ],
  "empty": [lambda d: Tensor.empty(2, dtype=d)],
  "empty_like": [lambda d: matrix().empty_like(dtype=d)],
  "eye": [lambda d: Tensor.eye(2, dtype=d)],
  "from_blob": [],  # needs an address, and memory there
  "full": [lambda d: Tensor.full((2,), 1, dtype=d), lambda d: Tensor.full((2,), 1.5, dtype=d)],
  "full_like": [lambda d: matrix().full_like(1, dtype=d), lambda d: matrix().full_like(1.5, dtype=d)],
  "linear": [
    lambda d: matrix().linear(matrix(), dtype=d),
    lambda d: matrix().linear(matrix(), Tensor([1.0, 2.0]), dtype=d),
    lambda d: matrix().linear(matrix(), Tensor([1.0, 2.0], dtype="float64"), dtype=d),
    lambda d: matrix().linear(Tensor([1.0, 2.0]), dtype=d),
    lambda d: matrix().linear(Tensor([1.0, 2.0]), Tensor([1, 2]), dtype=d),
  ],
  "linspace": [
    lambda d: Tensor.linspace(0, 4, 0, dtype=d),
    lambda d: Tensor.linspace(0, 4, 1, dtype=d),
    lambda d: Tensor.linspace(0, 4, 3, dtype=d),
  ],
  "log_softmax": [lambda d: matrix().log_softmax(dtype=d), lambda d: matrix()[:0].log_softmax(dtype=d)],
  "matmul": [
    lambda d: matrix().matmul(matrix(), dtype=d),
    lambda d: matrix().matmul(matrix().half(), reverse=True, dtype=d),
  ],
  "matrix_norm": [
    lambda d: matrix().matrix_norm(dtype=d),
    lambda d: matrix().matrix_norm(1, dtype=d),
    lambda d: matrix().matrix_norm("nuc", dtype=d),
  ],
  "mean": [lambda d: matrix().mean(dtype=d), lambda d: matrix().int().mean(0, dtype=d)],
  "nanmean": [lambda d: matrix().nanmean(dtype=d), lambda d: matrix().nanmean(0, dtype=d)],
  "nansum": [lambda d: matrix().nansum(dtype=d), lambda d: matrix().int().nansum(0, dtype=d)],
  "norm": [
    lambda d: matrix().norm(dtype=d),
    lambda d: matrix().norm(0, 0, dtype=d),
    lambda d: matrix().norm(3, 0, dtype=d),
  ],
  "nuclear_norm": [lambda d: matrix().nuclear_norm(dtype=d)],
  "prod": [lambda d: matrix().prod(dtype=d), lambda d: matrix().int().prod(0, dtype=d)],
  "rand": [lambda d: Tensor.rand(2, dtype=d)],
  "randint": [lambda d: Tensor.randint(2, dtype=d)],
  "randn": [lambda d: Tensor.randn(2, dtype=d)],
  "randn_like": [lambda d: matrix().randn_like(dtype=d)],
  "randperm": [lambda d: Tensor.randperm(3, dtype=d), lambda d: Tensor.randperm(0, dtype=d)],
  "softmax": [lambda d: matrix().softmax(dtype=d), lambda d: matrix()[:0].softmax(dtype=d)],
  "softmin": [lambda d: matrix().softmin(dtype=d), lambda d: matrix().int().softmin(dtype=d)],
  "sum": [lambda d: matrix().sum(dtype=d), lambda d: matrix()[:0].sum(dtype=d)],
  "to": [lambda d: matrix().to(dtype=d)],
  "tril_indices": [lambda d: Tensor.tril_indices(2, 2, dtype=d), lambda d: Tensor.tril_indices(0, 0, dtype=d)],
  "triu_indices": [lambda d: Tensor.triu_indices(2, 2, dtype=d), lambda d: Tensor.triu_indices(0, 0, dtype=d)],
  "uniform": [lambda d: Tensor.uniform(2, dtype=d)],
  "vector_norm": [
    lambda d: matrix().vector_norm(0, dtype=d),
    lambda d: matrix().vector_norm(1, dtype=d),
    lambda d: matrix().vector_norm(2.5, dtype=d),
    lambda d: matrix().vector_norm(float("inf"), dtype=d),
  ],
}
PARTS = set(
  "accumulated along alu as_dtype as_float autocast bitcast broadcasted cast const_like count_up counting filled "
  "magnitude permutation rounded_to sum_of_products symbolic_range triangle unit".split()
)
"""What others are made of, and `cast`, `bitcast`, `autocast`."""
ONLY_FLOATS = {"log_softmax", "matrix_norm", "mean", "nanmean", "norm", "nuclear_norm", "rand", "softmax",
               "softmin", "vector_norm"}  # fmt: skip


def test_all_that_take_a_dtype_are_tried() -> None:
  found = inspect.getmembers(Tensor, lambda m: inspect.isfunction(m) or inspect.ismethod(m))
  names = {n for n, m in found if not n.startswith("_") and "dtype" in inspect.signature(m).parameters}
  assert names - PARTS == TYPED.keys()


@pytest.mark.parametrize("name", TYPED)
def test_a_dtype_that_is_asked_for_is_given(name: str) -> None:
  wrong = []
  for dtype in dtypes.all:
    if dtypes.is_bool(dtype) or (name in ONLY_FLOATS and not dtypes.is_float(dtype)):
      continue
    if name in ("randint", "randperm") and not dtypes.is_int(dtype):
      continue
    wrong += [(n, dtype, made.dtype) for n, f in enumerate(TYPED[name]) if (made := f(dtype)).dtype is not dtype]
  assert wrong == []


@pytest.mark.parametrize("name", sorted(ONLY_FLOATS))
def test_what_only_floats_can_be_is_refused_in_integers(name: str) -> None:
  for f in TYPED[name]:
    with pytest.raises(TypeError, match="int32"):
      f(dtypes.int32)


# *** device= ***


def kinds_of_data(folder: Path) -> dict[str, tuple[Any, Any]]:
  """What a tensor can be made of, and its values."""
  file = folder / "bytes"
  file.write_bytes(b"\x01\x02\x03")
  lazy = Tensor([1, 2, 3]) + 0
  return {
    "nothing": (None, []),
    "number": (2.5, 2.5),
    "NumPy's number": (np.int16(3), 3),
    "list": ([1, 2, 3], [1, 2, 3]),
    "nested list": ([[1.0, 2.0], [3.0, 4.0]], [[1, 2], [3, 4]]),
    "empty list": ([], []),
    "bytes": (b"\x01\x02\x03", [1, 2, 3]),
    "bytearray": (bytearray(b"\x01\x02"), [1, 2]),
    "memoryview": (memoryview(b"\x01\x02"), [1, 2]),
    "array": (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "array of no axes": (np.array(2.0), 2.0),
    "list of arrays": ([np.array([1, 2]), np.array([3, 4])], [[1, 2], [3, 4]]),
    "list of bytes": ([b"\x01\x02", b"\x03\x04"], [[1, 2], [3, 4]]),
    "path": (file, [1, 2, 3]),
    "tensor": (Tensor([1, 2, 3]), [1, 2, 3]),
    "realised tensor": (Tensor([1, 2, 3]).realize(), [1, 2, 3]),
    "constant": (Tensor.full((2,), 7), [7, 7]),
    "graph": (lazy.uop, [1, 2, 3]),
    "graph of a constant": (Tensor(7).uop, 7),
    "variable": (Variable("i", 0, 9).bind(4), 4),
  }


@pytest.mark.parametrize("device", ["REF", "REF:1", ("REF", "REF:1")], ids=str)
@pytest.mark.parametrize("dtype", [None, dtypes.uint8])
def test_data_go_to_the_device_that_is_asked_for(device: Any, dtype: Any, tmp_path: Path) -> None:
  for name, (data, values) in kinds_of_data(tmp_path).items():
    if name == "variable" and not isinstance(device, str):
      continue  # a kernel's argument on each, which no graph can tell apart
    t = Tensor(data, device=device, dtype=dtype)
    assert t.device == device, name
    if dtype is None:
      assert (t + 0).tolist() == values, name
      assert t.realize().device == device, name
    assert dtype is None or t.dtype is dtype, name


def test_a_file_stays_one_without_a_device(tmp_path: Path) -> None:
  (tmp_path / "bytes").write_bytes(b"\x01\x02\x03\x04")
  (tmp_path / "nothing").write_bytes(b"")
  assert str(Tensor(tmp_path / "bytes").device).startswith("DISK")
  assert Tensor(tmp_path / "bytes", device="REF", dtype=dtypes.uint16).tolist() == [0x201, 0x403]
  assert Tensor(tmp_path / "nothing", device="REF").shape == (0,)
