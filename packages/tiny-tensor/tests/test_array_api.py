"""The Array API namespace where there is nothing to compare it with, and Tensor as the array object of the standard."""

from __future__ import annotations

import array
import doctest
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes
from tiny_tensor import array_api as xp


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def test_the_examples_of_the_module() -> None:
  found = doctest.testmod(xp)
  assert found.attempted >= 4 and not found.failed


def test_the_namespace_of_a_tensor() -> None:
  t = Tensor([1.0, 2.0])
  assert t.__array_namespace__() is xp and t.__array_namespace__(api_version="2024.12") is xp
  assert xp.__array_api_version__ == "2024.12"
  with pytest.raises(ValueError, match="1999.12.*2024.12"):
    t.__array_namespace__(api_version="1999.12")


def test_array_api_compat_knows_tensors() -> None:
  compat = pytest.importorskip("array_api_compat")
  t = Tensor([[1.0, 2.0]])
  assert compat.is_array_api_obj(t) and compat.array_namespace(t, t) is xp
  assert compat.device(t) == "REF" and compat.size(t) == 2 and compat.to_device(t, "REF") is t
  with pytest.raises(TypeError, match="Multiple namespaces"):
    compat.array_namespace(t, np.zeros(2))


def test_attributes_and_operators_of_the_standard() -> None:
  t = Tensor([[1, -2], [3, 4]])
  assert t.mT.tolist() == t.T.tolist() == [[1, 3], [-2, 4]] and t.ndim == 2 and t.shape == (2, 2)
  assert (+t).tolist() == t.tolist() and abs(t).tolist() == [[1, 2], [3, 4]] and t.to_device("REF") is t
  with pytest.raises(ValueError, match=r"two axes.*\(2,\)"):
    Tensor([1, 2]).mT  # noqa: B018
  with pytest.raises(ValueError, match="stream"):
    t.to_device("REF", stream=3)  # type: ignore[arg-type]


def test_numbers_of_tensors_without_axes() -> None:
  t = Tensor(2.5)
  assert float(t) == 2.5 and int(t) == 2 and complex(t) == 2.5 and bool(t) is True and not Tensor(0)
  assert [10, 20, 30][Tensor(1)] == 20 and list(range(Tensor(2))) == [0, 1]
  assert [5, 6, 7][: Tensor(np.int8(2))] == [5, 6]
  for wrong in (float, int, complex, bool):
    with pytest.raises(TypeError, match=r"shape \(1,\)"):
      wrong(Tensor([1]))
  with pytest.raises(TypeError, match="float32"):
    [1][t]


def test_limits() -> None:
  for dtype in (dtypes.float16, dtypes.float32, dtypes.float64):
    ours, theirs = xp.finfo(dtype), np.finfo(np.dtype(dtype.name))
    assert [ours.bits, ours.eps, ours.max, ours.min] == [theirs.bits, theirs.eps, theirs.max, theirs.min]
    assert ours.smallest_normal == theirs.smallest_normal and ours.dtype is dtype
  bfloat16, fp8 = xp.finfo(dtypes.bfloat16), xp.finfo(dtypes.fp8e4m3)
  assert (bfloat16.smallest_normal, bfloat16.eps) == (2.0**-126, 2.0**-7)
  assert (fp8.max, fp8.smallest_normal) == (448.0, 2.0**-6) and xp.finfo(dtypes.fp8e5m2).smallest_normal == 2.0**-14
  for dtype in dtypes.ints:
    ours_, theirs_ = xp.iinfo(Tensor([], dtype=dtype)), np.iinfo(dtype.name)
    assert (ours_.bits, ours_.max, ours_.min) == (theirs_.bits, theirs_.max, theirs_.min)


