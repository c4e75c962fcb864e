"""What a body says of a conversation: its messages as templates read them, and the schema of its answer."""

from __future__ import annotations

import json
from typing import Any

from tiny_llm.server.body import Refused

__all__ = ["messages_of", "schema_of"]

ROLES = ("system", "developer", "user", "assistant", "tool")


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
    item = {"role": role, "content": _content_of(message.get("content"), name, message)}
    for key in ("name", "tool_call_id", "reasoning_content"):
      if message.get(key) is not None:
        if not isinstance(message[key], str):
          raise Refused(f"{name}.{key}: expected text", "messages")
        item[key] = message[key]
    if message.get("tool_calls"):
      item["tool_calls"] = _calls_of(message["tool_calls"], name)
    made.append(item)
  return made


def _content_of(value: Any, name: str, message: dict[str, Any]) -> str:
  if isinstance(value, str):
    return value
  if value is None and message["role"] == "assistant":
    return ""
  if isinstance(value, list):
    texts = [part["text"] for part in value if isinstance(part, dict) and part.get("type") == "text" and "text" in part]
    if len(texts) == len(value) and all(isinstance(text, str) for text in texts):
      return "".join(texts)
  raise Refused(f"{name}.content: expected text, or parts of type text; other kinds are not supported", "messages")


def _calls_of(value: Any, name: str) -> list[dict[str, Any]]:
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
