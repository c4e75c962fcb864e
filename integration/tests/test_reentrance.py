"""Signal handlers and finalisers that compute in the middle of other computations, of compiling and of the first
import of a plugin. In processes of their own: where something waits for itself, it waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

COMMON = """
import gc, itertools, random, signal, sys, traceback
fresh = itertools.count(1)

def new_kernel():
  from tiny_tensor import Tensor
  k = next(fresh)
  assert (Tensor([1.0, 2.0]) * k - 0.5).tolist() == [k - 0.5, 2.0 * k - 0.5]
"""


def run(code: str, *arguments: str, cache: Path, timeout: float = 120.0) -> str:
  """What a program prints. It has a cache of its own, so that kernels are compiled."""
  environment = os.environ | {"DEVICE": "CPU", "TINY_CACHE": str(cache)}
  program = subprocess.run(
    [sys.executable, "-c", COMMON + textwrap.dedent(code), *arguments],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, env=environment,
  )  # fmt: skip
  assert program.returncode == 0, program.stdout[-5000:]
  return program.stdout


AT_EVERY_CALL = """
from tiny_tensor import Context, Tensor, TinyJit, dtypes

step, first = int(sys.argv[1]), int(sys.argv[2])
# the compilers have no state: a signal finds them anywhere below
PARTS = ("tiny_runtime/", "tiny_runtime_cpu/", "tiny_sched/schedule.py", "tiny_uop/node.py", "tiny_uop/uop.py",
  "tiny_uop/locks.py", "tiny_tensor/methods/random.py", "tiny_tensor/jit", "tiny_tensor/capturing", "tiny_tensor/base",
  "tiny_tensor/realize", "/weakref.py", "/threading.py")
known, draws, errors, count, entered = {}, set(), [], 0, 0
small = Tensor([1.0, 2.0]).realize()
jit = TinyJit(lambda x: (x * 2 + 1).realize())
for n in range(4):
  jit(Tensor([float(n), 1.0]).realize())

def draw():
  numbers = tuple(Tensor.randint(4, high=1 << 60, dtype=dtypes.int64).tolist())
  assert numbers not in draws, "the same numbers twice"
  draws.add(numbers)

def compute(n):
  assert (small + small).tolist() == [2.0, 4.0]
  x = Tensor([float(n), 3.0]).realize()
  if n % 3 == 0:
    assert jit(x).tolist() == [2.0 * n + 1, 7.0]
  if n % 5 == 0:
    draw()
  if n % 7 == 0:
    big = Tensor.full((1 << 16,), 2.0).contiguous().realize()
    assert (big + big).sum().item() == 4.0 * (1 << 16)
  if n % 41 == 0:
    new_kernel()

def hook(frame, event, argument):
  global count, entered
  code = frame.f_code
  if code not in known:
    known[code] = any(part in code.co_filename for part in PARTS)
  if not known[code]:
    return
  count += 1
  if count % step == first:
    entered += 1
    try:
      compute(entered)
    except BaseException:
      errors.append(f"in {code.co_filename}:{frame.f_lineno}, {event}: {traceback.format_exc()}")

def outer():
  new_kernel()
  for n in range(3):
    draw()
    assert jit(Tensor([float(n), 5.0]).realize()).tolist() == [2.0 * n + 1, 11.0], "a replay"
  with Context(CPU_COUNT=2):
    big = Tensor.full((1 << 20,), 1.0).contiguous().realize()
    k = next(fresh) % 8
    assert (big + k).sum().item() == (1 << 20) * (1.0 + k)
    data = bytes(range(256)) * (1 << 13)
    assert bytes(Tensor(data).data()) == data
  for size in (1, 100, 70000, 1 << 20):
    assert (Tensor.full((size,), 1.0).contiguous().realize() + 1).max().item() == 2.0
  w = Tensor([1.0, 2.0, 3.0]).realize()
  w.assign(w * 2).realize()
  assert w.tolist() == [2.0, 4.0, 6.0]

