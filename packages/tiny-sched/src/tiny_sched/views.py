"""Which tensor nodes are a run of memory, byte for byte: BUFFERs, materialised values, and contiguous views of them."""

from __future__ import annotations

import math
from dataclasses import replace

from tiny_sched.index import known
from tiny_uop import GroupOp, Ops, Shape, UOp
from tiny_uop.records import dataclass


@dataclass(frozen=True, slots=True)
class View:
  """`size` elements from `byte_offset` on in the memory of `base`: a BUFFER or a node with a buffer of its own."""

  base: UOp
  byte_offset: int
  size: int


def is_reinterpretation(u: UOp) -> bool:
  """BITCAST that changes the number of elements."""
  return u.op is Ops.BITCAST and u.src[0].dtype.itemsize != u.dtype.itemsize


def run_of(shape: Shape, start: tuple[int, ...], stop: tuple[int, ...]) -> tuple[int, int] | None:
  """(offset, size) in elements of a box in a row-major array, if it is one run of memory."""
  sizes = [known(s) for s in shape]
  offset, size = 0, 1
  for axis in range(len(shape)):
    total, length = sizes[axis], stop[axis] - start[axis]
    if total is None:
      return None
    if size != 1 and length != total:
      return None  # an outer axis already has several entries
    offset = offset * total + start[axis]
    size *= length
  return offset, size


def _shrink(u: UOp, view: View) -> View | None:
  flat = [b for b in map(known, u.geometry) if b is not None]
  if len(flat) < len(u.geometry):
    return None
  run = run_of(u.src[0].shape, tuple(flat[::2]), tuple(flat[1::2]))
  return None if run is None else View(view.base, view.byte_offset + run[0] * u.dtype.itemsize, run[1])


def view_of(u: UOp, below: View | None) -> View | None:
  """The run of memory that `u` is, given that of its first source; None if it is none."""
  if u.op is Ops.BUFFER:
    return View(u, 0, int(u.arg[1]))
  if u.op in (Ops.COPY, Ops.CALL) or (u.op is Ops.CONTIGUOUS and below is None):
    lengths = [length for s in u.shape if (length := known(s)) is not None]
    return View(u, 0, math.prod(lengths)) if len(lengths) == len(u.shape) else None
  if below is None:
    return None
  if u.op in (Ops.RESHAPE, Ops.AFTER) or u.op in GroupOp.Identity:
    return below if all(known(s) is not None for s in u.shape) else None
  if u.op is Ops.SHRINK:
    return _shrink(u, below)
  if u.op is Ops.BITCAST and below.byte_offset % u.dtype.itemsize == 0:
    return replace(below, size=below.size * u.src[0].dtype.itemsize // u.dtype.itemsize)
  return None


def chain_view(u: UOp) -> View | None:
  """`view_of` for a node by itself: follows its chain of views down to the memory."""
  chain = [u]
  while chain[-1].op in _PASSED:
    chain.append(chain[-1].src[0])
  view: View | None = None
  for node in reversed(chain):
    view = view_of(node, view)
  return view


_PASSED = frozenset({*GroupOp.Movement, *GroupOp.Identity, Ops.AFTER, Ops.BITCAST})
