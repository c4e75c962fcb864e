"""PyTorch's operator samples (OpInfo) run through tiny-tensor and compared: values, dtypes, shapes, derivatives.

In: an OpInfo and what computes it with our Tensors. Out: nothing, or an AssertionError that names the sample.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tiny_tensor import Tensor, dtypes

Ours = Callable[..., Any]
# arguments that say where and how PyTorch keeps a result, not what it is
PLACEMENT = ("device", "layout", "memory_format", "pin_memory", "out", "generator", "non_blocking")
# elements in all tensors of a sample: the reference device is slow
LARGEST = 1 << 15 if os.environ.get("OPINFO") == "all" else 4096


class NotForUs(Exception):
  """A sample that needs what tiny-tensor leaves out: complex numbers, other layouts."""


@dataclass(frozen=True)
class Case:
  """One sample with its arguments in both worlds; `inputs` are the float tensors among ours, in `theirs`' order."""

  ours: tuple[Sequence[Any], dict[str, Any]]
  theirs: tuple[Sequence[Any], dict[str, Any]]
  tensors: list[tuple[Tensor, Any]]


def our_dtype(dtype: Any) -> str:
  """Name of a torch dtype. Raises NotForUs for complex and quantised ones."""
  name = str(dtype).removeprefix("torch.")
  if name not in {d.name for d in dtypes.all}:
    raise NotForUs(f"dtype {name}")
  return name


def convert(value: Any, found: list[tuple[Tensor, Any]]) -> Any:
  """A sample's argument for us; tensors are noted in `found` beside their twins."""
  if isinstance(value, torch.Tensor):
    if value.layout != torch.strided:
      raise NotForUs(f"layout {value.layout}")
    plain = value.detach().resolve_conj().resolve_neg()
    if our_dtype(plain.dtype) in ("bfloat16",) or plain.dtype.itemsize == 1 and plain.dtype.is_floating_point:
      t = Tensor(plain.float().numpy()).cast(our_dtype(plain.dtype))
    else:
      t = Tensor(np.ascontiguousarray(plain.numpy()).reshape(tuple(plain.shape)))
    found.append((t, value))
    return t
  if isinstance(value, torch.dtype):
    return our_dtype(value)
  if isinstance(value, complex):
    raise NotForUs("a complex number")
  if isinstance(value, (torch.layout, torch.memory_format, torch.device, torch.Generator)):
    raise NotForUs(f"{value}")
  if isinstance(value, torch.Size):
    return tuple(value)
  if isinstance(value, (list, tuple)):
    return type(value)(convert(v, found) for v in value)
  if isinstance(value, slice):
    return slice(*(convert(v, found) for v in (value.start, value.stop, value.step)))
  if isinstance(value, (np.integer, np.floating, np.bool_)):
    return value.item()
  return value


def case_of(sample: Any) -> Case:
  """A SampleInput in both worlds. Raises NotForUs."""
  found: list[tuple[Tensor, Any]] = []
  args = [convert(v, found) for v in (sample.input, *sample.args)]
  kwargs = {k: convert(v, found) for k, v in sample.kwargs.items() if k not in PLACEMENT}
  if sum(t.numel() for _, t in found) > LARGEST:
    raise NotForUs("too large for the reference device")
  return Case((args, kwargs), ((sample.input, *sample.args), sample.kwargs), found)


def flat(result: Any) -> list[Any]:
  """The tensors and numbers of a result, in order."""
  if isinstance(result, (list, tuple)):
    return [leaf for part in result for leaf in flat(part)]
  return [] if result is None else [result]


def values_of(result: Any) -> Any:
  """A NumPy array of a tensor (float32 of bfloat16) or of a number."""
  if isinstance(result, torch.Tensor):
    plain = result.detach().resolve_conj().resolve_neg()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy(force=True)
  return result.numpy() if isinstance(result, Tensor) else np.asarray(result)


def compare(
  what: str, got: Any, expected: Any, rtol: float, atol: float, int32: bool = False, shapes_only: bool = False
) -> None:
  """Shape, dtype and values of one result."""
  shape = tuple(expected.shape) if isinstance(expected, torch.Tensor) else ()
  found = tuple(got.shape) if isinstance(got, Tensor) else ()
  assert found == shape, f"{what}: shape {found}, expected {shape}"
  if isinstance(expected, torch.Tensor):
    name = str(expected.dtype).removeprefix("torch.")
    mine = got.dtype.name if isinstance(got, Tensor) else type(got).__name__
    assert mine == name or (int32 and (mine, name) == ("int32", "int64")), f"{what}: dtype {mine}, expected {name}"
  if shapes_only:
    return
  a, b = values_of(got), values_of(expected)
  if b.dtype.kind in "f":
    np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol, err_msg=what)
  else:
    np.testing.assert_array_equal(a, b, err_msg=what)


