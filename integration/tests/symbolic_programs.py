"""Random programs whose shapes depend on variables, each run with numbers and with bound Variables in their place.

A program is lines of Python over tensors `a`, `b`, `c` and the sizes `n` and `m`. With numbers, its graphs and those of
its gradients are evaluated node by node by tiny-uop's plain evaluator, without the scheduler. With bound Variables it
is compiled and run: eagerly for several values, or captured by TinyJit and replayed for others. All have to agree.

`python integration/tests/symbolic_programs.py FIRST COUNT` runs programs by their seeds; each that differs is shrunk to
as few lines as show the difference, and printed with its seed.
"""

from __future__ import annotations

import math
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import shrinking
from shrinking import without_a_line

from tiny_runtime import buffer_of
from tiny_tensor import Tensor, TinyJit, Variable, dtypes
from tiny_tensor.shapes import upper, value_of
from tiny_uop import Ops, UOp
from tiny_uop.testing.tensors import Tensors

Array = Any
Values = tuple[int, int]
MOST = 200  # elements of a value
LIMIT = 1 << 16  # beyond it sums of products would not be exact in float32
REFUSED = (
  "ran no kernel",  # TinyJit, of a program of views
  "do not broadcast",  # of n in [1, 2] and 2, which could be said of each value alone
  "give the variables bounds",  # a slice that is in range, which interval arithmetic does not see
)
DECLINED = "declined:"
FLOATS = ("a", "b")  # the inputs that require a gradient
INPUTS = (*FLOATS, "c")  # `c` holds int32


@dataclass(frozen=True)
class Program:
  """`lines` after inputs of `shapes`; `sizes`: the bounds of `n` and `m`; `values`: what they are bound to in turn."""

  seed: int
  shapes: tuple[tuple[int, ...], ...]
  bounds: tuple[Values, Values]
  values: tuple[Values, ...]
  lines: tuple[str, ...]
  captured: bool
  gradient: bool

  def __str__(self) -> str:
    how = f"{'captured' if self.captured else 'eager'}{' with gradients' if self.gradient else ''}"
    sizes = ", ".join(f"{x} in {list(b)}" for x, b in zip("nm", self.bounds))
    shapes = ", ".join(f"{name}: {shape}" for name, shape in zip(INPUTS, self.shapes))
    return "\n".join([f"seed {self.seed}, {how}; {sizes}; (n, m) = {self.values}; {shapes}", *self.lines])

  @property
  def results(self) -> list[str]:
    """The names that lines make."""
    return list(dict.fromkeys(name for line in self.lines if (name := line.split(" ")[0]).isidentifier()))

  def data(self, turn: int) -> list[Array]:
    """The inputs of one call: small whole numbers, with which sums and products are exact."""
    rng = np.random.default_rng(self.seed * 16 + turn)
    kinds = ["float32"] * len(FLOATS) + ["int32"]
    return [rng.integers(-3, 4, shape).astype(kind) for shape, kind in zip(self.shapes, kinds)]

  def weights(self, shape: Sequence[int]) -> Array:
    """What the elements of a result are multiplied by before they are summed for a gradient."""
    return np.random.default_rng(self.seed + len(shape)).integers(-2, 3, tuple(shape)).astype("float32")


# *** running ***


def keep(t: Tensor) -> Tensor:
  """What `keep` is with numbers, where nothing is computed."""
  return t.detach()


def memory(*shape: int) -> Tensor:
  """Zeros that can be written to."""
  return Tensor.zeros(*shape).contiguous()


def stored(t: Tensor) -> Tensor:
  """In memory of its own, now, which ends the way back of gradients."""
  return t.detach().contiguous().realize()


def build(program: Program, inputs: Sequence[Tensor], n: Any, m: Any, compute: bool) -> dict[str, Tensor]:
  """The tensors that a program makes, by name."""
  names: dict[str, Any] = {"Tensor": Tensor, "n": n, "m": m, "dtypes": dtypes, **dict(zip(INPUTS, inputs))}
  names |= {"keep": stored if compute else keep, "memory": (lambda *s: memory(*s).realize()) if compute else memory}
  for line in program.lines:
    exec(line, names)
  return {name: names[name] for name in program.results}


def weighed(program: Program, made: dict[str, Tensor]) -> list[Tensor]:
  """The last results that have a gradient, which a weighted sum is taken of: inputs as well, since a join with nothing
  is one with numbers, and with Variables it is a join.
  """
  floats = [t for t in made.values() if dtypes.is_float(t.dtype) and (t._history or t.requires_grad)]
  return floats[-2:] if program.gradient else []


