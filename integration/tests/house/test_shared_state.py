"""What threads share is listed in docs/threads.md, and is safe in the way that stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import shared_state

from tiny_tensor import Tensor
from tiny_tensor.host import unpack
from tiny_tensor.methods import realization
from tiny_uop import DType

TABLE = Path(__file__).parents[3] / "docs" / "threads.md"


def rows() -> dict[str, str]:
  """How it is safe, by what is shared."""
  return dict(re.findall(r"^\| `([\w.]+)` \| ([^|]+?) \|", TABLE.read_text("utf-8"), flags=re.MULTILINE))


@cache
def found() -> dict[str, shared_state.Shared]:
  return shared_state.found()


def test_all_of_it_is_listed() -> None:
  # `python integration/tests/house/shared_state.py` prints what is found
  assert sorted(rows()) == sorted(found()), "docs/threads.md says how each is safe"


@pytest.mark.parametrize("name", sorted(rows()))
def test_it_is_safe_as_listed(name: str) -> None:
  how, shared = rows()[name], found()[name]
  if how == "one step":
    several = [f"{change.place}: {change.how}" for change in shared.changes if not (change.one_step or change.locks)]
    assert not several, "more than one step, and no lock"
  elif how != "by itself":
    assert how.strip("`") in shared.locks, [change for change in shared.changes if how.strip("`") not in change.locks]


def test_it_is_seen(tmp_path: Path) -> None:
  source = tmp_path / "tiny-x" / "src" / "tiny_x"
  source.mkdir(parents=True)
  (source / "a.py").write_text(
    "from weakref import WeakSet\nKEPT: dict[int, int] = {}\nall = WeakSet()\ntable = {1: 2}\nlock = f()\nn = 0\n"
    "table[2] = 3\n"
    "def g(all2):\n  global n\n  with lock:\n    n += 1\n  KEPT[1] = 2\n"
    "def h(table):\n  table[1] = 2\n  def inner():\n    all.add(1)\n"
  )
  (source / "b.py").write_text("from tiny_x.a import KEPT as k\ndef f():\n  k.pop(1)\n  k.update(x)\n  k[1] += 2\n")
  seen = shared_state.found(tmp_path)
  assert {name: [c.how for c in shared.changes] for name, shared in seen.items()} == {
    "tiny_x.a.KEPT": ["[] =", "pop", "update", "[] += …", "[] ="],
    "tiny_x.a.all": ["add"],
    "tiny_x.a.n": ["+=", "="],
  }
  assert seen["tiny_x.a.n"].locks == {"lock"} and not seen["tiny_x.a.KEPT"].locks


STRESS = """
import os, random, sys, threading, time
sys.setswitchinterval(1e-6)
from tiny_tensor import Tensor, TinyJit
THREADS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
wrong, start = [], threading.Barrier(THREADS)
shared = [Tensor([float(i), 2.0, 3.0]).realize() for i in range(4)]

@TinyJit
def step(x): return (x * 2 + 1).sum()

def work(number):
  order = random.Random(number)
  start.wait()
  for turn in range(ROUNDS):
    size = order.choice((3, 5, 8))
    a = Tensor([float(order.randrange(9)) for _ in range(size)], requires_grad=True)
    given = a.tolist()
    match order.randrange(5):
      case 0:  # a kernel that another thread may compile at the same moment
        got, want = (a * (turn % 7) + 1).tolist(), [v * (turn % 7) + 1 for v in given]
      case 1:
        (a * a).sum().backward()
        got, want = a.grad.tolist(), [2 * v for v in given]
      case 2:
        x = shared[order.randrange(4)]
        first = x.tolist()[0]
        got, want = (x + 1).tolist(), [first + 1, 3.0, 4.0]
      case 3:
        got, want = step(Tensor(given[:3]).realize()).item(), sum(2 * v + 1 for v in given[:3])
      case _:  # two outputs and a reduction, then all of it is dropped
        b = a.reshape(1, size).expand(4, size)
        c, d = b.sum(0), b.max()
        got, want = [*c.tolist(), d.item()], [*[4 * v for v in given], max(given)]
    if got != want:
      wrong.append((number, turn, got, want))

def run(number):
  try:
    work(number)
  except BaseException as error:
    import traceback
    wrong.append("".join(traceback.format_exception(error)))

threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(THREADS)]
for t in threads: t.start()
deadline = time.monotonic() + float(sys.argv[3])
for t in threads: t.join(max(0.0, deadline - time.monotonic()))
late = [t for t in threads if t.is_alive()]
if late:
  import faulthandler
  faulthandler.dump_traceback(all_threads=True)
print(len(late), "late", wrong[:3])
sys.stdout.flush()
os._exit(bool(late or wrong))
"""


@pytest.mark.parametrize(("threads", "rounds"), [(8, 20), pytest.param(32, 300, marks=pytest.mark.nightly)])
def test_many_threads_build_schedule_compile_and_run_at_once(tmp_path: Path, threads: int, rounds: int) -> None:
  command = [sys.executable, "-c", STRESS, str(threads), str(rounds), "500"]
  done = subprocess.run(
    command, capture_output=True, text=True, timeout=600, env={**os.environ, "TINY_CACHE": str(tmp_path)}
  )
  assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_memory_is_kept_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
  """A value with a history is computed for who reads it, and dropped: what takes memory then must not get its own."""
  taken = []

  def late(raw: memoryview, dtype: DType) -> tuple[Any, ...]:
    taken.extend([Tensor([7.0] * 8).realize() for _ in range(8)])  # as another thread may, just then
    return unpack(raw, dtype)

  monkeypatch.setattr(realization, "unpack", late)
  a = Tensor([float(n) for n in range(8)], requires_grad=True)
  assert (a * 2).tolist() == [2.0 * n for n in range(8)]
  assert (a * 2).sum().item() == 56.0
