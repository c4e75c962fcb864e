"""`run`: schedules written by hand, on the reference backend and on devices that fail in the middle."""

from __future__ import annotations

import os
import re
import sys
import threading
import weakref
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tiny_runtime import (
  Broken,
  CapturedGraph,
  CompileError,
  Device,
  DeviceLost,
  GlobalCounters,
  OutOfMemory,
  buffer_of,
  capture,
  host_buffer,
  run,
)
from tiny_uop import Context, KernelInfo, Ops, UOp, dtypes
from tiny_uop.spec import SpecError

MakePlugin = Callable[..., Path]


def test_kernels_run_in_order(kernels: Any) -> None:
  a, b, c = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2), kernels.buffer(size=2)
  GlobalCounters.reset()
  run(kernels.linear(kernels.add(b, a, 1.0), kernels.add(c, b, 10.0), kernels.increment(b)))
  assert kernels.values(b) == [3.0, 4.0] and kernels.values(c) == [12.0, 13.0]
  assert GlobalCounters.kernel_count == 3 and GlobalCounters.global_mem > 0 and GlobalCounters.global_ops > 0


def test_views_as_arguments(kernels: Any) -> None:
  arena, source = kernels.buffer([0.0, 0.0, 0.0, 0.0]), kernels.buffer([1.0, 2.0])
  view = UOp(Ops.BUFFER_VIEW, dtypes.float32, (arena,), (8, 2))
  run(kernels.linear(kernels.add(view, source)))
  assert kernels.values(arena) == [0.0, 0.0, 2.0, 3.0]


def test_variables(kernels: Any) -> None:
  source, out = kernels.buffer([1.0, 2.0, 3.0, 4.0]), kernels.buffer(size=1)
  length = UOp.variable("length", 1, 4)
  for value, expected in ((1, 1.0), (3, 6.0), (4, 10.0)):
    run(kernels.linear(kernels.prefix(out, source, length.bind(value))))
    assert kernels.values(out) == [expected]
  call = kernels.prefix(out, source, length.bind(1))
  with pytest.raises(ValueError, match="kernel prefix needs a value for variable length"):
    run(kernels.linear(kernels.call(*call.src[:3])))


def test_reading_what_was_never_written(kernels: Any) -> None:
  with pytest.raises(RuntimeError, match="was never written to") as caught:
    run(kernels.linear(kernels.add(kernels.buffer(size=2), kernels.buffer(size=2))))
  assert caught.value.__notes__ == ["as an argument of kernel add on REF"]
  with pytest.raises(RuntimeError, match="was never written to"):
    run(kernels.linear(kernels.increment(kernels.buffer(size=2))))
  with pytest.raises(RuntimeError, match="was never written to"):
    run(kernels.linear(kernels.copy(kernels.buffer(size=2), kernels.buffer(size=2))))


def test_bad_schedules(kernels: Any, kernels_on: Any) -> None:
  two, three = kernels.buffer([1.0, 2.0]), kernels.buffer(size=3)
  with pytest.raises(TypeError, match="run takes a schedule"):
    run(UOp.sink())
  with pytest.raises(TypeError, match="made of CALLs"):
    run(kernels.linear(UOp.sink()))
  with pytest.raises(TypeError, match="kernel SINK or a COPY"):
    run(kernels.linear(kernels.call(UOp.const(dtypes.int32, 1), two)))
  with pytest.raises(ValueError, match=r"PARAM 1 needs 12 bytes \(3 × float32\), got <Buffer 2 × float32 on REF"):
    run(kernels.linear(kernels.add(three, two)))
  with pytest.raises(ValueError, match="8 bytes.*12 bytes.*: the sizes differ"):
    run(kernels.linear(kernels.copy(three, two)))
  with pytest.raises(ValueError, match="the CALL gives 1"):
    run(kernels.linear(kernels.call(*kernels.add(kernels.buffer(size=2), two).src[:2])))
  with pytest.raises(ValueError, match="without buffers"):
    run(kernels.linear(kernels.call(UOp.sink(arg=KernelInfo("nothing")))))
  with pytest.raises(ValueError, match="kernel add has buffers on REF and HOST; copy"):
    run(kernels.linear(kernels.add(kernels.buffer(size=2), kernels_on("HOST").buffer([1.0, 2.0]))))


