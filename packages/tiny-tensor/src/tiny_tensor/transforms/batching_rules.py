"""vmap as a graph rewrite: the graph of one example becomes that of all, with a leading axis more.

The function that is mapped has been called once, with placeholders of the shapes of one example. Here every node that
depends on one gets the axis: movement leaves it alone (PERMUTE, PAD, SHRINK, FLIP, RESHAPE and EXPAND count it in),
reductions count their axes one further, elementwise operations and effects just have it. A node that depends on no
placeholder is the same for all examples: it stays as it is, computed once, and is repeated where it meets a mapped one.
A table has one rule per operation. What is indexed by a tensor is a comparison and a sum at this level, so that an
index per example needs no rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tiny_tensor.autograd import tracing
from tiny_tensor.autograd.custom_gradient import Grads, derivative_of, inputs_of, results_of, with_gradient
from tiny_tensor.autograd.rules import sum_to
from tiny_tensor.custom_kernel import repeated_kernel
from tiny_uop import Cut, Devices, GroupOp, Ops, UOp, sint, written_params
from tiny_uop.shape import pairs

Rule: TypeAlias = "Callable[[Batching, UOp], UOp]"


class Batching:
  """The rewrite. `values`: for each placeholder what it stands for, `(size, *shape)`; for each example another."""

  def __init__(self, values: Mapping[UOp, UOp], size: sint) -> None:
    self.size = size
    self.values = dict(values)
    self.mapped: dict[UOp, UOp] = {}
    self.alike: set[UOp] = set()
    self.local: set[UOp] = set()
    self.functions: dict[tuple[UOp, int], tuple[UOp, ...]] = {}
    for placeholder, value in values.items():
      self.mapped[placeholder] = value
      self.mapped[placeholder.base] = value.reshape((size, placeholder.base.shape[0]))

  def __call__(self, roots: Sequence[UOp]) -> list[UOp | None]:
    """Each root with the leading axis; None for one that is the same for every example."""
    top = UOp.sink(*roots)
    self.local |= self.written(top)
    for u in top.walk(lambda n: n not in self.mapped and n not in self.alike):
      if u is top or u in self.mapped or u in self.alike:
        continue
      if u not in self.local and not any(s in self.mapped for s in u.src):
        self.alike.add(u)
        continue
      if (rule := RULES.get(u.op)) is None:
        raise tracing.TransformError(f"vmap has no rule for {u!r}, which depends on an example")
      self.mapped[u] = rule(self, u)
    return [self.mapped.get(r) for r in roots]

  def written(self, top: UOp) -> set[UOp]:
    """The BUFFERs of the function that something is written to which is not the same for every example."""
    nodes = list(top.walk(lambda n: n not in self.mapped))
    if not any(u.op is Ops.STORE for u in nodes):
      return set()
    found: set[UOp] = set()
    while True:
      differs = set(self.mapped) | found
      for u in nodes:
        if u not in differs and any(s in differs for s in u.src):
          differs.add(u)
      new = {written_buffer(u) for u in nodes if u.op is Ops.STORE and u.src[1] in differs} - found
      if not new:
        return found
      found |= new

  def all(self, u: UOp) -> UOp:
    """A node for all examples: repeated where it is the same for each."""
    return self.mapped[u] if u in self.mapped else self.repeated(u)

  def repeated(self, u: UOp) -> UOp:
    """A node once for each example."""
    return u.reshape((1, *u.shape)).expand((self.size, *u.shape))


def written_buffer(store: UOp) -> UOp:
  """The BUFFER that a STORE writes to."""
  u = store.src[0]
  while u.op is not Ops.BUFFER:
    u = u.src[0]
  return u


# *** the rules ***


def _pieces(b: Batching, u: UOp) -> UOp:
  """The first source of a movement op. Raises TransformError for a size that differs from example to example."""
  if any(s in b.mapped for s in u.src[1:]):
    raise tracing.TransformError(f"a size or a position in {u!r} depends on an example: all need one shape")
  return b.all(u.src[0])


def _elementwise(b: Batching, u: UOp) -> UOp:
  def source(s: UOp) -> UOp:
    if s.shape != () or u.shape == ():
      return b.all(s)
    if s not in b.mapped:
      return s  # constants stand without a shape
    return b.mapped[s].reshape((b.size, *(1,) * len(u.shape))).expand((b.size, *u.shape))

  return UOp(u.op, u.dtype, tuple(map(source, u.src)), u.arg)


def _reduce(b: Batching, u: UOp) -> UOp:
  op, axes = u.arg
  return b.all(u.src[0]).reduce_axes(op, tuple(a + 1 for a in axes))


def _first(b: Batching, u: UOp) -> UOp:
  """The operation on the first source; the others say where or when."""
  return u.with_src((b.all(u.src[0]), *[b.mapped.get(s, s) for s in u.src[1:]]))


def _together(b: Batching, u: UOp) -> UOp:
  """Several values as one: those of all examples, and those that are the same for each."""
  return u.with_src(tuple([b.mapped.get(s, s) for s in u.src]))


def _buffer(b: Batching, u: UOp) -> UOp:
  """Memory of the function: as much for each example."""
  count = b.size
  if not isinstance(count, int):
    raise tracing.TransformError(f"writing in place under vmap needs a batch of known size, got {count.render()}")
  return UOp.new_buffer(str(u.device), count * u.arg[1], u.dtype).reshape((count, u.arg[1]))


def _after(b: Batching, u: UOp) -> UOp:
  memory = b.mapped[u.src[0]].base
  return memory.after(*[b.mapped[s] for s in u.src[1:]]).reshape((b.size, *u.shape))


def _multi(b: Batching, u: UOp) -> UOp:
  pieces = tuple([b.all(s) for s in u.src])
  s = u.sharding
  assert s is not None
  return UOp.multi(s.with_cuts([Cut(cut.axis + 1, cut.bounds, cut.along) for cut in s.cuts]), pieces)


def _custom_gradient(b: Batching, u: UOp) -> UOp:
  """All results of the function at once: each is mapped if one of them is, or an input."""
  key = (u.src[1], u.arg.number)
  if key in b.functions:
    return b.functions[key][int(u.arg.output)]
  derivative, inputs, results = derivative_of(u), inputs_of(u), results_of(u)
  values = [b.all(r.src[0]) for r in results]
  into = [b.mapped.get(i, i) for i in inputs]
  if derivative.transparent:
    pull: Callable[..., Grads] = derivative.pullback
  else:
    pull = MappedPullback(
      derivative.pullback, u.arg.name, b.size, tuple(i in b.mapped for i in inputs), inputs, results
    )
  made = with_gradient(values, into, pull, u.arg.name, transparent=derivative.transparent, given=derivative.given)
  b.functions[key] = made
  return made[int(u.arg.output)]


def _call(b: Batching, u: UOp) -> UOp:
  """A given kernel: in a loop over the examples."""
  kernel, device, *inputs = u.src
  results = len(written_params(kernel))
  mapped = {results + i for i, s in enumerate(inputs) if s in b.mapped}
  count = b.size
  if not isinstance(count, int):
    raise tracing.TransformError(
      f"vmap over the custom kernel {kernel.arg.name!r} needs a batch of known size, got {count.render()}"
    )
  made = repeated_kernel(kernel, count, frozenset({*range(results), *mapped}))
  if made is None:
    raise tracing.TransformError(
      f"vmap cannot repeat the custom kernel {kernel.arg.name!r}, which counts its threads by SPECIAL or in a "
      "program: write them as loops, UOp.range(size, number, AxisType.GLOBAL or LOCAL)"
    )
  call = UOp(Ops.CALL, u.dtype, (made, device, *[b.mapped.get(s, s) for s in inputs]), u.arg)
  return call.reshape((b.size, *u.shape))


class MappedPullback:
  """The pullback of one example, mapped over all. An input that all examples share gets the sum of their gradients."""

  def __init__(
    self, pull: Callable[..., Grads], name: str, size: sint, mapped: tuple[bool, ...],
    inputs: Sequence[UOp], results: Sequence[UOp],
  ) -> None:  # fmt: skip
    self.pull, self.name, self.size, self.mapped = pull, name, size, mapped
    self.inputs = [(i.shape, i.dtype, i.device) for i in inputs]
    self.results = [(r.shape, r.dtype, r.device) for r in results]

  def __call__(self, gs: Sequence[UOp | None], inputs: tuple[UOp, ...], results: tuple[UOp, ...]) -> Grads:
    what = f"an example of {self.name!r}"
    values: dict[UOp, UOp] = {}

    def one(value: UOp, like: tuple[tuple[sint, ...], object, Devices | None]) -> UOp:
      made = tracing.placeholder(like[0], value.dtype, like[2], what)
      values[made] = value
      return made

    g = [None if v is None else one(v, like) for v, like in zip(gs, self.results, strict=True)]
    into = [one(v, like) if m else v for v, like, m in zip(inputs, self.inputs, self.mapped, strict=True)]
    out = [one(v, like) for v, like in zip(results, self.results, strict=True)]
    found = self.pull(g, tuple(into), tuple(out))
    batch = Batching(values, self.size)
    done = iter(batch([f for f in found if f is not None]))
    made: list[UOp | None] = []
    for f, m in zip(found, self.mapped, strict=True):
      if f is None:
        made.append(None)
        continue
      each = next(done)
      each = batch.repeated(f) if each is None else each
      made.append(each if m else sum_to(each, (0,)).reshape(f.shape))
    return tuple(made)


RULES: dict[Ops, Rule] = {
  **dict.fromkeys(GroupOp.Elementwise, _elementwise),
  Ops.RESHAPE: lambda b, u: _pieces(b, u).reshape((b.size, *u.shape)),
  Ops.EXPAND: lambda b, u: _pieces(b, u).expand((b.size, *u.shape)),
  Ops.PERMUTE: lambda b, u: _pieces(b, u).permute((0, *(i + 1 for i in u.arg))),
  Ops.PAD: lambda b, u: _pieces(b, u).pad(((0, 0), *pairs(u.geometry))),
  Ops.SHRINK: lambda b, u: _pieces(b, u).shrink(((0, b.size), *pairs(u.geometry))),
  Ops.FLIP: lambda b, u: _pieces(b, u).flip(tuple(i + 1 for i in u.arg)),
  Ops.REDUCE: _reduce,
  **dict.fromkeys((Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.COPY, Ops.BARRIER), _first),
  Ops.MULTI: _multi,
  Ops.SINK: _together,
  Ops.BUFFER: _buffer,
  Ops.STORE: lambda b, u: b.all(u.src[0]).store(b.all(u.src[1])),
  Ops.AFTER: _after,
  Ops.CUSTOM_GRADIENT: _custom_gradient,
  Ops.CALL: _call,
}