def gradients(program: Program, made: dict[str, Tensor], inputs: Sequence[Tensor], weigh: Any) -> dict[str, Tensor]:
  """The gradients of the weighted sum of results, by the name of the input."""
  if not (floats := weighed(program, made)):
    return {}
  total = sum(((t * weigh(t)).sum() for t in floats[1:]), (floats[0] * weigh(floats[0])).sum())
  found = total.gradient(*inputs[: len(FLOATS)], materialize_grads=True)
  return {f"d{name}": g for name, g in zip(FLOATS, found)}


class Concrete:
  """The values of a program with numbers, by evaluating graphs."""

  def __init__(self, program: Program, values: Values, turn: int) -> None:
    self.evaluator = Tensors()
    self.inputs = []
    for array in program.data(turn):
      t = self.input(array)
      self.inputs.append(t.requires_grad_(True) if array.dtype == np.float32 else t)
    self.made = build(program, self.inputs, *values, compute=False)

  def input(self, array: Array) -> Tensor:
    buffer = UOp.new_buffer("CPU", max(array.size, 1), dtypes.float32 if array.dtype == np.float32 else dtypes.int32)
    self.evaluator.buffers[buffer] = array.flatten().tolist() or [0]
    return Tensor._wrap(buffer.reshape(array.shape) if array.size else buffer.shrink([(0, 0)]).reshape(array.shape))

  def results(self, program: Program) -> dict[str, Array]:
    found = {**self.made, **gradients(program, self.made, self.inputs, lambda t: self.input(program.weights(t.shape)))}
    return {name: self.array(t) for name, t in found.items()}

  def called(self, call: UOp) -> list[Any]:
    """The value of a kernel written by hand, on the device REF, over what its inputs are evaluated to."""
    kernel, _, *inputs = call.src
    sources = []
    for u in inputs:
      flat, size = self.evaluator.value(u), math.prod(u.shape)
      whole = np.array(flat * size if len(flat) == 1 else flat, u.dtype.name).reshape(u.shape)
      sources.append(Tensor(whole, device="REF").realize().uop)
    made = Tensor._wrap(call.replace(src=(kernel, UOp(Ops.DEVICE, arg="REF"), *sources)))
    return made.numpy().flatten().tolist()

  def array(self, t: Tensor) -> Array:
    if t.numel() == 0:
      return np.zeros(t.shape, t.dtype.name)
    for u in t.uop.toposort:
      if u.op is Ops.BUFFER and u not in self.evaluator.buffers:
        try:  # an index that a line made
          self.evaluator.buffers[u] = np.frombuffer(buffer_of(u).look(), u.dtype.name)[: u.arg[1]].tolist()
        except RuntimeError:  # memory that it writes to
          self.evaluator.buffers[u] = [0] * u.arg[1]
      if u.op is Ops.CALL and u not in self.evaluator.given:
        self.evaluator.given[u] = self.called(u)
    flat = self.evaluator.value(t.uop)
    size = math.prod(t.shape)
    return np.array(flat * size if len(flat) == 1 else flat, t.dtype.name).reshape(t.shape)


def padded(weights: Array, shape: Sequence[Any]) -> Tensor:
  """An array in the beginning of a larger one, of which only the beginning is seen."""
  whole = Tensor(np.pad(weights, [(0, upper(s) - k) for s, k in zip(shape, weights.shape)]) if shape else weights)
  for axis, size in enumerate(shape):
    if not isinstance(size, int):
      whole = whole.shrink([(0, size) if i == axis else None for i in range(len(shape))])
  return whole


def with_variables(program: Program) -> Iterator[dict[str, Array]]:
  """The results of each call, with bound Variables."""
  weights: dict[str, Tensor] = {}

  def run(inputs: Sequence[Tensor], given: dict[str, Tensor], n: UOp, m: UOp) -> dict[str, Tensor]:
    made = build(program, inputs, n, m, compute=True)
    spare = iter(given.values())
    grads = gradients(program, made, inputs, lambda t: next(spare))
    found = {**made, **grads}
    alone = [t for t in found.values() if 0 not in t.shape]
    if alone:
      alone[0].realize(*alone[1:])
    return found

  jit = TinyJit(run) if program.captured else run
  for turn, values in enumerate(program.values):
    n, m = (Variable(x, *b).bind(v) for x, b, v in zip("nm", program.bounds, values))
    inputs = [Tensor(array).realize() for array in program.data(turn)]
    inputs = [t.requires_grad_(True) if t.dtype is dtypes.float32 else t for t in inputs]
    shapes = build(program, inputs, n, m, compute=False)
    wanted = weighed(program, shapes)
    weights = {str(i): padded(program.weights([value_of(s) for s in t.shape]), t.shape) for i, t in enumerate(wanted)}
    del shapes, wanted
    yield {name: t.numpy() for name, t in jit(inputs, weights, n, m).items()}


