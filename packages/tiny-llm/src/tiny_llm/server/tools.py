"""Calls of functions in what a model writes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, and reasoning
between `<think>` and `</think>`."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tiny_llm.server.body import Refused

__all__ = ["Splitter", "Tools", "tools_of"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
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
  """The functions of a request. `forced` are those of which one must be called, empty if none must."""

  def __init__(self, definitions: list[dict[str, Any]], choice: Any, parallel: bool) -> None:
    self.definitions, self.parallel = definitions, parallel
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
    """The JSON of a call of one of the functions that may be called."""
    calls = [
      {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"type": "object", **self.schemas[name]}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
      }
      for name in self.forced or self.schemas
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}

  def instructions(self) -> str:
    """What a model whose template does not speak of functions is told of them."""
    return INSTRUCTIONS.format(tools="\n".join(json.dumps(item["function"]) for item in self.definitions))

  def call(self, text: str, index: int) -> dict[str, Any] | None:
    """A call in OpenAI's form; None if `text` is none of a function that there is."""
    try:
      found = json.loads(text)
    except (ValueError, RecursionError):
      return None
    if not isinstance(found, dict) or found.get("name") not in self.schemas:
      return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if not isinstance(arguments, dict):
      return None
    function = {"name": found["name"], "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"index": index, "id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def tools_of(definitions: Any, choice: Any, parallel: bool) -> Tools:
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
  return Tools(definitions, ("auto" if definitions else "none") if choice is None else choice, parallel)


class Splitter:
  """Cuts an answer that comes in pieces into what is said, what is thought, and calls.

  `push` and `end` give (kind, value): ("content", text), ("reasoning", text), ("call", a call in OpenAI's form). What
  may be the beginning of a tag is held back. `thinks`: the prompt ended within `<think>`. `forced`: all of the answer
  is the JSON of a call.
  """

  def __init__(self, tools: Tools | None = None, *, thinks: bool = False, forced: bool = False) -> None:
    self._tools = tools if tools is not None and tools.schemas else None
    self._forced = forced
    self._state = "call" if forced else "reasoning" if thinks else "content"
    self._held = ""
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
      if call := self._call(held.removesuffix(CLOSE)):
        return [("call", call)]
      return [("content", held if self._forced else OPEN + held)] if held else []
    if self._tools is not None and not self._begun and (call := self._call(held)):
      return [("call", call)]
    return [(self._state, held)] if held else []

  def _call(self, text: str) -> dict[str, Any] | None:
    call = None if self._tools is None else self._tools.call(text, self.calls)
    self.calls += call is not None
    return call

  def _advance(self, found: list[tuple[str, Any]]) -> bool:
    """Takes what is certain from what is held. Whether there may be more."""
    if self._state == "call":
      text, tag, rest = self._held.partition(CLOSE)
      if not tag:
        return False
      call = self._call(text)
      found.append(("content", OPEN + text + CLOSE) if call is None else ("call", call))
      self._held, self._state = rest.lstrip("\n"), "content"
      return True
    tags = [THOUGHT] if self._state == "reasoning" else [THINK] * (not self._begun) + [OPEN] * (self._tools is not None)
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
      self._state = "call" if tag == OPEN else "content"
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
