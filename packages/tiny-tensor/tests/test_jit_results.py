"""What a captured function returns, leaves out and gives back: lazy results, pruned kernels, memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from tiny_runtime import GlobalCounters
from tiny_tensor import Context, Tensor, TinyJit, dtypes


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


jit: Any = TinyJit
"""As a decorator with options, of which mypy knows no class."""


def T(*values: float) -> Tensor:
  return Tensor([*map(float, values)]).realize()


def kernels(f: TinyJit[..., Tensor], *args: Tensor) -> tuple[int, list[float]]:
  GlobalCounters.reset()
  out = f(*args).realize()
  return GlobalCounters.kernel_count, out.tolist()


def test_lazy_results_are_realised() -> None:
  state = T(0.0)

  @TinyJit
  def f(x: Tensor) -> dict[str, object]:
    state.assign(state + x.sum())
    double = x * 2
    return {
      "a": double,
      "same": double,
      "view": double[::-1],
      "list": [x + 1, None],
      "one": Tensor.ones(2),
      "state": state,
    }

  for n in range(5):
    out = f(T(n, 1))
    found = {name: [t.tolist() for t in v if t is not None] if isinstance(v, list) else v.tolist()  # type: ignore[attr-defined]
             for name, v in out.items()}  # fmt: skip
    assert found == {
      "a": [2 * n, 2], "same": [2 * n, 2], "view": [2, 2 * n], "list": [[n + 1, 2]], "one": [1, 1],
      "state": [sum(range(n + 1)) + n + 1],
    }  # fmt: skip
    assert out["a"] is out["same"] and out["state"] is state
  assert f.captured


def test_a_constant_that_changes_is_found() -> None:
  count = [0]

  @TinyJit
  def f(x: Tensor) -> tuple[Tensor, Tensor]:
    count[0] += 1
    return x + 1, Tensor(float(count[0]))

  with pytest.raises(RuntimeError, match="all ran something else"):
    for _ in range(5):
      f(T(1))


def test_runs_before_the_capture_keep_no_memory() -> None:
  """Neither temporaries of schedules, nor tensors that the function has done with."""
  size = 4096
  held: list[int] = []
  used = attrgetter("mem_used")  # what the function reads by name must not change

  @TinyJit
  def layers(x: Tensor) -> tuple[Tensor, Tensor]:
    for n in range(8):
      x = ((x + n).contiguous().cumsum() - x).realize()
      if n == 3:
        kept = (x * 2).realize()
      held.append(used(GlobalCounters))
    return x, kept

  with Context(JIT=0):
    expected = [t.tolist() for t in layers(Tensor.ones(size))]
    plain = max(held) - held[0]
  del held[:]
  for call in range(4):
    found = layers(Tensor.ones(size).contiguous().realize())
    assert [t.tolist() for t in found] == expected, call
    if held:
      assert max(held) - held[0] <= plain + size * 4
    del held[:]


def test_pruned_replays_run_what_inputs_reach() -> None:
  packed = T(1, 2)

  def f(x: Tensor) -> Tensor:
    weight = (packed * 10).contiguous().realize()
    more = (weight + 1).contiguous().realize()
    return (x * weight + more).realize()

  for prune, count in ((False, 3), (True, 1)):
    packed.assign(T(1, 2)).realize()
    jitted = TinyJit(f, prune=prune)
    for n in range(4):
      assert jitted(T(n, n)).tolist() == [10 * n + 11, 20 * n + 21]
    assert kernels(jitted, T(1, 1)) == (count, [21, 41])
    packed.assign(T(3, 3)).realize()
    assert kernels(jitted, T(1, 1)) == (count, [21, 41] if prune else [61, 61]), "as it was at the capture"


def test_a_batch_norm_becomes_part_of_the_weights_before_it() -> None:
  """What is made of weights alone is computed at the capture: replays have the convolution and one number for each of
  its channels."""
  Tensor.manual_seed(0)
  x, w, bias = Tensor.rand(2, 3, 4, 4).realize(), Tensor.rand(5, 3, 3, 3).realize(), Tensor.rand(5).realize()
  scale, shift, mean, var = (Tensor.rand(5).realize() for _ in range(4))

  def f(x: Tensor) -> Tensor:
    factor = (scale * (var + 1e-5).rsqrt()).reshape(1, -1, 1, 1)
    y = x.conv2d(w, bias, padding=1)
    return (y - mean.reshape(1, -1, 1, 1)) * factor + shift.reshape(1, -1, 1, 1)

  operations = []
  for prune in (False, True):
    jitted = TinyJit(f, prune=prune)
    for _ in range(4):
      np.testing.assert_allclose(jitted(x).numpy(), f(x).numpy(), rtol=1e-5, atol=1e-6)
    GlobalCounters.reset()
    jitted(x)
    assert GlobalCounters.kernel_count == 1
    operations.append(GlobalCounters.global_ops)
  results = 2 * 5 * 4 * 4
  assert operations[1] <= operations[0] - 3 * results, "no factor, and one sum in place of three"


def test_what_is_computed_from_weights_is_computed_once() -> None:
  w = Tensor([[-128, 7], [9, 127]], dtype=dtypes.int8).realize()
  half = Tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtypes.float16).realize()

  def f(x: Tensor) -> Tensor:
    return x.matmul((w + 1).cast(dtypes.float32).transpose(0, 1)) + half.cast(dtypes.float32).sum(0)

  jitted = TinyJit(f, prune=True)
  for n in range(4):
    assert jitted(T(n, 1).reshape(1, 2)).tolist() == f(T(n, 1).reshape(1, 2)).tolist()
  assert kernels(jitted, T(1, 1).reshape(1, 2))[0] == 1


def test_tables_of_the_host_are_copied_once() -> None:
  def f(x: Tensor) -> Tensor:
    return (x + Tensor([1.0, 2.0])).cumsum(0) * Tensor([3.0, 4.0])

  counts = []
  for prune in (False, True):
    jitted = TinyJit(f, prune=prune)
    for n in range(4):
      assert jitted(T(n, 1)).tolist() == [3.0 * n + 3, 4.0 * n + 16]
    counts.append(kernels(jitted, T(1, 1))[0])
  assert counts == [counts[1] + 2, counts[1]]


def test_what_calls_change_is_not_pruned() -> None:
  """State, random numbers, what is accumulated in place, and what is returned."""
  state = T(0)

  @jit(prune=True)  # type: ignore[untyped-decorator]
  def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    state.assign(state + 1).realize()
    double = (state * 2).realize()
    total = Tensor.zeros(1).contiguous().realize()
    total.assign(total + x).realize()
    return double, (total * 1).realize(), Tensor.rand(1), (T(5) * 2).realize()

  drawn = set()
  for n in range(5):
    double, total, noise, five = f(T(n))
    drawn.add(noise.item())
    assert (double.tolist(), total.tolist(), five.tolist()) == ([2 * n + 2], [n], [10])
  assert len(drawn) == 5


def test_a_decorator_takes_options() -> None:
  @jit(prune=True)  # type: ignore[untyped-decorator]
  def f(x: Tensor) -> Tensor:
    return x + 1

  class Model:
    @jit(prune=True)  # type: ignore[untyped-decorator]
    def __call__(self, x: Tensor) -> Tensor:
      return x + 2

  model = Model()
  for n in range(4):
    assert f(T(n)).item() == n + 1 and model(T(n)).item() == n + 2
  assert f.prune and f.captured


def test_intermediates_are_given_back() -> None:
  @TinyJit
  def f(x: Tensor) -> Tensor:
    y = (x * 2).contiguous().realize()
    z = (y.sum() + y).contiguous().realize()
    return (z * z).realize()

  assert f.captured is None
  x = Tensor.ones(1000).contiguous().realize()
  for _ in range(3):
    out = f(x)
  expected, program = out.tolist(), f.captured
  assert program is not None
  for _ in range(2):
    before = GlobalCounters.mem_used
    program.free_intermediates()
    assert before - GlobalCounters.mem_used >= 4000
    program.free_intermediates()
    assert f(x).tolist() == expected and out.tolist() == expected


def test_blobs_are_shared() -> None:
  memory = (ctypes.c_float * 6)(*range(6))
  t = Tensor.from_blob(ctypes.addressof(memory), (2, 3), dtype=dtypes.float32)
  assert t.tolist() == [[0, 1, 2], [3, 4, 5]]
  memory[4] = 9
  assert (t + 1).tolist() == [[1, 2, 3], [4, 10, 6]]
  t[0, 1] = 7
  t.realize()
  assert list(memory) == [0, 7, 2, 3, 9, 5]
  assert Tensor.from_blob(ctypes.addressof(memory) + 1, (2,), dtype=dtypes.float32).shape == (2,), "a copy: not aligned"
  assert Tensor.from_blob(ctypes.addressof(memory), (0, 2)).tolist() == []
