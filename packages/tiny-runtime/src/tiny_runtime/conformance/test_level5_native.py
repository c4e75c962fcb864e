"""Level 5: programs that come from elsewhere (`Capabilities.native`). What the compiler makes of a kernel is one."""

from __future__ import annotations

import pickle
from dataclasses import replace

from tiny_runtime.conformance.failure import demand, demand_equal, demand_raises
from tiny_runtime.conformance.kernels import I, Loaded, elementwise, kernel
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.values import pack
from tiny_runtime.errors import CompileError
from tiny_uop import NativeCode, Ops, UOp, dtypes

COUNT = 100
LOOK_AT = "what the compiler makes of a kernel that is one NATIVE: its program, after a look at form and arch"


def differences() -> UOp:
  """Not the same with its arguments exchanged."""
  return elementwise("differences", COUNT, I, [I, I], lambda a, b: a - b * 2)


def program_of(target: Target) -> NativeCode:
  """What the compiler makes of it, by itself."""
  return target.compile(differences()).native(target.device.info.capabilities.native[0], target.arch)


def native(program: NativeCode, *slots: int) -> UOp:
  """A kernel that is a program, over buffers of these slots."""
  buffers = tuple([UOp.param(n, I.ptr(COUNT)) for n in slots])
  return kernel(program.entry, UOp(Ops.NATIVE, dtypes.void, buffers, program))


def test_forms_are_names(target: Target) -> None:
  target.needs("native")
  forms = target.device.info.capabilities.native
  demand(len(set(forms)) == len(forms) and all(forms), "native", expected="names, each once", got=forms)


def test_what_a_compiler_made_is_a_program(target: Target) -> None:
  target.needs("native")
  program = program_of(target)
  numbers = [list(range(COUNT)), [7 - 3 * n for n in range(COUNT)]]
  expected = pack(I, [a - b * 2 for a, b in zip(*numbers)])
  # arguments in the program's order, whatever the slots of the CALL are
  for slots in ((0, 1, 2), (2, 0, 1)):
    contents = [b""] * 3
    for slot, data in zip(slots, (bytes(4 * COUNT), *[pack(I, each) for each in numbers])):
      contents[slot] = data
    found = target.run(native(program, *slots), contents)
    demand_equal(found[slots[0]], expected, f"the results of a program over the buffers {slots}", look_at=LOOK_AT)
    loaded = Loaded(target, native(program, *slots))
    demand_equal(loaded.binary.entry, program.entry, "Binary.entry of a program", look_at=LOOK_AT)


def test_the_compiler_is_as_pure_as_with_kernels(target: Target) -> None:
  target.needs("native")
  sink = native(program_of(target), 0, 1, 2)
  again = pickle.loads(pickle.dumps(target.compiler))
  same = target.compile(sink).to_bytes() == again.compile(sink).to_bytes()
  demand(same, "a program compiled twice gave different bytes", look_at=LOOK_AT)


def test_a_program_for_another_device_is_refused(target: Target) -> None:
  """By the compiler, naming what it is for and what it should be for."""
  target.needs("native")
  program = program_of(target)
  for wrong in (replace(program, arch="none99"), replace(program, form="no-such-form")):
    what = f"compile took {wrong.form} for {wrong.arch}, or"
    sink = native(wrong, 0, 1, 2)
    error = demand_raises(CompileError, lambda: target.compiler.compile(sink), what, look_at=LOOK_AT)  # noqa: B023
    named = [name for name in (wrong.form, wrong.arch, program.form) if name in str(error)]
    what = "the CompileError for a program of another device names both"
    demand(len(named) == 3, what, expected=(wrong.form, wrong.arch, program.form), got=str(error), look_at=LOOK_AT)