def test_spec_checks_the_schedule(kernels: Any) -> None:
  a, b = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2)
  tagged = kernels.add(b, a).rtag("left over")
  with Context(SPEC=1):
    run(kernels.linear(kernels.add(b, a), kernels.copy(a, b)))
    with pytest.raises(SpecError, match="illegal at the schedule level: CALL.*no tag"):
      run(kernels.linear(tagged))
  assert kernels.values(a) == [2.0, 3.0]


def test_nothing_runs_if_something_does_not_compile(kernels: Any) -> None:
  a = kernels.buffer([1.0])
  bad = kernels.call(UOp.sink(UOp(Ops.SOURCE, arg="no kernel"), arg=KernelInfo("bad")), a)
  with pytest.raises((CompileError, Broken), match="kernel bad"):
    run(kernels.linear(kernels.increment(a), bad))
  assert kernels.values(a) == [1.0]
  run(kernels.linear(kernels.increment(a)))
  assert kernels.values(a) == [2.0]


def test_debug_lines(kernels: Any, capsys: pytest.CaptureFixture[str]) -> None:
  a, b = kernels.buffer([1.0, 2.0]), kernels.buffer(size=2)
  linear = kernels.linear(kernels.add(b, a, name="add_" + "x" * 60), kernels.copy(a, b))
  with Context(DEBUG=2):
    run(linear)
    first = capsys.readouterr()
    run(linear)
    again = capsys.readouterr()
  assert first.out == again.out == ""
  assert "compiled in" in first.err and "compiled in" not in again.err
  lines = again.err.splitlines()
  number = r"\s+[\d.]+"
  assert re.fullmatch(
    rf"\s+\d+  REF      add_x+…{number} (µs|ms|s )  {number} GFLOPS{number} GB/s  {number} (B |kB|MB|GB) in use",
    lines[0],
  )
  assert "copy 8 B from REF " in lines[1] and len(lines[0]) == len(lines[1]) <= 120
  with Context(DEBUG=5):
    run(kernels.linear(kernels.add(b, a, 7.0)))
  detailed = capsys.readouterr().err
  assert "--- add: UOps" in detailed and "--- add: code" in detailed


# *** a device that misbehaves ***

FAILING = """
from tiny_runtime import CompileError, DeviceLost, OutOfMemory
from tiny_runtime.contract import DeviceInfo
from tiny_runtime.ref import BACKEND as REF
from dataclasses import replace

fail = {}   # method → errors to raise, in order

def maybe(method):
  if fail.get(method): raise fail[method].pop(0)

class Device:
  def __init__(self):
    self.inner = REF.open(0)
    self.info = replace(self.inner.info, name="FAIL")
  def alloc(self, nbytes): maybe("alloc"); return self.inner.alloc(nbytes)
  def free(self, memory): self.inner.free(memory)
  def write(self, *a): maybe("write"); self.inner.write(*a)
  def read(self, *a): maybe("read"); self.inner.read(*a)
  def view(self, memory): return self.inner.view(memory)
  def load(self, binary): maybe("load"); return self.inner.load(binary)
  def launch(self, *a): maybe("launch"); return self.inner.launch(*a)
  def sync(self): maybe("sync")
  def close(self): maybe("close")

class Compiler:
  key = "failing"
  def compile(self, kernel, measure=None):
    maybe("compile")
    return REF.compiler("python").compile(kernel)

class BACKEND:
  api = (1, 0)
  ir = (1, 1)
  def probe(self): return ["python"]
  def open(self, index): return Device()
  def compiler(self, arch): return Compiler()
"""


