"""Learning rates that change while a model is trained, as in `torch.optim.lr_scheduler`.

A schedule writes to `optimizer.lr`, a tensor: call its `step()` after that of the optimiser, and outside of what a
`TinyJit` captures, which reads the new rate by itself. All schedules of an optimiser start from the rate that it had
before the first of them. Rates only: momenta stay, where PyTorch's `CyclicLR` and `OneCycleLR` can change those too.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tiny_tensor.naming import known_as
from tiny_tensor.nn.optim import Optimizer


class Schedule:
  """What all have: the rate that holds, and a state to go on from."""

  optimizer: Optimizer
  last_lr: float

  def set(self, lr: float) -> None:
    """Writes a rate to the optimiser."""
    self.last_lr = lr
    self.optimizer.lr.assign([lr]).realize()

  def get_last_lr(self) -> float:
    """The rate that holds now."""
    return self.last_lr

  def state_dict(self) -> dict[str, Any]:
    """Its numbers, and the states of the schedules that it is made of; no functions and no optimiser."""
    state = {name: value for name, value in vars(self).items() if name != "optimizer" and not callable(value)}
    if (parts := state.get("schedulers")) is not None:
      state["schedulers"] = [part.state_dict() for part in parts]
    return state

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Goes on from a `state_dict`, with its rate."""
    for name, value in state_dict.items():
      if name == "schedulers":
        for part, state in zip(self.schedulers, value, strict=True):  # type: ignore[attr-defined]
          vars(part).update(state)
      else:
        setattr(self, name, value)
    self.set(self.last_lr)


class LRScheduler(Schedule):
  """Base of most schedules. A schedule is a subclass that defines `rate`; making one sets the rate of step 0."""

  chained = True
  """Whether in a chain it multiplies the rate that the others made of it, as PyTorch has it; else it sets its own."""

  def __init__(self, optimizer: Optimizer) -> None:
    if optimizer.initial_lr is None:
      optimizer.initial_lr = float(optimizer.lr.item())
    self.optimizer, self.base_lr, self.count = optimizer, optimizer.initial_lr, 0
    self.set(self.rate(0))

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    raise NotImplementedError(f"{type(self).__name__} does not define rate()")

  def following(self, lr: float) -> float:
    """The rate after `count` steps where `lr` was that before the last, or the first of all at step 0."""
    before = self.rate(self.count - 1) if self.count else self.base_lr
    return lr * self.rate(self.count) / before if self.chained and before else self.rate(self.count)

  def step(self) -> None:
    """Counts one step and sets the rate that follows."""
    self.count += 1
    self.set(self.rate(self.count))


class LambdaLR(LRScheduler):
  """The first rate times `factor(number of steps)`."""

  chained = False

  @known_as(lr_lambda="factor")
  def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
    self.factor = factor
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return self.base_lr * self.factor(count)


class MultiplicativeLR(LRScheduler):
  """The rate is multiplied by `factor(number of steps)` at each step but the first."""

  @known_as(lr_lambda="factor")
  def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
    self.factor = factor
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return self.base_lr * math.prod(self.factor(i) for i in range(1, count + 1))


