"""CALL at tensor level: a kernel that was made elsewhere, scheduled among those that are made here."""

from __future__ import annotations

import pytest

from tiny_sched import schedule, schedule_cache_info
from tiny_uop import Context, CustomGradient, KernelInfo, Ops, SpecError, UOp, dtypes, spec

SIZE = 4096


def buffer(size: int = SIZE, device: str = "CPU") -> UOp:
  return UOp.new_buffer(device, size, dtypes.float32)


def param(n: int, size: int = SIZE) -> UOp:
  return UOp.param(n, dtypes.float32.ptr(size))


def doubled() -> UOp:
  i = UOp.range(SIZE, 0)
  return UOp.sink(param(0).index(i).store(param(1).index(i).load() * 2).end(i), arg=KernelInfo("doubled"))


def two_results() -> UOp:
  i = UOp.range(SIZE, 0)
  x = param(2).index(i).load()
  effects = UOp.group(param(0).index(i).store(x + 1), param(1).index(i).store(x + 2))
  return UOp.sink(effects.end(i), arg=KernelInfo("two_results"))


def call(kernel: UOp, *inputs: UOp, number: int = 0, device: str = "CPU") -> UOp:
  return UOp(Ops.CALL, dtypes.float32, (kernel, UOp(Ops.DEVICE, arg=device), *inputs), number)


def names(linear: UOp) -> list[str]:
  return [c.src[0].arg.name for c in linear.src]


def test_the_kernel_stays_as_it_is_and_writes_where_its_result_goes() -> None:
  x, out = buffer(), buffer()
  linear = schedule(UOp.sink(out.assign(call(doubled(), x))))
  (only,) = linear.src
  assert only.src == (doubled(), out, x)
  spec.check(linear, "schedule")


def test_inputs_and_results_are_parts_of_the_graph() -> None:
  x, out = buffer(), buffer(64)
  given = call(doubled(), (x + 1).sqrt())
  rows = (given * 3).reshape((64, 64)).reduce_axes(Ops.ADD, (1,)).reshape((64,))
  linear = schedule(UOp.sink(out.assign(rows)))
  assert names(linear) == ["elementwise_4096", "doubled", "reduce_64_r64"]
  first, second, third = linear.src
  assert second.src[2] == first.src[1] and third.src[2] == second.src[1]


def test_once_for_all_results_and_users() -> None:
  x, a, b, c = buffer(), buffer(), buffer(), buffer()
  one, two = (call(two_results(), x, number=n) for n in range(2))
  linear = schedule(UOp.sink(a.assign(one), b.assign(two), c.assign((one + two).sqrt())))
  assert names(linear) == ["two_results", "elementwise_4096"]
  assert linear.src[0].src[1:] == (a, b, x) and set(linear.src[1].src[2:]) == {a, b}
  # a result that nothing uses is written all the same, to memory of nobody else
  alone = schedule(UOp.sink(b.assign(two)))
  assert names(alone) == ["two_results"]
  assert alone.src[0].src[1].op is Ops.BUFFER_VIEW and alone.src[0].src[2:] == (b, x)


def test_a_result_over_what_it_was_made_of() -> None:
  """x ← doubled(x): the kernel must not write what it reads, nor what another still has to read."""
  x, out = buffer(), buffer()
  linear = schedule(UOp.sink(x.assign(call(doubled(), x)), out.assign(x + 1)))
  doubled_call = next(c for c in linear.src if c.src[0] is doubled())
  assert doubled_call.src[1] is not x and doubled_call.src[2] is x
  last = linear.src[-1]
  assert last.src[1] is x or linear.src[-2].src[1] is x
  reads = [i for i, c in enumerate(linear.src) if x in c.src[2:]]
  writes = [i for i, c in enumerate(linear.src) if c.src[1] is x]
  assert len(writes) == 1 and max(reads) <= writes[0]


def test_inputs_are_runs_of_memory() -> None:
  base, out = buffer(2 * SIZE + 64), buffer()

  def of(view: UOp) -> UOp:
    return schedule(UOp.sink(out.assign(call(doubled(), view))))

  part = of(base.shrink(((SIZE, 2 * SIZE),)))
  assert part.src[0].src[2].op is Ops.BUFFER_VIEW and part.src[0].src[2].arg == (SIZE * 4, SIZE)
  # one that begins anywhere is copied, since kernels load whole vectors; so are elements in another order
  assert names(of(base.shrink(((1, SIZE + 1),)))) == ["move_4096", "doubled"]
  assert names(of(base.shrink(((0, SIZE),)).reshape((64, 64)).permute((1, 0)).reshape((SIZE,)))) == [
    "move_64x64", "doubled"
  ]  # fmt: skip


def test_equal_graphs_over_other_buffers_are_found_in_the_cache() -> None:
  def graph() -> UOp:
    return UOp.sink(buffer().assign(call(doubled(), buffer()) + 1))

  schedule(graph())
  before = schedule_cache_info().hits
  schedule(graph())
  assert schedule_cache_info().hits == before + 1


def test_what_gradients_are_made_of_is_not_scheduled() -> None:
  x, out = buffer(), buffer()
  value = (x + 1).sqrt()
  other = UOp.new_buffer("CPU", SIZE, dtypes.float32).assign(x * 3)  # would be written, if it were looked at

  def graph(number: int) -> UOp:
    own = UOp(Ops.CUSTOM_GRADIENT, value.dtype, (value, UOp.sink(other, value)), CustomGradient("own", number, 1))
    return UOp.sink(out.assign(own * 2))

  linear, plain = schedule(graph(1)), schedule(UOp.sink(out.assign(value * 2)))
  assert linear.src == plain.src
  before = schedule_cache_info().hits
  schedule(graph(2))
  assert schedule_cache_info().hits == before + 1


def test_what_does_not_fit() -> None:
  x, out = buffer(), buffer()
  with Context(SPEC=1):
    schedule(UOp.sink(out.assign(call(doubled(), x))))
    with pytest.raises(SpecError, match="CALL .* expected a kernel whose PARAMs are its results"):
      schedule(UOp.sink(out.assign(call(doubled(), buffer(SIZE + 1).cast(dtypes.float32)))))
    with pytest.raises(SpecError, match="CALL"):
      schedule(UOp.sink(out.assign(call(doubled(), x, number=1))))
    open_loop = UOp.sink(param(0).index(UOp.range(SIZE, 0)).store(param(1).index(0).load()), arg=KernelInfo("open"))
    with pytest.raises(SpecError, match="every loop closed"):
      schedule(UOp.sink(out.assign(call(open_loop, x))))
  with pytest.raises(ValueError, match="a kernel on CPU cannot read"):
    schedule(UOp.sink(out.assign(call(doubled(), buffer(device="OTHER")))))
