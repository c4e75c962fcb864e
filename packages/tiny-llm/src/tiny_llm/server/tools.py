"""Calls of functions in what a model writes, in the form that its template shows, and reasoning between `<think>` and
`</think>`."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tiny_llm.server.body import Refused
from tiny_uop.records import dataclass

__all__ = ["FORMS", "Form", "Splitter", "Tools", "form_of", "tools_of"]


@dataclass(frozen=True)
class Form:
  """How a model writes calls. `open` begins one, and `close` ends it; without `close` nothing but calls comes to the
  end of the answer. `arguments` is the name of these in the JSON. `listed`: all calls are one list. `named`: the name
  stands in front, `open` NAME `named` ARGUMENTS, and each call begins with `open`. `line`: JSON has lines of its own.
  `id_size`: letters of the ids of calls, for templates that ask for so many."""

  open: str
  close: str = ""
  arguments: str = "arguments"
  listed: bool = False
  named: str = ""
  line: bool = False
  id_size: int = 24

  @property
  def marks(self) -> tuple[str, ...]:
    """What may be control tokens, which are text all the same."""
    return tuple([mark for mark in (self.open, self.close, self.named, CALL_ID * bool(self.named)) if mark])


CALL_ID = "[CALL_ID]"
OPEN, CLOSE = "<tool_call>", "</tool_call>"
HERMES = Form(OPEN, CLOSE, line=True)
FORMS = {
  "hermes": HERMES,  # of Qwen and others, and of models whose template does not speak of functions
  "llama3": Form("<|python_tag|>", arguments="parameters"),
  "mistral": Form("[TOOL_CALLS]", listed=True, id_size=9),
  "mistral-named": Form("[TOOL_CALLS]", named="[ARGS]", id_size=9),  # since Mistral Small 3.1
}


def form_of(template: str) -> Form:
  """The form that a template writes calls in."""
  if "[TOOL_CALLS]" in template:
    return FORMS["mistral-named" if "[ARGS]" in template else "mistral"]
  return FORMS["llama3"] if "<|python_tag|>" in template else HERMES


THINK, THOUGHT = "<think>", "</think>"
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
"""What a function takes that says nothing of it."""

INSTRUCTIONS = """\
You can call functions. Each is described by a JSON object:
{tools}

