"""The server: OpenAI's API over HTTP, answered by a `Worker`."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tiny_llm import generate
from tiny_llm.generate import ContextExceeded, Piece
from tiny_llm.sampling import TokenLogprob
from tiny_llm.schema import CallGrammar, SchemaError, SchemaGrammar, Schemas
from tiny_llm.server.body import Body, Refused, parsed
from tiny_llm.server.tools import Splitter, Tools, form_of, tools_of, with_instructions
from tiny_llm.server.worker import Busy, Job, Worker, milliseconds
from tiny_llm.session import Session
from tiny_llm.text.template import ChatTemplateError

__all__ = ["create_app"]

LARGEST = 16 << 20
"""Bytes of a body."""
PING = 15.0
"""Seconds without a word, after which a stream gets a comment, so that nobody in between takes it for dead."""
ROLES = ("system", "developer", "user", "assistant", "tool")


def create_app(
  session: Session, *, api_key: str | None = None, origins: Sequence[str] = (), hosts: Sequence[str] = ("*",),
  queue: int = 64,
) -> Starlette:  # fmt: skip
  """The application for `session`, whose model then belongs to its worker. `api_key`: asked of everyone but for
  `/health` and the page. `origins` of other pages whose scripts may ask; none by default. `hosts`: names by which the
  server may be called. `queue`: requests that may wait; more get 503. `app.state.server.close()` ends the worker."""
  server = Server(session, api_key, queue)
  routes = [
    Route("/", server.page),
    Route("/health", server.health),
    Route("/metrics", server.metrics),
    Route("/v1/models", server.models),
    Route("/v1/models/{name:path}", server.model),
    Route("/v1/chat/completions", server.chat, methods=["POST"]),
    Route("/v1/completions", server.completions, methods=["POST"]),
    Route("/v1/embeddings", server.embeddings, methods=["POST"]),
    Route("/tokenize", server.tokenize, methods=["POST"]),
    Route("/detokenize", server.detokenize, methods=["POST"]),
  ]
  allowed = Middleware(
    CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"],
    allow_headers=["authorization", "content-type"],
  )  # fmt: skip
  app = Starlette(
    routes=routes,
    middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)), *([allowed] if origins else [])],
    exception_handlers={
      Refused: refused, HTTPException: missing, Busy: busy, ContextExceeded: too_long, ChatTemplateError: wrong,
      ClientDisconnect: gone, Ended: ended, Exception: failed,
    },
  )  # fmt: skip
  app.state.server = server
  return app


def refused(request: Request, error: Exception) -> Response:
  assert isinstance(error, Refused)
  return JSONResponse({"error": error.error}, error.status)


def missing(request: Request, error: Exception) -> Response:
  assert isinstance(error, HTTPException)
  kind = "invalid_request_error"
  message = f"{request.method} {request.url.path}: {error.detail}"
  return JSONResponse(
    {"error": {"message": message, "type": kind, "param": None, "code": None}}, error.status_code, error.headers
  )


def busy(request: Request, error: Exception) -> Response:
  body = {"message": str(error), "type": "server_error", "param": None, "code": "overloaded"}
  return JSONResponse({"error": body}, 503, {"Retry-After": "1"})


def too_long(request: Request, error: Exception) -> Response:
  return refused(request, Refused(str(error), "messages", code="context_length_exceeded"))


def wrong(request: Request, error: Exception) -> Response:
  return refused(request, Refused(str(error)))


def ended(request: Request, error: Exception) -> Response:
  return refused(request, Refused(str(error), status=503, code="stopped", kind="server_error"))


def gone(request: Request, error: Exception) -> Response:
  return Response(status_code=499)  # which nobody reads


def failed(request: Request, error: Exception) -> Response:
  message = f"{type(error).__name__}: {error}"
  return JSONResponse({"error": {"message": message, "type": "server_error", "param": None, "code": None}}, 500)


class Ended(RuntimeError):
  """An answer that the server itself ended."""


class Answer:
  """One request at the worker, as an asynchronous stream of its pieces."""

  def __init__(self, server: Server, request: generate.Request) -> None:
    self._server, self._loop = server, asyncio.get_running_loop()
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
      self._server.worker.cancel(self.job)

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


class Reply:
  """The parts of a completion that are the same in all its chunks."""

  def __init__(self, server: Server, prefix: str, kind: str) -> None:
    self.fixed = {
      "id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": server.session.name,
    }  # fmt: skip

  def with_(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {**self.fixed, "choices": choices, **more}


class Server:
  """The handlers of the routes."""

  def __init__(self, session: Session, api_key: str | None, queue: int) -> None:
    self.session, self.api_key = session, api_key
    self.worker = Worker(session.engine, queue=queue)
    self.began = time.time()
    self._schemas: Schemas | None = None
    self._lock = Lock()

  def close(self) -> None:
    """Ends what is being answered, and the worker."""
    self.worker.close()

  # *** what is not an answer ***

  async def page(self, request: Request) -> Response:
    text = files("tiny_llm.server").joinpath("page.html").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    return HTMLResponse(text, headers={"Content-Security-Policy": f"{policy}; frame-ancestors 'none'; base-uri 'none'"})

  async def health(self, request: Request) -> Response:
    return JSONResponse({"status": "ok"})

  async def metrics(self, request: Request) -> Response:
    self.check_key(request)
    worker, lines = self.worker, []
    for name, help in METRICS.items():
      lines += [f"# HELP tiny_llm_{name}_total {help}", f"# TYPE tiny_llm_{name}_total counter"]
      value = worker.seconds[name.partition("_")[0]] if name.endswith("_seconds") else worker.counts[name]
      lines.append(f"tiny_llm_{name}_total {value:g}" if isinstance(value, float) else f"tiny_llm_{name}_total {value}")
    for name, help, value in [
      ("running", "requests that have a slot", worker.running),
      ("waiting", "requests that have none yet", worker.waiting),
      ("slots", "requests that can be answered at once", self.session.engine.model.slots),
    ]:
      lines += [f"# HELP tiny_llm_{name} {help}", f"# TYPE tiny_llm_{name} gauge", f"tiny_llm_{name} {value}"]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

  def model_card(self) -> dict[str, Any]:
    engine = self.session.engine
    meta = {"n_ctx": engine.model.context, "n_vocab": engine.model.config.vocabulary, "n_slots": engine.model.slots}
    meta["n_ctx_train"] = engine.model.config.context
    return {
      "id": self.session.name, "object": "model", "created": int(self.began), "owned_by": "tiny-llm", "meta": meta,
    }  # fmt: skip

  async def models(self, request: Request) -> Response:
    self.check_key(request)
    return JSONResponse({"object": "list", "data": [self.model_card()]})

  async def model(self, request: Request) -> Response:
    self.check_key(request)
    self.check_model(request.path_params["name"])
    return JSONResponse(self.model_card())

  async def tokenize(self, request: Request) -> Response:
    body = await self.body(request)
    text = body.text("content")
    special, parse = body.flag("add_special"), body.flag("parse_special")
    pieces = body.flag("with_pieces")
    body.done()
    if text is None:
      raise Refused("content is missing: expected text", "content")
    tokenizer = self.session.tokenizer
    tokens = tokenizer.encode(text, add_special=special, parse_special=parse)
    if not pieces:
      return JSONResponse({"tokens": tokens})
    return JSONResponse({"tokens": [{"id": token, "piece": self.piece(token)} for token in tokens]})

  async def detokenize(self, request: Request) -> Response:
    body = await self.body(request)
    tokens = body.take("tokens")
    body.done()
    count = len(self.session.tokenizer)
    if not isinstance(tokens, list) or not all(type(token) is int and 0 <= token < count for token in tokens):
      raise Refused(f"tokens: expected a list of integers from 0 to {count - 1}", "tokens")
    return JSONResponse({"content": self.session.tokenizer.decode(tokens, special=True)})

  def piece(self, token: int) -> str | list[int]:
    """The text of a token, or its bytes where they are a part of a character."""
    data = self.session.tokenizer.piece(token, special=True)
    try:
      return data.decode("utf-8")
    except UnicodeDecodeError:
      return list(data)

  async def embeddings(self, request: Request) -> Response:
    body = await self.body(request)
    self.check_model(body.text("model"))
    prompts, form = self.prompts(body.take("input"), "input"), body.text("encoding_format", "float")
    body.neutral(dimensions=(self.session.engine.model.config.dim,))
    body.done()
    if form not in ("float", "base64"):
      raise Refused(f"encoding_format is {form!r:.60}: expected float or base64", "encoding_format")
    if len(prompts) > 256:
      raise Refused(f"input has {len(prompts)} texts: expected 256 at most", "input")
    answers = [Answer(self, generate.Request(tokens, embed=True)) for tokens in prompts]
    self.submit(answers)
    choices = await self.whole(request, answers, lambda at, pieces: self.embedding(at, answers[at], form))
    count = sum(map(len, prompts))
    usage = {"prompt_tokens": count, "total_tokens": count}
    return JSONResponse({"object": "list", "data": choices, "model": self.session.name, "usage": usage})

  def embedding(self, at: int, answer: Answer, form: str) -> dict[str, Any]:
    done = answer.job.generation
    assert done is not None and done.embedding is not None
    numbers = done.embedding.astype("<f4")
    value: Any = numbers.tolist() if form == "float" else base64.b64encode(numbers.tobytes()).decode()
    return {"object": "embedding", "index": at, "embedding": value}

  # *** answers ***

  async def chat(self, request: Request) -> Response:
    body = await self.body(request)
    self.check_model(body.text("model"))
    messages = messages_of(body.take("messages"))
    tools = self.tools_of(body)
    top = self.logprobs_of(body)
    variables = body.take("chat_template_kwargs", {})
    if not isinstance(variables, dict) or variables.keys() & {"messages", "tools", "add_generation_prompt"}:
      raise Refused("chat_template_kwargs: expected an object of the template's variables", "chat_template_kwargs")
    schema = schema_of(body.take("response_format"))
    count = body.integer("max_tokens", None, 1, 1 << 31)
    count = body.integer("max_completion_tokens", count, 1, 1 << 31)
    body.neutral(modalities=(["text"],), service_tier=("auto", "default"), store=(False,))
    if schema is not None and tools is not None and tools.forced:
      raise Refused("response_format and a tool_choice that asks for a call contradict each other", "response_format")
    grammar = await asyncio.to_thread(self.grammar_of, tools, schema)
    text = await asyncio.to_thread(self.rendered, messages, tools, variables)
    if tools is not None and tools.forced:
      text += tools.begin
    thinks = text.rstrip().endswith("<think>")
    if thinks and isinstance(grammar, SchemaGrammar):
      text += "\n</think>\n\n"  # an answer of a schema begins at once
      thinks = False
    tokens = self.session.tokens_of(text)
    answers, include = self.answers_of(body, [tokens], count, top, grammar, self.shown(tools))
    stream = body_stream(body)
    body.done()
    self.submit(answers)
    splitters = [Splitter(tools, thinks=thinks, forced=tools is not None and bool(tools.forced)) for _ in answers]
    kind = "chat.completion.chunk" if stream else "chat.completion"
    reply = Reply(self, "chatcmpl", kind)
    if stream:
      return self.streamed(answers, ChatStream(self, reply, answers, splitters, tools, include))
    choices = await self.whole(request, answers, lambda at, pieces: self.chat_choice(at, pieces, splitters[at], top))
    return JSONResponse(reply.with_(choices, usage=total(answers), timings=timings(answers)))

  async def completions(self, request: Request) -> Response:
    body = await self.body(request)
    self.check_model(body.text("model"))
    prompts = self.prompts(body.take("prompt"), "prompt")
    top = body.integer("logprobs", None, 0, 20)
    grammar = await asyncio.to_thread(self.grammar_of, None, schema_of(body.take("response_format")))
    count = body.integer("max_tokens", 16, 1, 1 << 31)
    body.neutral(echo=(False,), best_of=(1,), suffix=("",))
    answers, include = self.answers_of(body, prompts, count, top, grammar)
    stream = body_stream(body)
    body.done()
    self.submit(answers)
    reply = Reply(self, "cmpl", "text_completion")
    if stream:
      return self.streamed(answers, TextStream(self, reply, answers, include))
    choices = await self.whole(request, answers, lambda at, pieces: self.text_choice(at, pieces))
    return JSONResponse(reply.with_(choices, usage=total(answers), timings=timings(answers)))

  def rendered(self, messages: list[dict[str, Any]], tools: Tools | None, variables: dict[str, Any]) -> str:
    definitions = None
    if tools is not None and tools.schemas:
      if self.template_of_tools() is not None:
        definitions = tools.definitions
      else:
        messages = with_instructions(messages, tools)
    return self.session.rendered(messages, tools=definitions, **variables)

  def template_of_tools(self) -> str | None:
    """The model's template, if it speaks of functions."""
    template = self.session.template
    return template.source if template is not None and "tools" in template.source else None

  def shown(self, tools: Tools | None) -> frozenset[int]:
    """Control tokens that are a part of calls."""
    marks = () if tools is None or not tools.schemas else tools.form.marks
    ids = [self.session.tokenizer.id_of(mark) for mark in marks]
    return frozenset([i for i in ids if i is not None])

  def grammar_of(self, tools: Tools | None, schema: dict[str, Any] | None) -> SchemaGrammar | CallGrammar | None:
    """What an answer is held to: a call that is forced, JSON of `schema`, or that calls which it makes parse."""
    free = tools is not None and bool(tools.schemas) and not tools.forced and schema is None
    wanted = tools.schema() if tools is not None and (tools.forced or free) else schema
    if wanted is None:
      return None
    try:
      with self._lock:
        if self._schemas is None:
          self._schemas = Schemas(self.session.tokenizer, self.session.engine.model.config.vocabulary)
      if free and tools is not None:
        form = tools.form
        if form.named:  # what follows depends on the name
          return self._schemas.named_calls(tools.schemas, form.open, form.named, several=tools.parallel)
        return self._schemas.calls(wanted, form.open, form.close, several=tools.parallel, line=form.line)
      return self._schemas.grammar(wanted)
    except SchemaError as error:
      param = "response_format" if wanted is schema else "tools"
      raise Refused(f"{param}: {error}", param) from None

  def tools_of(self, body: Body) -> Tools | None:
    definitions, choice = body.take("tools"), body.take("tool_choice")
    parallel = body.flag("parallel_tool_calls", True)
    if definitions is None and choice in (None, "none", "auto"):
      return None
    form = form_of(self.template_of_tools() or "")
    return tools_of([] if definitions is None else definitions, choice, parallel, form)

  def logprobs_of(self, body: Body) -> int | None:
    wanted, top = body.flag("logprobs"), body.integer("top_logprobs", None, 0, 20)
    if top is not None and not wanted:
      raise Refused("top_logprobs needs logprobs to be true", "top_logprobs")
    return (top or 0) if wanted else None

  def answers_of(
    self,
    body: Body,
    prompts: list[list[int]],
    count: int | None,
    top: int | None,
    grammar: SchemaGrammar | CallGrammar | None,
    shown: frozenset[int] = frozenset(),
  ) -> tuple[list[Answer], bool]:
    """The answers that a body asks for, and whether a stream is to say its usage."""
    options = body.options(self.session.defaults)
    times = body.integer("n", 1, 1, 16) or 1
    stop, ignore = body.texts("stop", 16), body.flag("ignore_eos")
    if len(prompts) * times > 64:
      raise Refused(f"{len(prompts)} prompts, each answered {times} times: expected 64 answers at most", "n")
    include = False
    if (stream := body.take("stream_options")) is not None:
      if not isinstance(stream, dict) or not stream.keys() <= {"include_usage", "include_obfuscation"}:
        raise Refused("stream_options: expected include_usage", "stream_options")
      include = stream.get("include_usage") is True
    if grammar is not None and ignore and not isinstance(grammar, CallGrammar):
      raise Refused("ignore_eos and a schema contradict each other", "ignore_eos")
    answers = []
    for number, tokens in enumerate(prompts):
      for copy in range(times):
        drawn = options
        if options.seed is not None and (copy or number):
          seed = (options.seed + number * times + copy) % (1 << 64)
          drawn = replace(options, seed=seed)
        own = None if grammar is None else grammar.copy()
        request = generate.Request(tokens, drawn, count, stop, ignore, top, own, special=shown)
        answers.append(Answer(self, request))
    return answers, include

  def submit(self, answers: list[Answer]) -> None:
    try:
      self.worker.submit([answer.job for answer in answers])
    except ContextExceeded:
      raise
    except ValueError as error:
      raise Refused(str(error)) from None

  async def whole(
    self, request: Request, answers: list[Answer], choice: Callable[[int, list[Piece]], dict[str, Any]]
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

  def streamed(self, answers: list[Answer], stream: ChatStream | TextStream) -> Response:
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(answers, stream), media_type="text/event-stream", headers=headers)

  def chat_choice(self, at: int, pieces: list[Piece], splitter: Splitter, top: int | None) -> dict[str, Any]:
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

  def text_choice(self, at: int, pieces: list[Piece]) -> dict[str, Any]:
    found = [item for piece in pieces for item in piece.logprobs]
    return {
      "index": at,
      "text": "".join(piece.text for piece in pieces),
      "logprobs": self.text_logprobs(found) if found else None,
      "finish_reason": pieces[-1].finish,
    }

  def logprob(self, item: TokenLogprob) -> dict[str, Any]:
    def entry(token: int, value: float) -> dict[str, Any]:
      data = self.session.tokenizer.piece(token, special=True)
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

  def prompts(self, value: Any, name: str) -> list[list[int]]:
    """Text, tokens, or a list of either: the tokens of each."""
    items = value if isinstance(value, list) and value and not all(type(item) is int for item in value) else [value]
    found = []
    for item in items:
      if isinstance(item, str) and item:
        found.append(self.session.tokenizer.encode(item))
      elif isinstance(item, list) and item and all(type(token) is int for token in item):
        found.append(item)
      else:
        raise Refused(f"{name}: expected text, a list of tokens, or a list of these, none of them empty", name)
    vocabulary = self.session.engine.model.config.vocabulary
    if not all(0 <= token < vocabulary for tokens in found for token in tokens):
      raise Refused(f"{name} has a token that is none of the model's {vocabulary}", name)
    return found

  # *** who asks ***

  def check_key(self, request: Request) -> None:
    """Refuses a request without the key of the server."""
    if self.api_key is None:
      return
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(given.encode(), self.api_key.encode()):
      message = "the API key is missing or wrong: expected it as Authorization: Bearer KEY"
      raise Refused(message, status=401, code="invalid_api_key", kind="authentication_error")

  def check_model(self, name: str | None) -> None:
    """Refuses a name that is not the model's."""
    if name is not None and name != self.session.name:
      message = f"there is no model {name!r:.100}; this server has {self.session.name!r}"
      raise Refused(message, "model", status=404, code="model_not_found")

  async def body(self, request: Request) -> Body:
    """The body of a request that may be answered. JSON it must be by its header, too: pages of other origins can send
    anything else without being asked for leave."""
    self.check_key(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
      raise Refused("expected the header Content-Type: application/json", status=415)
    data = bytearray()
    async for part in request.stream():
      data += part
      if len(data) > LARGEST:
        raise Refused(f"the body has more than {LARGEST} bytes", status=413)
    return parsed(bytes(data))


METRICS = {
  "requests": "requests that were answered, or ended otherwise",
  "rejected": "requests for which there was no room",
  "finished_stop": "answers that the model or a stop text ended",
  "finished_length": "answers that reached their length",
  "finished_cancelled": "answers whose client went",
  "finished_error": "answers that failed",
  "prompt_tokens": "tokens of prompts",
  "cached_tokens": "of these, those that were read for an earlier request",
  "generated_tokens": "tokens of answers",
  "prompt_seconds": "seconds of reading prompts",
  "predicted_seconds": "seconds of writing answers",
}


class ChatStream:
  """The chunks of a chat completion."""

  def __init__(
    self, server: Server, reply: Reply, answers: list[Answer], splitters: list[Splitter], tools: Tools | None,
    usage: bool,
  ) -> None:  # fmt: skip
    self.server, self.reply, self.answers, self.splitters, self.usage = server, reply, answers, splitters, usage

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
      made[0]["choices"][0]["logprobs"] = {"content": [self.server.logprob(item) for item in piece.logprobs]}
    if piece.finish is not None:
      finish = "tool_calls" if splitter.calls and piece.finish == "stop" else piece.finish
      made.append(self._chunk(at, {}, finish))
    return made

  def _chunk(self, at: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return self.reply.with_([{"index": at, "delta": delta, "logprobs": None, "finish_reason": finish}])


class TextStream:
  """The chunks of a completion."""

  def __init__(self, server: Server, reply: Reply, answers: list[Answer], usage: bool) -> None:
    self.server, self.reply, self.answers, self.usage = server, reply, answers, usage

  def first(self) -> list[dict[str, Any]]:
    return []

  def chunks(self, at: int, piece: Piece) -> list[dict[str, Any]]:
    return [self.reply.with_([self.server.text_choice(at, [piece])])]


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


def body_stream(body: Body) -> bool:
  return body.flag("stream")


def messages_of(value: Any) -> list[dict[str, Any]]:
  """The messages of a body in the form that templates read: content is text, arguments of calls are objects."""
  if not isinstance(value, list) or not value:
    raise Refused("messages: expected a list of one message at least", "messages")
  made = []
  for at, message in enumerate(value):
    name = f"messages[{at}]"
    if not isinstance(message, dict) or message.get("role") not in ROLES:
      raise Refused(f"{name}: expected an object with a role that is one of {', '.join(ROLES)}", "messages")
    unknown = message.keys() - {
      "role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "refusal", "audio", "function_call",
      "annotations",
    }  # fmt: skip
    if unknown or any(message.get(key) for key in ("refusal", "audio", "function_call", "annotations")):
      raise Refused(f"{name} has {', '.join(sorted(unknown)) or 'a part'} that is not supported", "messages")
    role = "system" if message["role"] == "developer" else message["role"]
    item = {"role": role, "content": content_of(message.get("content"), name, message)}
    for key in ("name", "tool_call_id", "reasoning_content"):
      if message.get(key) is not None:
        if not isinstance(message[key], str):
          raise Refused(f"{name}.{key}: expected text", "messages")
        item[key] = message[key]
    if message.get("tool_calls"):
      item["tool_calls"] = calls_of(message["tool_calls"], name)
    made.append(item)
  return made


def content_of(value: Any, name: str, message: dict[str, Any]) -> str:
  if isinstance(value, str):
    return value
  if value is None and message["role"] == "assistant":
    return ""
  if isinstance(value, list):
    texts = [part["text"] for part in value if isinstance(part, dict) and part.get("type") == "text" and "text" in part]
    if len(texts) == len(value) and all(isinstance(text, str) for text in texts):
      return "".join(texts)
  raise Refused(f"{name}.content: expected text, or parts of type text; other kinds are not supported", "messages")


def calls_of(value: Any, name: str) -> list[dict[str, Any]]:
  made = []
  for call in value if isinstance(value, list) else [None]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
      raise Refused(f"{name}.tool_calls: expected a list of calls of functions", "messages")
    try:
      arguments = json.loads(function.get("arguments") or "{}")
    except (TypeError, ValueError, RecursionError):
      raise Refused(f"{name}.tool_calls: the arguments of {function['name']:.60} are no JSON", "messages") from None
    made.append({**call, "function": {"name": function["name"], "arguments": arguments}})
  return made


def schema_of(value: Any) -> dict[str, Any] | None:
  """The JSON schema that `response_format` asks for, if it does."""
  if value is None:
    return None
  kind = value.get("type") if isinstance(value, dict) else None
  if kind == "text":
    return None
  if kind == "json_object":
    schema = value.get("schema", {"type": "object"})
  elif kind == "json_schema":
    holder = value.get("json_schema")
    schema = holder.get("schema") if isinstance(holder, dict) else None
  else:
    raise Refused(f"response_format is {value!r:.60}: expected text, json_object or json_schema", "response_format")
  if not isinstance(schema, dict):
    raise Refused("response_format: expected a JSON schema", "response_format")
  return schema
