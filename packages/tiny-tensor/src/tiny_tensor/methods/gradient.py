"""Tensor.gradient, backward and requires_grad."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, cast

from tiny_tensor.autograd import tracing
from tiny_tensor.autograd.reverse import gradients
from tiny_tensor.base import DTypeLike, TensorBase, const_uop, is_const, to_dtype
from tiny_tensor.capturing import record_backward
from tiny_tensor.live import tensors_at
from tiny_tensor.origins import phase
from tiny_tensor.realize import buffer_under, is_realized, storage
from tiny_uop import dtypes, same_shape


class GradientMixin(TensorBase):
  """Gradients of tensors with respect to tensors."""

  __slots__ = ()

  @staticmethod
  @contextmanager
  def no_grad() -> Iterator[None]:
    """In `with Tensor.no_grad():`, and functions that have it as a decorator, results require no gradient and pass
    none on, and methods in place may change leaves. Memory needs it not: a graph that nobody holds is freed.

    It is about `requires_grad` and `backward`; `gradient` of what requires nothing, and `func`, look through it.
    """
    before, TensorBase._recording = TensorBase._recording, False
    try:
      yield
    finally:
      TensorBase._recording = before

  @staticmethod
  @contextmanager
  def autocast(dtype: DTypeLike = dtypes.bfloat16, enabled: bool = True) -> Iterator[None]:
    """In `with Tensor.autocast():`, matrix products, convolutions and einsum of float32 round operands and results to
    `dtype`, bfloat16 or float16, and sum in float32; so do their gradients. All else is float32 as ever, and so is the
    dtype of the results, unlike PyTorch's. Small gradients vanish in float16: scale the loss (`nn.optim.GradScaler`).
    Raises ValueError for another dtype.
    """
    if (kind := to_dtype(dtype)) not in (dtypes.bfloat16, dtypes.float16):
      raise ValueError(f"autocast takes bfloat16 or float16, got {kind.name}")
    before, TensorBase._narrow = TensorBase._narrow, kind if enabled else None
    try:
      yield
    finally:
      TensorBase._narrow = before

  def _start_gradient(self, gradient: Self | None) -> Self:
    """The gradient to begin with: 1 for one element."""
    if not dtypes.is_float(self.dtype):
      raise RuntimeError(f"only float tensors have gradients, got {self.dtype.name}")
    if gradient is None:
      if self.shape != () and self.numel() != 1:
        raise RuntimeError(
          f"a tensor of shape {self.shape} needs a `gradient` argument: only one element has an implicit one"
        )
      return self._wrap(const_uop(1.0, self.dtype, self.shape, self.device), False)
    if not same_shape(gradient.shape, self.shape):
      raise RuntimeError(f"gradient has shape {gradient.shape}, expected {self.shape}")
    return gradient._as_dtype(self.dtype)

  @phase("backward")
  def gradient(self, *targets: Self, gradient: Self | None = None, materialize_grads: bool = False) -> list[Self]:
    """d(self)/d(target) for each target, times `gradient` (default 1 for one element); can be differentiated again.

    Of functions that are constant in pieces, as `sign` and `round`, that is zeros. Raises RuntimeError for a target
    that is no float, or that `self` does not depend on (a comparison is no way); with `materialize_grads` the latter is
    zeros.
    """
    start = self._start_gradient(gradient)
    if others := [t for t in targets if not dtypes.is_float(t.dtype)]:
      raise RuntimeError(f"only float tensors have gradients, got a target of {others[0].dtype.name}")
    if constants := [t for t in targets if is_const(t.uop) and 0 not in t.shape]:
      raise RuntimeError(
        f"no gradient with respect to {constants[0]!r}: equal constants are one node, use requires_grad=True"
      )
    found = gradients(self.uop, start.uop, [t.uop for t in targets])
    out = []
    for t in targets:
      # equal empty tensors are one node, and have the same gradient
      if t.uop not in found and not materialize_grads and 0 not in t.shape:
        raise RuntimeError(f"{self!r} does not depend on {t!r}; materialize_grads=True gives zeros instead")
      uop = found.get(t.uop)
      # with the history of self, so that to look at a derivative does not end its graph
      none = t._wrap(const_uop(0.0, t.dtype, t.shape, t.device), False)
      out.append(none if uop is None else self._wrap(uop, None, self._history))
    return out

  @phase("backward")
  def backward(self, gradient: Self | None = None) -> Self:
    """Add the gradient of this tensor to `.grad` of every live tensor with requires_grad=True that it depends on.

    Raises RuntimeError if there is none: if this tensor was realised before, for example, and the way back is gone.
    """
    record_backward()
    start = self._start_gradient(gradient)
    wanted: list[Any] = [t for t in tensors_at(self.uop.toposort) if t.requires_grad is True]
    found = gradients(self.uop, start.uop, [t.uop for t in wanted])
    reached = [t for t in wanted if t.uop in found]
    if all(t is self and self._history for t in reached):
      why = (
        "it was realised, which ends its graph: call backward() first"
        if is_realized(self.uop)
        else "none requires one. net.parameters() and optimisers make a model's do, t.requires_grad_() any"
      )
      raise RuntimeError(f"backward() of {self!r} reaches no tensor that requires a gradient: {why}")
    for t in reached:
      uop = found[t.uop]
      base = storage(t.uop) if tracing.active() else None
      if base is not None and not tracing.is_placeholder(buffer := buffer_under(base)):
        tracing.check_write(buffer.base, uop)
      new = self._wrap(uop if t.uop.sharding is None else uop.laid_out(t.uop.sharding))
      t.grad = new if t.grad is None else cast(Self, t.grad) + new
    return self
