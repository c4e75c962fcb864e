"""RESHAPE as index arithmetic, with sizes that are known and such that are not: for every position, the element that is
read is the one at the same place in the order of all elements.
"""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_sched.index import flatten
from tiny_sched.movement import source_index
from tiny_uop import Ops, Shape, UOp, dtypes, evaluate, prod, sint

LARGEST = 3
ROWS, COLS = UOp.variable("rows", 0, LARGEST), UOp.variable("cols", 1, LARGEST)
SIZES: list[sint] = [1, 2, 3, ROWS, COLS, ROWS + 1]


def number(value: sint, values: dict[UOp, int]) -> int:
  return value if isinstance(value, int) else int(evaluate(value, values))  # type: ignore[arg-type]


def value_of_shape(shape: Shape) -> UOp:
  """A value of this shape, in the beginning of a buffer."""
  total = prod(shape)
  most = total if isinstance(total, int) else int(total.vmax)
  buffer = UOp.new_buffer("CPU", most, dtypes.float32)
  return (buffer if isinstance(total, int) else buffer.shrink([(0, total)])).reshape(shape)


def check(source: Shape, out: Shape) -> None:
  given = value_of_shape(source)
  node = given.reshape(out)
  if node is given:
    return  # the same shape: nothing is moved
  most = (size if isinstance(size, int) else int(size.vmax) for size in out)
  position = tuple(UOp.variable(f"p{axis}", 0, size - 1) for axis, size in enumerate(most))
  index, gate = source_index(node, position)
  assert gate is None and len(index) == len(source)
  read, expected = flatten(index, source), flatten(position, out)
  for i, j in itertools.product((0, 1, LARGEST), (1, 2, LARGEST)):
    values = {ROWS: i, COLS: j}
    for place in itertools.product(*(range(number(size, values)) for size in out)):
      at = {**values, **dict(zip(position, place))}
      assert number(read, at) == number(expected, at), f"{source} to {out} at {place} with {values}"


def grouped(sizes: list[sint], ends: list[bool]) -> Shape:
  """Neighbours multiplied with each other where no axis ends."""
  groups: list[list[sint]] = [[]]
  for size, end in zip(sizes, ends):
    groups[-1].append(size)
    if end:
      groups.append([])
  return tuple(prod(group) for group in groups if group)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_reshape_reads_the_same_place(data: st.DataObject) -> None:
  sizes = data.draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4), label="sizes")
  ends = st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))
  check(grouped(sizes, data.draw(ends, label="source")), grouped(sizes, data.draw(ends, label="result")))


def test_axes_after_a_symbolic_one_are_kept() -> None:
  """What a stored value of a symbolic size is read through: a run of memory, then its shape."""
  check((ROWS * 3,), (ROWS, 3))
  check((ROWS, 3), (ROWS * 3,))
  check((ROWS * 12,), (1, ROWS, 3, 4))
  check((ROWS * COLS,), (ROWS, COLS))
  check(((ROWS + COLS) * 4,), (ROWS + COLS, 4))


def test_a_symbolic_axis_does_not_mix_those_around_it() -> None:
  """Axes before and after are looked at as if it were not there."""
  node = value_of_shape((4, ROWS, 6)).reshape((2, 2, ROWS, 3, 2))
  position = tuple(UOp.variable(f"p{axis}", 0, 100) for axis in range(5))
  index, _ = source_index(node, position)
  assert index[1] is position[2] and [i.variables for i in index] == [position[:2], (position[2],), position[3:]]


def test_an_element_that_may_not_be_there_is_read_in_memory() -> None:
  """A position that no loop changes is read before a loop, also before one without iterations."""
  few = UOp.variable("few", 0, 1)
  (flipped,), _ = source_index(value_of_shape((few,)).flip((0,)), (UOp.const(dtypes.index, 0),))
  (first,), _ = source_index(value_of_shape((4,)).shrink(((few + 3, 4),)), (UOp.const(dtypes.index, 0),))
  for value in (0, 1):
    assert number(flipped, {few: value}) == 0 and number(first, {few: value}) == 3


def test_positions_of_loops_are_not_held_in_memory() -> None:
  """They are in it already, for all iterations."""
  position = UOp.variable("p", 0, LARGEST - 1)
  index, _ = source_index(value_of_shape((4,)).shrink(((ROWS, 4),)), (position,))
  assert all(u.op is not Ops.MAX for u in index[0].toposort)
