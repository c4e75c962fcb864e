"""The part of a graph that decides its schedule: BUFFERs become numbered slots, BINDs their VARIABLEs, CUSTOM_GRADIENTs
their values.

It has two forms: `structure` is the key of the cache, quick to make; `normalise` gives the graph that is scheduled.

BUFFERs that have no memory yet have ids of their own kind, so that none of them is taken for a real one: slots,
temporaries, and the arenas that temporaries lie in.
"""

from __future__ import annotations

from tiny_uop import DType, Ops, UOp, dtypes, value_nodes
from tiny_uop.records import dataclass
from tiny_uop.uop import RESERVED_BUFFER_IDS

_FIRST_TEMPORARY = RESERVED_BUFFER_IDS
_FIRST_ARENA = RESERVED_BUFFER_IDS << 1
_FIRST_SLOT = RESERVED_BUFFER_IDS << 2
_BUFFER, _BIND, _CUSTOM_GRADIENT = Ops.BUFFER, Ops.BIND, Ops.CUSTOM_GRADIENT
_LEAVES = frozenset({Ops.CONST, Ops.DEVICE, Ops.VARIABLE})


@dataclass(frozen=True)
class Given:
  """What is left out. `buffers[i]`: the BUFFER of slot i. `binds`: the BIND of each bound VARIABLE."""

  buffers: tuple[UOp, ...]
  binds: dict[UOp, UOp]

  def originals(self) -> dict[UOp, UOp]:
    """The BUFFER in the place of each slot."""
    return {slot_buffer(slot, buffer): buffer for slot, buffer in enumerate(self.buffers)}


@dataclass(frozen=True)
class Structure(Given):
  """`key`: equal for two graphs if and only if their normal forms are the same. `nodes`: those that the key lists,
  sources first, as many and in the same order for all graphs with it, and in the normal form. So it has no leaves: the
  value of a BIND is a node of its own in one graph, and another constant's in the next."""

  key: tuple[object, ...]
  nodes: list[UOp]


@dataclass(frozen=True)
class Normal(Given):
  """`sink`: the graph over slots and VARIABLEs."""

  sink: UOp


def slot_buffer(slot: int, buffer: UOp) -> UOp:
  """The BUFFER that stands for a slot. No real one has its id, so that a cached graph keeps no memory alive."""
  return buffer.replace(arg=(_FIRST_SLOT + slot, buffer.arg[1]))


def slot_of(buffer: UOp) -> int:
  """The slot that a BUFFER of a normalised graph stands for."""
  return int(buffer.arg[0]) - _FIRST_SLOT


def temporary_buffer(number: int, device: str, size: int, dtype: DType) -> UOp:
  """The BUFFER that stands for a temporary."""
  return UOp(Ops.BUFFER, dtype, (UOp(Ops.DEVICE, arg=device),), (_FIRST_TEMPORARY + number, size))


def temporary_number(buffer: UOp) -> int:
  """The number of a temporary's BUFFER."""
  return int(buffer.arg[0]) - _FIRST_TEMPORARY


def arena_buffer(number: int, device: str, nbytes: int) -> UOp:
  """The BUFFER that stands for the memory of all temporaries of a device."""
  return UOp(Ops.BUFFER, dtypes.uint8, (UOp(Ops.DEVICE, arg=device),), (_FIRST_ARENA + number, nbytes))


def is_slot(buffer: UOp) -> bool:
  """Whether a BUFFER stands for a slot."""
  return bool(buffer.arg[0] >= _FIRST_SLOT)


def is_temporary(buffer: UOp) -> bool:
  """Whether a BUFFER stands for a temporary."""
  return bool(_FIRST_TEMPORARY <= buffer.arg[0] < _FIRST_ARENA)


def is_arena(buffer: UOp) -> bool:
  """Whether a BUFFER stands for an arena."""
  return bool(_FIRST_ARENA <= buffer.arg[0] < _FIRST_SLOT)


def structure(sink: UOp) -> Structure:
  """The structure of a graph, without making any node. Raises ValueError where one VARIABLE is bound to two values.

  The key lists the nodes, sources before users: op, dtype, arg, tag, and the places of the sources. A leaf has no place
  and stands for itself: as numbers 0.0 and -0.0 would be equal.
  """
  places: dict[UOp, object] = {}
  place = places.__getitem__
  key: list[object] = []
  buffers: list[UOp] = []
  binds: dict[UOp, UOp] = {}
  nodes: list[UOp] = []
  for u in value_nodes(sink, kernels=True):
    op = u.op
    if op is _CUSTOM_GRADIENT:
      places[u] = places[u.src[0]]
    elif op in _LEAVES:
      places[u] = u
    elif op is _BIND:
      places[u] = _bound_once(u, binds)
    else:
      arg = u.arg
      if op is _BUFFER and not is_temporary(u):
        arg = arg[1]
        buffers.append(u)
      key += (op, u.dtype, arg, u.tag)
      key += map(place, u.src)
      places[u] = len(key)
      nodes.append(u)
  return Structure(tuple(buffers), binds, tuple(key), nodes)


def nodes_of(normal: UOp) -> list[UOp]:
  """The nodes of a normal form in the order of `Structure.nodes`."""
  return [u for u in value_nodes(normal, kernels=True) if u.op not in _LEAVES]


def normalise(sink: UOp) -> Normal:
  """Normalises a graph. Raises ValueError where one VARIABLE is bound to two values."""
  done: dict[UOp, UOp] = {}
  buffers: list[UOp] = []
  binds: dict[UOp, UOp] = {}
  for u in value_nodes(sink, kernels=True):
    if u.op is _CUSTOM_GRADIENT:
      done[u] = done[u.src[0]]
    elif u.op is _BUFFER and not is_temporary(u):
      done[u] = slot_buffer(len(buffers), u)
      buffers.append(u)
    elif u.op is _BIND:
      done[u] = _bound_once(u, binds)
    else:
      done[u] = u.with_src(tuple([done[s] for s in u.src]))
  return Normal(tuple(buffers), binds, done[sink])


def _bound_once(bind: UOp, binds: dict[UOp, UOp]) -> UOp:
  """The VARIABLE of a BIND, which is added to `binds`."""
  variable = bind.src[0]
  if (other := binds.setdefault(variable, bind)) is not bind:
    values = sorted((other.unbind()[1], bind.unbind()[1]))
    raise ValueError(
      f"variable {variable.arg[0]!r} is bound to {values[0]} and to {values[1]} in one graph: realize one part first"
    )
  return variable
