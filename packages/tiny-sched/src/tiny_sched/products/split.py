"""Long sums of products with few results, in two kernels: parts of the sums first, which many threads share, then the
sums of the parts, in one order.

Threads share the results of a kernel. Where these are few, each gets a small tile of them, for which it reads and packs
much of both operands, or some threads get none. With the terms shared as well, tiles are larger; the parts have to be
written, read and waited for. An estimate weighs one against the other, in multiply-adds of one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from tiny_sched.index import known, simplify
from tiny_sched.kernels import Kernel, final, free_number
from tiny_sched.normalise import temporary_buffer
from tiny_sched.schedule_item import BufferRegion
from tiny_uop import AxisType, Ops, PtrDType, UOp
from tiny_uop.records import dataclass

FLOAT = 4
"""Bytes of the type that is multiplied for whose multiply-adds the figures below are; as many more of smaller ones are
done in the same time."""
MOVED = 8.0
"""Multiply-adds in the time of an element that a tile reads or packs."""
PART = 32.0
"""Of a part of a result that is written by one thread and read by another one."""
SECOND_KERNEL = 1 << 19
"""Of waiting for all threads and waking them again: some 5 microseconds."""
LESS = 0.93
"""Of an estimate: so much better, two kernels are worth it."""
NEAR = 1.05
"""Of the least estimate: fewer parts are as good."""
LANES = 16
"""Results side by side that a tile has, at least: floats of a cache line."""
TERMS = 256
"""Of a part, at least."""
TILES = 8
"""Of a thread, at most, that are looked at: with more of them it hardly matters how they divide."""


@dataclass(frozen=True)
class LongSum:
  """A sum of products: the loops over results that only one operand, only the other, and both depend on, the number of
  terms, and the bytes of the type that is multiplied; and of each operand how often its elements are terms of results
  next to each other, as windows of a convolution have them."""

  own: tuple[tuple[int, ...], tuple[int, ...]]
  again: tuple[float, float]
  common: int
  terms: int
  itemsize: int

  @property
  def results(self) -> int:
    """How many sums there are."""
    return self.common * math.prod(self.own[0]) * math.prod(self.own[1])

  def cost(self, parts: int, threads: int) -> float:
    """Multiply-adds, or what takes as long, of the thread with most work, if the terms are in so many parts."""
    rows, columns = (math.prod(sizes) for sizes in self.own)
    most = threads * TILES
    best, faster = math.inf, FLOAT / self.itemsize
    for p in _pieces(self.own[0], most):
      for q in _pieces(self.own[1], most):
        m, n = rows / p, columns / q
        rounds = -(-self.common * parts * p * q // threads)
        work = self._computed(m, n) + (m / self.again[0] + n / self.again[1]) * MOVED
        best = min(best, rounds * work * self.terms / parts)
    if parts == 1:
      return best
    return best + (SECOND_KERNEL + PART * parts * self.results / threads) * faster

  def _computed(self, m: float, n: float) -> float:
    """Multiply-adds of a step of a tile: lanes are along a loop that has so many, and are computed all."""
    long = [max(sizes, default=1) >= LANES for sizes in self.own]
    tiles = [size for fits, size in zip(long, (max(m, LANES) * n, m * max(n, LANES)), strict=True) if fits]
    return min(tiles, default=m * n)

  def parts(self, choices: Iterable[int], threads: int) -> int:
    """In how many parts its terms are summed best, of these choices; 1: in one kernel."""
    alone = self.cost(1, threads)
    costs = {n: self.cost(n, threads) for n in choices if self.terms // n >= TERMS}
    least = min(costs.values(), default=alone)
    if least >= alone * LESS:
      return 1
    return min(n for n, cost in costs.items() if cost <= least * NEAR)


def _pieces(sizes: Sequence[int], most: int) -> list[int]:
  """Into how many pieces loops of these sizes can be cut: products of divisors, up to a number."""
  found = {1}
  for size in sizes:
    found = {n * d for n in found for d in _divisors(size, most) if n * d <= most}
  return sorted(found)


def _divisors(size: int, most: int) -> Iterator[int]:
  return (n for n in range(1, min(size, most) + 1) if size % n == 0)


def split_sums(kernels: Sequence[Kernel], threads: Callable[[str], int]) -> list[Kernel]:
  """The kernels, with two in the place of each whose sums are split."""
  number = free_number(kernels)
  made: list[Kernel] = []
  for kernel in kernels:
    count = threads(kernel.device) if kernel.body.op is Ops.SINK else 0
    found = _split(kernel, count, number) if count > 1 else None
    number += found is not None
    made += (kernel,) if found is None else found
  return made


def _split(kernel: Kernel, threads: int, number: int) -> tuple[Kernel, Kernel] | None:
  """A kernel for parts of the sums and one that adds them up, over temporary memory of that number; None where one
  kernel is better."""
  if (reduce := _sum_of(kernel.body)) is None or (whole := long_sum(reduce)) is None:
    return None
  if whole.results * whole.terms < threads * SECOND_KERNEL:
    return None
  # the outermost loop of the sum that has such parts: what each part reads is together then
  loops = {n: r for r in reduce.src[:0:-1] for n in _divisors(known(r.src[0]) or 1, threads) if n > 1}
  if (parts := whole.parts(sorted(loops), threads)) == 1:
    return None
  return _in_two(kernel, reduce, loops[parts], parts, number)


def _sum_of(body: UOp) -> UOp | None:
  """The one sum of a kernel that stores one result, in loops of known sizes."""
  end = body.src[0]
  reduces = [u for u in body.toposort if u.op is Ops.REDUCE]
  if len(body.src) != 1 or end.op is not Ops.END or len(reduces) != 1 or reduces[0].arg[0] is not Ops.ADD:
    return None
  if end.src[0].op is not Ops.STORE or end.src[0].arg is not None or len(end.src[0].src[0].src) > 2:
    return None
  loops = [u for u in body.toposort if u.op is Ops.RANGE]
  if any(known(r.src[0]) is None for r in loops) or any(r.arg[1] is not AxisType.LOOP for r in end.src[1:]):
    return None
  reads = any(u.op is Ops.PARAM and u.arg == 0 for u in reduces[0].toposort)
  return None if reads or reduces[0].dtype.itemsize < FLOAT else reduces[0]


def long_sum(reduce: UOp) -> LongSum | None:
  """What a REDUCE sums, if it is products of two operands that are read."""
  product = reduce.src[0].src[0] if reduce.src[0].op is Ops.CAST else reduce.src[0]
  if product.op is not Ops.MUL or any(all(u.op is not Ops.LOAD for u in s.toposort) for s in product.src):
    return None
  a, b = (s.ranges for s in product.src)
  own = [tuple([known(r.src[0]) or 1 for r in reduce.ranges if (r in a, r in b) == which]) for which in _ONE_OF_TWO]
  common = math.prod([known(r.src[0]) or 1 for r in reduce.ranges if r in a and r in b])
  terms = math.prod([known(r.src[0]) or 1 for r in reduce.src[1:]])
  read = [u.dtype.itemsize for u in product.toposort if u.op is Ops.LOAD and not u.ranges.isdisjoint(reduce.src[1:])]
  again = [max(1.0, common * math.prod(sizes) * terms / _memory(s)) for sizes, s in zip(own, product.src, strict=True)]
  return LongSum((own[0], own[1]), (again[0], again[1]), common, terms, max(read, default=FLOAT))


def _memory(operand: UOp) -> int:
  """The elements of the memory that an operand is read from."""
  return sum(u.dtype.size for u in operand.toposort if u.op is Ops.PARAM and isinstance(u.dtype, PtrDType))


_ONE_OF_TWO = ((True, False), (False, True))


def _in_two(kernel: Kernel, reduce: UOp, loop: UOp, parts: int, number: int) -> tuple[Kernel, Kernel]:
  end, free = kernel.body.src[0], 1 + max(u.arg[0] for u in kernel.body.toposort if u.op is Ops.RANGE)
  outer = [r for r in end.src[1:] if r in reduce.ranges]
  length = (known(loop.src[0]) or 1) // parts
  part, inner = UOp.range(parts, free), UOp.range(length, free + 1, AxisType.REDUCE)
  place = UOp.const(outer[0].dtype, 0) if outer else part.const_like(0)
  for r in outer:
    place = place * (known(r.src[0]) or 1) + r
  results = math.prod([known(r.src[0]) or 1 for r in outer])
  memory = temporary_buffer(number, kernel.device, results * parts, reduce.dtype)
  region = BufferRegion.whole(memory)
  summed = [inner if r is loop else r for r in reduce.src[1:]]
  terms = reduce.src[0].substitute({loop: part * length + inner})
  target = UOp.param(0, region.pointer).index(simplify(part * results + place))
  first = target.store(terms.reduce(Ops.ADD, *summed)).end(part, *outer)
  again = UOp.range(parts, free + 2, AxisType.REDUCE)
  read = UOp.param(len(kernel.regions), region.pointer).index(simplify(again * results + place)).load()
  second = end.substitute({reduce: read.reduce(Ops.ADD, again)})
  return (
    _kernel(first, (region, *kernel.regions[1:]), kernel),
    _kernel(second, (*kernel.regions, region), kernel),
  )


def _kernel(end: UOp, regions: tuple[BufferRegion, ...], of: Kernel) -> Kernel:
  body, used, variables = final(end, tuple(range(len(regions))))
  return Kernel(body, tuple([regions[i] for i in used]), variables, of.device, of.nodes)
