"""Locks that their thread may take again, that a forked child finds free; and work that a fork waits for."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tiny_uop import UOp, dtypes, live_nodes
from tiny_uop.locks import around_forks, shared_lock, undivided

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(work: Callable[[], bool]) -> int:
  """1 if it gives True in a forked child; -14 if it hangs."""
  child = os.fork()
  if child == 0:
    signal.alarm(10)
    os._exit(int(work()))
  return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def held_elsewhere(
  enter: Callable[[], object], leave: Callable[[], object]
) -> tuple[threading.Thread, threading.Event]:
  """A thread that has entered something, and leaves it when the event is set."""
  entered, ended = threading.Event(), threading.Event()

  def hold() -> None:
    enter()
    entered.set()
    ended.wait(30)
    leave()

  thread = threading.Thread(target=hold)
  thread.start()
  entered.wait(30)
  return thread, ended


def releases(lock: threading.RLock) -> bool:
  lock.release()
  return True


@needs_fork
def test_a_lock_is_free_in_a_child_unless_it_has_it_itself() -> None:
  theirs, mine = shared_lock(), shared_lock()
  thread, ended = held_elsewhere(theirs.acquire, theirs.release)
  with mine, mine:
    assert in_child(lambda: theirs.acquire(blocking=False)) == 1
    assert in_child(lambda: releases(mine) and releases(mine)) == 1
  ended.set()
  thread.join()


@needs_fork
def test_a_fork_waits_for_undivided_work_of_others() -> None:
  state, order = [0], list[str]()

  def work() -> None:
    with undivided, undivided:  # also inside of itself
      state[0] += 1
      begun.set()
      time.sleep(0.2)
      state[0] += 1
      order.append("done")

  begun, ended = threading.Event(), threading.Event()
  around_forks(lambda: order.append("before"), lambda in_child: order.append("child" if in_child else "after"))
  thread = threading.Thread(target=work)
  thread.start()
  begun.wait(30)
  with undivided:  # its own is no reason to wait
    found = in_child(lambda: state == [2] and order == ["done", "before", "child"] and enters(undivided))
  assert found == 1 and order == ["done", "before", "after"]
  thread.join()
  ended.set()


def enters(work: object) -> bool:
  with work:  # type: ignore[attr-defined]
    return True


@needs_fork
def test_work_that_begins_while_a_fork_waits_comes_after_it() -> None:
  """Or a fork would never come, where others always work."""
  thread, ended = held_elsewhere(undivided.__enter__, undivided.__exit__)
  late: list[threading.Thread] = []
  forked = threading.Event()

  def begin() -> None:
    with undivided:
      assert forked.is_set()

  def later() -> None:
    time.sleep(0.1)
    late.append(threading.Thread(target=begin))
    late[0].start()
    time.sleep(0.1)
    ended.set()

  around_forks(lambda: None, lambda in_child: forked.set())
  helper = threading.Thread(target=later)
  helper.start()
  assert in_child(lambda: enters(undivided)) == 1
  for other in (helper, thread, *late):
    other.join(30)
    assert not other.is_alive()


def test_nodes_are_one_though_others_make_them_in_between() -> None:
  """At every call while a node is made, or forgotten, the same nodes are made, and some dropped."""
  kept: list[UOp] = []

  def hook(frame: object, event: str, argument: object) -> None:
    node = UOp.const(dtypes.int32, 77) + UOp.variable("n", 0, 9, dtypes.int32)
    if len(kept) % 3:
      kept.append(node)
    else:
      kept[:] = [node]

  for _ in range(20):
    sys.setprofile(hook)
    made = [UOp.const(dtypes.int32, 77) + UOp.variable("n", 0, 9, dtypes.int32) for _ in range(5)]
    del made[1:]
    kept.clear()
    again = UOp.const(dtypes.int32, 77) + UOp.variable("n", 0, 9, dtypes.int32)
    sys.setprofile(None)
    assert made[0] is again and all(node is again for node in kept)
    del made, again
    kept.clear()
  gc.collect()
  before = live_nodes()
  assert UOp.const(dtypes.int32, 77).arg == 77 and live_nodes() <= before + 1
