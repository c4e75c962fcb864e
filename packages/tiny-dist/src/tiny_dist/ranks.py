"""The ranks that run this program together. `init` opens their group; tiny-runtime carries out collectives with it."""

from __future__ import annotations

import atexit
import json
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from tiny_dist.groups.discovery import opened
from tiny_dist.groups.protocol import Group, OnDevice, Overlapping
from tiny_dist.start import started
from tiny_dist.watch import Watch
from tiny_runtime import Buffer, use_communicator
from tiny_sched.devices.ranks import graph_lines
from tiny_tensor.methods.random import STREAM
from tiny_uop import Collective, DType, dtypes
from tiny_uop.context import ContextVar

DIST_GROUP = ContextVar(
  "DIST_GROUP", "", "the group that ranks talk over: a name of `python -m tiny_dist`; empty: the first usable"
)
DIST_NAN = ContextVar(
  "DIST_NAN",
  0,
  "1: what ranks send each other is looked at first, and a NaN or an infinity is an error that names the rank",
)
_DIGEST = 8
_ENDED = b"\0" * _DIGEST


class RankError(RuntimeError):
  """The ranks do not do the same, or one of them cannot go on."""


class World:
  """All ranks that were started together. Made by `init`."""

  def __init__(self, name: str, group: Group, watch: Watch | None = None) -> None:
    self.name = name
    """The fabric."""
    self.group = group
    """All ranks."""
    self.rank = group.rank
    """The number of this process."""
    self.size = group.size
    """How many there are."""
    self._groups: dict[tuple[int, ...], Group] = {tuple(range(group.size)): group}
    self._watch = watch
    if watch is not None:
      watch.begun(group.abort)
      watch.know([tuple(place) for place in self.all_of(watch.place)])
    self.traffic: dict[str, int] = {}
    """The bytes that this rank has sent to others in collectives of schedules, by kind."""
    self._open = True
    self._parted = False  # ranks have found that they do not do the same

  # *** what programs ask for ***

  def all_of(self, value: Any) -> list[Any]:
    """What each rank gives, in their order: values that JSON can hold. All ranks call it."""
    data = json.dumps(value).encode()
    return [json.loads(text) for text in self._watched("what each rank gives", self._all_bytes, self.group, data)]

  def barrier(self) -> None:
    """Waits until all ranks have come here."""
    self._watched("a barrier", self.group.barrier)

  def end(self) -> None:
    """Leaves the group; the program does so at its end. Ranks that still want something of this one are told."""
    if not self._open:
      return
    self._open = False
    use_communicator(None)
    if self._watch is not None and not self._parted:
      self._agree(self.group, _ENDED)
    self._watched("the end of the group", self.group.close)

  def _end_program(self) -> None:
    try:
      self.end()
    finally:
      if self._watch is not None:
        self._watch.ends()

  # *** collectives ***

  def group_of(self, ranks: tuple[int, ...]) -> Group:
    """The group of some ranks, made when it is first asked for: by all of them at the same point of the program."""
    if ranks not in self._groups:
      self._groups[ranks] = self._watched(f"the making of a group of ranks {ranks}", self.group.split, ranks)
    return self._groups[ranks]

  def collective(
    self, what: Collective, results: Sequence[Buffer], inputs: Sequence[Buffer]
  ) -> Callable[[], None] | None:  # fmt: skip
    """See `tiny_runtime.Communicator`. Raises RankError where the ranks' graphs differ, before anything is sent."""
    group = self.group_of(what.ranks)
    if what.number == 0:
      self._agree(self.group_of(what.among or what.ranks), bytes.fromhex(what.graph))
    sizes = [b.dtype.itemsize for b in inputs]
    if isinstance(group, OnDevice) and all(map(group.takes, (*inputs, *results))):
      self._count(what, sizes)
      self._watched(f"{what.kind} number {what.number}", group.on_device, what, results, inputs)
      return None
    data, out = [_bytes_of(b) for b in inputs], [_bytes_of(b) for b in results]
    if DIST_NAN.value:
      self._refuse_nan(what, inputs, data)
    self._count(what, sizes)
    words = f"{what.kind} number {what.number}, {sum(d.nbytes for d in data)} bytes"
    message = _Message(what, out, data, sizes)
    wait = self._watched(words, message.begin, group)

    def end() -> None:
      if wait is not None:
        self._watched(words, wait, again=True)
      message.unpack()
      for buffer, view in zip(results, out):
        if not buffer.opened.capabilities.host_mapped:
          buffer.write(view)

    if wait is not None:
      return end
    end()
    return None

  def _count(self, what: Collective, sizes: Sequence[int]) -> None:
    me, others = what.position, len(what.ranks) - 1
    gathers = what.kind in _SAME_TO_ALL
    sent = sum((n[me] * others if gathers else sum(n) - n[me]) * size for n, size in zip(what.sent, sizes))
    self.traffic[what.kind] = self.traffic.get(what.kind, 0) + sent

  def _watched(self, words: str, do: Any, *arguments: Any, again: bool = False) -> Any:
    watch = self._watch
    if watch is None:
      return do(*arguments)
    watch.begin(words, again)
    found = do(*arguments)
    watch.end()
    return found

  def _all_bytes(self, group: Group, data: bytes) -> list[bytes]:
    """The bytes of each rank."""
    lengths = bytearray(8 * group.size)
    group.all_gather(memoryview(lengths), memoryview(struct.pack("=q", len(data))), [8] * group.size)
    counts = struct.unpack(f"={group.size}q", lengths)
    out = bytearray(sum(counts))
    group.all_gather(memoryview(out), memoryview(data), counts)
    ends = [sum(counts[: i + 1]) for i in range(group.size)]
    return [bytes(out[end - n : end]) for end, n in zip(ends, counts)]

  def _agree(self, group: Group, digest: bytes) -> None:
    """Sees to it that all ranks have the same graph. Raises RankError on each of them otherwise."""
    out = memoryview(bytearray(_DIGEST * group.size))
    what = "the end of the program" if digest == _ENDED else f"the comparison of graph {digest.hex()}"
    self._watched(what, group.all_gather, out, memoryview(digest), [_DIGEST] * group.size)
    digests = [bytes(out[i * _DIGEST : (i + 1) * _DIGEST]) for i in range(group.size)]
    if len(set(digests)) == 1:
      return
    self._parted = True
    lines = "\n".join(graph_lines(digest.hex())).encode()
    texts = self._watched("the comparison of graphs, node by node", self._all_bytes, group, lines)
    if digest == _ENDED:
      print(f"tiny_dist: rank {self.rank} ends, and other ranks go on: {self._said(digests)}", file=sys.stderr)
      return
    raise RankError(f"the ranks do not compute the same. {self._said(digests)}{_difference(digests, texts)}")

  def _said(self, digests: Sequence[bytes]) -> str:
    ended = [i for i, d in enumerate(digests) if d == _ENDED]
    if ended:
      return f"Rank {', '.join(map(str, ended))} has come to the end of its program"
    return f"Graphs by rank: {', '.join(d.hex() for d in digests)}"

  def _refuse_nan(self, what: Collective, inputs: Sequence[Buffer], data: Sequence[memoryview]) -> None:
    bad = [k for k, (b, d) in enumerate(zip(inputs, data)) if not _is_finite(b.dtype, d)]
    told = self.all_of(bad)
    if any(told):
      who = "; ".join(f"rank {r}, array {', '.join(map(str, ks))}" for r, ks in enumerate(told) if ks)
      raise RankError(
        f"NaN or infinity in what goes into {what.kind} number {what.number} of graph {what.graph}: {who} (of "
        f"{len(data)} arrays). Look at the input and the loss of that rank"
      )