To call one, write its name and its arguments as JSON between tags, and nothing after it:
<tool_call>
{{"name": "…", "arguments": {{…}}}}
</tool_call>"""


class Tools:
  """The functions of a request. `forced` are those of which one must be called, empty if none must. `form` is how the
  model writes calls."""

  def __init__(self, definitions: list[dict[str, Any]], choice: Any, parallel: bool, form: Form = HERMES) -> None:
    self.definitions, self.parallel, self.form = definitions, parallel, form
    self.schemas = {item["function"]["name"]: item["function"].get("parameters") or NOTHING for item in definitions}
    self.forced: list[str] = []
    if choice == "required" and not self.schemas:
      raise Refused("tool_choice is required, and there are no tools", "tool_choice")
    if choice == "required":
      self.forced = list(self.schemas)
    elif isinstance(choice, dict):
      name = choice.get("function", {}).get("name") if isinstance(choice.get("function"), dict) else None
      if choice.get("type") != "function" or name not in self.schemas:
        raise Refused(f"tool_choice is {choice!r:.100}: expected one of the tools", "tool_choice")
      self.forced = [str(name)]
    elif choice not in ("auto", "none"):
      raise Refused(f"tool_choice is {choice!r:.60}: expected none, auto, required or one of the tools", "tool_choice")
    if choice == "none":
      self.definitions, self.schemas = [], {}

  def schema(self) -> dict[str, Any]:
    """The JSON of a call of one of the functions that may be called, or of a list of them; of its arguments, if its
    name is written already."""
    key = self.form.arguments
    calls = [
      {
        "type": "object",
        "properties": {"name": {"const": name}, key: {"type": "object", **self.schemas[name]}},
        "required": ["name", key],
        "additionalProperties": False,
      }
      for name in self.forced or self.schemas
    ]
    if self.prefix:
      return {"type": "object", **self.schemas[self.forced[0]]}
    call = calls[0] if len(calls) == 1 else {"anyOf": calls}
    if not self.form.listed:
      return call
    return {"type": "array", "items": call, "minItems": 1, **({} if self.parallel else {"maxItems": 1})}

  @property
  def begin(self) -> str:
    """What stands in front of a call that is forced."""
    if not self.form.close and not self.form.listed and not self.form.named:
      return ""  # JSON without a tag is how Llama 3 writes calls of functions that it is told of
    return self.form.open + self.prefix + "\n" * self.form.line

  @property
  def prefix(self) -> str:
    """The part of it that belongs to the call: the name of the function, if one is forced, where names stand in
    front."""
    return self.forced[0] + self.form.named if self.form.named and len(self.forced) == 1 else ""

  def instructions(self) -> str:
    """What a model whose template does not speak of functions is told of them."""
    return INSTRUCTIONS.format(tools="\n".join(json.dumps(item["function"]) for item in self.definitions))

  def calls(self, text: str, index: int) -> list[dict[str, Any]]:
    """Calls in OpenAI's form, the first with a number; none if `text` is not all calls of functions that there are."""
    made: list[dict[str, Any]] = []
    for found in self._named(text) if self.form.named and not text.lstrip().startswith(("[", "{")) else _values(text):
      if not isinstance(found, dict) or not isinstance(found.get("name"), str) or found["name"] not in self.schemas:
        return []
      arguments = found.get("arguments", found.get("parameters", {}))
      if not isinstance(arguments, dict):
        return []
      function = {"name": found["name"], "arguments": json.dumps(arguments, ensure_ascii=False)}
      key = uuid.uuid4().hex[: self.form.id_size]
      key = key if self.form.id_size < 24 else f"call_{key}"
      made.append({"index": index + len(made), "id": key, "type": "function", "function": function})
    return made

  def _named(self, text: str) -> list[Any]:
    """The calls whose names stand in front of the JSON of their arguments."""
    found = []
    for part in text.split(self.form.open):
      name, _, rest = part.partition(self.form.named)
      values = _values(rest)
      if len(values) != 1:
        return [None]
      found.append({"name": name.partition(CALL_ID)[0].strip(), "arguments": values[0]})
    return found


def _values(text: str) -> list[Any]:
  """JSON, one after another with semicolons or commas between them, lists taken apart; [None] for what is none."""
  decoder, found, rest = json.JSONDecoder(), [], text.strip()
  while rest:
    try:
      value, end = decoder.raw_decode(rest)
    except (ValueError, RecursionError):
      return [None]
    found += value if isinstance(value, list) else [value]
    rest = rest[end:].lstrip(" \n;,")
  return found


def tools_of(definitions: Any, choice: Any, parallel: bool, form: Form = HERMES) -> Tools:
  """The tools of a body, checked."""
  if not isinstance(definitions, list) or len(definitions) > 128:
    raise Refused("tools: expected a list of at most 128 functions", "tools")
  for at, item in enumerate(definitions):
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(function, dict) or item.get("type") != "function" or not isinstance(function.get("name"), str):
      raise Refused(f"tools[{at}]: expected an object of type function with a function that has a name", "tools")
    if not NAME.fullmatch(function["name"]):
      raise Refused(f"tools[{at}].function.name: expected letters, digits, _, . and -, 64 at most", "tools")
    if not isinstance(function.get("parameters") or {}, dict):
      raise Refused(f"tools[{at}].function.parameters: expected a JSON schema", "tools")
  names = [item["function"]["name"] for item in definitions]
  if len(set(names)) != len(names):
    raise Refused("tools: two functions have one name", "tools")
  return Tools(definitions, ("auto" if definitions else "none") if choice is None else choice, parallel, form)


