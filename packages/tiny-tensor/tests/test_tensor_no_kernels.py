"""What needs no kernel: constants, what lies in a buffer already, and parts of what was put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_runtime import Device, GlobalCounters
from tiny_tensor import Context, Tensor, TinyJit, Variable, dtypes
from tiny_tensor.host_constants import LARGEST


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def kernels(work: Callable[[], object]) -> int:
  """How many kernels and copies run in `work`."""
  GlobalCounters.reset()
  work()
  return GlobalCounters.kernel_count


CONSTANTS: dict[str, Callable[[], Tensor]] = {
  "number": lambda: Tensor(1.5),
  "full": lambda: Tensor.full((3,), 2),
  "contiguous": lambda: Tensor.full((3,), 2.5).contiguous(),
  "cloned": lambda: Tensor(True).clone(),
  "arranged": lambda: Tensor.full((2, 3), 3).T.flip(0)[1:, None],
  "expanded": lambda: Tensor(4).expand(4),
  "cast": lambda: Tensor(-5).cast(dtypes.uint8).float(),
  "like": lambda: Tensor([1.0, 2.0]).zeros_like(),
  "detached": lambda: Tensor(0.25).detach(),
  "parameter": lambda: Tensor.zeros(3, requires_grad=True),
  "on several devices": lambda: Tensor.ones(5).shard(("REF", "REF:1"), 0),
  "copied to several": lambda: Tensor.ones(5).shard(("REF", "REF:1")),
  "none": lambda: Tensor.zeros(0, 3),
  **{f"{d.name}": lambda d=d: Tensor.full((2,), 3, dtype=d) for d in dtypes.all},  # type: ignore[misc]
  "infinity": lambda: Tensor(-math.inf, dtype=dtypes.float16),
  "minus zero": lambda: Tensor.full((2,), -0.0),
}
BUFFERS: dict[str, Callable[[Tensor], Tensor]] = {
  "itself": lambda t: t,
  "view": lambda t: t.T,
  "contiguous": lambda t: t.contiguous(),
  "detached": lambda t: t.detach().contiguous(),
  "rows": lambda t: t[1:].contiguous(),
  "row": lambda t: t[1].contiguous(),
  "element": lambda t: t[1, 2].contiguous(),
  "part of a row": lambda t: t[1, 1:].contiguous(),
  "columns of one row": lambda t: t[0:1, 0:2].contiguous(),
  "turned back": lambda t: t.T.T.contiguous(),
  "flipped back": lambda t: t.flip(0).flip(0).contiguous(),
  "moved axis of size 1": lambda t: t.unsqueeze(0).permute(1, 2, 0).contiguous(),
  "split": lambda t: t.split(1)[1].contiguous(),
  "not padded": lambda t: t.pad((0, 0)).contiguous(),
  "padding taken off": lambda t: t.pad((2, 2))[:, 2:5].contiguous(),
  "part inside of padding": lambda t: t.pad(((1, 1), (0, 0)))[2].contiguous(),
  "stacked": lambda t: Tensor.stack(t, t * 2)[0],
  "first of joined": lambda t: t.cat(t + 1)[:2],
  "middle of joined": lambda t: (t * 2).cat(t, t + 1)[2:4],
  "same dtype": lambda t: t.cast(t.dtype).contiguous(),
  "same device": lambda t: t.to(t.device).contiguous(),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_realised_without_a_kernel(name: str) -> None:
  t = CONSTANTS[name]()
  expected = (t * 1).numpy() if 0 not in t.shape else t.numpy()
  assert kernels(lambda: t.realize()) == 0
  np.testing.assert_array_equal(t.numpy(), expected)
  assert np.array_equal(np.signbit(t.numpy()), np.signbit(expected)) and "realized" in repr(t)
  if t.dtype is not dtypes.bool and 0 not in t.shape:
    t.assign(t + 1).realize()
    np.testing.assert_array_equal(t.numpy(), expected + 1, "it has memory of its own")


@pytest.mark.parametrize("name", ["number", "arranged", "cast", "bool", "float16", "minus zero"])
def test_constants_are_read_without_a_kernel(name: str) -> None:
  t = CONSTANTS[name]()
  assert kernels(t.tolist) == 0


@pytest.mark.parametrize("name", BUFFERS)
def test_what_is_in_a_buffer_is_realised_without_a_kernel(name: str) -> None:
  values = np.arange(6, dtype=np.float32).reshape(2, 3)
  t = Tensor(values).realize()
  part = BUFFERS[name](t)
  assert kernels(lambda: part.realize()) == 0
  expected = BUFFERS[name](Tensor(values + 0)).clone().numpy()
  assert kernels(lambda: np.testing.assert_array_equal(part.contiguous().numpy(), expected)) == (name == "view")


@pytest.mark.parametrize("axis", [0, 1, None])
def test_what_is_in_buffers_of_several_devices_is_in_order(axis: int | None) -> None:
  two = Device.DEFAULT, f"{Device.DEFAULT}:1"
  t = Tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]).shard(two, axis).realize()
  for part in (t, t.reshape(3, 2, 2), t.reshape(1, 3, 4), t.cast(t.dtype), t.detach()):
    assert kernels(lambda part=part: part.contiguous().realize()) == 0  # type: ignore[misc]
    assert part.contiguous().tolist() == part.tolist()
  for part in (t.flip(0), t.T, t[:, 1:3], t.reshape(12)[2:7]):
    assert part.contiguous().tolist() == part.tolist()
  copy = t.clone()
  copy[0] = 0
  assert t.tolist()[0] == [1, 2, 3, 4] and copy.tolist()[0] == [0, 0, 0, 0]


def test_what_is_out_of_order_is_put_in_order_by_a_kernel() -> None:
  t = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
  for part in (t.T, t[:, 1:], t[::-1], t.expand(2, 2, 3), t[:, ::2]):
    assert kernels(lambda part=part: part.contiguous().realize()) == 1  # type: ignore[misc]
    assert part.contiguous().tolist() == part.tolist()


def test_elements_are_read_without_a_kernel() -> None:
  t = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
  assert kernels(lambda: [row.tolist() for row in t]) == 0
  assert t[1, 1:].tolist() == [5, 6] and t[1].numpy()[2] == 6 and bytes(t[1].data()) == bytes(t[1].clone().data())
  t[1, 0] = 7
  assert t[1].tolist() == [7, 5, 6], "what waits is written first"


def test_a_slice_that_is_contiguous_shares_memory() -> None:
  t = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
  row = t[1].contiguous()
  row.assign(Tensor([7, 8, 9])).realize()
  assert t.tolist() == [[1, 2, 3], [7, 8, 9]]
  copy = t[0].clone()
  copy.assign(copy * 0).realize()
  assert t[0].tolist() == [1, 2, 3]


def test_equal_constants_have_memory_of_their_own() -> None:
  a, b, c = (Tensor.zeros(3).contiguous() for _ in range(3))
  assert kernels(lambda: a.realize(b)) == 0
  c.realize()
  a.assign(a + 1)
  b[1] = 5
  view = c[:2]
  view.assign(view + 9).realize()
  assert (a.tolist(), b.tolist(), c.tolist()) == ([1, 1, 1], [0, 5, 0], [9, 9, 0])


def test_a_part_of_what_was_joined_is_no_view() -> None:
  a = Tensor([1.0, 2.0]).realize()
  part, later = Tensor.stack(a, a)[0], a + 1
  part[0] = 5
  part.realize()
  assert (part.tolist(), a.tolist(), later.tolist()) == ([5, 2], [1, 2], [2, 3])
  part = a.cat(a)[:2]
  a[1] = 7
  assert (part.tolist(), a.tolist()) == ([1, 2], [1, 7])


@pytest.mark.parametrize("start", [lambda: Tensor(1.0), lambda: Tensor([2.0]).realize()[0]], ids=["constant", "buffer"])
def test_chains_of_joins_do_not_grow(start: Callable[[], Tensor]) -> None:
  a = first = start()
  for n in range(24):
    a = Tensor.stack(a, a)[n % 2]
  assert kernels(lambda: a.realize()) == 0 and a.item() == first.item()


def test_parts_of_joins_are_those_of_their_pieces() -> None:
  """All parts of a join of three pieces, where they cross borders too, and their derivatives."""
  pieces = [np.arange(1.0, 3), np.arange(3.0, 4), np.array([-0.0, 5, 6])]
  tensors = [Tensor(p.astype(np.float32), requires_grad=True) for p in pieces]
  whole, joined = np.concatenate(pieces), tensors[0].cat(*tensors[1:])
  for start in range(6):
    for stop in range(start + 1, 7):
      part = joined[start:stop]
      np.testing.assert_array_equal(part.numpy(), whole[start:stop])
      found = (part * part).sum().gradient(*tensors, materialize_grads=True)
      expected = np.where((np.arange(6) >= start) & (np.arange(6) < stop), 2 * whole, 0)
      np.testing.assert_array_equal(np.concatenate([g.numpy() for g in found]), expected)


def test_large_constants_are_made_by_kernels() -> None:
  count = LARGEST // 4
  assert kernels(lambda: Tensor.full((count,), 1.5).realize()) == 0
  made = Tensor.full((count + 1,), 1.5)
  assert kernels(lambda: made.schedule()) == 0 and len(Tensor.full((2,), 1.5).schedule()) == 1
  assert kernels(lambda: Tensor.full((count + 1, 2), 0.5).schedule_linear()) == 0


def test_symbolic_constants() -> None:
  n = Variable("n", 1, 5).bind(3)
  t = Tensor.full((n,), 4)
  assert kernels(lambda: t.realize()) == 0 and t.tolist() == [4, 4, 4]


def test_replays_start_from_the_constant_again() -> None:
  @TinyJit
  def f(x: Tensor) -> Tensor:
    total = Tensor.zeros(2).contiguous().realize()
    total.assign(total + x).realize()
    return (total * 2).realize()

  found: list[Any] = [f(Tensor([n, 1.0]).realize()).tolist() for n in range(4)]
  assert found == [[2 * n, 2] for n in range(4)]


def test_a_constant_that_is_assigned_over_another_is_read_first() -> None:
  t = Tensor.full((2,), 3.0, requires_grad=True)
  later = t.detach() * 10
  t.assign(Tensor.full((2,), 4.0))
  more = t.detach() * 10
  t.assign(Tensor.full((2,), 5.0))
  t.realize(later, more)
  assert (later.tolist(), more.tolist(), t.tolist()) == ([30, 30], [40, 40], [5, 5])


def test_what_is_made_of_constants_is_none() -> None:
  ones = Tensor.ones(3).contiguous()
  t = ones.pad((0, 1))[1:].contiguous()
  u = t.pad((0, 1))[1:].contiguous()
  assert (u + t).tolist() == [2, 1, 0] and ones.tolist() == [1, 1, 1]


def test_what_is_assigned_waits_for_those_who_read_what_was_there() -> None:
  t = Tensor([1.0, 2.0]).realize()
  later = t * 10
  t.assign(Tensor.zeros(2))
  t.realize()
  assert later.tolist() == [10, 20] and t.tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 2), (1, 0)])
def test_nothing_in_another_shape(shape: tuple[int, ...]) -> None:
  t = Tensor.arange(12).reshape(3, 4).contiguous().realize()
  part = t[:, 1:1].reshape(shape)
  assert kernels(lambda: part.contiguous().realize()) == 0 and part.numpy().shape == shape
