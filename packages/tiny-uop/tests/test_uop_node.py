"""The node: hash-consing, weak references, immutability, cached properties, substitution."""

import gc
import math
import subprocess
import sys
import threading
from typing import Any
from weakref import ref

import pytest

from tiny_uop import AxisType, Ops, UOp, dtypes, live_nodes, simplify
from tiny_uop.node import forget

x = UOp.variable("x", 0, 9)


def test_same_fields_same_object() -> None:
  assert x + 1 is x + 1 and UOp.variable("x", 0, 9) is x
  assert x + 1 == x + 1 and hash(x + 1) == hash(x + 1) and x + 1 is not x + 2
  assert UOp(Ops.SINK, arg=1) is not UOp(Ops.SINK, arg=1, tag="t")


@pytest.mark.parametrize(("a", "b"), [(1, 1.0), (1, True), (0.0, -0.0), (0, False), ((1,), (True,)), ((0.0,), (-0.0,))])
def test_arguments_that_are_equal_but_not_the_same(a: Any, b: Any) -> None:
  assert UOp(Ops.SINK, arg=a) is not UOp(Ops.SINK, arg=b)


def test_nan_is_itself() -> None:
  assert UOp.const(dtypes.float32, math.nan) is UOp.const(dtypes.float32, float("nan"))


def test_dropped_graphs_are_freed() -> None:
  gc.collect()
  before = live_nodes()
  u: UOp | None = UOp.variable("dropped", 0, 3)
  for k in range(1000):
    assert u is not None
    u = u + k
  assert u is not None and u.vmax > 0 and u.key and u.toposort and u.ranges == frozenset()
  assert live_nodes() >= before + 1000
  kept: UOp | None = u.src[0]
  u = None
  gc.collect()
  assert live_nodes() >= before + 990  # what is still used stays
  kept = None
  gc.collect()
  assert kept is None and live_nodes() <= before + 1


