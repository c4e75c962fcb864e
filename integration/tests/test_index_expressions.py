"""Where the kernels of real models read and write, as formulas: golden_indices/NAME.txt, which UPDATE_GOLDEN=1 writes.

Each file lists, per kernel, loops and accesses as scheduled (after codegen's `simplify` pass). No file can hide what is
redundant: divisions and remainders are counted against an allowance that the case justifies, and a clause of a gate
that follows from the others is found by trying all positions; both also after optimisations have been chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import CASES

from tiny_codegen import PASSES, LLVMRenderer, PassContext, cpu_target
from tiny_sched import schedule
from tiny_tensor import Context
from tiny_uop import Ops, UOp, dtypes

GOLDEN = Path(__file__).parent / "golden_indices"
_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD})
_TARGET = PassContext(LLVMRenderer(cpu_target("x86_64", "", ("+avx", "+avx2", "+fma"))).target)


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
  """Whether an expression is computed from loop counters alone, as integers, and has one."""
  nodes = u.toposort
  outside = any(x.op in (Ops.LOAD, Ops.REDUCE) or x.dtype.kind == "float" for x in nodes)
  return not outside and any(x.op is Ops.RANGE for x in nodes)


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
  lines = [f" r{r.arg[0]} < {r.src[0].render()} {r.arg[1].name.lower()}" for r in loops]
  kinds = {u.src[0]: "write" if u.op is Ops.STORE else "read" for u in nodes if u.op in (Ops.STORE, Ops.LOAD)}
  for u in nodes:
    if u.op is Ops.INDEX:
      gate = f" if {u.src[2].render()}" if len(u.src) == 3 else ""
      lines.append(f" {kinds.get(u, 'address')} p{u.src[0].arg}[{u.src[1].render()}]{gate}")
    elif u.op is Ops.WHERE and is_position(u.src[0]):
      lines.append(f" where {u.src[0].render()}")
  return lines


# *** clauses that follow from the others ***

_MOST_POSITIONS = 1 << 20
_NUMPY: dict[Ops, Callable[..., Any]] = {
  Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.FLOORDIV: np.floor_divide, Ops.FLOORMOD: np.mod, Ops.CMPLT: np.less,
  Ops.CMPNE: np.not_equal, Ops.CMPEQ: np.equal, Ops.AND: np.logical_and, Ops.OR: np.logical_or, Ops.WHERE: np.where,
  Ops.MAX: np.maximum,
}  # fmt: skip


def clauses(gate: UOp) -> list[UOp]:
  """The conditions whose AND is the gate."""
  return [c for s in gate.src for c in clauses(s)] if gate.op is Ops.AND else [gate]


def positions(gate: UOp) -> dict[UOp, Any]:
  """All values of the loop counters of a gate; none where there are too many, or where it depends on something else."""
  nodes = gate.toposort
  loops = [u for u in nodes if u.op is Ops.RANGE]
  known = all(u.op in _NUMPY or u.op in (Ops.CONST, Ops.RANGE) for u in nodes)
  if not known or prod(int(r.vmax) + 1 for r in loops) > _MOST_POSITIONS:
    return {}
  grid = np.meshgrid(*[np.arange(int(r.vmax) + 1) for r in loops], indexing="ij")
  return dict(zip(loops, grid, strict=True))


def values(u: UOp, given: dict[UOp, Any]) -> Any:
  """What an expression is worth at all positions."""
  found = dict(given)
  for node in u.toposort:
    if node not in found:
      found[node] = node.arg if node.op is Ops.CONST else _NUMPY[node.op](*[found[s] for s in node.src])
  return found[u]


def redundant(kernel: UOp) -> list[str]:
  """Clauses of gates that hold wherever the others do."""
  gates = [u.src[2] for u in kernel.toposort if u.op is Ops.INDEX and len(u.src) == 3]
  found: list[str] = []
  for gate in dict.fromkeys(gates):
    if given := positions(gate):
      held = {c: values(c, given) for c in clauses(gate)}
      for clause, where in held.items():
        others = [h for c, h in held.items() if c is not clause]
        if np.all(where | ~np.logical_and.reduce(others)) if others else np.all(where):
          found.append(f"{clause.render()} in {gate.render()}")
  return found


# *** the tests ***


@pytest.mark.parametrize("name", CASES)
def test_index_expressions(name: str) -> None:
  scheduled = [run_until(kernel, "simplify") for kernel in kernels(name)]
  text = "".join(f"{kernel.arg.name}\n" + "".join(f"{line}\n" for line in describe(kernel)) for kernel in scheduled)
  expected = GOLDEN / f"{name}.txt"
  if os.environ.get("UPDATE_GOLDEN") == "1":
    expected.write_text(text, encoding="utf-8")
  assert text == expected.read_text(encoding="utf-8"), f"{name}: UPDATE_GOLDEN=1 rewrites {expected.name}"


@pytest.mark.parametrize("last", ["simplify", "optimise"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_redundant(name: str, last: str) -> None:
  after = [run_until(kernel, last) for kernel in kernels(name)]
  shared = CASES[name].shared if last == "optimise" else 0
  found, allowed = sum(map(divisions, after)), CASES[name].divisions + shared
  assert found == allowed, f"{name}: {found} divisions, but {allowed} justified by {CASES[name].why!r}"
  assert not [line for kernel in after for line in redundant(kernel)]


def test_the_search_finds_a_redundant_clause() -> None:
  r = UOp.range(12, 0)
  pointer = UOp.param(0, dtypes.float32.ptr(12))
  assert redundant(pointer.index(r, (r < 7) & (r % 4 < 3) & (r < 9)).load()) == [
    "r0 < 9 in (r0 < 7) & (r0%4 < 3) & (r0 < 9)"
  ]


def test_every_case_has_a_file() -> None:
  assert {p.stem for p in GOLDEN.glob("*.txt")} == CASES.keys()
  assert all(c.why for c in CASES.values() if c.divisions)
