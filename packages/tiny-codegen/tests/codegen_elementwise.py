"""Elementwise functions as machine code: LINEARs built by hand, decomposed and rendered, run on NumPy arrays."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tiny_codegen.decompose import late_table_for, table_for
from tiny_codegen.render import CRenderer, LLVMRenderer, Renderer, cpu_target, function_name
from tiny_uop import DType, Ops, ParamInfo, ProgramInfo, PtrDType, UOp, dtypes, graph_rewrite
from tiny_uop.truncate import from_bits

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

Array = np.ndarray[Any, Any]
Entry = Callable[[int, int, int, int], None]
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
_STORAGE = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def storage(dtype: DType) -> Any:
  """The NumPy type of a dtype's memory; formats that NumPy lacks are their bits."""
  if dtype.kind == "float" and dtype not in (dtypes.float16, dtypes.float32, dtypes.float64):
    return _STORAGE[dtype.bits]
  return np.dtype(dtype.name)


def host() -> LLVMRenderer:
  """Everything that this processor has."""
  features = [f"{'+' if on else '-'}{name}" for name, on in sorted(llvm.get_host_cpu_features().items())]
  return LLVMRenderer(cpu_target(llvm.get_default_triple(), llvm.get_host_cpu_name(), features))


def plain() -> LLVMRenderer:
  """The least processor of this architecture: nothing fused, halves emulated."""
  triple = llvm.get_default_triple()
  return LLVMRenderer(cpu_target(triple, "x86-64" if triple.startswith("x86_64") else "generic"))


RENDERERS: dict[str, Callable[[], Renderer]] = {"host": host, "plain": plain}
if COMPILER:
  RENDERERS["c"] = CRenderer


def _run_llvm(renderer: LLVMRenderer, source: str, name: str, use: Callable[[Entry], None]) -> None:
  module = llvm.parse_assembly(source)
  module.verify()
  target = llvm.Target.from_default_triple()
  machine = target.create_target_machine(cpu=renderer.llvm.cpu, features=renderer.llvm.features, opt=2)
  builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
  builder.getModulePassManager().run(module, builder)
  with llvm.create_mcjit_compiler(module, machine) as engine:
    engine.finalize_object()
    use(_entry(engine.get_function_address(name)))


def _run_c(source: str, name: str, use: Callable[[Entry], None]) -> None:
  assert COMPILER
  with tempfile.TemporaryDirectory() as folder:
    text, library = Path(folder, "program.c"), Path(folder, "program.so")
    text.write_text(source)
    flags = ["-O1", "-std=gnu99", "-Wall", "-Werror", "-Wno-unused", "-fno-math-errno", "-ffp-contract=off"]
    # the linker refuses what is undefined: programs need no libm, which is not linked
    command = [COMPILER, *flags, "-shared", "-fPIC", "-Wl,-z,defs", str(text), "-o", str(library)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, f"{made.stderr}\n{source}"
    use(_entry(ctypes.cast(ctypes.CDLL(str(library))[name], ctypes.c_void_p).value or 0))


def _entry(address: int) -> Entry:
  kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
  made: Entry = kind(address)
  return made


def info_of(linear: UOp, target: str = "test") -> ProgramInfo:
  """How to call a LINEAR."""
  params = sorted((u for u in linear.toposort if u.op is Ops.PARAM), key=lambda u: int(u.arg))
  infos = []
  for p in params:
    assert isinstance(p.dtype, PtrDType)
    infos.append(ParamInfo(p.arg, p.dtype.base, p.dtype.size, True, True))
  return ProgramInfo("test", target, tuple(infos), tuple(u.arg[0] for u in linear.variables))


def run_linear(
  renderer: Renderer, linear: UOp, arrays: Sequence[Array], integers: Sequence[int] = (), pieces: Sequence[int] = (0, 1)
) -> None:
  """Run a program on arrays in slot order, over [pieces[0], pieces[1]), then [pieces[1], pieces[2]), …"""
  info = info_of(linear)
  source = renderer.render(linear, info)

  def use(entry: Entry) -> None:
    buffers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
    numbers = (ctypes.c_int64 * max(1, len(integers)))(*integers)
    for begin, end in zip(pieces, pieces[1:]):
      entry(ctypes.addressof(buffers), ctypes.addressof(numbers), begin, end)

  if isinstance(renderer, LLVMRenderer):
    _run_llvm(renderer, source, info.name, use)
  else:
    _run_c(source, function_name(info.name), use)


def lower(renderer: Renderer, root: UOp) -> UOp:
  """The graph in ops and types that the renderer has."""
  root = graph_rewrite(root, table_for(renderer.target), name="decompose")
  return graph_rewrite(root, late_table_for(renderer.target), name="fuse")


def apply(
  renderer: Renderer,
  function: Callable[..., UOp],
  inputs: Sequence[tuple[DType, Array]],
  output: DType,
  lanes: int = 1,
) -> Array:
  """`function` over arrays, in vectors of `lanes`; what is left over is dropped."""
  return apply_all(renderer, [(function, output)], inputs, lanes)[0]


def apply_all(
  renderer: Renderer,
  functions: Sequence[tuple[Callable[..., UOp], DType]],
  inputs: Sequence[tuple[DType, Array]],
  lanes: int = 1,
) -> list[Array]:
  """Several functions, with the types of their results, over the same arrays: one program, so one run of a compiler."""
  return apply_in_widths(renderer, functions, inputs, [lanes])[0]


def apply_in_widths(
  renderer: Renderer,
  functions: Sequence[tuple[Callable[..., UOp], DType]],
  inputs: Sequence[tuple[DType, Array]],
  widths: Sequence[int],
) -> list[list[Array]]:
  """The same for vectors of several numbers of lanes: in one program, a loop for each of them."""
  results: list[list[Array]] = []
  loops = []
  first = len(functions) * len(widths)  # slots: results, then inputs
  for number, lanes in enumerate(widths):
    size = len(inputs[0][1]) // lanes * lanes
    results.append([np.zeros(size, storage(output)) for _, output in functions])
    counter = UOp.range(size // lanes, number, dtype=dtypes.int32)
    offset = counter * lanes if lanes > 1 else counter
    loads = [
      UOp.param(slot, dtype.ptr(len(array))).index(offset).load(dtype=dtype.vec(lanes))
      for slot, (dtype, array) in enumerate(inputs, first)
    ]
    stores = [
      UOp.param(slot, output.ptr(size)).index(offset).store(function(*loads))
      for slot, (function, output) in enumerate(functions, number * len(functions))
    ]
    loops.append(UOp.group(*stores).end(counter))
  linear = UOp(Ops.LINEAR, src=lower(renderer, UOp.group(*loops)).toposort)
  run_linear(renderer, linear, [*chain(*results), *(np.ascontiguousarray(a) for _, a in inputs)])
  return results


@lru_cache
def _all_values(dtype: DType) -> Array:
  return np.array([from_bits(dtype, bits) for bits in range(1 << dtype.bits)])


def values_of(dtype: DType, bits: Array) -> Array:
  """What the bits of a float of at most 16 bits mean, as float64."""
  found: Array = _all_values(dtype)[bits.view(f"uint{dtype.bits}")]
  return found