def test_simplified_graphs_are_freed() -> None:
  simplify((x * 12 + 7) // 4 % 3)  # tables are compiled at first use
  gc.collect()
  before = live_nodes()
  for k in range(50):
    y = UOp.variable(f"once{k}", 0, 99)
    simplify((y * 12 + 7) // 4 % 3 + (y < 5).where(y % 5, 0))
  del y
  gc.collect()
  assert live_nodes() == before


def test_deep_graphs_are_freed_without_a_stack() -> None:
  code = (
    "from tiny_uop import *\nu = UOp.variable('x', 0, 1, dtypes.int32)\nfor _ in range(300_000): u = u + 1\n"
    "del u\nimport gc\ngc.collect()\nprint(live_nodes() < 10)"
  )
  result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert (result.returncode, result.stdout.strip()) == (0, "True"), result.stderr


def test_threads_get_the_same_object() -> None:
  barrier, found = threading.Barrier(8), []

  def make() -> None:
    barrier.wait()
    found.append([UOp.variable("t", 0, 1000 + k) * 3 for k in range(300)])

  threads = [threading.Thread(target=make) for _ in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert all(row[k] is found[0][k] for row in found for k in range(300))


def test_immutable() -> None:
  with pytest.raises(AttributeError, match=r"immutable.*replace\(arg=...\)"):
    x.arg = 3
  with pytest.raises(AttributeError, match="immutable"):
    del x.src
  with pytest.raises(AttributeError, match="immutable"):
    dtypes.int32.bits = 3


def test_replace_tag_substitute() -> None:
  u = (x + 1) * 2
  assert u.replace(op=Ops.ADD) is (x + 1) + 2 and u.rtag("t").tag == "t" and u.rtag("t").rtag(None) is u
  with pytest.raises(TypeError, match="no field name"):
    u.replace(name=3)
  y = UOp.variable("y", 0, 9)
  assert u.substitute({x: y}) is (y + 1) * 2
  assert u.substitute({x: x + 1}) is ((x + 1) + 1) * 2  # replacements are not searched again
  assert u.substitute({}) is u and u.substitute({u: y}) is y


def test_toposort_and_variables() -> None:
  u = (x + 1) * (x + 1)
  order = u.toposort
  assert len(order) == len(set(order)) == 4 and order[-1] is u
  assert all(order.index(s) < order.index(node) for node in order for s in node.src)
  assert (UOp.variable("b", 0, 1) + UOp.variable("a", 0, 1)).variables[0].arg[0] == "a"


def test_bind() -> None:
  bound = x.bind(3)
  assert bound.unbind() == (x, 3) and int(bound) == 3 and (bound.vmin, bound.vmax) == (0, 9)
  with pytest.raises(ValueError, match=r"'x' has bounds \[0, 9\], cannot bind it to 10"):
    x.bind(10)
  with pytest.raises(TypeError, match="only a VARIABLE"):
    (x + 1).bind(1)
  with pytest.raises(ValueError, match="minimum 3 is above maximum 2"):
    UOp.variable("e", 3, 2)


def test_ranges() -> None:
  i, j = UOp.range(4, 0), UOp.range(5, 1, AxisType.REDUCE)
  value = UOp.param(0, dtypes.float32.ptr(20)).index(i * 5 + j).load()
  assert value.ranges == {i, j}
  total = value.reduce(Ops.ADD, j)
  assert total.ranges == {i}
  store = UOp.param(1, dtypes.float32.ptr(4)).index(i).store(total)
  assert store.ranges == {i} and store.end(i).ranges == frozenset()
  assert UOp.range(i + 1, 2).ranges == {i, UOp.range(i + 1, 2)}


def test_truth_and_int() -> None:
  assert (x < 10) and not (x < 0) and bool(x + 1)
  with pytest.raises(TypeError, match="truth of"):
    bool(x < 5)
  with pytest.raises(TypeError, match="symbolic"):
    int(x)


def test_keys_are_the_same_in_every_process() -> None:
  code = "from tiny_uop import *; print((UOp.variable('x', 0, 9) * 3 + UOp.range(4, 0)).key.hex())"
  results = {
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)
  }
  assert results == {(x * 3 + UOp.range(4, 0)).key.hex() + "\n"}
  assert (x * 3).key != (x * 4).key


def test_operators_build_what_the_contract_says() -> None:
  f = UOp.const(dtypes.float32, 2.0)
  assert (x - 1) is x + -1 and (1 - x) is x * -1 + 1 and -x is x * -1
  assert (x // 2).op is Ops.FLOORDIV and (x % 2).op is Ops.FLOORMOD and (3 // x).src[1] is x
  assert (x > 3) is UOp.const(dtypes.index, 3).alu(Ops.CMPLT, x)
  assert (x >= 3) is (x < 3).alu(Ops.CMPNE, UOp.const(dtypes.bool, True))
  assert f.reciprocal().op is Ops.FDIV and (x < 3).dtype is dtypes.bool
  assert (f >= f).op is Ops.OR  # not (f < f) would be true for NaN
  assert (x < 3).where(x, 0).dtype is dtypes.index
  assert UOp.const(dtypes.int8, 300).arg == 44
  with pytest.raises(TypeError, match="one branch must be a UOp"):
    (x < 3).where(1, 0)


def test_what_is_dropped_is_freed_at_once() -> None:
  gc.collect()
  before = live_nodes()
  gc.disable()
  try:
    loop = UOp.range(1_234_567, 77)
    pointer = dtypes.float32.ptr(1_234_567)
    kernel = UOp.param(55, pointer).index(loop).store(UOp.param(56, pointer).index(loop).load()).end(loop)
    assert loop in loop.ranges and not kernel.ranges and len(kernel.toposort) > 5 and kernel.key
    known = ref(pointer)
    del loop, pointer, kernel
    assert known() is None, "the type of a pointer goes with the last node that has it"
    assert live_nodes() == before
  finally:
    gc.enable()


def test_what_is_forgotten_is_computed_again() -> None:
  loop = UOp.range(8, 4711)
  top = (loop * 3 + x) * 5
  asked = [(u, u.key, u.vmin, u.vmax, u.ranges) for u in top.toposort]
  x.__dict__["of somebody else"] = loop.__dict__["of somebody else"] = 1
  try:
    forget(top)
    assert "key" in top.__dict__, "what is asked for is kept"
    assert not {name for u in top.toposort[:-1] for name in u.__dict__} & {"key", "_bounds", "_around", "_below"}
    assert "of somebody else" in x.__dict__ and "of somebody else" in loop.__dict__
    assert [(u, u.key, u.vmin, u.vmax, u.ranges) for u in top.toposort] == asked
  finally:
    del x.__dict__["of somebody else"], loop.__dict__["of somebody else"]


def test_threads_forget_what_others_ask_for() -> None:
  loop = UOp.range(8, 4712)
  top = (loop * 3 + x) * 5
  for n in range(20):
    top = (top + n).maximum(x) * (n % 3 + 2)
  asked = [(u.key, u.vmin, u.vmax, u.ranges, u.toposort) for u in top.toposort]
  threads, failures = 4, list[BaseException]()
  start, over = threading.Barrier(threads), threading.Event()
  x.__dict__["of somebody else"] = 1

  def ask(rounds: int) -> None:
    for _ in range(rounds):
      assert [(u.key, u.vmin, u.vmax, u.ranges, u.toposort) for u in top.toposort] == asked
      assert top.key == asked[-1][0]

  def run(number: int) -> None:
    start.wait()
    try:
      if number < 2:
        ask(40)
      while number >= 2 and not over.is_set():
        forget(top)
    except BaseException as error:
      failures.append(error)
    finally:
      if number < 2:
        over.set()

  interval = sys.getswitchinterval()
  sys.setswitchinterval(1e-6)
  try:
    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
      thread.start()
    for thread in running:
      thread.join()
  finally:
    sys.setswitchinterval(interval)
    del x.__dict__["of somebody else"]
  assert not failures
