"""Kernel UOp → Binary whose code is the kernel's own textual form."""

from __future__ import annotations

from tiny_runtime.binary import Binary, not_for
from tiny_runtime.contract import Measure
from tiny_runtime.errors import CompileError
from tiny_runtime.ref.device import ARCH, FORM
from tiny_runtime.ref.generate import Unsupported, function_of
from tiny_uop import (
  GroupOp,
  KernelInfo,
  NativeCode,
  Ops,
  ParamInfo,
  PtrDType,
  UOp,
  dtypes,
  native_of,
  print_uop,
  read_params,
  written_params,
)


class RefCompiler:
  """Pure and without state, so it is picklable as it is. `measure` is not used: there is nothing to choose."""

  key = "ref-3"

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    """Check that the kernel can be interpreted, and describe it. Raises CompileError."""
    text, native = print_uop(kernel), native_of(kernel)
    try:
      if native is not None:
        check_program(native.arg)
        return Binary.of_native(kernel, native.arg.content)
      function = function_of(text.encode())
    except Unsupported as error:
      raise CompileError(f"REF cannot interpret this kernel: {error}", text) from error
    return Binary(
      code=text.encode(),
      entry=kernel.arg.name if isinstance(kernel.arg, KernelInfo) else "kernel",
      global_size=(UOp.const(dtypes.index, 1),) * 3,
      local_size=(UOp.const(dtypes.index, 1),) * 3,
      params=parameters(kernel),
      variables=tuple(v.arg[0] for v in kernel.variables),
      ops=count_operations(kernel),
      nbytes=UOp.const(dtypes.index, sum(p.size * p.dtype.itemsize for p in parameters(kernel))),
      source=function.source,
    )


def check_program(native: NativeCode) -> None:
  """Raises CompileError where the program of a NATIVE is no kernel, or none for REF; Unsupported."""
  if (native.form, native.arch) != (FORM, ARCH):
    raise not_for(native, f"{FORM} for {ARCH}")
  try:
    function_of(native.content)
  except Unsupported:
    raise
  except ValueError as error:
    raise CompileError(f"program {native.entry!r} is no kernel: {error}", native.source) from error


def parameters(kernel: UOp) -> tuple[ParamInfo, ...]:
  """The kernel's buffers in slot order."""
  written, read = written_params(kernel), read_params(kernel)
  buffers = {int(u.arg): u.dtype for u in kernel.toposort if u.op is Ops.PARAM and isinstance(u.dtype, PtrDType)}
  return tuple([ParamInfo(n, d.base, d.size, n in written, n in read) for n, d in sorted(buffers.items())])


def count_operations(kernel: UOp) -> UOp:
  """Arithmetic operations of one launch: each ALU node as often as the loops around it go round, addresses left out."""
  total = UOp.const(dtypes.index, 0)
  for u in kernel.toposort:
    if u.op is Ops.REDUCE:
      loops, dtype = u.src[0].ranges | set(u.src[1:]), u.dtype
    elif u.op in GroupOp.ALU:
      loops, dtype = u.ranges, u.src[0].dtype
    else:
      continue
    if dtype.kind == "index":
      continue
    times = UOp.const(dtypes.index, 1)
    for loop in sorted(loops, key=lambda r: str(r.arg)):
      times = times * loop.src[0]
    total = total + times
  return total if total.ranges == frozenset() else UOp.const(dtypes.index, 0)
