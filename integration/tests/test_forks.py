"""Forked processes: they go on with the tensors of their parent, and compile, whatever other threads were doing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

COMMON = """
import itertools, os, random, signal, sys, threading, time
from tiny_tensor import Tensor  # by the main thread: a fork does not wait for imports of others

def new_kernel(k):
  assert (Tensor([1.0, 2.0]) * k - 0.5).tolist() == [k - 0.5, 2.0 * k - 0.5]

def in_child(work):
  child = os.fork()
  if child == 0:
    signal.alarm(60)  # ends a child that hangs
    try:
      work()
      os._exit(0)
    except BaseException:
      import traceback
      traceback.print_exc()
    finally:
      os._exit(1)
  status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  assert status == 0, f"the child ended with {status}"
"""


def run(code: str, *arguments: str, cache: Path, timeout: float = 120.0) -> None:
  environment = os.environ | {"DEVICE": "CPU", "TINY_CACHE": str(cache)}
  program = subprocess.run(
    [sys.executable, "-c", COMMON + textwrap.dedent(code), *arguments],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, env=environment,
  )  # fmt: skip
  assert program.returncode == 0, program.stdout[-5000:]


WHILE_COMPILING = """
ended, errors = threading.Event(), []
def compile_all_the_while(first):
  for k in itertools.count(first):
    if ended.is_set():
      return
    try:
      new_kernel(k)
    except BaseException as error:
      errors.append(error)
threads = [threading.Thread(target=compile_all_the_while, args=(n,), daemon=True) for n in (1000, 100000)]
for thread in threads:
  thread.start()
for n in range(int(sys.argv[1])):
  time.sleep(random.uniform(0.0, 0.02))
  in_child(lambda: new_kernel(n + 0.25))
ended.set()
for thread in threads:
  thread.join(60)
assert not errors and not any(thread.is_alive() for thread in threads), errors
"""

AT_FIRST = """
# from the start of the first computation, through imports, opening the device, and compiling
thread = threading.Thread(target=new_kernel, args=(3,), daemon=True)
thread.start()
time.sleep(float(sys.argv[1]))
in_child(lambda: (new_kernel(3), new_kernel(4)))
thread.join(60)
assert not thread.is_alive()
"""

WHILE_LLVM_IS_BUSY = """
import llvmlite.binding as llvm
new_kernel(3)
ended = threading.Event()
def finalise_all_the_while():
  text = "\\n".join(f"define i32 @f{n}(i32 %0) {{ ret i32 %0 }}" for n in range(2000))
  while not ended.is_set():
    llvm.parse_assembly(text, context=llvm.create_context())
thread = threading.Thread(target=finalise_all_the_while, daemon=True)
thread.start()
for n in range(8):
  time.sleep(random.uniform(0.0, 0.02))
  in_child(lambda: new_kernel(n + 0.25))
ended.set()
thread.join(60)
assert not thread.is_alive()
"""


def test_while_other_threads_compile(tmp_path: Path) -> None:
  run(WHILE_COMPILING, "8", cache=tmp_path)


def test_while_another_thread_gives_back_what_llvm_made(tmp_path: Path) -> None:
  """That happens wherever a thread ends or a kernel goes, so nothing of ours is around it."""
  run(WHILE_LLVM_IS_BUSY, cache=tmp_path)


@pytest.mark.parametrize("seconds", [0.03, 0.15])
def test_while_another_thread_computes_for_the_first_time(tmp_path: Path, seconds: float) -> None:
  run(AT_FIRST, str(seconds), cache=tmp_path)


@pytest.mark.nightly
def test_while_other_threads_compile_many_times(tmp_path: Path) -> None:
  run(WHILE_COMPILING, "300", cache=tmp_path, timeout=1800)


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [n * 0.007 for n in range(60)])
def test_anywhere_in_the_first_computation(tmp_path: Path, seconds: float) -> None:
  run(AT_FIRST, str(seconds), cache=tmp_path)


def test_tensors_of_the_parent(tmp_path: Path) -> None:
  code = """
    from tiny_tensor import Context, TinyJit
    large = Tensor.full((1 << 20,), 1.0).contiguous().realize()
    with Context(CPU_COUNT=2):
      assert (large + 1).sum().item() == 2.0 * (1 << 20)  # the parent has threads
    small, lazy = Tensor([1.0, 2.0]).realize(), Tensor([1.0, 2.0]) * 3
    step = TinyJit(lambda x: (x * 2 + small).realize())
    for n in range(4):
      step(Tensor([float(n), 0.0]).realize())
    def work():
      assert small.tolist() == [1.0, 2.0] and lazy.tolist() == [3.0, 6.0]
      assert step(Tensor([5.0, 0.0]).realize()).tolist() == [11.0, 2.0] and step.captured
      with Context(CPU_COUNT=2):
        assert (large * 3).sum().item() == 3.0 * (1 << 20)
      small.assign(Tensor([7.0, 8.0])).realize()
      assert (small + 1).tolist() == [8.0, 9.0]
      in_child(lambda: new_kernel(small.tolist()[0]))
    for n in range(5):
      in_child(work)
      assert small.tolist() == [1.0, 2.0], "the child's write is the child's own"
    assert step(Tensor([5.0, 0.0]).realize()).tolist() == [11.0, 2.0]
  """
  run(code, cache=tmp_path)


def test_workers_of_multiprocessing(tmp_path: Path) -> None:
  """As a data loader has them: they read a data set that the parent holds, and send batches back."""
  code = """
    import multiprocessing
    data = Tensor([[float(n), 2.0 * n] for n in range(64)]).realize()
    def batch(first):
      return data[first : first + 8].mul(2).realize()
    ended = threading.Event()
    def compile_all_the_while():
      for k in itertools.count(1000):
        if ended.is_set():
          return
        new_kernel(k)
    thread = threading.Thread(target=compile_all_the_while, daemon=True)
    thread.start()
    for n in range(3):
      with multiprocessing.get_context("fork").Pool(2) as pool:
        for first, found in zip(range(0, 64, 8), pool.map_async(batch, range(0, 64, 8)).get(60)):
          assert found.tolist() == [[2.0 * n, 4.0 * n] for n in range(first, first + 8)]
    ended.set()
    thread.join()
  """
  run(code, cache=tmp_path)
