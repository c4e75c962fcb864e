"""`TinyJit`: a function of tensors, captured once as a list of kernels and then replayed without its Python."""

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar

from tiny_runtime import Arena
from tiny_tensor import capturing
from tiny_tensor.autograd import tracing
from tiny_tensor.capturing import Busy, JitError
from tiny_tensor.jit.call import QuickCall, quick_call
from tiny_tensor.jit.graphs import compute_readers
from tiny_tensor.jit.guards import CAPTURE, RETURN, names_of
from tiny_tensor.jit.inputs import Inputs, named_parameters
from tiny_tensor.jit.program import Program
from tiny_tensor.jit.run import Run
from tiny_tensor.jit.trace import difference
from tiny_tensor.jit.values import require
from tiny_uop.context import JIT, JIT_CHECK

if TYPE_CHECKING:
  from tiny_tensor.jit.code_names import Names

__all__ = ["JitError", "TinyJit"]

P = ParamSpec("P")
R = TypeVar("R")

MOST_RUNS = 4
"""The most calls that may all differ before TinyJit gives up: lazy state makes the first one or two unlike the rest."""


class _Seen:
  """The call before: its arguments, its trace, and the state that it updated."""

  def __init__(self, run: Run[Any]) -> None:
    self.described, self.trace = run.inputs.described, run.trace
    self.updated = weakref.WeakSet(run.updated)
    self.written = {n for n, buffer in enumerate(run.inputs.buffers) if buffer in run.updated}
    """The tensors among the arguments that the function assigned to, by their place."""

  def difference(self, run: Run[Any]) -> str | None:
    """The first difference of another run, in words; None if it ran the same."""
    return run.inputs.difference(self.described) or difference(run.trace, self.trace)


