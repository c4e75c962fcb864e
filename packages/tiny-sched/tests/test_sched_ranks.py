"""Values on several ranks: which collectives a schedule has, the same on all ranks and in the same order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tiny_sched import schedule
from tiny_sched.devices.ranks import graph_lines
from tiny_uop import (
  Collective,
  Context,
  Cut,
  Ops,
  Sharding,
  UOp,
  collective_of,
  dtypes,
  even_bounds,
  parse_uop,
  print_uop,
  spec,
)

COUNT = 4


def devices(rank: int) -> tuple[str, ...]:
  return tuple([f"CPU@{'=' if i == rank else ''}{i}" for i in range(COUNT)])


def pieces(rank: int, shape: tuple[int, ...], axis: int | None, dtype: str = "float32") -> UOp:
  """A value of which this rank has its piece in memory."""
  s = Sharding.of(devices(rank), axis, () if axis is None else even_bounds(shape[axis], COUNT))
  own = s.part_shape(rank, shape)
  size = 1
  for n in own:
    assert isinstance(n, int)
    size *= n
  return UOp.multi(s, [UOp.new_buffer("CPU", size, getattr(dtypes, dtype)).reshape(own)])


def stored(value: UOp) -> UOp:
  """A graph that keeps a value, as it lies."""
  s = value.sharding
  assert s is not None
  shape = value.shape
  (rank,) = s.here
  own = s.part_shape(rank, shape)
  size = 1
  for n in own:
    assert isinstance(n, int)
    size *= n
  target = UOp.multi(s, [UOp.new_buffer("CPU", size, value.dtype).reshape(own)])
  return UOp.sink(target.after(target.store(value)))


def collectives(build: Callable[[int], UOp], rank: int) -> list[Collective]:
  with Context(SPEC=1):
    linear = schedule(build(rank))
  assert parse_uop(print_uop(linear)) is linear
  found = [collective_of(call.src[0]) for call in linear.src if call.src[0].op is Ops.SINK]
  return [u.arg for u in found if u is not None]


def sum_of_three(rank: int) -> UOp:
  """`(8, 40000)`, in another order than it is added in."""
  return pieces(rank, (4, 40000, 8), 0).reduce_axes(Ops.ADD, (0,)).reshape((40000, 8)).permute((1, 0))


CASES: dict[str, tuple[Callable[[int], UOp], list[str]]] = {
  "pieces alone": (lambda r: stored(pieces(r, (8, 6), 0) * 2.0), []),
  "a small sum": (lambda r: stored(pieces(r, (8, 6), 0).reduce_axes(Ops.ADD, (0,))), ["all_gather"]),
  "a large sum": (lambda r: stored(pieces(r, (8, 40000), 0).reduce_axes(Ops.ADD, (0,))), ["all_to_all", "all_gather"]),
  "rows and columns": (lambda r: stored(pieces(r, (8, 8), 0) + pieces(r, (8, 8), 1)), ["all_to_all"]),
  "rows and all": (lambda r: stored(pieces(r, (8, 8), 0) + pieces(r, (8, 8), None)), []),
  "a row of one rank": (lambda r: stored(pieces(r, (8, 6), 0).shrink(((5, 6), (0, 6))).reshape((6,))), ["broadcast"]),
  "backwards": (lambda r: stored(pieces(r, (8, 8), 0).flip((0,))), ["all_to_all"]),
  "padding alone on some": (lambda r: stored(pieces(r, (4, 4), 0).pad(((12, 0), (0, 0)))), ["all_to_all"]),
  "a sum in pieces": (lambda r: stored(pieces(r, (8, 40000), 1) * sum_of_three(r)), ["all_to_all"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_have_the_same(case: str) -> None:
  build, kinds = CASES[case]
  by_rank = [collectives(build, rank) for rank in range(COUNT)]
  for rank, found in enumerate(by_rank):
    assert [c.kind for c in found] == kinds and [c.number for c in found] == list(range(len(kinds)))
    assert all(c.position == rank and c.ranks == tuple(range(COUNT)) for c in found)
  assert len({c.graph for found in by_rank for c in found}) <= 1
  for number in range(len(kinds)):
    for me in range(COUNT):
      for other in range(COUNT):
        one, two = by_rank[me][number], by_rank[other][number]
        if one.kind == "all_to_all" and me != other:
          assert [s[other] for s in one.sent] == [r[me] for r in two.received]
        elif one.kind in ("all_gather", "broadcast"):
          assert one.sent == two.sent == two.received


def test_moves_that_are_the_same_for_one_rank_stay_two() -> None:
  """The last rank gets one row from the third in both of these, and sends nothing; others get and send other rows."""

  def build(rank: int) -> UOp:
    x = pieces(rank, (16, 2), 0)
    return stored(x.shrink(((6, 10), (0, 2))) + x.shrink(((5, 9), (0, 2))) * 2.0)

  assert [[len(c.sent) for c in collectives(build, rank)] for rank in range(COUNT)] == [[2]] * COUNT


def test_rows_of_a_grid() -> None:
  """A product of pieces of rows and of the sum, and of pieces of the sum: added over the ranks along one axis, which
  are two of four; what every rank decides by a size is the same, though columns in pieces differ in length."""

  def build(rank: int) -> UOp:
    grid = Sharding(devices(rank), grid=(2, 2))
    s = grid.with_cuts([Cut(0, (0, 1, 40000), (0,)), Cut(1, (0, 3, 5), (1,))])
    own = s.part_shape(rank, (40000, 5))
    x = UOp.multi(s, [UOp.new_buffer("CPU", own[0] * own[1], dtypes.float32).reshape(own)])  # type: ignore[arg-type]
    return stored(x.reduce_axes(Ops.ADD, (1,)))

  found = [collectives(build, rank) for rank in range(COUNT)]
  assert [[c.kind for c in of_rank] for of_rank in found] == [["all_gather"]] * COUNT
  assert [of_rank[0].ranks for of_rank in found] == [(0, 1), (0, 1), (2, 3), (2, 3)]
  assert [of_rank[0].sent for of_rank in found] == [((1, 1),)] * 2 + [((39999, 39999),)] * 2
  assert {c.among for of_rank in found for c in of_rank} == {(0, 1, 2, 3)}


def test_sums_of_one_level_go_together() -> None:
  def build(rank: int) -> UOp:
    sums = [pieces(rank, (8, n), 0).reduce_axes(Ops.ADD, (0,)) for n in (3, 5, 7)]
    return UOp.sink(*[root for total in sums for root in stored(total).src])

  (found,) = collectives(build, 1)
  assert [c[0] for c in found.sent] == [3, 5, 7]
  with Context(BUCKET_BYTES=20):
    assert [len(c.sent) for c in collectives(lambda r: build(r), 2)] in ([3], [1, 1, 1])  # the cache may know it


def test_parts_are_gathered_after_the_next_large_sum_has_been_sent() -> None:
  """What has to arrive first does so while the terms of the next sum are computed; a small one changes nothing."""

  def build(rank: int) -> UOp:
    sums = [pieces(rank, (8, n), 0).reduce_axes(Ops.ADD, (0,)) for n in (40000, 5, 40001, 40002)]
    return UOp.sink(*[root for total in sums for root in stored(total).src])

  with Context(BUCKET_BYTES=1):
    found = [(c.kind, c.sent[0][0]) for c in collectives(build, 0)]
  share = 40000 // COUNT
  assert found == [
    ("all_to_all", share), ("all_gather", 5), ("all_to_all", share + 1), ("all_gather", share),
    ("all_to_all", share + 1), ("all_gather", share + 1), ("all_gather", share + 1),
  ]  # fmt: skip


def backward_pass(rank: int) -> UOp:
  """Gradients of four layers `h @ w`, each of other sizes: of `w`, which is whole everywhere, summed over the rows of
  `h`, which is in pieces. They are kept in the order of the layers."""
  sizes = (5, 6, 7, 8, 9)
  hidden = [pieces(rank, (8, n), 0) for n in sizes]
  weights = [pieces(rank, shape, None) for shape in zip(sizes, sizes[1:])]
  gradient = pieces(rank, (8, sizes[-1]), 0)
  roots: list[UOp] = []
  for h, w in zip(reversed(hidden[:-1]), reversed(weights)):
    (m, n), rows = w.shape, 8
    outer = h.reshape((rows, m, 1)).expand((rows, m, n)) * gradient.reshape((rows, 1, n)).expand((rows, m, n))
    roots = [*stored(outer.reduce_axes(Ops.ADD, (0,)).reshape((m, n))).src, *roots]
    product = gradient.reshape((rows, 1, n)).expand((rows, m, n)) * w.reshape((1, m, n)).expand((rows, m, n))
    gradient = product.reduce_axes(Ops.ADD, (2,)).reshape((rows, m)).contiguous()
  return UOp.sink(*roots)


def test_gradients_travel_while_others_are_computed() -> None:
  with Context(BUCKET_BYTES=1):
    calls = schedule(backward_pass(2)).src
  found = [(n, body.arg) for n, call in enumerate(calls) if (body := collective_of(call.src[0])) is not None]
  assert [sum(c.sent[0]) // COUNT for _, c in found] == [72, 56, 42, 30]  # the last layer's first, as it is ready first
  memories = [{argument_of(a) for a in call.src[1:]} for call in calls]
  for (number, _), (following, _) in zip(found, found[1:]):
    between = memories[number + 1 : following]
    assert len(between) >= 2, "the next gradient is computed after a collective has begun"
    assert not any(memories[number] & used for used in between), "and touches nothing of it"


def argument_of(argument: UOp) -> object:
  """The memory of an argument of a CALL: a part of an arena is one by itself."""
  return (argument.src[0], argument.arg[0]) if argument.op is Ops.BUFFER_VIEW else argument


def test_what_differs_is_told() -> None:
  graphs = {
    collectives(lambda r, n=n: stored((pieces(r, (8, 6), 0) * n).reduce_axes(Ops.ADD, (0,))), 0)[0].graph  # type: ignore[misc]
    for n in (2.0, 3.0)
  }
  assert len(graphs) == 2
  one, two = (graph_lines(graph) for graph in sorted(graphs))
  assert len(one) == len(two) and sum(a != b for a, b in zip(one, two)) == 1


def test_halves_are_added_in_float32() -> None:
  linear = schedule(stored(pieces(0, (8, 6), 0, "float16").reduce_axes(Ops.ADD, (0,))))
  kernels = [u for call in linear.src for u in call.src[0].toposort if u.op is Ops.REDUCE]
  assert any(u.dtype is dtypes.float32 for u in kernels)


def test_the_spec_knows_pieces_of_one_process() -> None:
  s = Sharding.of(devices(1), 0, even_bounds(8, COUNT))
  wrong = UOp(Ops.MULTI, dtypes.float32, (UOp.new_buffer("CPU", 3, dtypes.float32),), s)
  with Context(SPEC=1), pytest.raises(spec.SpecError):
    spec.check_stage(stored(wrong + 1.0), "tensor")
