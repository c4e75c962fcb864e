"""Renders chat templates in a process of its own: one JSON object a line comes in, one goes out.

A template is a program that came with a file. Jinja's sandbox keeps it from Python's insides; that it ends, and fits
into memory, only a process can promise: the operating system bounds its address space, and `tiny_llm.text.template`
ends it when it takes too long. This file runs as a program and imports nothing of the package.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import c_int64, c_size_t, c_uint32, c_uint64, c_void_p
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


if sys.platform == "win32":

  def bound(megabytes: int) -> None:
    limit_job(megabytes << 20)

else:

  def bound(megabytes: int) -> None:
    import resource

    try:
      resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
      resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
      resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it writes no files
    except (ValueError, OSError):  # macOS refuses to bound address spaces
      pass


ACTIVE_PROCESSES, PROCESS_MEMORY, DIE_ON_EXCEPTION = 0x8, 0x100, 0x400
EXTENDED_LIMITS = 9


class JobLimits(ctypes.Structure):
  """JOBOBJECT_EXTENDED_LIMIT_INFORMATION of Windows."""

  _fields_ = (
    ("PerProcessUserTimeLimit", c_int64), ("PerJobUserTimeLimit", c_int64), ("LimitFlags", c_uint32),
    ("MinimumWorkingSetSize", c_size_t), ("MaximumWorkingSetSize", c_size_t), ("ActiveProcessLimit", c_uint32),
    ("Affinity", c_size_t), ("PriorityClass", c_uint32), ("SchedulingClass", c_uint32),
    ("IoInfo", c_uint64 * 6), ("ProcessMemoryLimit", c_size_t), ("JobMemoryLimit", c_size_t),
    ("PeakProcessMemoryUsed", c_size_t), ("PeakJobMemoryUsed", c_size_t),
  )  # fmt: skip


def limits_of(nbytes: int) -> JobLimits:
  """So much memory, no other process, and no window that reports an error."""
  flags = PROCESS_MEMORY | ACTIVE_PROCESSES | DIE_ON_EXCEPTION
  return JobLimits(LimitFlags=flags, ProcessMemoryLimit=nbytes, ActiveProcessLimit=1)


def limit_job(nbytes: int) -> None:
  """Windows: put this process into a job with limits. Where the system refuses, the limit on time is left."""
  kernel32 = ctypes.CDLL("kernel32")
  kernel32.CreateJobObjectW.restype = kernel32.GetCurrentProcess.restype = c_void_p
  job, limits = c_void_p(kernel32.CreateJobObjectW(None, None)), limits_of(nbytes)
  if kernel32.SetInformationJobObject(job, EXTENDED_LIMITS, ctypes.byref(limits), c_uint32(ctypes.sizeof(limits))):
    kernel32.AssignProcessToJobObject(job, c_void_p(kernel32.GetCurrentProcess()))


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
