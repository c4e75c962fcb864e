"""Accesses to memory, each with what is known where it happens.

A LOAD or STORE of n elements at INDEX(pointer, offset, gate) touches elements offset … offset + n - 1. It happens
inside loops and, in programs, between IF and ENDIF. WHERE guards nothing: both of its branches are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator

from tiny_uop.dtype import DType, PtrDType
from tiny_uop.ops import Ops
from tiny_uop.records import dataclass
from tiny_uop.uop import UOp

_BLOCKS = frozenset({Ops.RANGE, Ops.IF})


@dataclass(frozen=True)
class Access:
  """A LOAD or STORE, the loops around it, and the conditions of the IFs around it."""

  node: UOp
  loops: tuple[UOp, ...]
  conditions: tuple[UOp, ...] = ()

  @property
  def pointer(self) -> PtrDType:
    dtype = self.node.src[0].dtype
    assert isinstance(dtype, PtrDType)
    return dtype

  @property
  def value(self) -> DType:
    """The type of what is read or written."""
    return self.node.dtype if self.node.op is Ops.LOAD else self.node.src[1].dtype

  @property
  def lanes(self) -> int:
    """How many elements of the memory it touches."""
    return max(self.value.count // self.pointer.base.count, 1)

  @property
  def offset(self) -> UOp:
    return self.node.src[0].src[1]

  @property
  def gate(self) -> UOp | None:
    """A bool, or a vector of them, one for each element."""
    sources = self.node.src[0].src
    return sources[2] if len(sources) > 2 else None


def accesses(root: UOp) -> Iterator[Access]:
  """The accesses of a kernel or a program (LINEAR of instructions), sources before users."""
  if root.op is Ops.LINEAR:
    yield from _in_program(root)
    return
  for node in root.walk():
    if node.op in (Ops.LOAD, Ops.STORE):
      yield Access(node, tuple(sorted(node.ranges, key=_loop_order)))


def _loop_order(loop: UOp) -> tuple[int, str]:
  return loop.arg[0], loop.arg[1].name


def _in_program(linear: UOp) -> Iterator[Access]:
  open_blocks: list[UOp] = []
  for node in linear.src:
    if node.op in _BLOCKS:
      open_blocks.append(node)
    elif node.op in (Ops.END, Ops.ENDIF):
      closed = sum(s.op in _BLOCKS for s in node.src)
      del open_blocks[len(open_blocks) - closed :]
    elif node.op in (Ops.LOAD, Ops.STORE):
      loops = tuple([b for b in open_blocks if b.op is Ops.RANGE])
      yield Access(node, loops, tuple([b.src[0] for b in open_blocks if b.op is Ops.IF]))
