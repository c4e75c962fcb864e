"""The scheduler: tensor graph (UOp) → schedule (UOp): which kernels, over which buffers, in which order."""

from typing import TYPE_CHECKING

from tiny_sched.passes import PASSES
from tiny_sched.room import Room
from tiny_sched.schedule import CacheInfo, schedule, schedule_cache_clear, schedule_cache_info
from tiny_uop.lazy import lazy_names
from tiny_uop.passes import Pass

if TYPE_CHECKING:
  from tiny_sched.constant_rules import constants_first, replaced

__all__ = [
  "CacheInfo", "PASSES", "Pass", "Room", "constants_first", "replaced", "schedule", "schedule_cache_clear",
  "schedule_cache_info",
]  # fmt: skip

# only who replays a graph with constants asks for it
__getattr__ = lazy_names(__name__, constants_first="constant_rules", replaced="constant_rules")
