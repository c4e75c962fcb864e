"""Settings of this plugin, with the others in the one table of `tiny_uop.context`."""

from __future__ import annotations

from tiny_runtime_cpu.host import cpu_limit
from tiny_uop import ContextVar

CPU_COUNT = ContextVar(
  "CPU_COUNT", 0, "how many threads CPU kernels use; 0: as many as the process may (affinity mask, cgroup quota)"
)
CPU_AFFINITY = ContextVar(
  "CPU_AFFINITY",
  1,
  "1: threads of CPU kernels have processors of their own (Linux); 0: they run where the system likes",
)

_limit = 0


def thread_count() -> int:
  """Threads to use now, at least 1."""
  global _limit
  if CPU_COUNT.value > 0:
    return CPU_COUNT.value
  _limit = _limit or cpu_limit()
  return _limit
