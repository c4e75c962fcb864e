"""Two independent evaluators over NumPy: `evaluate` of tensor graphs (without scheduler), `execute` of schedules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_sched import schedule, schedule_cache_clear
from tiny_uop import Accumulate, DType, GroupOp, Ops, UOp, dtypes
from tiny_uop.context import Context
from tiny_uop.text.golden import round_trips_checked

sys.path.insert(0, str(Path(__file__).parent))

from sched_graphs import stored  # helpers beside the tests

Array = np.ndarray[Any, np.dtype[Any]]
Memory = dict[UOp, Array]


def to_numpy(dtype: DType) -> np.dtype[Any]:
  return np.dtype("bool" if dtype is dtypes.bool else "int64" if dtype is dtypes.index else dtype.name)


def _floordiv(a: Array, b: Array) -> Array:
  return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _floormod(a: Array, b: Array) -> Array:
  return np.where(b == 0, 0, a % np.where(b == 0, 1, b))


ALU: dict[Ops, Callable[..., Any]] = {
  Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum, Ops.FDIV: np.divide,
  Ops.FLOORDIV: _floordiv, Ops.FLOORMOD: _floormod, Ops.CMPLT: np.less, Ops.CMPNE: np.not_equal, Ops.CMPEQ: np.equal,
  Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or,
  Ops.XOR: np.bitwise_xor, Ops.SHL: np.left_shift, Ops.SHR: np.right_shift, Ops.WHERE: np.where, Ops.EXP: np.exp,
  Ops.LOG: np.log,
  Ops.EXP2: np.exp2, Ops.LOG2: np.log2, Ops.SIN: np.sin, Ops.SQRT: np.sqrt, Ops.TRUNC: np.trunc,
}  # fmt: skip
REDUCE: dict[Ops, Any] = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum}


def _alu(u: UOp, values: list[Any]) -> Any:
  if u.op is Ops.CAST:
    return np.asarray(values[0]).astype(to_numpy(u.dtype))
  if u.op is Ops.BITCAST:
    return np.ascontiguousarray(values[0]).view(to_numpy(u.dtype))
  return np.asarray(ALU[u.op](*values)).astype(to_numpy(u.dtype))


def _identity(op: Ops, dtype: DType) -> Any:
  return to_numpy(dtype).type(dtypes.min(dtype) if op is Ops.MAX else int(op is Ops.MUL))


def _ints(geometry: tuple[int | UOp, ...], values: dict[UOp, Any]) -> list[int]:
  return [g if isinstance(g, int) else int(scalar(g, values)) for g in geometry]


def scalar(u: UOp, values: dict[UOp, Any]) -> Any:
  """A symbolic integer; `values` holds those of VARIABLEs."""
  if u in values:
    return values[u]
  if u.op is Ops.CONST:
    return u.arg
  if u.op is Ops.BIND:
    return u.unbind()[1]
  return _alu(u, [scalar(s, values) for s in u.src])


# *** tensor graphs ***


class Evaluator:
  """Values of a tensor graph, node by node. STOREs are functional: an AFTER is a copy of the buffer, written to."""

  def __init__(self, memory: Memory) -> None:
    self.memory, self.done = memory, {}  # type: Memory, dict[UOp, Array]

  def run(self, root: UOp) -> Array:
    for u in root.toposort:
      if u.op not in (Ops.DEVICE, Ops.SINK, Ops.STORE, Ops.VARIABLE):
        self.done[u] = np.asarray(self.value(u))
    return self.done[root]

  def value(self, u: UOp) -> Any:
    src = [self.done[s] for s in u.src if s in self.done]
    if u.op is Ops.BUFFER:
      return self.memory[u].copy()
    if u.op in (Ops.CONST, Ops.BIND):
      return to_numpy(u.dtype).type(scalar(u.replace(src=()) if u.op is Ops.CONST else u, {}))
    if u.op is Ops.AFTER:
      return self.after(u)
    if u.op in GroupOp.Movement:
      return self.move(u, src[0])
    if u.op is Ops.REDUCE:
      op, axes = u.arg
      result = src[0]
      for axis in axes:  # bool needs the identity spelled out
        result = (
          REDUCE[op].reduce(result, axis=axis, keepdims=True, initial=_identity(op, u.dtype)).astype(result.dtype)
        )
      return result
    if u.op in GroupOp.Identity or u.op is Ops.COPY:
      return src[0]
    if u.op is Ops.BITCAST and u.dtype.itemsize != u.src[0].dtype.itemsize:
      return np.ascontiguousarray(src[0]).view(to_numpy(u.dtype))
    return _alu(u, list(np.broadcast_arrays(*src)))

  @staticmethod
  def move(u: UOp, x: Array) -> Array:
    g = _ints(u.geometry, {}) if u.op is not Ops.FLIP else []
    if u.op is Ops.PAD:
      return np.pad(x, list(zip(g[::2], g[1::2], strict=True))) if g else x
    if u.op is Ops.SHRINK:
      return x[tuple(slice(a, b) for a, b in zip(g[::2], g[1::2], strict=True))]
    moves: dict[Ops, Callable[[], Array]] = {
      Ops.RESHAPE: lambda: x.reshape(g), Ops.EXPAND: lambda: np.broadcast_to(x, g), Ops.PERMUTE: lambda: x.transpose(g),
      Ops.FLIP: lambda: np.flip(x, u.arg),
    }  # fmt: skip
    return moves[u.op]()

  def after(self, u: UOp) -> Array:
    """Writes through a view by finding out which element of the result each element of the view is."""
    result = self.done[u.src[0]].copy()
    for store in u.src[1:]:
      view, value = store.src
      base = view
      while base.op in GroupOp.Movement:
        base = base.src[0]
      full = self.done[base].copy()
      numbers = np.arange(full.size).reshape(full.shape)
      places = Evaluator.through(view, base, numbers)
      full.reshape(-1)[places.reshape(-1)] = np.broadcast_to(self.done[value], places.shape).reshape(-1)
      result = Evaluator.through(u.src[0], base, full) if base is not u.src[0] else full
    return result

  @staticmethod
  def through(view: UOp, base: UOp, x: Array) -> Array:
    chain: list[UOp] = []
    while view is not base and view.op in GroupOp.Movement:
      chain.append(view)
      view = view.src[0]
    for u in reversed(chain):
      x = Evaluator.move(u, x)
    return x


# *** schedules ***


def _load(u: UOp, index: UOp, buffers: list[Array], env: dict[UOp, Any], memo: dict[UOp, Any]) -> Any:
  data = buffers[index.src[0].arg]
  offset = np.asarray(_lanes(index.src[1], buffers, env, memo))
  if len(index.src) == 2:
    assert np.all((offset >= 0) & (offset < data.size)), (
      f"{index.src[1].render()} is out of bounds of {data.size} elements"
    )
    return data[offset]
  gate = np.asarray(_lanes(index.src[2], buffers, env, memo))
  offset, gate = np.broadcast_arrays(offset, gate)
  assert np.all(~gate | ((offset >= 0) & (offset < data.size))), (
    f"gated {index.src[1].render()} is out of bounds of {data.size}"
  )
  alternative = np.asarray(_lanes(u.src[1], buffers, env, memo)) if len(u.src) > 1 else data.dtype.type(0)
  return np.where(gate, data[np.where(gate, offset, 0)] if data.size else data.dtype.type(0), alternative)


def _lanes(u: UOp, buffers: list[Array], env: dict[UOp, Any], memo: dict[UOp, Any]) -> Any:
  """The value of a kernel expression in all iterations at once: each loop is an axis of the result."""
  for node in u.walk(lambda n: n not in memo):
    if node in memo or node.op in (Ops.PARAM, Ops.INDEX):
      continue
    if node.op is Ops.LOAD:
      memo[node] = _load(node, node.src[0], buffers, env, memo)
    elif node.op is Ops.REDUCE:
      memo[node] = _reduce(node, env, memo)
    elif node in env:
      memo[node] = env[node]
    elif node.op is Ops.CONST:
      memo[node] = to_numpy(node.dtype).type(node.arg)
    else:
      memo[node] = _alu(node, [memo[s] for s in node.src])
  return memo[u]


def _reduce(u: UOp, env: dict[UOp, Any], memo: dict[UOp, Any]) -> Any:
  value = np.asarray(memo[u.src[0]])
  for r in u.src[1:]:
    if env[r].size == 1:
      continue
    axis = int(np.argmax(np.asarray(env[r].shape) > 1))
    wide = np.broadcast_to(value, np.broadcast_shapes(value.shape, env[r].shape))
    value = REDUCE[u.arg[0]].reduce(wide, axis=axis, keepdims=True).astype(wide.dtype)
  if any(r.src[0].op is Ops.CONST and r.src[0].arg == 0 for r in u.src[1:]):
    return _identity(u.arg[0], u.dtype)
  return value


def run_kernel(body: UOp, buffers: list[Array], variables: dict[UOp, Any]) -> None:
  """Runs a kernel: every loop is an axis of its own, the first is the outermost."""
  env: dict[UOp, Any] = dict(variables)
  loops = [u for u in body.toposort if u.op is Ops.RANGE]
  for place, r in enumerate(loops):
    extent = int(scalar(r.src[0], variables))
    shape = [1] * len(loops)
    shape[place] = extent
    env[r] = np.arange(extent, dtype=np.int64).reshape(shape)
  memo: dict[UOp, Any] = {}
  for store in [u for u in body.toposort if u.op is Ops.STORE]:
    offset = np.asarray(_lanes(store.src[0].src[1], buffers, env, memo))
    value = _lanes(store.src[1], buffers, env, memo)
    out = buffers[store.src[0].src[0].arg]
    if isinstance(store.arg, Accumulate):
      _accumulate(store, out, offset, value, buffers, env, memo)
      continue
    offset, value = np.broadcast_arrays(offset, value)
    assert np.all((offset >= 0) & (offset < out.size)), (
      f"STORE at {store.src[0].src[1].render()} is out of bounds of {out.size}"
    )
    assert np.unique(offset).size == offset.size or np.broadcast_shapes(offset.shape) != offset.shape, (
      "an element is stored twice"
    )
    out[offset] = value


def _accumulate(
  store: UOp, out: Array, offset: Array, value: Any, buffers: list[Array], env: dict[UOp, Any], memo: dict[UOp, Any]
) -> None:
  gate = np.asarray(_lanes(store.src[0].src[2], buffers, env, memo) if len(store.src[0].src) > 2 else True)
  offset, value, gate = np.broadcast_arrays(offset, value, gate)
  assert np.all(~gate | ((offset >= 0) & (offset < out.size))), "a gated update is out of bounds"
  assert store.arg.atomic is False
  REDUCE[store.arg.op].at(out, offset[gate], value[gate])


def execute_schedule(linear: UOp, memory: Memory) -> None:
  """Runs a LINEAR on `memory`, BUFFER → array; arenas are filled with garbage first."""
  arenas: Memory = {}

  def view(argument: UOp) -> Array:
    base = argument if argument.op is Ops.BUFFER else argument.src[0]
    if base not in memory and base not in arenas:
      arenas[base] = np.full(base.arg[1] * base.dtype.itemsize, 0x7F, np.uint8)
    data = memory[base].view(np.uint8) if base in memory else arenas[base]
    if argument.op is Ops.BUFFER:
      return data.view(to_numpy(argument.dtype))
    start, size = argument.arg
    assert 0 <= start and start + size * argument.dtype.itemsize <= data.size, f"{argument!r} is out of its buffer"
    return data[start : start + size * argument.dtype.itemsize].view(to_numpy(argument.dtype))

  for call in linear.src:
    body, arguments = call.src[0], [a for a in call.src[1:] if a.op is not Ops.BIND]
    buffers = [view(a) for a in arguments]
    if body.op is Ops.COPY:
      assert buffers[0].nbytes == buffers[1].nbytes
      buffers[0][:] = buffers[1]
    else:
      assert len({a.device for a in arguments}) == 1, "a kernel over buffers of several devices"
      run_kernel(body, buffers, {a.src[0]: a.unbind()[1] for a in call.src[1:] if a.op is Ops.BIND})


@pytest.fixture
def execute() -> Callable[[UOp, Memory], None]:
  return execute_schedule


@pytest.fixture
def evaluate() -> Callable[[UOp, Memory], Array]:
  return lambda root, memory: Evaluator(memory).run(root)


@pytest.fixture
def run(execute: Callable[[UOp, Memory], None], evaluate: Callable[[UOp, Memory], Array]) -> Callable[..., list[str]]:
  def check(*values: UOp, top: int = 5) -> list[str]:
    roots = [v if v.op is Ops.AFTER else stored(v) for v in values]
    sink = UOp.sink(*roots)
    random, memory = np.random.default_rng(0), {}
    for u in sink.toposort:
      if u.op is Ops.BUFFER:
        data = random.integers(0, top, u.arg[1]) if u.dtype.kind == "int" else random.standard_normal(u.arg[1])
        memory[u] = data.astype(u.dtype.name)
    wanted = [evaluate(root, memory) for root in roots]
    with Context(SPEC=2):
      linear = schedule(sink)
    execute(linear, memory)
    for root, want in zip(roots, wanted, strict=True):
      np.testing.assert_allclose(memory[root.src[0].base], want.reshape(-1), rtol=1e-4, atol=1e-5)
    return [call.src[0].arg.name if call.src[0].op is Ops.SINK else "copy" for call in linear.src]

  return check


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
  schedule_cache_clear()
  yield
  schedule_cache_clear()


@pytest.fixture(autouse=True, scope="session")
def graphs_round_trip() -> Iterator[None]:
  """What these tests schedule and compile is printed and parsed back on the side."""
  with round_trips_checked():
    yield
