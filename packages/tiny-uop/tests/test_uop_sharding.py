"""Where values on several devices lie, as it follows from their graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tiny_uop import Ops, Sharding, SpecError, UOp, dtypes, even_bounds, parse_uop, print_uop, spec
from tiny_uop.sharding import is_local

TWO = ("CPU", "CPU:1")
n = UOp.variable("n", 1, 9)


def split(*shape: int, axis: int | None = 0) -> UOp:
  whole = UOp.new_buffer("CPU", 1, dtypes.float32).reshape((1,) * len(shape)).expand(shape)
  return whole.laid_out(Sharding.of(TWO, axis, () if axis is None else even_bounds(shape[axis], 2)))


def test_even_bounds() -> None:
  assert even_bounds(10, 4) == (0, 3, 6, 8, 10) and even_bounds(8, 4) == (0, 2, 4, 6, 8)
  assert even_bounds(2, 3) == (0, 1, 2, 2)


def test_a_value_on_several_devices() -> None:
  x, copied = split(5, 4), split(5, 4, axis=None)
  assert x.op is Ops.MULTI and x.shape == (5, 4) and x.device == TWO and [s.shape for s in x.src] == [(3, 4), (2, 4)]
  assert copied.op is Ops.COPY and copied.device == TWO and copied.sharding == Sharding(TWO)
  assert x.sharding == Sharding.of(TWO, 0, (0, 3, 5)) and x.sharding.region(1, x.shape) == ((3, 5), (0, 4))
  assert x.laid_out(x.sharding) is x and x.copy_to("CPU").sharding is None and x.src[0].sharding is None
  root = UOp.sink(x * copied + 1.0)
  spec.check(root, "tensor")
  assert parse_uop(print_uop(root)) is root


S0, S1, WHOLE = Sharding.of(TWO, 0, (0, 3, 6)), Sharding.of(TWO, 1, (0, 3, 6)), Sharding(TWO)
# of x (6, 4) in pieces of rows: the operation, where its result lies, and whether that needs no copies
MOVED: dict[str, tuple[Callable[[UOp], UOp], Sharding, bool]] = {
  "split an axis": (lambda x: x.reshape((6, 2, 2)), S0, True),
  "merge the axis with what is inside": (lambda x: x.reshape((24,)), Sharding.of(TWO, 0, (0, 12, 24)), True),
  "split the axis at a boundary": (lambda x: x.reshape((2, 3, 4)), Sharding.of(TWO, 0, (0, 1, 2)), True),
  "split the axis elsewhere": (lambda x: x.reshape((3, 2, 4)), WHOLE, False),
  "merge what is outside": (lambda x: x.permute((1, 0)).reshape((24,)), WHOLE, False),
  "axes of size 1": (lambda x: x.reshape((1, 6, 1, 4)), Sharding.of(TWO, 1, (0, 3, 6)), True),
  "permute": (lambda x: x.permute((1, 0)), S1, True),
  "expand": (lambda x: x.reshape((1, 6, 4)).expand((5, 6, 4)), S1, True),
  "pad elsewhere": (lambda x: x.pad(((0, 0), (1, 2))), S0, True),
  "pad the axis": (lambda x: x.pad(((1, 0), (0, 0))), Sharding.of(TWO, 0, (0, 4, 7)), False),
  "shrink elsewhere": (lambda x: x.shrink(((0, 6), (1, 2))), S0, True),
  "something is left of each piece": (lambda x: x.shrink(((2, 5), (0, 4))), Sharding.of(TWO, 0, (0, 1, 3)), True),
  "nothing is left of a piece": (lambda x: x.shrink(((3, 6), (0, 4))), Sharding.of(TWO, 0, (0, 2, 3)), False),
  "fewer than devices are left": (lambda x: x.shrink(((5, 6), (0, 4))), WHOLE, False),
  "flip elsewhere": (lambda x: x.flip((1,)), S0, True),
  "flip": (lambda x: x.flip((0, 1)), S0, False),
}


@pytest.mark.parametrize("name", MOVED)
def test_movement(name: str) -> None:
  build, expected, local = MOVED[name]
  moved = build(split(6, 4))
  assert moved.sharding == expected and is_local(moved) is local
  assert build(split(6, 4, axis=None)).sharding == WHOLE and is_local(build(split(6, 4, axis=None)))


def test_other_operations() -> None:
  x, y, copied = split(6, 6), split(6, 6, axis=1), split(6, 6, axis=None)
  assert (copied + x).sharding == (x + y).sharding == S0 and (y + x).sharding == S1
  assert (x < 1.0).where(copied, 0.0).sharding == S0 and (copied + 1.0).sharding == WHOLE
  assert x.reduce_axes(Ops.ADD, (1,)).sharding == S0 and x.reduce_axes(Ops.ADD, (0, 1)).sharding == WHOLE
  assert x.contiguous().sharding == x.detach().sharding == x.later_than(y).sharding == S0
  assert x.bitcast(dtypes.uint8).sharding == S0
  assert (
    y.bitcast(dtypes.uint8).sharding == Sharding.of(TWO, 1, (0, 12, 24)) and y.bitcast(dtypes.int64).sharding == WHOLE
  )
  assert x.after(x.store(y)).sharding == S0
  number = UOp(Ops.CONST, dtypes.float32, (UOp(Ops.DEVICE, arg=TWO),), 2.0)
  assert number.sharding == WHOLE and number.filling((6, 6)).device == TWO


def test_symbolic_sizes_elsewhere() -> None:
  s = Sharding.of(TWO, 1, (0, 3, 6))
  x = UOp.new_buffer("CPU", 54, dtypes.float32).reshape((9, 6)).shrink(((0, n), (0, 6))).laid_out(s)
  assert x.sharding == s and x.reshape((n, 2, 3)).sharding == Sharding.of(TWO, 1, (0, 1, 2))
  assert x.reshape((n, 6, 1)).sharding == s and x.permute((1, 0)).sharding == Sharding.of(TWO, 0, (0, 3, 6))
  spec.check(UOp.sink(x + 1.0), "tensor")


def test_values_on_different_devices() -> None:
  other = split(6, 4).laid_out(Sharding.of(("CPU", "CPU:2"), 0, (0, 3, 6)))
  with pytest.raises(ValueError, match="ADD of values on CPU, CPU:1 and on CPU, CPU:2: copy one of them first"):
    assert (split(6, 4) + other).sharding


def test_illegal_pieces() -> None:
  x = split(6, 4)
  one, two = x.src
  empty = two.shrink(((0, 0), (0, 4)))
  wrong: list[tuple[tuple[UOp, ...], int | str | None]] = [
    (x.src, 2),
    (x.src, "0"),
    ((one, one), 0),
    ((one, empty), 0),
    ((one, two.permute((1, 0))), 0),
    ((one,), 0),
    ((one, two.cast(dtypes.int32)), 0),
    ((one, two.shrink(((0, 2), (0, 4)))), None),
  ]
  for pieces, axis in wrong:
    with pytest.raises((SpecError, ValueError)):
      spec.check(UOp.sink(UOp(Ops.MULTI, dtypes.float32, pieces, axis)), "tensor")
  for names in ((), ("CPU",), ("CPU", "CPU"), ("CPU", ""), ("CPU", 1)):
    with pytest.raises(SpecError, match="DEVICE"):
      spec.check(UOp.sink(one.copy_to(names)), "tensor")  # type: ignore[arg-type]
  with pytest.raises(SpecError, match="of one name"):
    spec.check(UOp.sink(UOp.new_buffer(TWO, 4, dtypes.float32)), "tensor")