outer()
sys.setprofile(hook)
try:
  outer()
finally:
  sys.setprofile(None)
outer()
print(f"{entered} of {count}", *errors[:5], sep=chr(10))
sys.exit(bool(errors) or not entered)
"""


def test_at_every_call(tmp_path: Path) -> None:
  """Whatever is called or returns, something else is computed there: at some of these places here, at all by night."""
  run(AT_EVERY_CALL, "173", "0", cache=tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(8))
def test_at_really_every_call(tmp_path: Path, first: int) -> None:
  run(AT_EVERY_CALL, "8", str(first), cache=tmp_path, timeout=1800)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
def test_signal_handlers(tmp_path: Path) -> None:
  code = """
    new_kernel()
    busy = handled = 0
    def handle(number, frame):
      global busy, handled
      if not busy:
        busy = 1
        try:
          new_kernel()
          handled += 1
        finally:
          busy = 0
          signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.02))
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    for n in range(1000):
      new_kernel()
      if handled >= 15:
        break
    signal.setitimer(signal.ITIMER_REAL, 0)
    new_kernel()
    print(handled)
  """
  assert int(run(code, cache=tmp_path).split()[-1]) >= 15


def test_finalisers(tmp_path: Path) -> None:
  """The collector runs anywhere, and always finds something that computes when it goes."""
  code = """
    done = 0
    class Last:
      def __init__(self):
        self.itself = self
      def __del__(self):
        global done
        if done < 15:
          new_kernel()
          done += 1
          gc.set_threshold(random.randint(100, 4000))
          Last()
    new_kernel()
    gc.collect()
    Last()
    sys.unraisablehook = lambda what: (traceback.print_exception(what.exc_value), __import__("os")._exit(1))
    for n in range(1000):
      new_kernel()
      if done >= 15:
        break
    print(done)
  """
  assert int(run(code, cache=tmp_path).split()[-1]) >= 15


@pytest.mark.parametrize("beginning", ["new_kernel()", "import tiny_runtime_cpu.backend"])
def test_what_is_being_imported_is_not_broken(tmp_path: Path, beginning: str) -> None:
  """Needed in the middle of its own first import, the plugin cannot be used there, and can be afterwards."""
  code = f"""
    import tiny_tensor
    tried, failed, count = 0, 0, 0
    def hook(frame, event, argument):
      global tried, failed, count
      count += 1
      if "tiny_runtime" in frame.f_code.co_filename and event in ("call", "return") and count % 3 == 0 and tried < 60:
        tried += 1
        try:
          new_kernel()
        except RuntimeError as error:
          failed += 1
          assert "can be used once that is done" in str(error), traceback.format_exc()
    sys.setprofile(hook)
    {beginning}
    sys.setprofile(None)
    new_kernel()
    assert tried, 'it was needed while it was imported'
    print(tried, failed)
  """
  run(code, cache=tmp_path)


def test_importing_in_one_thread_and_computing_in_another(tmp_path: Path) -> None:
  """The first waits for nothing that the second has, though a finaliser in the first computes as well."""
  code = """
    import threading, importlib.abc
    import tiny_tensor
    waiting = threading.Event()
    other = threading.Thread(target=new_kernel)
    class Slow(importlib.abc.MetaPathFinder):
      def find_spec(self, name, path, target=None):
        if name == "tiny_runtime_cpu.device" and not waiting.is_set():
          other.start()
          other.join(0.5)  # by now it waits for this import
          waiting.set()
          try:
            new_kernel()
          except RuntimeError as error:
            assert "can be used once that is done" in str(error), traceback.format_exc()
    sys.meta_path.insert(0, Slow())
    import tiny_runtime_cpu.backend
    other.join(60)
    assert waiting.is_set() and not other.is_alive()
    new_kernel()
  """
  run(code, cache=tmp_path, timeout=100)
