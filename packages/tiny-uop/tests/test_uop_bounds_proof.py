"""Proofs that memory accesses are in bounds: kernels that are out of range are refused with a counter-example, their
fixed forms are accepted, and on random offsets and gates the verdict is that of trying all values.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from uop_expressions import draw
from uop_oracle import Oracle

from tiny_uop import Context, KernelInfo, Ops, UOp, dtypes, evaluate, spec
from tiny_uop.proof import bounds as bounds_proof
from tiny_uop.proof.bounds import BoundsError, check_bounds, proof_info
from tiny_uop.proof.exact_integers import Exact

f32, i32, index = dtypes.float32, dtypes.int32, dtypes.index
out, inp, table = UOp.param(0, f32.ptr(16)), UOp.param(1, f32.ptr(16)), UOp.param(2, i32.ptr(16))
i, j = UOp.range(16, 0), UOp.range(4, 1)
n = UOp.variable("n", 0, 20)
chosen = table.index(i).load().cast(index)
lanes = UOp.const(index.vec(4), (0, 1, 2, 3))


def kernel(*effects: UOp) -> UOp:
  return UOp.sink(*effects, arg=KernelInfo("k"))


def reads(offset: UOp, gate: UOp | None = None) -> UOp:
  return kernel(out.index(i).store(inp.index(offset, gate).load()).end(i))


def writes(offset: UOp, gate: UOp | None = None, width: int = 1) -> UOp:
  store = out.index(offset, gate).store(UOp.const(f32.vec(width), 1.0))
  loops = sorted(store.ranges, key=lambda r: int(r.arg[0]))
  return kernel(store.end(*loops))


def sums(extent: UOp, gate: Callable[[UOp], UOp] | None = None) -> UOp:
  k = UOp.range(extent, 1)
  return kernel(out.index(0).store(inp.index(k, gate(k) if gate else None).load().reduce(Ops.ADD, k)))


@dataclass(frozen=True)
class Case:
  """A kernel that is out of bounds, what is said about it, and the kernel that should have been written."""

  name: str
  wrong: UOp
  message: str
  fixed: UOp


TO_DO = "  to do: gate the access (the third source of INDEX) or limit its offset"
CASES = [
  Case("off by one", reads(i + 1), """\
kernel 'k': LOAD at PARAM 1[r0 + 1] is out of bounds
  expected: 0 <= r0 + 1 < 16, for PARAM 1 has 16 elements of float32
  gate: none
  counter-example: r0 = 15: element 16
""", reads(i + 1, i < 15)),
  Case("negative", reads(i - 1), """\
kernel 'k': LOAD at PARAM 1[r0 + -1] is out of bounds
  expected: 0 <= r0 + -1 < 16, for PARAM 1 has 16 elements of float32
  gate: none
  counter-example: r0 = 0: element -1
""", reads(i - 1, i >= 1)),
  Case("gate that does not imply it", reads(i * 2, i < 9), """\
kernel 'k': LOAD at PARAM 1[r0*2] is out of bounds
  expected: 0 <= r0*2 < 16, for PARAM 1 has 16 elements of float32
  gate: r0 < 9
  counter-example: r0 = 8: element 16
""", reads(i * 2, i < 8)),
  Case("wrong stride", writes(j * 5 + UOp.range(2, 2)), """\
kernel 'k': STORE at PARAM 0[r1*5 + r2] is out of bounds
  expected: 0 <= r1*5 + r2 < 16, for PARAM 0 has 16 elements of float32
  gate: none
  counter-example: r1 = 3, r2 = 1: element 16
""", writes(j * 4 + UOp.range(2, 2))),
  Case("wide past the end", writes(j * 4 + 1, width=4), """\
kernel 'k': STORE of 4 elements at PARAM 0[r1*4 + 1] is out of bounds
  expected: 0 <= r1*4 + 1 and r1*4 + 1 + 3 < 16, for PARAM 0 has 16 elements of float32
  gate: none
  counter-example: r1 = 3: element 16
""", writes(j * 4, width=4)),
  Case("lanes whose gates are for others", writes(j * 4 + 2, lanes + j.broadcast(4) * 4 < 15, width=4), """\
kernel 'k': STORE of 4 elements at PARAM 0[r1*4 + 2] is out of bounds
  expected: 0 <= r1*4 + 2 and r1*4 + 2 + 3 < 16, for PARAM 0 has 16 elements of float32
  gate: for each element its own of 0 + r1*4 < 15, 1 + r1*4 < 15, 2 + r1*4 < 15, 3 + r1*4 < 15
  counter-example: r1 = 3: element 16
