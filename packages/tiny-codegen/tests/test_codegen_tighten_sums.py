"""Sums over what a mask lets through: the same results, fewer terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from codegen_kernels import data, garbage, loop, over, param

from tiny_codegen.kernel.sum_of_products import SumOfProducts
from tiny_codegen.lower.simplify import hoist_masks
from tiny_codegen.lower.tighten_sums import tighten_sums
from tiny_uop import AddrSpace, AxisType, Context, KernelInfo, Ops, Opt, OptOps, UOp, dtypes

ROWS, COLUMNS, LENGTH = 40, 32, 44
Mask = Callable[[Any, Any], Any]
MASKS: dict[str, Mask] = {
  "causal": lambda i, k: k < i + 1,
  "future": lambda i, k: i < k,
  "shifted": lambda i, k: k < i - 7,
  "beyond": lambda i, k: k < i + 30,
  "late": lambda i, k: i + 30 < k,
  "twice": lambda i, k: k < i * 2,
  "band": lambda i, k: (k < i + 3) & (i < k + 5),
  "fixed": lambda i, k: k < 17,
}
TILE = (Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.UPCAST, 0, 5))
LANES = (Opt(OptOps.VECTOR, 2, 4),)


def product(mask: Mask, opts: tuple[Opt, ...] | None, op: Ops = Ops.ADD) -> UOp:
  """`out[i, j] = sum over k of a[i, k] * b[k, j] where mask(i, k)`."""
  i, j, k = loop(ROWS, 0), loop(COLUMNS, 1), over(LENGTH, 2)
  term = param(1, ROWS * LENGTH).index(i * LENGTH + k).load() * param(2, LENGTH * COLUMNS).index(k * COLUMNS + j).load()
  total = mask(i, k).where(term, term.const_like(0.0 if op is Ops.ADD else -np.inf)).reduce(op, k)
  out = param(0, ROWS * COLUMNS).index(i * COLUMNS + j).store(total).end(i, j)
  return UOp.sink(out, arg=KernelInfo("masked", opts))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("opts", [None, (), TILE, LANES], ids=["heuristics", "plain", "tile", "lanes"])
def test_values(name: str, opts: tuple[Opt, ...] | None, run_kernel: Any) -> None:
  a, b = data(ROWS, LENGTH), data(LENGTH, COLUMNS, seed=1)
  rows, steps = np.indices((ROWS, LENGTH))
  expected = np.where(MASKS[name](rows, steps), a, 0) @ b
  with Context(SPEC=2):
    (got, *_) = run_kernel(product(MASKS[name], opts), (garbage(ROWS, COLUMNS), a, b))
  np.testing.assert_allclose(got.reshape(ROWS, COLUMNS), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["causal", "future"])
def test_greatest_values(name: str, run_kernel: Any) -> None:
  a, b = data(ROWS, LENGTH), data(LENGTH, COLUMNS, seed=1)
  rows, steps = np.indices((ROWS, LENGTH))
  expected = np.where(MASKS[name](rows, steps)[..., None], a[..., None] * b, -np.inf).max(1)
  (got, *_) = run_kernel(product(MASKS[name], TILE, Ops.MAX), (garbage(ROWS, COLUMNS), a, b))
  np.testing.assert_array_equal(got.reshape(ROWS, COLUMNS), expected)


def sums(root: UOp) -> list[tuple[int, bool]]:
  """(greatest length, whether there is a mask) of each sum."""
  found = [u for u in root.toposort if u.op is Ops.REDUCE]
  return [(int(u.src[1].src[0].vmax), u.src[0].op is Ops.WHERE) for u in found]


def test_without_a_tile_no_term_is_masked() -> None:
  assert sums(tighten_sums(product(MASKS["causal"], ()))) == [(ROWS, False)]
  assert sums(tighten_sums(product(MASKS["fixed"], ()))) == [(17, False)]


def test_one_of_two_clauses_stays() -> None:
  assert [masked for _, masked in sums(tighten_sums(product(MASKS["band"], ())))] == [True]


def test_a_mask_from_memory_says_nothing() -> None:
  flags = param(3, ROWS * LENGTH, dtypes.bool)
  root = product(lambda i, k: flags.index(i * LENGTH + k).load(), ())
  assert tighten_sums(root) is root
  assert SumOfProducts.of(root) is None


def test_what_adds_something_is_no_mask() -> None:
  i, k = loop(ROWS, 0), over(LENGTH, 1)
  x = param(1, ROWS * LENGTH).index(i * LENGTH + k).load()
  total = (k < i + 1).where(x, x.const_like(1.0)).reduce(Ops.ADD, k)
  root = UOp.sink(param(0, ROWS).index(i).store(total).end(i), arg=KernelInfo("ones"))
  assert tighten_sums(root) is root


def test_masked_products_are_products() -> None:
  found = SumOfProducts.of(product(MASKS["causal"], None))
  assert found is not None
  assert {o.slot for o in found.operands} == {1, 2}


def test_masks_that_a_sum_does_not_change_are_applied_to_it() -> None:
  i, j, k = loop(ROWS, 0), loop(COLUMNS, 1), over(LENGTH, 2)
  term = param(1, ROWS * LENGTH).index(i * LENGTH + k).load() * param(2, COLUMNS * LENGTH).index(j * LENGTH + k).load()
  total = (j < i + 1).where(term, term.const_like(0.0)).reduce(Ops.ADD, k)
  root = UOp.sink(param(0, ROWS * COLUMNS).index(i * COLUMNS + j).store(total).end(i, j), arg=KernelInfo("scores"))
  stored = hoist_masks(root).src[0].src[0].src[1]
  assert stored.op is Ops.WHERE
  assert stored.src[1].op is Ops.REDUCE
  assert stored.src[1].src[0] is term
  assert hoist_masks(product(MASKS["causal"], None)).src[0].src[0].src[1].op is Ops.REDUCE


def test_infinities_that_are_masked_are_not_seen(run_kernel: Any) -> None:
  a, b = data(ROWS, LENGTH), data(LENGTH, COLUMNS, seed=1)
  b[-1] = np.inf
  for opts in (None, TILE):
    (got, *_) = run_kernel(product(MASKS["causal"], opts), (garbage(ROWS, COLUMNS), a, b))
    assert np.isfinite(got).all()


def test_loops_are_reductions() -> None:
  root = tighten_sums(product(MASKS["causal"], ()))
  assert {u.arg[1] for u in root.toposort if u.op is Ops.RANGE} == {AxisType.LOOP, AxisType.REDUCE}


@pytest.mark.parametrize("meeting", [False, True])
def test_sums_in_which_threads_meet_are_left_alone(meeting: bool) -> None:
  i, k = loop(ROWS, 0), over(LENGTH, 1)
  near = UOp.alloc(0, dtypes.float32.ptr(1, AddrSpace.LOCAL))
  filled = near.index(0).store(param(1, LENGTH).index(k).load())
  value = near.after(filled.barrier() if meeting else filled).index(0).load()
  total = (k < i + 1).where(value, value.const_like(0.0)).reduce(Ops.ADD, k)
  root = UOp.sink(param(0, ROWS).index(i).store(total).end(i), arg=KernelInfo("meeting"))
  assert (tighten_sums(root) is root) is meeting
