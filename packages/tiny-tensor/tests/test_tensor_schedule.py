"""`schedule`: a list of what `realize` would run, item by item; whatever is run in whichever way, the values are those
of `realize` or the item is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tiny_runtime import Buffer, ExecItem, GlobalCounters, run, run_schedule
from tiny_tensor import Context, Tensor, TinyJit, UOp, Variable, dtypes
from tiny_tensor.realize import is_realized
from tiny_uop import Ops


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def vector(*values: float) -> Tensor:
  return Tensor(values or (1.0, 2.0, 3.0, 4.0)).realize()


# Each makes tensors to be computed together, and gives those whose values count: the last ones may share buffers with
# those that are scheduled.


def one_kernel() -> list[Tensor]:
  return [vector() * 2 + 1]


def chain() -> list[Tensor]:
  x = (vector() + 1).contiguous()
  y = (x * x).contiguous()
  return [(y.flip(0) - x).contiguous() + y.sum()]


def long_chain() -> list[Tensor]:
  # temporaries that are done with give their memory to later ones
  x = Tensor([[1.0, 2.0], [3.0, -4.0]]).realize()
  y = x
  for _ in range(5):
    y = ((y @ x) * 0.25).contiguous()
  return [y]


def several() -> list[Tensor]:
  a, b = vector(), vector(4, 3, 2, 1)
  return [a + b, (a * b).sum(), (a - b).contiguous()]


def two_with_one_source() -> list[Tensor]:
  x = vector().softmax().contiguous()
  return [x + 1, x * 2]


def in_place() -> list[Tensor]:
  w = vector()
  w += 1
  return [w]


def in_place_and_read_before() -> list[Tensor]:
  w = vector()
  before = w.flip(0) * 10
  w.assign(w + 1)
  return [w, before, w * 100]


def twice_in_place() -> list[Tensor]:
  w = vector()
  seen = []
  for _ in range(3):
    w.assign(w * 2)
    seen.append(w * 1)
  return [w, *seen]


def swap() -> list[Tensor]:
  a, b = vector(), vector(4.0, 3.0, 2.0, 1.0)
  x, y = a * 1, b * 1
  a.assign(y)
  b.assign(x)
  return [a, b]


def part() -> list[Tensor]:
  x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
  old = x.sum()
  x[1] = x[0] * 10
  x[0, 1] = 7
  return [x, old]


def step_of_an_optimiser() -> list[Tensor]:
  from tiny_tensor import nn

  w, b = vector().reshape(2, 2).contiguous().requires_grad_(), vector(0.5, -0.5).requires_grad_()
  opt = nn.optim.Adam([w, b], lr=0.1)
  with Tensor.train():
    (Tensor([[1.0, -1.0]]) @ w + b).square().sum().backward()
    return opt.schedule_step()


def copies() -> list[Tensor]:
  a = vector()
  there = (a + 1).to("REF:1")
  return [there * 2, (there.sum() + 1).to("REF")]


def sharded() -> list[Tensor]:
  x = Tensor([[1.0, 2.0], [3.0, 4.0]]).shard(("REF", "REF:1"), axis=0)
  return [x @ x.T, x.sum(0)]


def symbolic() -> list[Tensor]:
  i = Variable("i", 1, 4).bind(3)
  return [vector()[:i].sum() * 2, vector()[:i].contiguous().max()]


PROGRAMS: list[Callable[[], list[Tensor]]] = [
  one_kernel, chain, long_chain, several, two_with_one_source, in_place, in_place_and_read_before, twice_in_place, swap,
  part, step_of_an_optimiser, copies, sharded, symbolic,
]  # fmt: skip


def values(tensors: list[Tensor]) -> list[object]:
  return [t.tolist() for t in tensors]


def scheduled(program: Callable[[], list[Tensor]]) -> tuple[list[Tensor], list[ExecItem]]:
  tensors = program()
  return tensors, tensors[0].schedule(*tensors[1:])


@pytest.mark.parametrize("program", PROGRAMS)
def test_run_one_by_one(program: Callable[[], list[Tensor]]) -> None:
  expected = program()
  expected[0].realize(*expected[1:])
  tensors, items = scheduled(program)
  assert items and all(is_realized(t.uop) for t in tensors)
  for item in items:
    assert item.lower() is item and item.run() is None
  assert values(tensors) == values(expected)


@pytest.mark.parametrize("program", PROGRAMS)
def test_run_in_two_parts_or_as_a_graph(program: Callable[[], list[Tensor]]) -> None:
  expected = program()
  expected[0].realize(*expected[1:])
  count = len(scheduled(program)[1])
  for cut in {0, 1, count // 2, count}:
    tensors, items = scheduled(program)
    run_schedule(items[:cut])
    run_schedule(items[cut:])
    assert values(tensors) == values(expected)
  tensors = program()
  run(tensors[0].schedule_linear(*tensors[1:]))
  assert values(tensors) == values(expected)


@pytest.mark.parametrize("program", PROGRAMS)
def test_any_order_gives_the_same_or_is_refused(program: Callable[[], list[Tensor]]) -> None:
  expected = program()
  expected[0].realize(*expected[1:])
  rng = random.Random(0)
  refused = 0
  for _ in range(6):
    tensors, items = scheduled(program)
    for n in [rng.randrange(len(items)) for _ in range(2 * len(items))]:  # some twice, some too early
      try:
        items[n].run()
      except RuntimeError as error:
        assert "item" in str(error)
        refused += 1
    left = items
    while left:  # what was refused runs once what it waits for has run
      wait = []
      for item in left:
        try:
          item.run()
        except RuntimeError:
          wait.append(item)
      if len(wait) == len(left):
        break
      left = wait
    assert values(tensors) == values(expected)
  assert refused or len(items) == 1 or program in (several, symbolic)


def test_running_twice() -> None:
  tensors, items = scheduled(chain)
  for _ in range(3):  # a benchmark does that
    run_schedule(items)
  expected = chain()[0].tolist()
  assert tensors[0].tolist() == expected
  tensors, items = scheduled(long_chain)
  for _ in range(3):
    for item in items:
      item.run()
  assert tensors[0].tolist() == long_chain()[0].tolist()


def test_what_is_refused_says_why() -> None:
  tensors, items = scheduled(chain)
  with pytest.raises(RuntimeError, match=r"item 1 \(.*\) reads what item 0 \(.*\) writes, which has not run"):
    items[1].run()
  w = vector(1.0, 2.0)
  before = w.flip(0) * 10
  w += 1
  items = before.schedule(w)
  with pytest.raises(RuntimeError, match=r"item 1 \(.*\) overwrites what item 0 \(.*\) reads, which has not run"):
    items[1].run()
  run_schedule(items)
  with pytest.raises(RuntimeError, match=r"item 1 \(.*\) has run, and updates what it reads: schedule it again"):
    items[1].run()
  with pytest.raises(RuntimeError, match=r"item 0 \(.*\) reads what item 1 \(.*\) has overwritten: schedule it again"):
    items[0].run()
  assert (before.tolist(), w.tolist()) == ([20, 10], [2, 3])


# *** what an item says of itself ***


def test_a_list_of_items() -> None:
  x = vector()
  t = (x.exp() * 3).sum()
  items = t.schedule()
  assert isinstance(items, list) and len(items) == 1 and items[-1] is items[0]
  (item,) = items
  assert item.ast.op is Ops.SINK and item.ast.arg.name in repr(item)
  assert [(b.size, b.dtype, b.device) for b in item.bufs] == [(1, dtypes.float32, "REF"), (4, dtypes.float32, "REF")]
  assert all(isinstance(b, Buffer) for b in item.bufs) and not item.bufs[0].is_allocated()
  assert {m.name for m in item.metadata} >= {"exp", "mul", "sum"} and "add" not in {m.name for m in item.metadata}
  assert item.prg is None and item.fixedvars == {}
  binary = item.lower().prg
  assert binary is not None and binary.entry == item.ast.arg.name
  with pytest.raises(RuntimeError, match="written"):
    t.item()
  assert item.run() is None
  assert memoryview(item.bufs[0].read()).cast("f")[0] == t.item()
  assert t.schedule() == [] and Tensor([1]).realize().schedule() == []


def test_copies_are_items() -> None:
  items = vector().to("REF:1").schedule()
  assert [item.ast.op for item in items] == [Ops.COPY] and [m.name for m in items[0].metadata] == ["copy"]
  assert [b.device for b in items[0].bufs] == ["REF:1", "REF"] and items[0].lower().prg is None


def test_time_and_counters() -> None:
  makers: list[Callable[[], Tensor]] = [lambda: vector() + 1, lambda: vector().to("REF:1")]
  for make in makers:
    (item,) = make().schedule()
    GlobalCounters.reset()
    seconds = item.run(wait=True)
    assert isinstance(seconds, float) and seconds > 0
    assert GlobalCounters.kernel_count == 1 and GlobalCounters.global_mem > 0
    item.run(do_update_stats=False)
    run_schedule([item], do_update_stats=False)
    (make() * 1).contiguous().realize(do_update_stats=False)
    assert GlobalCounters.kernel_count == 1


def test_variables() -> None:
  i = Variable("i", 1, 4)
  t = vector()[: i.bind(3)].sum()
  items, var_vals = t.schedule_with_vars()
  assert var_vals == {"i": 3} and items[0].fixedvars == {"i": 3}
  run_schedule(items, var_vals)
  assert t.item() == 6
  run_schedule(items, {"i": 2, "unused": 9})
  assert t.item() == 3
  with pytest.raises(ValueError, match="i"):
    items[0].run({"i": 5})
  linear, found = (vector()[: i.bind(2)] * 2).contiguous().linear_with_vars()
  assert linear.op is Ops.LINEAR and found == {"i": 2}


def test_a_schedule_as_a_graph() -> None:
  linear = (vector() + 1).schedule_linear()
  assert isinstance(linear, UOp) and linear.op is Ops.LINEAR and len(linear.src) == 1


def test_what_is_run_by_items_is_captured() -> None:
  @TinyJit
  def step(x: Tensor) -> Tensor:
    out = (x * 2).contiguous() + 1
    run_schedule(out.schedule())
    return out

  for n in range(4):
    assert step(vector(n)).item() == 2 * n + 1
