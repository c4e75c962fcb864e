"""What is written to a tensor: of another dtype, to files, at places that lists and tuples name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes

EXACT = [d for d in dtypes.all if d not in (*dtypes.fp8s, dtypes.bfloat16)]


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def put(target: Any, key: Any, value: Any) -> None:
  """`target[key] = value`, for Tensors and arrays."""
  target[key] = value


# *** other dtypes ***

WRITES: dict[str, Callable[[Tensor, Any], object]] = {
  "assign": lambda t, v: t.assign(v),
  "all": lambda t, v: put(t, ..., v),
  "slice": lambda t, v: put(t, slice(1, 3), v[1:3]),
  "tensor": lambda t, v: put(t, Tensor([2, 0]), v[:2]),
  "mask": lambda t, v: put(t, Tensor([True, False, True]), v[:2]),
  "element": lambda t, v: put(t, 1, v[1]),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("dtype", EXACT, ids=lambda d: d.name)
def test_values_of_every_dtype_are_cast(name: str, dtype: Any) -> None:
  values = np.array([3, 1, 0]).astype(dtype.name)
  for given in (dtypes.bool, dtypes.int16, dtypes.float32):
    t, expected = Tensor(values).realize(), values.copy()
    value = Tensor([2.75, 0.0, 1.25]).cast(given)
    WRITES[name](t, value)
    array = value.numpy().astype(dtype.name)
    parts: dict[str, Any] = {"slice": array[1:3], "tensor": array[:2], "mask": array[:2], "element": array[1]}
    where: Any = {"slice": slice(1, 3), "tensor": [2, 0], "mask": [0, 2], "element": 1}.get(name, slice(None))
    expected[where] = parts.get(name, array)
    assert t.dtype is dtype and t.tolist() == expected.tolist(), given


@pytest.mark.parametrize("dtype", EXACT, ids=lambda d: d.name)
def test_python_values_are_cast(dtype: Any) -> None:
  t = Tensor([1, 0, 1], dtype=dtype).realize()
  t[0], t[1] = 2.75, True
  t[2:] = [7.5]
  as_written = np.array([2.75, 1, 7.5]).astype(dtype.name)
  assert t.tolist() == as_written.tolist()
  assert t.assign([0, 3, 1]).tolist() == np.array([0, 3, 1]).astype(dtype.name).tolist()
  assert t.assign(np.array([0.0, 3.5, 1.0])).tolist() == np.array([0.0, 3.5, 1.0]).astype(dtype.name).tolist()


def test_lists_are_as_exact_as_the_tensor() -> None:
  t = Tensor([0.0, 0.0], dtype=dtypes.float64).realize()
  assert t.assign([0.1, 0.2]).tolist() == [0.1, 0.2]


# *** files ***

FILE_WRITES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], object]]] = {
  "all": (lambda d: d.assign(Tensor.arange(16) + 100), lambda a: put(a, ..., np.arange(100, 116))),
  "constant": (lambda d: d.assign(7), lambda a: a.fill(7)),
  "slice": (lambda d: d[2:4].assign([7, 8]), lambda a: put(a, slice(2, 4), [7, 8])),
  "setitem": (lambda d: put(d, slice(2, 4), 9), lambda a: put(a, slice(2, 4), 9)),
  "element": (lambda d: put(d, -1, 9), lambda a: put(a, -1, 9)),
  "row": (lambda d: d.reshape(4, 4)[2].assign([1, 2, 3, 4]), lambda a: put(a.reshape(4, 4)[2], ..., [1, 2, 3, 4])),
  "column": (lambda d: d.reshape(4, 4).T[1].assign(5), lambda a: a.reshape(4, 4)[:, 1].fill(5)),
  "every second": (lambda d: put(d, slice(None, None, 2), 0), lambda a: a[::2].fill(0)),
  "backwards": (lambda d: d.flip(0)[:2].assign([1, 2]), lambda a: put(a[::-1][:2], ..., [1, 2])),
  "by tensor": (lambda d: put(d, Tensor([3, 1]), 0), lambda a: put(a, [3, 1], 0)),
  "by mask": (lambda d: put(d, d.to("REF") > 9, 0), lambda a: put(a, a > 9, 0)),
  "of itself": (lambda d: d.assign(d.to("REF").flip(0)), lambda a: put(a, ..., a[::-1].copy())),
  "as numbers": (
    lambda d: d[4:12].bitcast("int32").assign([7, -8]),
    lambda a: put(a[4:12].view(np.int32), ..., [7, -8]),
  ),
  "part of numbers": (
    lambda d: d.bitcast("float32")[1:3].assign([1.5, 2]),
    lambda a: put(a.view(np.float32)[1:3], ..., [1.5, 2]),
  ),
  "nothing": (lambda d: d[3:3].assign(1), lambda a: None),
}


@pytest.mark.parametrize("name", FILE_WRITES)
def test_files_are_written_through_views(name: str, tmp_path: Path) -> None:
  path = tmp_path / "file"
  path.write_bytes(bytes(range(16)))
  ours, numpys = FILE_WRITES[name]
  t, expected = Tensor(path), np.arange(16, dtype=np.uint8)
  before = t.to("REF") + 1
  part = t.reshape(4, 4)[1]
  target = ours(t)
  numpys(expected)
  (t if target is None else target).realize()
  assert path.read_bytes() == expected.tobytes()
  assert t.tolist() == expected.tolist() and part.tolist() == expected[4:8].tolist(), "live views see it"
  assert before.tolist() == list(range(1, 17)), "what was computed of the old contents has these"


def test_a_new_file_is_made_of_parts(tmp_path: Path) -> None:
  path = tmp_path / "new"
  t = Tensor.empty(6, dtype=dtypes.float32, device=f"DISK:{path}")
  t[:2] = [1.0, 2.0]
  t[2:] = Tensor([3, 4, 5, 6])
  t.realize()
  assert np.fromfile(path, np.float32).tolist() == [1, 2, 3, 4, 5, 6]


def test_what_is_no_view_of_a_file_cannot_be_written(tmp_path: Path) -> None:
  (tmp_path / "file").write_bytes(bytes(8))
  with pytest.raises(ValueError, match="CAST"):
    Tensor(tmp_path / "file").cast("int32").assign(1)
  assert (tmp_path / "file").read_bytes() == bytes(8)


# *** places ***


@pytest.mark.parametrize(
  "key",
  [
    ([0, 1], slice(None), (1, 1)), ((0, 1), (1, 0)), ((0, 1),), [[0, 1], [1, 0]], (([0, 1], [1, 1]), 0),
    ((True, False, True, True), slice(1)), ([], slice(None)), ((), 0), (..., (2, 0)),
  ],
)  # fmt: skip
def test_lists_and_tuples_name_places(key: Any) -> None:
  values = np.arange(24).reshape(4, 2, 3)
  numpys = tuple(np.array(k, dtype=np.intp if not k else None) if isinstance(k, (list, tuple)) else k for k in key)
  numpys = np.array(key) if isinstance(key, list) else numpys  # type: ignore[assignment]
  t = Tensor(values).realize()
  assert t[key].tolist() == values[numpys].tolist()
  t[key] = -1
  values[numpys] = -1
  assert t.tolist() == values.tolist()


def test_lists_of_tensors_name_places() -> None:
  values = np.arange(24).reshape(4, 2, 3)
  t, one, two = Tensor(values).realize(), Tensor(1), Tensor([2, 0])
  assert t[[one, Tensor(3)]].tolist() == values[[1, 3]].tolist()
  assert t[[one, 0], :, (Tensor(2), 1)].tolist() == values[[1, 0], :, [2, 1]].tolist()
  assert t[[two, two + 1]].tolist() == values[np.array([[2, 0], [3, 1]])].tolist()
  t[[one, 3], :, (0, Tensor(2))] = 0
  values[[1, 3], :, [0, 2]] = 0
  assert t.tolist() == values.tolist()


def test_tensors_are_joined_from_lists() -> None:
  a, b = Tensor([1, 2]), Tensor([3, 4])
  stack: Any = Tensor.stack
  cat: Any = Tensor.cat
  for parts in ([a, b], (a, b)):
    assert stack(parts).tolist() == a.stack(b).tolist() == [[1, 2], [3, 4]]
    assert stack(parts, dim=1).tolist() == [[1, 3], [2, 4]]
    assert cat(parts).tolist() == cat(parts, dim=-1).tolist() == [1, 2, 3, 4]
  with pytest.raises(TypeError, match="axis by its name"):
    cat([a, b], 0)


@pytest.mark.parametrize("key", [0, (1, 2), slice(1, None), [1]])
def test_a_value_for_a_part_may_have_more_axes_of_size_1(key: Any) -> None:
  expected = np.zeros((2, 3), np.float32)
  value = np.full_like(expected[key], 7)[None, None]
  expected[key] = 7
  t = Tensor.zeros(2, 3).contiguous()
  t[key] = Tensor(value)
  assert t.tolist() == expected.tolist()
  with pytest.raises(ValueError, match="cannot write shape"):
    t.assign(Tensor.ones(1, 2, 3))


# *** places outside ***


@pytest.mark.parametrize("places", [([5], [1]), ([1], [9]), ([-4, 1], [1, 2])], ids=str)
def test_what_is_written_outside_is_nowhere(places: Any) -> None:
  t, expected = Tensor.zeros(3, 4).contiguous(), np.zeros((3, 4))
  t[tuple(Tensor(p) for p in places)] = 1
  for row, column in zip(*places, strict=True):
    if -3 <= row < 3 and -4 <= column < 4:
      expected[row, column] = 1
  assert t.tolist() == expected.tolist()


# *** what was computed before a write ***


def test_what_has_no_elements_does_not_hinder_a_write() -> None:
  t = Tensor([1, 2, 3]).realize()
  nothing = [t[3:] + 1, (t[:0] * t[:0]).contiguous()]
  t.assign(t.flip(0) + 1)
  assert t.tolist() == [4, 3, 2]
  assert [n.tolist() for n in nothing] == [[], []]


@pytest.mark.parametrize("first", ["the writer", "the reader"])
def test_a_copy_that_was_written_to_keeps_the_old_contents(first: str) -> None:
  t = Tensor([1, 2, 3]).realize()
  same = t + 0
  t += t
  same[2:] = 7
  order = [t, same] if first == "the writer" else [same, t]
  values = {id(x): x.tolist() for x in order}
  assert (values[id(t)], values[id(same)]) == ([2, 4, 6], [1, 2, 7])


# *** results that are no views ***

VIEWS = """
  atleast_1d atleast_2d atleast_3d bool broadcast_tensors cartesian_prod contiguous detach diagonal dropout
  expand flatten flip fliplr flipud float int meshgrid multi_dot permute positive ravel realize reshape rot90
  shrink_to squeeze t to transpose unbind view
