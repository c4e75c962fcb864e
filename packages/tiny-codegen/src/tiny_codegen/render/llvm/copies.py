"""Copies to shared memory that go on while their thread does, as LLVM IR.

They want both addresses aligned. Where a buffer is not, the body for such buffers loads and stores instead: a copy may
be there at once. Where tensor cores read shared memory themselves there is one body, which looks at each copy: an
assembler gives the accumulators of each instruction registers of their own, and has not enough for those of two bodies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.memory import ALIGNED_ONLY, PLAIN_ONLY, WIDE, Memory, address
from tiny_codegen.render.llvm.text import value_type
from tiny_uop import ASYNC, DType, Ops, UOp
from tiny_uop.records import dataclass

_ACCESS = re.compile(r"\b(load|store) ")
_ALIGNED = re.compile(rf", align \d+{re.escape(WIDE)}(\d+)")


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


def copy_or_store(
  body: Function, u: UOp, memory: Memory, copy: AsyncCopy, aligned: str, store: Callable[[], None]
) -> None:
  """Write an asynchronous STORE in the one body that there is, where `aligned` says which way it goes."""
  number = body.fresh("")
  body.branch(aligned, f"copy{number}", f"apart{number}")
  body.label(f"copy{number}")
  _copy(body, u, memory, copy)
  body.emit(f"br label %copied{number}")
  body.label(f"apart{number}")
  store()
  body.emit(f"br label %copied{number}")
  body.label(f"copied{number}")


def either_way(body: Function, aligned: str, dtype: DType | None, access: Callable[[], str | None]) -> str:
  """What `access` writes, a load whose operand it gives, of this type, or a store (None): as one branch for aligned
  buffers and one for others, where it is wider for the former."""
  begin = len(body.lines)
  made = access()
  if not any(WIDE in line for line in body.lines[begin:]):
    return made or ""
  del body.lines[begin:]
  number, found = body.fresh(""), []
  body.branch(aligned, f"wide{number}", f"narrow{number}")
  for name in ("wide", "narrow"):
    body.label(f"{name}{number}")
    begin = len(body.lines)
    found.append(f"[ {access()}, %{body.block} ]")
    written = body.lines[begin:]
    if name == "wide":
      body.lines[begin:] = [_ALIGNED.sub(r", align \1", line) for line in written]
    else:  # LLVM would make one narrow access of both
      body.lines[begin:] = [_ACCESS.sub(r"\1 volatile ", line) if WIDE in line else line for line in written]
    body.emit(f"br label %either{number}")
  body.label(f"either{number}")
  return "" if dtype is None else body.let(f"phi {value_type(dtype)} {', '.join(found)}")


def are_aligned(body: Function, buffers: Sequence[tuple[str, str]], nbytes: int) -> str:
  """Whether all of some buffers, each (type, operand), begin at multiples of so many bytes."""
  joined = "0"
  for kind, buffer in buffers:
    joined = body.let(f"or i64 {joined}, {body.let(f'ptrtoint {kind} {buffer} to i64')}")
  return body.let(f"icmp eq i64 {body.let(f'and i64 {joined}, {nbytes - 1}')}, 0")


def copied(linear: UOp) -> frozenset[UOp]:
  """The LOADs of asynchronous STOREs."""
  return frozenset(u.src[1] for u in linear.src if u.op is Ops.STORE and u.arg == ASYNC)


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
