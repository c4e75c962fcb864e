"""Learning rates that change while a model is trained.

A schedule writes to `optimizer.lr`, a tensor: call its `step()` after that of the optimiser, and outside of what a
`TinyJit` captures, which reads the new rate by itself.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from tiny_tensor.nn.optim import Optimizer


class LRScheduler:
  """Base of all schedules. A schedule is a subclass that defines `rate`; making one sets the rate of step 0."""

  def __init__(self, optimizer: Optimizer) -> None:
    self.optimizer, self.base_lr, self.count = optimizer, float(optimizer.lr.item()), 0
    self.set(self.rate(0))

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    raise NotImplementedError(f"{type(self).__name__} does not define rate()")

  def step(self) -> None:
    """Counts one step and sets the rate that follows."""
    self.count += 1
    self.set(self.rate(self.count))

  def set(self, lr: float) -> None:
    """Writes a rate to the optimiser."""
    self.last_lr = lr
    self.optimizer.lr.assign([lr]).realize()

  def get_last_lr(self) -> float:
    """The rate that holds now."""
    return self.last_lr


class LambdaLR(LRScheduler):
  """The first rate times `factor(number of steps)`."""

  def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
    self.factor = factor
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return self.base_lr * self.factor(count)


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


class MultiStepLR(LRScheduler):
  """The rate is multiplied by `gamma` at each of the `milestones`, numbers of steps."""

  def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
    self.milestones, self.gamma = sorted(milestones), gamma
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    return self.base_lr * self.gamma ** bisect_right(self.milestones, count)


def _cosine(start: float, end: float, share: float) -> float:
  """From `start` to `end` along half a cosine; share in [0, 1]."""
  return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


class CosineWarmupLR(LRScheduler):
  """Up from 0 in a line during `warmup_steps`, then down to `end_lr` along half a cosine until `total_steps`
  (Loshchilov & Hutter, 2017), and no further.
  """

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
  divided by `final_div_factor`, along cosines (Smith & Topin, 2018). After `total_steps` the rate stays.
  """

  def __init__(
    self,
    optimizer: Optimizer,
    max_lr: float,
    total_steps: int,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
  ) -> None:
    if total_steps <= 0 or not 0 <= pct_start <= 1:
      raise ValueError(f"total_steps={total_steps} must be positive, pct_start={pct_start} in [0, 1]")
    self.max_lr, self.total_steps, self.peak = max_lr, total_steps, pct_start * total_steps - 1
    self.first = max_lr / div_factor
    self.last = self.first / final_div_factor
    super().__init__(optimizer)

  def rate(self, count: int) -> float:
    """The learning rate after `count` steps."""
    count = min(count, self.total_steps - 1)
    if count <= self.peak:
      return _cosine(self.first, self.max_lr, count / self.peak if self.peak > 0 else 1.0)
    return _cosine(self.max_lr, self.last, (count - self.peak) / (self.total_steps - 1 - self.peak))


class ReduceLROnPlateau:
  """The rate is multiplied by `factor` once a measure has not improved for more than `patience` steps.

  `mode` "min" or "max" says what is better; better counts from a relative difference of `threshold` on. After a
  reduction nothing is counted for `cooldown` steps. The rate does not fall below `min_lr`.
  """

  def __init__(
    self,
    optimizer: Optimizer,
    mode: str = "min",
    factor: float = 0.1,
    patience: int = 10,
    threshold: float = 1e-4,
    cooldown: int = 0,
    min_lr: float = 0.0,
  ) -> None:
    if mode not in ("min", "max"):
      raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
    if not 0 < factor < 1:
      raise ValueError(f"factor must lie between 0 and 1, got {factor}")
    self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
    self.threshold, self.cooldown, self.min_lr = threshold, cooldown, min_lr
    self.last_lr = float(optimizer.lr.item())
    self.best = math.inf if mode == "min" else -math.inf
    self.bad, self.cooling = 0, 0

  def better(self, measure: float) -> bool:
    """Whether a measure is an improvement."""
    if math.isinf(self.best):
      return measure < self.best if self.mode == "min" else measure > self.best
    least = self.threshold * (-1 if self.mode == "min" else 1)
    limit = self.best * (1 + least)
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
      self.last_lr = max(self.last_lr * self.factor, self.min_lr)
      self.optimizer.lr.assign([self.last_lr]).realize()
      self.cooling, self.bad = self.cooldown, 0

  def get_last_lr(self) -> float:
    """The rate that holds now."""
    return self.last_lr
