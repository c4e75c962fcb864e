"""Data types: interning, vectors and pointers, limits, the promotion lattice."""

import copy
import itertools
import pickle
import struct

import numpy as np
import pytest

from tiny_uop import AddrSpace, DType, UOp, dtypes, truncate

REAL = [d for d in dtypes.all if d.name not in ("bfloat16", "fp8e4m3", "fp8e5m2")]


@pytest.mark.parametrize(
  "dtype", [*dtypes.all, dtypes.index, dtypes.int8.vec(4), dtypes.float32.vec(2).ptr(7)], ids=str
)
def test_interned(dtype: DType) -> None:
  assert pickle.loads(pickle.dumps(dtype)) is dtype and copy.deepcopy(dtype) is dtype
  assert eval(repr(dtype), {"dtypes": dtypes, "AddrSpace": AddrSpace}) is dtype


def test_vectors_and_pointers() -> None:
  vector = dtypes.float16.vec(8)
  assert (vector.count, vector.bits, vector.itemsize, vector.name) == (8, 16, 16, "float16x8")
  assert vector.scalar() is dtypes.float16 and dtypes.float16.vec(1) is dtypes.float16
  pointer = dtypes.float32.ptr(12, AddrSpace.LOCAL)
  assert (pointer.base, pointer.size, pointer.space) == (dtypes.float32, 12, AddrSpace.LOCAL)
  assert pointer is not dtypes.float32.ptr(12) and pointer.scalar() is pointer
  for base, lanes, message in (
    (vector, 2, "needs a scalar"), (dtypes.int8, 0, "at least 1 lane"), (pointer, 2, "no vector of pointers"),
  ):  # fmt: skip
    with pytest.raises(ValueError, match=message):
      base.vec(lanes)
  for base in (pointer, dtypes.index, dtypes.void):
    with pytest.raises(ValueError, match="no pointer to"):
      base.ptr(2)


@pytest.mark.parametrize(
  "name", ["int33", "float32x", "float32x1", "x4", "ptr<float32>", "ptr<float32, x, global>", "ptr<int8, 1, far>", ""]
)
def test_names_that_are_no_type(name: str) -> None:
  with pytest.raises(ValueError, match="unknown dtype"):
    dtypes.parse(name)


def test_limits() -> None:
  for dtype in dtypes.ints:
    info = np.iinfo(dtype.name)
    assert (dtypes.min(dtype), dtypes.max(dtype)) == (info.min, info.max)
  assert dtypes.max(dtypes.fp8e4m3) == 448 and dtypes.max(dtypes.float16) == float("inf")
  assert all(
    truncate(d, dtypes.max(d)) == dtypes.max(d) and truncate(d, dtypes.min(d)) == dtypes.min(d) for d in dtypes.all
  )


def test_from_py() -> None:
  assert (
    dtypes.from_py(True) is dtypes.bool and dtypes.from_py(3) is dtypes.int32 and dtypes.from_py(3.0) is dtypes.float32
  )
  assert dtypes.from_py([1, [2.5]]) is dtypes.float32 and dtypes.from_py([True, 2]) is dtypes.int32
  with pytest.raises(TypeError, match="no dtype for 'a' of type str"):
    dtypes.from_py("a")


class TestPromotion:
  def test_is_a_lattice(self) -> None:
    for a, b in itertools.product(dtypes.all, repeat=2):
      top = dtypes.promote(a, b)
      assert top is dtypes.promote(b, a) and dtypes.promote(a, a) is a and dtypes.promote(a, top) is top
    # two types have no least one above both: uint64 and a signed type (the default float), and the two fp8s (float16)
    chain = [d for d in dtypes.all if d is not dtypes.uint64 and d not in dtypes.fp8s]
    for a, b, c in itertools.product(chain, repeat=3):
      assert (
        dtypes.promote(dtypes.promote(a, b), c) is dtypes.promote(a, dtypes.promote(b, c)) is dtypes.promote(a, b, c)
      )

  def test_integers_as_numpy(self) -> None:
    for a, b in itertools.product((dtypes.bool, *dtypes.ints), repeat=2):
      expected = np.promote_types(a.name, b.name).name
      if expected.startswith("float"):  # int64 and uint64: NumPy goes to float64
        assert dtypes.promote(a, b) is dtypes.default_float
      else:
        assert dtypes.promote(a, b).name == expected

  def test_examples(self) -> None:
    for a, b, expected in (
      (dtypes.int64, dtypes.float16, dtypes.float16), (dtypes.float16, dtypes.bfloat16, dtypes.float32),
      (dtypes.uint8, dtypes.int8, dtypes.int16), (dtypes.bool, dtypes.float32, dtypes.float32),
      (dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.float16), (dtypes.float32, dtypes.float64, dtypes.float64),
    ):  # fmt: skip
      assert dtypes.promote(a, b) is expected
    with pytest.raises(TypeError, match="no promotion"):
      dtypes.promote(dtypes.int8, dtypes.void)


