"""Renders chat templates in a process of its own: one JSON object a line comes in, one goes out.

A template is a program that came with a file. Jinja's sandbox keeps it from Python's insides; that it ends, and fits
into memory, only a process can promise: the operating system bounds its address space, and `tiny_llm.template` ends
it when it takes too long. This file runs as a program and imports nothing of the package.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
  """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; rendering gives what is inside."""

  tags = {"generation"}

  def parse(self, parser: Parser) -> list[nodes.Node]:
    next(parser.stream)
    return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Refused(TemplateError):
  """The template itself refused the conversation by `raise_exception`."""


def raise_exception(message: object) -> NoReturn:
  raise Refused(str(message))


def to_json(
  value: Any,
  ensure_ascii: bool = False,
  indent: int | None = None,
  separators: tuple[str, str] | None = None,
  sort_keys: bool = False,
) -> str:
  return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment() -> Environment:
  """The environment that templates are written for: that of transformers' `apply_chat_template`."""
  made = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
  )
  made.filters["tojson"] = to_json
  made.globals["raise_exception"] = raise_exception
  made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
  return made


def bound(megabytes: int) -> None:
  try:
    import resource
  except ImportError:  # Windows: the limit on time is left
    return
  try:
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it writes no files
  except (ValueError, OSError):  # macOS refuses to bound address spaces
    pass


def rendered(made: Environment, source: str, variables: dict[str, Any], longest: int) -> dict[str, str]:
  try:
    size, parts = 0, []
    for part in made.from_string(source).generate(**variables):
      size += len(part)
      if size > longest:
        return {"error": f"it writes more than {longest} characters"}
      parts.append(part)
    return {"text": "".join(parts).encode("utf-8", "replace").decode("utf-8")}
  except Refused as error:
    return {"refused": str(error)}
  except MemoryError:
    return {"error": "it needs too much memory"}
  except RecursionError:
    return {"error": "it calls itself without end"}
  except Exception as error:
    return {"error": f"{type(error).__name__}: {error}"[:2000]}


def main() -> None:
  megabytes, longest = map(int, sys.argv[1:])
  made = environment()
  bound(megabytes)
  for line in sys.stdin:
    request = json.loads(line)
    answer = rendered(made, request["source"], request["variables"], longest)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
  main()