""".split()
"""Methods without arguments that give their tensor of one element, or a view of it, as in PyTorch or NumPy."""


def test_only_views_share_memory() -> None:
  """Of one element there is nothing to compute: a sum is no view of it all the same."""
  found = set()
  names = [name for name in dir(Tensor) if not name.startswith("_") and not name.endswith("_")]
  kinds = itertools.product(("int32", "float32", "bool"), range(4))
  ones = [Tensor.ones(*(1,) * axes, dtype=dtype).contiguous().realize() for dtype, axes in kinds]
  for t, name in itertools.product(ones, names):
    try:
      made = getattr(t, name)()
    except (TypeError, ValueError, IndexError, RuntimeError, AttributeError):
      continue
    parts = made if isinstance(made, (tuple, list)) else [made]
    found |= {name for p in parts if isinstance(p, Tensor) and p.numel() and p._contents is t._contents}
  assert sorted(found) == VIEWS


def test_a_result_in_a_file_is_not_written_to(tmp_path: Path) -> None:
  path = tmp_path / "bytes"
  path.write_bytes(bytes(range(4)))
  result = Tensor(path).floor()
  with pytest.raises(RuntimeError, match="a write must not change: copy it to a device"):
    result.assign(Tensor([9, 9, 9, 9], dtype="uint8"))
  assert path.read_bytes() == bytes(range(4)) and result.tolist() == [0, 1, 2, 3]
  Tensor(path).assign(Tensor([9, 9, 9, 9], dtype="uint8")).realize()
  assert path.read_bytes() == bytes([9] * 4)


def test_the_diagonal_is_written_to() -> None:
  t, expected = Tensor.zeros(2, 3, 4).contiguous().realize(), np.zeros((2, 3, 4))
  for offset in range(-3, 5):
    t.diagonal(offset, -2, -1).add_(offset + 7)
    for matrix in expected:
      for row in range(3):
        if 0 <= row + offset < 4:
          matrix[row, row + offset] += offset + 7
  t.diagonal(dim1=2, dim2=1)[...] = 0
  expected[:, range(3), range(3)] = 0
  assert t.tolist() == expected.tolist()


def test_what_is_written_to_leaves_the_memory_of_the_first() -> None:
  t = Tensor([5.0]).realize()
  memory, view = t.uop.base, t.reshape(1, 1)
  same = t.sort(0)[0]
  its_view = same.reshape(1, 1)
  same += 1
  t += 10
  assert [x.tolist() for x in (t, view, same, its_view)] == [[15.0], [[15.0]], [6.0], [[6.0]]]
  assert t.uop.base is memory
