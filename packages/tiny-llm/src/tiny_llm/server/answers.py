"""Answers of the worker, awaited: one by one, or several that make one response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.requests import Request

from tiny_llm import generate
from tiny_llm.generate import Piece
from tiny_llm.server.body import Refused
from tiny_llm.server.worker import Job, Worker, milliseconds

__all__ = ["Answer", "Ended", "timings", "total", "whole"]


class Ended(RuntimeError):
  """An answer that the server itself ended."""


class Answer:
  """One request at the worker, as an asynchronous stream of its pieces."""

  def __init__(self, worker: Worker, request: generate.Request) -> None:
    self._worker, self._loop = worker, asyncio.get_running_loop()
    self._pieces: asyncio.Queue[Piece] = asyncio.Queue()
    self.job = Job(request, self._deliver)
    self.finish: str | None = None

  def _deliver(self, pieces: Sequence[Piece]) -> None:
    for piece in pieces:
      try:
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
      except RuntimeError:  # the loop has been closed: nobody waits any more
        return

  async def next(self) -> Piece:
    piece = await self._pieces.get()
    self.finish = piece.finish
    if piece.finish == "cancelled":
      raise Ended("the server is being stopped")
    if piece.finish == "error":
      assert self.job.generation is not None
      raise RuntimeError(f"the model failed: {self.job.generation.error}")
    return piece

  def __aiter__(self) -> AsyncIterator[Piece]:
    return self._all()

  async def _all(self) -> AsyncIterator[Piece]:
    while self.finish is None:
      yield await self.next()

  def close(self) -> None:
    """Nobody wants it any more."""
    if self.finish is None:
      self._worker.cancel(self.job)

  def usage(self) -> dict[str, Any]:
    done = self.job.generation
    assert done is not None
    prompt, count = len(done.prompt), len(done.generated)
    return {
      "prompt_tokens": prompt,
      "completion_tokens": count,
      "total_tokens": prompt + count,
      "prompt_tokens_details": {"cached_tokens": done.cached},
    }


async def whole(
  request: Request, answers: list[Answer], choice: Callable[[int, list[Piece]], dict[str, Any]]
) -> list[dict[str, Any]]:
  """All choices when they are complete; or nothing, if the client goes before."""

  async def pieces(answer: Answer) -> list[Piece]:
    return [piece async for piece in answer]

  leaves: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
  made: asyncio.Future[list[list[Piece]]] = asyncio.gather(*map(pieces, answers))
  made.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at, whoever else does
  try:
    await asyncio.wait([leaves, made], return_when=asyncio.FIRST_COMPLETED)
    if not made.done():
      raise Refused("the client has gone", status=499)
    return [choice(at, found) for at, found in enumerate(made.result())]
  finally:
    for task in (leaves, made):
      task.cancel()
    for answer in answers:
      answer.close()


async def _gone(request: Request) -> None:
  while (await request.receive())["type"] != "http.disconnect":
    pass


def total(answers: list[Answer]) -> dict[str, Any]:
  """The usage of several answers; choices of one prompt count it once."""
  found = [answer.usage() for answer in answers]
  seen, prompt, cached = set(), 0, 0
  for answer, usage in zip(answers, found, strict=True):
    if (key := id(answer.job.request.tokens)) not in seen:
      seen.add(key)
      prompt += usage["prompt_tokens"]
      cached += usage["prompt_tokens_details"]["cached_tokens"]
  count = sum(usage["completion_tokens"] for usage in found)
  details = {"cached_tokens": cached}
  return {
    "prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count,
    "prompt_tokens_details": details,
  }  # fmt: skip


def timings(answers: list[Answer]) -> dict[str, float]:
  """The times of the first of several answers."""
  generation = answers[0].job.generation
  assert generation is not None
  return milliseconds(generation)
