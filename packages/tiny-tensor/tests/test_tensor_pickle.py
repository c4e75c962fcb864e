"""Pickles and copies of tensors, and of what holds tensors: the same values, in memory of their own."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_runtime import Buffer, Unavailable, buffer_of
from tiny_tensor import Context, Tensor, TinyJit, Variable, dtypes, nn
from tiny_tensor.func import vmap
from tiny_uop import new_buffer_id

TWO = ("REF", "REF:1")


@pytest.fixture(autouse=True, scope="module")
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def raw(t: Tensor) -> bytes:
  """The elements bit for bit, whatever the dtype."""
  return bytes(t.detach().to("REF").clone().realize()._read_copy()[0])


class Other:
  """Another process, with tensors of its own, that loads pickles and says what it got."""

  CODE = """
    import pickle, sys
    from tiny_tensor import Tensor
    own = [Tensor([float(n)] * size).realize() for n in range(40) for size in (1, 2, 3, 4, 6, 24)]
    values = [t.tolist() for t in own]
    while True:
      try:
        t = pickle.load(sys.stdin.buffer)
      except EOFError:
        break
      what = (t.dtype, tuple(t.shape), t.device, t.requires_grad)
      data = bytes(t.detach().to("REF").clone().realize()._read_copy()[0])
      pickle.dump((*what, data, t), sys.stdout.buffer)
      sys.stdout.buffer.flush()
      if t.dtype.name == "float32" and 0 not in t.shape:
        t.detach().assign(-1.0).realize()
    sys.exit([t.tolist() for t in own] != values)
  """

  def __init__(self) -> None:
    self.process = subprocess.Popen(
      [sys.executable, "-c", textwrap.dedent(self.CODE)],
      stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"DEVICE": "REF"},
    )  # fmt: skip

  def __call__(self, pickled: bytes) -> Any:
    assert self.process.stdin is not None and self.process.stdout is not None
    self.process.stdin.write(pickled)
    self.process.stdin.flush()
    return pickle.load(self.process.stdout)

  def close(self) -> int:
    assert self.process.stdin is not None and self.process.stdout is not None
    self.process.stdin.close()
    self.process.stdout.close()
    return self.process.wait(60)


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
  made = Other()
  yield made
  assert made.close() == 0, "tensors of the other process changed"


# *** the whole class: any dtype, shape, place, state and view ***


class Made(NamedTuple):
  tensor: Tensor
  described: str


STATES: dict[str, Callable[[Tensor], Tensor]] = {
  "realized": lambda t: t.realize(),
  "lazy": lambda t: t,
  "assigned": lambda t: t.realize().assign(t.flip(0) if t.ndim else t),
  "constant": lambda t: t.full(t.shape, 3 if t.dtype != dtypes.bool else True, dtype=t.dtype),
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
  "whole": lambda t: t,
  "reshaped": lambda t: t.reshape(-1),
  "transposed": lambda t: t.permute(*range(t.ndim)[::-1]) if t.ndim > 1 else t,
  "flipped": lambda t: t.flip(0) if t.ndim else t,
  "part": lambda t: t[: (t.shape[0] + 1) // 2] if t.ndim else t,
  "repeated": lambda t: t.unsqueeze(0).expand(3, *t.shape),
  "detached": lambda t: t.detach(),
  "on HOST": lambda t: t.to("HOST"),
  "on two": lambda t: t.to(TWO),
  "in pieces": lambda t: t.shard(TWO, 0) if t.ndim and t.shape[0] > 1 else t,
}


@st.composite
def tensors(draw: st.DrawFn) -> Made:
  dtype = draw(st.sampled_from(dtypes.all))
  shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
  state, view = draw(st.sampled_from(sorted(STATES))), draw(st.sampled_from(sorted(VIEWS)))
  count = 1
  for size in shape:
    count *= size
  data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
  if dtype == dtypes.bool:
    data = bytes(b & 1 for b in data)
  t = VIEWS[view](STATES[state](Tensor(data, dtype=dtype).reshape(shape)))
  if draw(st.booleans()) and t.is_floating_point():
    t = t.detach().requires_grad_()
  return Made(t, f"{state} {view} {dtype.name} {shape}")


def describe(t: Tensor) -> tuple[Any, ...]:
  return t.dtype, tuple(t.shape), t.device, t.requires_grad, raw(t)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(tensors(), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_every_tensor_comes_back(other: Other, made: Made, protocol: int) -> None:
  t = made.tensor
  pickled = pickle.dumps(t, protocol)
  unrelated = [Tensor([7.0] * n).realize() for n in (1, 2, 6)]
  expected = describe(t)
  here = pickle.loads(pickled)
  assert describe(here) == expected and type(here) is Tensor
  assert describe(copy.deepcopy(t)) == expected
  assert describe(copy.copy(t)) == expected
  *there, back = other(pickled)
  assert tuple(there) == expected and describe(back) == expected
  assert [u.tolist() for u in unrelated] == [[7.0] * n for n in (1, 2, 6)]


def test_multiprocessing(tmp_path: Path) -> None:
  """Arguments, results, and messages, of a process that starts anew."""
  program = tmp_path / "program.py"
  program.write_text(
    textwrap.dedent(
      """
      import multiprocessing, sys
      from tiny_tensor import Tensor, nn

      def work(layer, x, queue):
        own = [Tensor([9.0, 9.0]).realize() for _ in range(20)]
        queue.put({"y": layer(x).detach(), "bias": layer.bias, "own": own[3]})

      if __name__ == "__main__":
        for method in ("spawn", *{"forkserver"} & {*multiprocessing.get_all_start_methods()}):
          context = multiprocessing.get_context(method)
          layer, x = nn.Linear(2, 2), Tensor([[1.0, 2.0]]).realize()
          queue = context.Queue()
          process = context.Process(target=work, args=(layer, x, queue))
          process.start()
          found = queue.get(timeout=60)
          process.join(60)
          assert found["y"].tolist() == layer(x).tolist()
          assert found["bias"].tolist() == layer.bias.tolist()
          assert found["bias"].requires_grad == layer.bias.requires_grad
          assert found["own"].tolist() == [9.0, 9.0]
      """
    )
  )
  subprocess.run([sys.executable, str(program)], check=True, timeout=120, env=os.environ | {"DEVICE": "REF"})


# *** memory of their own, and what shares it ***


@pytest.mark.parametrize("again", [copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))])
def test_views_of_all_elements_share_memory_as_before(again: Callable[[Any], Any]) -> None:
  for x in (Tensor([[1.0, 2.0], [3.0, 4.0]]).realize(), Tensor.full((2, 2), 1.0).shard(TWO, 0).realize()):
    tree = {"x": x, "same": x, "T": x.T, "flat": x.detach().reshape(4), "part": x[0], "equal": x + 0}
    tree["independent"] = Tensor(x.uop)
    before = {name: t.tolist() for name, t in tree.items()}
    copied = again(tree)
    assert copied["x"] is copied["same"]
    assert {name: t.tolist() for name, t in copied.items()} == before
    copied["x"].assign(Tensor.full((2, 2), 5.0, device=x.device)).realize()
    assert copied["T"].tolist() == [[5.0, 5.0], [5.0, 5.0]] and copied["flat"].tolist() == [5.0] * 4
    assert copied["part"].tolist() == before["part"] and copied["equal"].tolist() == before["equal"]
    assert copied["independent"].tolist() == before["independent"], "it stood for the same graph by chance"
    assert {name: t.tolist() for name, t in tree.items()} == before, "the original changed"


def test_a_shallow_copy_is_a_view() -> None:
  x = Tensor([1.0, 2.0]).realize()
  y = copy.copy(x)
  assert y is not x
  y.assign(Tensor([3.0, 4.0])).realize()
  assert x.tolist() == [3.0, 4.0]
  w = Tensor([1.0, 2.0], requires_grad=True)
  v = copy.copy(w)
  (v * 2).sum().backward()
  assert v.requires_grad and v.grad is not None and v.grad.tolist() == [2.0, 2.0] and w.grad is None
  z = copy.copy(w * 3)  # with its history
  z.sum().backward()
  assert w.grad is not None and w.grad.tolist() == [3.0, 3.0]


def test_models_and_optimizers() -> None:
  model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm(2), nn.Linear(4, 3))
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=0.1)
  x = Tensor.full((2, 1, 6, 6), 0.5)

  def step(model: Any, opt: Any) -> float:
    with Tensor.train():
      opt.zero_grad()
      loss = model(x).square().mean()
      loss.backward()
      opt.step()
    return float(loss.item())

  step(model, opt)
  twins = [copy.deepcopy((model, opt)), pickle.loads(pickle.dumps((model, opt)))]
  follows = [step(model, opt) for _ in range(3)]
  for twin in twins:
    assert [step(*twin) for _ in range(3)] == follows, "the copied optimiser has other parameters than the model"


def test_gradients() -> None:
  """As in PyTorch: a deep copy has them, a pickle leaves them out; what has a history is refused."""
  w = Tensor([1.0, 2.0], requires_grad=True)
  (w * w).sum().backward()
  twin = copy.deepcopy(w)
  assert twin.grad is not None and w.grad is not None and twin.grad is not w.grad and twin.grad.tolist() == [2.0, 4.0]
  loaded = pickle.loads(pickle.dumps(w))
  assert loaded.grad is None and loaded.requires_grad is True
  for duplicate in (pickle.dumps, copy.deepcopy):
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
      duplicate(w * 2)
    duplicate((w * 2).detach())


class Named(Tensor):
  """A subclass with attributes."""

  name = ""


def test_a_subclass_keeps_its_attributes() -> None:
  t = Named([1.0, 2.0])
  t.name = "weight"
  for twin in (copy.deepcopy(t), copy.copy(t), pickle.loads(pickle.dumps(t))):
    assert type(twin) is Named and twin.name == "weight" and twin.tolist() == [1.0, 2.0]


def test_symbolic_shapes_come_back_as_they_were_bound() -> None:
  v = Variable("v", 1, 4).bind(2)
  x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
  loaded = pickle.loads(pickle.dumps(x[:v]))
  assert loaded.shape == (2,) and loaded.tolist() == [1.0, 2.0]


def test_out_of_band() -> None:
  x = Tensor([1.0, 2.0, 3.0]).realize()
  buffers: list[pickle.PickleBuffer] = []
  pickled = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
  x.assign(Tensor([0.0, 0.0, 0.0])).realize()
  assert sum(len(b.raw()) for b in buffers) == 12
  assert pickle.loads(pickled, buffers=buffers).tolist() == [1.0, 2.0, 3.0]


def test_files_are_carried_by_their_path(tmp_path: Path, other: Other) -> None:
  path = tmp_path / "data"
  path.write_bytes(bytes(range(16)))
  whole = Tensor(path)
  part = whole[4:12].bitcast(dtypes.uint16)
  pickled = pickle.dumps((whole, part))
  assert len(pickled) < 1000
  for whole2, part2 in (pickle.loads(pickled), copy.deepcopy((whole, part))):
    assert whole2.device == whole.device and whole2.to("REF").tolist() == list(range(16))
    assert part2.to("REF").tolist() == part.to("REF").tolist()
  assert other(pickle.dumps(whole))[4] == bytes(range(16))
  path.unlink()
  with pytest.raises(Unavailable, match="data"):
    pickle.loads(pickle.dumps(whole)).to("REF").tolist()


def test_a_device_that_is_missing() -> None:
  pickled = pickle.dumps(Tensor([1.0]).realize()).replace(b"\x03REF", b"\x03RAF")
  with pytest.raises(Unavailable, match=r"loading a tensor that was on RAF.*pickle t\.to\("):
    pickle.loads(pickled)


def test_memory_that_was_never_written() -> None:
  loaded = pickle.loads(pickle.dumps(Tensor.empty(3).realize()))
  assert loaded.shape == (3,)
  with pytest.raises(RuntimeError, match="never written"):
    loaded.tolist()
  assert loaded.assign(Tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 3.0]


def test_what_cannot_be_copied() -> None:
  @TinyJit
  def step(x: Tensor) -> Tensor:
    return (x + 1).realize()

  for state in range(3):
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
      with pytest.raises(TypeError, match=r"TinyJit of .*step.* make a TinyJit"):
        duplicate(step)
    step(Tensor([float(state)]).realize())
  for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
    with pytest.raises(TypeError, match="make a TinyJit"):
      duplicate(step.captured)
  buffer = buffer_of(Tensor([1.0]).realize().uop.base)
  for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
    with pytest.raises(TypeError, match="tensor"):
      duplicate(buffer)
    with pytest.raises(TypeError, match="tensor"):
      duplicate(Buffer("REF", 1, dtypes.float32))


def test_where_values_are_not_known() -> None:
  def f(x: Tensor) -> Tensor:
    pickle.dumps(x)
    return x

  with pytest.raises(RuntimeError, match="vmap"):
    vmap(f)(Tensor([1.0, 2.0]))


# *** ids of buffers ***


def test_buffers_of_other_processes_are_none_of_ours() -> None:
  """Pickled nodes: with the same id, device, type and size as one of ours."""
  code = """
    import pickle, sys
    from tiny_uop import UOp, dtypes
    first = int(sys.argv[1])
    while (u := UOp.new_buffer("REF", 2, dtypes.float32)).arg[0] < first:
      pass
    more = [UOp.new_buffer("REF", 2, dtypes.float32) for _ in range(20)]
    pickle.dump([*more, more[0] + more[1]], sys.stdout.buffer)
  """
  first = new_buffer_id()
  ours = [Tensor([5.0, float(n)]).realize() for n in range(20)]
  sent = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(code), str(first)], check=True, capture_output=True, timeout=60
  ).stdout
  *theirs, total = pickle.loads(sent)
  assert {u.arg[0] for u in theirs} & {t.uop.base.arg[0] for t in ours} == set()
  assert not {*theirs} & {t.uop.base for t in ours}
  assert total.src == (theirs[0], theirs[1]), "one of theirs is not the same everywhere"
  for t in ours:
    assert pickle.loads(pickle.dumps(t.uop)) is t.uop
