"""Copies to shared memory that go on while their thread does, as LLVM IR.

They want both addresses aligned. Where a buffer is not, the body for such buffers loads and stores instead: a copy may
be there at once.
"""

from __future__ import annotations

from collections.abc import Callable

from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.memory import ALIGNED_ONLY, PLAIN_ONLY, Memory, address
from tiny_uop import UOp
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class AsyncCopy:
  """How a copy is written: `copy` takes the place in shared memory and the place it comes from, `or_zeros` a number of
  bytes, too, beyond which there are zeros and nothing is read. `group` ends a group; `wait` takes a number of groups
  that need not be there yet."""

  nbytes: int
  copy: str
  or_zeros: str
  group: str
  wait: str


def copy_to_shared(body: Function, u: UOp, memory: Memory, copy: AsyncCopy, store: Callable[[], None]) -> None:
  """Write an asynchronous STORE, for each of two bodies; `store` writes it as one that is not."""
  begin = len(body.lines)
  store()
  body.lines[begin:] = [line + PLAIN_ONLY for line in body.lines[begin:]]
  begin = len(body.lines)
  _copy(body, u, memory, copy)
  only = f"{ALIGNED_ONLY}{copy.nbytes}"
  body.lines[begin:] = [line + only for line in body.lines[begin:]]


def _copy(body: Function, u: UOp, memory: Memory, copy: AsyncCopy) -> None:
  index, load = u.src
  place, source = address(body, index, memory), address(body, load.src[0], memory, len(load.src[0].src) < 3)
  if len(load.src[0].src) > 2:
    size = body.let(f"select i1 {body.operand(load.src[0].src[2])}, i32 {copy.nbytes}, i32 0")
    body.call(copy.or_zeros, "void", place, source, ("i32", size))
  else:
    body.call(copy.copy, "void", place, source)


def wait_for_copies(body: Function, pending: int, copy: AsyncCopy) -> None:
  """A group ends; all are there but the last so many."""
  body.call(copy.group, "void")
  body.call(copy.wait, "void", ("i32", str(pending)))
