"""Where the kernels of real models read and write, as formulas: golden_indices/NAME.txt, which UPDATE_GOLDEN=1 writes.

Each file lists, per kernel, loops and accesses as scheduled (after codegen's `simplify` pass), and as optimised for
a processor with AVX2. Divisions and remainders are counted against an allowance that the case justifies, so that no
expected file can hide a redundant one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from index_cases import CASES

from tiny_codegen import PASSES, LLVMRenderer, cpu_target
from tiny_codegen.passes import PassContext
from tiny_sched import schedule
from tiny_tensor import Context
from tiny_uop import Ops, UOp

GOLDEN = Path(__file__).parent / "golden_indices"
_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD})
_TARGET = PassContext(LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma"))).capabilities)


def kernels(name: str) -> list[UOp]:
  """The different kernels of a case, in order."""
  with Context(DEVICE="CPU"):
    first, *others = CASES[name].make()
    calls = schedule(first.graph(*others)).src
  return list(dict.fromkeys(call.src[0] for call in calls if call.src[0].op is Ops.SINK))


def run_until(kernel: UOp, last: str) -> UOp:
  """The kernel after the pass `last`."""
  for step in PASSES:
    kernel = step.run(kernel, _TARGET)
    if step.name == last:
      return kernel
  raise ValueError(f"no pass is named {last!r}")


def is_position(u: UOp) -> bool:
  """Whether an expression is computed from loop counters alone, of which it has one."""
  ops = {x.op for x in u.toposort}
  return Ops.RANGE in ops and not ops & {Ops.LOAD, Ops.REDUCE}


def expressions(kernel: UOp) -> Iterator[UOp]:
  """Offsets and gates of accesses, and positions that values are chosen by."""
  for u in kernel.toposort:
    if u.op is Ops.INDEX:
      yield from u.src[1:]
    elif u.op is Ops.WHERE and is_position(u.src[0]):
      yield u.src[0]


def divisions(kernel: UOp) -> int:
  """Different divisions and remainders of positions in a kernel."""
  inside = {u for e in expressions(kernel) for u in e.toposort}
  return sum(u.op in _DIVISIONS and u.dtype.kind == "index" for u in inside)


def describe(kernel: UOp) -> list[str]:
  """Loops and accesses of a kernel, one a line."""
  nodes = kernel.toposort
  loops = sorted((u for u in nodes if u.op is Ops.RANGE), key=lambda u: int(u.arg[0]))
  lines = [f"  r{r.arg[0]} < {r.src[0].render()} {r.arg[1].name.lower()}" for r in loops]
  kinds = {u.src[0]: "write" if u.op is Ops.STORE else "read" for u in nodes if u.op in (Ops.STORE, Ops.LOAD)}
  for u in nodes:
    if u.op is Ops.INDEX:
      gate = f" if {u.src[2].render()}" if len(u.src) == 3 else ""
      lines.append(f"  {kinds.get(u, 'address')} p{u.src[0].arg}[{u.src[1].render()}]{gate}")
    elif u.op is Ops.WHERE and is_position(u.src[0]):
      lines.append(f"  where {u.src[0].render()}")
  return lines


def report(name: str) -> tuple[str, dict[str, int]]:
  """The expected file's text, and how many divisions the kernels have after each of the passes shown."""
  lines: list[str] = []
  found = {"simplify": 0, "optimise": 0}
  for kernel in kernels(name):
    lines.append(kernel.arg.name)
    for last in found:
      after = run_until(kernel, last)
      opts = " ".join(f"{o.op.name}({o.axis},{o.arg})" for o in after.arg.opts or ())
      lines += [f" {last}{' ' + opts if opts else ''}", *describe(after)]
      found[last] += divisions(after)
  return "\n".join(lines) + "\n", found


@pytest.mark.parametrize("name", CASES)
def test_index_expressions(name: str) -> None:
  text, found = report(name)
  expected = GOLDEN / f"{name}.txt"
  if os.environ.get("UPDATE_GOLDEN") == "1":
    expected.write_text(text, encoding="utf-8")
  assert text == expected.read_text(encoding="utf-8"), f"{name}: UPDATE_GOLDEN=1 rewrites {expected.name}"
  allowed = CASES[name].divisions
  assert set(found.values()) == {allowed}, f"{name}: divisions {found}, but {allowed} justified by {CASES[name].why!r}"


def test_every_case_has_a_file() -> None:
  assert {p.stem for p in GOLDEN.glob("*.txt")} == CASES.keys()
  assert all(c.why for c in CASES.values() if c.divisions)