@pytest.fixture
def fail(make_plugin: MakePlugin) -> Any:
  """What the device FAIL raises: `fail["launch"] = [errors…]`."""
  Device._opened.pop("FAIL", None)
  make_plugin("tiny-runtime-failing", "FAIL", FAILING)
  Device["FAIL"]
  import tiny_runtime_failing  # type: ignore[import-not-found]

  yield tiny_runtime_failing.fail
  Device._opened.pop("FAIL", None)


def test_device_lost_in_the_middle(kernels_on: Any, fail: Any) -> None:
  on = kernels_on("FAIL")
  a, b = on.buffer([1.0]), on.buffer(size=1)
  fail["launch"] = [DeviceLost("the card fell off the bus")]
  with pytest.raises(DeviceLost, match="^kernel add on FAIL: the card fell off the bus"):
    run(on.linear(on.add(b, a), on.add(a, b)))
  with pytest.raises(DeviceLost, match="gone with its device: the card fell off.*Compute the data again"):
    buffer_of(a).read()
  with pytest.raises(DeviceLost, match="gone"):
    run(on.linear(on.add(on.buffer(size=1), a)))
  # the next use opens it afresh
  c, d = on.buffer([5.0]), on.buffer(size=1)
  run(on.linear(on.add(d, c)))
  assert on.values(d) == [6.0]


def test_out_of_memory_leaves_the_device_usable(kernels_on: Any, fail: Any) -> None:
  on = kernels_on("FAIL")
  a, b = on.buffer([1.0]), on.buffer(size=1)
  fail["alloc"] = [OutOfMemory("1 byte free"), OutOfMemory("2 bytes free")]
  with pytest.raises(OutOfMemory, match="allocating 4 bytes on FAIL: 2 bytes free"):
    run(on.linear(on.add(b, a)))
  assert on.values(a) == [1.0]
  run(on.linear(on.add(b, a)))
  assert on.values(b) == [2.0]
  fail["alloc"] = [OutOfMemory("once")]  # collecting garbage may make room, so one retry
  on.buffer([3.0])


def test_kept_outputs_are_given_up_before_an_allocation_fails(kernels_on: Any, fail: Any) -> None:
  on = kernels_on("FAIL")
  x, y = on.buffer([1.0]), on.buffer(size=1)
  with capture() as captured:
    run(on.linear(on.add(y, x)))
  graph = CapturedGraph(captured, [x], [y])
  out = graph.replay([x])[0]
  kept, other = weakref.ref(buffer_of(out)), graph.replay([x])[0]  # which the launches hold now
  del out
  assert kept() is not None or sys.implementation.name != "cpython"
  fail["alloc"] = [OutOfMemory("once")]
  on.buffer([3.0])
  assert kept() is None
  assert on.values(other) == [2.0]
  assert on.values(graph.replay([other])[0]) == [3.0]


def test_foreign_errors_are_the_plugins_fault(kernels_on: Any, fail: Any) -> None:
  on = kernels_on("FAIL")
  a, b = on.buffer([1.0]), on.buffer(size=1)
  fail["launch"] = [KeyError("oops")]
  with pytest.raises(Broken, match="kernel add on FAIL: tiny-runtime-failing 1.2.3 raised KeyError: 'oops'") as caught:
    run(on.linear(on.add(b, a)))
  assert isinstance(caught.value.__cause__, KeyError)
  fail["write"] = [OSError("bus")]
  with pytest.raises(Broken, match="writing 4 bytes to FAIL: .* raised OSError: bus"):
    buffer_of(b).write(bytes(4))
  run(on.linear(on.add(b, a)))
  assert on.values(b) == [2.0]


def test_failed_first_write_leaves_a_buffer_unwritten(kernels_on: Any, fail: Any) -> None:
  buffer = buffer_of(UOp.new_buffer("FAIL", 1, dtypes.float32))
  fail["write"] = [OSError("bus")]
  with pytest.raises(Broken):
    buffer.write(bytes(4))
  with pytest.raises(RuntimeError, match="was never written to"):
    buffer.read()


