"""Optimisers: they take the gradients that `backward` left in `Tensor.grad` and assign to the parameters.

An optimiser is given all tensors of a model. Those with `requires_grad` False (running statistics, say) are not
trained; their pending assignments are realised with the step. The state is made of tensors too, so `TinyJit` can
capture a step.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from tiny_tensor.naming import known_as
from tiny_tensor.origins import phase
from tiny_tensor.placement import DeviceLike, canonical
from tiny_tensor.pytorch_names import OPTIM
from tiny_tensor.realize import storage
from tiny_tensor.tensor import Tensor
from tiny_uop import Sharding, dtypes
from tiny_uop.lazy import lazy_names

__getattr__ = lazy_names(__name__, OPTIM.get)


def _has_cuts(state: Sharding | None, pieces: Sharding) -> bool:
  """Whether what lies as `state` says is in all the pieces of `pieces`, and maybe in smaller ones."""
  found = None if state is None else state.in_grid(pieces.grid)
  return not pieces.cuts or (found is not None and set(pieces.cuts) <= set(found.cuts))


class Steps(Protocol):
  """The methods of an optimiser that a training loop calls."""

  def zero_grad(self) -> None:
    """Forget the gradients."""

  def step(self) -> None:
    """Update the parameters, and compute them."""

  def schedule_step(self) -> list[Tensor]:
    """Update the parameters without computing them: what has to be realized."""
    ...


def _unique(tensors: Iterable[Tensor]) -> list[Tensor]:
  """The tensors without repetition (tied weights), in order."""
  return list({id(t): t for t in tensors}.values())


def _realize(tensors: Sequence[Tensor]) -> None:
  tensors[0].realize(*tensors[1:])


def _check_training() -> None:
  if not Tensor.training:
    raise RuntimeError(
      "Tensor.training is False while an optimiser steps: wrap the step in `with Tensor.train():`, or call net.train()"
    )


class Optimizer:
  """The part that all update rules share. A rule is a subclass that defines `update`.

  `lr` is a tensor of shape (1,), so that a schedule can assign to it: `opt.lr.assign([0.01])`. It and the counters of
  steps are on `device`, by default that of the first parameter. `fused` changes nothing: which updates share a kernel
  is for the scheduler to say.
  """

  initial_lr: float | None = None
  """The rate that schedules start from, once there is one."""
  per_parameter: ClassVar[tuple[str, ...]] = ()
  """The names of attributes that hold one tensor of state for each parameter: it lies where the parameter does."""

  def __init__(self, params: Iterable[Tensor], lr: float, device: DeviceLike = None, fused: bool = False) -> None:
    tensors = _unique(params)
    if wrong := [t for t in tensors if not isinstance(t, Tensor)]:
      raise TypeError(
        f"an optimiser takes tensors, as net.parameters() gives them, got a {type(wrong[0]).__name__}; for groups with "
        "other rates, OptimizerGroup(SGD(some, lr=0.1), SGD(others, lr=0.01))"
      )
    for t in tensors:
      if t.requires_grad is None and dtypes.is_float(t.dtype):
        t.requires_grad_(True)
    self.params = [t for t in tensors if t.requires_grad]
    self.buffers = [t for t in tensors if not t.requires_grad]
    if not self.params:
      raise ValueError(
        f"an optimiser needs at least one parameter that requires a gradient, got {len(tensors)} tensors"
      )
    self.device = self.params[0].device if device is None else canonical(device)
    self.fused = fused
    self.lr = self.scalar(lr)

  def scalar(self, value: float) -> Tensor:
    """A number of the optimiser's state: float32, shape (1,), in a buffer of its own."""
    return Tensor([value], dtype=dtypes.float32, device=self.device).contiguous().requires_grad_(False)

  def follow(self) -> None:
    """Moves the state of parameters that lie on other devices, or in other pieces, than when the optimiser was made.
    State in more pieces than its parameter, which it is on the same devices as, stays: it is meant so."""
    for name in self.per_parameter:
      for state, p in zip(getattr(self, name), self.params):
        pieces = p.uop.sharding
        apart = pieces is not None and not _has_cuts(state.uop.sharding, pieces)
        if state.device != p.device or apart:
          state._become(state.shard_like(p), lambda grad: grad)

  def begin(self) -> None:
    """Gives the state its memory before the first step, which is then made of the same kernels as all others."""
    state = [t for name in self.per_parameter for t in getattr(self, name)]
    if new := [t for t in state if storage(t.uop) is None]:
      _realize(new)

  def moments(self) -> list[Tensor]:
    """One tensor of zeros per parameter; float32 at least, because moments of a half underflow."""
    return [
      p.detach().zeros_like(dtype=dtypes.promote(p.dtype, dtypes.float32)).contiguous().requires_grad_(False)
      for p in self.params
    ]

  def zero_grad(self, set_to_none: bool = True) -> None:
    """Forgets the gradients, or makes them zeros."""
    for p in self.params:
      p.grad = None if set_to_none or p.grad is None else p.grad.zeros_like()

  def state_dict(self) -> dict[str, Tensor]:
    """The rate, the counters and the state of each parameter by name: not the parameters."""
    from tiny_tensor.nn.state import get_state_dict

    kept = {name: value for name, value in vars(self).items() if name not in ("params", "buffers")}
    return get_state_dict(kept)

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Goes on from a `state_dict`. Raises what `nn.state.load_state_dict` does."""
    from tiny_tensor.nn.state import load_state_dict

    load_state_dict(self.state_dict(), dict(state_dict), verbose=False)

  def step(self) -> None:
    """Updates the parameters and realises them, the state and the buffers together."""
    _realize(self.schedule_step())

  @phase("optimiser")
  def schedule_step(self) -> list[Tensor]:
    """Assigns without realising, but for the memory of new state: all tensors that must be realised for the step to
    happen."""
    _check_training()
    self.follow()
    self.begin()
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

  per_parameter = ("b",)

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.001,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    classic: bool = False,
    device: DeviceLike = None,
    fused: bool = False,
  ) -> None:
    super().__init__(params, lr, device, fused)
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


class RMSprop(Optimizer):
  """Steps divided by the root of a running mean of squared gradients (Tieleman & Hinton, 2012), as in PyTorch: `alpha`
  is what the mean keeps, `centered` takes the squared mean gradient off it, `weight_decay` is L2; with `maximize` steps
  go up.
  """

  per_parameter = ("v", "b", "m")

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.01,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
    maximize: bool = False,
    device: DeviceLike = None,
  ) -> None:
    super().__init__(params, lr, device)
    self.alpha, self.eps, self.weight_decay, self.momentum = alpha, eps, weight_decay, momentum
    self.maximize, self.v = maximize, self.moments()
    self.b, self.m = self.moments() if momentum else [], self.moments() if centered else []

  def update(self, grads: list[Tensor]) -> list[Tensor]:
    """p ← p - lr b, where b ← momentum b + g / (√(v - m²) + eps), v and m are running means of g² and g."""
    for i, (p, g, v) in enumerate(zip(self.params, grads, self.v)):
      old, g = p.detach(), -g if self.maximize else g
      if self.weight_decay:
        g = g + self.weight_decay * old
      v.assign(self.alpha * v + (1 - self.alpha) * (g * g))
      spread = v
      if self.m:
        self.m[i].assign(self.alpha * self.m[i] + (1 - self.alpha) * g)
        spread = v - self.m[i] * self.m[i]
      change = g / (spread.sqrt() + self.eps)
      if self.momentum:
        change = self.b[i].assign(self.momentum * self.b[i] + change)
      p.assign((old - self.lr.to(p.device) * change).cast(p.dtype))
    return [*self.v, *self.b, *self.m]


class Adagrad(Optimizer):
  """Steps divided by the root of the sum of all squared gradients (Duchi et al., 2011), as in PyTorch: the rate falls
  as `lr / (1 + steps lr_decay)`, `weight_decay` is L2; with `maximize` steps go up.
  """

  per_parameter = ("v",)

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.01,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
    maximize: bool = False,
    device: DeviceLike = None,
  ) -> None:
    super().__init__(params, lr, device)
    self.lr_decay, self.weight_decay, self.eps, self.maximize = lr_decay, weight_decay, eps, maximize
    self.steps = self.scalar(0.0)
    self.v = [(v + initial_accumulator_value).contiguous() for v in self.moments()]

  def update(self, grads: list[Tensor]) -> list[Tensor]:
    """p ← p - lr / (1 + steps lr_decay) g / (√v + eps), where v is the sum of g²."""
    rate = self.lr / (1 + self.steps * self.lr_decay)
    for p, g, v in zip(self.params, grads, self.v):
      old, g = p.detach(), -g if self.maximize else g
      if self.weight_decay:
        g = g + self.weight_decay * old
      v.assign(v + g * g)
      p.assign((old - rate.to(p.device) * g / (v.sqrt() + self.eps)).cast(p.dtype))
    self.steps.assign(self.steps + 1)
    return [self.steps, *self.v]


class AdamW(Optimizer):
  """Adam with decoupled weight decay (Loshchilov & Hutter, 2019): each step also takes `lr * weight_decay` of a weight
  off it, whatever its gradient."""

  per_parameter = ("m", "v")

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    device: DeviceLike = None,
    fused: bool = False,
    betas: tuple[float, float] | None = None,
  ) -> None:
    """`betas` is (b1, b2)."""
    super().__init__(params, lr, device, fused)
    self.b1, self.b2 = betas or (b1, b2)
    self.eps, self.weight_decay = eps, weight_decay
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
      p.assign((old - lr * self.scaled(change, old)).cast(p.dtype))
    return [self.b1_t, self.b2_t, *self.m, *self.v]

  def scaled(self, change: Tensor, old: Tensor) -> Tensor:
    """The step of a parameter `old` without the learning rate: LAMB scales it."""
    return change


class Adam(AdamW):
  """Adam (Kingma & Ba, 2015): steps along running means of the gradients (decay `b1`), divided by the roots of those of
  their squares (`b2`), both corrected for having started at 0. `eps` is added to the roots.

  `weight_decay` times a weight is added to its gradient, as the gradient of half its square; AdamW takes it apart.
  """

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    device: DeviceLike = None,
    fused: bool = False,
    betas: tuple[float, float] | None = None,
    weight_decay: float = 0.0,
  ) -> None:
    super().__init__(params, lr, b1, b2, eps, 0.0, device, fused, betas)
    self.l2 = weight_decay

  def update(self, grads: list[Tensor]) -> list[Tensor]:
    """As AdamW, without its decay, with gradients g + weight_decay p."""
    if self.l2:
      grads = [g + self.l2 * p.detach() for g, p in zip(grads, self.params)]
    return super().update(grads)


def _trust(weight: Tensor, change: Tensor, decay: float = 0.0) -> Tensor:
  """|weight| / (|change| + decay |weight|), or 1 where one of them is 0."""
  w, c = (t.square().sum().sqrt() for t in (weight, change))
  known = (w > 0) & (c > 0)
  return known.where(w / known.where(c + decay * w if decay else c, 1.0), 1.0)


class LARS(SGD):
  """SGD whose step for each tensor is in proportion to the tensor (You et al., 2017): the gradient is multiplied by
  `tcoef` |p| / |g|. With `pre_wd` the weight decay is part of g in that ratio, else of the denominator (the paper's).
  """

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.001,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
    ns_steps: int = 0,
    ns_coefficients: tuple[float, ...] | None = None,
    nesterov: bool = False,
    classic: bool = True,
    pre_wd: bool = True,
    tcoef: float = 0.001,
    device: DeviceLike = None,
    fused: bool = False,
  ) -> None:
    super().__init__(params, lr, momentum, 0.0, nesterov, classic, device, fused)
    if ns_steps or ns_coefficients:
      raise ValueError(f"LARS takes no Newton–Schulz steps, got ns_steps={ns_steps}: use Muon")
    self.decay, self.pre_wd, self.tcoef = weight_decay, pre_wd, tcoef

  def update(self, grads: list[Tensor]) -> list[Tensor]:
    """SGD's, of gradients in proportion to the weights."""
    scaled = []
    for p, g in zip(self.params, grads):
      old = p.detach()
      decayed = g + self.decay * old
      ratio = _trust(old, decayed) if self.pre_wd else _trust(old, g, self.decay)
      # tensors of zeros take plain steps
      scaled.append(decayed * (old.square().sum() > 0).where(ratio * self.tcoef, 1.0))
    return super().update(scaled)


class LAMB(AdamW):
  """AdamW whose step for each tensor is in proportion to the tensor (You et al., 2020): p ← p - lr |p| / |r| r, where
  r is AdamW's change. With `adam` it is AdamW.
  """

  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    adam: bool = False,
    device: DeviceLike = None,
    fused: bool = False,
  ) -> None:
    super().__init__(params, lr, b1, b2, eps, weight_decay, device, fused)
    self.adam = adam

  def scaled(self, change: Tensor, old: Tensor) -> Tensor:
    """The change in proportion to the weights."""
    return change if self.adam else change * _trust(old, change)