""", writes(j * 4 + 2, lanes + j.broadcast(4) * 4 < 14, width=4)),
  Case("loaded offset that is not limited", reads(chosen, chosen < 17), """\
kernel 'k': LOAD at PARAM 1[PARAM 2[r0]] is out of bounds
  expected: 0 <= PARAM 2[r0] < 16, for PARAM 1 has 16 elements of float32
  gate: PARAM 2[r0] < 17
  counter-example: """, reads(chosen.maximum(0).minimum(15))),
  Case("loop over more than there is", sums(n.minimum(17)), """\
kernel 'k': LOAD at PARAM 1[r1] is out of bounds
  expected: 0 <= r1 < 16, for PARAM 1 has 16 elements of float32
  gate: none
  inside: r1 < max(n*-1, -17)*-1
  counter-example: """, sums(n.minimum(16))),
  Case("condition of a WHERE", kernel(out.index(i).store((i < 15).where(inp.index(i + 1).load(), 0.0)).end(i)), """\
kernel 'k': LOAD at PARAM 1[r0 + 1] is out of bounds
  expected: 0 <= r0 + 1 < 16, for PARAM 1 has 16 elements of float32
  gate: none
  counter-example: r0 = 15: element 16
""", kernel(out.index(i).store((i < 15).where(inp.index((i < 15).where(i + 1, 0)).load(), 0.0)).end(i))),
  Case("constant", writes(UOp.const(index, 16)), """\
kernel 'k': STORE at PARAM 0[16] is out of bounds
  expected: 0 <= 16 < 16, for PARAM 0 has 16 elements of float32
  gate: none
  counter-example: element 16
""", writes(UOp.const(index, 15))),
  Case("nothing there", kernel(UOp.param(0, f32.ptr(0)).index(0).store(1.0)), """\
kernel 'k': STORE at PARAM 0[0] is out of bounds
  expected: 0 <= 0 < 0, for PARAM 0 has 0 elements of float32
  gate: none
  counter-example: element 0