def difference(program: Program) -> str | None:
  """How the program differs with Variables from what it is with numbers, in words; None if it does not. One that is
  refused for a known reason is `DECLINED`."""
  expected = [Concrete(program, values, turn).results(program) for turn, values in enumerate(program.values)]
  if any(a.size and not np.all(np.abs(a[np.isfinite(a)]) <= LIMIT) for found in expected for a in found.values()):
    return None  # rounding would differ
  try:
    for values, wanted, got in zip(program.values, expected, with_variables(program)):
      for name, array in wanted.items():
        if got[name].shape != array.shape:
          return f"{name} has shape {got[name].shape}, expected {array.shape}, at {values}"
        if not np.allclose(got[name], array, rtol=1e-4, atol=1e-3, equal_nan=True):
          return f"{name} is\n{got[name].tolist()}, expected\n{array.tolist()}, at {values}"
  except Exception as error:
    if any(text in str(error) for text in REFUSED):
      return f"{DECLINED} {error}"
    at = "".join(traceback.format_exception(error)[-3:])
    return f"{type(error).__name__} {error}"[:3000] + f"\n{at[-1500:]}"
  return None


def kind_of(text: str | None) -> str | None:
  """As `shrinking.kind_of`; what is declined is no difference."""
  return None if text is None or text.startswith(DECLINED) else shrinking.kind_of(text)


def simpler(program: Program) -> Iterator[Program]:
  """With a line, a gradient, a capture, or values less; or with a line that only hands on what it was made of."""
  yield from without_a_line(program)
  yield from (replace(program, gradient=False), replace(program, captured=False))
  if len(program.values) > 1 and not program.captured:
    yield from (replace(program, values=(values,)) for values in program.values)
  for i, line in enumerate(program.lines):
    # a line that can be left out only if those after it use what it was made of
    name, _, made = line.partition(" = ")
    for other in (*INPUTS, *program.results[:i]):
      if made != other and name.isidentifier() and other != name and other in made:
        yield replace(program, lines=(*program.lines[:i], f"{name} = {other}", *program.lines[i + 1 :]))


def shrunk(program: Program) -> tuple[Program, str]:
  """The program with as few lines, values and results as show a difference of its kind."""
  return shrinking.shrunk(program, difference, simpler, kind_of)


# *** making ***


