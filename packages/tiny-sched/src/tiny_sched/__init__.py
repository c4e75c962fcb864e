"""The scheduler: tensor graph (UOp) → schedule (UOp): which kernels, over which buffers, in which order."""

from tiny_sched.passes import PASSES
from tiny_sched.schedule import CacheInfo, schedule, schedule_cache_clear, schedule_cache_info
from tiny_uop.passes import Pass

__all__ = ["CacheInfo", "PASSES", "Pass", "schedule", "schedule_cache_clear", "schedule_cache_info"]