class Muon(Optimizer):
  """Momentum, of which each matrix is brought near to the orthogonal one by Newton–Schulz steps (Jordan et al., 2024).

  For matrices, and kernels of convolutions, seen as `(out, …)`; ValueError for vectors: train those with AdamW, both in
  an `OptimizerGroup`. The step is √max(1, rows / columns) lr; weight decay is decoupled.
  """

  per_parameter = ("b",)

  @known_as(ns_params="ns_coefficients")
  def __init__(
    self,
    params: Iterable[Tensor],
    lr: float = 0.001,
    momentum: float = 0.95,
    weight_decay: float = 0.1,
    ns_steps: int = 5,
    ns_coefficients: tuple[float, ...] = (3.4445, -4.775, 2.0315),
    nesterov: bool = True,
    device: DeviceLike = None,
    fused: bool = False,
  ) -> None:
    super().__init__(params, lr, device, fused)
    if vectors := [p.shape for p in self.params if p.ndim < 2]:
      raise ValueError(f"Muon trains matrices, got a parameter of shape {vectors[0]}: give it to AdamW")
    self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
    self.ns_steps, self.ns_coefficients = ns_steps, ns_coefficients
    self.b = self.moments()

  def update(self, grads: list[Tensor]) -> list[Tensor]:
    """p ← (1 - lr weight_decay) p - lr scale orthogonal(u), where u is the momentum, a running mean of g."""
    for p, g, b in zip(self.params, grads, self.b):
      old, lr = p.detach(), self.lr.to(p.device)
      b.assign(b.lerp(g, 1 - self.momentum))
      mean = g.lerp(b, self.momentum) if self.nesterov else b
      matrix = mean.flatten(1)
      rows, columns = (int(s) for s in matrix.shape)
      change = (
        matrix.newton_schulz(self.ns_steps, self.ns_coefficients).reshape(g.shape) * max(1, rows / columns) ** 0.5
      )
      p.assign((old * (1 - lr * self.weight_decay) - lr * change).cast(p.dtype))
    return list(self.b)