""", kernel(UOp.param(0, f32.ptr(0)).index(0, UOp.const(dtypes.bool, False)).store(1.0))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_wrong_kernels_are_refused_and_fixed_ones_accepted(case: Case) -> None:
  with pytest.raises(BoundsError) as error:
    check_bounds(case.wrong)
  assert str(error.value).startswith(case.message) and str(error.value).endswith(TO_DO)
  assert error.value.node.op in (Ops.LOAD, Ops.STORE)
  assert error.value.element is not None and not 0 <= error.value.element < 16 or case.name == "nothing there"
  check_bounds(case.fixed)


def test_counterexamples_that_are_not_the_only_ones() -> None:
  with pytest.raises(BoundsError) as error:
    check_bounds(reads(chosen, chosen < 17))
  value = error.value.counterexample["PARAM 2[r0]"]
  assert (value < 0 or value == 16) and error.value.element == value
  with pytest.raises(BoundsError) as error:
    check_bounds(sums(n))
  assert error.value.counterexample["n"] > error.value.counterexample["r1"] >= 16


def test_an_inner_access_is_not_protected_by_the_gate_of_the_outer() -> None:
  inner = table.index(i + 1).load().cast(index)
  with pytest.raises(BoundsError, match=r"LOAD at PARAM 2\[r0 \+ 1\] is out of bounds\n.*\n  gate: none"):
    check_bounds(reads(inner, (i < 15) & (inner >= 0) & (inner < 16)))
  inner = table.index(i + 1, i < 15).load().cast(index)
  check_bounds(reads(inner, (inner >= 0) & (inner < 16)))


def test_an_offset_that_wraps() -> None:
  byte = UOp.range(UOp.const(dtypes.uint8, 200), 0, dtype=dtypes.uint8)
  memory = UOp.param(0, f32.ptr(56))
  check_bounds(kernel(memory.index(byte + 56, byte >= 200).store(1.0).end(byte)))
  with pytest.raises(BoundsError, match="counter-example: r0 = 199: element 255"):
    check_bounds(kernel(memory.index(byte + 56, byte >= 199).store(1.0).end(byte)))


def test_loops_that_may_be_empty_say_something_about_variables() -> None:
  def inside_a_loop_over(extent: UOp) -> UOp:
    k = UOp.range(extent, 0)
    return kernel(out.index(n - 16).store(k.cast(f32)).end(k))

  check_bounds(inside_a_loop_over(n - 15))  # it is entered where n is 16 or more
  with pytest.raises(BoundsError, match=r"inside: r0 < n \+ -14\n  counter-example: n = 15, r0 = 0: element -1"):
    check_bounds(inside_a_loop_over(n - 14))


def program(condition: UOp | None, offset: UOp) -> UOp:
  address = out.index(offset)
  store = address.store(1.0)
  block = UOp(Ops.IF, src=(condition, address)) if condition is not None else None
  inside = [store] if block is None else [block, store, UOp(Ops.ENDIF, src=(block,))]
  loop = UOp.range(UOp.const(i32, 17), 0, dtype=i32)
  body = [loop, *[u for u in address.toposort if u.op is not Ops.RANGE]]
  return UOp(Ops.LINEAR, src=(*body, *inside, UOp(Ops.END, src=(store, loop))), arg=KernelInfo("p"))


def test_programs() -> None:
  loop = UOp.range(UOp.const(i32, 17), 0, dtype=i32)
  with pytest.raises(
    BoundsError, match=r"kernel 'p' after 'linearise': STORE at PARAM 0\[r0\].*\n.*\n.*\n.*element 16"
  ):
    check_bounds(program(None, loop), "linearise")
  check_bounds(program(loop < 16, loop))
  with pytest.raises(BoundsError, match=r"gate: none\n  inside: r0 < 17\n"):
    check_bounds(program(loop < 17, loop))
  closed = program(loop < 16, loop)
  late = out.index(loop + 1).store(2.0)  # after the ENDIF
  with pytest.raises(BoundsError, match=r"PARAM 0\[r0 \+ 1\]"):
    check_bounds(closed.replace(src=(*closed.src[:-1], late, closed.src[-1])))


def test_memory_of_vectors() -> None:
  memory = UOp.param(0, f32.vec(4).ptr(4))
  value = UOp.const(f32.vec(4), 1.0)
  check_bounds(kernel(memory.index(j).store(value).end(j)))
  with pytest.raises(BoundsError, match="STORE at PARAM 0.*\n.*PARAM 0 has 4 elements of float32x4\n"):
    check_bounds(kernel(memory.index(j + 1).store(value).end(j)))


def test_schedules() -> None:
  buffers = [UOp.new_buffer("CPU", 16, f32) for _ in range(2)]
  good, bad = (UOp(Ops.CALL, src=(body, *buffers)) for body in (reads(i), reads(i + 1)))
  check_bounds(UOp(Ops.LINEAR, src=(good, good)))
  with pytest.raises(BoundsError, match=r"kernel 'k': LOAD at PARAM 1\[r0 \+ 1\]"):
    check_bounds(UOp(Ops.LINEAR, src=(good, bad)))


# *** how it is asked ***


def test_spec_2_asks() -> None:
  for level in (0, 1):
    with Context(SPEC=level):
      assert spec.check_stage(reads(i + 1), "kernel") is reads(i + 1)
  with Context(SPEC=2), pytest.raises(BoundsError, match="kernel 'k' after 'merge': LOAD"):
    spec.check_stage(reads(i + 1), "kernel", "merge")


def test_a_proof_is_kept() -> None:
  offset = i * 3 + 7
  before = proof_info()
  for _ in range(3):
    check_bounds(reads(offset, offset < 16))
  after = proof_info()
  assert (after.z3 - before.z3, after.cache - before.cache) == (1, 2)
  assert after.bounds - before.bounds == 3  # the STORE
  # after the pass that gives indices a type, the claim is the same
  loop = UOp.range(UOp.const(i32, 16), 0, dtype=i32)
  late = loop.alu(Ops.MULACC, loop.const_like(3), loop.const_like(7))
  check_bounds(kernel(out.index(loop).store(inp.index(late, late < 16).load()).end(loop)))
  assert proof_info().z3 == after.z3


def test_threads() -> None:
  # in a process of its own: z3 crashes where two threads are in it
  script = """
import sys, threading
from tiny_uop import KernelInfo, UOp, check_bounds, dtypes
sys.setswitchinterval(1e-5)
p, done = UOp.param(0, dtypes.float32.ptr(17)), []
def work(thread):
  for n in range(40):
    i = UOp.range(16, 0)
    offset = (i * (n + 3) + thread * 7) % (20 + n)
    check_bounds(UOp.sink(p.index(offset, offset < 17).store(1.0).end(i), arg=KernelInfo("k")))
  done.append(thread)
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(done))
"""
  ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
  assert (ran.returncode, ran.stdout) == (0, "8\n"), ran.stderr


def test_no_answer_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
  a, b, c = (UOp.variable(name, 1, 10**6) for name in "abc")
  cubes = a * a * a + b * b * b
  monkeypatch.setattr(bounds_proof, "TIMEOUT_MS", 1000)
  hard = cubes.eq(c * c * c).where(UOp.const(index, 16), 0)  # whether it is 16 is Fermat's last theorem
  with pytest.raises(BoundsError) as error:
    check_bounds(writes(hard))
  lines = str(error.value).splitlines()
  assert lines[0].startswith("kernel 'k': STORE at PARAM 0[where(")
  assert lines[0].endswith("cannot be shown to be in bounds")
  assert lines[3:] == [
    "  counter-example: not known, z3 gave no answer within 1 s",
    "  to do: use an offset that is linear in loops and variables, or gate the access by comparisons with the offset",
  ]
  assert error.value.element is None


def test_without_z3_only_what_bounds_show_is_proved() -> None:
  script = """
