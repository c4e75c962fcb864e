"""`Tensor.custom_kernel`: a kernel written by hand in the kernel IR, as part of the graph.

The kernel goes where generated ones go: it is scheduled among them, optimised and lowered by the device's compiler,
captured by `TinyJit`, and checked by the IR's spec. In the graph it is CALL(kernel, DEVICE, input…), a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

from tiny_tensor.autograd.custom_gradient import Grads, with_gradient
from tiny_tensor.base import TensorBase, together
from tiny_uop import (
  Accumulate,
  AxisType,
  DType,
  KernelInfo,
  NativeCode,
  Ops,
  UOp,
  dtypes,
  is_kernel,
  kernel_params,
  prod,
  stored_to,
  written_params,
)
from tiny_uop.records import dataclass

Kernel = Callable[..., Any]
THREADS = (AxisType.GLOBAL, AxisType.LOCAL, AxisType.GROUP)


class Memory:
  """What a function that makes a kernel gets for each Tensor: its elements in row-major order.

  `shape`, `dtype`, `size` (elements) are the Tensor's; `pointer` is the PARAM. `memory[i, j]`, with one index (a number
  or a UOp) per axis, is the INDEX of an element: `.load()` reads it, `.store(value)` writes it, and
  `.accumulate(op, value)` combines it with a value. `memory.flat(i)` counts elements through; both take a `gate`, a
  bool UOp where it does not hold nothing is read or written. `after(effects…)` is the memory once effects of the kernel
  have happened, for reading what it has written.
  """

  def __init__(self, pointer: UOp, shape: tuple[int, ...], dtype: DType) -> None:
    self.pointer, self.shape, self.dtype, self.size = pointer, shape, dtype, int(prod(shape))

  def __getitem__(self, index: Any) -> UOp:
    return self.at(*(index if isinstance(index, tuple) else (index,)))

  def at(self, *index: UOp | int, gate: UOp | None = None) -> UOp:
    """The INDEX of an element. Raises IndexError for another number of indices than axes."""
    if len(index) != len(self.shape):
      raise IndexError(f"{len(index)} indices for the {len(self.shape)} axes of shape {self.shape}")
    offset: UOp | int = 0
    for position, size in zip(index, self.shape):
      before = offset * size  # of a UOp or a number; the first is 0 and left out
      offset = position if isinstance(before, int) and before == 0 else before + position
    return self.flat(offset, gate)

  def flat(self, offset: UOp | int, gate: UOp | None = None) -> UOp:
    """The INDEX of element `offset`, in row-major order."""
    return self.pointer.index(offset, gate)

  def after(self, *effects: UOp) -> Memory:
    """The memory once the effects have happened."""
    return Memory(self.pointer.after(*effects), self.shape, self.dtype)


@dataclass(frozen=True)
class KernelGradient:
  """The pullback that a user's function is. `places` says which of the results and inputs each Tensor was."""

  name: str
  grad_fxn: Callable[..., Any] | None
  places: tuple[int, ...]
  wrap: Callable[[UOp, bool], Any]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    if self.grad_fxn is None:
      raise RuntimeError(
        f"a gradient through the custom kernel {self.name!r} is wanted, which has none: give custom_kernel a grad_fxn, "
        "or detach() its inputs"
      )
    count = len(results)
    gradient = [self.wrap(r.const_like(0) if g is None else g, False) for g, r in zip(gs, results, strict=True)]
    values = [self.wrap(u, False) for u in (*results, *inputs)]
    tensors = [values[p] for p in self.places]
    found = self.grad_fxn(gradient[0] if count == 1 else tuple(gradient), *tensors)
    made = checked_gradients(f"the custom kernel {self.name!r}", found, tensors)
    return tuple([made[self.places.index(count + i)] for i in range(len(inputs))])


def checked_gradients(name: str, found: Any, given: Sequence[TensorBase]) -> Grads:
  """The gradients that a user's function gave. Raises TypeError or ValueError for one that does not fit its Tensor."""
  made = tuple(found) if isinstance(found, (tuple, list)) else (found,)
  if len(made) != len(given):
    raise ValueError(
      f"the gradient function of {name} gave {len(made)} gradients for {len(given)} Tensors: one each, None for one "
      "that has none"
    )
  for n, (g, t) in enumerate(zip(made, given)):
    if g is None:
      continue
    what = f"gradient {n} that the gradient function of {name} gave"
    if not isinstance(g, TensorBase):
      raise TypeError(f"{what} is a {type(g).__name__}: expected a Tensor or None")
    if g.shape != t.shape:
      raise ValueError(f"{what} has shape {g.shape}, expected {t.shape}, that of its Tensor")
  floats = [g if g is not None and dtypes.is_float(t.dtype) else None for g, t in zip(made, given)]
  return tuple([None if g is None else g._as_dtype(t.dtype).uop for g, t in zip(floats, given)])


