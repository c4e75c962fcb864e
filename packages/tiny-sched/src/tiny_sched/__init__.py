"""The scheduler: tensor graph (UOp) → schedule (UOp): which kernels, over which buffers, in which order."""

from tiny_sched.constant_rules import constants_first, replaced
from tiny_sched.passes import PASSES
from tiny_sched.schedule import CacheInfo, schedule, schedule_cache_clear, schedule_cache_info
from tiny_uop.passes import Pass

__all__ = [
  "CacheInfo", "PASSES", "Pass", "constants_first", "replaced", "schedule", "schedule_cache_clear",
  "schedule_cache_info",
]  # fmt: skip