def test_compile_error_names_the_kernel_and_keeps_the_source(kernels_on: Any, fail: Any) -> None:
  on = kernels_on("FAIL")
  a, b = on.buffer([1.0]), on.buffer(size=1)
  amount = 0.75  # a kernel that no other test has compiled
  fail["compile"] = [CompileError("expected ;", "int x")]
  with pytest.raises(CompileError, match="^kernel add: expected ;$") as caught:
    run(on.linear(on.add(b, a, amount)))
  assert caught.value.source == "int x"
  fail["compile"] = [ZeroDivisionError("what")]
  with pytest.raises(Broken, match="kernel add: compiler 'failing' raised ZeroDivisionError"):
    run(on.linear(on.add(b, a, amount)))
  run(on.linear(on.add(b, a, amount)))
  assert on.values(b) == [1.75]


def test_closing_twice_and_reopening(kernels: Any) -> None:
  kernels.buffer([1.0])
  kept = kernels.buffer([1.0])
  Device.close()
  Device.close()
  with pytest.raises(DeviceLost, match="closed"):
    kernels.values(kept)
  assert kernels.values(kernels.buffer([2.0])) == [2.0]


def test_threads(kernels: Any) -> None:
  errors: list[BaseException] = []

  def work(seed: int) -> None:
    try:
      for n in range(20):
        a, b = kernels.buffer([float(seed)] * 3), kernels.buffer(size=3)
        run(kernels.linear(kernels.add(b, a, float(n % 3), name=f"thread_{n % 3}"), kernels.increment(a)))
        assert kernels.values(b) == [seed + n % 3.0] * 3 and kernels.values(a) == [seed + 1.0] * 3
    except BaseException as error:
      errors.append(error)

  threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_goes_on_with_memory_that_survives(kernels: Any) -> None:
  kept, result, host = kernels.buffer([1.0]), kernels.buffer(size=1), host_buffer(b"abcd", dtypes.uint8)
  known = kernels.linear(kernels.add(result, kept))
  run(known)
  child = os.fork()
  if child == 0:
    status = 1
    try:
      assert kernels.values(kept) == [1.0] and kernels.values(result) == [2.0] and buffer_of(host).read() == b"abcd"
      buffer_of(kept).write(memoryview(array("f", [5.0])))
      run(known)
      new = kernels.buffer(size=1)
      run(kernels.linear(kernels.add(new, result)))
      assert kernels.values(result) == [6.0] and kernels.values(new) == [7.0]
      status = 0
    finally:
      os._exit(status)
  assert os.waitpid(child, 0)[1] == 0
  assert kernels.values(kept) == [1.0] and kernels.values(result) == [2.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_opens_devices_afresh_that_do_not(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
  kept, host = kernels.buffer([1.0]), host_buffer(b"abcd", dtypes.uint8)
  opened = Device.opened("REF")
  monkeypatch.setattr(opened, "capabilities", replace(opened.capabilities, survives_fork=False))
  child = os.fork()
  if child == 0:
    status = 1
    try:
      with pytest.raises(DeviceLost, match="opened before this process was forked"):
        kernels.values(kept)
      a, b = kernels.buffer([1.0]), kernels.buffer(size=1)
      run(kernels.linear(kernels.add(b, a)))
      assert kernels.values(b) == [2.0] and buffer_of(host).read() == b"abcd"
      status = 0
    finally:
      os._exit(status)
  assert os.waitpid(child, 0)[1] == 0
  assert kernels.values(kept) == [1.0]


def test_loaded_kernels_keep_nothing_but_themselves(kernels: Any) -> None:
  source, out = kernels.buffer([1.0, 2.0, 3.0, 4.0]), kernels.buffer(size=1)
  linear = kernels.linear(kernels.prefix(out, source, UOp.variable("kept", 1, 4).bind(3)))
  (call,) = linear.src
  assert call.src[0].key and all("key" in u.__dict__ for u in call.src[0].toposort)
  run(linear)
  inside = [u for u in call.src[0].toposort[:-1] if u.ranges and u.op is not Ops.RANGE]
  assert inside and not any("key" in u.__dict__ for u in inside)
