"""What PyTorch refuses while it computes is refused here: labels that are none, writes to a place seen twice."""

from collections.abc import Callable, Iterator

import pytest

from tiny_tensor import Context, Tensor, TinyJit, func, nn


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


LOGITS = [[1.0, 2.0, 3.0]] * 4
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
  "cross_entropy": lambda x, y: x.cross_entropy(y),
  "sparse_categorical_crossentropy": lambda x, y: x.sparse_categorical_crossentropy(y),
  "nll_loss": lambda x, y: x.log_softmax().nll_loss(y),
  "functional.cross_entropy": nn.functional.cross_entropy,
  "functional.nll_loss": nn.functional.nll_loss,
  "CrossEntropyLoss": nn.CrossEntropyLoss(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_labels_out_of_range(name: str) -> None:
  loss, x = LOSSES[name], Tensor(LOGITS)
  for wrong in (3, -3):
    with pytest.raises(IndexError, match=f"label {wrong} at position 2 of 4 is none of 3 classes: expected 0 … 2"):
      loss(x, Tensor([0, 1, wrong, 2]))
  for dtype in ("int64", "uint8", "int32"):
    loss(x, Tensor([0, 1, 2, 2], dtype=dtype)).realize()
    with pytest.raises(IndexError):
      loss(x, Tensor([0, 1, 2, 3]).cast(dtype))


def test_labels_without_contents_are_not_looked_at() -> None:
  """A graph is built of them, and nothing runs."""
  labels = Tensor.empty(4, dtype="int32")
  assert Tensor.zeros(4, 3).sparse_categorical_crossentropy(labels).shape == ()


def test_labels_that_do_not_count() -> None:
  x = Tensor(LOGITS)
  assert x.cross_entropy(Tensor([0, -100, 1, -100]), ignore_index=-100).item() == pytest.approx(
    x[:2].cross_entropy(Tensor([0, 1])).item()
  )
  with pytest.raises(IndexError, match="label -5 at position 1 of 4 .* or -100 for what does not count"):
    nn.functional.cross_entropy(x, Tensor([-100, -5, 1, 2]))
  images = Tensor.zeros(2, 3, 2, 2).contiguous().realize()
  with pytest.raises(IndexError, match="label 9 at position 5 of 8"):
    images.cross_entropy(Tensor([[[0, 0], [0, 0]], [[0, 9], [0, 0]]]))


def test_labels_that_are_not_looked_at() -> None:
  x, y = Tensor(LOGITS), Tensor([0, 1, 5, 2])
  x.cross_entropy(y + 0)  # not computed yet
  x.cross_entropy(Tensor([0.0, 1.0, 5.0])[:3].expand(4, 3))  # probabilities
  func.vmap(lambda a, b: a.cross_entropy(b))(x.unsqueeze(1), y.unsqueeze(1)).realize()
  step = TinyJit(lambda a, b: a.cross_entropy(b).realize())
  with pytest.raises(IndexError):
    step(x.realize(), y.realize())  # the first call only runs
  for _ in range(3):
    step(x, Tensor([0, 1, 1, 2]).realize())
  step(x, y)


def test_writes_to_a_place_seen_twice() -> None:
  def broadcast() -> Tensor:
    return Tensor([1.0, 2.0]).realize().expand(3, 2)

  writes: dict[str, Callable[[Tensor], object]] = {
    "assign": lambda t: t.assign(Tensor.ones(3, 2)),
    "add_": lambda t: t.add_(1),
    "copy_": lambda t: t.copy_(Tensor.ones(3, 2)),
    "assignment to elements": lambda t: t.__setitem__((0, 0), 5),
    "assign ": lambda t: t.__iadd__(1),
    "elements ": lambda t: t.__setitem__(Tensor([0, 1]), 5),
  }
  for name, write in writes.items():
    x = broadcast()
    with pytest.raises(RuntimeError, match=rf"{name.strip()}.*: several elements of .* clone\(\) it first"):
      write(x)
    assert x.tolist() == [[1, 2]] * 3
    write(broadcast().clone())
    write(Tensor.ones(3, 2))  # a constant has no place
    write(Tensor([[1.0, 2.0]] * 3).realize().expand(3, 2))


def test_what_is_detached_is_written_through() -> None:
  x = Tensor([1.0, 2.0], requires_grad=True).realize()
  x.detach()[0] = 5
  x.detach().assign(x.detach() + 1)
  assert x.tolist() == [6, 3]
