"""Realization: `realize` and `schedule`, and values as `data`, `numpy`, `tolist`, `item` and text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self, cast

from tiny_runtime import Buffer, buffer_of
from tiny_tensor import capturing
from tiny_tensor.autograd import tracing
from tiny_tensor.base import Scalar, TensorBase, is_const, is_whole, only_stored
from tiny_tensor.capturing import Busy, check_readable
from tiny_tensor.host import FORMATS, nest, unpack
from tiny_tensor.methods.devices import placement
from tiny_tensor.realize import (
  apply,
  graph_plan,
  is_realized,
  plan_tensors,
  realize_tensors,
  storage,
  without_gradients,
)
from tiny_tensor.shapes import value_of
from tiny_tensor.strides import run_of
from tiny_uop import Ops, Sharding, UOp, dtypes

if TYPE_CHECKING:
  import numpy

  from tiny_runtime import ExecItem


class RealizationMixin(TensorBase):
  """Lazy graphs to values."""

  __slots__ = ()

  def realize(self, *others: Self, do_update_stats: bool = True) -> Self:
    """Compute this tensor (and others with it) and keep the values in a buffer. Gives back `self`. `do_update_stats`
    counts what runs in `GlobalCounters`."""
    realize_tensors([t for t in (self, *others) if not is_realized(t.uop)], do_update_stats)
    return self

  def graph(self, *others: Self) -> UOp:
    """The SINK that `realize` would hand to the scheduler; computes and changes nothing.

    `print_uop(t.graph())` is what `python -m tiny_sched` reads.
    """
    return without_gradients(graph_plan([self, *others]).sink())

  def schedule(self, *others: Self) -> list[ExecItem]:
    """The kernels and copies that would realise the tensors, instead of running them: `run_schedule` of tiny_runtime,
    or `run` of each in order, does that. The tensors stand for their (still empty) buffers from then on, and tensors
    that are assigned to for what will be there."""
    linear, plan = plan_tensors([self, *others])
    apply(plan)
    from tiny_runtime import exec_items

    known = set(plan.sink().toposort)
    return exec_items(linear, [u for u in linear.toposort if u.op is Ops.BUFFER and u not in known])

  def schedule_with_vars(self, *others: Self) -> tuple[list[ExecItem], dict[str, int]]:
    """`schedule`, and the values of the bound variables in it."""
    items = self.schedule(*others)
    return items, {name: value for item in items for name, value in item.fixedvars.items()}

  def schedule_linear(self, *others: Self) -> UOp:
    """`schedule` as one UOp: the LINEAR of CALLs that `tiny_runtime.run` takes."""
    linear, plan = plan_tensors([self, *others])
    apply(plan)
    return linear

  def linear_with_vars(self, *others: Self) -> tuple[UOp, dict[str, int]]:
    """`schedule_linear`, and the values of the bound variables in it."""
    linear = self.schedule_linear(*others)
    binds = [u for u in linear.toposort if u.op is Ops.BIND]
    return linear, {str(variable.arg[0]): value for variable, value in (b.unbind() for b in binds)}

  # *** values ***

  def _elements(self) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """All elements in order as Python numbers, and the shape in numbers. Computes the tensor."""
    buffer, nbytes, shape = self._computed()
    # maybe only `buffer` keeps the memory, which another thread would take as soon as it is given back
    return () if buffer is None else unpack(buffer.look()[:nbytes], self.dtype), shape

  def _read_copy(self) -> tuple[memoryview, tuple[int, ...]]:
    """The same as bytes that the caller may keep and change."""
    buffer, nbytes, shape = self._computed()
    return memoryview(bytearray()) if buffer is None else buffer.copy_out(nbytes), shape

  def _computed(self) -> tuple[Buffer | None, int, tuple[int, ...]]:
    """The Buffer that begins with all elements in order (None if there are none), how many bytes these are, and the
    shape in numbers. Computes the tensor."""
    uop = self.uop
    if Busy.count:
      check_readable("reading a Tensor")
    shape = tuple([s if type(s) is int else value_of(s) for s in uop.shape])
    if 0 in shape:
      return None, 0, shape
    x, nbytes = self, math.prod(shape) * uop.dtype.itemsize
    whole = buffer_of(uop.base) if is_whole(uop) else None
    if whole is None or whole.written_memory() is None:  # what is written is no placeholder
      tracing.check_known(uop.walk())
    if whole is not None:
      return whole, nbytes, shape
    if isinstance(place := self.uop.device, tuple):
      if not (is_realized(x.uop) or x._history or tracing.active() or is_const(x.uop)):
        x.realize()
      return x.detach().to(Sharding(place).homes[0])._computed()
    if (view := run_of(self.uop)) is not None:
      return buffer_of(view[0]).view(view[1] * self.dtype.itemsize, math.prod(shape)), nbytes, shape
    if only_stored(self.uop) and not is_whole(self.uop):
      x = self.to(None)
    if not is_whole(x.uop):
      # a computed tensor keeps its value, unless a gradient may still have to flow through it
      if x._history or tracing.is_followed(x.uop) or storage(x.uop) is not None or is_const(x.uop) or x is not self:
        x = x._wrap((x.uop.detach() if tracing.active() else x.uop).contiguous(), False)
      x.realize()
    if not is_whole(x.uop) and all(isinstance(s, int) for s in x.shape):
      x = x._wrap(x.uop.contiguous(), False).realize()
    return buffer_of(x.uop.base), nbytes, shape

  def _readable(self) -> Self:
    """Itself, or cast to float32 where Python has no such format (bfloat16, fp8)."""
    if self.dtype in FORMATS:
      return self
    x = self.detach()
    return (x.to(None) if only_stored(x.uop) else x)._as_dtype(dtypes.float32)

  def _formatted(self) -> Self:
    """Itself. Raises TypeError for dtypes that a memoryview has no format for."""
    if self.dtype not in FORMATS:
      raise TypeError(f"{self.dtype.name} has no memoryview format: cast to float32, or bitcast to an integer dtype")
    return self

  def _shaped_view(self, raw: memoryview, shape: tuple[int, ...]) -> memoryview:
    """Bytes as elements of this dtype and shape. Raises TypeError for float16 before Python 3.12."""
    view: Any = raw
    try:
      return cast(memoryview, view.cast(FORMATS[self.dtype], *([] if 0 in shape else [shape])))
    except ValueError:
      raise TypeError(
        f"a memoryview holds {self.dtype.name} only from Python 3.12 on: use numpy(), or bitcast to uint16"
      ) from None

  def data(self) -> memoryview:
    """A copy of the elements as a read-only memoryview of this shape. Raises TypeError for bfloat16 and fp8, and before
    Python 3.12 for float16."""
    raw, shape = self._formatted()._read_copy()
    return self._shaped_view(raw.toreadonly(), shape)

  def numpy(self) -> numpy.ndarray[Any, Any]:
    """A NumPy array with a copy of the values; bfloat16 and fp8 become float32. Needs NumPy, else ImportError."""
    try:
      import numpy as np
    except ImportError as error:
      raise ImportError("Tensor.numpy() needs NumPy: pip install 'tiny-tensor[numpy]'") from error
    x = self._readable()
    raw, shape = x._read_copy()
    return np.frombuffer(raw, dtype=np.dtype(FORMATS[x.dtype])).reshape(shape)

  def tolist(self) -> Any:
    """Nested lists of Python numbers; a number for a 0-d tensor."""
    x = self._readable()
    return nest(*x._elements())

  def item(self) -> Scalar:
    """The one element as a Python number. Raises ValueError if there are more, or none."""
    if (n := self.numel()) != 1 and not (isinstance(n, UOp) and value_of(n) == 1):
      raise ValueError(f"item() needs one element, the shape is {self.shape}")
    x = self._readable()
    out: Scalar = x._elements()[0][0]
    return out

  def __len__(self) -> int:
    if not self.ndim:
      raise TypeError("len() of a 0-d tensor")
    if isinstance(self.shape[0], UOp):
      check_readable("len() of a symbolic size")
    return value_of(self.shape[0])

  def __repr__(self) -> str:
    state = "realized" if is_realized(self.uop) else f"lazy {self.uop.op.name}"
    extra = f", requires_grad={self.requires_grad}" if self.requires_grad else ""
    return f"<Tensor {self.shape} {self.dtype.name} on {placement(self.uop)}, {state}{extra}>"

  def __str__(self) -> str:
    """The values as NumPy shows them, computed for that; as `repr` without NumPy, in transforms and while `TinyJit`
    captures."""
    if tracing.active() or ((recording := capturing.current()) is not None and recording.refuse_reads):
      return repr(self)
    try:
      return str(self.numpy())
    except ImportError:
      return repr(self)

  def __format__(self, spec: str) -> str:
    return format(self.item(), spec) if spec else str(self)

  def allclose(self, other: Self, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close; see isclose."""
    return bool(self.isclose(other, rtol, atol, equal_nan).all().item())
