"""Values with a derivative of their own: CUSTOM_GRADIENT nodes, and the functions that they name.

`CUSTOM_GRADIENT(value, SINK(inputs…, results…))` is the value. Where a gradient comes to it, the walk does not go on
through the graph of the value: the function that belongs to the node's argument makes the gradients of the inputs. As
inputs and results are sources, they stay right when a graph is rewritten: when a part of it has been computed, mapped
over a batch, or given other arguments. Nothing of the node is left in what the scheduler gets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from tiny_tensor.base import Operand, TensorBase, is_const
from tiny_uop import CustomGradient, GroupOp, Ops, UOp
from tiny_uop.locks import shared_lock
from tiny_uop.records import dataclass

T = TypeVar("T", bound=TensorBase)
F = TypeVar("F", bound=Callable[..., Any])

Grads: TypeAlias = "tuple[UOp | None, ...]"
# (gradient of each result or None, inputs, results) → gradient of each input, None for none
Pullback: TypeAlias = "Callable[[Sequence[UOp | None], tuple[UOp, ...], tuple[UOp, ...]], Grads]"


@dataclass(frozen=True, eq=False)
class Derivative:
  """What belongs to a CustomGradient.

  `transparent`: the graph of the value has the same derivative, and `pullback` takes it from there; so forward mode
  goes through the graph, and a rewritten node keeps the function. `given`: how many of the inputs `pullback` knows of;
  the others are values that a function took from around it.
  """

  pullback: Pullback
  transparent: bool = False
  given: int | None = None


# by the very object that stands in nodes: the function lives as long as one of them does. It must not hold one
_derivatives: WeakKeyDictionary[CustomGradient, Derivative] = WeakKeyDictionary()
_arguments: WeakValueDictionary[tuple[str, int, int, int], CustomGradient] = WeakValueDictionary()
_numbers: WeakKeyDictionary[Pullback, int] = WeakKeyDictionary()
_count = itertools.count()
_lock = shared_lock()


def _argument(derivative: Derivative, name: str, number: int, inputs: int, output: int) -> CustomGradient:
  """The one object for these fields."""
  key = (name, number, inputs, output)
  with _lock:
    found = _arguments.get(key)
    if found is None:
      made = CustomGradient(*key)
      _derivatives[made] = derivative
      found = _arguments.setdefault(key, made)  # a finaliser may have come in between
  return found


def with_gradient(
  values: Sequence[UOp], inputs: Sequence[UOp], pullback: Pullback, name: str, *, transparent: bool = False,
  given: int | None = None,
) -> tuple[UOp, ...]:  # fmt: skip
  """`values`, functions of `inputs`, with a derivative of their own. `pullback` must hold none of the results; equal
  ones give equal nodes.
  """
  number = _numbers.setdefault(pullback, next(_count))
  bundle = UOp.sink(*inputs, *values)
  derivative = Derivative(pullback, transparent, given)
  arguments = [_argument(derivative, name, number, len(inputs), i) for i in range(len(values))]
  return tuple([UOp(Ops.CUSTOM_GRADIENT, v.dtype, (v, bundle), a) for v, a in zip(values, arguments, strict=True)])


def derivative_of(node: UOp) -> Derivative:
  """What belongs to a CUSTOM_GRADIENT. Raises RuntimeError for one that came as text."""
  if (found := _derivatives.get(node.arg)) is None:
    raise RuntimeError(
      f"the derivative {node.arg.name!r} is a function of the process in which the graph was made: no gradient here"
    )
  return found


def inputs_of(node: UOp) -> tuple[UOp, ...]:
  """The inputs of a CUSTOM_GRADIENT."""
  return node.src[1].src[: node.arg.inputs]


def results_of(node: UOp) -> tuple[UOp, ...]:
  """All results that a CUSTOM_GRADIENT is one of, each with the derivative: for derivatives of the derivative."""
  rule, bundle, derivative = node.arg, node.src[1], derivative_of(node)
  arguments = (rule.name, rule.number, rule.inputs)
  return tuple([
    UOp(Ops.CUSTOM_GRADIENT, value.dtype, (value, bundle), _argument(derivative, *arguments, i))
    for i, value in enumerate(bundle.src[rule.inputs :])
  ])  # fmt: skip


def pulled_back(node: UOp, gs: Sequence[UOp | None]) -> Grads:
  """The gradients of the inputs, given those of all results. Raises RuntimeError for a function that gives another
  number."""
  made = derivative_of(node).pullback(gs, inputs_of(node), results_of(node))
  if len(made) != node.arg.inputs:
    raise RuntimeError(f"{node.arg.name!r} gave {len(made)} gradients for its {node.arg.inputs} inputs")
  return made


@dataclass(frozen=True)
class Slopes:
  """The pullback of a function of numbers: for each of the first inputs the gradient times its slope, a function of
  tensors: the result and all inputs. The other inputs, and constants, have none.
  """

  wrap: Callable[[UOp], Any]
  slopes: tuple[Callable[..., Any], ...]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    (g,) = gs
    if g is None:
      return (None,) * len(inputs)
    tensors = [self.wrap(u) for u in (*results, *inputs)]
    found = [None if is_const(x) else g * slope(*tensors).uop for slope, x in zip(self.slopes, inputs)]
    return (*found, *[None] * (len(inputs) - len(found)))


def with_slopes(value: T, name: str, *inputs: tuple[T, Callable[..., T]], without: tuple[T, ...] = ()) -> T:
  """A value with derivatives of its own, `slope(value, *inputs)` in each input. A slope is the same function object
  each time, so that equal expressions are one node. Wanting a derivative in an input `without` one is a RuntimeError.
  """
  tensors = (*[x for x, _ in inputs], *without)
  pullback = Slopes(value._wrap, tuple([slope for _, slope in inputs]))
  given = len(inputs) if without else None
  made = with_gradient((value.uop,), [x.uop for x in tensors], pullback, name, given=given)
  return value._derive(made[0], *tensors)


def precise(slope: Callable[..., Any] | None = None) -> Callable[[F], F]:
  """A function of a tensor that gets floats of 32 bits at least, whose result is rounded to the tensor's dtype once.
  `slope(value, x)` is its derivative, where that of its graph is inexact or infinity times zero."""

  def decorate(function: F) -> F:
    @wraps(function)
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
      wide, dtype = x._with_precision()
      value = function(wide, *args, **kwargs)
      return (value if slope is None else with_slopes(value, function.__name__, (wide, slope)))._as_dtype(dtype)

    return cast(F, call)

  return decorate


def precise_pair(*slopes: Callable[..., Any] | None) -> Callable[[Callable[[T, T], T]], Callable[[T, Operand], T]]:
  """`precise` for functions of a tensor and an operand, which broadcast and promote. One whose slope is None has no
  derivative: wanting one is a RuntimeError."""

  def decorate(function: Callable[[T, T], T]) -> Callable[[T, Operand], T]:
    @wraps(function)
    def call(x: T, other: Operand) -> Any:
      wide, dtypes = zip(*[t._with_precision() for t in x._pair(other)])
      inputs = [(t, slope) for t, slope in zip(wide, slopes, strict=True) if slope is not None]
      without = tuple([t for t, slope in zip(wide, slopes, strict=True) if slope is None])
      return with_slopes(function(*wide), function.__name__, *inputs, without=without)._as_dtype(dtypes[0])

    return call

  return decorate


class Unchanged:
  """The pullback of the identity. Each object makes nodes of its own."""

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    return tuple(gs)


def _flat(gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
  """The pullback of the first input, which does not change with the others, save in steps: their gradients are 0."""
  return (gs[0], *[i.const_like(0) for i in inputs[1:]])


def flat_in(value: UOp, *others: UOp) -> UOp:
  """The value, which depends on others, with derivatives 0: what conditions and rounding hide, or folding removed."""
  return with_gradient((value,), (value, *others), _flat, "flat", transparent=True)[0]


def is_zero(uop: UOp) -> bool:
  """Whether a graph is the constant 0 seen through movement operations."""
  while uop.op in GroupOp.Movement:
    uop = uop.src[0]
  return uop.op is Ops.CONST and uop.arg == 0


def new_argument(value: UOp, name: str) -> UOp:
  """The value as a node that stands nowhere else: what a function is differentiated in."""
  return with_gradient((value,), (value,), Unchanged(), name, transparent=True)[0]