import sys
sys.modules["z3"] = None  # import z3 raises ImportError
from tiny_uop import KernelInfo, UOp, dtypes
from tiny_uop.proof.bounds import check_bounds
i, p = UOp.range(16, 0), UOp.param(0, dtypes.float32.ptr(16))
def kernel(store): return UOp.sink(store.end(i), arg=KernelInfo("k"))
check_bounds(kernel(p.index(i).store(1.0)))
try:
  check_bounds(kernel(p.index(i + 1, i < 15).store(1.0)))
except ImportError as error:
  print(error)
"""
  ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
  assert ran.stdout.strip() == "proofs about UOps (SPEC=2) need the z3 solver: pip install 'tiny-uop[proof]'"


# *** against trying all values ***


def _all_values(offset: UOp, gate: UOp | None, leaves: tuple[UOp, ...]) -> list[int]:
  """The offset at every assignment at which the access happens."""
  oracle = Oracle(leaves)
  happens = np.ones(1, np.bool_) if gate is None else oracle(gate)
  offsets, happens, *_ = np.broadcast_arrays(oracle(offset), happens, *[oracle.values[leaf] for leaf in leaves])
  return sorted({int(v) for v in offsets[happens]})


def _all_known(offset: UOp, gate: UOp | None) -> bool:
  """Whether there is an exact expression for each operation; of some operations on bits only the bounds are known."""
  whole = offset if gate is None else gate.where(offset, 0)
  return Exact().of(whole)[0].variables == whole.variables


def test_verdicts_on_random_offsets() -> None:
  refused = accepted = 0
  for seed in range(400):
    case, rng = draw(Random(seed)), Random(seed)
    if case.expression.dtype is not index or not _all_known(case.expression, case.gate):
      continue
    values = _all_values(case.expression, case.gate, case.leaves)
    size = max(values[-1] + rng.choice([0, 1, 1, 1, 2]), 1) if values else 1
    shift = -values[0] + rng.choice([0, 0, 0, -1]) if values and rng.random() < 0.5 else 0
    size, offset = size + shift, case.expression + shift if shift else case.expression
    safe = all(0 <= v + shift < size for v in values)
    store = UOp.param(0, f32.ptr(size)).index(offset, case.gate).store(1.0)
    root = kernel(store.end(*store.ranges) if store.ranges else store)
    try:
      check_bounds(root)
    except BoundsError as error:
      assert not safe and error.element is not None, (seed, str(error))
      assert error.element - shift in values, (seed, str(error))
      refused += 1
    else:
      assert safe, seed
      accepted += 1
  assert refused > 30 and accepted > 60


def test_evaluation_agrees_with_the_counterexample() -> None:
  offset = (i * 7 + 3) % 19
  with pytest.raises(BoundsError) as error:
    check_bounds(writes(offset))
  assert evaluate(offset, {i: error.value.counterexample["r0"]}) == error.value.element


@pytest.mark.parametrize("right", [True, False])
def test_what_is_chosen_where_a_gate_holds(right: bool) -> None:
  """The gate looks at an index that is 0 where there is none, the offset at the index itself."""
  i = UOp.range(16, 0)
  there, zero = i < 11, UOp.const(dtypes.index, 0)
  index = UOp.param(1, dtypes.int32.ptr(11)).index(there.where(i, zero)).load()
  guarded = there.where(index, index.const_like(0)).cast(dtypes.index)
  gate = there & (guarded >= 0) & (guarded < 5)
  offset = gate.where(index.cast(dtypes.index) * 4 + (3 if right else 4), zero)
  value = UOp.param(2, dtypes.float32.ptr(20)).index(offset).load()
  root = UOp.sink(UOp.param(0, dtypes.float32.ptr(16)).index(i).store(value).end(i), arg=KernelInfo("picked"))
  if right:
    check_bounds(root)
  else:
    with pytest.raises(BoundsError, match="element 20"):
      check_bounds(root)