class _Message:
  """What a rank sends and receives in a collective. Several arrays are one message: for each rank the parts of all of
  them, one after the other."""

  def __init__(
    self, what: Collective, out: Sequence[memoryview], data: Sequence[memoryview], sizes: Sequence[int]
  ) -> None:  # fmt: skip
    self._kind, self._me = what.kind, what.position
    self._out = out
    sent = [[n * size for n in counts] for counts, size in zip(what.sent, sizes)]
    self._received = [[n * size for n in counts] for counts, size in zip(what.received, sizes)]
    ranks = range(len(what.ranks))
    self._to, self._of = ([sum(counts[p] for counts in each) for p in ranks] for each in (sent, self._received))
    gathers = what.kind in _SAME_TO_ALL
    nbytes = self._to[self._me] if gathers else sum(self._to)
    self._single = len(data) == 1
    if self._single:
      self._message, self._arrived = data[0][:nbytes], out[0][: sum(self._of)]
      return
    self._message, self._arrived = memoryview(bytearray(nbytes)), memoryview(bytearray(sum(self._of)))
    place, starts = 0, [0] * len(data)
    for p in [self._me] if gathers else ranks:
      for k, array in enumerate(data):
        n = sent[k][p]
        self._message[place : place + n] = array[starts[k] : starts[k] + n]
        place, starts[k] = place + n, starts[k] + n

  def begin(self, group: Group) -> Callable[[], None] | None:
    """Sends and receives it. Gives a function that waits for the end of it, if that is not now."""
    overlaps = group if isinstance(group, Overlapping) else None
    if self._kind == "broadcast":
      root = next(i for i, n in enumerate(self._of) if n)
      if root == self._me:
        self._arrived[:] = self._message
      return (group.broadcast if overlaps is None else overlaps.begin_broadcast)(self._arrived, root)
    if self._kind == "send_recv":
      data = self._message[self._to[0] :] if self._me == 0 else self._message[: self._to[0]]
      if overlaps is not None:
        return overlaps.begin_send_recv(self._arrived, data)
      _send_recv(group, self._arrived, data)
      return None
    if self._kind == "all_gather":
      gather = group.all_gather if overlaps is None else overlaps.begin_all_gather
      return gather(self._arrived, self._message, self._of)
    if self._kind == "all_to_all":
      exchange = group.all_to_all if overlaps is None else overlaps.begin_all_to_all
      return exchange(self._arrived, self._of, self._message, self._to)
    kinds = "all_gather, all_to_all, broadcast or send_recv"
    raise ValueError(f"a collective {self._kind!r} in a schedule; expected {kinds}")

  def unpack(self) -> None:
    """Puts what has arrived into the arrays."""
    if self._single:
      return
    place, starts = 0, [0] * len(self._out)
    for p in range(len(self._of)):
      for k, array in enumerate(self._out):
        n = self._received[k][p]
        array[starts[k] : starts[k] + n] = self._arrived[place : place + n]
        place, starts[k] = place + n, starts[k] + n