class Splitter:
  """Cuts an answer that comes in pieces into what is said, what is thought, and calls.

  `push` and `end` give (kind, value): ("content", text), ("reasoning", text), ("call", a call in OpenAI's form). What
  may be the beginning of a tag is held back. `thinks`: the prompt ended within `<think>`. `forced`: all of the answer
  is the JSON of a call.
  """

  def __init__(self, tools: Tools | None = None, *, thinks: bool = False, forced: bool = False) -> None:
    self._tools = tools if tools is not None and tools.schemas else None
    self._form = HERMES if tools is None else tools.form
    self._forced = forced
    self._state = "call" if forced else "reasoning" if thinks else "content"
    self._held = tools.prefix if forced and tools is not None else ""
    self._begun = False
    self.calls = 0

  def push(self, text: str) -> list[tuple[str, Any]]:
    self._held += text
    found: list[tuple[str, Any]] = []
    while not self._forced and self._advance(found):
      pass
    return found

  def end(self) -> list[tuple[str, Any]]:
    """What was held back. A call that is not complete is said, not made."""
    held, self._held = self._held, ""
    if self._state == "call":
      if calls := self._calls(held.removesuffix(self._form.close)):
        return calls
      return [("content", held if self._forced else self._form.open + held)] if held else []
    if self._tools is not None and not self._begun and (calls := self._calls(held)):
      return calls
    return [(self._state, held)] if held else []

  def _calls(self, text: str) -> list[tuple[str, Any]]:
    calls = [] if self._tools is None else self._tools.calls(text, self.calls)
    self.calls += len(calls)
    return [("call", call) for call in calls]

  def _advance(self, found: list[tuple[str, Any]]) -> bool:
    """Takes what is certain from what is held. Whether there may be more."""
    begin, close = self._form.open, self._form.close
    if self._state == "call":
      text, tag, rest = self._held.partition(close) if close else (self._held, "", "")
      if not tag:
        return False
      found += self._calls(text) or [("content", begin + text + close)]
      self._held, self._state = rest.lstrip("\n"), "content"
      return True
    tags = (
      [THOUGHT] if self._state == "reasoning" else [THINK] * (not self._begun) + [begin] * (self._tools is not None)
    )
    if self._state == "content" and not self._begun:
      self._held = self._held.lstrip("\n") if self.calls else self._held
      stripped = self._held.lstrip()
      if self._tools is not None and stripped.startswith("{"):  # may be a call without tags
        return False
      if stripped.startswith(THINK):
        self._held, self._state = stripped.removeprefix(THINK), "reasoning"
        return True
      tags = [tag for tag in tags if tag != THINK]
      if not stripped or THINK.startswith(stripped):
        return False
    places = [(place, tag) for tag in tags if (place := self._held.find(tag)) >= 0]
    if places:
      place, tag = min(places)
      self._say(found, self._held[:place])
      self._held = self._held[place + len(tag) :]
      self._state = "call" if tag == begin else "content"
      return True
    longest = max((n for tag in tags for n in range(1, len(tag)) if self._held.endswith(tag[:n])), default=0)
    self._say(found, self._held[: len(self._held) - longest])
    self._held = self._held[len(self._held) - longest :]
    return False

  def _say(self, found: list[tuple[str, Any]], text: str) -> None:
    if text:
      found.append((self._state, text))
      self._begun = self._begun or self._state == "content"


def with_instructions(messages: Sequence[Mapping[str, Any]], tools: Tools) -> list[dict[str, Any]]:
  """The messages for a template that does not speak of functions: they are described in the system message, and calls
  and results stand as text."""
  made: list[dict[str, Any]] = []
  for message in messages:
    content = message.get("content") or ""
    for call in message.get("tool_calls", ()):
      text = json.dumps({"name": call["function"]["name"], "arguments": call["function"]["arguments"]})
      content += f"\n{OPEN}\n{text}\n{CLOSE}"
    if message["role"] == "tool":
      made.append({"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"})
    else:
      made.append({"role": message["role"], "content": content.lstrip("\n")})
  if made[0]["role"] == "system":
    made[0]["content"] += f"\n\n{tools.instructions()}"
  else:
    made.insert(0, {"role": "system", "content": tools.instructions()})
  return made
