"""Questions about a kernel as a whole: a SINK with KernelInfo, whose arguments are its PARAMs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tiny_uop.args import Accumulate, KernelInfo
from tiny_uop.dtype import PtrDType
from tiny_uop.graph import memory_of
from tiny_uop.node import kept
from tiny_uop.ops import Ops

if TYPE_CHECKING:
  from tiny_uop.uop import UOp


def is_kernel(u: UOp) -> bool:
  """Whether a node is a kernel: in a tensor graph or a schedule, below it is another level."""
  return u.op is Ops.SINK and isinstance(u.arg, KernelInfo)


@kept
def kernel_params(kernel: UOp) -> dict[int, PtrDType]:
  """The PARAMs of a kernel: number → type, which has the size. The kernel keeps it: nobody may change it."""
  return {int(u.arg): u.dtype for u in kernel.walk() if u.op is Ops.PARAM and isinstance(u.dtype, PtrDType)}


def stored_to(store: UOp) -> UOp:
  """The PARAM or ALLOC that a kernel's STORE writes to, or a LOAD reads."""
  return memory_of(store.src[0])


def reads_what_was_there(access: UOp) -> bool:
  """Whether a LOAD, or a STORE that accumulates, may come to contents from before the kernel: not where its memory
  comes AFTER an effect of the kernel itself, which has filled it."""
  memory = access.src[0]
  while memory.op in (Ops.INDEX, Ops.AFTER):
    if memory.op is Ops.AFTER and any(s.op is not Ops.RANGE and s.dtype.kind == "void" for s in memory.src[1:]):
      return False
    memory = memory.src[0]
  return access.op is Ops.LOAD or isinstance(access.arg, Accumulate)


def collective_of(kernel: UOp) -> UOp | None:
  """The COLLECTIVE that a kernel consists of, if it is one."""
  return first if is_kernel(kernel) and kernel.src and (first := kernel.src[0]).op is Ops.COLLECTIVE else None


def native_of(kernel: UOp) -> UOp | None:
  """The NATIVE that a kernel consists of, if it is one."""
  return first if is_kernel(kernel) and kernel.src and (first := kernel.src[0]).op is Ops.NATIVE else None


def native_params(native: UOp, written: bool) -> set[int]:
  """The numbers of the PARAMs that a NATIVE writes, or those that it reads."""
  return {int(param.arg) for n, param in enumerate(native.src) if (n in native.arg.written) is written}


def written_params(kernel: UOp) -> set[int]:
  """The numbers of the PARAMs that a kernel stores to."""
  if (native := native_of(kernel)) is not None:
    return native_params(native, True)
  if (found := collective_of(kernel)) is not None:
    return set(range(len(found.src) // 2))
  targets = [stored_to(u) for u in kernel.walk() if u.op is Ops.STORE]
  return {int(u.arg) for u in targets if u.op is Ops.PARAM}


def read_params(kernel: UOp) -> set[int]:
  """The numbers of the PARAMs of which a kernel reads what was there before it."""
  if (native := native_of(kernel)) is not None:
    return native_params(native, False)
  if (found := collective_of(kernel)) is not None:
    return set(range(len(found.src) // 2, len(found.src)))
  accesses = [u for u in kernel.walk() if u.op in (Ops.LOAD, Ops.STORE) and reads_what_was_there(u)]
  return {int(memory.arg) for memory in map(stored_to, accesses) if memory.op is Ops.PARAM}


def value_nodes(root: UOp, kernels: bool = False) -> list[UOp]:
  """The nodes that a tensor-level value is computed from, sources first and the root last: without what only its
  gradients are made of, and unless told otherwise without what is in given kernels.
  """
  custom, call = Ops.CUSTOM_GRADIENT, Ops.CALL
  found: dict[UOp, None] = {}
  waiting: list[tuple[UOp, Iterator[UOp]]] = []  # nodes above, and those of their sources that are still to come
  node, sources = root, iter((root,))
  while True:
    for s in sources:
      if s in found:
        continue
      if not s.src:
        found[s] = None
        continue
      waiting.append((node, sources))
      node, src = s, s.src
      if s.op is custom:
        src = src[:1]
      elif s.op is call and not kernels:
        src = src[1:]
      sources = iter(src)
      break
    else:
      if not waiting:
        return list(found)
      found[node] = None
      node, sources = waiting.pop()
