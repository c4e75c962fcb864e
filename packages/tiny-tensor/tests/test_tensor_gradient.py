"""Gradients against finite differences in float64, on the reference device; and what `backward` does with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


CASES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
  "arithmetic": (lambda x, y: x * y - x / (y * y + 1) + 2, ((2, 3), (3,))),
  "exponentials": (lambda x: x.exp() + x.exp2() + (x * x + 1).log() + (x * x + 1).log2(), ((3,),)),
  "trigonometry": (lambda x: x.sin() * x.cos() + x.atan() + (x * 0.1).tan(), ((3,),)),
  "hyperbolic": (lambda x: x.sinh() + x.cosh() + x.tanh() + x.asinh() + (x * 0.1).atanh(), ((4,),)),
  "inverse": (lambda x: (x * 0.2).asin() + (x * 0.2).acos() + (x * x + 1.5).acosh(), ((4,),)),
  "erf": (lambda x: (x * 2).erf(), ((6,),)),
  "roots": (lambda x: (x * x + 1).sqrt() + (x * x + 1).rsqrt() + (x * x + 1) ** 1.3, ((3,),)),
  "powers": (lambda x, y: (x * x + 0.5) ** y + x**3 + (x * x + 1) ** -2, ((3,), (3,))),
  "extrema": (lambda x, y: x.maximum(y) + x.minimum(y * 0.5) + x.max(0) + x.min(1, keepdim=True), ((2, 3), (3,))),
  "selection": (lambda x, y: (x > 0).where(x * y, y) + x.clamp(-0.5, 0.5), ((5,), (5,))),
  "product": (lambda x: x.prod(1) + x.cumprod(0).sum(0)[:2], ((2, 3),)),
  "variance": (lambda x: x.var(1) + x.std(1) + x.mean(1), ((3, 4),)),
  "softmax": (lambda x: x.softmax(1) + x.log_softmax(0) + x.logsumexp(1, keepdim=True), ((3, 4),)),
  "scan": (lambda x: x.cumsum(1) + x.logcumsumexp(1) + x.cummax(1)[0], ((2, 4),)),
  "movement": (lambda x: x.T.reshape(2, 6).flip(0).pad(((1, 0), (0, 2)))[:, 1:5].roll(1, 0), ((4, 3),)),
  "modes": (lambda x: x.pad((2, 1), mode="reflect") + x.pad((1, 2), mode="circular"), ((1, 4),)),
  "joining": (lambda x, y: x.cat(y, x * 2, dim=1).stack(y.repeat(1, 3)[:, :8], dim=0), ((2, 2), (2, 4))),
  "matmul": (lambda x, y: x @ y + (x @ y).sum(0), ((2, 3), (3, 4))),
  "einsum": (lambda x, y: Tensor.einsum("bij,jk->kib", x, y), ((2, 2, 3), (3, 2))),
  "conv": (lambda x, w: x.conv2d(w, padding=1, stride=2, groups=2), ((1, 2, 5, 4), (2, 1, 3, 3))),
  "transposed conv": (lambda x, w: x.conv_transpose2d(w, stride=2, padding=1), ((1, 2, 3, 3), (2, 1, 3, 3))),
  "pool": (lambda x: x.max_pool2d(2).cat(x.avg_pool2d(3, stride=1, padding=1)[:, :, :2, :2]), ((1, 1, 4, 5),)),
  "indexing": (lambda x: x[Tensor([0, 2, 0])] + x[1, ::-1] + x[:, Tensor([1, 1])].sum(), ((3, 4),)),
  "gather": (lambda x: x.gather(1, Tensor([[0, 0], [2, 1]])), ((2, 3),)),
  "sort": (lambda x: x.sort(1)[0] * Tensor([1.0, 2.0, 3.0, 4.0], dtype="float64"), ((2, 4),)),
  "norm": (lambda x: x.layernorm() + x.normalize(), ((3, 4),)),
  "activations": (lambda x: x.sigmoid() + x.gelu() + x.softplus() + x.mish() + x.elu() + x.silu(), ((7,),)),
  "loss": (lambda x: x.cross_entropy(Tensor([1, 0]), label_smoothing=0.2), ((2, 3),)),
  "logits": (lambda x: x.binary_crossentropy_logits(Tensor([1.0, 0.0, 1.0])), ((3,),)),
}


@pytest.mark.parametrize("name", CASES)
def test_against_finite_differences(name: str) -> None:
  f, shapes = CASES[name]
  rng = np.random.default_rng(4)
  arrays = [rng.standard_normal(s) for s in shapes]
  tensors = [Tensor(a, requires_grad=True) for a in arrays]
  out = f(*tensors)
  assert out.dtype is dtypes.float64
  weight = rng.standard_normal(tuple(int(s) for s in out.shape))
  (out * Tensor(weight)).sum().backward()

  def value(*inputs: Any) -> float:
    return float((f(*[Tensor(a) for a in inputs]).numpy() * weight).sum())

  step = 1e-6
  for which, a in enumerate(arrays):
    grad = tensors[which].grad
    assert grad is not None and grad.shape == a.shape and grad.dtype is dtypes.float64
    found = grad.numpy()
    for place in np.ndindex(a.shape):
      inputs = [[b.copy() for b in arrays] for _ in range(2)]
      inputs[0][which][place] += step
      inputs[1][which][place] -= step
      expected = (value(*inputs[0]) - value(*inputs[1])) / (2 * step)
      assert found[place] == pytest.approx(expected, rel=2e-5, abs=1e-6), f"argument {which} at {place}"


def test_gradient_of_gradient() -> None:
  x = Tensor([1.0, 2.0, 3.0])
  (first,) = (x**4).sum().gradient(x)
  (second,) = first.sum().gradient(x)
  assert first.tolist() == [4, 32, 108] and second.tolist() == [12, 48, 108]


def test_gradients_accumulate() -> None:
  x = Tensor([1.0, 2.0], requires_grad=True)
  (x * 3).sum().backward()
  (x * x).sum().backward()
  assert x.grad is not None and x.grad.tolist() == [5, 7]


def test_detach_stops_and_integers_pass_nothing() -> None:
  x = Tensor([1.5, 2.5], requires_grad=True)
  (x.detach() * x + x.int().float() + x.floor()).sum().backward()
  assert x.grad is not None and x.grad.tolist() == [1.5, 2.5]


def test_reading_a_value_keeps_the_way_back() -> None:
  x = Tensor([1.0, 2.0], requires_grad=True)
  h = x * 2
  loss = (h * h).sum()
  assert loss.item() == 20 and h.tolist() == [2, 4]
  loss.backward()
  assert x.grad is not None and x.grad.tolist() == [8, 16]


def test_realising_an_intermediate_keeps_the_way_of_others() -> None:
  x = Tensor([1.0, 2.0], requires_grad=True)
  h = (x * 2).contiguous()
  loss = (h * h).sum()
  h.realize()
  loss.backward()
  assert x.grad is not None and x.grad.tolist() == [8, 16]


def test_realising_a_parameter_keeps_it_in_graphs() -> None:
  w = Tensor.full((2,), 3.0, requires_grad=True)
  loss = (w * w).sum()
  w.realize()
  loss.backward()
  assert w.grad is not None and w.grad.tolist() == [6, 6]


def test_backward_needs_a_way_back() -> None:
  x = Tensor([1.0, 2.0], requires_grad=True)
  loss = (x * x).sum().realize()
  with pytest.raises(RuntimeError, match="realised"):
    loss.backward()
  with pytest.raises(RuntimeError, match="none requires one"):
    (Tensor([1.0]) * 2).sum().backward()
  with pytest.raises(RuntimeError, match=r"shape \(2,\).*gradient"):
    (x * x).backward()
  with pytest.raises(RuntimeError, match=r"\(3,\), expected \(2,\)"):
    (x * x).backward(Tensor.ones(3))
  with pytest.raises(RuntimeError, match="does not depend"):
    x.sum().gradient(Tensor([1.0]))
  assert x.sum().gradient(Tensor([1.0]), materialize_grads=True)[0].tolist() == [0]
  with pytest.raises(TypeError, match="int32"):
    Tensor([1], requires_grad=True)


STEPS: dict[str, Callable[[Tensor], Tensor]] = {
  "sign": lambda x: x.sign(),
  "trunc": lambda x: x.trunc(),
  "floor": lambda x: x.floor(),
  "ceil": lambda x: x.ceil(),
  "round": lambda x: x.round(),
  "decimals": lambda x: x.round(1),
  "power 0": lambda x: x**0,
  "power 0.0": lambda x: x**0.0,
  "quotient": lambda x: x // 0.3,
  "of the sign": lambda x: Tensor([2.0, 3.0, 4.0]).copysign(x),
  "fill": lambda x: x.fill(2.0),
  "next": lambda x: Tensor([2.0, 3.0, 4.0]).nextafter(x),
  "on": lambda x: (x * 2).sign().reshape(3, 1).cast("float64").sum(1).exp(),
}


@pytest.mark.parametrize("name", STEPS)
def test_functions_that_are_constant_in_pieces_have_gradients_of_zeros(name: str) -> None:
  x = Tensor([0.5, -1.25, 2.0], requires_grad=True)
  y = STEPS[name](x)
  assert y.requires_grad
  assert y.sum().gradient(x)[0].tolist() == [0, 0, 0]
  y.sum().backward()
  assert x.grad is not None and x.grad.tolist() == [0, 0, 0] and x.grad.dtype == x.dtype
  # they add nothing to others, and cost nothing: a product with them would be NaN here
  at_zero = Tensor([0.0, 0.0, 0.0], requires_grad=True)
  (found,) = (STEPS[name](at_zero.sqrt()) + at_zero * 2).sum().gradient(at_zero)
  assert found.tolist() == [2, 2, 2]


def test_comparisons_and_integers_end_a_gradient() -> None:
  x = Tensor([0.5, -1.25, 2.0], requires_grad=True)
  for y in ((x > 0).cast("float32"), (x > 0).where(1.0, 2.0), x.cast("int32").cast("float32"), x.detach().sign()):
    with pytest.raises(RuntimeError, match="does not depend"):
      y.sum().gradient(x)
  with pytest.raises(RuntimeError, match="reaches no tensor"):
    (x > 0).where(1.0, 2.0).sum().backward()


@pytest.mark.parametrize("materialize", [False, True])
def test_integers_have_no_gradient(materialize: bool) -> None:
  n = Tensor([1, 2])
  with pytest.raises(RuntimeError, match="int32"):
    (n.float() * 0.5).sum().gradient(n, materialize_grads=materialize)


def test_gradients_of_zeros_are_where_their_targets_are() -> None:
  devices = ("REF", "REF:1")
  x = Tensor([1.0, -2.0, 3.0, 4.0]).shard(devices, axis=0).requires_grad_(True)
  (g,) = x.sign().sum().gradient(x)
  assert g.device == devices and g.tolist() == [0, 0, 0, 0]
  x.sign().sum().backward()
  assert x.grad is not None and x.grad.device == devices


def test_gradient_through_an_assignment() -> None:
  x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
  y = x * 2
  y[1:] = x[:2] * 10
  (y * Tensor([1.0, 2.0, 3.0])).sum().backward()
  assert x.grad is not None and x.grad.tolist() == [22, 30, 0]


def test_empty_tensors_have_gradients() -> None:
  x = Tensor(np.zeros((0, 3), dtype=np.float32), requires_grad=True)
  (x.sum() + 1).backward()
  assert x.grad is not None and x.grad.shape == (0, 3) and x.grad.tolist() == []


def test_equal_parameters_have_gradients_of_their_own() -> None:
  a, b = Tensor.zeros(2, requires_grad=True), Tensor.zeros(2).requires_grad_()
  c, d = Tensor.ones(2).contiguous(), Tensor.ones(2).contiguous()
  Tensor.realize(c, d)
  c.requires_grad_()
  d.requires_grad_()
  (a * 2 + b * 3 + c * 4 + d * 5 + Tensor.zeros(2) * 6 + (a > 1).where(1.0, 0.0)).sum().backward()
  found = [t.grad for t in (a, b, c, d)]
  assert [None if g is None else g.tolist() for g in found] == [[2, 2], [3, 3], [4, 4], [5, 5]]


def test_constants_have_no_gradient_of_their_own() -> None:
  x = Tensor.ones(2)
  with pytest.raises(RuntimeError, match="requires_grad=True"):
    (x * Tensor.ones(2)).sum().gradient(x)


@pytest.mark.parametrize("values", [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
def test_second_derivatives_of_a_product_with_zeros(values: list[float]) -> None:
  x = Tensor(values, requires_grad=True)
  (slope,) = x.prod().gradient(x)
  assert slope.tolist() == [values[1] * values[2], values[0] * values[2], values[0] * values[1]]
  (curve,) = slope[0].gradient(x)  # slope was read: its graph is still there
  assert curve.tolist() == [0.0, values[2], values[1]]


def test_relu_at_its_kink_and_beside_the_numbers() -> None:
  inf, nan = math.inf, math.nan
  x = Tensor([-1.0, -0.0, 0.0, 1.0, -inf, inf, nan])
  seed = Tensor([inf, nan, 5.0, 5.0, 5.0, 5.0, 5.0])
  (dx,) = x.relu().gradient(x, gradient=seed)
  assert dx.tolist() == [0, 0, 0, 5, 0, 5, 5], "what comes to a 0 is not multiplied by 0"
  (twice,) = (x.relu() ** 2).sum().gradient(x)[0][3:4].sum().gradient(x)
  assert twice.tolist()[:4] == [0, 0, 0, 2]
  assert Tensor([-2, 3]).relu().tolist() == [0, 3]


def test_a_convolution_of_padding_alone() -> None:
  x, w = Tensor.ones(1, 2, 0).requires_grad_(), Tensor.ones(3, 2, 2).requires_grad_()
  y = x.conv2d(w, padding=1)
  dx, dw = y.sum().gradient(x, w)
  assert y.tolist() == [[[0.0]] * 3] and dx.shape == (1, 2, 0) and dw.tolist() == [[[0.0] * 2] * 2] * 3
