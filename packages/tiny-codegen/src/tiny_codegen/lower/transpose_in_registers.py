"""Pass: what a register tile reads or writes across its vectors is read or written along them, and transposed.

The lanes of a tile's vectors may be far apart in memory while its rows are next to each other: in a convolution with
lanes of channels, the rows are pixels. Lane by lane that is a scalar store for each element. Here the scalars of n rows
that are adjacent become one vector of n, put together from one lane of each row's vector (`kernel/columns.py`); a
renderer that sees all the lanes of the same rows taken so transposes the whole square in n·log2(n) shuffles. Loads go
the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tiny_codegen.kernel.columns import vector_of
from tiny_codegen.kernel.expressions import terms
from tiny_codegen.kernel.memory import gate_of
from tiny_codegen.target import Target
from tiny_uop import Ops, UOp
from tiny_uop.graph import operands, rebuild

LEAST_ROWS = 4  # rows: with fewer there is nothing to gain
# what two accesses share that may become one: the pointer, the gate, the terms of the offset without the constant
Place = tuple[UOp, UOp | None, frozenset[UOp]]


def transpose_in_registers(root: UOp, target: Target) -> UOp:
  """The kernel with vectors in place of scalar accesses to neighbours, on targets that have vectors."""
  most = target.max_vector_lanes
  return _stores(_loads(root, most), most) if most >= LEAST_ROWS else root


# *** stores ***


def _stores(root: UOp, most: int) -> UOp:
  """Groups of stores, the outermost of nested ones, with runs of neighbours as vectors."""
  inner = {s for u in root.toposort if u.op is Ops.GROUP for s in u.src if s.op is Ops.GROUP}

  def change(u: UOp, new: UOp) -> UOp | None:
    if new.op is Ops.VECTORIZE and all(s.op is Ops.EXTRACT for s in new.src):
      return vector_of(new.src)
    return _group(new, most) if new.op is Ops.GROUP and u not in inner else None

  return rebuild(root, change)


def _group(group: UOp, most: int) -> UOp | None:
  effects = list(operands(group, Ops.GROUP))
  lanes: dict[tuple[Place, object], dict[int, UOp]] = {}
  for store in effects:
    if store.op is Ops.STORE and store.arg is None and store.src[1].op is Ops.EXTRACT:
      place, at = _place(store.src[0])
      lanes.setdefault((place, store.src[1].arg), {})[at] = store
  wide: dict[UOp, UOp | None] = {}  # what stands in place of a store: its run's first one is the vector's
  for along in lanes.values():
    for run in _runs(along, most):
      stores = [along[at] for at in run]
      wide.update(dict.fromkeys(stores))
      wide[stores[0]] = stores[0].src[0].store(vector_of([s.src[1] for s in stores]))
  places: dict[Place, dict[int, UOp]] = {}
  for (place, _), along in lanes.items():
    places.setdefault(place, {}).update({at: store for at, store in along.items() if store not in wide})
  for along in places.values():
    for run in _runs(along, most):
      stores = [along[at] for at in run]
      values = [s.src[1] for s in stores]
      if _by_turns(values):
        wide.update(dict.fromkeys(stores))
        wide[stores[0]] = stores[0].src[0].store(vector_of(values))
  if not wide:
    return None
  new = [wide.get(e, e) for e in effects]
  return UOp.group(*[e for e in new if e is not None])


def _by_turns(scalars: Sequence[UOp]) -> bool:
  """Whether scalars are the lanes of two vectors by turns: renderers write that as one shuffle."""
  (a, b), (first,) = (s.src[0] for s in scalars[:2]), scalars[0].arg
  turns = all(s.src[0] is (a, b)[place % 2] and s.arg == (first + place // 2,) for place, s in enumerate(scalars))
  return turns and a is not b and a.dtype is b.dtype


# *** loads ***


def _loads(root: UOp, most: int) -> UOp:
  """Scalar loads that fill lanes, with runs of neighbours as lanes of one vector."""
  lanes: dict[tuple[Place, int], dict[int, UOp]] = {}
  for vector in root.toposort:
    # and no scalar that is spread
    if vector.op is Ops.VECTORIZE and len(set(vector.src)) == len(vector.src) >= LEAST_ROWS:
      for lane, load in enumerate(vector.src):
        if load.op is Ops.LOAD and len(load.src) == 1:  # without a gate, and so without an alternative
          place, at = _place(load.src[0])
          lanes.setdefault((place, lane), {})[at] = load
  wide: dict[UOp, UOp] = {}
  for along in lanes.values():
    for run in _runs(along, most):
      loads = [along[at] for at in run]
      vector = loads[0].src[0].load(dtype=loads[0].dtype.vec(len(loads)))
      wide.update({load: vector.extract(lane) for lane, load in enumerate(loads)})
  return root.substitute(wide) if wide else root


def transposed_loads(loads: Iterable[UOp]) -> frozenset[UOp]:
  """Of the LOADs of a kernel those that have neighbours, and so would be read in vectors if loops around all of them
  became lanes."""
  along: dict[Place, dict[int, UOp]] = {}
  for load in loads:
    if len(load.src) == 1:
      place, at = _place(load.src[0])
      along.setdefault(place, {})[at] = load
  return frozenset(group[at] for group in along.values() for run in _runs(group, LEAST_ROWS) for at in run)


# *** both ***


def _place(index: UOp) -> tuple[Place, int]:
  """(what a place shares with its neighbours, its distance from there)."""
  summands = terms(index.src[1])
  constant = sum(int(t.arg) for t in summands if t.op is Ops.CONST)
  return (index.src[0], gate_of(index), frozenset(t for t in summands if t.op is not Ops.CONST)), constant


def _runs(positions: Iterable[int], most: int) -> Iterator[list[int]]:
  """Runs of consecutive numbers, of lengths that are powers of two; those of fewer than LEAST_ROWS are left alone."""
  ordered = sorted(positions)
  start = 0
  while start < len(ordered):
    end = start + 1
    while end < len(ordered) and ordered[end] == ordered[end - 1] + 1:
      end += 1
    if end - start >= LEAST_ROWS:
      for length in _powers(end - start, most):
        if length > 1:
          yield ordered[start : start + length]
        start += length
    start = end


def _powers(length: int, most: int) -> Iterator[int]:
  """Powers of two that add up to a length, large ones first."""
  while length:
    power = min(1 << (length.bit_length() - 1), most)
    yield power
    length -= power
