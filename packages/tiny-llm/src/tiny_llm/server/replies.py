"""Answers as OpenAI's API tells them: choices of a whole response, and the chunks of a stream."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from tiny_llm.generate import Piece
from tiny_llm.sampling import TokenLogprob
from tiny_llm.server.answers import Answer, timings, total
from tiny_llm.server.tools import Splitter
from tiny_llm.text.tokenizer import Tokenizer

__all__ = ["ChatStream", "Choices", "Reply", "TextStream", "streamed"]

PING = 15.0
"""Seconds without a word, after which a stream gets a comment, so that nobody in between takes it for dead."""


class Reply:
  """The parts of a completion that are the same in all its chunks."""

  def __init__(self, name: str, prefix: str, kind: str) -> None:
    self.fixed = {
      "id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": name,
    }  # fmt: skip

  def with_(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {**self.fixed, "choices": choices, **more}


class Choices:
  """The choices of a response: what was said, with the texts of tokens that are told beside it."""

  def __init__(self, tokenizer: Tokenizer) -> None:
    self._tokenizer = tokenizer

  def chat(self, at: int, pieces: list[Piece], splitter: Splitter, top: int | None) -> dict[str, Any]:
    found = [item for piece in pieces for item in splitter.push(piece.text)] + splitter.end()
    texts = {kind: "".join(value for k, value in found if k == kind) for kind in ("content", "reasoning")}
    calls = [{k: v for k, v in value.items() if k != "index"} for kind, value in found if kind == "call"]
    said = texts["content"].strip("\n") if calls else texts["content"]
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if calls:
      message["content"] = message["content"] or None
      message["tool_calls"] = calls
    if texts["reasoning"]:
      message["reasoning_content"] = texts["reasoning"].strip("\n")
    finish = "tool_calls" if calls and pieces[-1].finish == "stop" else pieces[-1].finish
    logprobs = None if top is None else {"content": [self.logprob(item) for p in pieces for item in p.logprobs]}
    return {"index": at, "message": message, "logprobs": logprobs, "finish_reason": finish}

  def text(self, at: int, pieces: list[Piece]) -> dict[str, Any]:
    found = [item for piece in pieces for item in piece.logprobs]
    return {
      "index": at,
      "text": "".join(piece.text for piece in pieces),
      "logprobs": self.text_logprobs(found) if found else None,
      "finish_reason": pieces[-1].finish,
    }

  def logprob(self, item: TokenLogprob) -> dict[str, Any]:
    def entry(token: int, value: float) -> dict[str, Any]:
      data = self._tokenizer.piece(token, special=True)
      # JSON has no infinity; OpenAI's servers write this for tokens that cannot be
      return {"token": data.decode("utf-8", "replace"), "logprob": max(value, -9999.0), "bytes": list(data)}

    return {**entry(item.token, item.logprob), "top_logprobs": [entry(*other) for other in item.top]}

  def text_logprobs(self, items: list[TokenLogprob]) -> dict[str, Any]:
    entries = [self.logprob(item) for item in items]
    offsets = [0]
    for entry in entries:
      offsets.append(offsets[-1] + len(entry["token"]))
    return {
      "tokens": [entry["token"] for entry in entries],
      "token_logprobs": [entry["logprob"] for entry in entries],
      "top_logprobs": [{o["token"]: o["logprob"] for o in entry["top_logprobs"]} for entry in entries],
      "text_offset": offsets[:-1],
    }


class ChatStream:
  """The chunks of a chat completion."""

  def __init__(
    self, choices: Choices, reply: Reply, answers: list[Answer], splitters: list[Splitter], usage: bool
  ) -> None:  # fmt: skip
    self.choices, self.reply, self.answers, self.splitters, self.usage = choices, reply, answers, splitters, usage

  def first(self) -> list[dict[str, Any]]:
    delta = {"role": "assistant", "content": ""}
    return [self._chunk(at, delta) for at in range(len(self.answers))]

  def chunks(self, at: int, piece: Piece) -> list[dict[str, Any]]:
    splitter = self.splitters[at]
    found = splitter.push(piece.text) + (splitter.end() if piece.finish is not None else [])
    made = []
    for kind, value in found:
      delta = {
        "content": {"content": value}, "reasoning": {"reasoning_content": value}, "call": {"tool_calls": [value]},
      }[kind]  # fmt: skip
      made.append(self._chunk(at, delta))
    if piece.logprobs:
      if not made:
        made.append(self._chunk(at, {"content": ""}))
      made[0]["choices"][0]["logprobs"] = {"content": [self.choices.logprob(item) for item in piece.logprobs]}
    if piece.finish is not None:
      finish = "tool_calls" if splitter.calls and piece.finish == "stop" else piece.finish
      made.append(self._chunk(at, {}, finish))
    return made

  def _chunk(self, at: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return self.reply.with_([{"index": at, "delta": delta, "logprobs": None, "finish_reason": finish}])


class TextStream:
  """The chunks of a completion."""

  def __init__(self, choices: Choices, reply: Reply, answers: list[Answer], usage: bool) -> None:
    self.choices, self.reply, self.answers, self.usage = choices, reply, answers, usage

  def first(self) -> list[dict[str, Any]]:
    return []

  def chunks(self, at: int, piece: Piece) -> list[dict[str, Any]]:
    return [self.reply.with_([self.choices.text(at, [piece])])]


def streamed(answers: list[Answer], stream: ChatStream | TextStream) -> Response:
  headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
  return StreamingResponse(_events(answers, stream), media_type="text/event-stream", headers=headers)


async def _events(answers: list[Answer], stream: ChatStream | TextStream) -> AsyncIterator[str]:
  """Server-sent events. When the client goes, this is closed, and what is not complete is cancelled."""
  queue: asyncio.Queue[tuple[int, Piece | Exception]] = asyncio.Queue()

  async def pump(at: int, answer: Answer) -> None:
    try:
      async for piece in answer:
        await queue.put((at, piece))
    except RuntimeError as error:
      await queue.put((at, error))

  tasks = [asyncio.ensure_future(pump(at, answer)) for at, answer in enumerate(answers)]
  try:
    for chunk in stream.first():
      yield _event(chunk)
    left = len(answers)
    while left:
      try:
        at, piece = await asyncio.wait_for(queue.get(), PING)
      except TimeoutError:
        yield ": still here\n\n"
        continue
      if isinstance(piece, Exception):
        yield _event({"error": {"message": str(piece), "type": "server_error", "param": None, "code": None}})
        return
      left -= piece.finish is not None
      for chunk in stream.chunks(at, piece):
        if not left and piece.finish is not None and chunk["choices"][0]["finish_reason"] is not None:
          chunk["timings"] = timings(answers)
        yield _event(chunk)
    if stream.usage:
      yield _event(stream.reply.with_([], usage=total(answers)))
    yield "data: [DONE]\n\n"
  finally:
    for task in tasks:
      task.cancel()
    for answer in answers:
      answer.close()


def _event(chunk: dict[str, Any]) -> str:
  return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
