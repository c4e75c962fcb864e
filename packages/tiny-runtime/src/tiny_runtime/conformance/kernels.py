"""Kernels of the kit: written in a line or two, launched by hand, and drawn at random from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tiny_runtime.binary import Binary
from tiny_runtime.conformance.target import Target
from tiny_runtime.conformance.values import pack, small_integers
from tiny_runtime.contract import GraphKernel, Memory
from tiny_uop import AxisType, DType, KernelInfo, Ops, UOp, dtypes

INPUT = 1
"""Slot of the first input where there is one output."""
I = dtypes.int32  # noqa: E741


def elementwise(name: str, size: int, output: DType, inputs: Sequence[DType], build: Callable[..., UOp]) -> UOp:
  """`out[i] = build(in0[i], in1[i], …)` over `size` elements. Slot 0 is the output."""
  i = UOp.range(size, 0)
  loads = [read(INPUT + k, dtype, size, i) for k, dtype in enumerate(inputs)]
  return kernel(name, write(0, output, size, i, build(*loads)).end(i))


def param(slot: int, dtype: DType, size: int) -> UOp:
  """A buffer of so many elements."""
  return UOp.param(slot, dtype.ptr(size))


def read(slot: int, dtype: DType, size: int, place: UOp, *gate: UOp) -> UOp:
  """An element of a buffer; 0 where the `gate`, if there is one, is false."""
  return param(slot, dtype, size).index(place, *gate).load()


def write(slot: int, dtype: DType, size: int, place: UOp | int, value: UOp | float, *gate: UOp) -> UOp:
  """Write a value into an element of a buffer; where the `gate`, if there is one, is true."""
  return param(slot, dtype, size).index(place, *gate).store(value)


def kernel(name: str, *effects: UOp) -> UOp:
  """The SINK of these effects."""
  return UOp.sink(*effects, arg=KernelInfo(name))


# *** launched by hand, for cases about order, memory and time rather than about results ***


class Loaded:
  """A kernel, compiled and loaded. Call it to launch it: memories in slot order, or (memory, byte offset)."""

  def __init__(self, target: Target, kernel: UOp, binary: Binary | None = None) -> None:
    self.target, self.kernel = target, kernel
    self.binary = binary or target.compile(kernel)
    self.program = target.device.load(self.binary)
    self.sizes = None if self.binary.variables else self.binary.sizes({})

  def call(self, *places: tuple[Any, int], **values: int) -> GraphKernel:
    """A launch as a call of a graph: its buffers in slot order, each (memory or its position, byte offset)."""
    used, integers = (places[p.slot] for p in self.binary.params), (values[name] for name in self.binary.variables)
    return GraphKernel(self.program, tuple(used), tuple(integers), *(self.sizes or self.binary.sizes(values))[:2])

  def __call__(self, *memories: Memory | tuple[Memory, int], wait: bool = False, **values: int) -> float | None:
    call = self.call(*[memory if isinstance(memory, tuple) else (memory, 0) for memory in memories], **values)
    launch = self.target.device.launch
    return launch(self.program, call.buffers, call.integers, call.global_size, call.local_size, wait)


# *** drawn at random ***
#
# Everything in them is exact, in integers that wrap or in floats that stay small integers times powers of two, so any
# correct backend gives the same bits whatever order it computes in. No value is -0.0: which of two zeros is the
# maximum is left open, and 0.0 + -x is 0.0 where x is.

TYPES = (dtypes.int32, dtypes.float32, dtypes.uint8, dtypes.int64, dtypes.bool, dtypes.int16, dtypes.uint32)
DEPTH = 4
LARGEST = 5
"""Of a variable; the least is 0."""


class _Maker:
  def __init__(self, seed: int) -> None:
    self.random = random.Random(seed)
    self.contents: list[bytes] = []
    self.values: dict[str, int] = {}

  def loops(self, first: int, count: int, kind: AxisType) -> tuple[UOp, ...]:
    return tuple(UOp.range(self.random.choice((1, 2, 3, 4, 5, 8, 9, 16)), first + k, kind) for k in range(count))

  def variable(self) -> UOp:
    """One of three variables, which has a value from now on."""
    name = self.random.choice("abc")
    self.values.setdefault(name, self.random.randrange(LARGEST + 1))
    return UOp.variable(name, 0, LARGEST)

  def buffer(self, dtype: DType, size: int) -> UOp:
    pointer = UOp.param(len(self.contents), dtype.ptr(size))
    self.contents.append(pack(dtype, self.random.choices(small_integers(dtype), k=size)))
    return pointer

  def load(self, dtype: DType, counters: tuple[UOp, ...]) -> UOp:
    """An element at an affine place, shifted so that a gate is needed half of the time."""
    place, low, high = UOp.const(dtypes.index, 0), 0, 0
    for counter in counters:
      step = self.random.choice((0, 1, 1, 2, 3))
      place, high = place + counter * step, high + (int(counter.src[0]) - 1) * step
    if self.random.random() < 0.3:
      place, low, high = place * -1 + high, 0, high
    if self.random.random() < 0.2:
      place, high = place + self.variable(), high + LARGEST
    if self.random.random() < 0.5:
      return self.buffer(dtype, high - low + 1).index(place).load()
    shift = self.random.randrange(1, 4)
    size = high + 1
    shifted = place - shift
    gate = (shifted >= 0) & (shifted < size)
    alternative = UOp.const(dtype, self.random.choice(small_integers(dtype))) if self.random.random() < 0.5 else None
    return self.buffer(dtype, size).index(shifted, gate).load(alternative)

  def expression(self, dtype: DType, counters: tuple[UOp, ...], depth: int) -> UOp:
    pick = self.random.random()
    if depth == 0 or pick < 0.15:
      return self.load(dtype, counters)
    if pick < 0.2:
      constant = self.random.random() < 0.7 or dtype.kind == "bool"
      return UOp.const(dtype, self.random.choice(small_integers(dtype))) if constant else self.variable().cast(dtype)
    if pick < 0.35:
      condition = self.comparison(counters, depth - 1)
      return condition.where(self.expression(dtype, counters, depth - 1), self.expression(dtype, counters, depth - 1))
    if pick < 0.45:
      return self.conversion(dtype, counters, depth - 1)
    left, right = (self.expression(dtype, counters, depth - 1) for _ in range(2))
    return self.arithmetic(dtype, left, right)

  def conversion(self, dtype: DType, counters: tuple[UOp, ...], depth: int) -> UOp:
    # to a float only from types whose values stay small, from a float never: it could be out of range
    sources = (dtypes.bool, dtypes.uint8) if dtype.kind == "float" else [t for t in TYPES if t.kind != "float"]
    return self.expression(self.random.choice(sources), counters, depth).cast(dtype)

  def comparison(self, counters: tuple[UOp, ...], depth: int) -> UOp:
    dtype = self.random.choice(TYPES)
    left, right = (self.expression(dtype, counters, depth) for _ in range(2))
    return left.alu(self.random.choice((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)), right)

  def arithmetic(self, dtype: DType, left: UOp, right: UOp) -> UOp:
    if dtype.kind == "bool":
      return left.alu(self.random.choice((Ops.AND, Ops.OR, Ops.XOR, Ops.ADD, Ops.MUL, Ops.MAX)), right)
    if dtype.kind == "float":
      scale, op = self.random.choice((-1.0, 2.0, 0.5, 1.0)), self.random.choice((Ops.ADD, Ops.MAX))
      scaled = right * scale
      return left.alu(op, scaled + 1.0 if op is Ops.MAX and scale < 0 else scaled)
    ops = (Ops.ADD, Ops.ADD, Ops.MUL, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR)
    divisions = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.TRUNCDIV, Ops.TRUNCMOD)
    if self.random.random() < 0.2:
      shift = UOp.const(dtype, self.random.randrange(dtype.bits))
      return left.alu(self.random.choice((Ops.SHL, Ops.SHR)), shift)
    return left.alu(self.random.choice(ops if self.random.random() < 0.8 else divisions), right)


def random_kernel(seed: int) -> tuple[UOp, list[bytes], dict[str, int]]:
  """A kernel, the contents of its buffers and the values of its variables."""
  make = _Maker(seed)
  dtype = make.random.choice(TYPES)
  outer = make.loops(0, make.random.randrange(1, 4), AxisType.LOOP)
  size = 1
  place = UOp.const(dtypes.index, 0)
  for counter in outer:
    place, size = place * counter.src[0] + counter, size * int(counter.src[0])
  output = make.buffer(dtype, size)
  counters = outer
  reduced: tuple[UOp, ...] = ()
  if make.random.random() < 0.6:
    reduced = make.loops(10, make.random.randrange(1, 3), AxisType.REDUCE)
    counters = (*outer, *reduced)
  value = make.expression(dtype, counters, DEPTH)
  if reduced:
    ops = (Ops.ADD, Ops.MAX) if dtype.kind == "float" else (Ops.ADD, Ops.MUL, Ops.MAX)
    value = value.reduce(make.random.choice(ops), *reduced)
    if make.random.random() < 0.5:
      value = make.arithmetic(dtype, value, make.expression(dtype, outer, 1))
  return kernel(f"random{seed}", output.index(place).store(value).end(*outer)), make.contents, make.values