def compute(tensors: Sequence[Any]) -> None:
  """All of them in one schedule."""
  lazy = [t for t in tensors if isinstance(t, Tensor)]
  if lazy:
    lazy[0].realize(*lazy[1:])


def check_forward(
  ours: Ours,
  theirs: Ours,
  case: Case,
  rtol: float,
  atol: float,
  int32: bool = False,
  compared: str | None = None,
  shapes_only: bool = False,
  views: bool = True,
) -> None:
  """Results agree in number, shape, dtype and values, and (if `views`) in which are views of inputs; with `int32` our
  int32 stands for int64. `compared` makes of both sides' results, in order, what is compared.
  """
  with torch.no_grad():
    expected = flat(theirs(*case.theirs[0], **case.theirs[1]))
  if any(isinstance(e, torch.Tensor) and (e.is_complex() or e.layout != torch.strided) for e in expected):
    raise NotForUs("a complex or sparse result")
  got = flat(ours(*case.ours[0], **case.ours[1]))
  if compared is not None:
    chosen = eval(compared)
    got, expected = chosen(got), chosen(expected)
  assert len(got) == len(expected), f"{len(got)} results, expected {len(expected)}"
  if not shapes_only:
    compute(got)
  for i, (a, b) in enumerate(zip(got, expected, strict=True)):
    compare(f"result {i}", a, b, rtol, atol, int32, shapes_only)
    if views and isinstance(a, Tensor) and b.numel():
      compare_views(f"result {i}", a, b, case.tensors)


def compare_views(what: str, got: Tensor, expected: Any, inputs: list[tuple[Tensor, Any]]) -> None:
  """A result is a view of the inputs that it is one of in PyTorch: else a write to one would be seen in the other, or
  would not."""
  for i, (mine, theirs) in enumerate(inputs):
    shared = expected.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr()
    assert (got._contents is mine._contents) == shared, f"{what} is {'no' if shared else 'a'} view of tensor {i}"


def check_backward(
  ours: Ours, theirs: Ours, case: Case, rtol: float, atol: float, second: bool = False, compared: str | None = None
) -> None:
  """Gradients of a weighted sum of all float results in all inputs that want one; with `second`, those of these."""
  wanted = [(a, b) for a, b in case.tensors if b.requires_grad]
  for a, _ in wanted:
    a.requires_grad_(True)
  results = [flat(f(*args, **kwargs)) for f, (args, kwargs) in ((ours, case.ours), (theirs, case.theirs))]
  if compared is not None:
    results = [eval(compared)(part) for part in results]
  pairs = [(a, b) for a, b in zip(*results, strict=True) if isinstance(b, torch.Tensor) and b.requires_grad]
  rng = np.random.default_rng(0)
  for order in (1, 2) if second else (1,):
    if not wanted or not pairs:
      return
    weights = [rng.uniform(0.5, 1.5, tuple(b.shape)).astype(values_of(b).dtype) for _, b in pairs]
    total = sum((b * torch.from_numpy(np.asarray(w))).sum() for (_, b), w in zip(pairs, weights, strict=True))
    try:
      theirs_ = torch.autograd.grad(total, [b for _, b in wanted], allow_unused=True, create_graph=order < 1 + second)
    except RuntimeError as error:
      if order == 2 and "is not implemented" in str(error):  # by some of PyTorch's kernels
        return
      raise
    mine = sum(((a * Tensor(w)).sum() for (a, _), w in zip(pairs, weights, strict=True)), start=Tensor(0.0))
    ours_ = mine.gradient(*[a for a, _ in wanted], materialize_grads=True)
    if not second:
      compute(ours_)
    # else looked at one by one, which leaves the graphs in place
    for i, (a, b) in enumerate(zip(ours_, theirs_, strict=True)):
      compare(f"derivative {order} in input {i}", a, torch.zeros_like(wanted[i][1]) if b is None else b, rtol, atol)
    pairs = [(a, b) for a, b in zip(ours_, theirs_, strict=True) if b is not None and b.requires_grad]


def spread(count: int, wanted: int) -> list[int]:
  """At most `wanted` of `count` positions: first, last and evenly between."""
  if count <= wanted:
    return list(range(count))
  return sorted({math.floor(i * (count - 1) / max(wanted - 1, 1)) for i in range(wanted)})
