"""Calls of functions: the grammar that holds a model to them, and what is read out of an answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_vocabularies import byte_level

from tiny_llm.sampling import Sampler, SamplingOptions
from tiny_llm.schema import SchemaError, Schemas
from tiny_llm.server.tools import CLOSE, FORMS, OPEN, Splitter, Tools, form_of, tools_of, with_instructions
from tiny_llm.text.tokenizer import StreamDecoder, Tokenizer

CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Paris"]}}, "required": ["city"]}
DEFINITIONS = [
  {"type": "function", "function": {"name": "weather", "parameters": {**CITY, "additionalProperties": False}}},
  {"type": "function", "function": {"name": "clock"}},
]
CALL = '{"name": "weather", "arguments": {"city": "Rome"}}'
LLAMA = '{"name": "weather", "parameters": {"city": "Rome"}}'
CITIES = '{"city": "Rome"}'


def tools(choice: Any = "auto", parallel: bool = True, form: str = "hermes") -> Tools:
  return tools_of(DEFINITIONS, choice, parallel, FORMS[form])


def split(parts: list[str], **how: Any) -> list[tuple[str, Any]]:
  """What a splitter finds, neighbours of one kind together, calls without their ids."""
  splitter = Splitter(**how)
  found = [item for part in parts for item in splitter.push(part)] + splitter.end()
  joined: list[tuple[str, Any]] = []
  for kind, value in found:
    if kind == "call":
      joined.append((kind, (value["function"]["name"], json.loads(value["function"]["arguments"]))))
    elif joined and joined[-1][0] == kind:
      joined[-1] = (kind, joined[-1][1] + value)
    else:
      joined.append((kind, value))
  return joined


ROME = ("call", ("weather", {"city": "Rome"}))
CASES: list[tuple[str, dict[str, Any], list[tuple[str, Any]]]] = [
  ("Hello <b> there", {}, [("content", "Hello <b> there")]),
  (f"Let me see. {OPEN}\n{CALL}\n{CLOSE}", {"tools": tools()}, [("content", "Let me see. "), ROME]),
  (f"{OPEN}{CALL}{CLOSE}\n{OPEN}{CALL}{CLOSE}", {"tools": tools()}, [ROME, ROME]),
  (CALL, {"tools": tools()}, [ROME]),
  (CALL, {}, [("content", CALL)]),
  (CALL, {"tools": tools(), "forced": True}, [ROME]),
  ('{"a": 1}', {"tools": tools()}, [("content", '{"a": 1}')]),
  (f'{OPEN}{{"name": "bomb", "arguments": {{}}}}{CLOSE}!', {"tools": tools()}, [
    ("content", f'{OPEN}{{"name": "bomb", "arguments": {{}}}}{CLOSE}!')]),
  (f"{OPEN}no JSON", {"tools": tools()}, [("content", f"{OPEN}no JSON")]),
  (f"a{OPEN}b", {}, [("content", f"a{OPEN}b")]),
  ("<think>Hm, 1 < 2</think>Yes", {}, [("reasoning", "Hm, 1 < 2"), ("content", "Yes")]),
  ("Hm</think>Yes <think>", {"thinks": True}, [("reasoning", "Hm"), ("content", "Yes <think>")]),
  ("<think>Hm", {}, [("reasoning", "Hm")]),
  (f"<think>{OPEN}</think>{OPEN}{CALL}{CLOSE}", {"tools": tools()}, [("reasoning", OPEN), ROME]),
  ("<thi", {}, [("content", "<thi")]),
  ("", {}, []),
  # Llama 3 writes calls as bare JSON, or after a tag
  (f"<|python_tag|>{LLAMA}", {"tools": tools(form="llama3")}, [ROME]),
  (f"See: <|python_tag|>{LLAMA}; {LLAMA}", {"tools": tools(form="llama3")}, [("content", "See: "), ROME, ROME]),
  (LLAMA, {"tools": tools(form="llama3")}, [ROME]),
  (LLAMA, {"tools": tools("required", form="llama3"), "forced": True}, [ROME]),
  ("<|python_tag|>print(1)", {"tools": tools(form="llama3")}, [("content", "<|python_tag|>print(1)")]),
  # Mistral writes a list of calls, later models names in front
  (f"[TOOL_CALLS] [{CALL}, {CALL}]", {"tools": tools(form="mistral")}, [ROME, ROME]),
  (f"Hm.[TOOL_CALLS][{CALL}]", {"tools": tools(form="mistral")}, [("content", "Hm."), ROME]),
  (f"[{CALL}]", {"tools": tools("required", form="mistral"), "forced": True}, [ROME]),
  ("[TOOL_CALLS][1]", {"tools": tools(form="mistral")}, [("content", "[TOOL_CALLS][1]")]),
  (f"[TOOL_CALLS]weather[ARGS]{CITIES}", {"tools": tools(form="mistral-named")}, [ROME]),
  (f"[TOOL_CALLS]weather[CALL_ID]ab3[ARGS]{CITIES}[TOOL_CALLS]weather[ARGS]{CITIES}",
    {"tools": tools(form="mistral-named")}, [ROME, ROME]),
  (CITIES, {"tools": tools({"type": "function", "function": {"name": "weather"}}, form="mistral-named"),
    "forced": True}, [ROME]),
  ("[TOOL_CALLS]bomb[ARGS]{}", {"tools": tools(form="mistral-named")}, [("content", "[TOOL_CALLS]bomb[ARGS]{}")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "how", "wanted"), CASES)
def test_an_answer_is_split(text: str, how: dict[str, Any], wanted: list[tuple[str, Any]]) -> None:
  assert split([text], **how) == wanted
  assert split(list(text), **how) == wanted


@given(st.sampled_from(CASES), st.lists(st.integers(0, 200), max_size=9))
def test_where_an_answer_is_cut_makes_no_difference(case: tuple[str, dict[str, Any], Any], cuts: list[int]) -> None:
  text, how, wanted = case
  places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
  assert split([text[a:b] for a, b in zip(places, places[1:], strict=False)], **how) == wanted


@given(st.text(alphabet="<tool_cal>/think{}\n\"' ab", max_size=60))
def test_nothing_that_is_said_is_lost(text: str) -> None:
  found = split(list(text))
  assert "".join(value for _, value in found) == text or "<think>" in text


MARKED = byte_level("smollm")
UNMARKED = dict(MARKED)
MARKED["tokenizer.ggml.tokens"] = [*MARKED["tokenizer.ggml.tokens"], "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]"]
MARKED["tokenizer.ggml.token_type"] = [*MARKED["tokenizer.ggml.token_type"], 3, 3, 3]  # control tokens


@given(st.integers(0, 1 << 30), st.booleans(), st.sampled_from(["hermes", "llama3", "mistral", "mistral-named"]))
def test_calls_of_any_model_parse(seed: int, parallel: bool, form: str) -> None:
  given, how = tools(parallel=parallel, form=form), FORMS[form]
  tokenizer = Tokenizer.from_metadata(UNMARKED if how.named and seed % 2 else MARKED)  # marks as text, or as tokens
  schemas = Schemas(tokenizer, len(tokenizer))
  if how.named:
    grammar = schemas.named_calls(given.schemas, how.open, how.named, several=parallel)
  else:
    grammar = schemas.calls(given.schema(), how.open, how.close, several=parallel, line=how.line)
  rng = np.random.default_rng(seed)
  written = tokenizer.encode(f"Well. {how.open}", add_special=False, parse_special=True)
  for token in written:
    assert grammar.allowed() is None
    assert not grammar.accept(token)
  sampler, complete = Sampler(SamplingOptions(seed=seed)), False
  for _ in range(4000):  # lists of calls are as long as chance makes them: 400 were too few once
    allowed = grammar.allowed()
    if complete or allowed is None:
      break
    token = sampler.sample(rng.normal(size=len(tokenizer)).astype(np.float32), allowed)
    if token in tokenizer.ends:  # after a call another may follow, or the end
      complete = True
      break
    written.append(token)
    complete = grammar.accept(token)
  assert complete is (not parallel or not how.close)
  decoder = StreamDecoder(tokenizer, special=frozenset([i for i in map(tokenizer.id_of, how.marks) if i is not None]))
  found = split([decoder.push(token) for token in written], tools=given)
  assert found[0] == ("content", "Well. ") and found[1][0] == "call" and (parallel or len(found) == 2)
  for kind, (name, arguments) in found[1:]:
    assert kind == "call" and ((name == "weather" and arguments["city"] in ("Rome", "Paris")) or name == "clock")


@pytest.mark.parametrize(
  ("template", "form"),
  [
    ("{{ tools }} <tool_call>", "hermes"),
    ("{{ '<|python_tag|>' + tool_call.name }}", "llama3"),
    ("[AVAILABLE_TOOLS]{{ tools }}[TOOL_CALLS] [", "mistral"),
    ("[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", "mistral-named"),
  ],
)
def test_the_form_is_that_of_the_template(template: str, form: str) -> None:
  assert form_of(template) == FORMS[form]


def test_a_schema_that_cannot_be_promised() -> None:
  tokenizer = Tokenizer.from_metadata(byte_level("smollm"))
  schemas = Schemas(tokenizer, len(tokenizer))
  wrong: list[dict[str, Any]] = [
    {"type": "nothing"},
    {"not": {}},
    {"type": "string", "format": "colour"},
    {"$ref": "http://x/y"},
  ]
  for schema in wrong:
    with pytest.raises(SchemaError, match="cannot be used"):
      schemas.grammar(schema)


def test_templates_that_do_not_speak_of_functions() -> None:
  call = {"function": {"name": "weather", "arguments": {"city": "Rome"}}}
  messages: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "tool_calls": [call]},
    {"role": "tool", "content": "sunny"},
  ]
  made = with_instructions(messages, tools())
  assert [message["role"] for message in made] == ["system", "user", "assistant", "user"]
  assert '"weather"' in made[0]["content"] and '"clock"' in made[0]["content"]
  assert split([made[2]["content"]], tools=tools()) == [ROME] and "sunny" in made[3]["content"]
  made = with_instructions([{"role": "system", "content": "Be brief."}, *messages], tools())
  assert len(made) == 4 and made[0]["content"].startswith("Be brief.\n\nYou can call")
