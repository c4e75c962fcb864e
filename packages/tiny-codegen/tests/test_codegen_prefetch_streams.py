"""Prefetching of blocks that a sum reads one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from codegen_kernels import loop, over, param
from codegen_prefetches import elements, prefetches

from tiny_codegen import CacheSizes, LLVMRenderer, PassContext, cpu_target, run_passes
from tiny_codegen.lower.prefetch.insert import prefetch
from tiny_codegen.lower.prefetch.streams import BYTES_AHEAD, LEVEL
from tiny_uop import KernelInfo, Ops, UOp
from tiny_uop.graph import chain

CACHES = CacheSizes(32 << 10, 256 << 10, 1 << 20)
FEATURES = ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl")
TARGET = LLVMRenderer(cpu_target("x86_64", "", FEATURES, caches=CACHES)).target
BLOCKS, WORDS, LANES = 12, 4, 16


def product(tokens: int, rows: int, shared: bool = False) -> UOp:
  """`out[t, r, lane] = sum over b, n of w[r, b, n, lane] * x[t, b, n]`; all rows are one if they are `shared`."""
  r, lane, b = loop(rows, 0), loop(LANES, 1), over(BLOCKS, 2)
  first = b if shared else r * BLOCKS + b
  weights = param(1, (1 if shared else rows) * BLOCKS * WORDS * LANES)
  words = [weights.index((first * WORDS + n) * LANES + lane).load() for n in range(WORDS)]
  x, stores = param(2, tokens * BLOCKS * WORDS), []
  for t in range(tokens):
    terms = [word * x.index((t * BLOCKS + b) * WORDS + n).load() for n, word in enumerate(words)]
    total = chain(Ops.ADD, terms).reduce(Ops.ADD, b)
    stores.append(param(0, tokens * rows * LANES).index((t * rows + r) * LANES + lane).store(total))
  return UOp.sink(UOp.group(*stores).end(r, lane), arg=KernelInfo("product"))


def asked(kernel: UOp) -> dict[UOp | None, list[UOp]]:
  linear = run_passes(kernel, PassContext(TARGET), ("prefetch",))
  return prefetches(prefetch(linear, replace(TARGET, caches=CACHES)), ("read", LEVEL))


def test_lines_of_a_later_block_are_asked_for() -> None:
  """Each line once: those of the iteration that comes so many bytes later."""
  ((around, lines),) = asked(product(8, 64)).items()
  assert around is not None and around.src[0].arg == BLOCKS
  assert len(lines) == WORDS
  found = sorted(place for line in lines for place in elements(line, {}))
  ahead = BYTES_AHEAD // 4
  assert found == list(range(ahead, ahead + 64 * BLOCKS * WORDS * LANES, LANES))


@pytest.mark.parametrize(
  ("tokens", "rows", "shared"), [(2, 64, False), (8, 4, False), (8, 64, True)], ids=["little work", "small", "shared"]
)
def test_nothing_is_asked_for(tokens: int, rows: int, shared: bool) -> None:
  """Where a processor sees the next loads in time, memory is small, or other iterations have read it."""
  assert not asked(product(tokens, rows, shared))
