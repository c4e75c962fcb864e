"""`vmap`: a function of one example as a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tiny_tensor.autograd import tracing
from tiny_tensor.autograd.tracing import Frame, TransformError
from tiny_tensor.placement import DeviceLike
from tiny_tensor.pytree import leaves, refilled
from tiny_tensor.tensor import Tensor
from tiny_tensor.transforms.batching_rules import Batching
from tiny_uop import UOp, same_shape, sint

RANDOMNESS = ("error", "same", "different")


def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, randomness: str = "error") -> Callable[..., Any]:
  """`f`, which takes and gives Tensors of one example, as a function of batches of them.

  `in_axes` says which axis of each positional argument holds the examples: an integer, None for an argument that all
  share, or a tuple with one entry per argument, in which containers (lists, tuples, dicts) stand for containers, and an
  entry for a container goes for all that is in it. `out_axes` says in the same way where the axis goes in the results;
  None only for a result that is the same for every example. Keyword arguments are shared. Arguments that are no Tensors
  are shared, too, and need None.

  `f` is called once, with Tensors that have the shape of one example and no values: looking at one (`item`, `numpy`,
  `realize`, a branch, a mask as an index), and writing to an argument or to a Tensor from outside, is a
  TransformError. `randomness`: what a random draw in `f` is: an error, the same for every example, or different.

  Raises ValueError for sizes that differ, TypeError for results that are no Tensors.
  """
  if randomness not in RANDOMNESS:
    raise ValueError(f"randomness must be one of {', '.join(RANDOMNESS)}, got {randomness!r}")

  @functools.wraps(f)
  def mapped(*args: Any, **kwargs: Any) -> Any:
    frame = Frame(f"vmap({tracing.name_of(f)})")
    values, size, called = _examples(frame, args, in_axes)
    frame.draw = _draw(frame, randomness, values, size)
    with tracing.running(frame):
      result = f(*called, **kwargs)
    return _results(frame, result, out_axes, Batching(values, size))

  return mapped


def spread_axes(axes: Any, tree: Any, name: str, path: str) -> list[Any]:
  """The axis for each leaf of `tree`, where `axes` may say it for a container at once. Raises ValueError where they
  have another form."""
  if axes is None or isinstance(axes, int):
    return [axes] * len(list(leaves(tree, path)))
  if isinstance(tree, dict) and isinstance(axes, dict) and axes.keys() == tree.keys():
    return [a for key in tree for a in spread_axes(axes[key], tree[key], name, f"{path}[{key!r}]")]
  alike = isinstance(tree, (list, tuple)) and isinstance(axes, (list, tuple)) and len(axes) == len(tree)
  if not alike:
    raise ValueError(
      f"{name} {axes!r} does not fit {path}, which is {_described(tree)}: one entry for each part, or one"
    )
  return [a for i, (x, t) in enumerate(zip(axes, tree)) for a in spread_axes(x, t, name, f"{path}[{i}]")]


def _described(tree: Any) -> str:
  if isinstance(tree, dict):
    return f"a dict with the keys {list(tree)}"
  return f"{len(tree)} values" if isinstance(tree, (list, tuple)) else f"a {type(tree).__name__}"


def to_front(t: Tensor, axis: int, where: str) -> Tensor:
  """`t` with one of its axes first. Raises ValueError where there is none such."""
  if not t.ndim:
    raise ValueError(f"{where} is a 0-d tensor and has no axis {axis} to map over: give None in in_axes")
  return t.movedim(axis, 0)


def _examples(frame: Frame, args: tuple[Any, ...], in_axes: Any) -> tuple[dict[UOp, UOp], sint, tuple[Any, ...]]:
  """(what each placeholder stands for, the number of examples, the arguments with placeholders)."""
  found = list(leaves(args, "args"))
  values: dict[UOp, UOp] = {}
  sizes: dict[str, sint] = {}
  called: list[Any] = []
  for (path, leaf), axis in zip(found, spread_axes(in_axes, args, "in_axes", "args"), strict=True):
    if axis is None:
      called.append(leaf)
      continue
    if not isinstance(leaf, Tensor):
      raise ValueError(f"{path} is a {type(leaf).__name__}, which has no axes to map over: give None for it in in_axes")
    front = to_front(leaf, axis, path)
    sizes[path] = front.shape[0]
    one = tracing.placeholder(front.shape[1:], leaf.dtype, leaf.uop.device, f"{path}, an argument of {frame.name}")
    values[one] = front.uop
    called.append(leaf._wrap(one, leaf.requires_grad, leaf._history or leaf.requires_grad is True))
  if not sizes:
    raise ValueError(f"{frame.name} has nothing to map over: no Tensor among the arguments, or in_axes is None for all")
  size = next(iter(sizes.values()))
  if not all(same_shape((s,), (size,)) for s in sizes.values()):
    raise ValueError(
      f"{frame.name} maps over axes of different sizes: {', '.join(f'{p}: {s}' for p, s in sizes.items())}"
    )
  return values, size, refilled(args, called)


def _draw(
  frame: Frame, randomness: str, values: dict[UOp, UOp], size: sint
) -> Callable[[type[Any], tuple[int, ...], DeviceLike], Any]:
  """What a draw of random words gives in the function."""

  def draw(kind: type[Any], shape: tuple[int, ...], device: DeviceLike) -> Any:
    if randomness == "error":
      raise TransformError(
        f"random numbers in {frame.name}: say randomness='same' (one draw for all examples) or 'different' (one each)"
      )
    if randomness == "same":
      return None
    if not isinstance(size, int):
      raise TransformError(f"randomness='different' needs a batch of known size, got {size.render()}")
    with tracing.outside(frame):
      words = kind._random_words((size, *shape), device)
    one = tracing.placeholder(shape, words.dtype, words.device, f"a random draw in {frame.name}")
    values[one] = words.uop
    return kind._wrap(one, False)

  return draw


def _results(frame: Frame, result: Any, out_axes: Any, batch: Batching) -> Any:
  """What the function gave, for all examples."""
  tracing.returned(result, frame.name)
  found: list[tuple[str, Tensor]] = list(leaves(result, "the result"))
  all_examples = batch([leaf.uop for _, leaf in found])
  made: list[Tensor] = []
  axes = spread_axes(out_axes, result, "out_axes", "the result")
  for (path, leaf), uop, axis in zip(found, all_examples, axes, strict=True):
    if axis is None:
      if uop is not None:
        raise ValueError(f"{path} of {frame.name} differs from example to example: out_axes cannot be None for it")
      made.append(leaf)
      continue
    each = leaf._wrap(batch.repeated(leaf.uop) if uop is None else uop, leaf.requires_grad, leaf._history)
    made.append(each.movedim(0, axis))
  return refilled(result, made)
