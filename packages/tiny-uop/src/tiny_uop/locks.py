"""Locks of the tiny-* packages, forks, and a pause of the garbage collector.

Python runs other code in the middle of ours: signal handlers, and finalisers that the garbage collector or a last
reference calls. It may compute, and so come to a section that its own thread is in. And a process may be forked while
its other threads are anywhere: the child has none of them, and never sees the rest of what they were doing. So:

* Every lock is a `shared_lock()`: the thread that has it gets it again, and in a forked child it is free.
* What a lock protects is right whenever other code may run in the same thread, which is at every call and whenever an
  object is made. A value is computed first and stored last, in one step; what is taken out of a table is taken in one
  step, without asking first whether it is there. Where several steps belong together, an attribute says that they are
  under way, and who comes back in the same thread goes around: he takes new memory, calls a function without its jit,
  or raises an error that says so. He never waits.
* What a child could not do without, and other code not finish, is in `with undivided:` imports, compiling, opening
  devices. A fork waits for what other threads have begun of that. Nobody begins it while he has the lock of a device.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

from tiny_uop.system import around_each_fork

PATIENCE = 60.0
"""Seconds for which a fork waits for other threads, at most."""

_locks: WeakSet[threading.RLock] = WeakSet()
_around: list[tuple[Callable[[], None], Callable[[bool], None]]] = []


def shared_lock() -> threading.RLock:
  """A lock that its thread may take again, and that nobody has in a forked child but the thread that forked."""
  lock = threading.RLock()
  _locks.add(lock)
  return lock


def around_forks(before: Callable[[], None], after: Callable[[bool], None]) -> None:
  """Call `before()` before each fork, once nothing undivided is under way, and `after(in_child)` after it."""
  _around.append((before, after))


def in_child(action: Callable[[], None]) -> Callable[[], None]:
  """Decorator: the function is called in each forked child."""
  around_forks(lambda: None, lambda child: action() if child else None)
  return action


class _Undivided:
  """Work that a fork waits for. Threads do it at the same time, and inside of itself."""

  def __init__(self) -> None:
    self._changed = threading.Condition()
    self._inside: dict[int, int] = {}
    """How deep each thread is in it."""
    self._forking = 0
    """The thread that forks, or waits to."""

  def __enter__(self) -> None:
    me = threading.get_ident()
    with self._changed:
      while self._forking not in (0, me) and me not in self._inside:
        self._changed.wait()
      self._inside[me] = self._inside.get(me, 0) + 1

  def __exit__(self, *_: object) -> None:
    me = threading.get_ident()
    with self._changed:
      if self._inside[me] > 1:
        self._inside[me] -= 1
      else:
        del self._inside[me]
      if self._forking:
        self._changed.notify_all()

  def before_fork(self) -> None:
    """Keep other threads from beginning, and wait for what they have begun."""
    me = threading.get_ident()
    with self._changed:
      self._changed.wait_for(lambda: self._forking in (0, me), PATIENCE)
      self._forking = me
      self._changed.wait_for(lambda: self._inside.keys() <= {me}, PATIENCE)

  def after_fork(self, in_child: bool) -> None:
    """Let them go on; in the child there are none."""
    me = threading.get_ident()
    if in_child:
      self._changed = threading.Condition()
      self._inside = {me: self._inside[me]} if me in self._inside else {}
    with self._changed:
      self._forking = 0
      self._changed.notify_all()


undivided = _Undivided()
"""`with undivided:` around work that a fork of the process must not cut in two."""


def _before() -> None:
  undivided.before_fork()
  for before, _ in _around:
    before()


def _after_in_parent() -> None:
  for _, after in reversed(_around):
    after(False)
  undivided.after_fork(in_child=False)


def _after_in_child() -> None:
  for lock in list(_locks):
    if not lock._is_owned():  # type: ignore[attr-defined]  # as Python's own modules do it
      lock._at_fork_reinit()  # type: ignore[attr-defined]
  for _, after in reversed(_around):
    after(True)
  undivided.after_fork(in_child=True)


around_each_fork(_before, _after_in_parent, _after_in_child)


_paused_by: set[int] = set()
"""The threads that have turned the garbage collector off."""


@contextmanager
def uncollected() -> Iterator[None]:
  """The garbage collector does not run in the block: passes make hundreds of thousands of objects, hardly any of them
  in a cycle, and to look through all of them time and again takes a seventh of a compilation. Whoever turns it off
  turns it on again; where it was off before, it stays so."""
  if not gc.isenabled():
    yield
    return
  _paused_by.add(threading.get_ident())
  gc.disable()
  try:
    yield
  finally:
    gc.enable()
    _paused_by.discard(threading.get_ident())


def _after_fork(in_child: bool) -> None:
  if in_child and _paused_by - {threading.get_ident()}:  # threads that are not there to turn it on
    _paused_by.clear()
    gc.enable()


around_forks(lambda: None, _after_fork)
