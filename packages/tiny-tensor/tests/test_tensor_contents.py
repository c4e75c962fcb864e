"""Writing to a tensor is seen in its views and in nothing else, although equal graphs are one node with one buffer."""

from collections.abc import Iterator

import pytest

from tiny_tensor import Context, Tensor


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def test_equal_tensors_are_not_views_of_each_other() -> None:
  a, b = Tensor.ones(3).contiguous(), Tensor.ones(3).contiguous()
  before, after = a.reshape(3, 1), None
  Tensor.realize(a, b)
  after = a.flip(0)
  a.assign(Tensor([5.0, 6.0, 7.0]))
  assert (a.tolist(), b.tolist()) == ([5, 6, 7], [1, 1, 1])
  assert (before.tolist(), after.tolist()) == ([[5], [6], [7]], [7, 6, 5])


def test_results_of_the_same_computation() -> None:
  x = Tensor([1, 2])
  a, b = x * 2, x * 2
  a.realize()
  a.assign(a + 1).realize()
  assert (a.tolist(), b.tolist()) == ([3, 5], [2, 4])


def test_a_clone_is_its_own() -> None:
  for a in (Tensor.ones(2).contiguous(), Tensor([1.0, 1.0]), Tensor([1.0, 1.0]).realize()):
    c = a.clone()
    Tensor.realize(a, c)
    a[0] = 9
    assert (a.tolist(), c.tolist()) == ([9, 1], [1, 1])


def test_what_was_assigned_is_not_tied_to_its_source() -> None:
  a, z = Tensor([1.0, 2.0]).realize(), Tensor.zeros(2)
  z.assign(a)
  z[1] = 7
  assert (z.tolist(), a.tolist()) == ([1, 7], [1, 2])


def test_detached_tensors_share_contents() -> None:
  a = Tensor([1.0, 2.0]).realize()
  d = a.detach()
  a[0] = 9
  assert d.tolist() == [9, 2]


def test_equal_tensors_realised_together_have_buffers_of_their_own() -> None:
  tensors = [Tensor.zeros(2).contiguous() for _ in range(3)]
  Tensor.realize(*tensors)
  assert len({t.uop.base for t in tensors}) == 3
  view = (whole := Tensor([1.0, 2.0]) * 2).reshape(2, 1)
  Tensor.realize(whole, view)
  assert whole.uop.base is view.uop.base
