"""Totals over everything that ran in this process."""

from __future__ import annotations

from tiny_uop.locks import shared_lock


class Counters:
  """Totals since the start or the last `reset`. The one instance is `GlobalCounters`."""

  kernel_count: int
  """Kernels launched and copies made."""
  global_ops: int
  """Arithmetic operations, as estimated by the compilers."""
  global_mem: int
  """Bytes of memory touched, as estimated by the compilers."""
  time_sum_s: float
  """Seconds in kernels and copies; counted only where they are waited for (DEBUG ≥ 2, profiles)."""
  peer_bytes: int
  """Bytes that were copied from one device that computes to another, directly."""
  host_bytes: int
  """Bytes that were copied so by way of the host."""
  mem_used: int
  """Bytes of device memory held by buffers now. Not touched by `reset`."""

  def __init__(self) -> None:
    self._lock = shared_lock()
    self.mem_used = 0
    self.reset()

  def reset(self) -> None:
    """Set all but `mem_used` to zero."""
    with self._lock:
      self.kernel_count, self.global_ops, self.global_mem, self.time_sum_s = 0, 0, 0, 0.0
      self.peer_bytes, self.host_bytes = 0, 0

  def count(self, kernels: int, ops: int, nbytes: int, seconds: float) -> None:
    """Add launches to the totals."""
    self._lock.acquire()  # `with` takes twice as long
    try:
      self.kernel_count += kernels
      self.global_ops += ops
      self.global_mem += nbytes
      self.time_sum_s += seconds
    finally:
      self._lock.release()

  def count_copy(self, nbytes: int, direct: bool) -> None:
    """Add the bytes of a copy between two devices that compute."""
    with self._lock:
      if direct:
        self.peer_bytes += nbytes
      else:
        self.host_bytes += nbytes

  def hold(self, nbytes: int) -> None:
    """Memory was taken (positive) or given back (negative)."""
    with self._lock:
      self.mem_used += nbytes

  def __repr__(self) -> str:
    totals = f"kernel_count={self.kernel_count}, global_ops={self.global_ops}, global_mem={self.global_mem}"
    copies = f"peer_bytes={self.peer_bytes}, host_bytes={self.host_bytes}"
    return f"GlobalCounters({totals}, time_sum_s={self.time_sum_s:.6f}, {copies}, mem_used={self.mem_used})"


GlobalCounters = Counters()
"""What ran since `GlobalCounters.reset()`: kernels, operations, bytes, seconds; and the memory in use."""
