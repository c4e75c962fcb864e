"""Random programs that write to memory through views, against NumPy, whose views alias memory as ours do.

A program is lines of Python over tensors `a`, `b` (of one dtype), `c` (int32) and what earlier lines made. Each name is
memory, a view of memory, or a value that is computed from them and may not be computed yet. A line makes one of them,
writes to one (all, a slice, places that integers or a mask name), computes some now, or forgets one. The same text runs
on tensors and on arrays. Numbers are whole and small, and integers wrap, so that all have to be equal to the bit.

`python integration/tests/memory_programs.py FIRST COUNT` runs programs by their seeds; each that differs is shrunk to
as few lines as show the difference, and printed with its seed.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import shrinking
from shrinking import without_a_line

from tiny_tensor import Context, Tensor, TinyJit

DTYPES = ("int32", "float32", "int8", "uint8", "uint64", "int16", "bool", "float64", "float16", "int64", "uint32")
MOST = 120  # elements
INPUTS = ("a", "b", "c")
REFUSED = (
  "share a place",
  "several elements of",
  "ran no kernel",
  "reading a Tensor",  # TinyJit, of a mask that picks elements
)


class Arr:
  """A NumPy array with the methods of a Tensor that programs use."""

  def __init__(self, a: Any) -> None:
    self.a = np.asarray(a)

  shape = property(lambda self: self.a.shape)

  def permute(self, *order: int) -> Arr:
    return Arr(self.a.transpose(order))

  def flip(self, axis: int) -> Arr:
    return Arr(np.flip(self.a, axis))

  def __getitem__(self, key: Any) -> Arr:
    key = plain(key if isinstance(key, tuple) else (key,))
    dots = () if any(k is ... for k in key) else (...,)  # without which one element is no view
    return Arr(self.a[(*key, *dots)])

  def __setitem__(self, key: Any, value: Any) -> None:
    with np.errstate(all="ignore"):
      self.a[plain(key)] = plain(value, self.a.dtype)

  def reshape(self, *shape: int) -> Arr:
    made = self.a.view()
    made.shape = shape  # raises AttributeError where NumPy would copy: ours is a view there, too
    return Arr(made)

  def expand(self, *shape: int) -> Arr:
    return Arr(np.broadcast_to(self.a, shape))

  def pad(self, around: Any) -> Arr:
    return Arr(np.pad(self.a, around))

  def cast(self, dtype: str) -> Arr:
    return Arr(self.a.astype(dtype))

  def assign(self, value: Any) -> Arr:
    self[...] = value
    return self

  def _with(self, f: Callable[..., Any], *others: Any) -> Arr:
    with np.errstate(all="ignore"):
      return Arr(f(self.a, *(plain(o, self.a.dtype) for o in others)))

  def __add__(self, o: Any) -> Arr:
    if self.a.dtype == bool and isinstance(o, int):
      return Arr(self.a.astype("int32") + o)
    return self._with(np.bitwise_or if self.a.dtype == bool else np.add, o)

  def __mul__(self, o: Any) -> Arr:
    if self.a.dtype == bool and isinstance(o, int):
      return Arr(self.a.astype("int32") * o)
    return self._with(np.multiply, o)

  def __iadd__(self, o: Any) -> Arr:
    return self.assign(self + o)

  def __imul__(self, o: Any) -> Arr:
    return self.assign(self * o)

  def maximum(self, o: Any) -> Arr:
    return self._with(np.maximum, o)

  def eq(self, o: Any) -> Arr:
    return self._with(np.equal, o)

  def lt(self, o: Any) -> Arr:
    return self._with(np.less, o)

  def where(self, x: Any, y: Any) -> Arr:
    return Arr(np.where(self.a, x.a, y.a))

  def cumsum(self, axis: int) -> Arr:
    return Arr(np.cumsum(self.a, axis, self._wide()))

  def _wide(self) -> Any:
    """In what sums are computed."""
    kind, size = self.a.dtype.kind, self.a.dtype.itemsize
    return {"u": "uint32", "i": "int32", "b": "int32"}[kind] if kind in "uib" and size < 4 else self.a.dtype

  def sort(self, axis: int) -> tuple[Arr, Arr]:
    return Arr(np.sort(self.a, axis)), Arr(np.argsort(self.a, axis, kind="stable"))

  def sum(self, axis: int) -> Arr:
    return Arr(self.a.sum(axis, dtype=self._wide()))

  def max(self, axis: int) -> Arr:
    return Arr(self.a.max(axis))

  def cat(self, o: Any, dim: int) -> Arr:
    return Arr(np.concatenate([self.a, o.a], dim))


def plain(x: Any, dtype: Any = None) -> Any:
  """The arrays in a key or a value."""
  if isinstance(x, tuple):
    return tuple(map(plain, x))
  if isinstance(x, Arr):
    return x.a if dtype is None else x.a.astype(dtype)
  return np.array(x).astype(dtype) if dtype is not None and isinstance(x, (int, float)) else x


class Arrays:
  """The functions of a program, on arrays."""

  keep = staticmethod(lambda t: Arr(t.a.copy()))
  value = staticmethod(lambda t: Arr(t.a.copy()))
  places = staticmethod(lambda *at: Arr(np.array(at)))

  @staticmethod
  def compute(*ts: Arr) -> None: ...

  look = compute


class OnTensors:
  """The functions of a program, on tensors."""

  def __init__(self, captured: bool = False) -> None:
    self.captured = captured

  def keep(self, t: Tensor) -> Tensor:
    return t.clone().realize()

  def value(self, t: Tensor) -> Tensor:
    return t

  def places(self, *at: int) -> Tensor:
    return Tensor(list(at))

  def compute(self, *ts: Tensor) -> None:
    ts[0].realize(*ts[1:])

  def look(self, t: Tensor) -> None:
    if not self.captured:
      t.numpy()


@dataclass(frozen=True)
class Program:
  """`lines` after inputs of `shapes`; `calls`: how often they are carried out, by TinyJit if it is more than once."""

  seed: int
  dtype: str
  shapes: tuple[tuple[int, ...], ...]
  lines: tuple[str, ...]
  calls: int

  def __str__(self) -> str:
    shapes = ", ".join(f"{name}: {shape}" for name, shape in zip(INPUTS, self.shapes))
    how = "captured" if self.calls > 1 else "eager"
    return "\n".join([f"seed {self.seed}, {self.dtype}, {how}; {shapes}", *self.lines])

  def data(self, turn: int = 0) -> list[Any]:
    rng = np.random.default_rng(self.seed * 16 + turn)
    low = -3 if np.dtype(self.dtype).kind in "if" else 0
    kinds = [self.dtype] * 2 + ["int32"]
    return [rng.integers(low if k != "int32" else -3, 4, s).astype(k) for s, k in zip(self.shapes, kinds)]


def names_of(env: dict[str, Any], kind: type) -> dict[str, Any]:
  return {name: t for name, t in env.items() if isinstance(t, kind)}


def environment(functions: Any) -> dict[str, Any]:
  return {name: getattr(functions, name) for name in ("keep", "value", "places", "compute", "look")}


def on_arrays(program: Program) -> list[dict[str, Any]]:
  """The values of all names after each call."""
  found = []
  state = [Arr(array) for array in program.data()]
  for turn in range(program.calls):
    env = environment(Arrays) | dict(zip(INPUTS, state))
    if program.calls > 1:
      env["b"] = Arr(program.data(turn)[1])
    for line in program.lines:
      exec(line, env)
    found.append({name: t.a.copy() for name, t in names_of(env, Arr).items()})
  return found


def on_tensors(program: Program) -> list[dict[str, Any]]:
  found = []
  state = [Tensor(array).realize() for array in program.data()]
  rng = random.Random(program.seed)

  def run(b: Tensor) -> dict[str, Tensor]:
    env = environment(OnTensors(program.calls > 1)) | dict(zip(INPUTS, (state[0], b, state[2])))
    for line in program.lines:
      exec(line, env)
    made = names_of(env, Tensor)
    if rng.random() < 0.7 or program.calls > 1:
      order = list(made.values())
      if program.calls == 1:
        rng.shuffle(order)
      filled = [t for t in order if t.numel()]
      Tensor.realize(*filled) if filled else None
    return made

  step: Any = TinyJit(run) if program.calls > 1 else run
  for turn in range(program.calls):
    made = step(Tensor(program.data(turn)[1]).realize() if program.calls > 1 else state[1])
    order = list(made)
    rng.shuffle(order)
    values = {name: made[name].numpy() for name in order}
    found.append({name: values[name] for name in made})
  return found


def difference(program: Program) -> str | None:
  try:
    expected = on_arrays(program)
  except (ValueError, IndexError):  # a mask that picks another number of elements in a later call
    return None
  if any(
    a.dtype.kind == "f" and a.size and not np.all(np.abs(a) <= 1024) for found in expected for a in found.values()
  ):
    return None  # rounding would differ
  try:
    found = on_tensors(program)
  except Exception as error:
    if any(text in str(error) for text in REFUSED):
      return None
    return f"{type(error).__name__} {error}"[:1500] + "\n" + "".join(traceback.format_exception(error)[-3:])[-1200:]
  for turn, (wanted, got) in enumerate(zip(expected, found)):
    for name, array in wanted.items():
      mine = got[name]
      if mine.shape != array.shape:
        return f"{name} has shape {mine.shape}, expected {array.shape}, in call {turn}"
      if not np.array_equal(mine, array):
        return f"{name} is\n{mine.tolist()}, expected\n{array.tolist()}, in call {turn}"
  return None


def simpler(program: Program) -> Iterator[Program]:
  yield from without_a_line(program)
  if program.calls > 1:
    yield replace(program, calls=program.calls - 1)


def shrunk(program: Program) -> tuple[Program, str]:
  return shrinking.shrunk(program, difference, simpler)


# *** making ***


@dataclass
class Maker:
  """Draws lines that are valid, by carrying them out on arrays."""

  seed: int
  lines: list[str] = field(default_factory=list)

  def __post_init__(self) -> None:
    rng = self.rng = random.Random(self.seed)
    self.dtype = rng.choice(DTYPES)
    shapes = [(4,), (6,), (2, 3), (3, 4), (4, 4), (2, 3, 2), (1, 5), (8,), (0, 3), (1,), ()]
    first = rng.choice(shapes)
    self.shapes = (first, first if rng.random() < 0.6 else rng.choice(shapes), rng.choice(shapes))
    self.calls = 4 if rng.random() < 0.35 else 1
    self.env = environment(Arrays)
    program = Program(self.seed, self.dtype, self.shapes, (), 1)
    self.env |= dict(zip(INPUTS, map(Arr, program.data())))
    self.memory = set(INPUTS)  # names that views can be made of
    self.names = list(INPUTS)

  def pick(self, memory: bool = False) -> str:
    names = [n for n in self.names if not memory or n in self.memory]
    return self.rng.choice(names + names[-3:])

  def of(self, name: str) -> Any:
    return self.env[name].a

  def add(self, line: str) -> bool:
    before = {n: Arr(t.a) for n, t in names_of(self.env, Arr).items()}
    try:
      exec(line, self.env)
      if any(t.a.size > MOST or t.a.ndim > 4 for t in names_of(self.env, Arr).values()):
        raise ValueError
    except Exception:
      for n in list(names_of(self.env, Arr)):
        del self.env[n]
      self.env |= before
      return False
    self.lines.append(line)
    return True

  def make(self, line: str, memory: bool) -> bool:
    name = f"t{len(self.lines)}"
    if not self.add(f"{name} = {line}"):
      return False
    self.names.append(name)
    if memory:
      self.memory.add(name)
    return True

  def axis(self, name: str) -> int:
    return self.rng.randrange(max(self.of(name).ndim, 1))

  def span(self, size: int) -> str:
    rng = self.rng
    start, stop = sorted((rng.randint(0, size), rng.randint(0, size)))
    return rng.choice([f"{start}:{stop}", f"{start}:", f":{stop}", "::2", "1::2", "::-1", "::-2", ":", "-1:", "::3"])

  def key(self, name: str, basic: bool) -> str:
    """What indexes a tensor."""
    rng, a = self.rng, self.of(name)
    if not a.ndim:
      return "..."
    parts = []
    advanced = not basic and rng.random() < 0.5
    where = rng.randrange(a.ndim)
    for axis, size in enumerate(a.shape[: rng.randint(1, a.ndim)]):
      if advanced and size and (axis == where or rng.random() < 0.2):
        # no place twice
        at = [i - size * (rng.random() < 0.3) for i in rng.sample(range(size), min(size, 2))]
        parts.append(f"places({', '.join(map(str, at))})")
      elif size and not advanced and rng.random() < 0.3:  # beside places NumPy puts axes elsewhere than PyTorch
        parts.append(str(rng.randrange(-size, size)))
      else:
        parts.append(self.span(size))
    if rng.random() < 0.1:
      parts.insert(rng.randrange(len(parts) + 1), "None")
    if not basic and not advanced and rng.random() < 0.3:
      other = self.pick_like(name) or name
      return f"{name}.eq({other}.cast('{a.dtype}'))"
    return ", ".join(parts)

  def pick_like(self, name: str) -> str | None:
    """Another of the same shape."""
    like = [n for n in self.names if self.of(n).shape == self.of(name).shape]
    return self.rng.choice(like) if like else None

  def view(self, name: str) -> str:
    rng, a = self.rng, self.of(name)
    kind = rng.choice(["key", "key", "permute", "flip", "reshape", "expand"])
    if kind == "permute" and a.ndim:
      order = list(range(a.ndim))
      rng.shuffle(order)
      return f"{name}.permute({', '.join(map(str, order))})"
    if kind == "flip" and a.ndim:
      return f"{name}.flip({self.axis(name)})"
    if kind == "reshape" and a.size:
      parts = [d for d in range(1, a.size + 1) if a.size % d == 0]
      d = rng.choice(parts)
      return f"{name}.reshape({d}, {a.size // d})"
    if kind == "expand":
      return f"{name}.expand({', '.join(map(str, (2, *a.shape)))})"
    return f"{name}[{self.key(name, True)}]"

  def moved(self, name: str) -> str:
    """A name, or a movement of it."""
    return self.view(name) if self.rng.random() < 0.4 else name

  def expression(self, shape: tuple[int, ...] | None = None) -> str:
    """A value that is computed; of a shape, if one is given, or one that broadcasts to it."""
    rng = self.rng
    t = self.pick()
    if shape is not None:
      like = [n for n in self.names if self.of(n).shape == shape] or [
        n for n in self.names if self.of(n).ndim <= len(shape) and not self.of(n).ndim
      ]
      if not like:
        return str(rng.choice([0, 1, 2]))
      t = rng.choice(like)
    other = self.pick_like(t) or t
    same = self.of(other).dtype == self.of(t).dtype
    if not same:
      other = f"{other}.cast('{self.of(t).dtype}')"
    if rng.random() < 0.2 and self.of(t).ndim:
      other = f"{other}.flip({self.axis(t)})"
    forms = [
      f"{t} + {other}", f"{t} + {other}", f"{t} * {other}", f"{t} + 1", f"{t} + 0", f"{t} * 1", f"{t}.maximum({other})",
      f"{t}.lt({other}).where({t}, {other})",
    ]  # fmt: skip
    if shape is None:
      ax = self.axis(t)
      whole = self.moved(t)
      forms += [f"{t}.eq({other})", f"({whole}) + 1", f"({whole}) * 1"]
      forms += [f"{t}.cast('{rng.choice(['int32', 'float32', self.dtype])}') + 0"]
      if self.of(t).ndim:
        forms += [
          f"{t}.cumsum({ax})",
          f"{t}.sum({ax})",
          f"{t}.cat({other}, dim={ax})",
          f"{t}[{self.key(t, False)}] + 0",
        ]
        if self.of(t).shape[ax]:
          forms += [f"{t}.sort({ax})[0]", f"{t}.max({ax})"]
        around = ["(0, 0)"] * self.of(t).ndim
        around[ax] = rng.choice(["(1, 0)", "(0, 2)", "(1, 1)"])
        forms.append(f"{t}.pad(({', '.join(around)},)) + 0")
    return rng.choice(forms)

  def written(self) -> str:
    rng = self.rng
    t = self.pick(memory=rng.random() < 0.7)
    key = self.key(t, False) if rng.random() < 0.7 else "..."
    try:
      shape = eval(f"{t}[{key}]", self.env).shape
    except Exception:
      shape = self.of(t).shape
      key = "..."
    whole = f"({self.expression(shape)})"
    cast = f".cast('{self.of(t).dtype}')"
    whole = whole if whole.strip("()").isdigit() else whole + cast
    kind = rng.random()
    if kind < 0.45:
      return f"{t}[{key}] = {whole}"
    if kind < 0.6:
      return f"{t}[{key}] += {whole}"
    whole = f"({self.expression(self.of(t).shape)})"
    whole = whole if whole.strip("()").isdigit() else whole + cast
    return rng.choice(
      [f"{t} += {whole}", f"{t} *= 2", f"{t}.assign({whole})", f"{t} += 1", f"{t}.assign({t}.flip(0) + 1)"]
    )

  def step(self) -> None:
    rng = self.rng
    for _ in range(20):
      kind = rng.random()
      if kind < 0.2:
        t = self.pick(memory=True)
        if self.make(self.view(t), True):
          return
      elif kind < 0.27:
        if self.calls == 1 and self.make(f"keep({self.expression()})", True):
          return
      elif kind < 0.5:
        if self.make(f"value({self.expression()})", False):
          return
      elif kind < 0.85:
        if self.add(self.written()):
          return
      elif kind < 0.95:
        ts = [self.pick() for _ in range(rng.randint(1, 2))]
        if all(self.of(t).size for t in ts) and self.add(f"compute({', '.join(ts)})"):
          return
      elif kind < 0.97 and len(self.names) > 4:
        name = rng.choice(self.names[3:])
        if self.add(f"del {name}"):
          self.names.remove(name)
          return
      elif self.add(f"look({self.pick()})"):
        return


def made(seed: int) -> Program:
  maker = Maker(seed)
  for _ in range(maker.rng.randint(3, 12)):
    maker.step()
  return Program(seed, maker.dtype, maker.shapes, tuple(maker.lines), maker.calls)


def main(first: int, count: int) -> int:
  faults = 0
  for seed in range(first, first + count):
    program = made(seed)
    try:
      found = difference(program)
    except Exception:
      print(program)
      raise
    if found is not None:
      faults += 1
      print(*shrunk(program), sep="\n", flush=True)
      print()
  print(f"{count} programs, {faults} differ")
  return faults


if __name__ == "__main__":
  with Context(DEVICE=os.environ.get("DEVICE") or "CPU"):
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))
