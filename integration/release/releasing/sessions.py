"""Commands of which several run at once: one for each processor, so that none is idle while another has a long tail."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

LAST_LINES = 40
"""Of what a failed command said, as many are shown again at the end."""
AT_ONCE = 4
"""With more processors than this a command gets several: the longest would take longer than the others together."""


@dataclass(frozen=True)
class Session:
  """A command with a name, and the names of those that have to have passed before; `vital`: if it fails, nothing more
  starts."""

  name: str
  command: Sequence[str]
  after: tuple[str, ...] = ()
  variables: Mapping[str, str] = field(default_factory=dict)
  vital: bool = False


def processors() -> int:
  """How many this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_once() -> tuple[int, int]:
  """How many commands to run at once, and how many processes of pytest's each is to have."""
  count = min(processors(), AT_ONCE)
  return count, processors() // count


def run_all(sessions: Sequence[Session], count: int) -> list[str]:
  """Runs commands, up to `count` at once, the first in the list first; names of those that failed or could not run.

  What a command says is shown when it ends: the last line if it passed, else all of it, and the end of that once more
  after everything else.
  """
  waiting, passed, failed = list(sessions), set[str](), dict[str, str]()
  vital = {s.name for s in sessions if s.vital}
  running: dict[Future[tuple[bool, str]], Session] = {}
  with ThreadPoolExecutor(count) as pool:
    while waiting or running:
      may_start = [] if vital & failed.keys() else [s for s in waiting if passed.issuperset(s.after)]
      for session in may_start[: count - len(running)]:
        waiting.remove(session)
        running[pool.submit(_run, session)] = session
      if not running:
        break  # what waits does so for something that failed
      for done in wait(running, return_when=FIRST_COMPLETED).done:
        session, (good, text) = running.pop(done), done.result()
        if good:
          passed.add(session.name)
        else:
          failed[session.name] = text
  for name, text in failed.items():
    print(f"\n--- {name} failed. It ended with", *text.splitlines()[-LAST_LINES:], sep="\n", flush=True)
  for session in waiting:
    missing = (set(session.after) | vital) - passed
    print(f"--- {session.name} did not run: {', '.join(sorted(missing))} did not pass", flush=True)
  return [*failed, *(session.name for session in waiting)]


def _run(session: Session) -> tuple[bool, str]:
  """Whether a command passed, and what it said."""
  start = time.monotonic()
  print(f"--- {session.name} …", flush=True)
  with tempfile.TemporaryFile() as output:
    status = subprocess.run(
      session.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
      env=os.environ | session.variables,
    ).returncode  # fmt: skip
    output.seek(0)
    text = output.read().decode(errors="replace")
  seconds = time.monotonic() - start
  lines = text.rstrip().splitlines() or [""]
  last = next((line for line in reversed(lines) if not line.startswith("---")), "")
  result = f"--- {session.name}: passed ({seconds:.0f} s)" if status == 0 else f"--- {session.name}: FAILED ({status})"
  sys.stdout.write("".join(f"{line}\n" for line in ([last, result] if status == 0 else [*lines, result])))
  sys.stdout.flush()
  return status == 0, text


def longest_first(names: Sequence[str], known: Sequence[str]) -> list[str]:
  """The names in `known` in its order, then the others in theirs."""
  return sorted(names, key=lambda name: known.index(name) if name in known else len(known))