@dataclass
class Maker:
  """Draws lines that are valid for all values of the sizes."""

  seed: int
  lines: list[str] = field(default_factory=list)

  def __post_init__(self) -> None:
    rng = self.rng = random.Random(self.seed)
    low = rng.choice([1, 1, 1, 2, 0])
    self.bounds = ((low, rng.choice([3, 4, 5])), (rng.choice([1, 1, 2]), rng.choice([2, 3, 4])))
    (n0, n1), (m0, m1) = self.bounds
    self.values = tuple(
      dict.fromkeys([(rng.randint(n0, n1), rng.randint(m0, m1)), (n1, m0), (n0, m1), (n1, m1), (n0, m0)])
    )[: rng.choice([3, 4])]
    both = [(n1, m1), (m1, n1), (n1,), (2, n1), (n1, 3), (n1, m1, 2), (2, n1, m1), (n1, n1), (1, n1, m1), (m1, 2, n1)]
    self.shapes = tuple(rng.choice(both) for _ in INPUTS)
    if rng.random() < 0.4:
      self.shapes = (self.shapes[0],) * 2 + self.shapes[2:]
    everywhere = [(n, m) for n in range(n0, n1 + 1) for m in range(m0, m1 + 1)]
    self.states = [Concrete(self.program(False, False), v, 0) for v in everywhere]
    self.names = list(INPUTS)
    self.env = [
      {
        **dict(zip(INPUTS, s.inputs)),
        "n": v[0],
        "m": v[1],
        "Tensor": Tensor,
        "keep": keep,
        "memory": memory,
        "dtypes": dtypes,
      }
      for s, v in zip(self.states, everywhere)
    ]  # type: list[dict[str, Any]]

  def program(self, captured: bool, gradient: bool) -> Program:
    return Program(self.seed, self.shapes, self.bounds, self.values, tuple(self.lines), captured, gradient)

  def add(self, *lines: str) -> bool:
    """Adds lines if they are valid for all values of the sizes."""
    before = [dict(e) for e in self.env]
    try:
      for line in lines:
        for e in self.env:
          exec(line, e)
      name = lines[-1].split(" ")[0]
      made = [e[name] for e in self.env]
      if max(math.prod(t.shape) for t in made) > MOST or len({t.ndim for t in made}) > 1 or made[0].ndim > 5:
        raise ValueError("too large")
    except Exception:
      self.env = before
      return False
    self.lines += lines
    if name not in self.names:
      self.names.append(name)
    return True

  def pick(self) -> str:
    """A name, rather a late one and one whose shape depends on the sizes."""
    varying = [name for name in self.names[len(INPUTS) :] if len({e[name].shape for e in self.env}) > 1]
    return self.rng.choice(self.names + self.names[-2:] * 2 + varying * 3)

  def shape(self, name: str) -> tuple[int, ...]:
    """The largest shape of a value."""
    return tuple(max(e[name].shape[i] for e in self.env) for i in range(self.env[0][name].ndim))

  def step(self) -> None:
    for _ in range(20):
      new = f"t{len(self.lines)}"
      drawn = self.rng.choice(STEPS)(self, self.pick())
      if drawn is not None and self.add(*[line.replace("NEW", new) for line in drawn]):
        return

  def axis(self, name: str) -> int:
    return self.rng.randrange(max(len(self.shape(name)), 1))

  def size(self) -> str:
    """A size, as it is written."""
    # not one that can be -1, which means something else
    less = ["m - 1"] + ["n - 1"] * (self.bounds[0][0] > 0)
    return self.rng.choice(["n", "m", "n", "m", "n", "2", "3", "n + 1", "n * 2", "m + n", *less])


def _key(m: Maker, t: str, axis: int, piece: str) -> str:
  return f"{t}[{':, ' * axis}{piece}]"


def _slice(m: Maker, t: str) -> list[str] | None:
  size, axis = m.size(), m.axis(t)
  # a bound with a variable has to be in range for all values
  if any(e[t].ndim == 0 or not 0 <= eval(size, e) <= e[t].shape[axis] for e in m.env):
    size = "1"
  least = min(eval(size, e) for e in m.env)
  piece = m.rng.choice(
    [f":{size}", f":{size}", f":{size}", f"{size}:", f"{size} - 1" if least else ":1", "-1", "::-1", "::2", "1:"]
  )
  return [f"NEW = {_key(m, t, axis, piece)}"]


def _permute(m: Maker, t: str) -> list[str]:
  order = list(range(len(m.shape(t))))
  m.rng.shuffle(order)
  return [f"NEW = {t}.permute({order})"]


def _flip(m: Maker, t: str) -> list[str]:
  return [f"NEW = {t}.flip({m.axis(t)})"]


def _pad(m: Maker, t: str) -> list[str]:
  axis, axes = m.axis(t), len(m.shape(t))
  to = m.shape(t)[axis] if axes else 0
  amount = m.rng.choice(["(1, 0)", "(0, 2)", "(1, 1)", "(n, 0)", "(0, m)", f"(0, {to} - {t}.shape[{axis}])", "(-1, 2)"])
  around = ", ".join(amount if i == axis else "(0, 0)" for i in range(axes))
  value = m.rng.choice(["", "", ", value=2.0"])
  return [f"NEW = {t}.pad(({around},){value})"]


def _reshape(m: Maker, t: str) -> list[str] | None:
  axes = len(m.shape(t))
  if axes < 2 or m.rng.random() < 0.3:
    return [f"NEW = {t}.{m.rng.choice(['flatten()', 'unsqueeze(0)', 'unsqueeze(-1)'])}"]
  at = m.rng.randrange(axes - 1)
  if m.rng.random() < 0.5:
    return [f"NEW = {t}.flatten({at}, {at + 1})"]
  sizes = [f"{t}.shape[{i}]" for i in range(axes)]
  m.rng.shuffle(sizes)
  return [f"NEW = {t}.reshape({', '.join(sizes)})"]


