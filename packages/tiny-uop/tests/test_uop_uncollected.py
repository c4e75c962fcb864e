"""The garbage collector while passes run: off, and afterwards as it was before, in forked children too."""

import gc
import os
import threading

import pytest

from tiny_uop import Ops, UOp
from tiny_uop.locks import uncollected
from tiny_uop.passes import Pass, run_passes


def test_it_is_off_while_passes_run() -> None:
  seen: list[bool] = []

  def look(root: UOp) -> UOp:
    seen.append(gc.isenabled())
    return root

  step = Pass("look", "Looks.", look)
  assert gc.isenabled()
  assert run_passes(UOp(Ops.SINK), [step]).op is Ops.SINK
  assert seen == [False] and gc.isenabled()


def test_it_stays_off_where_it_was_and_comes_back_after_errors() -> None:
  with uncollected():
    with uncollected():
      pass
    assert not gc.isenabled(), "the inner block did not turn it off, and leaves it so"
  with pytest.raises(KeyError), uncollected():
    raise KeyError
  assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_has_it_on_though_the_thread_that_turned_it_off_is_not_there() -> None:
  inside, done = threading.Event(), threading.Event()

  def work() -> None:
    with uncollected():
      inside.set()
      done.wait()

  thread = threading.Thread(target=work)
  thread.start()
  inside.wait()
  child = os.fork()
  if child == 0:
    os._exit(int(not gc.isenabled()))
  done.set()
  thread.join()
  assert os.waitpid(child, 0)[1] == 0
