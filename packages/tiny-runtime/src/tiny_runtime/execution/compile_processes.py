"""Other processes that compile kernels of a large schedule, while this one does too.

They exchange nothing but files: whoever has compiled a kernel writes it into the disk cache, and looks there before it
compiles the next one. This process begins with the first kernel, its helpers with the last; where they meet, all is
done. A helper that fails, whatever the reason, leaves its kernels to this process, which then raises what there is to
raise. Threads would not do: the code generator is Python.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tiny_runtime import system
from tiny_runtime.buffer import buffer_of
from tiny_runtime.compile_cache import cache_folder, entry_key, entry_path
from tiny_runtime.contract import Compiler
from tiny_runtime.execution.launch import new_kernels
from tiny_runtime.private_files import read_payload, write_payload
from tiny_runtime.settings import COMPILE_PROCESSES
from tiny_uop import Ops, UOp
from tiny_uop.context import BEAM, CACHELEVEL, DEBUG, ContextVar
from tiny_uop.observe import active
from tiny_uop.text.parse import parse_uop
from tiny_uop.text.print import print_uop

EACH = 4
"""Kernels that a process gets at least: it takes as long to start as two or three take to compile."""
MOST = 8
"""Processes, this one included."""
COMMAND = "from tiny_runtime.execution.compile_processes import help_out; help_out()"

Task = tuple[bytes, str, str]
"""A pickled compiler, the kernel's text, and the file that its binary belongs in."""


@contextmanager
def helped(calls: Sequence[UOp]) -> Iterator[None]:
  """While the block compiles these CALLs in order, other processes do so from the last on, if that pays."""
  wanted = COMPILE_PROCESSES.value or min(system.processors(), MOST)
  try:
    tasks = missing(calls) if wanted > 1 else []
  except Exception:  # whatever is wrong with a call, a device or a compiler: the block meets it too, and says more
    tasks = []
  count = min(wanted, len(tasks) // EACH) - 1
  # the first helper begins with the last kernel, the others before it, each with a part that is its own at first
  order = tasks[::-1]
  starts = [len(order) * n // (count + 1) for n in range(max(count, 0))]
  helpers = [start(order[first:] + order[:first]) for first in starts]
  try:
    yield
  finally:
    for helper in helpers:
      helper.kill()
      helper.wait()


def missing(calls: Sequence[UOp]) -> list[Task]:
  """The kernels that have to be compiled, where that can be told and done elsewhere."""
  if CACHELEVEL.value < 2 or DEBUG.value >= 3 or BEAM.value or active() or not is_python():
    return []
  found: dict[str, Task] = {}
  pickled: dict[int, bytes] = {}
  for call in new_kernels(calls):
    kernel, *arguments = call.src
    buffers = [uop for uop in arguments if uop.op is not Ops.BIND]
    opened = buffer_of(buffers[0]).opened
    if (compiler := opened.compiler) is None:
      continue
    path = entry_path(kernel, entry_key(compiler, opened.distribution))
    if str(path) not in found and not path.exists():
      code = pickled.get(id(compiler)) or pickled.setdefault(id(compiler), pickle.dumps(compiler))
      found[str(path)] = (code, print_uop(kernel), str(path))
  return list(found.values())


def is_python() -> bool:
  """Whether the interpreter can be started again: in a program that has Python within, `sys.executable` may be that."""
  return os.path.basename(sys.executable or "").lower().startswith(("python", "pypy"))


def start(tasks: Sequence[Task]) -> subprocess.Popen[bytes]:
  """A process that compiles these, one after the other."""
  with tempfile.TemporaryFile() as given:  # not a pipe, which holds so little that one would wait for the other
    pickle.dump(list(tasks), given)
    given.seek(0)
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
      [sys.executable, "-P", "-c", COMMAND], stdin=given, stdout=nowhere, stderr=nowhere, env=environment()
    )


def environment() -> dict[str, str]:
  """A helper's: it has the settings of now, imports from where this process does, and writes to the same folder."""
  settings = {var.name: str(var.value) for var in ContextVar.registry.values()}  # the environment's may be others
  paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TINY_CACHE": str(cache_folder().parent)}
  return os.environ | settings | paths


def help_out() -> None:
  """What a helper does: it compiles what standard input says."""
  tasks: list[Task] = pickle.load(sys.stdin.buffer)
  for code, text, path in tasks:
    if read_payload(Path(path)) is None:
      compiler: Compiler = pickle.loads(code)
      write_payload(Path(path), compiler.compile(parse_uop(text)).to_bytes())
