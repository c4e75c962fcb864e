"""vmap: what it gives is the stack of what the function gives for each example."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor, TinyJit, TransformError, Variable, checkpoint, dtypes, nn, vmap
from tiny_tensor.autograd.rules import WITHOUT_GRADIENT
from tiny_tensor.func import grad, jacfwd, jacrev, jvp, value_and_grad
from tiny_tensor.transforms.batching_rules import RULES
from tiny_uop import GroupOp, Ops

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def batch(*shape: int, seed: int = 0) -> Array:
  return np.random.default_rng(seed).standard_normal((3, *shape))


def check(f: Callable[..., Tensor], *arrays: Array) -> None:
  """vmap(f) against a loop."""
  found = vmap(f)(*[Tensor(a) for a in arrays])
  expected = np.stack([f(*[Tensor(a[i]) for a in arrays]).numpy() for i in range(3)])
  assert tuple(found.shape) == expected.shape
  np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


CASES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
  "elementwise": (lambda x, y: (x * y).sin() + x / (y * y + 1) - 2 * x.maximum(0.1), ((2, 2), (2, 2))),
  "numbers": (lambda x, y: x * y + 1, ((), (2, 2))),
  "broadcast": (lambda x, y: x + y.exp(), ((2, 1), (3,))),
  "movement": (lambda x: x.T.reshape(2, 3).flip(0).pad(((1, 0), (0, 2)))[:, 1:4].repeat(2, 1), ((3, 2),)),
  "reductions": (lambda x: x.sum(0) * x.max() + x.prod(0) - x.mean(1, keepdim=True)[0], ((2, 2),)),
  "a number": (lambda x: x.sum(), ((2, 2),)),
  "softmax": (lambda x: x.softmax(-1).log(), ((3,),)),
  "matmul": (lambda x, y: x @ y, ((2, 3), (3, 2))),
  "vectors": (lambda x, y: x.dot(y), ((3,), (3,))),
  "einsum": (lambda x, y: Tensor.einsum("ij,jk->ki", x, y), ((2, 3), (3, 2))),
  "conv": (lambda x, w: x.conv2d(w, padding=1), ((1, 2, 3, 3), (1, 2, 2, 2))),
  "pool": (lambda x: x.max_pool2d(2), ((1, 1, 4, 4),)),
  "where": (lambda x, y: (x > y).where(x, -y), ((3,), (3,))),
  "scan": (lambda x: x.cumsum(0), ((4,),)),
  "sort": (lambda x: x.sort()[0] + x.argsort().cast("float64"), ((4,),)),
  "indexing": (lambda x: x[Tensor([2, 0])] + x[1], ((3, 2),)),
  "joining": (lambda x, y: x.cat(y).stack(y.cat(x)), ((2,), (2,))),
  "tanh": (lambda x: x.tanh() + x.erf() + x.sigmoid(), ((3,),)),
  "solve": (lambda a, b: (a @ a.T + Tensor.eye(2, dtype="float64")).solve(b), ((2, 2), (2,))),
  "casts": (lambda x: x.int().float().double() + (x * 8).int().bitcast("uint32").double(), ((3,),)),
  "in place": (lambda x: _assigned(x), ((4,),)),
  "nothing mapped": (lambda x: Tensor([1.0, 2.0], dtype="float64") * 2, ((2,),)),
  "empty": (lambda x: x[:0].cat(x), ((2,),)),
  "norm": (lambda x: x.layernorm() + x.std(), ((4,),)),
}


def _assigned(x: Tensor) -> Tensor:
  y = Tensor.zeros(4, dtype="float64").contiguous()
  y[1:] = x[:3] * 2
  z = y * 1
  y[::2] = 5.0
  return y + z


@pytest.mark.parametrize("name", CASES)
def test_against_a_loop(name: str) -> None:
  f, shapes = CASES[name]
  check(f, *[batch(*s, seed=i) for i, s in enumerate(shapes)])


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("casts", "nothing mapped")])
def test_gradients_inside_and_outside(name: str) -> None:
  """The gradient of each example by vmap(grad(f)), by grad of the sum of vmap(f), and in a loop."""
  f, shapes = CASES[name]
  arrays = [batch(*s, seed=i) for i, s in enumerate(shapes)]
  each = tuple(range(len(shapes)))

  def loss(*xs: Tensor) -> Tensor:
    return (f(*xs) * 0.5).square().sum()

  tensors = [Tensor(a) for a in arrays]
  inside = vmap(grad(loss, each))(*tensors)
  outside = grad(lambda *xs: vmap(loss)(*xs).sum(), each)(*tensors)
  loops = [grad(loss, each)(*[Tensor(a[i]) for a in arrays]) for i in range(3)]
  Tensor.realize(*inside, *outside, *[t for ts in loops for t in ts])
  for n in each:
    expected = np.stack([g[n].numpy() for g in loops])
    np.testing.assert_allclose(inside[n].numpy(), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(outside[n].numpy(), expected, rtol=1e-9, atol=1e-9)


def test_an_index_per_example() -> None:
  x, at = batch(4, 2), np.array([[3, 0], [1, 1], [2, 3]], np.int32)
  found = vmap(lambda a, i: a[i])(Tensor(x), Tensor(at)).numpy()
  np.testing.assert_array_equal(found, np.stack([x[n][at[n]] for n in range(3)]))
  shared = vmap(lambda i: Tensor(x[0])[i])(Tensor(at)).numpy()
  np.testing.assert_array_equal(shared, x[0][at])
  written = vmap(lambda a, i: a.scatter(0, i, Tensor([7.0, 8.0], dtype="float64")))(
    Tensor(x[:, :, 0]), Tensor(at)
  ).numpy()
  expected = x[:, :, 0].copy()
  for n in range(3):
    expected[n][at[n]] = [7, 8]
  np.testing.assert_array_equal(written, expected)


def test_masks() -> None:
  x = batch(2, 3)

  def marked(v: Tensor, row: Tensor) -> Tensor:
    v = v * 1
    v[v > 0.5] = 7.0
    v[v[:, 0] < 0] = row
    return v

  expected, row = x.copy(), np.array([1.0, 2.0, 3.0])
  expected[expected > 0.5] = 7
  expected[expected[:, :, 0] < 0] = row
  np.testing.assert_array_equal(vmap(marked, (0, None))(Tensor(x), Tensor(row)).numpy(), expected)
  chosen = Tensor([True, False, True])
  np.testing.assert_array_equal(vmap(lambda v: v[0][chosen])(Tensor(x)).numpy(), x[:, 0][:, [0, 2]])
  for picked in (lambda v: v[v > 0], lambda v: v.masked_select(v > 0), lambda v: v.nonzero()):
    with pytest.raises(TransformError, match="how many elements a mask picks depends on args\\[0\\].*another shape"):
      vmap(picked)(Tensor(x))


def test_axes_and_containers() -> None:
  x, y = batch(2), batch(4, 2)

  def f(pair: tuple[Tensor, dict[str, Tensor]], scale: Tensor, times: int) -> dict[str, Any]:
    a, b = pair[0], pair[1]["b"]
    assert a.shape == (2,) and b.shape == (4, 2) and scale.shape == (2,) and times == 3
    return {"sum": a + scale * times, "parts": [b, b.T], "scale": scale * 2}

  scale = Tensor([1.0, 2.0], dtype="float64")
  axes = ((1, {"b": -1}), None, None)
  given = (Tensor(x).T, {"b": Tensor(y).permute(1, 2, 0)})
  found = vmap(f, axes, out_axes={"sum": 0, "parts": [1, -1], "scale": None})(given, scale, 3)
  np.testing.assert_allclose(found["sum"].numpy(), x + np.array([3.0, 6.0]))
  np.testing.assert_allclose(found["parts"][0].numpy(), y.transpose(1, 0, 2))
  np.testing.assert_allclose(found["parts"][1].numpy(), y.transpose(2, 1, 0))
  assert found["scale"].tolist() == [2, 4]
  both = vmap(f, ((0, 0), None, None), out_axes=1)((Tensor(x), {"b": Tensor(y)}), scale, 3)
  assert both["scale"].shape == (2, 3) and both["parts"][0].shape == (4, 3, 2)


def test_nested() -> None:
  x, y = batch(2), batch(4, 2, seed=1)[0]

  def distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().sum().sqrt()

  found = vmap(vmap(distance, (None, 0)), (0, None))(Tensor(x), Tensor(y)).numpy()
  np.testing.assert_allclose(found, np.linalg.norm(x[:, None] - y[None], axis=-1))
  turned = vmap(vmap(distance, (0, None)), (None, 0), out_axes=1)(Tensor(x), Tensor(y)).numpy()
  np.testing.assert_allclose(turned, found)
  g = vmap(vmap(grad(distance), (None, 0)), (0, None))(Tensor(x), Tensor(y)).numpy()
  np.testing.assert_allclose(g, (x[:, None] - y[None]) / found[..., None])


def test_a_layer_and_per_sample_gradients() -> None:
  Tensor.manual_seed(3)
  layer, x, target = nn.Linear(3, 2), Tensor(batch(3)).float(), Tensor([0, 1, 1])

  def loss(weight: Tensor, bias: Tensor, one: Tensor, label: Tensor) -> Tensor:
    return one.linear(weight.T, bias).unsqueeze(0).cross_entropy(label.unsqueeze(0))

  assert layer.bias is not None
  for parameter in (layer.weight, layer.bias):
    parameter.requires_grad_()
  values, (dw, db) = vmap(value_and_grad(loss, (0, 1)), (None, None, 0, 0))(layer.weight, layer.bias, x, target)
  assert dw.shape == (3, 2, 3) and db.shape == (3, 2)
  values.mean().backward()
  assert layer.weight.grad is not None and layer.bias.grad is not None
  np.testing.assert_allclose(dw.mean(0).numpy(), layer.weight.grad.numpy(), rtol=1e-5, atol=1e-7)
  np.testing.assert_allclose(db.mean(0).numpy(), layer.bias.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_backward_goes_through() -> None:
  w = Tensor([1.0, 2.0], requires_grad=True)
  x = Tensor(batch(2).astype(np.float32), requires_grad=True)
  out = vmap(lambda v: (v * w).tanh().sum())(x)
  assert out.requires_grad
  out.sum().backward()
  assert x.grad is not None and w.grad is not None
  slope = 1 - np.tanh(x.numpy() * w.numpy()) ** 2
  np.testing.assert_allclose(x.grad.numpy(), slope * w.numpy(), rtol=1e-5)
  np.testing.assert_allclose(w.grad.numpy(), (slope * x.numpy()).sum(0), rtol=1e-5)


def test_backward_inside_is_of_each_example() -> None:
  def slope(v: Tensor) -> Tensor:
    v.requires_grad_()
    (v * v * 0.5).sum().backward()
    assert v.grad is not None
    return v.grad

  x = batch(2)
  np.testing.assert_allclose(vmap(slope)(Tensor(x)).numpy(), x)


def test_looking_at_a_value_is_an_error_that_says_so() -> None:
  x = Tensor(batch(2))
  looks: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda v: v * v.sum().item(),
    "numpy": lambda v: v.numpy(),
    "realize": lambda v: (v * 2).realize(),
    "realize of the argument": lambda v: v.realize().tolist(),
    "a branch": lambda v: v if bool((v > 0).all().item()) else -v,
    "a mask": lambda v: v[v > 0],
  }
  for f in looks.values():
    with pytest.raises(TransformError, match=r"args\[0\], an argument of vmap\(<lambda>\)"):
      vmap(f)(x)
  kept: list[Tensor] = []

  def keeps(v: Tensor) -> Tensor:
    kept.extend((v * 2, v))
    return v

  vmap(keeps)(x).realize()
  for t in kept:
    with pytest.raises(TransformError, match="return the Tensor"):
      t.tolist()


def test_what_does_not_depend_on_an_example_may_be_looked_at() -> None:
  w = Tensor([2.0, 3.0], dtype="float64")
  check(lambda v: v * w.max().item() + w.realize(), batch(2))


def test_writes_that_have_no_meaning() -> None:
  x, outer = Tensor(batch(2)), Tensor.zeros(2, dtype="float64").contiguous().realize()

  def into_argument(v: Tensor) -> Tensor:
    v[0] = 1.0
    return v

  def to_outside(v: Tensor) -> Tensor:
    outer.assign(v)
    return v

  w = Tensor.ones(2, dtype="float64", requires_grad=True)

  def backward(v: Tensor) -> Tensor:
    (v * w).sum().backward()
    return v

  with pytest.raises(TransformError, match="made outside of it"):
    vmap(backward)(x)
  assert w.grad is None
  with pytest.raises(TransformError, match=r"args\[0\].*written to"):
    vmap(into_argument)(x)
  with pytest.raises(TransformError, match="made outside of it"):
    vmap(to_outside)(x)
  assert outer.tolist() == [0, 0]


def test_arguments_that_do_not_fit() -> None:
  x, f = Tensor(batch(2)), lambda v, w=None: v
  with pytest.raises(ValueError, match=r"different sizes: args\[0\]: 3, args\[1\]: 2"):
    vmap(f)(x, x[:2])
  with pytest.raises(ValueError, match="nothing to map over"):
    vmap(f, None)(x)
  with pytest.raises(ValueError, match=r"in_axes \(0, 0, 0\) does not fit args, which is 2 values"):
    vmap(f, (0, 0, 0))(x, x)
  with pytest.raises(ValueError, match=r"args\[1\] is a int.*None for it"):
    vmap(f)(x, 3)
  with pytest.raises(ValueError, match="0-d tensor"):
    vmap(f)(Tensor(1.0))
  with pytest.raises(IndexError, match="axis 2"):
    vmap(f, 2)(x)
  with pytest.raises(TypeError, match="the result.*float.*return Tensors"):
    vmap(lambda v: 1.5)(x)
  with pytest.raises(ValueError, match="differs from example to example"):
    vmap(f, out_axes=None)(x)
  with pytest.raises(ValueError, match="randomness"):
    vmap(f, randomness="some")


def test_random_numbers() -> None:
  x = Tensor.zeros(3, 100)
  with pytest.raises(TransformError, match="randomness='same'"):
    vmap(lambda v: v + Tensor.rand(100))(x)
  Tensor.manual_seed(1)
  same = vmap(lambda v: v + Tensor.rand(100), randomness="same")(x).numpy()
  assert (same[0] == same[1]).all() and (same[0] == same[2]).all()
  Tensor.manual_seed(1)
  different = vmap(lambda v: v + Tensor.rand(100), randomness="different")(x).numpy()
  assert len(np.unique(different)) > 290
  Tensor.manual_seed(1)
  assert (different == Tensor.rand(3, 100).numpy()).all(), "the draws are those of the batch"
  nested = vmap(vmap(lambda v: v + Tensor.rand(), randomness="different"), randomness="same")(x[:, :5]).numpy()
  assert (nested[0] == nested[1]).all() and len(np.unique(nested)) == 5
  with Tensor.train():
    dropped = vmap(lambda v: (v + 1).dropout(0.5), randomness="different")(x).numpy()
  assert not (dropped[0] == dropped[1]).all()


def test_in_a_jit_and_around_one() -> None:
  w = Tensor([[1.0, 2.0], [3.0, 4.0]])

  @TinyJit
  def step(x: Tensor) -> Any:
    return vmap(lambda v: (v @ w).tanh().sum())(x).realize()

  for n in range(4):
    x = batch(2, seed=n).astype(np.float32)
    expected = np.tanh(x @ w.numpy()).sum(1)
    np.testing.assert_allclose(step(Tensor(x)).numpy(), expected, rtol=1e-5)
  with pytest.raises(TransformError):
    vmap(TinyJit(lambda v: (v * 2).realize()))(Tensor(x))


def test_a_batch_of_symbolic_size() -> None:
  n = Variable("n", 1, 3).bind(2)
  x = Tensor(batch(2))
  found = vmap(lambda v: v.exp().sum())(x[:n])
  np.testing.assert_allclose(found.reshape(n).numpy()[:2], np.exp(x.numpy()[:2]).sum(1))


def test_nothing_stays_behind() -> None:
  from tiny_uop import live_nodes

  def work() -> None:
    x = Tensor(batch(2))
    vmap(grad(checkpoint(lambda v: (v.tanh() * v).sum())))(x).realize()

  work()
  gc.collect()
  before = live_nodes()
  for _ in range(3):
    work()
  gc.collect()
  assert live_nodes() <= before + 5


def test_every_operation_with_a_value_has_a_rule() -> None:
  """What stands in tensor graphs, but for leaves, which depend on nothing."""
  leaves = {Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.DEVICE}
  values = {op for op, why in WITHOUT_GRADIENT.items() if why in ("gives a bool", "integers", "bits are not numbers")}
  assert values | GroupOp.Elementwise | GroupOp.Movement | GroupOp.Identity <= RULES.keys()
  assert not leaves & RULES.keys()


# *** random programs ***

UNARY: list[Callable[[Tensor], Tensor]] = [
  lambda x: x.sin(), lambda x: x * 0.5 + 1, lambda x: x.relu(), lambda x: x.flip(0), lambda x: x.permute(1, 0),
  lambda x: x - x.mean(0, keepdim=True), lambda x: x.softmax(1), lambda x: x[:, :1].expand(*x.shape),
  lambda x: x.reshape(x.shape[1], x.shape[0]), lambda x: x.roll(1, 0), lambda x: x.cumsum(1),
  lambda x: x.pad(((0, 1), (1, 0)))[1:, 1:].cat(x[:1], dim=0) if x.shape[0] > 1 and x.shape[1] > 0 else x,
  lambda x: x.max(1, keepdim=True) * x, lambda x: x.tanh(), lambda x: (x > 0).where(x, 2.0), lambda x: x.contiguous(),
  lambda x: x.T @ x, lambda x: x[Tensor([0, 0, -1])], lambda x: x.detach() * x,
]  # fmt: skip


@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, len(UNARY) - 1), min_size=1, max_size=4))
def test_random_derivatives(steps: list[int]) -> None:
  """Both modes give one Jacobian, and forward mode of the batch is the batch of forward mode."""

  def program(x: Tensor) -> Tensor:
    for which in steps:
      x = UNARY[which](x)
    return x

  x, t = (Tensor(batch(2, 2, seed=s) * 0.5) for s in (0, 1))
  forward, reverse = jacfwd(program)(x[0]), jacrev(program)(x[0])
  _, outside = jvp(vmap(program), (x,), (t,))
  inside = vmap(lambda a, b: jvp(program, (a,), (b,))[1])(x, t)
  Tensor.realize(forward, reverse, outside, inside)
  np.testing.assert_allclose(forward.numpy(), reverse.numpy(), rtol=1e-9, atol=1e-9)
  np.testing.assert_allclose(outside.numpy(), inside.numpy(), rtol=1e-9, atol=1e-9)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, len(UNARY) - 1), st.booleans()), min_size=1, max_size=5))
def test_random_programs(steps: list[tuple[int, bool]]) -> None:
  def program(x: Tensor, y: Tensor) -> Tensor:
    for which, mix in steps:
      x = UNARY[which](x)
      if mix:
        x = x * (y.sum() + x.mean() * 0.1)
    return x

  arrays = (batch(2, 2) * 0.5, batch(3, seed=1) * 0.5)
  check(program, *arrays)
  assert program(*[Tensor(a[0]) for a in arrays]).dtype is dtypes.float64
