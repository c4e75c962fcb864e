"""The server: OpenAI's API over HTTP, answered by a `Worker`."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tiny_llm import generate
from tiny_llm.generate import ContextExceeded
from tiny_llm.schema import CallGrammar, SchemaError, SchemaGrammar, Schemas
from tiny_llm.server.answers import Answer, timings, total, whole
from tiny_llm.server.body import Body, Refused, parsed
from tiny_llm.server.errors import HANDLERS
from tiny_llm.server.messages import messages_of, schema_of
from tiny_llm.server.replies import ChatStream, Choices, Reply, TextStream, streamed
from tiny_llm.server.tools import Splitter, Tools, form_of, tools_of, with_instructions
from tiny_llm.server.worker import Worker
from tiny_llm.session import Session
from tiny_uop.locks import shared_lock

__all__ = ["create_app"]

LARGEST = 16 << 20
"""Bytes of a body."""


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
    exception_handlers=HANDLERS,
  )
  app.state.server = server
  return app


class Server:
  """The handlers of the routes."""

  def __init__(self, session: Session, api_key: str | None, queue: int) -> None:
    self.session, self.api_key = session, api_key
    self.worker = Worker(session.engine, queue=queue)
    self.choices = Choices(session.tokenizer)
    self.began = time.time()
    self._schemas: Schemas | None = None
    self._lock = shared_lock()

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
    tokens = await asyncio.to_thread(tokenizer.encode, text, add_special=special, parse_special=parse)
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
    prompts = await asyncio.to_thread(self.prompts, body.take("input"), "input")
    form = body.text("encoding_format", "float")
    body.neutral(dimensions=(self.session.engine.model.config.dim,))
    body.done()
    if form not in ("float", "base64"):
      raise Refused(f"encoding_format is {form!r:.60}: expected float or base64", "encoding_format")
    if len(prompts) > 256:
      raise Refused(f"input has {len(prompts)} texts: expected 256 at most", "input")
    answers = [Answer(self.worker, generate.Request(tokens, embed=True)) for tokens in prompts]
    self.submit(answers, "input")
    choices = await whole(request, answers, lambda at, pieces: self.embedding(at, answers[at], form))
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
    newer = body.integer("max_completion_tokens", None, 1, 1 << 31)
    if None not in (count, newer):
      raise Refused("max_tokens and max_completion_tokens are one thing: give one of them", "max_tokens")
    count = newer if count is None else count
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
    tokens = await asyncio.to_thread(self.session.tokens_of, text)
    answers, include = self.answers_of(body, [tokens], count, top, grammar, self.shown(tools))
    stream = body.flag("stream")
    body.done()
    self.submit(answers, "messages")
    splitters = [Splitter(tools, thinks=thinks, forced=tools is not None and bool(tools.forced)) for _ in answers]
    kind = "chat.completion.chunk" if stream else "chat.completion"
    reply = Reply(self.session.name, "chatcmpl", kind)
    if stream:
      return streamed(answers, ChatStream(self.choices, reply, answers, splitters, include))
    choices = await whole(request, answers, lambda at, pieces: self.choices.chat(at, pieces, splitters[at], top))
    return JSONResponse(reply.with_(choices, usage=total(answers), timings=timings(answers)))

  async def completions(self, request: Request) -> Response:
    body = await self.body(request)
    self.check_model(body.text("model"))
    prompts = await asyncio.to_thread(self.prompts, body.take("prompt"), "prompt")
    top = body.integer("logprobs", None, 0, 20)
    grammar = await asyncio.to_thread(self.grammar_of, None, schema_of(body.take("response_format")))
    count = body.integer("max_tokens", 16, 1, 1 << 31)
    body.neutral(echo=(False,), best_of=(1,), suffix=("",))
    answers, include = self.answers_of(body, prompts, count, top, grammar)
    stream = body.flag("stream")
    body.done()
    self.submit(answers, "prompt")
    reply = Reply(self.session.name, "cmpl", "text_completion")
    if stream:
      return streamed(answers, TextStream(self.choices, reply, answers, include))
    choices = await whole(request, answers, self.choices.text)
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
        answers.append(Answer(self.worker, request))
    return answers, include

  def submit(self, answers: list[Answer], field: str) -> None:
    """Hands answers to the worker; `field` is what they were asked with."""
    try:
      self.worker.submit([answer.job for answer in answers])
    except ContextExceeded as error:
      raise Refused(str(error), field, code="context_length_exceeded") from None
    except ValueError as error:
      raise Refused(str(error)) from None

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
