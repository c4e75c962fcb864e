"""Workers never have the processor of the thread that calls them."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator

import pytest

from tiny_runtime_cpu.pool import Pool, native_functions

pytestmark = pytest.mark.skipif(
  not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two processors"
)


class Workers:
  """A pool, and the kernel's numbers of its threads."""

  def __init__(self) -> None:
    self.before = _threads()
    self.pool = Pool()

  def ensure(self, threads: int) -> None:
    assert self.pool.ensure(threads) == threads

  def processors(self) -> list[set[int]]:
    return [os.sched_getaffinity(thread) for thread in sorted(_threads() - self.before)]

  def launch(self) -> None:
    """A copy of a few bytes in two parts."""
    native = native_functions()
    assert native is not None
    source, target = ctypes.create_string_buffer(b"some bytes", 16), ctypes.create_string_buffer(16)
    packed = struct.pack("2P", ctypes.addressof(target), ctypes.addressof(source))
    self.pool.run(native.copy_bytes, packed, b"", 16, 2, 2)
    assert target.raw == source.raw


@pytest.fixture
def workers() -> Iterator[Workers]:
  allowed = os.sched_getaffinity(0)
  made = Workers()
  yield made
  made.pool.close()
  os.sched_setaffinity(0, allowed)


def _threads() -> set[int]:
  return {int(name) for name in os.listdir("/proc/self/task")}


def test_processors_other_than_the_callers_are_dealt_out(workers: Workers) -> None:
  allowed = os.sched_getaffinity(0)
  workers.ensure(len(allowed))
  dealt = workers.processors()
  assert sum(map(len, dealt)) == len(allowed) - 1 == len(set().union(*dealt))
  assert allowed - set().union(*dealt) == {workers.pool.affinity.home}


def test_one_worker_has_all_the_others(workers: Workers) -> None:
  workers.ensure(2)
  (dealt,) = workers.processors()
  assert dealt == os.sched_getaffinity(0) - {workers.pool.affinity.home}


def test_a_caller_that_moves_drives_the_worker_away(workers: Workers) -> None:
  workers.ensure(2)
  for processor in sorted(os.sched_getaffinity(0)) * 2:
    os.sched_setaffinity(0, {processor})
    workers.launch()
    (dealt,) = workers.processors()
    assert dealt
    assert processor not in dealt


def test_a_narrower_mask_is_obeyed(workers: Workers) -> None:
  if len(os.sched_getaffinity(0)) < 3:
    pytest.skip("needs three processors")
  workers.ensure(2)
  allowed = os.sched_getaffinity(0) - {workers.pool.affinity.home}
  os.sched_setaffinity(0, allowed)  # the caller has to move
  workers.launch()
  (dealt,) = workers.processors()
  assert dealt == allowed - {workers.pool.affinity.home}


def test_more_workers_than_processors_may_run_everywhere(workers: Workers) -> None:
  allowed = os.sched_getaffinity(0)
  workers.ensure(2)
  workers.ensure(len(allowed) + 1)
  assert workers.processors() == [allowed] * len(allowed)
  workers.launch()


def test_a_pool_that_was_closed_starts_afresh(workers: Workers) -> None:
  workers.ensure(2)
  workers.pool.close()
  workers.launch()
  assert workers.processors() == []
