"""Kernels whose steps happen one after another: what factorisations, sorts and scans are made of.

A `Sequence` is written as a program is: each `store` comes after those before it, `with loop(n) as i` repeats what
stands in it, in order. Within a step, loops are free: `lanes` of a vector where the device has vectors, the threads of
one workgroup, with a barrier after each step, where it has these. `called` puts the kernel into a tensor graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tiny_runtime import Device
from tiny_tensor.base import TensorBase
from tiny_uop import AddrSpace, AxisType, Devices, DType, KernelInfo, Ops, Sharding, UOp, dtypes, prod

T = TypeVar("T", bound=TensorBase)
Index = UOp | int
Array = tuple[tuple[int, ...], DType]
"""Shape and type of what a kernel reads or writes."""


class Sequence:
  """The steps of a kernel over `arrays`, of which PARAM n is the n-th; so many `threads` of a workgroup take the lanes,
  0 where there are no workgroups."""

  def __init__(self, arrays: tuple[Array, ...], threads: int = 0) -> None:
    self.shapes = [shape for shape, _ in arrays]
    self.params = [UOp.param(n, dtype.ptr(int(prod(shape)))) for n, (shape, dtype) in enumerate(arrays)]
    self.loops = 0
    self.kept = 0
    self.thread = self.range(threads, AxisType.LOCAL) if threads else None
    self.before: tuple[UOp, ...] = () if self.thread is None else (self.thread,)

  def range(self, size: Index, kind: AxisType = AxisType.LOOP) -> UOp:
    """A loop within one step, which `store` ends or a REDUCE."""
    self.loops += 1
    return UOp.range(size, self.loops - 1, kind)

  def written(self, size: int) -> UOp:
    """A short loop that is written out."""
    return self.range(size, AxisType.UPCAST)

  def lanes(self, size: int) -> UOp:
    """A loop over neighbours in memory: a vector, or the threads, of which there are as many."""
    return self.range(size, AxisType.VECTOR) if self.thread is None else self.thread

  def terms(self, size: Index) -> UOp:
    """A loop that a REDUCE closes."""
    return self.range(size, AxisType.REDUCE)

  def all_lanes(self, size: int) -> UOp:
    """`lanes` that a REDUCE closes."""
    return self.range(size, AxisType.VECTOR if self.thread is None else AxisType.REDUCE)

  def at(self, array: int, *index: Index) -> UOp:
    """The place of an element, after all steps so far."""
    return self._after(self.params[array]).index(self._offset(array, index))

  def _offset(self, array: int, index: tuple[Index, ...]) -> Index:
    offset: Index = 0
    for position, size in zip(index, self.shapes[array], strict=True):
      offset = position if isinstance(offset, int) and offset == 0 else offset * size + position
    return offset

  def _after(self, pointer: UOp) -> UOp:
    return pointer.after(*self.before) if self.before else pointer

  def load(self, array: int, *index: Index) -> UOp:
    """An element as the steps so far have left it."""
    return self.at(array, *index).load()

  def number(self, array: int, *index: Index, below: int) -> UOp:
    """An integer element as an index from 0 to `below` - 1, at whose ends all others are put."""
    return self.load(array, *index).cast(dtypes.index).maximum(0).minimum(below - 1)

  def store(self, array: int, index: tuple[Index, ...], value: UOp, *loops: UOp, only: UOp | None = None) -> None:
    """A step: write a value, in loops of its own, the first one outermost. Where `only` does not hold, `value` is what
    is there: vectors write it again, threads do not, so that others may read it within the step."""
    gate = None if self.thread is None else only
    self.step(self._after(self.params[array]).index(self._offset(array, index), gate).store(value), *loops)

  def step(self, effect: UOp, *loops: UOp) -> None:
    """What is to happen next, in loops of its own."""
    closed = [r for r in loops if r is not self.thread]
    effect = effect.end(*closed) if closed else effect
    self.before = (effect if self.thread is None else effect.barrier(),)

  def variable(self, value: UOp) -> UOp:
    """A register, with a value that `put` changes and `get` gives."""
    register = UOp.alloc(self.kept, value.dtype.ptr(1, AddrSpace.REG))
    self.kept += 1
    self.put(register, value)
    return register

  def put(self, register: UOp, value: UOp) -> None:
    """A step: another value for a variable."""
    self.step(self._after(register).index(0).store(value))

  def get(self, register: UOp) -> UOp:
    """The value of a variable after all steps so far."""
    return self._after(register).index(0).load()

  def keep(self, value: UOp) -> UOp:
    """A value that is computed here and once."""
    return self.get(self.variable(value))

  @contextmanager
  def loop(self, size: Index, kind: AxisType = AxisType.ORDER) -> Iterator[UOp]:
    """Steps again and again."""
    if size == 1:
      yield UOp.const(dtypes.index, 0)
      return
    counter = self.range(size, kind)
    self.before = (*self.before, counter)
    yield counter
    self.before = tuple([effect.end(counter) for effect in self.before])

  @contextmanager
  def where(self, condition: UOp) -> Iterator[None]:
    """Steps that happen only where a condition holds."""
    with self.loop(condition.where(UOp.const(dtypes.index, 1), UOp.const(dtypes.index, 0))):
      yield

  def kernel(self, name: str) -> UOp:
    """All of it."""
    effects = self.before if self.thread is None else [effect.end(self.thread) for effect in self.before]
    return UOp.sink(*effects, arg=KernelInfo(name, ()))  # optimised as it is written


Maker = Callable[[tuple[Array, ...], int], UOp]
"""(results and inputs, threads of a workgroup or 0) → kernel. Cached: the same arguments give the same kernel."""


def called(make: Maker, threads: int, results: tuple[Array, ...], *inputs: T) -> tuple[T, ...]:
  """The results `(batch, …)` of a kernel over inputs `(batch, …)`. Pieces of a batch on several devices stay where they
  are; other values on several devices are copied to the first one.
  """
  sharding = next((t.uop.sharding for t in inputs if t.uop.sharding is not None), None)
  if sharding is not None:
    return _in_pieces(make, threads, results, sharding, *inputs)
  device = next((t.device for t in inputs if t.uop.device is not None), inputs[0].device)
  assert isinstance(device, str)
  given = tuple([(tuple(int(s) for s in t.shape), t.dtype) for t in inputs])
  kernel = make((*results, *given), threads if has_groups(device) else 0)
  source = (kernel, UOp(Ops.DEVICE, arg=device), *[_on(device, t).uop for t in inputs])
  values = [UOp(Ops.CALL, dtype, source, n).reshape(shape) for n, (shape, dtype) in enumerate(results)]
  return tuple([inputs[0]._wrap(value, False) for value in values])


def has_groups(place: Devices) -> bool:
  """Whether a device, or the first of several, has workgroups."""
  return Device.opened(place if isinstance(place, str) else Sharding(place).homes[0]).capabilities.local_memory > 0


def _on(device: str, t: T) -> T:
  if t.uop.device is not None:
    return t.to(device)
  place = UOp(Ops.DEVICE, arg=device)  # of what is computed from constants
  constants = {u: u.with_src((place,)) for u in t.uop.toposort if u.op is Ops.CONST}
  return t._derive(t.uop.substitute(constants))


def _in_pieces(make: Maker, threads: int, results: tuple[Array, ...], sharding: Sharding, *inputs: T) -> tuple[T, ...]:
  if len(sharding.cuts) != 1 or sharding.grid or sharding.axis != 0 or sharding.spans:
    whole = called(make, threads, results, *[t.to(sharding.homes[0]) for t in inputs])
    return tuple([t._wrap(t.uop.laid_out(Sharding(sharding.devices)), False) for t in whole])
  pieces = []
  for place, device in enumerate(sharding.devices):
    start, stop = sharding.bounds[place : place + 2]
    parts = [t._select_axis(0, start, stop).to(device) for t in inputs]
    shapes = tuple([((stop - start, *shape[1:]), dtype) for shape, dtype in results])
    pieces.append(called(make, threads, shapes, *parts))
  return tuple([
    inputs[0]._wrap(UOp(Ops.MULTI, dtype, tuple([piece[n].uop for piece in pieces]), 0), False)
    for n, (_, dtype) in enumerate(results)
  ])  # fmt: skip
