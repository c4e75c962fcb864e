"""Fixtures: run a kernel as machine code through llvmlite, on NumPy arrays."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_uop import Opt, UOp, evaluate
from tiny_uop.golden import round_trips_checked

# pytest's importlib mode puts no test directory on the path: this one has modules that several tests share
sys.path.insert(0, str(Path(__file__).parent))
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

Run = Callable[..., list[np.ndarray[Any, Any]]]


@cache
def tiles_are_allowed() -> bool:
  """Whether Linux lets this process use AMX's registers, which it has to be asked for (arch_prctl)."""
  return sys.platform == "linux" and bool(ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0)


def host_renderer() -> LLVMRenderer:
  """The renderer for the processor the tests run on."""
  features = llvm.get_host_cpu_features()
  usable = {name: on and (not name.startswith("amx-") or tiles_are_allowed()) for name, on in features.items()}
  listed = [f"{'+' if on else '-'}{name}" for name, on in sorted(usable.items())]
  return LLVMRenderer(cpu_target(llvm.get_default_triple(), llvm.get_host_cpu_name(), listed))


class Machine:
  """Compiles LLVM IR and calls it through the host entry point."""

  def __init__(self) -> None:
    self.target = llvm.Target.from_default_triple()

  def call(
    self, program: UOp, arrays: Sequence[np.ndarray[Any, Any]], variables: Mapping[str, int], pieces: int
  ) -> None:
    """Run a PROGRAM on arrays in slot order, its range [0, extent) cut into pieces as a thread pool would."""
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
      kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
      entry = kind(engine.get_function_address(program.arg.name))
      slots = [p.slot for p in program.arg.params]
      buffers = (ctypes.c_void_p * max(len(slots), 1))(*[arrays[s].ctypes.data for s in slots])
      integers = (ctypes.c_int64 * max(len(variables), 1))(*[variables[name] for name in program.arg.variables])
      nodes = {u: variables[u.arg[0]] for u in program.src[3].variables}
      size = int(evaluate(program.src[3].src[0], nodes))  # type: ignore[arg-type]
      cuts = sorted({*(size * i // pieces for i in range(pieces)), size})
      for begin, end in zip(cuts, cuts[1:]):
        entry(ctypes.addressof(buffers), ctypes.addressof(integers), begin, end)


@pytest.fixture(scope="session")
def renderer() -> LLVMRenderer:
  return host_renderer()


@pytest.fixture(scope="session")
def run_kernel(renderer: LLVMRenderer) -> Run:
  """run(kernel, arrays, opts=None, variables={}, pieces=1) → copies of the arrays after the kernel has run on them
  (`in_place`: on the arrays themselves)."""
  machine = Machine()

  def run(
    kernel: UOp,
    arrays: Sequence[np.ndarray[Any, Any]],
    opts: Sequence[Opt] | None = None,
    variables: Mapping[str, int] | None = None,
    pieces: int = 1,
    in_place: bool = False,
  ) -> list[np.ndarray[Any, Any]]:
    copies = list(arrays) if in_place else [np.ascontiguousarray(a).copy() for a in arrays]
    machine.call(compile_kernel(kernel, renderer, opts), copies, variables or {}, pieces)
    return copies

  return run


@pytest.fixture(autouse=True, scope="session")
def graphs_round_trip() -> Iterator[None]:
  """What these tests schedule and compile is printed and parsed back on the side."""
  with round_trips_checked():
    yield
