"""Software prefetch of blocks that a sum reads one after the other, and computes much from."""

from __future__ import annotations

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.expressions import stride
from tiny_codegen.kernel.memory import element_of
from tiny_codegen.lower.prefetch.program import GAP, Program, element_at, innermost_sums, joined, spans_of
from tiny_uop import GroupOp, Ops, UOp

BYTES_AHEAD = 8192
"""How far behind a block the one lies that is asked for: of 1 to 16 KiB the best on Zen 4 and Zen 5."""
LEVEL = 2
"""The cache that it is asked into. The first one waits for few lines at a time (24 on Zen 4), which is less than the
time to memory needs, and loads wait behind them. From the second one, loads come while a block is computed with.
Products of 4 tokens with SmolLM2's weights on Zen 4 take 0.85 of the time then, and wait for their multiplications."""
LEAST_LINES = 4
"""Lines that an iteration reads: fewer are asked for by the processor itself."""
LEAST_WORK = 8
"""Vector instructions for each line: with fewer, a processor sees the loads of the next iterations in time, and what is
asked for besides takes their places. Of 320 instructions that Zen 4 looks at, 24 lines leave 13 for each, loads and
addresses among them. A token's product with Q4_1 weights has 5, and takes 0.82 of the time without."""
LEAST_BYTES = 2 * BYTES_AHEAD
"""Of memory: what is smaller is asked for mostly behind its end."""


def streams(program: Program) -> dict[UOp, list[UOp]]:
  """By loop of a sum: the PREFETCHes of each iteration, of what an iteration reads that comes later."""
  found: dict[UOp, list[UOp]] = {}
  large = {p for p, size in program.read.items() if size >= LEAST_BYTES}
  for loop, reads in innermost_sums(program) if large else ():
    body = program.linear[loop.begin : loop.end]
    work = sum(u.dtype.count > 1 and (u.op is Ops.MMA or u.op in GroupOp.ALU) for u in body)
    vectors = [u for u in reads if u.src[0].src[0] in large and len(u.src[0].src) == 2 and u.dtype.count > 1]
    lines: list[UOp] = []
    for (pointer, offset), spans in spans_of((u.src[0], u.dtype) for u in vectors).items():
      if offset is None or offset.ranges.isdisjoint(loop.around):  # the loops around it read the same
        continue
      (first, behind), *more = joined(spans, GAP)
      step, size = stride(offset, loop.counter), element_of(pointer).itemsize
      if step is not None and not more and step * size == behind - first:
        places = range(first + BYTES_AHEAD, behind + BYTES_AHEAD, CACHE_LINE)
        lines += [element_at(pointer, offset, byte).prefetch(level=LEVEL) for byte in places]
    if len(lines) >= LEAST_LINES and work >= LEAST_WORK * len(lines):
      found[loop.counter] = lines
  return found
