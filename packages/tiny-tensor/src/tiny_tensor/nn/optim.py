"""Optimisers: they take the gradients that `backward` left in `Tensor.grad` and assign to the parameters.

An optimiser is given all tensors of a model. Those with `requires_grad` False (running statistics, say) are not
trained; their pending assignments are realised with the step. The state is made of tensors too, so `TinyJit` can
capture a step.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes


class Steps(Protocol):
  """What a training loop needs of an optimiser."""

  def zero_grad(self) -> None: ...
  def step(self) -> None: ...
  def schedule_step(self) -> list[Tensor]: ...


def _unique(tensors: Iterable[Tensor]) -> list[Tensor]:
  """The tensors without repetition (tied weights), in order."""
  return list({id(t): t for t in tensors}.values())


def _realize(tensors: Sequence[Tensor]) -> None:
  tensors[0].realize(*tensors[1:])


def _check_training() -> None:
  if not Tensor.training:
    raise RuntimeError("Tensor.training is False while an optimiser steps: wrap the step in `with Tensor.train():`")


class Optimizer:
  """The part that all update rules share. A rule is a subclass that defines `update`.

  `lr` is a tensor of shape (1,), so that a schedule can assign to it: `opt.lr.assign([0.01])`.
  """

  def __init__(self, params: Iterable[Tensor], lr: float) -> None:
    tensors = _unique(params)
    for t in tensors:
      if t.requires_grad is None and dtypes.is_float(t.dtype):
        t.requires_grad_(True)
    self.params = [t for t in tensors if t.requires_grad]
    self.buffers = [t for t in tensors if not t.requires_grad]
    if not self.params:
      raise ValueError(
        f"an optimiser needs at least one parameter that requires a gradient, got {len(tensors)} tensors"
      )
    self.device = self.params[0].device
    self.lr = self.scalar(lr)

  def scalar(self, value: float) -> Tensor:
    """A number of the optimiser's state: float32, shape (1,), in a buffer of its own."""
    return Tensor([value], dtype=dtypes.float32, device=self.device).contiguous().requires_grad_(False)

  def moments(self) -> list[Tensor]:
    """One tensor of zeros per parameter; float32 at least, because moments of a half underflow."""
    return [
      Tensor.zeros(*p.shape, dtype=dtypes.promote(p.dtype, dtypes.float32), device=p.device)
      .contiguous()
      .requires_grad_(False)
      for p in self.params
    ]

  def zero_grad(self) -> None:
    """Forgets the gradients."""
    for p in self.params:
      p.grad = None

  def step(self) -> None:
    """Updates the parameters and realises them, the state and the buffers together."""
    _realize(self.schedule_step())

  def schedule_step(self) -> list[Tensor]:
    """Assigns without realising: all tensors that must be realised for the step to happen."""
    _check_training()
    grads = []
    for i, p in enumerate(self.params):
      if p.grad is None:
        raise RuntimeError(
          f"parameter {i} of shape {p.shape} has no gradient: call backward() on a loss that depends on it"
        )
      # several kernels read it: the moments and the update
      grads.append(p.grad.cast(dtypes.promote(p.dtype, dtypes.float32)).contiguous())
    return [*self.update(grads), *self.params, *self.buffers]

  def update(self, grads: list[Tensor]) -> list[Tensor]:
    """Assigns the new values to `self.params`, given one gradient each, and gives the state that was assigned to."""
    raise NotImplementedError(f"{type(self).__name__} does not define update()")


class OptimizerGroup:
  """Several optimisers as one: different rules or learning rates for different parameters."""

  def __init__(self, *optimizers: Steps) -> None:
    if not optimizers:
      raise ValueError("OptimizerGroup needs at least one optimiser")
    self.optimizers = optimizers

  def zero_grad(self) -> None:
    """Forgets the gradients."""
    for opt in self.optimizers:
      opt.zero_grad()

  def step(self) -> None:
    """Steps every optimiser, realised together."""
    _realize(self.schedule_step())

  def schedule_step(self) -> list[Tensor]:
    """Assigns without realising: all tensors that must be realised for the step to happen."""
    return _unique(t for opt in self.optimizers for t in opt.schedule_step())


class SGD(Optimizer):
  """Stochastic gradient descent, with momentum, Nesterov's variant of it, and L2 weight decay, as in PyTorch.

  With `classic` the learning rate goes into the momentum (b ← momentum b + lr g; p ← p - b) and not onto it.
  """

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.001,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    classic: bool = False,
  ) -> None:
    super().__init__(params, lr)
    if nesterov and not momentum:
      raise ValueError("nesterov=True needs a momentum above 0")
    self.momentum, self.weight_decay, self.nesterov, self.classic = momentum, weight_decay, nesterov, classic
    self.b = self.moments() if momentum else []

  def update(self, grads: list[Tensor]) -> list[Tensor]:
    """p ← p - lr b, where b ← momentum b + g + weight_decay p."""
    for i, (p, g) in enumerate(zip(self.params, grads)):
      old, lr = p.detach(), self.lr.to(p.device)
      if self.weight_decay:
        g = g + self.weight_decay * old
      if self.classic:
        g = g * lr
      if self.momentum:
        self.b[i].assign(self.momentum * self.b[i] + g)
        g = g + self.momentum * self.b[i] if self.nesterov else self.b[i]
      p.assign((old - (g if self.classic else g * lr)).cast(p.dtype))
    return list(self.b)


class AdamW(Optimizer):
  """Adam with decoupled weight decay (Loshchilov & Hutter, 2019)."""

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
  ) -> None:
    super().__init__(params, lr)
    self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
    # b1 and b2 to the power of the number of steps: what m and v still owe to the zeros that they start with
    self.b1_t, self.b2_t = self.scalar(1.0), self.scalar(1.0)
    self.m, self.v = self.moments(), self.moments()

  def update(self, grads: list[Tensor]) -> list[Tensor]:
    """p ← (1 - lr weight_decay) p - lr m̂ / (√v̂ + eps), where m and v are running means of g and g²."""
    self.b1_t.assign(self.b1_t * self.b1)
    self.b2_t.assign(self.b2_t * self.b2)
    for p, g, m, v in zip(self.params, grads, self.m, self.v):
      m.assign(self.b1 * m + (1 - self.b1) * g)
      v.assign(self.b2 * v + (1 - self.b2) * (g * g))
      old, lr = p.detach(), self.lr.to(p.device)
      m_hat = m / (1 - self.b1_t.to(p.device))
      v_hat = v / (1 - self.b2_t.to(p.device))
      change = m_hat / (v_hat.sqrt() + self.eps)
      if self.weight_decay:
        change = change + self.weight_decay * old
      p.assign((old - lr * change).cast(p.dtype))
    return [self.b1_t, self.b2_t, *self.m, *self.v]


class Adam(AdamW):
  """Adam (Kingma & Ba, 2015)."""

  def __init__(
    self, params: Iterable[Tensor], lr: float = 0.001, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
  ) -> None:
    super().__init__(params, lr, b1, b2, eps, weight_decay=0.0)
