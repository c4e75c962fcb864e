"""Versions of buffers: which STOREs have happened when a node of the graph is read."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_sched.index import is_empty
from tiny_uop import GroupOp, Ops, UOp, same_shape
from tiny_uop.records import dataclass


@dataclass(frozen=True, slots=True)
class Version:
  """Contents of a BUFFER after a set of its STOREs: as bits, in order of the graph, and the last of them."""

  stores: int = 0
  last: tuple[UOp, ...] = ()


ORIGINAL = Version()


class BufferVersions:
  """The STOREs of every BUFFER of a graph, and the version that each AFTER stands for."""

  def __init__(self, nodes: Sequence[UOp]) -> None:
    self.stores: dict[UOp, list[UOp]] = {}
    self._under: dict[UOp, UOp] = {}
    self._of: dict[UOp, tuple[UOp, Version]] = {}
    self._bits: dict[UOp, int] = {}
    self._after: dict[UOp, Version] = {}
    bare: dict[UOp, UOp] = {}
    self.read: set[UOp] = set()  # BUFFERs whose original contents are read
    for u in nodes:
      if u.op is Ops.BUFFER:
        bare[u] = u
      elif u.op in GroupOp.Movement or u.op in GroupOp.Identity:
        if u.src[0] in bare:
          bare[u] = bare[u.src[0]]
      elif u.op is not Ops.AFTER:
        self.read.update([bare[s] for s in (u.src[1:] if u.op is Ops.STORE else u.src) if s in bare])
      if u.op is Ops.STORE:
        self._add_store(u)
      elif u.op is Ops.AFTER:
        self._add_after(u)

  def _add_store(self, u: UOp) -> None:
    target, value = u.src
    if target.dtype is not value.dtype:
      raise ValueError(f"STORE of {value.dtype} into a buffer of {target.dtype}: cast the value to {target.dtype}")
    if value.shape != () and target.shape != value.shape and not same_shape(target.shape, value.shape):
      raise ValueError(
        f"STORE of a value of shape {value.shape} through a view of shape {target.shape}: reshape or expand the value"
      )
    base, before = self.base_of(target)
    if is_empty(target.shape):
      self._after[u] = before  # nothing happens
      return
    known = self.stores.setdefault(base, [])
    self._bits[u] = bit = 1 << len(known)
    known.append(u)
    self._after[u] = Version(before.stores | bit, (u,))

  def _add_after(self, u: UOp) -> None:
    below = u.src[0]
    self._under[u] = self._under.get(below, below)
    base, version = self.base_of(below)
    stores, last = version.stores, version.last if len(u.src) == 1 else ()
    for effect in u.src[1:]:
      if effect.op is not Ops.STORE:
        raise ValueError(f"AFTER waits for {effect!r}: at tensor level only a STORE is an effect")
      if (other := self.base_of(effect.src[0])[0]) is not base:
        raise ValueError(f"AFTER of {base!r} waits for a STORE into another buffer, {other!r}")
      stores |= self._after[effect].stores
      last = (*last, *self._after[effect].last)
    self._of[u] = (base, Version(stores, last))

  def under(self, after: UOp) -> UOp:
    """What an AFTER (of an AFTER…) is a version of: views over a BUFFER."""
    return self._under[after]

  def base_of(self, u: UOp) -> tuple[UOp, Version]:
    """The BUFFER under a chain of views, and the version. Raises ValueError when there is no BUFFER."""
    node = u
    while node.op in GroupOp.Movement or node.op in GroupOp.Identity or node.op is Ops.BITCAST:
      node = node.src[0]
    if node.op is Ops.AFTER:
      return self._of[node]
    if node.op is not Ops.BUFFER:
      raise ValueError(f"{node!r} is not a buffer: STORE and AFTER take movement operations over a BUFFER")
    return node, ORIGINAL

  def version_of(self, u: UOp) -> Version:
    """The version that a chain of views reads."""
    return self.base_of(u)[1]

  def after(self, store: UOp) -> Version:
    """The version right after a STORE."""
    return self._after[store]

  def before(self, store: UOp) -> Version:
    """The version that a STORE is done to."""
    return self.base_of(store.src[0])[1]

  def follows(self, store: UOp, version: Version) -> bool:
    """Whether a STORE overwrites what a reader of `version` has to see."""
    return not version.stores & self._bits[store] and self.before(store).stores & version.stores == version.stores
