"""An engine of a channel: the methods that it got, and what it does of that later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from gpu_model.nv.errors import ChannelError, Misuse, Xid
from gpu_model.nv.tables import bits, methods

if TYPE_CHECKING:
  from gpu_model.nv.channel import Channel

_numbers = count()


@dataclass
class Work:
  """Something to do. `alone`: what came before is done first; without it, what comes together is done in any order."""

  run: Callable[[], None]
  alone: bool
  number: int


class Engine:
  """What engines share. `results`: it wrote something that was not `flushed` for the host to see."""

  results_of = "what an engine wrote"

  def __init__(self, channel: Channel, name: str) -> None:
    self.channel, self.name, self.space = channel, name, channel.space
    self.state: dict[str, int] = {}
    self.waiting: deque[Work] = deque()
    self.results, self.flushed = False, True

  def take(self, place: int, data: int) -> None:
    """A method. Those that set something take effect at once; others become work."""
    known = methods(self.name).get(place)
    if known is None:
      raise Misuse(f"the model knows no method {place:#x} of class {self.name}")
    name, fields = known
    self.channel.executed.append(name)
    allowed = sum(((1 << width) - 1) << low for low, width in fields.values())
    if fields and data & ~allowed:
      raise ChannelError(Xid.CLASS_ERROR, f"{name} {data:#x} has bits that no field of class {self.name} has")
    method = getattr(self, f"do_{name}", None)
    if method is not None:
      method(data, {field: bits(data, where) for field, where in fields.items()})
    elif name not in self.settings():
      raise Misuse(f"the model knows no method {name} of class {self.name}")
    self.state[name] = data

  def settings(self) -> frozenset[str]:
    """Methods that only set something."""
    raise NotImplementedError

  def value(self, name: str) -> int:
    """What was set; raises Misuse where nothing was."""
    if name not in self.state:
      raise Misuse(f"{name} of class {self.name} was never set, and is used")
    return self.state[name]

  def later(self, run: Callable[[], None], alone: bool) -> None:
    """More work."""
    self.waiting.append(Work(run, alone, next(_numbers)))

  def order(self) -> int:
    """When it got what it does next."""
    return self.waiting[0].number

  def drain(self) -> None:
    """Do all there is, where nothing orders it the last first."""
    while self.waiting:
      together = [self.waiting.popleft()]
      while not together[0].alone and self.waiting and not self.waiting[0].alone:
        together.append(self.waiting.popleft())
      for work in reversed(together):
        work.run()

  def do_NO_OPERATION(self, data: int, fields: dict[str, int]) -> None:
    """Nothing."""

  do_NOP = do_NO_OPERATION
