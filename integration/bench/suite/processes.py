"""The parent's side of a worker: start it, ask it, put it to rest, end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from suite.lanes import LANES, Lane, environment

FOLDER = Path(__file__).parents[1]
ROOF = Lane("roof", "tiny_tensor")


class LaneError(RuntimeError):
  """A lane did not do what it was asked; the text says why."""


class Process:
  """A lane's process. It is stopped while it has nothing to do, so that threads which spin disturb no other lane."""

  def __init__(self, name: str, cpus: list[int], log: IO[str]) -> None:
    lane = LANES.get(name, ROOF)
    command = [sys.executable, "-m", "suite.worker", name, ",".join(map(str, cpus))]
    settings = environment(lane, len(cpus))
    settings["PYTHONPATH"] = os.pathsep.join([str(FOLDER), *filter(None, [settings.get("PYTHONPATH")])])
    self.name = name
    self.child = subprocess.Popen(
      command, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
    )
    self.child.send_signal(signal.SIGSTOP)

  def ask(self, **request: Any) -> dict[str, Any]:
    """The answer to a request. Raises LaneError."""
    if self.child.poll() is not None:
      raise LaneError(f"{self.name}: its process ended with {self.child.returncode}")
    assert self.child.stdin is not None and self.child.stdout is not None
    self.child.send_signal(signal.SIGCONT)
    try:
      self.child.stdin.write(json.dumps(request) + "\n")
      line = self.child.stdout.readline()
    except BrokenPipeError:
      line = ""
    if not line:
      raise LaneError(f"{self.name}: its process ended with {self.child.wait()}")
    self.child.send_signal(signal.SIGSTOP)
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
      raise LaneError(answer["error"])
    return answer

  def end(self) -> None:
    """End the process: it does so by itself when nothing more can come."""
    assert self.child.stdin is not None
    self.child.stdin.close()
    self.child.send_signal(signal.SIGCONT)
    try:
      self.child.wait(timeout=10)
    except subprocess.TimeoutExpired:
      self.child.kill()
      self.child.wait()


class Processes:
  """The processes of a run, started when first asked; one that died is started anew."""

  def __init__(self, cpus: list[int], log: IO[str]) -> None:
    self.cpus, self.log = cpus, log
    self.open: dict[str, Process] = {}

  def __enter__(self) -> Processes:
    return self

  def __exit__(self, *error: object) -> None:
    for process in self.open.values():
      process.end()

  def ask(self, lane: str, **request: Any) -> dict[str, Any]:
    """The answer of a lane. Raises LaneError."""
    if lane not in self.open or self.open[lane].child.poll() is not None:
      self.open[lane] = Process(lane, self.cpus, self.log)
    return self.open[lane].ask(**request)

  def end(self, lane: str) -> None:
    """End a lane's process, if there is one; asked again, it starts anew."""
    if lane in self.open:
      self.open.pop(lane).end()
