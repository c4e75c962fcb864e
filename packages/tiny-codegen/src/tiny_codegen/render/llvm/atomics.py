"""Atomic STOREs as LLVM IR: `atomicrmw`, of which nothing but that it is one step is asked (monotonic).

A kernel's results are seen when it has ended, and what threads leave in shared memory behind a BARRIER, so that no
update has to order any other access.
"""

from __future__ import annotations

from tiny_codegen.kernel.loops import space_of
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.memory import Memory, address
from tiny_codegen.render.llvm.text import value_type
from tiny_uop import AddrSpace, Ops, UOp

_OPERATIONS = {Ops.ADD: "add", Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor"}


def update(body: Function, store: UOp, memory: Memory, scopes: tuple[str, str]) -> None:
  """Write an atomic STORE, its gate open. `scopes` name who else may be at it, in GLOBAL and in LOCAL memory; empty:
  anybody."""
  index, value = store.src
  place = " ".join(address(body, index, memory))
  scope = scopes[space_of(index) is AddrSpace.LOCAL]
  among = f' syncscope("{scope}")' if scope else ""
  size = value.dtype.itemsize
  body.emit(
    f"atomicrmw {_operation(store)} {place}, {value_type(value.dtype)} {body.operand(value)}{among} monotonic, "
    f"align {size}"
  )


def _operation(store: UOp) -> str:
  op, dtype = store.arg.op, store.src[1].dtype
  if op is Ops.MAX:
    return "umax" if dtype.kind == "uint" else "max"
  return "fadd" if dtype.kind == "float" else _OPERATIONS[op]
