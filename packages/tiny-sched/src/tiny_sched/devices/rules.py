"""Rules that make a graph for each device of operations on values that are on several: what is above a MULTI moves
below it, and where the sources of an operation lie otherwise than its result, they are copied.

How each result lies is not decided here: `UOp.sharding` says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiny_sched.devices.collectives import combined, for_each, gathered
from tiny_sched.devices.ranks import scattered
from tiny_sched.graph_rules import scalar_of
from tiny_uop import GroupOp, Ops, PatternMatcher, Samples, Sharding, UOp, UPat, dtypes, even_bounds, rule
from tiny_uop.shape import pairs
from tiny_uop.sharding import gathered_first, is_local, kept


def layout(u: UOp) -> Sharding:
  """How a value that is on several devices lies there."""
  found = u.sharding
  assert found is not None, f"{u!r} is on several devices"
  return found


def multi(s: Sharding, pieces: Sequence[UOp]) -> UOp:
  """A value of its pieces."""
  return UOp.multi(s, pieces)


def pieces_of(x: UOp, s: Sharding) -> list[UOp]:
  """What each device needs of a source, for a result that lies as `s` says. Raises ValueError for one that is on other
  devices."""
  if x.op is Ops.MULTI and x.src and layout(x).devices == s.devices:
    if layout(x) == s or not x.shape:
      return list(x.src)
    if s.spans and (pieces := scattered(x, s)) is not None:
      return pieces
    return for_each(x, s, [s.region(i, x.shape) for i in range(len(s.devices))])
  const = scalar_of(x)
  if const is None and x.device is not None:
    where = f"on {x.device} and is used with values on {', '.join(s.devices)}"
    raise ValueError(f"{x!r} is {where}: copy one of them with COPY first")
  x = x if const is None else const.filling(x.shape)
  return [x.shrink(s.region(i, x.shape)) if x.shape else x for i in s.here]


def everywhere(x: UOp) -> list[UOp]:
  """All of a MULTI on each device."""
  return pieces_of(x, Sharding(layout(x).devices))


# *** leaves and copies ***


def _const(u: UOp, d: UOp) -> UOp | None:
  if not isinstance(d.arg, tuple):
    return None
  s = Sharding(d.arg)
  return multi(s, [u.with_src((d.replace(arg=name),)) for name in s.homes])


def _whole(x: UOp) -> tuple[tuple[int | UOp, int | UOp], ...]:
  return tuple([(0, s) for s in x.shape])


def _copy_to_several(x: UOp, u: UOp, d: UOp) -> UOp | None:
  if not isinstance(d.arg, tuple):
    return None
  s = u.arg or Sharding(d.arg)
  if x.op is Ops.MULTI and layout(x).devices == s.devices:
    return multi(s, pieces_of(x, s))
  if x.op is Ops.MULTI:
    return multi(s, [gathered(x, s.region(i, x.shape), name) for i, name in zip(s.here, s.homes)])
  return multi(s, [x.shrink(s.region(i, x.shape)).copy_to(name) for i, name in zip(s.here, s.homes)])


def _copy_to_one(x: UOp, u: UOp, d: UOp) -> UOp | None:
  return None if isinstance(d.arg, tuple) else gathered(x, _whole(x), d.arg)


def _mark_part(x: UOp, m: UOp, u: UOp, d: UOp) -> UOp | None:
  s = x.sharding
  if m.tag is not None or s is None or not isinstance(d.arg, str):
    return None
  for cut in s.cuts:
    start, stop = pairs(m.geometry)[cut.axis]
    if isinstance(start, int) and isinstance(stop, int) and (start, stop) != (0, cut.bounds[-1]):
      return u.with_src((m.rtag(PART), d))
  return None


def _copy_of_part(x: UOp, m: UOp, d: UOp) -> UOp | None:
  return None if m.tag is None else gathered(x, pairs(m.geometry), d.arg)


# *** movement ***


def _moved_here(x: UOp, u: UOp) -> UOp | None:
  """A movement of which every device does a part, and nothing has to be copied."""
  if u.tag is not None or not is_local(u):
    return None
  before, after = layout(x), layout(u)
  made = []
  for i, piece in zip(before.here, x.src, strict=True):
    if u.op in (Ops.RESHAPE, Ops.EXPAND):
      shape = after.part_shape(i, u.shape)
      made.append(piece.reshape(shape) if u.op is Ops.RESHAPE else piece.expand(shape))
    elif u.op is Ops.SHRINK:
      made.append(piece.shrink(_left(u, before, i)))
    else:
      made.append(u.with_src((piece, *u.src[1:])))
  return multi(after, made)


def _left(u: UOp, s: Sharding, i: int) -> list[tuple[int | UOp, int | UOp]]:
  """What a SHRINK keeps of a piece."""
  region = list(pairs(u.geometry))
  for cut in s.cuts:
    found, start = kept(cut, u), region[cut.axis][0]
    assert found is not None and isinstance(start, int)
    place = s.place(cut, i)
    first = max(cut.bounds[place], start) - cut.bounds[place]
    region[cut.axis] = (first, first + found[place + 1] - found[place])
  return region


def _moved_whole(x: UOp, u: UOp) -> UOp | None:
  """A movement over axes of the pieces that are in none after it: every device does all of those."""
  if u.tag is not None or is_local(u) or (first := gathered_first(u)) == layout(x):
    return None
  return u.with_src((multi(first, pieces_of(x, first)), *u.src[1:]))


def _across(x: UOp, u: UOp) -> Sharding | None:
  """How the result of a movement lies that takes elements from one device to another; None for other movements."""
  return None if u.tag is not None or is_local(u) or gathered_first(u) != layout(x) else layout(u)


def _shrink_across(x: UOp, u: UOp) -> UOp | None:
  if (after := _across(x, u)) is None:
    return None
  starts = u.geometry[::2]
  regions = [[(a + n, b + n) for (a, b), n in zip(after.region(i, u.shape), starts)] for i in range(len(after.devices))]
  return multi(after, for_each(x, after, regions))


def _flip_across(x: UOp, u: UOp) -> UOp | None:
  if (after := _across(x, u)) is None:
    return None
  regions = []
  for i in range(len(after.devices)):
    region = list(after.region(i, u.shape))
    for cut in after.cuts:
      if cut.axis in u.arg:
        start, stop = after.span(cut, i)
        region[cut.axis] = (cut.bounds[-1] - stop, cut.bounds[-1] - start)
    regions.append(region)
  return multi(after, [part.flip(u.arg) for part in for_each(x, after, regions)])


def _pad_across(x: UOp, u: UOp) -> UOp | None:
  if (after := _across(x, u)) is None:
    return None
  regions, paddings = [], []
  for i in range(len(after.devices)):
    region, padding = list(_whole(x)), list(pairs(u.geometry))
    for cut in after.cuts:
      size, before = int(x.shape[cut.axis]), padding[cut.axis][0]
      assert isinstance(before, int)
      start, stop = after.span(cut, i)
      low, high = max(start - before, 0), min(stop - before, size)
      low, high = (low, high) if low < high else (0, 0)  # nothing but padding
      region[cut.axis], padding[cut.axis] = (low, high), (low - start + before, stop - before - high)
    regions.append(region)
    paddings.append(padding)
  made: list[UOp] = []
  for i, part in zip(after.here, for_each(x, after, regions), strict=True):
    if 0 in part.shape:
      zero = UOp(Ops.CONST, u.dtype, (UOp(Ops.DEVICE, arg=after.homes[len(made)]),), u.const_like(0).base.arg)
      filled = zero.filling(after.part_shape(i, u.shape))
      made.append(filled.later_than(part.base) if after.spans else filled)  # other ranks wait for this one to take part
    else:
      made.append(part.pad(paddings[i]))
  return multi(after, made)


# *** values ***


def _reduce_here(x: UOp, u: UOp) -> UOp | None:
  if layout(x).cut_axes & set(u.arg[1]):
    return None
  return multi(layout(u), [u.with_src((piece,)) for piece in x.src])


def _reduce_across(x: UOp, u: UOp) -> UOp | None:
  op, axes = u.arg
  if not layout(x).cut_axes & set(axes):
    return None
  return multi(layout(u), combined(op, [u.with_src((piece,)) for piece in x.src], layout(x), axes, u.shape))


def _on_each(u: UOp) -> UOp | None:
  if all(s.op is not Ops.MULTI for s in u.src):
    return None
  s = layout(u)
  sources = [pieces_of(x, s) for x in u.src]
  return multi(s, [u.with_src(here) for here in zip(*sources)])


def _bitcast(x: UOp, u: UOp) -> UOp:
  after, before = layout(u), layout(x)
  split = before.with_cuts([c for c in before.cuts if c.axis in after.cut_axes])
  return multi(after, [u.with_src((piece,)) for piece in pieces_of(x, split)])


def _identity(x: UOp, u: UOp) -> UOp:
  return multi(layout(x), [u.with_src((piece,)) for piece in x.src])


def _barrier(u: UOp) -> UOp | None:
  """Each device waits for what it computes itself of the values that come before."""
  x, *before = u.src
  if all(s.op is not Ops.MULTI for s in u.src):
    return None
  homes = layout(x).homes if x.op is Ops.MULTI else (x.device,)
  made = []
  for i, home in enumerate(homes):
    own = [p for b in before for p in (b.src if b.op is Ops.MULTI else (b,)) if p.device in (None, home)]
    made.append(u.with_src((x.src[i] if x.op is Ops.MULTI else x, *own)))
  return multi(layout(x), made) if x.op is Ops.MULTI else made[0]


# *** effects ***


def _store(v: UOp, x: UOp, u: UOp) -> UOp | None:
  s = layout(v)
  if any(p.base.op not in (Ops.BUFFER, Ops.AFTER) for p in v.src):
    view = f"a view of a value on {', '.join(s.devices)} that moves elements between devices"
    raise ValueError(f"STORE through {view}: store a value for all of it")
  if x.op is Ops.MULTI and layout(x) == s:
    return None
  return u.with_src((v, multi(s, [_on(d, piece) for piece, d in zip(pieces_of(x, s), s.homes)])))


def _on(device: str, x: UOp) -> UOp:
  """A value that was made of numbers alone, on a device."""
  if x.device is not None:
    return x
  place = UOp(Ops.DEVICE, arg=device)
  numbers = [u for u in x.walk() if u.op is Ops.CONST and u.dtype is not dtypes.index]
  return x.substitute({u: u.with_src((place,)) for u in numbers})


def _stores(store: UOp) -> list[UOp]:
  target, value = store.src
  if target.op is not Ops.MULTI:
    return [store]
  return [store.with_src(pair) for pair in zip(target.src, value.src)]


def _after(x: UOp, u: UOp) -> UOp:
  effects = zip(*[_stores(s) for s in u.src[1:]])
  return multi(layout(x), [u.with_src((piece, *own)) for piece, own in zip(x.src, effects)])


def on_several_devices(nodes: Iterable[UOp]) -> bool:
  """Whether a value is on several devices."""
  return any(u.op is Ops.MULTI or (u.op is Ops.DEVICE and type(u.arg) is tuple) for u in nodes)


def roots_on_devices(sink: UOp) -> UOp:
  """The SINK of what each device has to do for the roots of one that the rules have rewritten."""
  roots = [r for s in sink.src for r in (s.src if s.op is Ops.MULTI else _stores(s) if s.op is Ops.STORE else (s,))]
  return sink.with_src(tuple(roots))


PART = "part"
_x, _m = UPat(Ops.MULTI, name="x"), UPat(Ops.SHRINK, src=(UPat.var("x"),), name="m", more=True)
_part = UPat(Ops.SHRINK, src=(_x,), name="m", more=True)
_device = UPat(Ops.DEVICE, name="d")
_BOTH = ("CPU", "CPU:1")
_EACH = "an operation for each device"


def _split(s: Samples, *shape: int, axis: int = 0) -> UOp:
  """A value in two pieces."""
  half = tuple([n // 2 if i == axis else n for i, n in enumerate(shape)])
  parts = [s.buffer(*half, slot=i, device=d) for i, d in enumerate(_BOTH)]
  return multi(Sharding.of(_BOTH, axis, even_bounds(shape[axis], 2)), parts)


def _copied(s: Samples, *shape: int) -> UOp:
  """A value that both devices have."""
  x = s.buffer(*shape, slot=2)
  return multi(Sharding(_BOTH), [x, x.copy_to(_BOTH[1])])


def _placed(s: Samples, device: str | tuple[str, ...]) -> UOp:
  return UOp(Ops.CONST, dtypes.int32, (UOp(Ops.DEVICE, arg=device),), 3)


def _written(x: UOp) -> UOp:
  """What is in a value after another has been written to it."""
  return x.after(x.store(x.flip((1,)) if x.op is not Ops.MULTI else x.with_src(tuple([p.flip((1,)) for p in x.src]))))


PART_RULES = PatternMatcher([
  rule("mark_part", UPat(Ops.COPY, src=(_m, _device), name="u"), _mark_part,
       example=lambda s: _split(s, 6, 4).shrink(((2, 5), (0, 4))).copy_to("CPU"),
       near_miss=(lambda s: _split(s, 6, 4).shrink(((0, 6), (1, 4))).copy_to("CPU"),
                  lambda s: _copied(s, 6, 4).shrink(((2, 5), (0, 4))).copy_to("CPU"))),
])  # fmt: skip
"""Before all others, which would spread a part of a value over the devices before it is copied to one of them."""

DEVICE_RULES = PatternMatcher([
  rule("const_on_devices", UPat(Ops.CONST, src=(_device,), name="u"), _const, grows=_EACH,
       example=lambda s: _placed(s, _BOTH), near_miss=lambda s: _placed(s, "CPU")),
  rule("copy_to_devices", UPat(Ops.COPY, src=(UPat.var("x"), _device), name="u"), _copy_to_several, grows=_EACH,
       example=(lambda s: s.buffer(3, 4).copy_to(_BOTH), lambda s: _split(s, 6, 4).copy_to(_BOTH)),
       near_miss=lambda s: s.buffer(3, 4).copy_to("CPU:1")),
  rule("copy_from_devices", UPat(Ops.COPY, src=(_x, _device), name="u"), _copy_to_one, grows=_EACH,
       example=(lambda s: _split(s, 6, 4).copy_to("CPU:1"), lambda s: _split(s, 6, 4, axis=1).copy_to("CPU:2"),
                lambda s: _copied(s, 3, 4).copy_to("CPU:1")),
       near_miss=lambda s: s.buffer(3, 4).copy_to("CPU:1")),
  rule("copy_of_part", UPat(Ops.COPY, src=(_part, _device)), _copy_of_part, grows=_EACH,
       example=(lambda s: _split(s, 6, 4).shrink(((2, 5), (0, 4))).rtag(PART).copy_to("CPU"),
                lambda s: _split(s, 6, 4).shrink(((4, 5), (0, 3))).rtag(PART).copy_to("CPU")),
       near_miss=lambda s: _split(s, 6, 4).shrink(((0, 6), (1, 4))).copy_to("CPU")),
  rule("movement_of_pieces", UPat(GroupOp.Movement, src=(_x,), name="u", more=True), _moved_here, grows=_EACH,
       example=(lambda s: _split(s, 6, 4).reshape((2, 3, 4)), lambda s: _split(s, 4, 1).expand((4, 3)),
                lambda s: _split(s, 6, 4).permute((1, 0)), lambda s: _split(s, 6, 4).shrink(((1, 5), (0, 2))),
                lambda s: _split(s, 6, 4).pad(((0, 0), (1, 0))), lambda s: _split(s, 6, 4).flip((1,))),
       near_miss=(lambda s: _split(s, 6, 4).shrink(((2, 5), (0, 4))).rtag(PART),
                  lambda s: _split(s, 6, 4, axis=1).reshape((24,)), lambda s: _split(s, 6, 4).flip((0,)))),
  rule("movement_of_all", UPat(GroupOp.Movement, src=(_x,), name="u", more=True), _moved_whole, grows=_EACH,
       example=lambda s: _split(s, 6, 4, axis=1).reshape((24,)),
       near_miss=(lambda s: _split(s, 6, 4).reshape((24,)), lambda s: _split(s, 6, 4).flip((0,)))),
  rule("shrink_across_pieces", UPat(Ops.SHRINK, src=(_x,), name="u", more=True), _shrink_across, grows=_EACH,
       example=(lambda s: _split(s, 8, 2).shrink(((5, 8), (0, 2))), lambda s: _split(s, 6, 4).shrink(((4, 5), (0, 4)))),
       near_miss=lambda s: _split(s, 8, 2).shrink(((2, 8), (0, 2)))),
  rule("flip_across_pieces", UPat(Ops.FLIP, src=(_x,), name="u"), _flip_across, grows=_EACH,
       example=lambda s: _split(s, 6, 4).flip((0,)), near_miss=lambda s: _split(s, 6, 4).flip((1,))),
  rule("pad_across_pieces", UPat(Ops.PAD, src=(_x,), name="u", more=True), _pad_across, grows=_EACH,
       example=(lambda s: _split(s, 6, 4).pad(((1, 0), (0, 2))), lambda s: _split(s, 4, 2).pad(((0, 5), (0, 0)))),
       near_miss=lambda s: _split(s, 6, 4).pad(((0, 0), (1, 0)))),
  rule("reduce_of_pieces", UPat(Ops.REDUCE, src=(_x,), name="u"), _reduce_here, grows=_EACH,
       example=(lambda s: _split(s, 6, 4).reduce_axes(Ops.ADD, (1,)),
                lambda s: _copied(s, 3, 4).reduce_axes(Ops.MAX, (0,))),
       near_miss=lambda s: _split(s, 6, 4).reduce_axes(Ops.ADD, (0,))),
  rule("reduce_across_pieces", UPat(Ops.REDUCE, src=(_x,), name="u"), _reduce_across, grows=_EACH,
       changes="floats are summed in another order",
       example=(lambda s: _split(s, 6, 4).reduce_axes(Ops.ADD, (0,)),
                lambda s: _split(s, 6, 4).reduce_axes(Ops.MAX, (0, 1))),
       near_miss=lambda s: _split(s, 6, 4).reduce_axes(Ops.ADD, (1,))),
  rule("bitcast_of_pieces", UPat(Ops.BITCAST, src=(_x,), name="u"), _bitcast, grows=_EACH,
       example=(lambda s: _split(s, 6, 4).bitcast(dtypes.uint8),
                lambda s: _split(s, 6, 4, axis=1).bitcast(dtypes.int64)),
       near_miss=lambda s: s.buffer(3, 4).bitcast(dtypes.uint8)),
  rule("elementwise_of_pieces", UPat(GroupOp.Elementwise - {Ops.BITCAST}, name="u"), _on_each, grows=_EACH,
       example=(lambda s: _split(s, 6, 4) + 1.0, lambda s: _split(s, 6, 4) * _copied(s, 6, 4),
                lambda s: _split(s, 6, 4) + _split(s, 6, 4, axis=1)),
       near_miss=lambda s: s.buffer(3, 4) + 1.0),
  rule("identity_of_pieces", UPat(GroupOp.Identity, src=(_x,), name="u"), _identity, grows=_EACH,
       example=lambda s: _split(s, 6, 4).contiguous(), near_miss=lambda s: s.buffer(3, 4).contiguous()),
  rule("barrier_of_pieces", UPat(Ops.BARRIER, name="u"), _barrier, grows=_EACH,
       example=(lambda s: _split(s, 6, 4).later_than(_split(s, 4, 4)),
                lambda s: s.buffer(3, 4).later_than(_split(s, 4, 4))),
       near_miss=lambda s: s.buffer(3, 4).later_than(s.buffer(3, 4, slot=1))),
  rule("store_in_pieces", UPat(Ops.STORE, src=(UPat(Ops.MULTI, name="v"), UPat.var("x")), name="u"), _store,
       grows=_EACH,
       example=(lambda s: _split(s, 6, 4).store(_copied(s, 6, 4)),
                lambda s: _split(s, 6, 4).store(UOp.const(dtypes.float32, 1.0, (6, 4)))),
       near_miss=lambda s: _split(s, 6, 4).store(_split(s, 6, 4))),
  rule("after_of_pieces", UPat(Ops.AFTER, src=(_x,), name="u", more=True), _after, grows=_EACH,
       example=lambda s: _written(_split(s, 6, 4)), near_miss=lambda s: _written(s.buffer(3, 4))),
])  # fmt: skip