def test_kinds_and_promotion() -> None:
  assert xp.isdtype(xp.int8, "signed integer") and xp.isdtype(xp.uint8, ("bool", "unsigned integer"))
  assert xp.isdtype(xp.float64, (xp.float64, xp.int8)) and not xp.isdtype(xp.float64, "complex floating")
  assert xp.isdtype(xp.int8, "numeric") and not xp.isdtype(xp.bool, "numeric") and xp.isdtype(xp.int16, "integral")
  assert xp.result_type(xp.int8, xp.uint8) is xp.int16 and xp.result_type(xp.float32, 2.5) is xp.float32
  assert xp.result_type(Tensor([1]), True) is xp.int32 and xp.result_type(xp.int8, 1.0) is xp.float32
  assert xp.can_cast(xp.int8, xp.int64) and xp.can_cast(Tensor([1.0]), xp.float64)
  assert not xp.can_cast(xp.float64, xp.float32) and not xp.can_cast(xp.int32, xp.uint64)
  assert xp.broadcast_shapes((2, 1), (3,), ()) == (2, 3) and xp.broadcast_shapes() == ()


def test_asarray_of_other_things() -> None:
  numbers = xp.asarray(array.array("d", [1.5, 2.5]))
  assert numbers.dtype is xp.float64 and numbers.tolist() == [1.5, 2.5]
  table = xp.asarray(memoryview(b"\1\2\3\4\5\6").cast("B", (2, 3)))
  assert table.dtype is xp.uint8 and table.tolist() == [[1, 2, 3], [4, 5, 6]]
  assert xp.asarray(np.arange(3, dtype=np.int16)).dtype is xp.int16
  nested = xp.asarray([[Tensor(1.5), 2], [3, Tensor(4)]])
  assert nested.tolist() == [[1.5, 2], [3, 4]] and nested.dtype is xp.float32
  assert xp.asarray([Tensor([1, 2]), [3, 4]], dtype=xp.int8).tolist() == [[1, 2], [3, 4]]


def test_copies() -> None:
  t = Tensor([1.0, 2.0]).realize()
  assert xp.asarray(t) is t and xp.asarray(t, copy=False) is t and xp.astype(t, xp.float32, copy=False) is t
  for copy in (xp.asarray(t, copy=True), xp.astype(t, xp.float32), xp.reshape(t, (2,), copy=True), xp.positive(t)):
    copy[0] = 5.0
    assert t.tolist() == [1, 2] and copy.tolist() == [5, 2]
  xp.reshape(t, (2, 1))[0] = 7.0
  assert t.tolist() == [7, 2]


def test_info() -> None:
  info = xp.__array_namespace_info__()
  assert info.default_device() == "REF" and info.devices()[0] == "REF"
  assert info.capabilities()["boolean indexing"] and info.capabilities()["max dimensions"] is None
  assert info.default_dtypes()["indexing"] is xp.argmax(Tensor([1])).dtype
  assert info.default_dtypes()["real floating"] is xp.zeros(2).dtype
  assert info.dtypes(kind="real floating") == {"float32": xp.float32, "float64": xp.float64}
  assert info.dtypes(kind=("bool", "unsigned integer")).keys() == {"bool", "uint8", "uint16", "uint32", "uint64"}
  assert len(info.dtypes()) == 11 and info.dtypes(kind="complex floating") == {}


def test_empty_can_be_read() -> None:
  assert xp.empty((2, 3), dtype=xp.int8).dtype is xp.int8 and xp.empty(2).tolist() == [0, 0]
  assert xp.empty_like(Tensor([1, 2])).dtype is xp.int32


def test_real_numbers_only() -> None:
  t = Tensor([1.0, -2.0])
  assert xp.conj(t) is t and xp.real(t) is t and xp.imag(t).tolist() == [0, 0]
  assert xp.isin(Tensor([1, 2, 3]), Tensor([3, 1]), invert=True).tolist() == [False, True, False]


def test_floor_divide_of_special_numbers_is_python_s() -> None:
  # where the standard says "libraries may return" this "to match Python behavior"
  a, b = Tensor([5.0, -5.0, -1.0, math.inf, 0.0]), Tensor([0.0, 0.0, math.inf, 2.0, 0.0])
  assert xp.floor_divide(a, b).tolist()[:3] == [math.inf, -math.inf, -1.0]
  assert xp.floor_divide(a, b)[3:].isnan().tolist() == [True, True]


