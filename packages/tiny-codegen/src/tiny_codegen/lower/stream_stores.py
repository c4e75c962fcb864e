"""Pass: results that no cache could keep are stored past the caches.

An ordinary store of a whole cache line first reads the line; a streaming ("non-temporal") one writes it, and evicts
nothing. That pays where a kernel touches more memory than the last cache level holds, so that whoever reads the result
finds nothing of it there anyway. Streaming stores have to be aligned, and other threads see them only after a fence: a
renderer writes the body of such a kernel twice, and its entry point looks at the buffers' addresses.

    STORE (INDEX (%out, i * 16), vector of 16 float32)  →  the same with arg="streaming"
"""

from __future__ import annotations

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.kernel.expressions import divisor
from tiny_codegen.target import KEPT, Target
from tiny_uop import STREAMING, Ops, PtrDType, UOp, reads_what_was_there
from tiny_uop.graph import memory_of, rebuild


def stream_stores(linear: UOp, target: Target) -> UOp:
  """The LINEAR with STREAMING as the arg of STOREs, where its buffers are larger than what caches keep."""
  buffers = {u: u.dtype for u in linear.src if u.op is Ops.PARAM and isinstance(u.dtype, PtrDType)}
  if not target.has_streaming or sum(p.size * p.base.itemsize for p in buffers.values()) <= KEPT:
    return linear
  accesses = [u for u in linear.src if u.op in (Ops.LOAD, Ops.STORE)]
  written = buffers.keys() - {memory_of(u.src[0]) for u in accesses if reads_what_was_there(u)}
  loops: list[UOp] = []
  streaming = set()
  for u in linear.src:
    if u.op is Ops.RANGE:
      loops.append(u)
    elif u.op is Ops.END:
      loops.pop()
    elif u.op is Ops.STORE and u.arg is None and u.src[0].src[0] in written and _writes_lines(u, loops):
      streaming.add(u)
  return rebuild(linear, lambda u, new: new.replace(arg=STREAMING) if u in streaming else None) if streaming else linear


def _writes_lines(store: UOp, loops: list[UOp]) -> bool:
  """Whether a STORE inside `loops` writes whole, aligned lines (if its buffer is aligned), each of them once."""
  offset, value = store.src[0].src[1], store.src[1].dtype
  size = value.scalar().itemsize
  whole = value.count * size % CACHE_LINE == 0 and divisor(offset) * size % CACHE_LINE == 0
  return whole and offset.ranges.issuperset(loops)
