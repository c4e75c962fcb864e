"""Derivatives of functions: `grad`, `value_and_grad`, `vjp`, `jvp`, and Jacobians and Hessians made of them.

A function is called once with its arguments, each under a node of its own; what it gives is a graph, and derivatives
are rewrites of that. Arguments may be containers of Tensors; derivatives have the same containers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tiny_tensor.autograd import tracing
from tiny_tensor.autograd.forward import push_forward
from tiny_tensor.autograd.reverse import pullback
from tiny_tensor.autograd.tracing import Frame
from tiny_tensor.base import const_uop
from tiny_tensor.pytree import leaves, rebuild, refilled
from tiny_tensor.tensor import Tensor
from tiny_tensor.transforms.batching_rules import Batching
from tiny_uop import Shape, UOp, dtypes

ArgNums = int | tuple[int, ...]


class Call:
  """One call of a function whose derivative is wanted. `nodes` stand for the Tensors in the chosen arguments."""

  def __init__(self, what: str, f: Callable[..., Any], args: tuple[Any, ...], argnums: Sequence[int], kwargs: Any):
    self.name = f"{what}({tracing.name_of(f)})"
    frame = Frame(self.name)
    self.tensors: list[Tensor] = []
    self.nodes: list[UOp] = []

    def argument(leaf: Any) -> Any:
      path = f"an argument of {self.name}"
      if not isinstance(leaf, Tensor):
        raise TypeError(f"{path} is the {type(leaf).__name__} {leaf!r:.40}: derivatives are taken in Tensors")
      if not dtypes.is_float(leaf.dtype):
        raise TypeError(f"{path} has dtype {leaf.dtype.name}: derivatives are taken in floats")
      self.tensors.append(leaf)
      self.nodes.append(frame.argument(leaf.uop))
      return leaf._derive(self.nodes[-1])

    called = list(args)
    for n in argnums:
      called[n] = rebuild(args[n], argument)
    with tracing.running(frame):
      self.result = f(*called, **kwargs)

  def outputs(self, result: Any) -> list[Tensor]:
    """The Tensors that the function gave. Raises TypeError for anything else."""
    return tracing.returned(result, self.name)


def _chosen(argnums: ArgNums, args: tuple[Any, ...], what: str) -> tuple[int, ...]:
  """Positions of arguments, counted from the front. Raises ValueError for one that there is not."""
  numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
  for n in numbers:
    if not -len(args) <= n < len(args):
      raise ValueError(f"{what}: argnums {argnums} names argument {n}, and there are {len(args)} positional arguments")
  return tuple(n % len(args) for n in numbers)


def _split(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
  if not has_aux:
    return result, None
  if not isinstance(result, tuple) or len(result) != 2:
    raise TypeError(f"{name} with has_aux=True needs a function that gives (result, more), got {type(result).__name__}")
  return result


def _zeros(t: Tensor, shape: Shape | None = None) -> Tensor:
  """Zeros as a tensor, or of another shape."""
  return t._wrap(const_uop(0.0, t.dtype, t.shape if shape is None else shape, t.uop.device), False)


def _like(trees: Sequence[Any], made: Sequence[Tensor], single: bool) -> Any:
  """`made` in the containers of the arguments: of one, or a tuple of several."""
  rest = iter(made)
  parts = tuple([rebuild(tree, lambda _: next(rest)) for tree in trees])
  return parts[0] if single else parts


def _gradients(call: Call, seeds: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
  """The gradients of the arguments, zeros for those that nothing depends on; seeds are results and their gradients."""
  found = pullback([(out.uop, g.uop) for out, g in seeds], call.nodes)
  parents = [t for pair in seeds for t in pair]
  return [t._derive(found[node], *parents) if node in found else _zeros(t) for t, node in zip(call.tensors, call.nodes)]


def value_and_grad(f: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False) -> Callable[..., Any]:
  """A function that gives (f(…), the gradient of f in the arguments `argnums`).

  `f` gives a Tensor of one element, or with `has_aux` such and anything else: the value is then (that, anything else).
  An argument may be a container of float Tensors; the gradient has the same form, a tuple of them where `argnums` is
  one. What `f` does not depend on has a gradient of zeros. Raises TypeError and ValueError for what does not fit.
  """

  @functools.wraps(f)
  def both(*args: Any, **kwargs: Any) -> Any:
    numbers = _chosen(argnums, args, f"grad({tracing.name_of(f)})")
    call = Call("grad", f, args, numbers, kwargs)
    value, aux = _split(call.result, has_aux, call.name)
    (loss,) = call.outputs([value])
    if not dtypes.is_float(loss.dtype) or (loss.shape != () and loss.numel() != 1):
      raise ValueError(
        f"{call.name} needs a float result of one element, got {loss.dtype.name} of shape {loss.shape}: sum() it, or "
        "use jacrev"
      )
    one = loss._wrap(const_uop(1.0, loss.dtype, loss.shape, loss.uop.device), False)
    made = _gradients(call, [(loss, one)])
    gradient = _like([args[n] for n in numbers], made, isinstance(argnums, int))
    return ((value, aux) if has_aux else value), gradient

  return both


def grad(f: Callable[..., Any], argnums: ArgNums = 0, has_aux: bool = False) -> Callable[..., Any]:
  """The gradient of `f` as a function: see `value_and_grad`. With `has_aux` it gives (gradient, anything else)."""
  both = value_and_grad(f, argnums, has_aux)

  @functools.wraps(f)
  def gradient(*args: Any, **kwargs: Any) -> Any:
    value, made = both(*args, **kwargs)
    return (made, value[1]) if has_aux else made

  return gradient


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
  """(f(*primals), pullback): `pullback(v)`, for v in the form of the result, is the tuple of v · Jacobian in each of
  the primals. With `has_aux`, `f` gives (result, anything else), and that is the third value here.
  """
  call = Call("vjp", f, primals, range(len(primals)), {})
  result, aux = _split(call.result, has_aux, call.name)
  outputs = call.outputs(result)

  def pull(*cotangents: Any) -> Any:
    (tree,) = cotangents if len(cotangents) == 1 else (cotangents,)
    given = _matching(tree, outputs, f"the pullback of {call.name}")
    return _like(primals, _gradients(call, list(zip(outputs, given))), False)

  return (result, pull, aux) if has_aux else (result, pull)


def jvp(f: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
  """(f(*primals), Jacobian · tangents), in forward mode: one pass along with the values.

  `primals` and `tangents` are tuples (or lists) with one entry per argument, of the same shapes and dtypes. With
  `has_aux`, `f` gives (result, anything else), and that is the third value here. Raises TypeError and ValueError for
  what does not fit.
  """
  if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
    raise TypeError(
      f"jvp takes tuples of primals and tangents, got {type(primals).__name__}, {type(tangents).__name__}"
    )
  call = Call("jvp", f, tuple(primals), range(len(primals)), {})
  given = _matching(tangents, call.tensors, f"the tangents of {call.name}")
  result, aux = _split(call.result, has_aux, call.name)
  outputs = call.outputs(result)
  found = push_forward([o.uop for o in outputs], {n: t.uop for n, t in zip(call.nodes, given, strict=True)})
  made = [_zeros(o) if t is None else o._derive(t, *given) for o, t in zip(outputs, found, strict=True)]
  tangent = refilled(result, made)
  return (result, tangent, aux) if has_aux else (result, tangent)


def _matching(tree: Any, like: Sequence[Tensor], what: str) -> list[Tensor]:
  """The Tensors of a tree, which have to be as those of `like`. Raises TypeError or ValueError naming the first that
  is not."""
  found = list(leaves(tree, what))
  if len(found) != len(like):
    raise ValueError(f"{what}: expected {len(like)} Tensors, got {len(found)}")
  for (path, leaf), t in zip(found, like):
    if not isinstance(leaf, Tensor):
      raise TypeError(f"{path} is the {type(leaf).__name__} {leaf!r:.40}, expected a Tensor")
    if leaf.shape != t.shape or leaf.dtype != t.dtype:
      raise ValueError(f"{path} is {leaf.dtype.name} of shape {leaf.shape}, expected {t.dtype.name} of shape {t.shape}")
  return [leaf for _, leaf in found]


# *** Jacobians ***


def _basis(t: Tensor) -> Tensor:
  """Each unit vector of a shape, `(count, *shape)`."""
  count = math.prod(int(s) for s in t.shape)
  return Tensor.eye(count, dtype=t.dtype, device=t.device).reshape((count, *t.shape))


def _unknown(t: Tensor, name: str) -> UOp:
  return tracing.placeholder(t.shape, t.dtype, t.uop.device, f"a direction of {name}")


def jacfwd(f: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
  """The Jacobian of `f` in the arguments `argnums` by forward mode, mapped over the unit vectors of the arguments: for
  functions of few elements. For each result of shape `s` and argument of shape `a` there is a Tensor of shape
  `(*s, *a)`, in the containers of the result and, inside of these, of the arguments.
  """

  def blocks(call: Call, outputs: list[Tensor]) -> list[list[Tensor]]:
    columns: list[list[Tensor]] = [[] for _ in outputs]
    for t, node in zip(call.tensors, call.nodes):
      direction, basis = _unknown(t, call.name), _basis(t)
      tangents = push_forward([o.uop for o in outputs], {node: direction})
      batch = Batching({direction: basis.uop}, basis.shape[0])
      for o, tangent, into in zip(outputs, tangents, columns, strict=True):
        made = None if tangent is None else batch([tangent])[0]
        if made is None:
          into.append(_zeros(o, (*o.shape, *t.shape)))
          continue
        rows = o._derive(made, t)
        into.append(rows.permute(*range(1, rows.ndim), 0).reshape((*o.shape, *t.shape)))
    return columns

  return _jacobian("jacfwd", f, argnums, blocks)


def jacrev(f: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
  """The Jacobian as `jacfwd` gives it, by reverse mode, mapped over the unit vectors of the results: for functions with
  few elements in the results."""

  def blocks(call: Call, outputs: list[Tensor]) -> list[list[Tensor]]:
    rows: list[list[Tensor]] = []
    for o in outputs:
      direction, basis = _unknown(o, call.name), _basis(o)
      found = pullback([(o.uop, direction)], call.nodes) if dtypes.is_float(o.dtype) else {}
      batch = Batching({direction: basis.uop}, basis.shape[0])
      into: list[Tensor] = []
      for t, node in zip(call.tensors, call.nodes):
        made = batch([found[node]])[0] if node in found else None
        shape = (*o.shape, *t.shape)
        into.append(_zeros(t, shape) if made is None else t._derive(made, o).reshape(shape))
      rows.append(into)
    return rows

  return _jacobian("jacrev", f, argnums, blocks)


def _jacobian(
  what: str, f: Callable[..., Any], argnums: ArgNums, blocks: Callable[[Call, list[Tensor]], list[list[Tensor]]]
) -> Callable[..., Any]:
  """The Jacobian whose `blocks`, one list per result, go into the containers of results and arguments."""

  @functools.wraps(f)
  def jacobian(*args: Any, **kwargs: Any) -> Any:
    numbers = _chosen(argnums, args, f"{what}({tracing.name_of(f)})")
    call = Call(what, f, args, numbers, kwargs)
    rest = iter(blocks(call, call.outputs(call.result)))
    return rebuild(call.result, lambda _: _like([args[n] for n in numbers], next(rest), isinstance(argnums, int)))

  return jacobian


def hessian(f: Callable[..., Any], argnums: ArgNums = 0) -> Callable[..., Any]:
  """The second derivatives of `f`: forward mode over reverse mode."""
  return jacfwd(jacrev(f, argnums), argnums)