def _unflatten(m: Maker, t: str) -> list[str]:
  return [f"NEW = {t}.unflatten({m.axis(t)}, ({m.rng.choice(['2, -1', '-1, 2', '-1, 3', 'm, n'])}))"]


def _expand(m: Maker, t: str) -> list[str]:
  axes, axis = len(m.shape(t)), m.axis(t)
  rest = ", ".join(f"{t}.shape[{i}]" for i in range(axes))
  wide = ", ".join(m.size() if i == axis else "-1" for i in range(axes + 1))
  return [
    m.rng.choice(
      [
        f"NEW = {t}.expand({m.size()}, {rest})",
        f"NEW = {t}.unsqueeze({axis}).expand({wide})",
        f"NEW = {t}.repeat({', '.join(m.rng.choice(['1', '2', 'n']) for _ in m.shape(t))})",
        f"NEW = {t}.repeat_interleave({m.rng.choice(['2', '3'])}, {m.axis(t)})",
      ]
    )
  ]


def _join(m: Maker, t: str) -> list[str]:
  other, dim = m.pick(), m.axis(t)
  if m.rng.random() < 0.3:
    return [f"NEW = {t}.stack({other}, dim={dim})"]
  both = m.rng.choice([(t, other), (other, t), (t, t), (_key(m, t, dim, ":2"), other)])
  return [f"NEW = {both[0]}.cat({both[1]}, dim={dim})"]


def _reduce(m: Maker, t: str) -> list[str]:
  axis = m.axis(t)
  name = m.rng.choice(
    ["sum", "sum", "max", "min", "mean", "prod", "any", "argmax", "argmin", "sum", "var", "logsumexp"]
  )
  keep_axis = m.rng.choice(["", ", keepdim=True"])
  cast = ".cast('float32')" if name in ("any", "argmax", "argmin") else ""
  where = "" if m.rng.random() < 0.1 else f"{axis}{keep_axis}"
  return [f"NEW = {t}.{name}({where}){cast}"]


def _scan(m: Maker, t: str) -> list[str]:
  name = m.rng.choice(
    ["cumsum({})", "cumsum({})", "cummax({})[0]", "softmax({})", "cumprod({})", "sort({})[0]", "argsort({})"]
  )
  return [f"NEW = {t}.{name.format(m.axis(t))}"]


def _unary(m: Maker, t: str) -> list[str]:
  made = m.rng.choice(
    ["-{}", "{} * 2 + 1", "{} - 3", "{}.abs()", "{}.relu()", "{}.clip(-4, 4)", "{} // 2", "{} % 5", "{}.square()",
     "{}.clip(-2, 2).exp()", "{} * n", "{} + m", "{}.sigmoid()", "{}.cast('float32')", "{}.cast('int32')",
     "{}.tril()", "{}.triu(1)", "{}.detach()", "{} / 2"]
  )  # fmt: skip
  return [f"NEW = {made.format(t)}"]


def _binary(m: Maker, t: str) -> list[str]:
  other = m.pick()
  made = m.rng.choice(
    ["{} + {}", "{} - {}", "{} * {}", "{}.maximum({})", "{}.minimum({})", "({0} < {1}).where({0}, {1})",
     "({0} == {1}).where({0} * 2, 1)", "{} * {}"]
  )  # fmt: skip
  return [f"NEW = {made.format(t, other)}"]


def _product(m: Maker, t: str) -> list[str]:
  other = m.rng.choice([m.pick(), f"{t}.transpose(-1, -2)", f"{m.pick()}.transpose(-1, -2)"])
  return [f"NEW = {t}.matmul({other})"]


def _store(m: Maker, t: str) -> list[str]:
  return [f"NEW = {m.rng.choice(['keep({})', 'keep({})', '{}.contiguous()', 'keep({} + 1)']).format(t)}"]


def _gather(m: Maker, t: str) -> list[str]:
  axis, lowest = m.axis(t), min((e[t].shape[m.axis(t)] for e in m.env if e[t].ndim), default=1)
  places = [m.rng.randrange(max(lowest, 1)) for _ in range(m.rng.randint(1, 3))]
  return m.rng.choice(
    [
      [f"NEW = {_key(m, t, axis, f'Tensor({places}, dtype=dtypes.int32)')}"],
      [f"NEW = {_key(m, t, axis, f'Tensor.arange({m.size()})')}"],
      [f"NEW = {_key(m, t, axis, f'Tensor.arange({t}.shape[{axis}]).flip(0)')}"],
      [f"NEW = {t}.gather({axis}, {t}.argsort({axis}))"],
      [f"NEW = {_key(m, t, axis, f'c.flatten()[:2].abs() % {t}.shape[{axis}]')}"],
    ]
  )