class TinyJit(Generic[P, R]):
  """Calls a function of tensors; captures what it runs, and replays that without its Python from then on.

  A call is captured if it ran the kernels that the call before ran, with the same constants: that is the second call,
  or the third where the first one also computed weights or state. JitError is raised if the first four all differ.

  Tensors in the arguments (also in lists, tuples, dicts and dataclasses) are inputs, and so are bound Variables; all
  other arguments must stay as they were. The function returns Tensors, in containers of any nesting, or None; what it
  has not realised is realised at its end. Every replay returns new tensors and leaves those of earlier calls alone;
  what the function returns of its arguments or of tensors outside are these. Random draws go on as without the jit.

  What the function does in Python happens only until it is captured. Its state has to be in tensors that exist before
  and are updated with `assign`. README.md lists what is found out when, with JitError; `JIT_CHECK=1` runs the function
  in every call and finds out all that would make a replay run something else.

  With `prune` replays leave out the kernels that neither arguments nor what calls change can reach (weights that are
  unpacked, say): their results stay as they were computed at the capture, whatever is assigned to the weights since.
  What is computed from such weights, or copied from the host, gets memory of its own for that, and factors of sums of
  products (a batch norm after a convolution) become part of the weights: `tiny_sched.constant_rules`.

  What replays need in between has memory that nothing else uses. Functions that are called one after the other, such as
  those that read a prompt and a token, may be given one `Arena` for it, of the size that the largest of them needs. In
  threads, calls of any of them wait for each other.

  A method is captured once per object. `JIT=0` turns all of this into plain calls. Threads may share a TinyJit: their
  calls happen one after the other.
  """

  def __new__(cls, fxn: Callable[P, R] | None = None, prune: bool = False, arena: Arena | None = None) -> Any:
    """Without a function, as in `@TinyJit(prune=True)`, what makes a TinyJit of one."""
    return functools.partial(cls, prune=prune, arena=arena) if fxn is None else super().__new__(cls)

  def __init__(self, fxn: Callable[P, R], prune: bool = False, arena: Arena | None = None) -> None:
    self.fxn, self.prune = fxn, prune
    self._watched: tuple[Any, Callable[[], Any]] = (fxn, lambda: None)
    """Whose code is looked at, and the object that it is a method of."""
    self._names = named_parameters(fxn)
    self._shared, self._arena = arena, Arena() if arena is None else arena
    """Temporaries, and whether a call is under way. Another one in the same thread, by a signal handler or a finaliser,
    is a plain call: it would take away the inputs of the first."""
    self._methods: dict[int, tuple[weakref.ref[Any], TinyJit[..., R]]] = {}
    self.reset()
    functools.update_wrapper(self, fxn)

  @property
  def captured(self) -> Program[R] | None:
    """The program that the next call replays, or None. `captured.free_intermediates()` gives memory back."""
    return self._program

  def reset(self) -> None:
    """Forgets the capture: the next calls run the function again."""
    self._runs = 0
    self._seen: _Seen | None = None
    self._program: Program[R] | None = None
    self._quick: QuickCall | None = None
    self._around: Names | None = None

  def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
    # inside another run the function's kernels become part of that
    if (Busy.count and (capturing.current() is not None or tracing.active())) or not JIT.value:
      return self.fxn(*args, **kwargs)
    arena = self._arena
    arena.lock.acquire()  # `with` takes twice as long, and a replay is a few microseconds in all
    if arena.busy:
      arena.lock.release()
      return self.fxn(*args, **kwargs)
    try:
      arena.busy = True
      program, quick, around = self._program, self._quick, self._around
      if program is None:
        return self._run(args, kwargs)
      if JIT_CHECK.value:
        return self._checked(program, args, kwargs)
      if around is not None and not around.same():
        require(around.failure())
      if quick is not None and (found := quick.match(args, kwargs)) is not None:
        return program.replay(*found, quick.tensors(args, kwargs) if program.needs_tensors else ())
      inputs = Inputs(self._names, args, kwargs)
      require(program.arguments.failure(inputs))
      return program.replay(inputs.buffers, inputs.variables, inputs.tensors)
    finally:
      arena.busy = False
      arena.lock.release()

  def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    """Calls the function, and captures it if it ran what it ran in the call before."""
    seen = self._seen
    # the function may know an argument by another name, which a graph could not tell: what it only reads is copied
    inputs = Inputs(self._names, args, kwargs, lambda n: seen is not None and n not in seen.written)
    if seen is not None:
      # other tensors must not be computed inside the run, nor read later what it overwrites
      compute_readers([*seen.updated, *inputs.buffers])
    guards, after = ((), ()) if seen is None else (CAPTURE, RETURN)
    run: Run[R] = Run(self.fxn, inputs, guards, after, self.prune)
    self._runs, self._seen = self._runs + 1, _Seen(run)
    if seen is None or (what := seen.difference(run)) is not None:
      if self._runs >= MOST_RUNS:
        raise JitError(
          f"the first {self._runs} calls all ran something else, so that there is nothing to replay. In the last two, "
          f"{what}. What changes from call to call has to be a Tensor or a bound Variable"
        )
      return run.result
    method, reference = self._watched
    around = names_of(method, reference())
    written = [inputs.tensors[n] for n in self._seen.written]
    if around is not None and (where := around.path_of(written)) is not None:
      raise JitError(f"the function assigns to an argument that it also reads as {where}: pass it once")
    name = getattr(self.fxn, "__qualname__", type(self.fxn).__qualname__).rpartition("<locals>.")[2]
    self._program = Program(run, self.prune, name, self._arena)
    self._around, self._quick = around, quick_call(args, kwargs)
    self._seen = None
    return run.result

  def _checked(self, program: Program[R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    """Calls the function, and compares what it ran with what a replay would have run."""
    inputs = Inputs(self._names, args, kwargs)
    require(program.arguments.failure(inputs))
    run: Run[R] = Run(self.fxn, inputs, CAPTURE, RETURN, self.prune)
    require(program.trace.failure(run.trace))
    return run.result

  def __get__(self, obj: Any, owner: type | None = None) -> "TinyJit[..., R]":
    if obj is None:
      return self
    # by identity: objects that are equal have weights of their own
    reference, found = self._methods.get(id(obj), (None, None))
    if found is None or reference is None or reference() is not obj:
      found = self._bind(obj)
    return found

  def __reduce_ex__(self, protocol: Any, /) -> NoReturn:
    raise TypeError(
      f"a TinyJit of {getattr(self.fxn, '__qualname__', self.fxn)!r} cannot be pickled or copied: what it captured is "
      "of these very tensors. Pickle or copy what the function works on, and make a TinyJit of the function there"
    )

  def _bind(self, obj: Any) -> "TinyJit[..., R]":
    """The TinyJit of the method of one object, which it does not keep alive."""
    fxn, methods, key = self.fxn, self._methods, id(obj)
    try:
      reference = weakref.ref(obj, lambda gone: methods.pop(key, None) if methods.get(key, (0,))[0] is gone else None)
    except TypeError:
      raise JitError(
        f"the method {fxn.__name__!r} of a {type(obj).__name__} cannot be captured: its class has __slots__ without "
        "'__weakref__', so that nobody would be told when the object is gone"
      ) from None

    def method(*args: Any, **kwargs: Any) -> R:
      if (me := reference()) is None:
        raise ReferenceError(
          f"the object whose method {getattr(fxn, '__name__', fxn)!r} is called does not exist any more"
        )
      return fxn(me, *args, **kwargs)

    made: TinyJit[..., R] = TinyJit(functools.wraps(fxn)(method), self.prune, self._shared)
    made._watched = (fxn, reference)
    self._methods[key] = (reference, made)
    return made