def test_lossless_casts_as_numpy() -> None:
  for a, b in itertools.product(REAL, repeat=2):
    expected = np.can_cast(a.name, b.name, "safe")
    if a.kind in ("int", "uint") and b.kind == "float":
      # NumPy calls int64 → float64 safe, though it rounds
      high = int(dtypes.max(a))
      expected = all(truncate(b, v) == v for v in (high, high - 1, int(dtypes.min(a))))
    assert dtypes.can_lossless_cast(a, b) == expected, (a, b)


def test_lossless_casts_of_narrow_floats() -> None:
  for a, b, expected in (
    (dtypes.bfloat16, dtypes.float16, False), (dtypes.float16, dtypes.bfloat16, False), (dtypes.fp8e5m2, dtypes.float16,
    True),
    (dtypes.fp8e4m3, dtypes.float16, True), (dtypes.fp8e4m3, dtypes.fp8e5m2, False), (dtypes.bfloat16, dtypes.float32,
    True),
    (dtypes.int8, dtypes.bfloat16, True), (dtypes.uint8, dtypes.fp8e4m3, False), (dtypes.bool, dtypes.fp8e5m2, True),
  ):  # fmt: skip
    assert dtypes.can_lossless_cast(a, b) is expected, (a, b)


def test_constants_are_rounded_when_made() -> None:
  assert UOp.const(dtypes.float16, 0.1).arg == float(np.float16(0.1))
  assert UOp.const(dtypes.uint8, -1).arg == 255
  assert UOp.const(dtypes.int8.vec(2), (1, 1)) is UOp(UOp.const(dtypes.int8, 1).op, dtypes.int8.vec(2), (), 1)
  with pytest.raises(ValueError, match="3 values for a constant of int8x2, which has 2 lanes"):
    UOp.const(dtypes.int8.vec(2), (1, 2, 3))


def test_fields_have_every_name() -> None:
  fields = dtypes.fields()
  assert fields["half"] is fields["float16"] is dtypes.float16 and fields["long"] is dtypes.int64
  assert set(fields.values()) == {*dtypes.all, dtypes.void, dtypes.index} and "default_float" not in fields
  assert all(getattr(dtypes, name) is dtype for name, dtype in fields.items())
  assert [fields[dtype.name] for dtype in dtypes.all] == list(dtypes.all)


def test_facts_of_types() -> None:
  for dtype in dtypes.all:
    assert (dtype.min, dtype.max) == (dtypes.min(dtype), dtypes.max(dtype))
    if dtype.fmt is not None:
      assert struct.calcsize(f"={dtype.fmt}") == dtype.itemsize
    assert dtype.bitsize == (1 if dtype is dtypes.bool else 8 * dtype.itemsize)
  assert [dtype for dtype in dtypes.all if dtype.fmt is None] == [dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.bfloat16]
  assert dtypes.int32.vec(4).fmt == "i" and dtypes.int32.vec(4).bitsize == 128
  sizes = (dtypes.int8s, dtypes.int16s, dtypes.int32s, dtypes.int64s)
  assert {dtype for pair in sizes for dtype in pair} == set(dtypes.ints)
  assert [{dtype.bits for dtype in pair} for pair in sizes] == [{8}, {16}, {32}, {64}]


def test_finfo() -> None:
  names = ("fp8e4m3", "fp8e5m2", "float16", "bfloat16", "float32", "float64")
  found = [dtypes.finfo(dtypes.fields()[name]) for name in names]
  assert found == [(4, 3), (5, 2), (5, 10), (8, 7), (8, 23), (11, 52)]
  with pytest.raises(TypeError, match="float type, got dtypes.int32"):
    dtypes.finfo(dtypes.int32)