def kernel_of(fxn: Kernel, tensors: Sequence[TensorBase]) -> UOp:
  """The kernel that a function makes for tensors, PARAM n for tensor n. Raises TypeError or ValueError where it is no
  kernel over them, naming what is wrong."""
  name = re.sub(r"\W", "_", getattr(fxn, "__name__", "")).strip("_")
  name = name if name and name != "lambda" else "custom_kernel"
  memory = []
  for n, t in enumerate(tensors):
    if not all(isinstance(s, int) for s in t.shape) or 0 in t.shape:
      raise ValueError(f"custom kernel {name!r}: tensor {n} has shape {t.shape}, expected known sizes, none of them 0")
    pointer = UOp.param(n, t.dtype.ptr(int(t.numel())))
    memory.append(Memory(pointer, tuple(int(s) for s in t.shape), t.dtype))
  made = fxn(*memory)
  effects = made if isinstance(made, (tuple, list)) else (made,)
  if hasattr(made, "entry"):
    program = NativeCode.of(made)
    name, effects = program.entry, (UOp(Ops.NATIVE, dtypes.void, tuple([m.pointer for m in memory]), program),)
    if program.written[-1] >= len(memory):
      raise ValueError(f"{program!r} writes argument {program.written[-1]}, and was given {len(memory)} tensors")
  if not effects or not all(isinstance(e, UOp) and e.dtype is dtypes.void for e in effects):
    raise TypeError(
      f"custom kernel {name!r} gave {made!r:.60}: expected effects (STOREs, closed by .end(loops)), a kernel, or "
      "a program (NativeCode)"
    )
  whole = len(effects) == 1 and is_kernel(effects[0])
  kernel = effects[0] if whole else UOp.sink(*effects, arg=KernelInfo(name))
  if _checked.get(kernel) != len(tensors):
    check_kernel(kernel, name, len(tensors))
    _checked[kernel] = len(tensors)
  return kernel


_checked: WeakKeyDictionary[UOp, int] = WeakKeyDictionary()
"""Kernels that were found legal, and for how many tensors."""


def check_kernel(kernel: UOp, name: str, count: int) -> None:
  """Raises ValueError for a kernel that is not legal, or does not fit its tensors."""
  from tiny_uop import spec  # late: few programs have kernels of their own

  try:
    spec.check(kernel, "kernel")
  except spec.SpecError as error:
    raise ValueError(f"custom kernel {name!r} is {error}") from error
  params, written = kernel_params(kernel), written_params(kernel)
  if unknown := params.keys() - set(range(count)):
    raise ValueError(f"custom kernel {name!r} uses PARAM {min(unknown)}, and was given {count} tensors")
  if not written:
    raise ValueError(f"custom kernel {name!r} writes to none of its tensors: nothing would come of it")
  if unused := set(range(count)) - params.keys():
    raise ValueError(f"custom kernel {name!r} neither reads nor writes tensor {min(unused)} of the {count} given")
  for u in kernel.walk():
    reads = u.op is Ops.LOAD or isinstance(u.arg, Accumulate)
    if reads and u.src[0].src[0].op is Ops.PARAM and u.src[0].src[0].arg in written:
      raise ValueError(
        f"custom kernel {name!r} reads tensor {u.src[0].src[0].arg}, which it writes: a result has no contents before. "
        "Pass them as another tensor; read what the kernel itself has written through after(effects…)"
      )


