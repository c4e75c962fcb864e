"""Plugins tried in other processes: a native crash or a hang cannot be caught in this one.

`try_all` is behind the table of `python -m tiny_runtime`. `try_first` comes before a program's first use of a plugin,
once per installed version of it: its result is kept on disk.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tiny_runtime import system
from tiny_runtime.plugins.discovery import plugins
from tiny_runtime.plugins.installed import normal
from tiny_runtime.plugins.plugin import Plugin, State
from tiny_runtime.plugins.versions import fingerprint
from tiny_runtime.private_files import key_path, read_payload, write_payload
from tiny_runtime.settings import TRIAL_SECONDS
from tiny_uop.context import CACHELEVEL

if TYPE_CHECKING:
  from subprocess import Popen

QUIET_SECONDS = 2.0
"""After so long somebody who waits is told what for."""
PASSED = b"neither crashed nor hung"


class Trial:
  """A plugin that another process loads, probes and opens. `folder` is for what that process writes."""

  def __init__(self, plugin: Plugin, folder: Path, fork: bool = False) -> None:
    self.plugin = plugin
    self.answer = folder / f"{plugin.name}.json"
    self.output = folder / f"{plugin.name}.txt"
    with self.output.open("wb") as output:
      to = output.fileno()
      self.process = (
        system.forked(lambda: answer_here(plugin, self.answer), to) if fork
        else start("one", plugin.name, str(self.answer), output=to)
      )  # fmt: skip

  def finish(self, seconds: float) -> bool:
    """Wait up to `seconds` and record in the plugin what came of it. Whether the process did not end by itself, or in
    another way than by finishing."""
    plugin = self.plugin
    report = f"Report it to the authors of {plugin.package}"
    code = wait(self.process, seconds)
    if code is None:
      system.end_with_children(self.process)
      wait(self.process, None)
      plugin.broken("its probe did not finish in time and was ended", f"{report}, or uninstall it")
      return True
    try:
      answer = json.loads(self.answer.read_text())
      if system.how_ended(code):
        raise ValueError("it was ended after it had answered")
    except (OSError, ValueError):
      how = f"was ended by {by}" if (by := system.how_ended(code)) else f"ended the process with status {code}"
      plugin.broken(f"its probe {how}", f"{report}, with the output below")
      plugin.add_traceback(self.output.read_text(errors="replace"))
      return True
    plugin.record(State(answer["state"]), answer["reason"], answer["what_to_do"], answer["archs"])
    plugin.add_traceback(answer["traceback"])
    return False


def wait(process: Popen[bytes] | system.Forked, seconds: float | None) -> int | None:
  """The exit status of a process that ends within so many seconds (None: at any time), minus the signal if that ended
  it; else None."""
  deadline = None if seconds is None else time.monotonic() + seconds
  pause = 0.001
  while (code := process.poll()) is None:
    if deadline is not None and time.monotonic() >= deadline:
      return None
    time.sleep(pause)
    pause = min(0.02, pause * 1.5)
  return code


def answer_here(plugin: Plugin, answer: Path) -> None:
  """The other process's part: load and probe a plugin, open its first device, and write what came of it."""
  plugin.probe()
  fields = {name: getattr(plugin, name) for name in ("reason", "what_to_do", "traceback", "archs")}
  if plugin.backend is not None and plugin.state is State.READY:
    with suppress(Exception, SystemExit):  # an error is no crash: who opens the device is told
      plugin.backend.open(0).close()
  write_json(answer, {"state": plugin.state.value, **fields})


def write_json(path: Path, content: object) -> None:
  """Write a file that is there as a whole or not at all."""
  partial = path.with_suffix(".partial")
  partial.write_text(json.dumps(content))
  system.replace(partial, path)


def try_all(found: Sequence[Plugin], timeout: float) -> list[Plugin]:
  """Try every plugin that metadata alone has not ruled out, all at the same time, and record what came of it. Gives
  those that crashed or hung. For a process that does nothing else."""
  import tempfile  # late: most processes try nothing

  with tempfile.TemporaryDirectory(prefix="tiny-probe-") as folder:
    trials = [Trial(plugin, Path(folder), system.FORKS) for plugin in found if plugin.state is State.FOUND]
    deadline = time.monotonic() + timeout
    return [trial.plugin for trial in trials if trial.finish(deadline - time.monotonic())]


def try_first(found: Sequence[Plugin]) -> None:
  """Try those plugins in other processes of which nobody knows that they neither crash nor hang; one that does is
  BROKEN from then on. What passed is kept, once per installed version; where nothing is kept on disk (CACHELEVEL below
  2), or TRIAL_SECONDS is 0, plugins are used untried."""
  own = normal(__name__.partition(".")[0])
  if CACHELEVEL < 2 or TRIAL_SECONDS <= 0 or not sys.executable:
    return
  paths = {p.name: key_path("plugins", key_of(p)) for p in found if p.untried and normal(p.package) != own}
  todo = [plugin for plugin in found if plugin.name in paths and read_payload(paths[plugin.name]) != PASSED]
  if not todo:
    return
  import tempfile  # late: most processes try nothing

  with tempfile.TemporaryDirectory(prefix="tiny-probe-") as folder:
    answer = Path(folder) / "answer.json"
    try:
      process = start("main", str(answer), str(TRIAL_SECONDS.value), *[plugin.name for plugin in todo])
    except OSError:  # no other process can be had
      return
    if wait(process, QUIET_SECONDS) is None:
      who = ", ".join(f"{plugin.distribution} ({plugin.name})" for plugin in todo)
      print(f"waiting up to {TRIAL_SECONDS.value} seconds for {who}: tried in another process first", file=sys.stderr)
    wait(process, None)
    try:
      failed = json.loads(answer.read_text())
    except (OSError, ValueError):  # somebody ended it: nothing is known
      return
  for plugin in todo:
    if plugin.name not in failed:
      write_payload(paths[plugin.name], PASSED)
      continue
    reason, what_to_do, traceback = failed[plugin.name]
    plugin.broken(reason, what_to_do)
    plugin.add_traceback(traceback)


def key_of(plugin: Plugin) -> bytes:
  """What a plugin is known by: its entry point and the versions of all that it depends on."""
  return f"{plugin.name} {plugin.value} {sys.version}\n{fingerprint(plugin.distribution)}".encode()


def start(function: str, *arguments: str, output: int | None = None) -> Popen[bytes]:
  """A process that runs a function of this module."""
  import subprocess  # late: a process whose plugins have been tried starts no other

  command = [sys.executable, "-c", f"from tiny_runtime.plugins import trial; trial.{function}()", *arguments]
  environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
  to = subprocess.DEVNULL if output is None else output
  # a session of its own, so that whatever the plugin starts can be ended with it
  return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=to, stderr=to, env=environment, **system.APART)


def main() -> None:
  """What the process that `try_first` starts runs. Arguments: where to answer, seconds, names of devices."""
  answer, seconds, *names = sys.argv[1:]
  failed = try_all([plugins()[name] for name in names], float(seconds))
  write_json(Path(answer), {plugin.name: (plugin.reason, plugin.what_to_do, plugin.traceback) for plugin in failed})


def one() -> None:
  """What a process for one Trial runs. Arguments: the name of a device, and where to answer."""
  name, answer = sys.argv[1:]
  answer_here(plugins()[name], Path(answer))
  os._exit(0)  # what a plugin does at the end of a process is not what is tried
