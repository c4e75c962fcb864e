"""Sums of many small products become one product, of stacked operands.

The gradient of a weight that a network uses at each step of a sequence is a sum of one product per step:

    dW[i, j] = Σ_t Σ_b x_t[b, i] · y_t[b, j]

A kernel of this graph has a loop over b for each t, each over memory of its own: no loop is long, and no two are tiled
together. With x_t one after the other in memory, and y_t as well, t and b are one long loop, and the kernel is that of
any product. What is computed for the sum is written into its place of the stack, where others read it too; what lies in
memory is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import islice
from operator import add

from tiny_sched.index import known, largest_size
from tiny_sched.memory_plan import aligned
from tiny_sched.normalise import temporary_buffer
from tiny_sched.recompute_cost import REUSE, is_alu
from tiny_sched.work import tracker
from tiny_uop import Ops, UOp
from tiny_uop.records import dataclass

LEAST = 16
"""Products that are stacked: fewer do well in one kernel, side by side."""
MOST = 4096
"""Terms of a sum that are looked at. A sum of sums, each used twice, has as many as there are paths through it."""
LONG = 512
"""Terms of a product's own sum from which on it does as well alone, and has operands that nobody wants to copy."""
_BETWEEN = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.CAST})
"""What may stand between a product and the value that is stacked."""


@dataclass(frozen=True, slots=True)
class Factor:
  """A factor of a product: the value that is stacked, and what stands between the two, next to the value first."""

  value: UOp
  around: tuple[UOp, ...]

  @property
  def form(self) -> tuple[object, ...]:
    """Equal for factors that one stack can hold."""
    value = self.value
    return value.shape, value.dtype, value.device, tuple([(u.op, u.dtype, u.arg) for u in self.around])

  @property
  def is_computed(self) -> bool:
    """Whether the value has no memory yet, and gets it in the stack."""
    return is_alu(self.value) or self.value.op is Ops.REDUCE


@dataclass(frozen=True, slots=True)
class Product:
  """One of the products that a sum adds up. Its factors are in an order that is the same for all that are alike."""

  node: UOp
  factors: tuple[Factor, ...]


def stack_products(sink: UOp, nodes: Sequence[UOp]) -> UOp:
  """The graph, of these `nodes`, with one product of stacked operands for each sum of many products."""
  sums = [u for u in nodes if u.op is Ops.REDUCE and u.arg[0] is Ops.ADD and u.src[0].op is Ops.ADD]
  changes = {u: products for u in sums if (products := _alike(u))}
  if not changes:
    return sink
  done: dict[UOp, UOp] = {}
  stacks: dict[tuple[UOp, ...], UOp] = {}
  for u in nodes:
    if u in changes:
      done[u] = _stacked(u, changes[u], stacks, done)
    else:
      done[u] = u.with_src(tuple([done.get(s, s) for s in u.src]))
  if tracker.places is not None:
    tracker.rewritten(done, done[sink])
  return done[sink]


def _alike(u: UOp) -> list[Product]:
  """The most products of a sum that one product of stacked operands can stand for; none where it does not pay."""
  terms = list(islice(_terms(u.src[0]), MOST + 1))
  length = largest_size(u.src[0].shape) // max(largest_size(u.shape), 1)
  if not LEAST <= len(terms) <= MOST or length > LONG or any(known(s) is None for s in u.src[0].shape):
    return []
  kinds: dict[tuple[object, ...], list[Product]] = {}
  for term in terms:
    if (product := _product(term)) is not None:
      kinds.setdefault(tuple([factor.form for factor in product.factors]), []).append(product)
  most = max(kinds.values(), key=len, default=[])
  return most if len(most) >= LEAST and _are_made_for_it(most) else []


def _are_made_for_it(products: Sequence[Product]) -> bool:
  """Whether one factor of each product is computed, each by itself: two windows of one value are no two values."""
  for same in zip(*[product.factors for product in products]):
    if same[0].is_computed and len({factor.value for factor in same}) == len(same):
      return True
  return False


def _terms(u: UOp) -> Iterator[UOp]:
  """What a tree of additions adds up, from left to right."""
  waiting = [u]
  while waiting:
    u = waiting.pop()
    if u.op is Ops.ADD:
      waiting += reversed(u.src)
    else:
      yield u


def _product(u: UOp) -> Product | None:
  """A product that uses each element of both factors many times, and whose factors can have memory."""
  if u.op is not Ops.MUL:
    return None
  factors = sorted(map(_factor, u.src), key=lambda factor: repr(factor.form))
  for value in [factor.value for factor in factors]:
    if not isinstance(value.device, str) or largest_size(u.shape) < REUSE * largest_size(value.shape):
      return None
  return Product(u, tuple(factors))


def _factor(u: UOp) -> Factor:
  around: list[UOp] = []
  while u.op in _BETWEEN:
    around.append(u)
    u = u.src[0]
  return Factor(u, tuple(around[::-1]))


def _stacked(u: UOp, products: Sequence[Product], stacks: dict[tuple[UOp, ...], UOp], done: dict[UOp, UOp]) -> UOp:
  """What a sum becomes: that of a product of two stacks, and of the terms that are not in it."""
  factors = []
  for same in zip(*[product.factors for product in products]):
    values = tuple([done[factor.value] for factor in same])
    if values not in stacks:
      stacks[values] = _stack(values, len(stacks))
    factors.append(_around(same[0], stacks[values]))
  axes: tuple[int, ...] = u.arg[1]
  found = factors[0].alu(Ops.MUL, factors[1]).reduce_axes(Ops.ADD, (0, *[a + 1 for a in axes])).reshape(u.shape)
  inside = {product.node for product in products}
  rest = [done[term] for term in _terms(u.src[0]) if term not in inside]
  return found.alu(Ops.ADD, reduce(add, rest).reduce_axes(Ops.ADD, axes)) if rest else found


def _stack(values: Sequence[UOp], number: int) -> UOp:
  """Values of one shape in memory, along a new first axis. Each begins where memory may begin."""
  first = values[0]
  size, itemsize = largest_size(first.shape), first.dtype.itemsize
  row = aligned(size * itemsize) // itemsize
  buffer = temporary_buffer(number, str(first.device), len(values) * row, first.dtype)
  stores = [_rows(buffer, row, n, n + 1, size).reshape(v.shape).store(v) for n, v in enumerate(values)]
  rows = _rows(buffer.after(*stores), row, 0, len(values), size)
  return rows.reshape((len(values), *first.shape))


def _rows(buffer: UOp, row: int, start: int, stop: int, size: int) -> UOp:
  """The first elements of some of the rows of a buffer."""
  return buffer.reshape((buffer.shape[0] // row, row)).shrink(((start, stop), (0, size)))


def _around(factor: Factor, stack: UOp) -> UOp:
  """A stack, treated as the value of a factor is."""
  for u in factor.around:
    if u.op is Ops.PERMUTE:
      stack = stack.permute((0, *[axis + 1 for axis in u.arg]))
    elif u.op is Ops.CAST:
      stack = stack.cast(u.dtype)
    else:
      shape = (stack.shape[0], *u.shape)
      stack = stack.reshape(shape) if u.op is Ops.RESHAPE else stack.expand(shape)
  return stack