class CustomKernelMixin(TensorBase):
  """custom_kernel."""

  __slots__ = ()

  def custom_kernel(self, *lst: Self, fxn: Kernel, grad_fxn: Callable[..., Any] | None = None) -> list[Self]:
    """The tensors after a kernel written by hand has run over them: those that it writes are new ones of the same
    shape, dtype and device (`Tensor.empty` is what to pass; elements that it does not write have no defined value), the
    others are as they were. Lazy as everything.

    `fxn(*memory)` gets a `Memory` (of `tiny_tensor.func`) for each tensor and gives the effects of the kernel, or a
    SINK with KernelInfo. Or it gives a program that is made for one kind of device: a `NativeCode` (of
    `tiny_tensor.func`), or anything with its attributes, whose arguments are the tensors in their order. On another
    device it is a CompileError.
    `grad_fxn(gradient, *tensors)` gets the gradient of the result (a tuple for several) and the tensors after the run,
    and gives the gradient of each of these, None for results. Without it, wanting a gradient is a RuntimeError.

    Raises ValueError for a kernel that is not legal or does not fit its tensors; for tensors on different devices.
    """
    tensors: list[TensorBase] = [self, *lst]
    together(tensors)
    device = next((t.device for t in tensors if t.uop.device is not None), self.device)
    if not isinstance(device, str):
      raise ValueError(
        f"a custom kernel runs on one device, its tensors are on {', '.join(device)}: move them with .to"
      )
    made = kernel_of(fxn, tensors)
    written = sorted(written_params(made))
    order = [*written, *[n for n in range(len(tensors)) if n not in written]]
    kernel = renumbered(made, {old: new for new, old in enumerate(order)})
    inputs = [tensors[n].to(device).uop for n in order[len(written) :]]
    source = (kernel, UOp(Ops.DEVICE, arg=device), *inputs)
    values = [UOp(Ops.CALL, tensors[n].dtype, source, i).reshape(tensors[n].shape) for i, n in enumerate(written)]
    places = tuple(order.index(n) for n in range(len(tensors)))
    pull = KernelGradient(kernel.arg.name, grad_fxn, places, self._wrap)
    results = with_gradient(values, inputs, pull, kernel.arg.name)
    read = [tensors[n] for n in order[len(written) :]]
    out = list(tensors)
    for n, value in zip(written, results, strict=True):
      out[n] = tensors[n]._derive(value, *read)
    return cast("list[Self]", out)


def renumbered(kernel: UOp, numbers: dict[int, int]) -> UOp:
  """The kernel with other numbers for its PARAMs."""
  params = [u for u in kernel.walk() if u.op is Ops.PARAM]
  return kernel.substitute({p: p.replace(arg=numbers[p.arg]) for p in params if numbers[p.arg] != p.arg})


def repeated_kernel(kernel: UOp, count: int, mapped: frozenset[int]) -> UOp | None:
  """The kernel in a loop of `count` more, over as many times the memory of the PARAMs `mapped`; None for one that
  counts its threads itself, as programs do.

  Memory that it keeps for itself is in the loop: what is done with it says so, since nothing else may. Such a kernel,
  and one with threads of its own, is compiled as it is written: the loop goes over workgroups, which share no memory.
  """
  nodes = kernel.toposort
  if any(u.op in (Ops.SPECIAL, Ops.NATIVE) for u in nodes):
    return None
  own = any(u.op is Ops.ALLOC or (u.op is Ops.RANGE and u.arg[1] in THREADS) for u in nodes)
  number = 1 + max((u.arg[0] for u in nodes if u.op is Ops.RANGE), default=-1)
  loop = UOp.range(count, number, AxisType.GLOBAL if own else AxisType.LOOP)
  done: dict[UOp, UOp] = {}
  for u in nodes:
    src = tuple([done[s] for s in u.src])
    if u.op is Ops.PARAM and u.arg in mapped:
      done[u] = UOp.param(u.arg, u.dtype.base.ptr(count * u.dtype.size))  # type: ignore[attr-defined]
    elif u.op is Ops.ALLOC:
      done[u] = u.after(loop)
    elif u.op is Ops.INDEX and (memory := stored_to(u.replace(src=(u,)))).op is Ops.PARAM and memory.arg in mapped:
      offset = loop * memory.dtype.size + src[1]  # type: ignore[attr-defined]
      done[u] = UOp(Ops.INDEX, src[0].dtype, (src[0], offset, *src[2:]))
    elif u.op is Ops.AFTER:
      memory, *begun = src[0].src if u.src[0].op is Ops.ALLOC else src[:1]
      done[u] = UOp(Ops.AFTER, memory.dtype, (memory, *begun, *src[1:]))
    else:
      done[u] = u.with_src(src)
  effects = done[kernel].src
  return UOp.sink(around(effects, loop), arg=kernel.arg)


def around(effects: tuple[UOp, ...], loop: UOp) -> UOp:
  """Effects inside of one more loop."""
  if len(effects) == 1 and effects[0].op is Ops.END:
    inner, *loops = effects[0].src
    return inner.end(loop, *loops)
  return UOp.group(*effects).end(loop)
