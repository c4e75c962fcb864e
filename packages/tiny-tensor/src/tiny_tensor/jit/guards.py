"""Guards: each finds one way in which a replay could give something else than the function, and says so.

`failure` gives the message of a `JitError`, or None. The guards of `CAPTURE` and `RETURN` look at the run that is to be
captured: at its end, and when the caller has its result. Those of `CALL` look at a call that is to be replayed: they
are made of the captured run and record what they compare a call with. No loop runs them: a replay takes microseconds,
so each is asked at its own place, which `CALL` names (a test proves it), and only where a quick test has found that
something may have changed: `Names.same`, `QuickCall.match`, `Outside.seen`.

The README shows these tables.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tiny_tensor.jit import graphs
from tiny_tensor.jit.gradients import Gradients
from tiny_tensor.jit.outside import Arguments, Outside
from tiny_tensor.jit.trace import Trace
from tiny_tensor.pytree import leaves
from tiny_tensor.tensor import Tensor

try:
  from tiny_tensor.jit import code_names
except ImportError:  # this file, which reads bytecode, can be left out
  code_names = None  # type: ignore[assignment]

if TYPE_CHECKING:
  from tiny_tensor.jit.run import Run


OTHERS = 1.0
"""Seconds that other threads have to let go of a tensor that seems to be kept."""


class RunGuard(NamedTuple):
  """A guard of the run that is to be captured."""

  catches: str
  failure: Callable[[Run[Any]], str | None]


def _lasting(find: Callable[[], list[Tensor]]) -> list[Tensor]:
  """What is found, and found again: it may only wait for the collector, or another thread holds it while it looks at
  all tensors."""
  if not find():
    return []
  gc.collect()
  last = time.monotonic() + OTHERS
  while (found := find()) and threading.active_count() > 1 and time.monotonic() < last:
    del found
    time.sleep(0.001)
  return found


def _refused(run: Run[Any]) -> str | None:
  return None if run.refused is None else str(run.refused)


def _no_tensor(run: Run[Any]) -> str | None:
  for path, leaf in leaves(run.result, "the result"):
    if leaf is None or (isinstance(leaf, Tensor) and 0 in leaf.shape):
      continue
    if not isinstance(leaf, Tensor):
      return f"{path} is the {type(leaf).__name__} {leaf!r}, which a replay would not compute again: return Tensors"
    if not graphs.buffers_below(leaf.uop):
      return f"{path}, of shape {leaf.shape}, has no buffer after it was realised: {leaf.uop!r}"
  return None


def _no_kernel(run: Run[Any]) -> str | None:
  return None if run.calls else "the function ran no kernel, so there is nothing to capture: realize() what it computes"


def _not_realised(run: Run[Any]) -> str | None:
  if not (left := graphs.waiting()):
    return None
  return (
    f"the function assigns to a tensor of {left[0].numel()} elements that nothing realises: "
    "call realize() on it, or give it to the optimiser whose step() does"
  )


def _kept(run: Run[Any]) -> str | None:
  """A tensor made in the function lives on without being returned: replays would not update it."""
  allowed = {id(t) for t in graphs.tensors_in(run.result)} | run.gradients
  # what the arguments hold at the next replay, and what the function draws, is another value every time
  changed = run.created | {buffer for buffer, _ in run.draws} | set(run.inputs.buffers)

  def kept() -> list[Tensor]:
    made = [t for t in graphs.all_tensors() if t not in run.before and id(t) not in allowed]
    found = [t for t in made if any(u in changed for u in t.uop.toposort)]
    return found + [t for t in graphs.all_tensors() if t in run.before and graphs.any_below(t.uop, run.created)]

  if not (found := _lasting(kept)):
    return None
  return (
    f"a tensor of shape {found[0].shape} that the function made is kept outside of it, where replays would not "
    "update it: return it, or assign() to a tensor that exists before"
  )


def _view_written(run: Run[Any]) -> str | None:
  """An argument that was copied is written: the caller would not see it."""
  for call in run.calls if run.inputs.copies else ():
    for argument in (call.src[1 + slot] for slot in graphs.written_slots(call)):
      if graphs.argument_buffer(argument) in run.inputs.copies:
        return f"the function assigns to an argument of {argument.size} elements that is a view: pass all of its buffer"
  return None


def _hidden_variable(run: Run[Any]) -> str | None:
  if not (hidden := graphs.variables_of(run.calls) - run.inputs.variables.keys()):
    return None
  return (
    f"variable {', '.join(sorted(hidden))} is bound inside the function or around it: pass it as an argument, "
    "or replays would use this call's value"
  )


def _replaced(run: Run[Any]) -> str | None:
  """The function reads a tensor and puts another in its place: replays would read the first."""
  now, arguments = graphs.holders(), set(run.inputs.buffers)
  gone = [b for b in run.used if b in run.held and b not in now and b not in arguments]
  for t, before in run.gradients_before:
    below = graphs.buffers_below(before.uop) if before is not None and t.grad is not before else ()
    gone += [buffer for buffer in below if buffer in run.used]
  if not gone:
    return None
  return (
    f"the function reads a tensor of {gone[0].arg[1]} elements from outside and puts another one in its "
    "place, so that replays would read the old one again: assign() to it. If it is a gradient that backward() "
    "adds to, zero_grad() inside"
  )


def _argument_kept(run: Run[Any]) -> str | None:
  """The function keeps one of the copies that it got as arguments."""
  if not (kept := _lasting(lambda: [t for r in run.copies if (t := r()) is not None])):
    return None
  return (
    f"the function keeps an argument of shape {kept[0].shape} after it returns; replays would not replace it: keep a "
    "tensor that exists before, and assign() to it"
  )


CAPTURE = (
  RunGuard(
    "a value that the function reads, also where it catches the error: `item()`, `tolist()`, `numpy()`, `data()`, a "
    "mask, `int(n)` or `len` of a `Variable`, saving to a file",
    _refused,
  ),
  RunGuard("a result that is no tensor", _no_tensor),
  RunGuard("a function that runs no kernel", _no_kernel),
  RunGuard("an assignment that the function does not realise", _not_realised),
  RunGuard("a tensor that the function makes and keeps without returning it", _kept),
  RunGuard("an assignment to an argument that is a view", _view_written),
  RunGuard("a `Variable` that is bound inside", _hidden_variable),
  RunGuard("a tensor that the function reads and replaces; gradients that add up over calls", _replaced),
)
RETURN = (RunGuard("an argument that the function keeps", _argument_kept),)
CALL: dict[Any, str] = {Arguments: "TinyJit.__call__", Outside: "Program.replay", Gradients: "Program._before",
                        Trace: "TinyJit._checked"}  # fmt: skip
"""The class of each guard of a call, which says what it `catches`, and the method that asks its `failure`."""
if code_names is not None:
  CALL = {code_names.Names: "TinyJit.__call__", **CALL}


def names_of(fxn: Any, bound: Any) -> code_names.Names | None:
  """The guard of the names that the code of `fxn` reads, as a method of `bound`; None where nobody can read code."""
  return None if code_names is None else code_names.Names(fxn, bound)