def _made(m: Maker, t: str) -> list[str]:
  made = m.rng.choice(
    ["Tensor.arange({})", "Tensor.arange(1, {}, 2)", "Tensor.full(({}, 2), 3.0)", "Tensor.ones({})", "Tensor.eye({})",
     "Tensor.arange(n, n + m)", "Tensor.full((n, m), 2)", "Tensor.arange({}, -1, -1)", "Tensor.zeros(2, {})"]
  ).format(m.size())  # fmt: skip
  use = m.rng.choice(["{1}", "{0} + {1}", "{0} * {1}", "({1} > 1).where({0}, {1})"])
  return [f"NEW = {use.format(t, made)}"]


def _assign(m: Maker, t: str) -> list[str]:
  shape = m.shape(t)
  room = [s + m.rng.choice([0, 0, 1]) for s in shape]
  key = ", ".join(
    f"{start}:{start + '+' if start else ''}{t}.shape[{i}]"
    for i in range(len(shape))
    for start in [m.rng.choice(["", "", "0"])]
  )
  if not shape or not all(room):
    return [f"NEW = {t}"]
  lines = [f"NEW = memory({', '.join(map(str, room))})", f"NEW[{key}] = {t}.detach().cast('float32')"]
  more = m.rng.choice([[], [f"NEW[{key}] = NEW[{key}] * 2"], ["NEW = NEW + 1"], ["NEW = keep(NEW)"]])
  return [*lines, *more, "NEW = NEW * 1"]


def _windows(m: Maker, t: str) -> list[str]:
  k, s = m.rng.choice([1, 2, 2, 3]), m.rng.choice([1, 1, 2, 3])
  d, p = m.rng.choice([1, 1, 2]), m.rng.choice([0, 0, 1])
  up = "".join([".unsqueeze(0)"] * max(3 - len(m.shape(t)), 0))
  kernel = f"Tensor([[{[1.0, 2.0, -1.0][:k]}]])"
  pool = m.rng.choice(
    [f"max_pool2d(({k},), stride={s}, dilation={d})", f"avg_pool2d(({k},), stride={s}, padding={p if k > 1 else 0})",
     f"conv2d({kernel}, stride={s}, dilation={d}, padding={p})", f"conv2d({kernel}, padding={p})"]
  )  # fmt: skip
  return [f"NEW = {t}{up}.{pool}", "NEW = NEW.squeeze(0)"][: m.rng.choice([1, 2])]


STEPS: list[Callable[[Maker, str], list[str] | None]] = [
  _slice, _slice, _slice, _permute, _flip, _pad, _reshape, _reshape, _unflatten, _expand, _expand, _join, _join,
  _reduce, _reduce, _scan, _unary, _unary, _binary, _binary, _binary, _product, _product, _store, _store, _gather,
  _made, _assign, _windows,
]  # fmt: skip


def program_of(seed: int) -> Program:
  """The program of a seed."""
  maker = Maker(seed)
  places = [
    (axis, size)
    for axis, most in enumerate(maker.shapes[0])
    for size, (_, high) in zip("nm", maker.bounds)
    if high <= most
  ]
  axis, size = maker.rng.choice(places or [(0, "n")])
  maker.add(f"t0 = {_key(maker, 'a', axis, ':' + size)}" if places else "t0 = a + n")
  for _ in range(maker.rng.randint(1, 6)):
    maker.step()
  return maker.program(maker.rng.random() < 0.4, maker.rng.random() < 0.7)


def run(first: int, count: int) -> int:
  """Runs programs and prints those that differ; how many do."""
  wrong = declined = 0
  for seed in range(first, first + count):
    try:
      program = program_of(seed)
      text = difference(program)
    except Exception as error:
      wrong += 1
      print(f"seed {seed}: cannot be made: {error!r}", flush=True)
      traceback.print_exc()
      continue
    if kind_of(text) is not None:
      wrong += 1
      program, text = shrunk(program)
      print(f"{program}\n{text}\n", flush=True)
    declined += text is not None and text.startswith(DECLINED)
  print(f"{count} programs from {first} on: {wrong} differ, {declined} are declined", flush=True)
  return wrong


if __name__ == "__main__":
  sys.exit(run(int(sys.argv[1]), int(sys.argv[2])) > 0)