class StepLR(LRScheduler):
  """The rate is multiplied by `gamma` every `step_size` steps."""

  def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
    if step_size <= 0:
      raise ValueError(f"step_size must be positive, got {step_size}")
    self.step_size, self.gamma = step_size, gamma
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return self.base_lr * self.gamma ** (count // self.step_size)


class ExponentialLR(StepLR):
  """The rate is multiplied by `gamma` at each step."""

  def __init__(self, optimizer: Optimizer, gamma: float) -> None:
    super().__init__(optimizer, 1, gamma)


class MultiStepLR(LRScheduler):
  """The rate is multiplied by `gamma` at each of the `milestones`, numbers of steps."""

  def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
    self.milestones, self.gamma = sorted(milestones), gamma
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return self.base_lr * self.gamma ** bisect_right(self.milestones, count)


class LinearLR(LRScheduler):
  """The first rate times a factor that goes from `start_factor` to `end_factor` in a line, in `total_iters` steps."""

  def __init__(
    self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
  ) -> None:
    if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
      raise ValueError(f"start_factor={start_factor} must lie in (0, 1], end_factor={end_factor} in [0, 1]")
    self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    share = min(count, self.total_iters) / self.total_iters
    return self.base_lr * (self.start_factor + (self.end_factor - self.start_factor) * share)


class ConstantLR(LRScheduler):
  """The first rate times `factor` for `total_iters` steps, then the first rate."""

  def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
    if not 0 <= factor <= 1:
      raise ValueError(f"factor must lie in [0, 1], got {factor}")
    self.factor, self.total_iters = factor, total_iters
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return self.base_lr * (self.factor if count < self.total_iters else 1)


class PolynomialLR(LRScheduler):
  """The first rate times `(1 - steps / total_iters) ** power`, 0 after `total_iters` steps."""

  def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
    self.total_iters, self.power = total_iters, power
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return float(self.base_lr * (1 - min(count, self.total_iters) / self.total_iters) ** self.power)


def _cosine(start: float, end: float, share: float) -> float:
  """From `start` to `end` along half a cosine; share in [0, 1]."""
  return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def _line(start: float, end: float, share: float) -> float:
  return start + (end - start) * share


class CosineAnnealingLR(LRScheduler):
  """Down to `eta_min` along half a cosine in `T_max` steps (Loshchilov & Hutter, 2017), up again in as many,
  and so on."""

  def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
    self.T_max, self.eta_min = T_max, eta_min
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return _cosine(self.base_lr, self.eta_min, count / self.T_max)

  def following(self, lr: float) -> float:
    """PyTorch's: what is above `eta_min` is multiplied, and at the lowest point begins anew."""
    if self.count == 0:
      return lr
    before, now = (1 + math.cos(math.pi * c / self.T_max) for c in (self.count - 1, self.count))
    if (self.count - 1 - self.T_max) % (2 * self.T_max) == 0:
      return lr + (self.base_lr - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
    return now / before * (lr - self.eta_min) + self.eta_min


class CosineAnnealingWarmRestarts(LRScheduler):
  """Down to `eta_min` along half a cosine in `T_0` steps, then from the first rate again, each time in `T_mult` times
  as many steps (Loshchilov & Hutter, 2017).
  """

  chained = False

  def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:
    if T_0 <= 0 or T_mult < 1:
      raise ValueError(f"T_0={T_0} must be positive, T_mult={T_mult} at least 1")
    self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    length = self.T_0
    while count >= length:
      count, length = count - length, length * self.T_mult
    return _cosine(self.base_lr, self.eta_min, count / length)


class CosineWarmupLR(LRScheduler):
  """Up from 0 in a line during `warmup_steps`, then down to `end_lr` along half a cosine until `total_steps`
  (Loshchilov & Hutter, 2017), and no further.
  """

  chained = False

  def __init__(self, optimizer: Optimizer, warmup_steps: int, total_steps: int, end_lr: float = 0.0) -> None:
    if not 0 <= warmup_steps < total_steps:
      raise ValueError(f"warmup_steps={warmup_steps} must be between 0 and total_steps={total_steps}")
    self.warmup_steps, self.total_steps, self.end_lr = warmup_steps, total_steps, end_lr
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    if count < self.warmup_steps:
      return self.base_lr * count / self.warmup_steps
    share = (count - self.warmup_steps) / (self.total_steps - self.warmup_steps)
    return _cosine(self.base_lr, self.end_lr, min(share, 1.0))


class OneCycleLR(LRScheduler):
  """From `max_lr / div_factor` up to `max_lr` in the share `pct_start` of the steps, then down to the first rate
  divided by `final_div_factor`, along cosines or lines (`anneal_strategy` "cos" or "linear"; Smith & Topin, 2018). With
  `three_phase` down to the first rate in as many steps as up, then on. After `total_steps` the rate stays.
  """

  chained = False

  def __init__(
    self,
    optimizer: Optimizer,
    max_lr: float,
    total_steps: int,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
    anneal_strategy: str = "cos",
    three_phase: bool = False,
  ) -> None:
    if total_steps <= 0 or not 0 <= pct_start <= 1:
      raise ValueError(f"total_steps={total_steps} must be positive, pct_start={pct_start} in [0, 1]")
    if anneal_strategy not in ("cos", "linear"):
      raise ValueError(f"anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}")
    first, peak, last = max_lr / div_factor, pct_start * total_steps - 1, total_steps - 1
    middle = [(2 * peak, first)] if three_phase else []
    self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
    self.points = [(0.0, first), (peak, max_lr), *middle, (last, first / final_div_factor)]
    """(step, rate) where a phase ends and the next begins."""
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    count = min(count, self.total_steps - 1)
    between = _cosine if self.anneal_strategy == "cos" else _line
    for (start, a), (end, b) in zip(self.points, self.points[1:]):
      if count <= end:
        return between(a, b, (count - start) / (end - start) if end > start else 1.0)
    return self.points[-1][1]


class CyclicLR(LRScheduler):
  """From `base_lr` to `max_lr` in `step_size_up` steps and back in `step_size_down` (by default as many), in lines, and
  so on (Smith, 2017). `mode` "triangular2" halves what is above `base_lr` each time, "exp_range" multiplies it by
  `gamma` at each step; or `scale_fn` says the factor, of the number of the cycle or (`scale_mode` "iterations") step.
  """

  chained = False

  def __init__(
    self,
    optimizer: Optimizer,
    base_lr: float,
    max_lr: float,
    step_size_up: int = 2000,
    step_size_down: int | None = None,
    mode: str = "triangular",
    gamma: float = 1.0,
    scale_fn: Callable[[float], float] | None = None,
    scale_mode: str = "cycle",
  ) -> None:
    if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
      raise ValueError(f"mode must be 'triangular', 'triangular2' or 'exp_range', got {mode!r}")
    self.low, self.high, self.mode, self.gamma = base_lr, max_lr, mode, gamma
    self.up, self.length = step_size_up, step_size_up + (step_size_up if step_size_down is None else step_size_down)
    self.scale_fn, self.scale_mode = scale_fn, scale_mode
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    cycle, place = divmod(count, self.length)
    share = place / self.up if place <= self.up else (self.length - place) / (self.length - self.up)
    if self.scale_fn is not None:
      factor = self.scale_fn(cycle + 1 if self.scale_mode == "cycle" else count)
    else:
      factor = {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**count}[self.mode]
    return self.low + (self.high - self.low) * share * factor


class SequentialLR(LRScheduler):
  """One schedule after the other: the next begins, at its step 0, at each of the `milestones`, numbers of steps."""

  chained = False

  def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
    if len(milestones) != len(schedulers) - 1:
      raise ValueError(f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones, got {len(milestones)}")
    self.schedulers, self.milestones = list(schedulers), list(milestones)
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    which = bisect_right(self.milestones, count)
    return self.schedulers[which].rate(count - self.milestones[which - 1] if which else count)


class ChainedScheduler(Schedule):
  """Several schedules at once: each multiplies what the ones before it make of the rate, those that PyTorch writes as
  products; the others set theirs.
  """

  def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
    if not schedulers or any(s.optimizer is not schedulers[0].optimizer for s in schedulers):
      raise ValueError("ChainedScheduler needs schedules, all of the same optimiser")
    self.schedulers, self.optimizer = list(schedulers), schedulers[0].optimizer
    self.set(self._made(self.schedulers[0].base_lr))

  def _made(self, lr: float) -> float:
    for s in self.schedulers:
      lr = s.following(lr)
    return lr

  def step(self) -> None:
    """Counts one step and sets the rate that follows."""
    for s in self.schedulers:
      s.count += 1
    self.set(self._made(self.last_lr))


class ReduceLROnPlateau(Schedule):
  """The rate is multiplied by `factor` once a measure has not improved for more than `patience` steps.

  `mode` "min" or "max" says what is better; better counts from a difference of `threshold` on, relative or
  (`threshold_mode` "abs") absolute. After a reduction nothing is counted for `cooldown` steps. The rate does not fall
  below `min_lr`, nor by less than `eps`.
  """

  def __init__(
    self,
    optimizer: Optimizer,
    mode: str = "min",
    factor: float = 0.1,
    patience: int = 10,
    threshold: float = 1e-4,
    threshold_mode: str = "rel",
    cooldown: int = 0,
    min_lr: float = 0.0,
    eps: float = 1e-8,
  ) -> None:
    if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
      raise ValueError(
        f"mode must be 'min' or 'max', threshold_mode 'rel' or 'abs', got {mode!r} and {threshold_mode!r}"
      )
    if not 0 < factor < 1:
      raise ValueError(f"factor must lie between 0 and 1, got {factor}")
    self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
    self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
    self.min_lr, self.eps = min_lr, eps
    self.last_lr = float(optimizer.lr.item())
    self.best = math.inf if mode == "min" else -math.inf
    self.bad, self.cooling = 0, 0

  def better(self, measure: float) -> bool:
    """Whether a measure is an improvement."""
    sign = -1 if self.mode == "min" else 1
    scale = self.best if self.threshold_mode == "rel" and not math.isinf(self.best) else 1.0
    limit = self.best + sign * self.threshold * scale
    return measure < limit if self.mode == "min" else measure > limit

  def step(self, measure: float) -> None:
    """Takes the measure after a step, and reduces the rate where it is time to."""
    if self.better(measure):
      self.best, self.bad = measure, 0
    else:
      self.bad += 1
    if self.cooling > 0:
      self.cooling, self.bad = self.cooling - 1, 0
    if self.bad > self.patience:
      if self.last_lr - (lr := max(self.last_lr * self.factor, self.min_lr)) > self.eps:
        self.set(lr)
      self.cooling, self.bad = self.cooldown, 0
