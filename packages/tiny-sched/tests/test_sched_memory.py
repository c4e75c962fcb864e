"""The memory planner: nothing that is alive overlaps, and arenas are no larger than the sum."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiny_sched import schedule
from tiny_sched.memory_plan import ALIGNMENT, Lifetime, aligned, plan
from tiny_uop import Ops, UOp, dtypes

LIVES = st.builds(
  lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
  st.integers(0, 5000),
  st.integers(0, 30),
  st.integers(0, 12),
)


@given(st.lists(LIVES, max_size=40))
def test_plan_is_valid(lives: list[Lifetime]) -> None:
  named = dict(enumerate(lives))
  offsets, total = plan(named)
  assert offsets.keys() == named.keys()
  assert total <= sum(aligned(max(life.nbytes, 1)) for life in lives)
  for name, life in named.items():
    assert offsets[name] % ALIGNMENT == 0 and 0 <= offsets[name] <= offsets[name] + life.nbytes <= total
    for other, second in named.items():
      if name < other and life.first <= second.last and second.first <= life.last and life.nbytes and second.nbytes:
        apart = offsets[name] + life.nbytes <= offsets[other] or offsets[other] + second.nbytes <= offsets[name]
        assert apart, f"{life} at {offsets[name]} and {second} at {offsets[other]} are alive together and overlap"


@given(st.lists(LIVES, min_size=1, max_size=40))
def test_peak_is_a_lower_bound(lives: list[Lifetime]) -> None:
  peak = max(sum(aligned(max(v.nbytes, 1)) for v in lives if v.first <= t <= v.last) for t in range(50))
  assert plan(dict(enumerate(lives)))[1] >= peak


def test_a_chain_needs_two_places() -> None:
  offsets, total = plan({i: Lifetime(1000, i, i + 1) for i in range(10)})
  assert total == 2 * aligned(1000) and len(set(offsets.values())) == 2


def test_temporaries_of_a_deep_network_are_reused() -> None:
  def arena(depth: int) -> int:
    x = UOp.new_buffer("CPU", 4096, dtypes.float32).reshape((64, 64))
    for _ in range(depth):
      x = (x * 2).contiguous().permute((1, 0))
    linear = schedule(UOp.sink(UOp.new_buffer("CPU", 4096, dtypes.float32).reshape((64, 64)).assign(x + 1)))
    bases = {a.src[0] for call in linear.src for a in call.src[1:] if a.op is Ops.BUFFER_VIEW}
    return sum(int(b.arg[1]) for b in bases)

  assert arena(3) == arena(20) == 2 * 4 * 4096
