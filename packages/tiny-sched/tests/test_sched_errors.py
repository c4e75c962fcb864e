"""Graphs that are not legal: the error names what is wrong, and the next graph works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tiny_sched import schedule
from tiny_uop import Ops, UOp, dtypes


def buffer(size: int = 8, device: str = "CPU") -> UOp:
  return UOp.new_buffer(device, size, dtypes.int32)


@pytest.fixture(autouse=True)
def still_usable() -> Iterator[None]:
  yield
  assert len(schedule(UOp.sink(buffer().assign(buffer() + 1))).src) == 1


def test_no_sink() -> None:
  with pytest.raises(ValueError, match="takes a SINK"):
    schedule(buffer().assign(buffer()))


def test_root_without_a_buffer() -> None:
  with pytest.raises(ValueError, match=r"root <ADD .* has no buffer"):
    schedule(UOp.sink(buffer() + 1))


def test_two_devices_in_one_kernel() -> None:
  with pytest.raises(ValueError, match=r"kernel on CPU cannot read .* on GPU.*COPY"):
    schedule(UOp.sink(buffer().assign(buffer() + buffer(device="GPU"))))


def test_store_of_another_shape() -> None:
  with pytest.raises(ValueError, match=r"shape \(4,\).*shape \(8,\)"):
    schedule(UOp.sink(buffer().assign(buffer(4))))


def test_store_of_another_dtype() -> None:
  with pytest.raises(ValueError, match="STORE of float32 into a buffer of int32"):
    schedule(UOp.sink(buffer().assign(buffer().cast(dtypes.float32))))


@pytest.mark.parametrize("view", [lambda b: b.pad(((1, 1),)), lambda b: b.reshape((8, 1)).expand((8, 2))])
def test_store_through_padding_or_expansion(view: object) -> None:
  x = buffer()
  target = view(x)  # type: ignore[operator]
  with pytest.raises(ValueError, match="cannot write through"):
    schedule(UOp.sink(x.after(target.store(target.const_like(1)))))


def test_store_through_an_expansion_that_repeats_nothing() -> None:
  """Every third of 8 elements: of the axis put before itself, 9 are in rows of three, but the first of each is in 8."""
  x = buffer()
  target = x.reshape((1, 8)).expand((2, 8)).reshape((16,)).shrink(((0, 9),)).reshape((3, 3)).shrink(((0, 3), (0, 1)))
  assert schedule(UOp.sink(x.after(target.store(target.const_like(1))))).src
  beyond = x.reshape((1, 8)).expand((2, 8)).reshape((16,)).shrink(((0, 16),)).reshape((2, 8)).shrink(((0, 2), (0, 1)))
  with pytest.raises(ValueError, match="cannot write through"):
    schedule(UOp.sink(x.after(beyond.store(beyond.const_like(1)))))


def test_store_into_a_computed_value() -> None:
  x = buffer() + 1
  with pytest.raises(ValueError, match="not a buffer"):
    schedule(UOp.sink(x.after(x.store(buffer()))))


def test_after_of_another_buffer() -> None:
  x, y = buffer(), buffer()
  with pytest.raises(ValueError, match="another buffer"):
    schedule(UOp.sink(x.after(y.store(buffer()))))


def test_variable_without_a_value() -> None:
  n = UOp.variable("n", 1, 8)
  with pytest.raises(ValueError, match="'n' has no value"):
    schedule(UOp.sink(buffer(1).assign(buffer().shrink(((0, n),)).reduce_axes(Ops.ADD, (0,)))))


def test_kernel_level_node_in_a_tensor_graph() -> None:
  loop = UOp.range(8, 0).cast(dtypes.int32)
  with pytest.raises(ValueError, match="RANGE"):
    schedule(UOp.sink(buffer().assign(buffer() + loop)))


def test_values_without_elements_end() -> None:
  # a long-reduction rule once cut an axis of size 0 for ever
  empty = UOp.new_buffer("CPU", 0, dtypes.int32).reshape((0, 0))
  assert schedule(UOp.sink(empty.assign(empty.reduce_axes(Ops.MUL, (0,)).shrink(((0, 0), (0, 0)))))).src == ()
