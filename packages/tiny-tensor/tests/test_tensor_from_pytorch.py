"""What a user of PyTorch types first works, or the error says what to write."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tiny_tensor
from tiny_tensor import Context, Tensor, TinyJit, dtypes, func, nn, pytorch_names
from tiny_tensor.nn import optim


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


PLACES: dict[str, tuple[Callable[[], Any], dict[str, str]]] = {
  "Tensor": (lambda: Tensor([1.0]), pytorch_names.TENSOR),
  "torch": (lambda: tiny_tensor, pytorch_names.TOP),
  "torch.nn": (lambda: nn, pytorch_names.NN),
  "Module": (lambda: nn.Linear(1, 1), pytorch_names.MODULE),
  "torch.optim": (lambda: optim, pytorch_names.OPTIM),
}
ROWS = [(place, name) for place, (_, table) in PLACES.items() for name in table]


@pytest.mark.parametrize("place, name", ROWS, ids=[f"{place}.{name}" for place, name in ROWS])
def test_a_row_of_the_table(place: str, name: str) -> None:
  owner, table = PLACES[place]
  with pytest.raises(AttributeError, match=re.escape(f"has no attribute {name!r}. Here: {table[name]}")):
    getattr(owner(), name)
  # what it says to write is there
  names = {
    "t": Tensor,
    "Tensor": Tensor,
    "y": Tensor,
    "w": Tensor,
    "net": nn.Module,
    "nn": nn,
    "tiny_tensor": tiny_tensor,
    "dtypes": dtypes,
  }
  for first, path in re.findall(r"\b(\w+)((?:\.\w+)+)", table[name]):
    found: Any = names.get(first)
    for part in path.split(".")[1:] if found else ():
      assert hasattr(found, part), f"{first}{path}"
      found = getattr(found, part)


@pytest.mark.parametrize("name", pytorch_names.ALIASES)
def test_a_second_name_of_a_method(name: str) -> None:
  method = pytorch_names.ALIASES[name]
  assert not hasattr(Tensor, name) and callable(getattr(Tensor, method))
  x = Tensor([3.0])
  assert getattr(x, name).__name__ == getattr(x, method).__name__


def test_names_that_have_no_row() -> None:
  cases = {
    (tiny_tensor, "zeros"): "Tensor.zeros",
    (tiny_tensor, "concat"): "Tensor.cat",
    (tiny_tensor, "multiply"): "Tensor.mul",
    (tiny_tensor, "float16"): "dtypes.float16",
    (nn, "Dropout2d"): "lambda x: nn.functional.dropout2d(x, …)",
    (nn, "CTCLoss"): "lambda x: nn.functional.ctc_loss(x, …)",
    (nn, "LazyLinear"): "nn.Linear, with all its sizes",
    (nn, "ReflectionPad2d"): "lambda x: x.pad(padding, mode)",
    (Tensor([1.0]), "unsqueeze_"): "t = t.unsqueeze(…)",
    (tiny_tensor.linalg, "svd"): "Tensor.svd",
    (tiny_tensor.special, "erf"): "Tensor.erf",
  }
  for (owner, name), instead in cases.items():
    with pytest.raises(AttributeError, match=re.escape(f"{name!r}. Here: {instead}")):
      getattr(owner, name)
  with pytest.raises(TypeError, match=r"Here: Tensor\(data\)"):
    tiny_tensor.tensor([1, 2])  # type: ignore[operator]
  for owner in (tiny_tensor, nn, optim, nn.Linear(1, 1), Tensor([1.0])):
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'$"):
      getattr(owner, "nonsense")  # noqa: B009
  assert not hasattr(Tensor([1.0]), "__nonsense__")


def test_methods_by_another_name_work() -> None:
  x = Tensor([1.0, -4.0])
  assert x.multiply(2).absolute().tolist() == [2, 8]  # type: ignore[attr-defined]
  x.subtract_(1)  # type: ignore[attr-defined]
  assert x.tolist() == [0, -5]
  assert x.cpu().device == "CPU" and Tensor([1.0]).cuda(1).uop.device == "CUDA:1"


def test_values_and_what_repr_says() -> None:
  x = Tensor([[1.0, 2.0], [3.0, 4.5]])
  assert str(x * 2) == str(x.numpy() * 2) == f"{x * 2}"
  assert repr(x * 2) == "<Tensor (2, 2) float32 on REF, lazy MUL>"
  assert str(Tensor.zeros(2000)) == "[0. 0. 0. ... 0. 0. 0.]"
  assert str(Tensor([True])) == "[ True]" and str(Tensor(2, dtype="bfloat16")) == "2.0"
  assert f"{Tensor([1.25]):.1f}" == "1.2" and f"{Tensor(3):03d}" == "003"
  with pytest.raises(ValueError, match="one element"):
    f"{x:.1f}"


def test_text_is_no_value_while_something_is_captured() -> None:
  seen = []

  def f(x: Tensor) -> Tensor:
    seen.append(f"{x + 1}")
    return x + 1

  step = TinyJit(f)
  for _ in range(3):
    step(Tensor([1.0]).realize())
  assert seen[0] == "[2.]" and seen[1].startswith("<Tensor (1,)")
  func.vmap(f)(Tensor([[1.0], [2.0]])).realize()
  assert seen[-1].startswith("<Tensor (1,)")


def test_data_that_a_tensor_takes() -> None:
  a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
  assert Tensor([a, b]).tolist() == [[1, 2], [3, 4]]
  assert Tensor([[a], [b]], dtype="int32").tolist() == [[[1, 2]], [[3, 4]]]
  assert Tensor((a[0], a[1])).shape == (2,)
  assert Tensor(range(3)).tolist() == [0, 1, 2] and Tensor(range(0)).shape == (0,)
  assert Tensor([np.ones(2), np.zeros(2)]).tolist() == [[1, 1], [0, 0]]


def test_no_grad() -> None:
  w = Tensor([1.0, 2.0], requires_grad=True)
  with Tensor.no_grad():
    y = w * 3
    assert not y.requires_grad and not w.reshape(2, 1).requires_grad
    w.sub_(1)  # a leaf, in place
    average = Tensor.zeros(2).contiguous().realize().lerp_(w, 0.5)
    assert not average.requires_grad
  assert w.tolist() == [0, 1] and average.tolist() == [0, 0.5]
  ((y + w) * w).sum().backward()  # y is a constant: (3, 6)
  assert w.grad is not None and w.grad.tolist() == [3, 8]
  with pytest.raises(RuntimeError, match="no_grad"):
    w.sub_(1)

  @Tensor.no_grad()
  def predict(x: Tensor) -> Tensor:
    return x * w

  assert not predict(Tensor([1.0, 1.0])).requires_grad and (w * 1).requires_grad


class Block(nn.Module):
  def __init__(self, size: int) -> None:
    super().__init__()
    self.layers: list[Any] = [nn.Linear(size, size), nn.BatchNorm1d(size)]
    self.tied = self.layers[0].weight
    self.count = Tensor([1, 2])

  def forward(self, x: Tensor) -> Tensor:
    for layer in self.layers:
      x = layer(x)
    return x


class Net(nn.Module):
  offset: Tensor

  def __init__(self) -> None:
    self.blocks = nn.ModuleList([Block(3), Block(3)])
    self.heads = nn.ModuleDict(a=nn.Linear(3, 2), b=nn.Sequential(nn.ReLU(), nn.Linear(3, 1)))
    self.scale = nn.Parameter(Tensor([2.0]))
    self.register_buffer("offset", Tensor([0.5]))

  def forward(self, x: Tensor) -> Tensor:
    for block in self.blocks:
      x = block(x)
    out: Tensor = self.heads["a"](x) * self.scale + self.offset
    return out


def test_module() -> None:
  net = Net()
  assert net(Tensor.ones(4, 3)).shape == net.forward(Tensor.ones(4, 3)).shape == (4, 2)
  names = [name for name, _ in net.named_parameters()]
  layer = ["0.weight", "0.bias", "1.weight", "1.bias"]
  heads = ["a.weight", "a.bias", "b.1.weight", "b.1.bias"]
  assert names == [f"blocks.{i}.layers.{n}" for i in (0, 1) for n in layer] + [f"heads.{n}" for n in heads] + ["scale"]
  assert len(net.parameters()) == len(names) and all(p.requires_grad for p in net.parameters())
  assert "offset" in dict(net.named_buffers()) and len(net.buffers()) == 2 * (3 + 1) + 1
  assert sum(p.numel() for p in net.parameters()) == 2 * (9 + 3 + 3 + 3) + 8 + 4 + 1
  assert [name for name, _ in net.named_children()] == ["blocks", "heads"]
  assert [type(m).__name__ for m in net.modules()].count("Linear") == 4
  seen: list[str] = []
  net.apply(lambda m: seen.append(type(m).__name__))
  assert seen[-1] == "Net" and len(seen) == len(net.modules())
  text = "Sequential(\n  (0): Linear(weight (2, 1), bias (2,))\n  (1): ReLU()\n)"
  assert repr(nn.Sequential(nn.Linear(1, 2), nn.ReLU())) == text
  assert repr(nn.Dropout(0.25)) == "Dropout(p=0.25)"
  assert repr(Net()).startswith("Net(\n  scale (1,), offset (1,)\n  (blocks): ModuleList(")
  with pytest.raises(NotImplementedError, match="Nothing defines neither"):
    type("Nothing", (nn.Module,), {})()()


def test_module_state() -> None:
  net, other = Net(), Net()
  arrays = {name: t.numpy() + 1 for name, t in net.state_dict().items()}
  other.load_state_dict(arrays)  # of NumPy
  for name, t in other.state_dict().items():
    np.testing.assert_array_equal(t.numpy(), arrays[name])
  with pytest.raises(KeyError, match="missing offset"):
    net.load_state_dict({name: v for name, v in arrays.items() if name != "offset"})
  net.half()
  assert net.scale.dtype is dtypes.float16 and net.blocks[0].count.dtype is dtypes.int32
  assert net.to("REF:1").scale.device == "REF:1" and net.offset.device == "REF:1"
  net.requires_grad_(False)
  assert net.parameters() == []
  net.requires_grad_(True)
  assert len(net.parameters()) == len(other.parameters()) + 1  # what was a buffer is a float as others are


def test_training_with_modules() -> None:
  net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
  opt = optim.SGD(net.parameters(), lr=0.1)
  x, y = Tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), Tensor([[1.0], [0.0], [1.0]])
  losses, sizes = [], []
  assert net.train().training and nn.Linear(1, 1).training
  try:
    for _ in range(8):
      opt.zero_grad()
      loss = (net(x) - y).square().mean()
      loss.backward()
      opt.step()
      losses.append(loss.item())
      sizes.append(len(net[0].running_mean.uop.toposort))  # type: ignore[attr-defined]
  finally:
    net.eval()
  assert not Tensor.training and losses == sorted(losses, reverse=True)
  assert sizes[-1] == sizes[2]  # running statistics do not pile up where no optimiser has them
  opt.zero_grad(set_to_none=False)
  assert net[1].weight.grad.tolist() == [[0, 0]]  # type: ignore[attr-defined]
  net[1].weight.grad.add_(1)  # type: ignore[attr-defined]
  net.zero_grad(set_to_none=False)
  assert net[1].weight.grad.tolist() == [[0, 0]]  # type: ignore[attr-defined]
  net.zero_grad()
  assert net[1].weight.grad is None  # type: ignore[attr-defined]
  assert str(net(x[:1])).startswith("[[")
  Tensor.realize(*net.buffers())  # nothing waits for a device that another test closes


def test_what_is_no_parameter() -> None:
  net = nn.Linear(2, 1)
  for params in ([{"params": [net.weight], "lr": 0.1}], net.named_parameters(), net.state_dict()):
    with pytest.raises(TypeError, match=r"an optimiser takes tensors, .* OptimizerGroup"):
      optim.SGD(params)  # type: ignore[arg-type]
  with pytest.raises(RuntimeError, match=r"none requires one. net.parameters\(\) and optimisers make a model's do"):
    nn.Linear(2, 1)(Tensor.ones(1, 2)).sum().backward()