class GradScaler:
  """Scales a loss so that gradients do not vanish in float16 (Micikevicius et al., 2018), as `torch.amp.GradScaler`.

  `scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`. A step with a gradient that is infinite
  or NaN changes nothing, and the scale is multiplied by `backoff_factor`; after `growth_interval` good ones in a row
  by `growth_factor`. Nothing is looked at: `TinyJit` can capture all of it.
  """

  def __init__(
    self,
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
  ) -> None:
    self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval
    self.factor, self.good = (Tensor([v], dtype=dtypes.float32).contiguous().realize() for v in (init_scale, 0.0))
    self._found: dict[int, Tensor] = {}

  def get_scale(self) -> float:
    """The scale that holds now."""
    return float(self.factor.item())

  def scale(self, loss: Tensor) -> Tensor:
    """The loss times the scale."""
    return loss * self.factor.to(loss.device).reshape(())

  def unscale_(self, optimizer: Optimizer) -> None:
    """Divides the gradients by the scale: before they are clipped; else `step` does it."""
    wrong = Tensor([False], device=self.factor.device)
    for p in optimizer.params:
      if p.grad is not None:
        p.grad = p.grad.cast(dtypes.float32) / self.factor.to(p.device).reshape(())
        wrong = wrong | p.grad.isfinite().all().logical_not().to(wrong.device)
    self._found[id(optimizer)] = wrong.contiguous()

  def step(self, optimizer: Optimizer) -> None:
    """The optimiser's step, unless a gradient is infinite or NaN."""
    if id(optimizer) not in self._found:
      self.unscale_(optimizer)
    wrong = self._found[id(optimizer)]
    tensors = [*optimizer.state_dict().values(), *optimizer.params]
    before = [t.detach().clone() for t in tensors]
    others = optimizer.schedule_step()
    for t, old in zip(tensors, before, strict=True):
      t.assign(wrong.to(t.device).reshape(()).where(old, t.detach()))
    _realize([*others, *tensors, wrong])

  def update(self) -> None:
    """Changes the scale, once all optimisers have stepped."""
    if not self._found:
      raise RuntimeError("GradScaler.update() comes after step(): there is no gradient that it could look at")
    wrong = Tensor([False], device=self.factor.device)
    for found in self._found.values():
      wrong = wrong | found
    self._found.clear()
    good = wrong.where(0.0, self.good + 1).contiguous()
    grown = (good >= self.growth_interval).where(self.growth_factor, 1.0)
    self.factor.assign(self.factor * wrong.where(self.backoff_factor, grown))
    self.good.assign((good >= self.growth_interval).where(0.0, good))
    _realize([self.factor, self.good])
