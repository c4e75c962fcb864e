"""The processor that the tests run on: its renderer, and programs as machine code through llvmlite, on NumPy arrays."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tiny_codegen import LLVMRenderer, cpu_target
from tiny_codegen.render.llvm.function import ARGUMENTS as CLAIM
from tiny_uop import UOp, evaluate

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


@cache
def tiles_are_allowed() -> bool:
  """Whether Linux lets this process use AMX's registers, which it has to be asked for (arch_prctl)."""
  return sys.platform == "linux" and bool(ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0)


def host_renderer(dynamic_scheduling: bool = False) -> LLVMRenderer:
  """The renderer for the processor the tests run on."""
  features = llvm.get_host_cpu_features()
  usable = {name: on and (not name.startswith("amx-") or tiles_are_allowed()) for name, on in features.items()}
  listed = [f"{'+' if on else '-'}{name}" for name, on in sorted(usable.items())]
  return LLVMRenderer(
    cpu_target(llvm.get_default_triple(), llvm.get_host_cpu_name(), listed, dynamic_scheduling=dynamic_scheduling)
  )


class Machine:
  """Compiles LLVM IR and calls it through the host entry point."""

  def __init__(self) -> None:
    self.target = llvm.Target.from_default_triple()

  def call(
    self, program: UOp, arrays: Sequence[np.ndarray[Any, Any]], variables: Mapping[str, int], pieces: int
  ) -> int:
    """Run a PROGRAM on arrays in slot order, its range [0, extent) cut into pieces as a thread pool would; gives how
    many calls that took, fewer than pieces where the program claims them itself."""
    module = llvm.parse_assembly(program.src[2].arg)
    module.verify()
    machine = self.target.create_target_machine(
      cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    llvm.create_pass_builder(machine, options).getModulePassManager().run(
      module, llvm.create_pass_builder(machine, options)
    )
    with llvm.create_mcjit_compiler(module, machine) as engine:
      engine.finalize_object()
      claims = CLAIM[0] in program.src[2].arg
      more = [ctypes.c_void_p] * len(CLAIM) if claims else []
      kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *more)
      entry = kind(engine.get_function_address(program.arg.name))
      slots = [p.slot for p in program.arg.params]
      buffers = (ctypes.c_void_p * max(len(slots), 1))(*[arrays[s].ctypes.data for s in slots])
      integers = (ctypes.c_int64 * max(len(variables), 1))(*[variables[name] for name in program.arg.variables])
      nodes = {u: variables[u.arg[0]] for u in program.src[3].variables}
      size = int(evaluate(program.src[3].src[0], nodes))  # type: ignore[arg-type]
      cuts = sorted({*(size * i // pieces for i in range(pieces)), size})
      parts, calls = list(zip(cuts, cuts[1:])), 0

      def claim(_: object, ends: Any) -> int:
        if parts:
          ends[0], ends[1] = parts.pop(0)
          return 1
        return 0

      called = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))(claim)
      rest = [ctypes.cast(called, ctypes.c_void_p) if pieces > 1 else None, None] if claims else []
      while parts:
        entry(ctypes.addressof(buffers), ctypes.addressof(integers), *parts.pop(0), *rest)
        calls += 1
      return calls