def _send_recv(group: Group, out: memoryview, data: memoryview) -> None:
  """Sends to the other one of two and receives from it: the first sends first."""
  for sends in (group.rank == 0, group.rank != 0):
    if sends and data.nbytes:
      group.send(data, 1 - group.rank)
    elif not sends and out.nbytes:
      group.recv(out, 1 - group.rank)


_SAME_TO_ALL = ("all_gather", "broadcast")
"""Collectives in which a rank sends all others the same."""


def _bytes_of(buffer: Buffer) -> memoryview:
  """The memory of a buffer where the host can see it, all launches done; a copy of it elsewhere."""
  view = buffer.look()
  return view.cast("B") if view.format != "B" else view


_EXPONENTS: dict[DType, tuple[Any, int]] = {
  dtypes.float32: ("I", 0x7F800000),
  dtypes.float64: ("Q", 0x7FF << 52),
  dtypes.float16: ("H", 0x7C00),
  dtypes.bfloat16: ("H", 0x7F80),
}
"""How the words of a type are read, and the bits of its exponent."""


def _is_finite(dtype: DType, data: memoryview) -> bool:
  """Whether no element is a NaN or an infinity: those have all bits of the exponent set."""
  if dtype not in _EXPONENTS or not data.nbytes:
    return True
  form, bits = _EXPONENTS[dtype]
  return all(int(word) & bits != bits for word in data.cast(form))


def _difference(digests: Sequence[bytes], texts: Sequence[bytes]) -> str:
  """The first node in which a graph differs from that of the first rank."""
  first = texts[0].decode().split("\n")
  for rank, (digest, text) in enumerate(zip(digests, texts)):
    lines = text.decode().split("\n")
    if digest == digests[0] or _ENDED in (digest, digests[0]):
      continue
    longest = max(len(first), len(lines))
    pairs = zip(first + [""] * (longest - len(first)), lines + [""] * (longest - len(lines)))
    for number, (one, other) in enumerate(pairs):
      if one != other:
        nodes = f"\n  rank 0: {one or 'nothing more'}\n  rank {rank}: {other or 'nothing more'}"
        return f". The first node that differs is number {number}:{nodes}"
  return ""


def _agree_on_random_numbers(found: World) -> None:
  """All ranks go on with the random numbers of rank 0, unless they have the same already."""
  state = bytearray(struct.pack("=2Q", STREAM.key, STREAM.counter))
  found._watched("the agreement on random numbers", found.group.broadcast, memoryview(state), 0)
  STREAM.key, STREAM.counter = struct.unpack("=2Q", state)


_world: list[World] = []


def _fail(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
  """An error that nobody caught ends all ranks: the others would wait for this one."""
  found = _world[0]
  print(f"tiny_dist: rank {found.rank} of {found.size} has failed", file=sys.stderr)
  traceback.print_exception(kind, error, where)
  sys.stderr.flush()
  if found._watch is not None:
    found._watch.end_all(1)


def use_world(found: World) -> None:
  """`init` gives `found` from now on, and collectives are carried out by it."""
  _world[:] = [found]
  use_communicator(found)


def init() -> World:
  """Finds the other ranks and opens the group to them; once per process, a second call gives the same. Afterwards all
  ranks draw the same random numbers, those that rank 0 would.

  An error that nobody catches ends all ranks from now on. Raises `Unusable`, with what each installed group says.
  """
  if not _world:
    start = started()
    watch = Watch(start.rank, start.size) if start.size > 1 else None
    try:
      found = World(*opened(start, DIST_GROUP.value), watch)
    except BaseException:
      if watch is not None:
        watch.close()
      raise
    use_world(found)
    sys.excepthook = _fail
    atexit.register(found._end_program)
    _agree_on_random_numbers(found)
  return _world[0]


def world() -> World:
  """What `init` has opened; it is called if it was not."""
  return init()