@pytest.mark.parametrize("shape", [(2, 3, 2), (2, 3)])
def test_factors_multiply_to_the_matrix(shape: tuple[int, ...]) -> None:
  x = np.random.default_rng(0).standard_normal(shape)
  t = xp.asarray(x)
  for mode in ("reduced", "complete"):
    q, r = xp.linalg.qr(t, mode=mode)
    assert q.shape[-1] == r.shape[-2] == (min(shape[-2:]) if mode == "reduced" else shape[-2])
    np.testing.assert_allclose((q @ r).numpy(), x, atol=1e-12)
  u, s, vh = xp.linalg.svd(t, full_matrices=False)
  np.testing.assert_allclose(((u * s.unsqueeze(-2)) @ vh).numpy(), x, atol=1e-12)


def test_eigenvectors() -> None:
  # eigenvalues that differ in their sign only, and a double one
  for a in (np.array([[0.0, 2], [2, 0]]), np.array([[2.0, 1, 1], [1, 2, 1], [1, 1, 2]])):
    values, vectors = xp.linalg.eigh(xp.asarray(a))
    np.testing.assert_allclose(values.numpy(), np.linalg.eigvalsh(a), atol=1e-12)
    np.testing.assert_allclose((vectors.mT @ vectors).numpy(), np.eye(len(a)), atol=1e-12)
    np.testing.assert_allclose(((vectors * values) @ vectors.mT).numpy(), a, atol=1e-12)


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
  "no array": (lambda: xp.add(1, 2), TypeError, "int and int"),
  "finfo": (lambda: xp.finfo(xp.int8), TypeError, "int8.*iinfo"),
  "iinfo": (lambda: xp.iinfo(xp.float32), TypeError, "float32.*finfo"),
  "a kind": (lambda: xp.isdtype(xp.int8, "integer"), ValueError, "'integer'.*integral"),
  "kinds": (lambda: xp.__array_namespace_info__().dtypes(kind="ints"), ValueError, "'ints'"),
  "nothing": (lambda: xp.result_type(2), ValueError, "at least one"),
  "squeeze": (lambda: xp.squeeze(xp.ones((1, 3)), 1), ValueError, r"axis 1 of shape \(1, 3\).*size 3"),
  "nonzero": (lambda: xp.nonzero(Tensor(1)), ValueError, "0-d"),
  "take": (lambda: xp.take(xp.ones((2, 2)), Tensor([0])), ValueError, r"axis.*\(2, 2\)"),
  "cumulative_sum": (lambda: xp.cumulative_sum(xp.ones((2, 2))), ValueError, r"\(2, 2\)"),
  "moveaxis": (lambda: xp.moveaxis(xp.ones((2, 2)), (0, 1), 0), ValueError, "destinations"),
  "meshgrid": (lambda: xp.meshgrid(Tensor([1]), indexing="yx"), ValueError, "'yx'"),  # type: ignore[arg-type]
  "vecdot": (lambda: xp.vecdot(Tensor([1]), Tensor([1]), axis=0), ValueError, "from the end"),
  "bits": (lambda: xp.bitwise_and(Tensor([1.0]), Tensor([1.0])), TypeError, "float32"),
  "copy": (lambda: xp.asarray([1.0], copy=False), ValueError, "from_dlpack"),
  "copy of a tensor": (lambda: xp.asarray(Tensor([1]), dtype=xp.int8, copy=False), ValueError, "without a copy"),
  "signbit": (lambda: xp.signbit(Tensor([1])), TypeError, "real floating.*int32"),
  "ord": (lambda: xp.linalg.matrix_norm(xp.eye(2), ord=3), ValueError, "ord.*3"),
  "mode": (lambda: xp.linalg.qr(xp.eye(2), mode="r"), ValueError, "'r'"),  # type: ignore[arg-type]
  "format": (lambda: xp.asarray(memoryview(b"ab").cast("c")), TypeError, "'c'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
  make, error, words = ERRORS[name]
  with pytest.raises(error, match=words):
    make()
