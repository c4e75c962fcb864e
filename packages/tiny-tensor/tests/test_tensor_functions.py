"""Derivatives of functions (`tiny_tensor.func`), `checkpoint`, and `function` with a gradient of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiny_runtime import run
from tiny_tensor import Context, Tensor, TinyJit, TransformError, checkpoint, function, jvp, vmap
from tiny_tensor.autograd.custom_gradient import with_gradient
from tiny_tensor.func import grad, hessian, jacfwd, jacrev, value_and_grad, vjp
from tiny_uop import Ops, UOp, parse_uop, print_uop

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def point(*shape: int, seed: int = 0) -> Tensor:
  return Tensor(np.random.default_rng(seed).standard_normal(shape))


# *** derivatives of functions ***


def test_gradients_have_the_form_of_the_arguments() -> None:
  def loss(model: dict[str, Any], x: Tensor, power: int) -> tuple[Tensor, str]:
    return ((x @ model["w"] + model["b"][0]) ** power).sum(), "more"

  x = point(4, 3, seed=2)
  model: dict[str, Any] = {"w": point(3, 2), "b": [point(2, seed=1)]}
  (value, more), (dmodel, dx) = value_and_grad(loss, (0, 1), has_aux=True)(model, x, 2)
  y = x.numpy() @ model["w"].numpy() + model["b"][0].numpy()
  np.testing.assert_allclose(value.item(), (y**2).sum())
  np.testing.assert_allclose(dmodel["w"].numpy(), 2 * x.numpy().T @ y)
  np.testing.assert_allclose(dmodel["b"][0].numpy(), 2 * y.sum(0))
  np.testing.assert_allclose(dx.numpy(), 2 * y @ model["w"].numpy().T)
  assert more == "more" and grad(loss, -2, has_aux=True)(model, x, 2)[0].shape == (4, 3)


def test_an_argument_is_not_the_same_value_from_around() -> None:
  x = Tensor([1.0, 2.0])
  assert grad(lambda y: (x * y).sum())(x).tolist() == [1, 2]
  assert jvp(lambda y: x * y, (x,), (Tensor([1.0, 1.0]),))[1].tolist() == [1, 2]
  # nor is a constant any other constant
  assert grad(lambda y: (y * Tensor.ones(2)).sum())(Tensor.ones(2)).tolist() == [1, 1]
  # perturbations of two levels are told apart: d/dx (x · d/dy (x + y)) = 1
  assert grad(lambda a: a * grad(lambda b: a + b)(a))(Tensor(3.0)).item() == 1


def test_values_may_be_looked_at() -> None:
  def f(x: Tensor) -> Tensor:
    y = x * x
    assert y.realize().tolist() == [1, 4]
    return y.sum() if x.sum().item() > 0 else -y.sum()

  x = Tensor([1.0, 2.0])
  assert grad(f)(x).tolist() == [2, 4] and jvp(f, (x,), (x,))[1].item() == 10
  assert checkpoint(f)(x).item() == 5 and grad(checkpoint(f))(x).tolist() == [2, 4]


def test_inside_a_function_writes_are_local() -> None:
  x = Tensor([1.0, 2.0, 3.0])

  def f(v: Tensor) -> Tensor:
    v[0] = v[1] * 10
    return (v * v).sum()

  assert grad(f)(x).tolist() == [0, 404, 6] and x.tolist() == [1, 2, 3]
  np.testing.assert_allclose(jvp(f, (x,), (Tensor([1.0, 0.5, 0.0]),))[1].item(), 202)


def test_what_is_not_depended_on() -> None:
  x = Tensor([1.0, 2.0])
  assert grad(lambda a, b: a.sum(), (0, 1))(x, x)[1].tolist() == [0, 0]
  value, tangent = jvp(lambda a: x * 2, (x,), (x,))
  assert value.tolist() == [2, 4] and tangent.tolist() == [0, 0]
  assert jacrev(lambda a: x)(x).tolist() == [[0, 0], [0, 0]] == jacfwd(lambda a: x)(x).tolist()
  assert grad(lambda a: a.detach().sum())(x).tolist() == [0, 0]


def test_vjp_and_jvp_are_transposes() -> None:
  def f(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    return {"product": (a @ b).tanh(), "total": a.sum() * b.max()}

  a, b = point(2, 3), point(3, 2, seed=1)
  da, db = point(2, 3, seed=2), point(3, 2, seed=3)
  out, pull = vjp(f, a, b)
  weight = {"product": point(2, 2, seed=4), "total": point(seed=5)}
  ga, gb = pull(weight)
  value, tangent = jvp(f, (a, b), (da, db))
  np.testing.assert_allclose(value["product"].numpy(), out["product"].numpy())
  pulled = (ga * da).sum() + (gb * db).sum()
  pushed = (weight["product"] * tangent["product"]).sum() + weight["total"] * tangent["total"]
  assert pulled.item() == pytest.approx(pushed.item(), rel=1e-12)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_jacobians_of_both_modes(shape: tuple[int, ...]) -> None:
  def f(x: Tensor) -> list[Tensor]:
    flat = x.reshape(-1)
    return [flat.stack(flat.sin() * flat.sum()), x.exp().sum()]

  x = point(*shape)
  forward, reverse = jacfwd(f)(x), jacrev(f)(x)
  n = x.numel()
  assert forward[0].shape == reverse[0].shape == (2, n, *shape) and forward[1].shape == shape
  flat = x.numpy().reshape(-1)
  lower = np.diag(np.cos(flat) * flat.sum()) + np.sin(flat)[:, None]
  expected = np.stack([np.eye(len(flat)), lower]).reshape(2, n, *shape)
  for made in (forward, reverse):
    np.testing.assert_allclose(made[0].numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(made[1].numpy(), np.exp(x.numpy()))


def test_second_derivatives_of_all_kinds_agree() -> None:
  def f(x: Tensor) -> Tensor:
    return ((x * x).tanh() * x.flip(0)).sum() + x.prod()

  x, v = point(3), point(3, seed=1)
  h = hessian(f)(x)
  found = {
    "forward over reverse": jvp(grad(f), (x,), (v,))[1],
    "reverse over reverse": grad(lambda y: (grad(f)(y) * v).sum())(x),
    "reverse over forward": grad(lambda y: jvp(f, (y,), (v,))[1])(x),
    "forward over forward": jacfwd(jacfwd(f))(x) @ v,
    "through checkpoint": jvp(grad(checkpoint(f)), (x,), (v,))[1],
    "checkpoint twice": hessian(checkpoint(lambda y: checkpoint(f)(y)))(x) @ v,
    "Tensor.gradient": (lambda y: ((f(y).gradient(y)[0]) * v).sum().gradient(y)[0])(x),
  }
  Tensor.realize(h, *found.values())
  for name, product in found.items():
    np.testing.assert_allclose(product.numpy(), h.numpy() @ v.numpy(), rtol=1e-9, err_msg=name)
  step, at = 1e-5, x.numpy()
  near = [(grad(f)(Tensor(at + s * v.numpy())).numpy()) for s in (step, -step)]
  np.testing.assert_allclose(h.numpy() @ v.numpy(), (near[0] - near[1]) / (2 * step), rtol=1e-6)


def test_a_third_derivative() -> None:
  third = grad(grad(grad(lambda x: x.sin() * x)))
  assert third(Tensor(0.7, dtype="float64")).item() == pytest.approx(-3 * np.sin(0.7) - 0.7 * np.cos(0.7), rel=1e-9)


def test_arguments_that_do_not_fit() -> None:
  x = Tensor([1.0, 2.0])
  with pytest.raises(ValueError, match="float32 of shape \\(2,\\): sum\\(\\) it"):
    grad(lambda v: v * 2)(x)
  with pytest.raises(ValueError, match="argnums 1 names argument 1"):
    grad(lambda v: v.sum(), 1)(x)
  with pytest.raises(TypeError, match="dtype int32"):
    grad(lambda v: v.sum())(Tensor([1]))
  with pytest.raises(TypeError, match="the int 3"):
    jvp(lambda v: v, (3,), (x,))
  with pytest.raises(ValueError, match=r"tangents of jvp.*float32 of shape \(1,\), expected float32 of shape \(2,\)"):
    jvp(lambda v: v, (x,), (x[:1],))
  with pytest.raises(ValueError, match="expected 1 Tensors, got 2"):
    jvp(lambda v: v, (x,), (x, x))
  with pytest.raises(TypeError, match="has_aux=True"):
    grad(lambda v: v.sum(), has_aux=True)(x)


# *** checkpoint ***

SIZE, LAYERS = 8, 3


def network(weights: list[Tensor], x: Tensor, wrap: Callable[..., Any]) -> Tensor:
  def block(h: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return ((h @ w).tanh() @ v).softmax(-1)

  for w, v in zip(weights[::2], weights[1::2], strict=True):
    x = wrap(lambda h, w=w, v=v: block(h, w, v))(x)
  return (x * x).sum()


def arena_and_calls(linear: UOp) -> tuple[int, int]:
  """Bytes of temporaries, and the number of kernels."""
  arenas = {a.src[0] for call in linear.src for a in call.src[1:] if a.op is Ops.BUFFER_VIEW}
  return sum(a.arg[1] * a.dtype.itemsize for a in arenas), len(linear.src)


def test_less_memory_for_more_kernels_and_the_same_numbers() -> None:
  weights = [(point(SIZE, SIZE, seed=i) / 4).realize().requires_grad_() for i in range(2 * LAYERS)]
  x = point(32, SIZE, seed=99).realize()
  grads: list[list[Array]] = []
  memory: list[int] = []
  calls: list[int] = []
  for wrap in (lambda f: f, checkpoint):
    for w in weights:
      w.grad = None
    loss = network(weights, x, wrap).backward()
    found = [w.grad for w in weights if w.grad is not None]
    linear = loss.schedule_linear(*found)
    run(linear)
    for measured, value in zip((memory, calls), arena_and_calls(linear), strict=True):
      measured.append(value)
    grads.append([loss.numpy(), *[g.numpy() for g in found]])
  # plainly, the values of all layers are kept; with checkpoint, those of one and the inputs of all
  assert memory[1] < 0.55 * memory[0] and calls[1] >= calls[0] + LAYERS
  for a, b in zip(*grads, strict=True):
    np.testing.assert_array_equal(a, b)


def test_checkpoint_of_containers_results_and_draws() -> None:
  x, w = point(3), point(3, seed=1)

  @checkpoint
  def f(pair: dict[str, Tensor], times: int, *, shift: Tensor) -> tuple[Tensor, list[Tensor]]:
    kept = Tensor.rand(3, dtype="float64")
    return (pair["a"] * times).sin() * kept, [pair["a"] + shift * shift, w.exp() * pair["a"].detach()]

  def loss(a: Tensor, shift: Tensor) -> Tensor:
    first, (second, third) = f({"a": a}, 2, shift=shift)
    return (first * second * third).sum()

  Tensor.manual_seed(5)
  found = grad(loss, (0, 1))(x, w)
  Tensor.manual_seed(5)
  kept, a, b = Tensor.rand(3, dtype="float64").numpy(), x.numpy(), w.numpy()
  third = np.exp(b) * a
  np.testing.assert_allclose(
    found[0].numpy(), third * kept * (2 * np.cos(2 * a) * (a + b * b) + np.sin(2 * a)), rtol=1e-9
  )
  np.testing.assert_allclose(found[1].numpy(), third * kept * np.sin(2 * a) * 2 * b, rtol=1e-9)


def test_checkpoint_with_writes_inside() -> None:
  @checkpoint
  def f(x: Tensor) -> Tensor:
    y = Tensor.zeros(4, dtype="float64").contiguous()
    y[1:] = x * x
    return (y * y).sum()

  x = point(3)
  np.testing.assert_allclose(grad(f)(x).numpy(), 4 * x.numpy() ** 3)
  outer = Tensor.zeros(3, dtype="float64").contiguous().realize()

  @checkpoint
  def remembers(x: Tensor) -> Tensor:
    outer.assign(x)
    return x.sum()

  with pytest.raises(TransformError, match=r"checkpoint\(remembers\) writes to a tensor of 3 elements"):
    remembers(x)


def test_checkpoint_with_parameters_that_are_not_computed_yet() -> None:
  """They were written to before; that is not done again."""
  w = Tensor.ones(3, dtype="float64", requires_grad=True) * 2
  x = point(3)
  (found,) = checkpoint(lambda v: (v * w).sin())(x).sum().gradient(w)
  np.testing.assert_allclose(found.numpy(), x.numpy() * np.cos(2 * x.numpy()))


def test_checkpoint_in_a_jit_and_under_vmap() -> None:
  w = point(3, 3).realize().requires_grad_()

  @checkpoint
  def layer(h: Tensor) -> Tensor:
    return (h @ w).tanh()

  def loss(x: Tensor) -> Tensor:
    return layer(x).square().sum()

  @TinyJit
  def step(x: Tensor) -> Tensor:
    w.grad = None
    loss(x).backward()
    assert w.grad is not None
    return w.grad.realize()

  for n in range(4):
    x = point(2, 3, seed=n)
    y = np.tanh(x.numpy() @ w.numpy())
    np.testing.assert_allclose(step(x).numpy(), x.numpy().T @ (2 * y * (1 - y * y)), rtol=1e-9)
  per_sample = vmap(grad(loss))(x)
  np.testing.assert_allclose(per_sample.numpy(), (2 * y * (1 - y * y)) @ w.numpy().T, rtol=1e-9)


# *** function ***


@function(grad_fxn=lambda gradient, output, x: gradient)
def straight_through(x: Tensor) -> Tensor:
  return x.round()


def test_a_gradient_of_its_own() -> None:
  x = Tensor([0.3, 1.6, -2.2], requires_grad=True)
  (straight_through(x) * Tensor([1.0, 2.0, 3.0])).sum().backward()
  assert x.grad is not None and x.grad.tolist() == [1, 2, 3]
  assert straight_through(x).tolist() == [0, 2, -2]
  assert jvp(straight_through, (x,), (x,))[1].tolist() == x.tolist()
  assert vmap(grad(lambda v: straight_through(v) * v))(x).tolist() == pytest.approx([0.3, 3.6, -4.2])


def test_it_outlives_what_is_computed_in_between() -> None:
  """A gradient belongs to a node of the graph, whatever becomes of its sources."""
  x = Tensor([0.3, 1.6], requires_grad=True)
  h = (x * 2).contiguous()
  y = straight_through(h) * 3
  h.realize()
  assert y.tolist() == [3, 9]
  y.sum().backward()
  assert x.grad is not None and x.grad.tolist() == [6, 6]


def test_several_results_and_arguments() -> None:
  @function(grad_fxn=lambda gs, outputs, x, y: (gs[0] * y + gs[1], gs[0] * outputs[0] * 0 + gs[0] * x))
  def both(data: dict[str, Tensor], scale: float, more: Tensor) -> tuple[Tensor, Tensor]:
    return data["x"] * more, data["x"] + scale

  x, y = point(3), point(3, seed=1)

  def loss(a: Tensor, b: Tensor) -> Tensor:
    product, total = both({"x": a}, 2.0, b)
    return (product * product).sum() + total.sum()

  gx, gy = grad(loss, (0, 1))(x, y)
  a, b = x.numpy(), y.numpy()
  np.testing.assert_allclose(gx.numpy(), 2 * a * b * b + 1)
  np.testing.assert_allclose(gy.numpy(), 2 * a * a * b)
  mapped = vmap(grad(loss, (0, 1)), (0, None))(x.stack(x * 2), y)
  np.testing.assert_allclose(mapped[0].numpy()[1], 4 * a * b * b + 1)
  np.testing.assert_allclose(mapped[1].numpy()[1], 8 * a * a * b)
  outside = grad(lambda v: vmap(loss, (0, None))(x.stack(x * 2), v).sum())(y)
  np.testing.assert_allclose(outside.numpy(), 10 * a * a * b)


def test_second_derivatives_of_a_gradient_of_its_own() -> None:
  @function(grad_fxn=lambda g, y, x: g * y * 3)
  def cubed(x: Tensor) -> Tensor:
    return x.detach() ** 3

  # its first derivative is said to be 3y, and so the second is 9y
  assert grad(grad(cubed))(Tensor(2.0)).item() == 72
  assert jvp(grad(cubed), (Tensor(2.0),), (Tensor(1.0),))[1].item() == 72


def test_what_a_gradient_function_gives_wrong() -> None:
  x, w = Tensor([1.0, 2.0]), Tensor([3.0, 4.0], requires_grad=True)

  def made(grad_fxn: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    return lambda v: function(lambda a: a * 2, grad_fxn=grad_fxn)(v).sum()

  with pytest.raises(ValueError, match="gave 2 gradients for 1 Tensors"):
    grad(made(lambda g, y, a: (g, g)))(x)
  with pytest.raises(TypeError, match="is a float: expected a Tensor or None"):
    grad(made(lambda g, y, a: 1.0))(x)
  with pytest.raises(ValueError, match=r"has shape \(\), expected \(2,\)"):
    grad(made(lambda g, y, a: g.sum()))(x)
  assert grad(made(lambda g, y, a: None))(x).tolist() == [0, 0]
  with pytest.raises(TransformError, match="not linear"):
    jvp(made(lambda g, y, a: g.clamp(-1, 1)), (x,), (x,))

  @function(grad_fxn=lambda g, y, a: g)
  def hidden(a: Tensor) -> Tensor:
    return a * w

  assert hidden(x).tolist() == [3, 8]
  with pytest.raises(RuntimeError, match="none in a value of shape \\(2,\\) that it takes"):
    hidden(x).sum().backward()
  with pytest.raises(TypeError, match="return Tensors"):
    made(lambda g, y, a: g)(3)  # type: ignore[arg-type]


def test_without_a_gradient_it_is_the_function() -> None:
  @function
  def twice(x: Tensor) -> Tensor:
    return x * 2

  assert grad(lambda x: twice(x).sum())(Tensor([1.0])).tolist() == [2]


# *** the node ***


def test_a_graph_with_a_derivative_of_its_own_as_text() -> None:
  x = Tensor([1.0, 2.0]).realize()
  y = straight_through(x)
  assert y.uop.op is Ops.CUSTOM_GRADIENT and 'name="function(straight_through)"' in print_uop(y.uop)
  assert parse_uop(print_uop(y.uop)) is y.uop
  assert not {Ops.CUSTOM_GRADIENT} & {u.op for u in y.graph().toposort}
  lost = parse_uop(print_uop(y.uop).replace("number=", "number=1000"))
  assert Tensor(lost).tolist() == [1, 2]
  with pytest.raises(RuntimeError, match="of the process in which the graph was made"):
    Tensor(lost).sum().gradient(x)


def test_equal_expressions_are_one_node() -> None:
  x = Tensor([1.0, 2.0]).realize()
  assert x.tanh().uop is x.tanh().uop and straight_through(x).uop.arg.number == straight_through(x).uop.arg.number
  one = with_gradient((x.uop,), (x.uop,), lambda gs, inputs, results: tuple(gs), "mine")
  two = with_gradient((x.uop,), (x.uop,), lambda gs, inputs, results: tuple(gs), "mine")
  assert one[0] is not two[0]
