"""The thread that owns the model: it takes requests from other threads, and gives their pieces back."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from tiny_llm.generate import Engine, Generation, Piece, Request
from tiny_uop.locks import shared_lock

__all__ = ["Busy", "Job", "Worker"]


MOMENT = 0.3
"""Seconds without a request after which what may wait is done: programs ask as soon as the server says that it is
there, and people do not."""


class Busy(Exception):
  """There are as many requests as may wait."""


class Job:
  """A request at the worker. `deliver` is called in the worker's thread with pieces as they come; the last one has a
  `finish`. `generation` is there when the worker has seen the request."""

  def __init__(self, request: Request, deliver: Callable[[Sequence[Piece]], None]) -> None:
    self.request, self.deliver = request, deliver
    self.generation: Generation | None = None


class Worker:
  """Answers requests in a thread of its own; at most `queue` of them beside those that have a slot.

  `counts` are those of `/metrics`, since the start.
  """

  def __init__(self, engine: Engine, *, queue: int = 64) -> None:
    self.engine, self.queue = engine, queue
    self.counts: Counter[str] = Counter()
    self.seconds = {"prompt": 0.0, "predicted": 0.0}
    self._inbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
    self._jobs: list[Job] = []
    self._idle: deque[Callable[[], object]] = deque()
    self._pending = 0
    self._lock = shared_lock()
    self._thread = threading.Thread(target=self._work, name="tiny-llm", daemon=True)
    self._thread.start()

  @property
  def running(self) -> int:
    """Requests that have a slot."""
    return len(self.engine.running)

  @property
  def waiting(self) -> int:
    """Requests that have none yet."""
    return max(self._pending - self.running, 0)

  def submit(self, jobs: Sequence[Job]) -> None:
    """Takes jobs, all or none. Raises Busy; and for a request that the model cannot answer what `Engine.check`
    raises."""
    for job in jobs:
      self.engine.check(job.request)
    with self._lock:
      if self._pending + len(jobs) > self.queue + self.engine.model.slots:
        self.counts["rejected"] += len(jobs)
        raise Busy(f"{self._pending} requests are being answered or wait: try again later")
      self._pending += len(jobs)
    for job in jobs:
      self._inbox.put(lambda job=job: self._begin(job))  # type: ignore[misc]

  def cancel(self, job: Job) -> None:
    """Ends a job, if it has not ended; its slot is free after the step that is being taken."""
    self._inbox.put(lambda: self._cancel(job))

  def cancel_all(self) -> None:
    """Ends all jobs that were submitted."""

    def cancel() -> None:
      for job in self._jobs:
        self._cancel(job)

    self._inbox.put(cancel)

  def call(self, function: Callable[[], object]) -> None:
    """Runs `function` in the thread of the model, between two steps."""
    self._inbox.put(function)

  def call_when_idle(self, functions: Sequence[Callable[[], object]]) -> None:
    """Runs each of `functions` in the thread of the model when nobody has asked for a moment; none after one fails."""
    self.call(lambda: self._idle.extend(functions))

  def close(self) -> None:
    """Ends all jobs, and the thread."""
    self._inbox.put(None)
    self._thread.join()

  def _begin(self, job: Job) -> None:
    job.generation = self.engine.submit(job.request)
    self._jobs.append(job)

  def _cancel(self, job: Job) -> None:
    if job.generation is not None:
      self.engine.cancel(job.generation)

  def _end(self, job: Job) -> None:
    with self._lock:
      self._pending -= 1
    self.counts["requests"] += 1
    done = job.generation
    assert done is not None
    self.counts[f"finished_{done.finish}"] += 1
    self.counts["prompt_tokens"] += len(done.prompt)
    self.counts["cached_tokens"] += done.cached
    self.counts["generated_tokens"] += len(done.generated)
    if done.first_token:
      self.seconds["prompt"] += done.first_token - done.started
      self.seconds["predicted"] += done.ended - done.first_token

  def _work(self) -> None:
    while True:
      try:
        task = self._inbox.get(block=not self._jobs, timeout=MOMENT if self._idle else None)
      except Empty:
        self._step() if self._jobs else self._use_idle_time()
        continue
      if task is None:
        break
      task()
      self._deliver()
    for job in self._jobs:
      if job.generation is not None:
        self.engine.cancel(job.generation)
    self._deliver()

  def _use_idle_time(self) -> None:
    try:
      self._idle.popleft()()
    except Exception:  # whoever asks for the same will be told
      self._idle.clear()

  def _step(self) -> None:
    try:
      self.engine.step()
    except Exception as error:  # no fault of one request: all that run end, and the thread goes on
      for job in self._jobs:
        if job.generation is not None:
          job.generation.stopped("error", error)
          self.engine.cancel(job.generation)
    self._deliver()

  def _deliver(self) -> None:
    for job in list(self._jobs):
      assert job.generation is not None
      pieces = job.generation.take()
      if job.generation.finish is not None:
        self._jobs.remove(job)
        self._end(job)
      if pieces:
        job.deliver(pieces)


def milliseconds(generation: Generation) -> dict[str, float]:
  """How long the parts of an answer took, as llama.cpp's server says it."""
  first = generation.first_token or generation.ended or time.perf_counter()
  read, count = len(generation.prompt) - generation.cached, len(generation.generated)
  prompt, predicted = max(first - generation.started, 1e-6), max((generation.ended or first) - first, 1e-6)
  return {
    "cache_n": generation.cached,
    "prompt_n": read,
    "prompt_ms": 1e3 * prompt,
    "prompt_per_second": read / prompt,
    "predicted_n": count,
    "predicted_ms": 1e3 * predicted,
    "predicted_per_second": max(count - 1, 0) / predicted,
  }
